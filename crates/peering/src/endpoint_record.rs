//! Where a server listens: the endpoint record in storage, which no REST client can write.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use api::objects::{EndpointAddress, EndpointPort, EndpointSubset, Endpoints};
use api::validation;

use crate::identity::ServerId;

/// The label by which real kube-apiservers find a record.
pub const ENDPOINT_IDENTITY_LABEL: &str = "apiserverIdentity";

/// Where a server listens for its peers. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Address {
    host: Arc<str>,
    port: u16,
}

impl Address {
    /// An IP address, or a DNS name, and a port; `None` if either is none.
    pub fn new(host: &str, port: u16) -> Option<Self> {
        let is_host = host.parse::<IpAddr>().is_ok() || validation::validate_dns1123_subdomain(host).is_empty();
        (is_host && port != 0).then(|| Self { host: host.into(), port })
    }

    /// The IP address as text, IPv6 without brackets, or a DNS name.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The record that says so. Every write has another generation, which makes it a write for real kube-apiservers too.
    pub fn to_record(&self, server: &ServerId, generation: i64) -> Endpoints {
        let mut record = Endpoints::default();
        record.metadata.generation = generation;
        record.metadata.labels.insert(ENDPOINT_IDENTITY_LABEL.to_owned(), server.as_str().to_owned());
        let address = EndpointAddress { ip: self.host.to_string(), ..EndpointAddress::default() };
        let port = EndpointPort {
            name: "https".to_owned(),
            port: self.port.into(),
            protocol: "TCP".to_owned(),
            ..EndpointPort::default()
        };
        record.subsets.push(EndpointSubset {
            addresses: vec![address],
            ports: vec![port],
            ..EndpointSubset::default()
        });
        record
    }

    /// Reads the record of a server.
    pub fn from_record(server: &ServerId, record: &Endpoints) -> Result<Self, EndpointRecordError> {
        if record.metadata.labels.get(ENDPOINT_IDENTITY_LABEL).is_none_or(|label| label != server.as_str()) {
            return Err(EndpointRecordError::WrongLabel);
        }
        let subset = record.subsets.first().ok_or(EndpointRecordError::NoAddress)?;
        let host = subset.addresses.first().ok_or(EndpointRecordError::NoAddress)?;
        let port = subset.ports.first().ok_or(EndpointRecordError::NoAddress)?;
        let port = u16::try_from(port.port).ok();
        port.and_then(|port| Self::new(&host.ip, port)).ok_or(EndpointRecordError::NoAddress)
    }
}

/// Why a record says nothing about where a server listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EndpointRecordError {
    /// It is labelled with another server.
    #[error("the record lacks the label {ENDPOINT_IDENTITY_LABEL} with the server that it is stored for")]
    WrongLabel,
    /// No host and port that could be connected to.
    #[error("the record holds no usable address and port")]
    NoAddress,
}

/// With brackets around IPv6, as in a URL.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use api::objects::{from_json, to_stored_json};
    use expect_test::expect;

    use super::*;

    fn server() -> ServerId {
        ServerId::from_name("apiserver-x").unwrap()
    }

    #[test]
    fn endpoint_record_matches_kube_apiserver() {
        let record = Address::new("10.0.0.1", 6443).unwrap().to_record(&server(), 3);
        expect![[r#"
            {"kind":"Endpoints","apiVersion":"v1","metadata":{"generation":3,"labels":{"apiserverIdentity":"apiserver-x"}},"subsets":[{"addresses":[{"ip":"10.0.0.1"}],"ports":[{"name":"https","port":6443,"protocol":"TCP"}]}]}
        "#]]
        .assert_eq(std::str::from_utf8(&to_stored_json(&record)).unwrap());
    }

    #[track_caller]
    fn check(labels: &str, subsets: &str, expected: Result<&str, EndpointRecordError>) {
        let json = format!(r#"{{"metadata":{{"labels":{labels}}},"subsets":{subsets}}}"#);
        let record: Endpoints = from_json(json.as_bytes()).unwrap();
        let address = Address::from_record(&server(), &record);
        assert_eq!(address.map(|address| address.to_string()), expected.map(str::to_owned));
    }

    #[test]
    fn from_record_returns_address_or_reason() {
        let ours = r#"{"apiserverIdentity":"apiserver-x"}"#;
        let subset =
            |ip: &str, port: i64| format!(r#"[{{"addresses":[{{"ip":"{ip}"}}],"ports":[{{"port":{port}}}]}}]"#);
        check(ours, &subset("10.0.0.1", 6443), Ok("10.0.0.1:6443"));
        check(ours, &subset("fd00::1", 1), Ok("[fd00::1]:1"));
        check(ours, &subset("cp-1.example.com", 6443), Ok("cp-1.example.com:6443"));
        check("{}", &subset("10.0.0.1", 6443), Err(EndpointRecordError::WrongLabel));
        check(
            r#"{"apiserverIdentity":"apiserver-y"}"#,
            &subset("10.0.0.1", 6443),
            Err(EndpointRecordError::WrongLabel),
        );
        for subsets in [
            "[]".to_owned(),
            "[{}]".to_owned(),
            r#"[{"addresses":[{"ip":"10.0.0.1"}]}]"#.to_owned(),
            subset("", 6443),
            subset("a b", 6443),
            subset("user@10.0.0.1", 6443),
            subset("10.0.0.1", 0),
            subset("10.0.0.1", 65536),
            subset("10.0.0.1", -1),
        ] {
            check(ours, &subsets, Err(EndpointRecordError::NoAddress));
        }
    }
}

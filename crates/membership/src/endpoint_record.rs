//! The endpoint record in storage, which says where a server listens. No REST client can write it.

use api::Address;
use api::objects::{EndpointAddress, EndpointPort, EndpointSubset, Endpoints};

use crate::identity::ServerId;

/// The label by which kube-apiserver finds a record.
pub const ENDPOINT_IDENTITY_LABEL: &str = "apiserverIdentity";

/// Builds the endpoint record of a server. `generation` must differ from the last write: kube-apiserver ignores a record that did
/// not change.
pub fn new_record(address: &Address, server: &ServerId, generation: i64) -> Endpoints {
    let mut record = Endpoints::default();
    record.metadata.generation = generation;
    record.metadata.labels.insert(ENDPOINT_IDENTITY_LABEL.to_owned(), server.as_str().to_owned());
    let endpoint = EndpointAddress { ip: address.host().to_owned(), ..EndpointAddress::default() };
    let port = EndpointPort {
        name: "https".to_owned(),
        port: address.port().into(),
        protocol: "TCP".to_owned(),
        ..EndpointPort::default()
    };
    record.subsets.push(EndpointSubset { addresses: vec![endpoint], ports: vec![port], ..EndpointSubset::default() });
    record
}

/// Reads the address from the endpoint record of a server.
pub fn record_address(server: &ServerId, record: &Endpoints) -> Result<Address, EndpointRecordError> {
    if record.metadata.labels.get(ENDPOINT_IDENTITY_LABEL).is_none_or(|label| label != server.as_str()) {
        return Err(EndpointRecordError::WrongLabel);
    }
    let subset = record.subsets.first().ok_or(EndpointRecordError::NoAddress)?;
    let host = subset.addresses.first().ok_or(EndpointRecordError::NoAddress)?;
    let port = subset.ports.first().ok_or(EndpointRecordError::NoAddress)?;
    let port = u16::try_from(port.port).ok();
    port.and_then(|port| Address::new(&host.ip, port)).ok_or(EndpointRecordError::NoAddress)
}

/// Why a record has no usable address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EndpointRecordError {
    /// The label names another server.
    #[error("the record lacks the label {ENDPOINT_IDENTITY_LABEL} with the server that it is stored for")]
    WrongLabel,
    /// The record has no valid host and port.
    #[error("the record holds no usable address and port")]
    NoAddress,
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
        let record = new_record(&Address::new("10.0.0.1", 6443).unwrap(), &server(), 3);
        expect![[r#"
            {"kind":"Endpoints","apiVersion":"v1","metadata":{"generation":3,"labels":{"apiserverIdentity":"apiserver-x"}},"subsets":[{"addresses":[{"ip":"10.0.0.1"}],"ports":[{"name":"https","port":6443,"protocol":"TCP"}]}]}
        "#]]
        .assert_eq(std::str::from_utf8(&to_stored_json(&record)).unwrap());
    }

    #[track_caller]
    fn check(labels: &str, subsets: &str, expected: Result<&str, EndpointRecordError>) {
        let json = format!(r#"{{"metadata":{{"labels":{labels}}},"subsets":{subsets}}}"#);
        let record: Endpoints = from_json(json.as_bytes()).unwrap();
        let address = record_address(&server(), &record);
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

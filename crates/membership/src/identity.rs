//! The identity of a server, made from its hostname, and the holder identity of one of its processes.

mod component_leases;
mod identity_lease;

use std::fmt;
use std::sync::Arc;

use aws_lc_rs::digest;

pub use component_leases::ComponentLeases;
pub use identity_lease::{
    ADDRESS_ANNOTATION, HOSTNAME_LABEL, IDENTITY_LABEL, IDENTITY_LABEL_VALUE, IDENTITY_LEASE_NAMESPACE, IdentityLease,
    IdentityLeaseTemplate, NotAnIdentityLease,
};

/// The prefix of every identity.
const SERVER_ID_PREFIX: &str = "apiserver-";
/// The bytes of the digest that are used.
const DIGEST_BYTES: usize = 16;

/// The identity of a server in its cluster, such as `apiserver-tcwjsvs6hjq4qbwzx5rvp5fsqe`. Cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerId(Arc<str>);

impl ServerId {
    /// The identity of the server on this host: kube-apiserver's formula.
    pub fn from_hostname(hostname: &str) -> Self {
        Self::for_component(hostname, IDENTITY_LABEL_VALUE)
    }

    /// The identity of a component's server on this host, by the same formula. Components on one host have different identities.
    pub fn for_component(hostname: &str, component: &str) -> Self {
        let mut context = digest::Context::new(&digest::SHA256);
        for part in [hostname, component] {
            // Hostnames have at most 255 bytes.
            context.update(&u16::try_from(part.len()).unwrap_or(u16::MAX).to_be_bytes());
            context.update(part.as_bytes());
        }
        let digest = context.finish();
        Self(format!("{SERVER_ID_PREFIX}{}", base32(&digest.as_ref()[..DIGEST_BYTES])).into())
    }

    /// The identity of one of several servers on this host, told apart by port.
    pub fn from_hostname_and_port(hostname: &str, port: u16) -> Self {
        Self::from_hostname(&format!("{hostname}:{port}"))
    }

    /// Parses an identity; `None` if the prefix is missing or nothing follows it.
    pub fn from_name(name: &str) -> Option<Self> {
        let rest = name.strip_prefix(SERVER_ID_PREFIX)?;
        (!rest.is_empty()).then(|| Self(name.into()))
    }

    /// The identity as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The identity as shared text.
    pub fn name(&self) -> &Arc<str> {
        &self.0
    }
}

impl fmt::Display for ServerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ServerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The name of one process of a server: the identity, `_`, and a part that is new at every start.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HolderIdentity(Arc<str>);

impl HolderIdentity {
    /// Makes a holder identity; `random` becomes a version 4 UUID.
    pub fn new(server: &ServerId, random: u128) -> Self {
        let process = uuid::Builder::from_random_bytes(random.to_be_bytes()).into_uuid();
        Self(format!("{server}_{process}").into())
    }

    /// A holder identity from a lease or a stored document.
    pub fn from_text(text: &str) -> Self {
        Self(text.into())
    }

    /// The holder identity as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// True for a process of this server.
    pub fn belongs_to(&self, server: &ServerId) -> bool {
        let random = self.0.strip_prefix(server.as_str()).and_then(|rest| rest.strip_prefix('_'));
        random.is_some_and(|random| !random.is_empty())
    }
}

impl fmt::Display for HolderIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for HolderIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// RFC 4648 in lower case and without padding.
fn base32(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
    let mut text = String::with_capacity(bytes.len().div_ceil(5) * 8);
    let (mut pending, mut bits) = (0_u32, 0_u32);
    for byte in bytes {
        pending = pending << 8 | u32::from(*byte);
        bits += 8;
        while bits >= 5 {
            bits -= 5;
            text.push(char::from(ALPHABET[(pending >> bits) as usize & 31]));
        }
    }
    if bits > 0 {
        text.push(char::from(ALPHABET[(pending << (5 - bits)) as usize & 31]));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_id_matches_kube_apiserver_formula() {
        for (hostname, identity) in [
            ("test-server-a", "apiserver-tcwjsvs6hjq4qbwzx5rvp5fsqe"),
            ("test-server-b", "apiserver-scg43bmblmfhqplxpiyqlziyzi"),
            ("localhost", "apiserver-l2yubf4cvcl5c7a3wrubrwqdve"),
        ] {
            assert_eq!(ServerId::from_hostname(hostname).as_str(), identity, "{hostname}");
        }
    }

    #[test]
    fn server_id_with_port_is_unique_per_port() {
        let [a, b] = [6443, 6444].map(|port| ServerId::from_hostname_and_port("localhost", port));
        assert_ne!(a, b);
        assert_ne!(a, ServerId::from_hostname("localhost"));
        assert_eq!(a.as_str().len(), 36);
    }

    #[test]
    fn from_name_rejects_names_without_prefix() {
        assert!(ServerId::from_name("apiserver-x").is_some());
        for name in ["", "apiserver-", "apiserver", "kube-apiserver-x", "APISERVER-x"] {
            assert_eq!(ServerId::from_name(name), None, "{name}");
        }
    }

    #[test]
    fn holder_identity_is_server_id_and_uuid() {
        let server = ServerId::from_name("apiserver-x").unwrap();
        let holder = HolderIdentity::new(&server, u128::MAX);
        assert_eq!(holder.as_str(), "apiserver-x_ffffffff-ffff-4fff-bfff-ffffffffffff");
        assert_eq!(HolderIdentity::new(&server, 0).as_str(), "apiserver-x_00000000-0000-4000-8000-000000000000");
        assert!(holder.belongs_to(&server));
        for other in ["apiserver-x", "apiserver-x_", "apiserver-xy_1", "_1", ""] {
            assert!(!HolderIdentity::from_text(other).belongs_to(&server), "{other}");
        }
    }

    #[test]
    fn base32_matches_rfc_4648() {
        for (bytes, text) in [("", ""), ("f", "my"), ("fo", "mzxq"), ("foo", "mzxw6"), ("foobar", "mzxw6ytboi")] {
            assert_eq!(base32(bytes.as_bytes()), text);
        }
    }
}

//! Network addresses of servers.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use crate::validation;

/// The host and port of a server. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Address {
    host: Arc<str>,
    port: u16,
}

impl Address {
    /// Returns `None` unless `host` is an IP address or a DNS name and `port` is not 0.
    pub fn new(host: &str, port: u16) -> Option<Self> {
        let is_host = host.parse::<IpAddr>().is_ok() || validation::validate_dns1123_subdomain(host).is_empty();
        (is_host && port != 0).then(|| Self { host: host.into(), port })
    }

    /// An IP address, IPv6 without brackets, or a DNS name.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port, never 0.
    pub fn port(&self) -> u16 {
        self.port
    }
}

/// `host:port`, with brackets around IPv6 as in a URL.
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

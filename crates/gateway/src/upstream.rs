//! One kube-apiserver behind the gateway.

use std::str::FromStr;

use api::Address;
use membership::ServerId;

/// Default port of a URL.
const HTTPS_PORT: u16 = 443;
/// Prefix that marks the upstream on this machine.
const LOCAL_PREFIX: &str = "local=";

/// An upstream by its address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upstream {
    /// Member identity, `apiserver-HOST:PORT`.
    pub server: ServerId,
    /// Address it listens on.
    pub address: Address,
    /// True for the local upstream, preferred for everything it serves.
    pub is_local: bool,
}

/// Why a text is not a valid upstream.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum UpstreamError {
    /// The scheme is not https; plain HTTP would expose tokens.
    #[error("upstreams are reached over https only")]
    UnsupportedScheme,
    /// The URL has a path, query or user; requests keep their own path.
    #[error("a path, query or user does not belong here; https://host:port is expected")]
    UnexpectedComponent,
    /// Host or port is not valid.
    #[error("https://host:port is expected, with an IP address or a DNS name")]
    InvalidAddress,
}

impl Upstream {
    /// Creates an upstream named after its address.
    pub fn new(address: Address) -> Self {
        let server = ServerId::from_name(&format!("apiserver-{address}")).expect("an address is not empty");
        Self { server, address, is_local: false }
    }
}

/// Parses `https://host:port` or `host:port`, after `local=` for the upstream on this machine.
impl FromStr for Upstream {
    type Err = UpstreamError;

    fn from_str(text: &str) -> Result<Self, UpstreamError> {
        let (is_local, url) = match text.strip_prefix(LOCAL_PREFIX) {
            Some(url) => (true, url),
            None => (false, text),
        };
        let authority = match url.split_once("://") {
            Some(("https", authority)) => authority,
            Some(_) => return Err(UpstreamError::UnsupportedScheme),
            None => url,
        };
        let authority = authority.strip_suffix('/').unwrap_or(authority);
        if authority.contains(['/', '?', '#', '@']) {
            return Err(UpstreamError::UnexpectedComponent);
        }
        let (host, port) = split_host_port(authority).ok_or(UpstreamError::InvalidAddress)?;
        let address = Address::new(host, port).ok_or(UpstreamError::InvalidAddress)?;
        Ok(Self { is_local, ..Self::new(address) })
    }
}

fn split_host_port(authority: &str) -> Option<(&str, u16)> {
    if let Some(rest) = authority.strip_prefix('[') {
        let (host, rest) = rest.split_once(']')?;
        let port = rest.strip_prefix(':').map_or(Some(HTTPS_PORT), |port| port.parse().ok());
        return (host.contains(':')).then_some((host, port?));
    }
    match authority.split_once(':') {
        None => Some((authority, HTTPS_PORT)),
        Some((host, port)) => Some((host, port.parse().ok()?)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Result<&str, UpstreamError>) {
        let shown = text
            .parse::<Upstream>()
            .map(|upstream| format!("{}{}", if upstream.is_local { "local " } else { "" }, upstream.server));
        assert_eq!(shown, expected.map(str::to_owned), "{text}");
    }

    #[test]
    fn parse_accepts_host_and_port() {
        check("https://10.0.0.1:6443", Ok("apiserver-10.0.0.1:6443"));
        check("10.0.0.1:6443", Ok("apiserver-10.0.0.1:6443"));
        check("https://cp-1.example.com/", Ok("apiserver-cp-1.example.com:443"));
        check("https://[fd00::1]:6443", Ok("apiserver-[fd00::1]:6443"));
        check("[fd00::1]", Ok("apiserver-[fd00::1]:443"));
        check("local=https://127.0.0.1:6443", Ok("local apiserver-127.0.0.1:6443"));
    }

    #[test]
    fn parse_rejects_other_urls() {
        check("http://10.0.0.1:6443", Err(UpstreamError::UnsupportedScheme));
        check("https://10.0.0.1:6443/k8s/clusters/c-1", Err(UpstreamError::UnexpectedComponent));
        check("https://user@10.0.0.1", Err(UpstreamError::UnexpectedComponent));
        for text in ["", "https://", "10.0.0.1:port", "10.0.0.1:0", "a b:1", "fd00::1", "[10.0.0.1]:1"] {
            check(text, Err(UpstreamError::InvalidAddress));
        }
    }
}

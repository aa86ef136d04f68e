//! Whether a request comes from a client or from a peer: there is at most one hop.
//!
//! The mark changes routing, so it is believed only from a front proxy, and nobody behind us sees it.

use http::header::{HeaderMap, HeaderName, HeaderValue};

/// The mark that real kube-apiservers send and read.
pub const PEER_PROXIED: HeaderName = HeaderName::from_static("x-kubernetes-peer-proxied");
/// The mark that KEP-4020 names ("Risks and Mitigations" 4).
pub const REROUTED: HeaderName = HeaderName::from_static("x-kubernetes-apiserver-rerouted");

const MARKED: HeaderValue = HeaderValue::from_static("true");

/// Who sent a request to us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hop {
    /// A client; we may forward.
    FromClient,
    /// A peer, which forwarded it; we may not forward it again.
    FromPeer,
}

/// Whether the sender of a request has authenticated as a front proxy, as peers do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sender {
    /// By a certificate that `--requestheader-client-ca-file` and `--requestheader-allowed-names` accept.
    FrontProxy,
    /// Anybody else.
    Other,
}

impl Hop {
    /// Reads the mark, if the sender is one to be believed, and removes it in any case.
    pub fn take(headers: &mut HeaderMap, sender: Sender) -> Self {
        let marks = [PEER_PROXIED, REROUTED].map(|name| headers.remove(name));
        let is_marked = marks.into_iter().flatten().any(|mark| mark == MARKED);
        if is_marked && sender == Sender::FrontProxy { Self::FromPeer } else { Self::FromClient }
    }
}

/// Marks a request that is forwarded, under both names, once each.
pub fn mark(headers: &mut HeaderMap) {
    headers.insert(PEER_PROXIED, MARKED);
    headers.insert(REROUTED, MARKED);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(lines: &[(&'static str, &'static str)], sender: Sender, expected: Hop) {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        assert_eq!(Hop::take(&mut headers, sender), expected, "{lines:?}");
        assert!(headers.is_empty(), "{headers:?}");
    }

    #[test]
    fn a_front_proxy_is_believed_under_either_name() {
        check(&[("x-kubernetes-peer-proxied", "true")], Sender::FrontProxy, Hop::FromPeer);
        check(&[("x-kubernetes-apiserver-rerouted", "true")], Sender::FrontProxy, Hop::FromPeer);
        check(&[], Sender::FrontProxy, Hop::FromClient);
        check(&[("x-kubernetes-peer-proxied", "True")], Sender::FrontProxy, Hop::FromClient);
    }

    #[test]
    fn nobody_else_is_believed_and_the_mark_is_removed() {
        let twice = [("x-kubernetes-peer-proxied", "true"), ("x-kubernetes-peer-proxied", "true")];
        check(&twice, Sender::Other, Hop::FromClient);
        check(&[("x-kubernetes-apiserver-rerouted", "true")], Sender::Other, Hop::FromClient);
    }

    #[test]
    fn what_we_mark_is_believed_and_marked_once() {
        let mut headers = HeaderMap::new();
        headers.append(PEER_PROXIED, HeaderValue::from_static("false"));
        mark(&mut headers);
        assert_eq!(headers.len(), 2);
        assert_eq!(Hop::take(&mut headers, Sender::FrontProxy), Hop::FromPeer);
    }
}

//! Whether a request comes from a client or from a peer: there is at most one hop.
//!
//! The mark changes routing, so it is believed only from a front proxy, and nobody behind us sees it.

use http::header::{HeaderMap, HeaderName, HeaderValue};

/// The mark that real kube-apiservers send and read.
pub const PEER_PROXIED: HeaderName = HeaderName::from_static("x-kubernetes-peer-proxied");
/// The mark that KEP-4020 names ("Risks and Mitigations" 4).
pub const REROUTED: HeaderName = HeaderName::from_static("x-kubernetes-apiserver-rerouted");

const MARK_VALUE: HeaderValue = HeaderValue::from_static("true");

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
pub enum RequestSender {
    /// By a certificate that `--requestheader-client-ca-file` and `--requestheader-allowed-names` accept.
    FrontProxy,
    /// Anybody else.
    Other,
}

impl Hop {
    /// Reads the mark, if the sender is one to be believed, and removes it in any case.
    pub fn take_from_headers(headers: &mut HeaderMap, sender: RequestSender) -> Self {
        let marks = [PEER_PROXIED, REROUTED].map(|name| headers.remove(name));
        let is_marked = marks.into_iter().flatten().any(|mark| mark == MARK_VALUE);
        if is_marked && sender == RequestSender::FrontProxy { Self::FromPeer } else { Self::FromClient }
    }
}

/// Marks a request that is forwarded, under both names, once each.
pub fn mark_forwarded(headers: &mut HeaderMap) {
    headers.insert(PEER_PROXIED, MARK_VALUE);
    headers.insert(REROUTED, MARK_VALUE);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(lines: &[(&'static str, &'static str)], sender: RequestSender, expected: Hop) {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        assert_eq!(Hop::take_from_headers(&mut headers, sender), expected, "{lines:?}");
        assert!(headers.is_empty(), "{headers:?}");
    }

    #[test]
    fn hop_mark_of_front_proxy_is_accepted_under_both_names() {
        check(&[("x-kubernetes-peer-proxied", "true")], RequestSender::FrontProxy, Hop::FromPeer);
        check(&[("x-kubernetes-apiserver-rerouted", "true")], RequestSender::FrontProxy, Hop::FromPeer);
        check(&[], RequestSender::FrontProxy, Hop::FromClient);
        check(&[("x-kubernetes-peer-proxied", "True")], RequestSender::FrontProxy, Hop::FromClient);
    }

    #[test]
    fn hop_mark_of_other_senders_is_removed_and_ignored() {
        let twice = [("x-kubernetes-peer-proxied", "true"), ("x-kubernetes-peer-proxied", "true")];
        check(&twice, RequestSender::Other, Hop::FromClient);
        check(&[("x-kubernetes-apiserver-rerouted", "true")], RequestSender::Other, Hop::FromClient);
    }

    #[test]
    fn mark_forwarded_replaces_existing_marks() {
        let mut headers = HeaderMap::new();
        headers.append(PEER_PROXIED, HeaderValue::from_static("false"));
        mark_forwarded(&mut headers);
        assert_eq!(headers.len(), 2);
        assert_eq!(Hop::take_from_headers(&mut headers, RequestSender::FrontProxy), Hop::FromPeer);
    }
}

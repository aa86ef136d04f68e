//! Whether a request comes from a client or was forwarded by a peer: there is at most one hop.
//!
//! The hop mark changes routing, so it counts only from a front proxy and is removed before the request goes on.

use api::headers::lowercase::{HOP_MARK_VALUE, PEER_PROXIED, REROUTED};
use http::header::{HeaderMap, HeaderName};

const HOP_MARKS: [HeaderName; 2] = [HeaderName::from_static(PEER_PROXIED), HeaderName::from_static(REROUTED)];

/// The sender of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hop {
    /// A client: the request may be forwarded.
    FromClient,
    /// A peer forwarded the request: it is not forwarded again.
    FromPeer,
}

/// Whether the sender of a request has authenticated as a front proxy, as peers do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestSender {
    /// The certificate is accepted by `--requestheader-client-ca-file` and `--requestheader-allowed-names`.
    FrontProxy,
    /// Any other sender.
    Other,
}

impl Hop {
    /// Reads the hop mark of a front proxy. Removes the mark of any sender.
    pub fn take_from_headers(headers: &mut HeaderMap, sender: RequestSender) -> Self {
        let marks = HOP_MARKS.map(|name| headers.remove(name));
        let is_marked = marks.into_iter().flatten().any(|mark| mark == HOP_MARK_VALUE);
        if is_marked && sender == RequestSender::FrontProxy { Self::FromPeer } else { Self::FromClient }
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

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
}

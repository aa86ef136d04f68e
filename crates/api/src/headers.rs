//! Headers and WebSocket subprotocols that carry an identity or credential, and the id and origin of a request.
//!
//! Constants are in Go's canonical spelling, for flags and messages; [`lowercase`] is for comparison with parsed
//! headers.

/// The user that a front proxy authenticated.
pub const REMOTE_USER: &str = "X-Remote-User";
/// The user's uid.
pub const REMOTE_UID: &str = "X-Remote-Uid";
/// A group of the user; may be repeated.
pub const REMOTE_GROUP: &str = "X-Remote-Group";
/// The percent-encoded key of an extra value follows.
pub const REMOTE_EXTRA_PREFIX: &str = "X-Remote-Extra-";

/// A WebSocket subprotocol that carries a bearer token, because browsers cannot set `Authorization` on WebSockets.
/// The base64url token follows.
pub const BEARER_PROTOCOL_PREFIX: &str = "base64url.bearer.authorization.k8s.io.";

/// The names in lower case, as HTTP libraries store them.
pub mod lowercase {
    /// [`super::REMOTE_USER`].
    pub const REMOTE_USER: &str = "x-remote-user";
    /// [`super::REMOTE_UID`].
    pub const REMOTE_UID: &str = "x-remote-uid";
    /// [`super::REMOTE_GROUP`].
    pub const REMOTE_GROUP: &str = "x-remote-group";
    /// [`super::REMOTE_EXTRA_PREFIX`].
    pub const REMOTE_EXTRA_PREFIX: &str = "x-remote-extra-";
    /// The common prefix of the headers above.
    pub const REMOTE_PREFIX: &str = "x-remote-";
    /// The id of a request, in both directions and from server to server.
    pub const AUDIT_ID: &str = "audit-id";
    /// The addresses of the client and of the proxies before the last one.
    pub const FORWARDED_FOR: &str = "x-forwarded-for";
    /// The prefix of the impersonation headers.
    pub const IMPERSONATE_PREFIX: &str = "impersonate-";
    /// The hop mark that kube-apiserver sets on a request it forwards to a peer, and reads.
    pub const PEER_PROXIED: &str = "x-kubernetes-peer-proxied";
    /// The hop mark that KEP-4020 names ("Risks and Mitigations" 4).
    pub const REROUTED: &str = "x-kubernetes-apiserver-rerouted";
    /// The value of both hop marks.
    pub const HOP_MARK_VALUE: &str = "true";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_spellings_are_the_same_name() {
        for (canonical, lower) in [
            (REMOTE_USER, lowercase::REMOTE_USER),
            (REMOTE_UID, lowercase::REMOTE_UID),
            (REMOTE_GROUP, lowercase::REMOTE_GROUP),
            (REMOTE_EXTRA_PREFIX, lowercase::REMOTE_EXTRA_PREFIX),
        ] {
            assert_eq!(canonical.to_ascii_lowercase(), lower);
            assert!(lower.starts_with(lowercase::REMOTE_PREFIX), "{lower}");
        }
    }
}

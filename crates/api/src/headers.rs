//! Headers and websocket protocols that tell a server who the user is, and the id and origin of a request.
//!
//! Flags and messages spell header names as Go does; [`lowercase`] has them as HTTP libraries keep them.

/// The user that a front proxy names.
pub const REMOTE_USER: &str = "X-Remote-User";
/// The uid of that user.
pub const REMOTE_UID: &str = "X-Remote-Uid";
/// A group of that user; repeated for several.
pub const REMOTE_GROUP: &str = "X-Remote-Group";
/// The key of an extra value follows, percent-encoded.
pub const REMOTE_EXTRA_PREFIX: &str = "X-Remote-Extra-";

/// A websocket protocol that is a bearer token: browsers cannot set `Authorization` on websockets. The token follows, in base64url.
pub const BEARER_PROTOCOL_PREFIX: &str = "base64url.bearer.authorization.k8s.io.";

/// Names for comparison with header names that are in lowercase already.
pub mod lowercase {
    /// [`super::REMOTE_USER`].
    pub const REMOTE_USER: &str = "x-remote-user";
    /// [`super::REMOTE_UID`].
    pub const REMOTE_UID: &str = "x-remote-uid";
    /// [`super::REMOTE_GROUP`].
    pub const REMOTE_GROUP: &str = "x-remote-group";
    /// [`super::REMOTE_EXTRA_PREFIX`].
    pub const REMOTE_EXTRA_PREFIX: &str = "x-remote-extra-";
    /// The prefix of all of the above.
    pub const REMOTE_PREFIX: &str = "x-remote-";
    /// The id of a request, in both directions and from server to server.
    pub const AUDIT_ID: &str = "audit-id";
    /// The addresses of the client and of the proxies before the last one.
    pub const FORWARDED_FOR: &str = "x-forwarded-for";
    /// The prefix of the headers by which a user acts as another one.
    pub const IMPERSONATE_PREFIX: &str = "impersonate-";
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

//! The user of a forwarded request: `X-Remote-*` headers, or the client's own credentials.

use std::fmt::Write as _;
use std::sync::Arc;

use api::headers::BEARER_PROTOCOL_PREFIX;
use api::headers::lowercase::{
    IMPERSONATE_PREFIX, REMOTE_EXTRA_PREFIX, REMOTE_GROUP, REMOTE_PREFIX, REMOTE_UID, REMOTE_USER,
};
use http::header::{AUTHORIZATION, SEC_WEBSOCKET_PROTOCOL};
use http::{HeaderMap, HeaderName, HeaderValue};

const USER: HeaderName = HeaderName::from_static(REMOTE_USER);
const UID: HeaderName = HeaderName::from_static(REMOTE_UID);
const GROUP: HeaderName = HeaderName::from_static(REMOTE_GROUP);

/// The user of a request as a peer sees it. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForwardedUser {
    credentials: Credentials,
    impersonation: ImpersonationState,
}

/// What proves the user to the peer.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Credentials {
    /// Our certificate: these headers name the user, over a connection that shows it.
    FrontProxy(Arc<[(HeaderName, HeaderValue)]>),
    /// The client's own, forwarded unchanged over a connection without a client certificate.
    Client,
}

/// Which server authorizes impersonation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ImpersonationState {
    /// This server did; the user is the impersonated one.
    Resolved,
    /// The peer; the impersonation headers are forwarded.
    LeftToPeer,
}

/// A user whose name, uid, group or extra value cannot be a header value, or would arrive as another value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the user cannot be named to a peer: {part} {value:?} is empty, too long, or has characters that headers lose")]
pub struct UnsendableUser {
    /// The part: name, uid, group or extra.
    pub part: &'static str,
    /// The value of that part.
    pub value: String,
}

impl ForwardedUser {
    /// A user that our certificate proves. The uid may be empty; extra values come with their keys.
    pub fn new<'a>(
        name: &str,
        uid: &str,
        groups: impl IntoIterator<Item = &'a str>,
        extra: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, UnsendableUser> {
        let mut lines = vec![(USER, header_value("name", name)?)];
        if !uid.is_empty() {
            lines.push((UID, header_value("uid", uid)?));
        }
        for group in groups.into_iter().filter(|group| !group.is_empty()) {
            lines.push((GROUP, header_value("group", group)?));
        }
        for (key, text) in extra {
            let unsendable = |_| UnsendableUser { part: "extra key", value: key.to_owned() };
            let header = HeaderName::try_from(extra_header(key)).map_err(unsendable)?;
            // An empty extra value is a value, unlike an empty group or uid.
            lines.push((
                header,
                if text.is_empty() { HeaderValue::from_static("") } else { header_value("extra value", text)? },
            ));
        }
        Ok(Self { credentials: Credentials::FrontProxy(lines.into()), impersonation: ImpersonationState::Resolved })
    }

    /// The user that the request's own credentials prove to the peer, or an anonymous one.
    pub fn with_client_credentials() -> Self {
        Self { credentials: Credentials::Client, impersonation: ImpersonationState::LeftToPeer }
    }

    /// The same user; the peer authorizes impersonation.
    pub fn with_impersonation_by_peer(self) -> Self {
        Self { impersonation: ImpersonationState::LeftToPeer, ..self }
    }

    /// The name of a user that our certificate proves; `None` for credentials that only the peer can read.
    pub fn name(&self) -> Option<&str> {
        match &self.credentials {
            // The first header is the name.
            Credentials::FrontProxy(lines) => {
                lines.first().and_then(|(_, name)| std::str::from_utf8(name.as_bytes()).ok())
            }
            Credentials::Client => None,
        }
    }

    /// True if only our certificate proves the user to the peer.
    pub fn is_vouched_for(&self) -> bool {
        match self.credentials {
            Credentials::FrontProxy(_) => true,
            Credentials::Client => false,
        }
    }

    /// Removes every identity header from a head and writes those of the user.
    pub fn write_headers(&self, headers: &mut HeaderMap) {
        let is_wish = |name: &HeaderName| name.as_str().starts_with(IMPERSONATE_PREFIX);
        let is_left_to_peer = self.impersonation == ImpersonationState::LeftToPeer;
        let is_claim = |name: &HeaderName| is_identity_header(name) || !is_left_to_peer && is_wish(name);
        let removed: Vec<HeaderName> = headers.keys().filter(|name| is_claim(name)).cloned().collect();
        for name_to_remove in removed {
            headers.remove(name_to_remove);
        }
        if let Credentials::FrontProxy(lines) = &self.credentials {
            headers.remove(AUTHORIZATION);
            remove_bearer_protocols(headers);
            for (name, value) in lines.iter() {
                headers.append(name, value.clone());
            }
        }
    }
}

/// Headers that a peer reads as identity: whole names and prefixes, compared without case.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IdentityHeaders {
    names: Vec<String>,
    prefixes: Vec<String>,
}

impl IdentityHeaders {
    /// Blank names and prefixes are left out: a blank prefix would match every header.
    pub fn new<'a>(names: impl IntoIterator<Item = &'a str>, prefixes: impl IntoIterator<Item = &'a str>) -> Self {
        let lower = |text: &str| Some(text.trim().to_ascii_lowercase()).filter(|text| !text.is_empty());
        let names = names.into_iter().filter_map(lower).collect();
        Self { names, prefixes: prefixes.into_iter().filter_map(lower).collect() }
    }

    /// True if no header is identity.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty() && self.prefixes.is_empty()
    }

    pub(super) fn remove_from(&self, headers: &mut HeaderMap) {
        let is_known = |name: &str| {
            self.names.iter().any(|known| known == name) || self.prefixes.iter().any(|prefix| name.starts_with(prefix))
        };
        let known: Vec<HeaderName> = headers.keys().filter(|name| is_known(name.as_str())).cloned().collect();
        for name in known {
            headers.remove(name);
        }
    }
}

fn remove_bearer_protocols(headers: &mut HeaderMap) {
    if !headers.contains_key(SEC_WEBSOCKET_PROTOCOL) {
        return;
    }
    let lines: Vec<&str> =
        headers.get_all(SEC_WEBSOCKET_PROTOCOL).into_iter().filter_map(|line| line.to_str().ok()).collect();
    let offered = lines.iter().flat_map(|line| line.split(',')).map(str::trim);
    let kept: Vec<&str> = offered.filter(|protocol| !protocol.starts_with(BEARER_PROTOCOL_PREFIX)).collect();
    let kept = HeaderValue::try_from(kept.join(", ")).ok().filter(|kept| !kept.is_empty());
    headers.remove(SEC_WEBSOCKET_PROTOCOL);
    headers.extend(kept.map(|kept| (SEC_WEBSOCKET_PROTOCOL, kept)));
}

/// True for headers that a peer which trusts our certificate reads as identity.
fn is_identity_header(name: &HeaderName) -> bool {
    name.as_str().starts_with(REMOTE_PREFIX)
}

/// Fails for spaces at either end: HTTP drops them, and `"admin "` must not arrive as `"admin"`.
fn header_value(part: &'static str, text: &str) -> Result<HeaderValue, UnsendableUser> {
    let unsendable = || UnsendableUser { part, value: text.to_owned() };
    let blank = [' ', '\t'];
    if text.is_empty() || text.starts_with(blank) || text.ends_with(blank) {
        return Err(unsendable());
    }
    HeaderValue::from_bytes(text.as_bytes()).map_err(|_| unsendable())
}

/// kube-apiserver's escaping: every byte that is no HTTP token byte, and every percent sign.
fn extra_header(key: &str) -> String {
    let mut header = REMOTE_EXTRA_PREFIX.to_owned();
    for byte in key.bytes() {
        if byte.is_ascii_alphanumeric() || b"!#$&'*+-.^_`|~".contains(&byte) {
            header.push(char::from(byte));
        } else {
            // Writing to a string does not fail.
            let _ = write!(header, "%{byte:02X}");
        }
    }
    header
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    #[track_caller]
    fn check(user: Result<ForwardedUser, UnsendableUser>, expected: &Expect) {
        let mut headers = HeaderMap::new();
        let shown = match user {
            Ok(user) => {
                user.write_headers(&mut headers);
                let line = |(name, value): (&HeaderName, &HeaderValue)| {
                    format!("{name}: {}", String::from_utf8_lossy(value.as_bytes()))
                };
                headers.iter().map(line).collect::<Vec<_>>().join("\n")
            }
            Err(error) => error.to_string(),
        };
        expected.assert_eq(&shown);
    }

    #[test]
    fn user_headers_match_kube_apiserver() {
        check(ForwardedUser::new("jane", "", [], []), &expect!["x-remote-user: jane"]);
        check(
            ForwardedUser::new(
                "jürgen",
                "42",
                ["system:masters", "", "developers"],
                [("example.com/foo", "bar"), ("a%b", "c"), ("ü", ""), ("a%b", "d")],
            ),
            &expect![[r#"
                x-remote-user: jürgen
                x-remote-uid: 42
                x-remote-group: system:masters
                x-remote-group: developers
                x-remote-extra-example.com%2ffoo: bar
                x-remote-extra-a%25b: c
                x-remote-extra-a%25b: d
                x-remote-extra-%c3%bc: "#]],
        );
    }

    #[test]
    fn identity_headers_are_removed_by_name_and_prefix() {
        let known = IdentityHeaders::new(["X-Other-User", " "], ["X-Other-Extra-", ""]);
        let mut headers = HeaderMap::new();
        for name in ["x-other-user", "x-other-users", "x-other-extra-scopes", "x-other-extr", "accept"] {
            headers.insert(HeaderName::from_static(name), HeaderValue::from_static("v"));
        }
        known.remove_from(&mut headers);
        let mut left: Vec<&str> = headers.keys().map(HeaderName::as_str).collect();
        left.sort_unstable();
        assert_eq!(left, ["accept", "x-other-extr", "x-other-users"]);
        assert!(IdentityHeaders::new([""], [" "]).is_empty());
    }

    #[test]
    fn new_rejects_user_that_headers_would_change() {
        check(
            ForwardedUser::new("", "", [], []),
            &expect![[
                r#"the user cannot be named to a peer: name "" is empty, too long, or has characters that headers lose"#
            ]],
        );
        check(
            ForwardedUser::new("admin ", "", [], []),
            &expect![[
                r#"the user cannot be named to a peer: name "admin " is empty, too long, or has characters that headers lose"#
            ]],
        );
        check(
            ForwardedUser::new("a", "", ["\tsystem:masters"], []),
            &expect![[
                r#"the user cannot be named to a peer: group "\tsystem:masters" is empty, too long, or has characters that headers lose"#
            ]],
        );
        check(
            ForwardedUser::new("a\r\nX-Remote-Group: system:masters", "", [], []),
            &expect![[
                r#"the user cannot be named to a peer: name "a\r\nX-Remote-Group: system:masters" is empty, too long, or has characters that headers lose"#
            ]],
        );
        check(
            ForwardedUser::new("a", "", [], [("k", "a\nb")]),
            &expect![[
                r#"the user cannot be named to a peer: extra value "a\nb" is empty, too long, or has characters that headers lose"#
            ]],
        );
    }
}

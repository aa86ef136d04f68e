//! The headers of a forwarded request: written by one server, believed by another.

use std::collections::BTreeMap;

use access::authentication::{
    CertificateSubject, ClientCertificate, FrontProxy, FrontProxyHeaderNames, PresentedCredentials,
};
use access::user::{ANONYMOUS_USER, AUTHENTICATED_GROUP, UNAUTHENTICATED_GROUP};
use api::headers::BEARER_PROTOCOL_PREFIX;
use forward::ForwardedUser;
use http::{HeaderMap, HeaderName, HeaderValue};

pub(crate) const SEEDS: &[&str] = &[
    "user jane\nuid 42\ngroup devs\ngroup system:masters\nextra example.com/team red\nextra scopes \nX-Remote-User: root\n",
    "user j\u{fc}rgen\ngroup a b\nextra A%b c\nextra a%25b d\nX-Remote-Group: system:masters\nx-remote-uid: 0\n",
    "user a\nX-REMOTE-EXTRA-Scopes: all\nAuthorization: Bearer x\nImpersonate-User: root\nImpersonate-Extra-a: b\n",
    "user system:anonymous\nSec-WebSocket-Protocol: base64url.bearer.authorization.k8s.io.eA, v5.channel.k8s.io\n",
    "user  padded \nuser\ta\nX_Remote_User: root\nX-Remote-Users: root\nConnection: X-Remote-User\n",
];
pub(crate) const DICTIONARY: &[&str] = &[
    "user ",
    "uid ",
    "group ",
    "extra ",
    "\n",
    "X-Remote-User: ",
    "x-remote-group: ",
    "X-Remote-Extra-",
    "X-Remote-Uid: ",
    "Impersonate-User: ",
    "Authorization: ",
    "Sec-WebSocket-Protocol: ",
    "base64url.bearer.authorization.k8s.io.",
    ", ",
    "%",
    "%2F",
    "%e4",
    "\t",
    " ",
    "\u{7f}",
    "\u{e9}",
    "system:masters",
];

/// A user and the headers of its request.
#[derive(Default)]
struct Input<'a> {
    name: &'a str,
    uid: &'a str,
    groups: Vec<&'a str>,
    extra: Vec<(&'a str, &'a str)>,
    headers: HeaderMap,
}

impl<'a> Input<'a> {
    /// Lines with the parts of the user; every other line is a header of the client.
    fn parse(text: &'a str) -> Self {
        let mut input = Self::default();
        for line in text.split('\n') {
            match line.split_once(' ') {
                Some(("user", name)) => input.name = name,
                Some(("uid", uid)) => input.uid = uid,
                Some(("group", group)) => input.groups.push(group),
                Some(("extra", rest)) => input.extra.push(rest.split_once(' ').unwrap_or((rest, ""))),
                _ => input.add_header(line),
            }
        }
        input
    }

    fn add_header(&mut self, line: &str) {
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        // A parser removes the spaces around a value.
        let value = HeaderValue::from_bytes(value.trim_matches([' ', '\t']).as_bytes());
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), value) {
            // Fails for more names than a request can have.
            let _ = self.headers.try_append(name, value);
        }
    }
}

/// The receiver believes exactly the user that the sender names, whatever headers the client sent, or the sender refuses to
/// name the user. Without a certificate of the sender no identity header is left.
pub fn forwarded_headers(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let Input { name, uid, groups, extra, headers } = Input::parse(&text);
    let user = ForwardedUser::new(name, uid, groups.iter().copied(), extra.iter().copied());
    match user {
        Ok(user) => check_named_user(&user, (name, uid, &groups, &extra), &headers),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    check_client_credentials(headers);
}

type Named<'a> = (&'a str, &'a str, &'a [&'a str], &'a [(&'a str, &'a str)]);

fn check_named_user(user: &ForwardedUser, (name, uid, groups, extra): Named<'_>, of_client: &HeaderMap) {
    let mut headers = of_client.clone();
    user.write_headers(&mut headers);
    assert_eq!(user.name(), Some(name));
    let is_removed = |name: &HeaderName| {
        let name = name.as_str();
        name.starts_with("x-remote-") || name.starts_with("impersonate-") || name == "authorization"
    };
    // What is no identity stays, and nothing else is added.
    for (name, value) in of_client.iter().filter(|(name, _)| !is_removed(name) && *name != "sec-websocket-protocol") {
        assert!(headers.get_all(name).into_iter().any(|kept| kept == value), "{name} is lost");
    }
    assert!(!headers.keys().any(|name| is_removed(name) && !name.as_str().starts_with("x-remote-")));
    let protocols = headers.get_all("sec-websocket-protocol").into_iter().filter_map(|value| value.to_str().ok());
    let mut protocols = protocols.flat_map(|value| value.split(','));
    assert!(!protocols.any(|protocol| protocol.trim().starts_with(BEARER_PROTOCOL_PREFIX)), "a token is forwarded");
    // HTTP/1.1 removes spaces around values, and HTTP/2 forbids them.
    assert!(headers.iter().filter(|(name, _)| is_removed(name)).all(|(_, value)| {
        let value = value.as_bytes();
        value.trim_ascii() == value && !value.contains(&b'\r') && !value.contains(&b'\n')
    }));

    let believed = believed_user(&headers).expect("the certificate is trusted").expect("the headers name a user");
    assert_eq!((&*believed.name, &*believed.uid), (name, uid));
    let mut expected: Vec<&str> = groups.iter().copied().filter(|group| !group.is_empty()).collect();
    let has_group = [AUTHENTICATED_GROUP, UNAUTHENTICATED_GROUP].iter().any(|group| expected.contains(group));
    if !has_group && name != ANONYMOUS_USER {
        expected.push(AUTHENTICATED_GROUP);
    }
    assert_eq!(believed.groups, expected);
    let mut values: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for (key, value) in extra {
        // Header names have no case, as in Kubernetes.
        values.entry(key.to_ascii_lowercase()).or_default().push(value);
    }
    let values: BTreeMap<String, Vec<String>> =
        values.into_iter().map(|(key, values)| (key, values.into_iter().map(str::to_owned).collect())).collect();
    assert_eq!(believed.extra, values);
}

fn believed_user(headers: &HeaderMap) -> Result<Option<access::User>, access::authentication::AuthenticationError> {
    let proxy = FrontProxy { allowed_names: vec!["proxy".to_owned()], headers: FrontProxyHeaderNames::standard() };
    let subject = CertificateSubject { common_name: "proxy".to_owned(), ..CertificateSubject::default() };
    let pairs: Vec<(&str, &[u8])> = headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
    proxy.authenticate(&PresentedCredentials {
        client_certificate: ClientCertificate::Absent,
        front_proxy_certificate: ClientCertificate::Verified(&subject),
        headers: pairs.iter().copied(),
        path: "/",
    })
}

/// Credentials of the client pass unchanged, and no identity header does.
fn check_client_credentials(mut headers: HeaderMap) {
    let before = headers.clone();
    ForwardedUser::with_client_credentials().write_headers(&mut headers);
    assert!(!headers.keys().any(|name| name.as_str().starts_with("x-remote-")));
    let kept = before.iter().filter(|(name, _)| !name.as_str().starts_with("x-remote-")).count();
    assert_eq!(headers.len(), kept, "everything else is kept");
    assert!(matches!(believed_user(&headers), Ok(None)));
}

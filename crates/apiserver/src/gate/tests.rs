//! What is left of a request's headers, and how often a certificate is judged.

use std::path::Path;

use access::User;
use access::authenticate::{Anonymous, BearerTokens, Certificate, CertificateParts, FrontProxy, HeaderNames};
use http::HeaderName;
use parking_lot::Mutex;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use transport::pki::{Authority, Pair, Purpose};
use transport::{Authorities, Watched};

use super::*;

#[test]
fn credentials_and_claims_do_not_travel_on() {
    let mut headers = HeaderMap::new();
    for name in [
        "accept",
        "authorization",
        "x-remote-user",
        "x-remote-extra-team",
        "x-forwarded-user",
        "x-kubernetes-peer-proxied",
        "x-kubernetes-apiserver-rerouted",
    ] {
        headers.append(name, HeaderValue::from_static("true"));
    }
    strip(&mut headers, &authenticator(), &identity(Method::Certificate));
    let mut left: Vec<&str> = headers.keys().map(HeaderName::as_str).collect();
    left.sort_unstable();
    // Marks are read, and removed, by whoever reads them.
    assert_eq!(left, ["accept", "x-kubernetes-apiserver-rerouted", "x-kubernetes-peer-proxied"]);
}

fn authenticator() -> Authenticator {
    let configured = HeaderNames { user: vec!["X-Forwarded-User".to_owned()], ..HeaderNames::default() };
    Authenticator {
        front_proxy: Some(FrontProxy { headers: configured, ..FrontProxy::default() }),
        certificates: CertificateParts::ALL,
        tokens: BearerTokens::default(),
        anonymous: Anonymous::Yes,
    }
}

fn identity(method: Method) -> Identity {
    let user = Arc::new(User::named("jane"));
    Identity { user, method, notes: vec![], warnings: vec![], websocket_protocols: None }
}

#[test]
fn who_shows_the_same_is_recalled_and_nobody_else() {
    let headers = |lines: &[(&'static str, &'static str)]| -> HeaderMap {
        lines.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value))).collect()
    };
    let [shown, with_accept, other, none] = [
        headers(&[("x-forwarded-user", "jane")]),
        headers(&[("accept", "*/*"), ("x-forwarded-user", "jane")]),
        headers(&[("x-forwarded-user", "root")]),
        headers(&[]),
    ];
    let (authenticator, changed) = (Arc::new(authenticator()), Arc::new(authenticator()));
    for (method, is_recalled) in
        [(Method::FrontProxy, true), (Method::Certificate, true), (Method::Token, false), (Method::Anonymous, false)]
    {
        let memory = Memory::default();
        let noted = memory.note(&authenticator, &shown, &identity(method));
        let recalled = memory.recall(&authenticator, &shown);
        assert_eq!(recalled.map(|caller| caller.user), is_recalled.then_some(noted.user), "{method:?}");
        assert_eq!(memory.recall(&authenticator, &with_accept).is_some(), is_recalled, "{method:?}");
        for headers in [&other, &none] {
            assert!(memory.recall(&authenticator, headers).is_none(), "{method:?} {headers:?}");
        }
        assert!(memory.recall(&changed, &shown).is_none(), "{method:?} before other rules");
    }
}

#[test]
fn claims_that_are_large_are_not_kept() {
    let (authenticator, memory) = (Arc::new(authenticator()), Memory::default());
    let mut headers = HeaderMap::new();
    headers.insert("x-forwarded-user", HeaderValue::try_from("j".repeat(5_000)).unwrap());
    memory.note(&authenticator, &headers, &identity(Method::FrontProxy));
    assert!(memory.recall(&authenticator, &headers).is_none());
}

#[test]
fn a_certificate_is_judged_once_per_reading_of_the_bundles() {
    let folder = tempfile::tempdir().unwrap();
    let [users, proxies] = ["users", "proxies"].map(|name| Authority::open(folder.path(), name).unwrap());
    let bundle = |file: &Path| Some(Watched::fixed(Authorities::from_file(file).unwrap()));
    let bundles = || Bundles { client: bundle(users.certificate()), front_proxy: bundle(proxies.certificate()) };
    let jane = connection(&users.issue("jane", "jane", Some("devs"), &Purpose::Client).unwrap());
    let first = bundles();
    let judged = first.judge(&jane);
    assert!(matches!(judged.client(), Certificate::Verified(subject) if subject.common_name == "jane"));
    assert!(matches!(judged.front_proxy(), Certificate::Untrusted(_)));
    assert!(Arc::ptr_eq(&judged, &first.judge(&jane)), "the verdict was remembered");
    assert!(!Arc::ptr_eq(&judged, &bundles().judge(&jane)), "other readings, another verdict");
    let nobody =
        Connection { peer: jane.peer, certificates: vec![], memory: Mutex::default(), sticks_to: Mutex::default() };
    assert_eq!(first.judge(&nobody).client(), Certificate::Absent);
    let none = Bundles { client: None, front_proxy: None };
    assert_eq!(none.judge(&jane).client(), Certificate::Absent, "there is nothing to judge by");
}

fn connection(pair: &Pair) -> Connection {
    let certificates = CertificateDer::pem_file_iter(&pair.certificate).unwrap().map(Result::unwrap).collect();
    Connection {
        peer: "127.0.0.1:1".parse().unwrap(),
        certificates,
        memory: Mutex::default(),
        sticks_to: Mutex::default(),
    }
}

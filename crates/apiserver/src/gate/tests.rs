//! What is left of a request's headers, and how often a certificate is judged.

use std::path::Path;
use std::sync::Mutex;

use access::User;
use access::authenticate::{Anonymous, BearerTokens, Certificate, CertificateParts, FrontProxy, HeaderNames};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use transport::pki::{Authority, Pair, Purpose};
use transport::{Authorities, Watched};

use super::*;

#[track_caller]
fn check(method: Method, expected: &[&str]) {
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
    let configured = HeaderNames { user: vec!["X-Forwarded-User".to_owned()], ..HeaderNames::default() };
    let authenticator = Authenticator {
        front_proxy: Some(FrontProxy { headers: configured, ..FrontProxy::default() }),
        certificates: CertificateParts::ALL,
        tokens: BearerTokens::default(),
        anonymous: Anonymous::Yes,
    };
    let user = Arc::new(User::named("jane"));
    let identity = Identity { user, method, notes: vec![], warnings: vec![], websocket_protocols: None };
    strip(&mut headers, &authenticator, &identity);
    let mut left: Vec<&str> = headers.keys().map(HeaderName::as_str).collect();
    left.sort_unstable();
    assert_eq!(left, expected);
}

#[test]
fn credentials_and_claims_do_not_travel_on_and_marks_only_from_front_proxies() {
    check(Method::Certificate, &["accept"]);
    check(Method::Anonymous, &["accept"]);
    check(Method::FrontProxy, &["accept", "x-kubernetes-apiserver-rerouted", "x-kubernetes-peer-proxied"]);
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

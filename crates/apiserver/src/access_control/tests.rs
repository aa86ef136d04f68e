//! Removal of credential headers, and caching of identities and certificate verifications.

use std::path::Path;

use access::User;
use access::authentication::{
    AnonymousAccess, CertificateFieldSet, ClientCertificate, FrontProxy, FrontProxyHeaderNames, TokenAuthenticator,
};
use edge::ClientConnection;
use http::HeaderName;
use parking_lot::Mutex;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use transport::pki::{CertificateAuthority, CertificateFiles, CertificateUsage};
use transport::{ClientCaBundle, Reloading};

use super::*;

#[test]
fn strip_credentials_removes_identity_headers() {
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
    strip_credentials(&mut headers, &test_authenticator(), &test_identity(AuthenticationMethod::Certificate));
    let mut left: Vec<&str> = headers.keys().map(HeaderName::as_str).collect();
    left.sort_unstable();
    // The hop marks stay: the routing code reads and removes them.
    assert_eq!(left, ["accept", "x-kubernetes-apiserver-rerouted", "x-kubernetes-peer-proxied"]);
}

fn test_authenticator() -> Authenticator {
    let configured =
        FrontProxyHeaderNames { user: vec!["X-Forwarded-User".to_owned()], ..FrontProxyHeaderNames::default() };
    Authenticator {
        front_proxy: Some(FrontProxy { headers: configured, ..FrontProxy::default() }),
        certificate_fields: CertificateFieldSet::ALL,
        token_authenticator: TokenAuthenticator::default(),
        anonymous: AnonymousAccess::Enabled,
    }
}

fn test_identity(method: AuthenticationMethod) -> RequestIdentity {
    let user = Arc::new(User::named("jane"));
    RequestIdentity { user, method, audit_annotations: vec![], warnings: vec![], websocket_protocols: None }
}

#[test]
fn identity_cache_returns_caller_only_for_same_headers() {
    let headers = |lines: &[(&'static str, &'static str)]| -> HeaderMap {
        lines.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value))).collect()
    };
    let [shown, with_accept, other, none] = [
        headers(&[("x-forwarded-user", "jane")]),
        headers(&[("accept", "*/*"), ("x-forwarded-user", "jane")]),
        headers(&[("x-forwarded-user", "root")]),
        headers(&[]),
    ];
    let (authenticator, changed) = (Arc::new(test_authenticator()), Arc::new(test_authenticator()));
    for (method, is_cached) in [
        (AuthenticationMethod::FrontProxy, true),
        (AuthenticationMethod::Certificate, true),
        (AuthenticationMethod::Token, false),
        (AuthenticationMethod::Anonymous, false),
    ] {
        let cache = IdentityCache::default();
        let inserted = cache.insert(&authenticator, &shown, &test_identity(method));
        let cached = cache.get(&authenticator, &shown);
        assert_eq!(cached.map(|caller| caller.user), is_cached.then_some(inserted.user), "{method:?}");
        assert_eq!(cache.get(&authenticator, &with_accept).is_some(), is_cached, "{method:?}");
        for headers in [&other, &none] {
            assert!(cache.get(&authenticator, headers).is_none(), "{method:?} {headers:?}");
        }
        assert!(cache.get(&changed, &shown).is_none(), "{method:?}: another authenticator");
    }
}

#[test]
fn identity_cache_skips_large_identity_headers() {
    let (authenticator, cache) = (Arc::new(test_authenticator()), IdentityCache::default());
    let mut headers = HeaderMap::new();
    headers.insert("x-forwarded-user", HeaderValue::try_from("j".repeat(5_000)).unwrap());
    cache.insert(&authenticator, &headers, &test_identity(AuthenticationMethod::FrontProxy));
    assert!(cache.get(&authenticator, &headers).is_none());
}

#[test]
fn certificate_is_verified_once_per_ca_bundle_load() {
    let data_dir = tempfile::tempdir().unwrap();
    let [users, proxies] =
        ["users", "proxies"].map(|name| CertificateAuthority::open_or_create(data_dir.path(), name).unwrap());
    let bundle = |file: &Path| Some(Reloading::fixed(ClientCaBundle::from_file(file).unwrap()));
    let bundles = || CaBundles { client: bundle(users.certificate()), front_proxy: bundle(proxies.certificate()) };
    let jane = connection_with_certificate(
        &users.open_or_issue("jane", "jane", Some("devs"), &CertificateUsage::Client).unwrap(),
    );
    let first = bundles();
    let verified = first.verify(&jane);
    assert!(
        matches!(verified.client_certificate(), ClientCertificate::Verified(subject) if subject.common_name == "jane")
    );
    assert!(matches!(verified.front_proxy_certificate(), ClientCertificate::Untrusted(_)));
    assert!(Arc::ptr_eq(&verified, &first.verify(&jane)), "the verification is cached");
    assert!(!Arc::ptr_eq(&verified, &bundles().verify(&jane)), "reloaded bundles verify again");
    let without_certificate = connection(vec![]);
    assert_eq!(first.verify(&without_certificate).client_certificate(), ClientCertificate::Absent);
    let none = CaBundles { client: None, front_proxy: None };
    assert_eq!(none.verify(&jane).client_certificate(), ClientCertificate::Absent, "no CA is configured");
}

fn connection_with_certificate(pair: &CertificateFiles) -> CachedConnection<VerificationCache<IdentityCache>> {
    connection(CertificateDer::pem_file_iter(&pair.certificate).unwrap().map(Result::unwrap).collect())
}

fn connection(certificates: Vec<CertificateDer<'static>>) -> CachedConnection<VerificationCache<IdentityCache>> {
    let client_address = "127.0.0.1:1".parse().unwrap();
    let client = ClientConnection { client_address, certificates, sticky_peer: Mutex::default() };
    CachedConnection { client, cache: Mutex::default() }
}

//! What a client certificate is worth.

use std::time::Duration;

use rustls::pki_types::pem::PemObject as _;

use super::*;
use crate::pki::{Authority, Pair, Purpose};

struct Fixture {
    _folder: tempfile::TempDir,
    ca: Authority,
    foreign: Authority,
}

impl Fixture {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let ca = Authority::open(folder.path(), "ca").unwrap();
        let foreign = Authority::open(folder.path(), "foreign").unwrap();
        Self { _folder: folder, ca, foreign }
    }

    fn bundle(&self) -> Authorities {
        Authorities::from_file(self.ca.certificate()).unwrap()
    }
}

fn chain(pair: &Pair) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_file_iter(&pair.certificate).unwrap().map(Result::unwrap).collect()
}

#[test]
fn a_client_certificate_of_the_bundle_gives_its_subject() {
    let fixture = Fixture::new();
    let pair = fixture.ca.issue("admin", "kubernetes-admin", Some("system:masters"), &Purpose::Client).unwrap();
    let subject = fixture.bundle().verify_client(&chain(&pair), UnixTime::now()).unwrap();
    assert_eq!(subject.common_name, "kubernetes-admin");
    assert_eq!(subject.organizations, ["system:masters"]);
}

#[test]
fn foreign_expired_and_serving_certificates_are_not_believed() {
    let fixture = Fixture::new();
    let foreign = fixture.foreign.issue("mallory", "admin", None, &Purpose::Client).unwrap();
    let serving = Purpose::Serving { addresses: vec![], names: vec![] };
    let server = fixture.ca.issue("server", "server", None, &serving).unwrap();
    let client = fixture.ca.issue("client", "client", None, &Purpose::Client).unwrap();
    let bundle = fixture.bundle();
    let in_a_century = UnixTime::since_unix_epoch(Duration::from_secs(100 * 365 * 86_400));
    for (pair, now) in [(foreign, UnixTime::now()), (server, UnixTime::now()), (client, in_a_century)] {
        let verdict = bundle.verify_client(&chain(&pair), now);
        assert!(matches!(verdict, Err(CertificateError::Untrusted { .. })), "{pair:?}: {verdict:?}");
    }
}

#[test]
fn garbage_is_malformed_and_an_empty_bundle_is_refused() {
    let fixture = Fixture::new();
    let garbage = [CertificateDer::from(vec![0x30, 0x03, 1, 2, 3])];
    let verdict = fixture.bundle().verify_client(&garbage, UnixTime::now());
    assert!(matches!(verdict, Err(CertificateError::Malformed { .. })), "{verdict:?}");
    assert!(Authorities::from_pem(b"").is_err());
}

#[test]
fn a_certificate_in_both_bundles_is_an_overlap() {
    let fixture = Fixture::new();
    let other = Authorities::from_file(fixture.foreign.certificate()).unwrap();
    assert!(fixture.bundle().overlaps(&fixture.bundle()));
    assert!(!fixture.bundle().overlaps(&other));
    assert_ne!(fixture.bundle().generation(), fixture.bundle().generation());
}

#[test]
fn an_authority_opened_again_signs_what_its_bundle_trusts() {
    let folder = tempfile::tempdir().unwrap();
    let made = Authorities::from_file(Authority::open(folder.path(), "ca").unwrap().certificate()).unwrap();
    let again = Authority::open(folder.path(), "ca").unwrap();
    let pair = again.issue("late", "late", None, &Purpose::Client).unwrap();
    assert!(made.verify_client(&chain(&pair), UnixTime::now()).is_ok());
}

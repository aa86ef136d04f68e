//! Verification of client certificates and CA bundles.

use std::time::Duration;

use rustls::pki_types::pem::PemObject as _;

use super::*;
use crate::pki::{CertificateAuthority, CertificateFiles, CertificateUsage};

struct Fixture {
    _folder: tempfile::TempDir,
    ca: CertificateAuthority,
    foreign_ca: CertificateAuthority,
}

impl Fixture {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let ca = CertificateAuthority::open_or_create(folder.path(), "ca").unwrap();
        let foreign = CertificateAuthority::open_or_create(folder.path(), "foreign").unwrap();
        Self { _folder: folder, ca, foreign_ca: foreign }
    }

    fn bundle(&self) -> ClientCaBundle {
        ClientCaBundle::from_file(self.ca.certificate()).unwrap()
    }
}

fn chain(pair: &CertificateFiles) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_file_iter(&pair.certificate).unwrap().map(Result::unwrap).collect()
}

#[test]
fn verify_client_returns_subject_of_trusted_certificate() {
    let fixture = Fixture::new();
    let pair = fixture
        .ca
        .open_or_issue("admin", "kubernetes-admin", Some("system:masters"), &CertificateUsage::Client)
        .unwrap();
    let subject = fixture.bundle().verify_client(&chain(&pair), UnixTime::now()).unwrap();
    assert_eq!(subject.common_name, "kubernetes-admin");
    assert_eq!(subject.organizations, ["system:masters"]);
}

#[test]
fn verify_client_rejects_foreign_expired_and_serving_certificates() {
    let fixture = Fixture::new();
    let foreign = fixture.foreign_ca.open_or_issue("mallory", "admin", None, &CertificateUsage::Client).unwrap();
    let serving = CertificateUsage::Serving { addresses: vec![], names: vec![] };
    let server = fixture.ca.open_or_issue("server", "server", None, &serving).unwrap();
    let client = fixture.ca.open_or_issue("client", "client", None, &CertificateUsage::Client).unwrap();
    let bundle = fixture.bundle();
    let in_a_century = UnixTime::since_unix_epoch(Duration::from_secs(100 * 365 * 86_400));
    for (pair, now) in [(foreign, UnixTime::now()), (server, UnixTime::now()), (client, in_a_century)] {
        let verdict = bundle.verify_client(&chain(&pair), now);
        assert!(matches!(verdict, Err(ClientCertificateError::Untrusted { .. })), "{pair:?}: {verdict:?}");
    }
}

#[test]
fn malformed_certificate_and_empty_bundle_are_rejected() {
    let fixture = Fixture::new();
    let garbage = [CertificateDer::from(vec![0x30, 0x03, 1, 2, 3])];
    let verdict = fixture.bundle().verify_client(&garbage, UnixTime::now());
    assert!(matches!(verdict, Err(ClientCertificateError::Malformed { .. })), "{verdict:?}");
    assert!(ClientCaBundle::from_pem(b"", "bundle").is_err());
}

#[test]
fn overlaps_detects_certificate_in_both_bundles() {
    let fixture = Fixture::new();
    let other = ClientCaBundle::from_file(fixture.foreign_ca.certificate()).unwrap();
    assert!(fixture.bundle().overlaps(&fixture.bundle()));
    assert!(!fixture.bundle().overlaps(&other));
    assert_ne!(fixture.bundle().generation(), fixture.bundle().generation());
}

#[test]
fn reopened_authority_issues_certificates_its_bundle_trusts() {
    let folder = tempfile::tempdir().unwrap();
    let made =
        ClientCaBundle::from_file(CertificateAuthority::open_or_create(folder.path(), "ca").unwrap().certificate())
            .unwrap();
    let again = CertificateAuthority::open_or_create(folder.path(), "ca").unwrap();
    let pair = again.open_or_issue("late", "late", None, &CertificateUsage::Client).unwrap();
    assert!(made.verify_client(&chain(&pair), UnixTime::now()).is_ok());
}

/// Generates a self-signed certificate with modified `CertificateParams`.
fn self_signed(
    change: impl FnOnce(&mut rcgen::CertificateParams),
) -> (rcgen::CertificateParams, rcgen::KeyPair, String) {
    let mut params = rcgen::CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(rcgen::DnType::CommonName, "root");
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    change(&mut params);
    let key = rcgen::KeyPair::generate().unwrap();
    let pem = params.self_signed(&key).unwrap().pem();
    (params, key, pem)
}

fn unix_time_of_year(year: i32) -> UnixTime {
    let seconds = rcgen::date_time_ymd(year, 1, 1).unix_timestamp();
    UnixTime::since_unix_epoch(Duration::from_secs(seconds.try_into().unwrap()))
}

#[track_caller]
fn check_bundle(pem: &str, expected: Result<usize, &str>) {
    let read = ClientCaBundle::from_pem(pem.as_bytes(), "bundle").map(|read| read.trust_anchors.len());
    assert_eq!(read, expected.map_err(str::to_owned));
}

#[test]
fn bundle_rejects_certificates_that_are_no_authority() {
    use rcgen::{IsCa, KeyUsagePurpose};
    let (_, _, root) = self_signed(|_| {});
    let (_, _, signing) = self_signed(|params| params.key_usages = vec![KeyUsagePurpose::KeyCertSign]);
    let (_, _, plain) = self_signed(|params| params.is_ca = IsCa::NoCa);
    let (_, _, explicit) = self_signed(|params| params.is_ca = IsCa::ExplicitNoCa);
    let (_, _, unsigning) = self_signed(|params| params.key_usages = vec![KeyUsagePurpose::DigitalSignature]);
    check_bundle(&root, Ok(1));
    check_bundle(&format!("{root}{signing}"), Ok(2));
    check_bundle(VERSION_1_ROOT, Ok(1));
    let remedy = "it is self-signed: have a certificate authority sign the server's or client's certificate, and give that \
                  authority's certificate here";
    let refused = |position: usize, reason: &str| {
        format!("certificate {position} (subject \"CN=root\") is not a certificate authority: {reason}; {remedy}")
    };
    check_bundle(&plain, Err(&refused(1, "it has no basicConstraints")));
    check_bundle(&explicit, Err(&refused(1, "its basicConstraints say CA:FALSE")));
    check_bundle(&unsigning, Err(&refused(1, "its keyUsage lacks keyCertSign")));
    check_bundle(&format!("{root}{explicit}{root}"), Err(&refused(2, "its basicConstraints say CA:FALSE")));
    check_bundle("", Err("no PEM block of type CERTIFICATE"));
}

#[test]
fn bundle_error_names_file_and_issuer_to_use() {
    let fixture = Fixture::new();
    let pair = fixture
        .ca
        .open_or_issue("admin", "kubernetes-admin", Some("system:masters"), &CertificateUsage::Client)
        .unwrap();
    let refused = ClientCaBundle::from_file(&pair.certificate).unwrap_err().to_string();
    let expected = "holds no usable bundle of certificate authorities: certificate 1 (subject \"O=system:masters, \
                    CN=kubernetes-admin\") is not a certificate authority: its basicConstraints say CA:FALSE; give the \
                    certificate of its issuer \"CN=unskew-ca\" here";
    assert_eq!(refused, format!("{} {expected}", pair.certificate.display()));
}

/// Issues a leaf valid from 2000 to 2100, signed by a CA with a shorter validity.
fn issue_leaf(authority: &rcgen::CertificateParams, key: &rcgen::KeyPair) -> Vec<CertificateDer<'static>> {
    let mut params = rcgen::CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(rcgen::DnType::CommonName, "leaf");
    (params.not_before, params.not_after) = (rcgen::date_time_ymd(2000, 1, 1), rcgen::date_time_ymd(2100, 1, 1));
    params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
    let issuer = rcgen::Issuer::from_params(authority, key);
    let leaf = params.signed_by(&rcgen::KeyPair::generate().unwrap(), &issuer).unwrap();
    vec![leaf.der().clone()]
}

#[test]
fn authority_is_trusted_only_within_its_validity() {
    let (params, key, pem) = self_signed(|params| {
        (params.not_before, params.not_after) = (rcgen::date_time_ymd(2010, 1, 1), rcgen::date_time_ymd(2020, 1, 1));
    });
    let chain = issue_leaf(&params, &key);
    let bundle = ClientCaBundle::from_pem(pem.as_bytes(), "bundle").unwrap();
    for (year, is_believed) in [(2009, false), (2010, true), (2015, true), (2020, true), (2021, false)] {
        let verdict = bundle.verify_client(&chain, unix_time_of_year(year));
        assert_eq!(verdict.is_ok(), is_believed, "{year}: {verdict:?}");
    }
    let refused = bundle.verify_client(&chain, unix_time_of_year(2021)).unwrap_err().to_string();
    expect_test::expect![[r#"x509: certificate authority "CN=root" has expired or is not yet valid: it is valid from Jan  1 00:00:00 2010 +00:00 to Jan  1 00:00:00 2020 +00:00"#]].assert_eq(&refused);
    // The same authority, renewed with its key, vouches beside the expired certificate; a foreign one does not.
    let mut renewed = params.clone();
    renewed.not_after = rcgen::date_time_ymd(2050, 1, 1);
    let renewed = renewed.self_signed(&key).unwrap().pem();
    let both = ClientCaBundle::from_pem(format!("{pem}{renewed}").as_bytes(), "bundle").unwrap();
    assert!(both.verify_client(&chain, unix_time_of_year(2021)).is_ok());
    let (_, _, foreign) = self_signed(|_| {});
    let foreign = ClientCaBundle::from_pem(format!("{pem}{foreign}").as_bytes(), "bundle").unwrap();
    assert!(foreign.verify_client(&chain, unix_time_of_year(2021)).is_err());
}

#[test]
fn version_1_root_is_trusted_as_in_go() {
    let bundle = ClientCaBundle::from_pem(VERSION_1_ROOT.as_bytes(), "bundle").unwrap();
    let chain = [CertificateDer::from_pem_slice(CLIENT_OF_VERSION_1_ROOT.as_bytes()).unwrap()];
    assert_eq!(bundle.verify_client(&chain, unix_time_of_year(2030)).unwrap().organizations, ["old"]);
}

/// `CN=old root`, from 2026 to 2126, without extensions because certificates of version 1 have none.
const VERSION_1_ROOT: &str = "\
-----BEGIN CERTIFICATE-----
MIIBIjCByQIUQjxE/xOZumASHIUploPySVoX9sYwCgYIKoZIzj0EAwIwEzERMA8G
A1UEAwwIb2xkIHJvb3QwIBcNMjYxMTE2MTcwMzU1WhgPMjEyNjEwMjMxNzAzNTVa
MBMxETAPBgNVBAMMCG9sZCByb290MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE
udBY1geipMKsai13tODu33UfMxl2aNfRN/lgTv8p32K3AEa/UmG6RkwW14BDtdLv
xPY/LXanQfCRKb5gBBKkvTAKBggqhkjOPQQDAgNIADBFAiEA0zXXCtu8JWP9rpvU
oUMA9npE1hXLCuJxwH+uQRpYihACIELSa8PPSvzYJrCI39tcirf/kNzYpMAbZxCS
PvF5ZQrl
-----END CERTIFICATE-----
";

/// `O=old, CN=client of old root`.
const CLIENT_OF_VERSION_1_ROOT: &str = "\
-----BEGIN CERTIFICATE-----
MIIBvTCCAWOgAwIBAgIUSTlgk7bxprCKCLGxDDPxdOaX9VkwCgYIKoZIzj0EAwIw
EzERMA8GA1UEAwwIb2xkIHJvb3QwIBcNMjYxMTE2MTcwMzU2WhgPMjEyNjEwMjMx
NzAzNTZaMCsxDDAKBgNVBAoMA29sZDEbMBkGA1UEAwwSY2xpZW50IG9mIG9sZCBy
b290MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEt8bB7ABYNmRRRdlRtaQg5H+l
mhC5aiZJWL0VHP1cdf0vBFPj4BCxoxr3EFqd7Pjg+XbX22UfumtP/NOsmjuLzqN7
MHkwEwYDVR0lBAwwCgYIKwYBBQUHAwIwCQYDVR0TBAIwADAdBgNVHQ4EFgQUsI4U
OXC9jAiTK67SnQkej/jdUy4wOAYDVR0jBDEwL6EXpBUwEzERMA8GA1UEAwwIb2xk
IHJvb3SCFEI8RP8TmbpgEhyFKZaD8klaF/bGMAoGCCqGSM49BAMCA0gAMEUCIDNy
9FEGMuX6En0PV57YrzsyECX4GZWc3Lte0aluUjmiAiEA0tC1ZLi2xSdmXXARMVxK
5GF27vZpJ//aHuXAz5gLoXQ=
-----END CERTIFICATE-----
";

//! TLS versions and cipher suites that a server offers: `--tls-min-version` and `--tls-cipher-suites`, with Go's names.

use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::{CipherSuite, SupportedCipherSuite, SupportedProtocolVersion, version};

/// The versions and cipher suites of a listener. The default is TLS 1.2 and 1.3 with every suite of the provider.
#[derive(Clone, Debug, Default)]
pub struct TlsPolicy {
    is_tls13_only: bool,
    /// Suites of TLS 1.2; `None`: all. As in Go, the suites of TLS 1.3 cannot be chosen.
    tls12_suites: Option<Vec<CipherSuite>>,
}

static TLS13_ONLY: &[&SupportedProtocolVersion] = &[&version::TLS13];

/// A value of `--tls-min-version` or `--tls-cipher-suites` that cannot be used, in kube-apiserver's words where it has
/// them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TlsPolicyError {
    /// Not a name of a TLS version.
    #[error("unknown tls version {0:?}")]
    UnknownVersion(String),
    /// Not a name of a cipher suite.
    #[error("Cipher suite {0} not supported or doesn't exist")]
    UnknownCipherSuite(String),
    /// TLS 1.2 is offered, but none of its suites.
    #[error("none of the cipher suites is offered by this server; it has {}", supported_names().join(", "))]
    NoCipherSuite,
}

/// Suites that Go knows and this server does not offer, because they are weak. Naming them offers nothing more.
const WEAK_SUITES: [&str; 16] = [
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA",
    "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_RC4_128_SHA",
    "TLS_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_RSA_WITH_AES_256_CBC_SHA",
    "TLS_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_RSA_WITH_RC4_128_SHA",
];

impl TlsPolicy {
    /// Makes a policy of the two flags; empty values stand for the defaults. `VersionTLS10` and `VersionTLS11` are
    /// accepted, but the lowest version offered is 1.2.
    pub fn parse(min_version: &str, cipher_suites: &[String]) -> Result<Self, TlsPolicyError> {
        let is_tls13_only = match min_version {
            "" | "VersionTLS10" | "VersionTLS11" | "VersionTLS12" => false,
            "VersionTLS13" => true,
            unknown => return Err(TlsPolicyError::UnknownVersion(unknown.to_owned())),
        };
        if cipher_suites.is_empty() {
            return Ok(Self { is_tls13_only, tls12_suites: None });
        }
        let mut tls12_suites = Vec::new();
        for name in cipher_suites {
            match find_suite(name) {
                Some(suite) if suite.tls13().is_none() => tls12_suites.push(suite.suite()),
                Some(_) => {}
                None if WEAK_SUITES.contains(&&**name) => {}
                None => return Err(TlsPolicyError::UnknownCipherSuite(name.clone())),
            }
        }
        if tls12_suites.is_empty() && !is_tls13_only {
            return Err(TlsPolicyError::NoCipherSuite);
        }
        Ok(Self { is_tls13_only, tls12_suites: Some(tls12_suites) })
    }

    pub(crate) fn versions(&self) -> &'static [&'static SupportedProtocolVersion] {
        if self.is_tls13_only { TLS13_ONLY } else { rustls::ALL_VERSIONS }
    }

    pub(crate) fn provider(&self) -> CryptoProvider {
        let mut provider = aws_lc_rs::default_provider();
        if let Some(allowed) = &self.tls12_suites {
            provider.cipher_suites.retain(|suite| suite.tls13().is_some() || allowed.contains(&suite.suite()));
        }
        provider
    }
}

fn find_suite(name: &str) -> Option<SupportedCipherSuite> {
    // Go's older names of two suites lack their hash.
    let complete = match name {
        "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305" => "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305" => "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
        complete => complete,
    };
    aws_lc_rs::ALL_CIPHER_SUITES.iter().find(|suite| go_name(**suite) == complete).copied()
}

fn supported_names() -> Vec<String> {
    aws_lc_rs::ALL_CIPHER_SUITES.iter().filter(|suite| suite.tls13().is_none()).map(|suite| go_name(*suite)).collect()
}

/// The name in Go, which lacks the `13` of rustls' names for suites of TLS 1.3.
fn go_name(suite: SupportedCipherSuite) -> String {
    suite.suite().as_str().unwrap_or_default().replacen("TLS13_", "TLS_", 1)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rustls::pki_types::pem::PemObject as _;
    use rustls::pki_types::{CertificateDer, ServerName};

    use super::*;
    use crate::server::server_config;
    use crate::testing::TestCertificates;

    fn parse(min_version: &str, suites: &str) -> Result<TlsPolicy, TlsPolicyError> {
        let suites: Vec<String> = suites.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect();
        TlsPolicy::parse(min_version, &suites)
    }

    fn offered(min_version: &str, suites: &str) -> Vec<String> {
        let policy = parse(min_version, suites).expect("valid");
        let mut names: Vec<String> = policy.provider().cipher_suites.iter().map(|suite| go_name(*suite)).collect();
        names.retain(|name| name.starts_with("TLS_ECDHE"));
        names.sort();
        names
    }

    #[test]
    fn cipher_suites_restrict_tls_1_2_alone() {
        assert_eq!(offered("", "").len(), 6);
        let one = "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384";
        assert_eq!(offered("VersionTLS12", one), [one]);
        assert_eq!(offered("", &format!("TLS_AES_128_GCM_SHA256,{one},TLS_RSA_WITH_AES_128_CBC_SHA")), [one]);
        let legacy = "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305";
        assert_eq!(offered("", legacy), ["TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256"]);
        let provider = parse("", one).expect("valid").provider();
        assert_eq!(provider.cipher_suites.iter().filter(|suite| suite.tls13().is_some()).count(), 3);
    }

    #[test]
    fn minimum_version_is_1_2_or_1_3() {
        for (name, count) in [("", 2), ("VersionTLS10", 2), ("VersionTLS12", 2), ("VersionTLS13", 1)] {
            assert_eq!(parse(name, "").expect("valid").versions().len(), count, "{name}");
        }
    }

    #[test]
    fn unusable_values_are_rejected() {
        let error = |min_version: &str, suites: &str| parse(min_version, suites).expect_err("invalid").to_string();
        assert_eq!(error("TLS12", ""), r#"unknown tls version "TLS12""#);
        assert_eq!(error("", "TLS_NONE"), "Cipher suite TLS_NONE not supported or doesn't exist");
        assert!(error("", "TLS_RSA_WITH_RC4_128_SHA").starts_with("none of the cipher suites is offered"));
        assert!(parse("VersionTLS13", "TLS_RSA_WITH_RC4_128_SHA").is_ok(), "TLS 1.2 is not offered");
    }

    /// The version that a client gets that offers `versions`.
    fn handshake(
        policy: &TlsPolicy,
        versions: &[&'static SupportedProtocolVersion],
    ) -> Result<Option<rustls::ProtocolVersion>, rustls::Error> {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let certificates = TestCertificates::new(folder.path());
        let files = certificates.serving_files();
        let server = server_config(&files.certificate, &files.key, policy).expect("just created");
        let mut roots = rustls::RootCertStore::empty();
        let authority = CertificateDer::from_pem_file(&certificates.client_files().ca_bundle).expect("just created");
        roots.add(authority).expect("an authority");
        let provider = Arc::new(aws_lc_rs::default_provider());
        let client = rustls::ClientConfig::builder_with_provider(provider).with_protocol_versions(versions)?;
        let client = client.with_root_certificates(roots).with_no_client_auth();
        let name = ServerName::try_from("kubernetes.default.svc").expect("a name");
        let mut client = rustls::ClientConnection::new(Arc::new(client), name)?;
        let mut server = rustls::ServerConnection::new(Arc::new(server))?;
        while client.is_handshaking() || server.is_handshaking() {
            let mut sent = Vec::new();
            client.write_tls(&mut sent).expect("memory");
            server.read_tls(&mut &*sent).expect("memory");
            server.process_new_packets()?;
            sent.clear();
            server.write_tls(&mut sent).expect("memory");
            client.read_tls(&mut &*sent).expect("memory");
            client.process_new_packets()?;
        }
        Ok(client.protocol_version())
    }

    #[test]
    fn client_of_a_lower_version_is_refused() {
        let tls12 = [&version::TLS12];
        let default = TlsPolicy::default();
        assert_eq!(handshake(&default, &tls12), Ok(Some(rustls::ProtocolVersion::TLSv1_2)));
        let tls13 = parse("VersionTLS13", "").expect("valid");
        assert!(handshake(&tls13, &tls12).is_err());
        assert_eq!(handshake(&tls13, rustls::ALL_VERSIONS), Ok(Some(rustls::ProtocolVersion::TLSv1_3)));
    }
}

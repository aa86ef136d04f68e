//! Verification of client certificates by the client CA and the front-proxy CA, cached with the connection.

use std::sync::Arc;
use std::time::Duration;

use access::authentication::{CertificateSubject, ClientCertificate};
use parking_lot::Mutex;
use rustls::pki_types::UnixTime;
use transport::{ClientCaBundle, Reloading};

use crate::{CachedConnection, ClientConnection};

/// The lifetime of a cached verification: an expired certificate is rejected this soon on a long-lived connection.
const VERIFICATION_AGE_MAX: Duration = Duration::from_secs(10);

/// The CA bundles of client certificates.
#[derive(Debug)]
pub struct CaBundles {
    /// `--client-ca-file`: the CA bundle of users.
    pub client: Option<Reloading<ClientCaBundle>>,
    /// `--requestheader-client-ca-file`: the CA bundle of front proxies.
    pub front_proxy: Option<Reloading<ClientCaBundle>>,
}

/// The last verification of a connection's certificate.
pub type VerificationCache<Derived> = Mutex<Option<Arc<CertificateVerification<Derived>>>>;

/// The result of verifying a certificate by both bundles, as they were loaded at that time.
#[derive(Debug)]
pub struct CertificateVerification<Derived> {
    verified_at: UnixTime,
    client: BundleVerification,
    front_proxy: BundleVerification,
    /// What access control derives from this verification and keeps with it.
    pub derived: Derived,
}

#[derive(Debug)]
struct BundleVerification {
    /// The generation of the bundle; `None` if there is none.
    generation: Option<u64>,
    /// `None` without a certificate or without a bundle.
    subject: Option<Result<CertificateSubject, String>>,
}

impl CaBundles {
    /// Verifies the certificate of a connection, or returns the cached result.
    pub fn verify<Derived: Default>(
        &self,
        connection: &CachedConnection<VerificationCache<Derived>>,
    ) -> Arc<CertificateVerification<Derived>> {
        let (client, front_proxy) = (current_bundle(self.client.as_ref()), current_bundle(self.front_proxy.as_ref()));
        let now = UnixTime::now();
        let mut cache = connection.cache.lock();
        if let Some(verification) = &*cache
            && verification.client.is_current_for(client.as_deref())
            && verification.front_proxy.is_current_for(front_proxy.as_deref())
            && now.as_secs().saturating_sub(verification.verified_at.as_secs()) < VERIFICATION_AGE_MAX.as_secs()
        {
            return verification.clone();
        }
        let verification = Arc::new(CertificateVerification {
            verified_at: now,
            client: BundleVerification::verify(&connection.client, client.as_deref(), now),
            front_proxy: BundleVerification::verify(&connection.client, front_proxy.as_deref(), now),
            derived: Derived::default(),
        });
        *cache = Some(verification.clone());
        verification
    }
}

impl<Derived> CertificateVerification<Derived> {
    /// The result for the client CA bundle.
    pub fn client_certificate(&self) -> ClientCertificate<'_> {
        self.client.as_certificate()
    }

    /// The result for the front-proxy CA bundle.
    pub fn front_proxy_certificate(&self) -> ClientCertificate<'_> {
        self.front_proxy.as_certificate()
    }
}

impl BundleVerification {
    fn verify(connection: &ClientConnection, authorities: Option<&ClientCaBundle>, now: UnixTime) -> Self {
        let generation = authorities.map(ClientCaBundle::generation);
        let (Some(authorities), Some(leaf)) = (authorities, connection.certificates.first()) else {
            return Self { generation, subject: None };
        };
        let verified = authorities.verify_client(&connection.certificates, now);
        let subject = verified.map_err(|error| error.to_string()).map(|subject| CertificateSubject {
            common_name: subject.common_name,
            organizations: subject.organizations,
            uids: subject.uids,
            digest: sha256(leaf),
        });
        Self { generation, subject: Some(subject) }
    }

    fn is_current_for(&self, authorities: Option<&ClientCaBundle>) -> bool {
        self.generation == authorities.map(ClientCaBundle::generation)
    }

    fn as_certificate(&self) -> ClientCertificate<'_> {
        match &self.subject {
            None => ClientCertificate::Absent,
            Some(Ok(subject)) => ClientCertificate::Verified(subject),
            Some(Err(reason)) => ClientCertificate::Untrusted(reason),
        }
    }
}

fn current_bundle(bundle: Option<&Reloading<ClientCaBundle>>) -> Option<Arc<ClientCaBundle>> {
    bundle.map(Reloading::get)
}

fn sha256(certificate: &[u8]) -> Option<[u8; 32]> {
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, certificate);
    digest.as_ref().try_into().ok()
}

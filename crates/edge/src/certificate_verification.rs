//! What the certificate of a connection is worth, judged by both bundles and remembered with the connection.

use std::any::Any;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use access::authentication::{CertificateSubject, ClientCertificate};
use rustls::pki_types::UnixTime;
use transport::{ClientCaBundle, Reloading};

use crate::ClientConnection;

/// A verdict is made anew after this time, so that a certificate that expires is refused soon, however long the connection.
const VERIFICATION_AGE_MAX: Duration = Duration::from_secs(10);

/// The authorities by which certificates are judged.
#[derive(Debug)]
pub struct CaBundles {
    /// `--client-ca-file`: of users.
    pub client: Option<Reloading<ClientCaBundle>>,
    /// `--requestheader-client-ca-file`: of front proxies.
    pub front_proxy: Option<Reloading<ClientCaBundle>>,
}

/// A certificate before both bundles, as they were read when it was judged.
#[derive(Debug)]
pub struct CertificateVerification {
    verified_at: UnixTime,
    client: BundleVerification,
    front_proxy: BundleVerification,
    /// What somebody made of it.
    derived: OnceLock<Arc<dyn Any + Send + Sync>>,
}

#[derive(Debug)]
struct BundleVerification {
    /// Of the bundle; `None` if there is none.
    generation: Option<u64>,
    /// `None`: there is nothing to be judged, or nothing to judge it by.
    subject: Option<Result<CertificateSubject, String>>,
}

impl CaBundles {
    /// Judges a connection's certificate, or recalls how it was judged.
    pub fn verify(&self, connection: &ClientConnection) -> Arc<CertificateVerification> {
        let (client, front_proxy) = (current_bundle(self.client.as_ref()), current_bundle(self.front_proxy.as_ref()));
        let now = UnixTime::now();
        // A judgement is a pure function of its inputs: one made by somebody who panicked later is as good as any.
        let mut cache = connection.access_cache.lock();
        let cached = cache.clone().and_then(|verification| verification.downcast::<CertificateVerification>().ok());
        if let Some(verification) = cached
            && verification.client.is_current_for(client.as_deref())
            && verification.front_proxy.is_current_for(front_proxy.as_deref())
            && now.as_secs().saturating_sub(verification.verified_at.as_secs()) < VERIFICATION_AGE_MAX.as_secs()
        {
            return verification;
        }
        let verification = Arc::new(CertificateVerification {
            verified_at: now,
            client: BundleVerification::verify(connection, client.as_deref(), now),
            front_proxy: BundleVerification::verify(connection, front_proxy.as_deref(), now),
            derived: OnceLock::new(),
        });
        *cache = Some(verification.clone());
        verification
    }
}

impl CertificateVerification {
    /// As a user's.
    pub fn client_certificate(&self) -> ClientCertificate<'_> {
        self.client.as_certificate()
    }

    /// What follows from it and from nothing else: made once, and the same until it is judged anew. One type for each gate.
    pub fn get_or_derive<T: Send + Sync + 'static>(&self, make: impl Fn(&Self) -> T) -> Arc<T> {
        let derived = self.derived.get_or_init(|| Arc::new(make(self)));
        derived.clone().downcast().unwrap_or_else(|_| Arc::new(make(self)))
    }

    /// As a front proxy's.
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

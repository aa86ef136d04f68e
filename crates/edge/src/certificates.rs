//! What the certificate of a connection is worth, judged by both bundles and remembered with the connection.

use std::any::Any;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use access::authenticate::{Certificate, CertificateSubject};
use rustls::pki_types::UnixTime;
use transport::{Authorities, Watched};

use crate::Connection;

/// A verdict is made anew after this time, so that a certificate that expires is refused soon, however long the connection.
const VERDICT_AGE_MAX: Duration = Duration::from_secs(10);

/// The authorities by which certificates are judged.
#[derive(Debug)]
pub struct Bundles {
    /// `--client-ca-file`: of users.
    pub client: Option<Watched<Authorities>>,
    /// `--requestheader-client-ca-file`: of front proxies.
    pub front_proxy: Option<Watched<Authorities>>,
}

/// A certificate before both bundles, as they were read when it was judged.
#[derive(Debug)]
pub struct Judged {
    at: UnixTime,
    client: Verdict,
    front_proxy: Verdict,
    /// What somebody made of it.
    derived: OnceLock<Arc<dyn Any + Send + Sync>>,
}

#[derive(Debug)]
struct Verdict {
    /// Of the bundle; `None` if there is none.
    generation: Option<u64>,
    /// `None`: there is nothing to be judged, or nothing to judge it by.
    subject: Option<Result<CertificateSubject, String>>,
}

impl Bundles {
    /// Judges a connection's certificate, or recalls how it was judged.
    pub fn judge(&self, connection: &Connection) -> Arc<Judged> {
        let (client, front_proxy) = (current(self.client.as_ref()), current(self.front_proxy.as_ref()));
        let now = UnixTime::now();
        // A judgement is a pure function of its inputs: one made by somebody who panicked later is as good as any.
        let mut memory = connection.memory.lock();
        let remembered = memory.clone().and_then(|judged| judged.downcast::<Judged>().ok());
        if let Some(judged) = remembered
            && judged.client.is_by(client.as_deref())
            && judged.front_proxy.is_by(front_proxy.as_deref())
            && now.as_secs().saturating_sub(judged.at.as_secs()) < VERDICT_AGE_MAX.as_secs()
        {
            return judged;
        }
        let judged = Arc::new(Judged {
            at: now,
            client: Verdict::of(connection, client.as_deref(), now),
            front_proxy: Verdict::of(connection, front_proxy.as_deref(), now),
            derived: OnceLock::new(),
        });
        *memory = Some(judged.clone());
        judged
    }
}

impl Judged {
    /// As a user's.
    pub fn client(&self) -> Certificate<'_> {
        self.client.certificate()
    }

    /// What follows from it and from nothing else: made once, and the same until it is judged anew. One type for each gate.
    pub fn derived<T: Send + Sync + 'static>(&self, make: impl Fn(&Self) -> T) -> Arc<T> {
        let derived = self.derived.get_or_init(|| Arc::new(make(self)));
        derived.clone().downcast().unwrap_or_else(|_| Arc::new(make(self)))
    }

    /// As a front proxy's.
    pub fn front_proxy(&self) -> Certificate<'_> {
        self.front_proxy.certificate()
    }
}

impl Verdict {
    fn of(connection: &Connection, authorities: Option<&Authorities>, now: UnixTime) -> Self {
        let generation = authorities.map(Authorities::generation);
        let (Some(authorities), Some(leaf)) = (authorities, connection.certificates.first()) else {
            return Self { generation, subject: None };
        };
        let verified = authorities.verify_client(&connection.certificates, now);
        let subject = verified.map_err(|error| error.to_string()).map(|subject| CertificateSubject {
            common_name: subject.common_name,
            organizations: subject.organizations,
            uids: subject.uids,
            digest: digest(leaf),
        });
        Self { generation, subject: Some(subject) }
    }

    fn is_by(&self, authorities: Option<&Authorities>) -> bool {
        self.generation == authorities.map(Authorities::generation)
    }

    fn certificate(&self) -> Certificate<'_> {
        match &self.subject {
            None => Certificate::Absent,
            Some(Ok(subject)) => Certificate::Verified(subject),
            Some(Err(reason)) => Certificate::Untrusted(reason),
        }
    }
}

fn current(bundle: Option<&Watched<Authorities>>) -> Option<Arc<Authorities>> {
    bundle.map(Watched::get)
}

fn digest(certificate: &[u8]) -> Option<[u8; 32]> {
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, certificate);
    digest.as_ref().try_into().ok()
}

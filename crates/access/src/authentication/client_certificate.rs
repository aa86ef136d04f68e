//! Client certificates: the subject becomes the user and its groups.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::AuthenticationError;
use crate::user::{CREDENTIAL_ID_KEY, User};

/// The result of verifying a connection's client certificate against one CA bundle. The transport verifies the chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientCertificate<'a> {
    /// The client sent no certificate, or no CA bundle is configured.
    Absent,
    /// The chain is trusted.
    Verified(&'a CertificateSubject),
    /// The chain is not trusted, with the reason.
    Untrusted(&'a str),
}

/// The certificate fields that a server reads besides name and groups; older releases read fewer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CertificateFieldSet {
    /// Read the uid from the subject.
    pub uid: bool,
    /// Add the certificate's digest as the credential id.
    pub credential_id: bool,
}

/// The subject of a trusted certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CertificateSubject {
    /// CN, the user name.
    pub common_name: String,
    /// O, the groups, in certificate order.
    pub organizations: Vec<String>,
    /// The values of OID 1.3.6.1.4.1.57683.2, the uid; more than one is an error.
    pub uids: Vec<String>,
    /// SHA-256 of the DER certificate; `None` if the transport does not provide it.
    pub digest: Option<[u8; 32]>,
}

impl ClientCertificate<'_> {
    /// Returns the user that the certificate names; `None` without a certificate.
    pub(super) fn user(self, fields: CertificateFieldSet) -> Result<Option<User>, AuthenticationError> {
        match self {
            Self::Absent => Ok(None),
            Self::Untrusted(reason) => Err(AuthenticationError::UntrustedCertificate(reason.to_owned())),
            Self::Verified(subject) => subject.user(fields),
        }
    }
}

impl CertificateFieldSet {
    /// What the newest release reads.
    pub const ALL: Self = Self { uid: true, credential_id: true };
}

impl CertificateSubject {
    /// Returns the user; `None` if the common name is empty.
    pub fn user(&self, fields: CertificateFieldSet) -> Result<Option<User>, AuthenticationError> {
        if self.common_name.is_empty() {
            return Ok(None);
        }
        let subject_error = |text: String| Err(AuthenticationError::InvalidSubject(text));
        let uid = match self.uids.as_slice() {
            _ if !fields.uid => "",
            [] => "",
            [uid] if uid.is_empty() => return subject_error("UID cannot be an empty string".to_owned()),
            [uid] => uid,
            several => return subject_error(format!("expected 1 UID, but found multiple: [{}]", several.join(" "))),
        };
        let digest = self.digest.filter(|_| fields.credential_id);
        let extra = digest.map(|digest| (CREDENTIAL_ID_KEY.to_owned(), vec![credential_id(digest)]));
        let user = User {
            name: self.common_name.clone(),
            uid: uid.to_owned(),
            groups: self.organizations.clone(),
            extra: BTreeMap::from_iter(extra),
        };
        Ok(Some(user.with_authenticated_group()))
    }
}

fn credential_id(digest: [u8; 32]) -> String {
    let mut id = "X509SHA256=".to_owned();
    for byte in digest {
        write!(id, "{byte:02x}").expect("writing to a String cannot fail");
    }
    id
}

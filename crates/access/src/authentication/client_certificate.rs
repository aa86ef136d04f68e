//! Client certificates: the subject is the user.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::AuthenticationError;
use crate::user::{CREDENTIAL_ID_KEY, User};

/// What a bundle of authorities makes of the certificate of a connection. Verifying chains is the transport's part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientCertificate<'a> {
    /// There is no certificate, or no bundle to judge it by.
    Absent,
    /// It is trusted.
    Verified(&'a CertificateSubject),
    /// It is not trusted, for this reason.
    Untrusted(&'a str),
}

/// What a server reads from a certificate besides name and groups: the older the release, the less.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CertificateFieldSet {
    /// The uid in the subject.
    pub uid: bool,
    /// The digest, as the id of the credential.
    pub credential_id: bool,
}

/// The subject of a certificate that is trusted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CertificateSubject {
    /// CN: the name.
    pub common_name: String,
    /// O: the groups, in their order.
    pub organizations: Vec<String>,
    /// The values of 1.3.6.1.4.1.57683.2: the uid, of which there may be one.
    pub uids: Vec<String>,
    /// The SHA-256 of the whole certificate, which names it in audit logs; `None` if it is not known.
    pub digest: Option<[u8; 32]>,
}

impl ClientCertificate<'_> {
    /// The user it names; `None` if there is nothing to go by.
    pub(super) fn user(self, fields: CertificateFieldSet) -> Result<Option<User>, AuthenticationError> {
        match self {
            Self::Absent => Ok(None),
            Self::Untrusted(reason) => Err(AuthenticationError::UntrustedCertificate(reason.to_owned())),
            Self::Verified(subject) => subject.user(fields),
        }
    }
}

impl CertificateFieldSet {
    /// All of it.
    pub const ALL: Self = Self { uid: true, credential_id: true };
}

impl CertificateSubject {
    /// The user; `None` if there is no common name.
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
        write!(id, "{byte:02x}").expect("a string takes all that is written");
    }
    id
}

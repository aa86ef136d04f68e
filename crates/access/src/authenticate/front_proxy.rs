//! Another server that vouches for its own users: headers name them, and a certificate gives the right to.

use std::borrow::Cow;
use std::collections::BTreeMap;

use api::headers::{REMOTE_EXTRA_PREFIX, REMOTE_GROUP, REMOTE_UID, REMOTE_USER};
use percent_encoding::percent_decode_str;

use super::{AuthenticationError, Certificate, Shown, first, text};
use crate::user::User;

/// Which certificates may name users, and how.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FrontProxy {
    /// The common names that may; empty for every certificate of the bundle.
    pub allowed_names: Vec<String>,
    /// The headers that name users.
    pub headers: HeaderNames,
}

/// The headers of the four `--requestheader-*-headers*` flags; what is not configured is not read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeaderNames {
    /// The first with a value is the name.
    pub user: Vec<String>,
    /// The first with a value is the uid.
    pub uid: Vec<String>,
    /// All values of all of them are groups.
    pub group: Vec<String>,
    /// What follows one of these in a header's name is the key of an extra value.
    pub extra_prefix: Vec<String>,
}

const STANDARD: [&str; 3] = [REMOTE_USER, REMOTE_UID, REMOTE_GROUP];

/// A flag of the front proxy that cannot be followed.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrontProxyError {
    /// A blank entry would match nothing, or everything.
    #[error("--{0}: empty value in {0:?}")]
    Empty(&'static str),
    /// The same certificate would be a client's and a front proxy's.
    #[error(
        "--requestheader-client-ca-file and --client-ca-file contain overlapping certificates; --requestheader-allowed-names \
         must be specified to ensure regular client certificates cannot set authenticating proxy headers for arbitrary users"
    )]
    Overlap,
}

impl FrontProxy {
    /// Refuses settings that are mistakes.
    pub fn check(&self, bundles: Bundles) -> Result<(), FrontProxyError> {
        let HeaderNames { user, uid, group, extra_prefix } = &self.headers;
        for (flag, values) in [
            ("requestheader-allowed-names", &self.allowed_names),
            ("requestheader-username-headers", user),
            ("requestheader-uid-headers", uid),
            ("requestheader-group-headers", group),
            ("requestheader-extra-headers-prefix", extra_prefix),
        ] {
            if values.iter().any(|value| value.trim().is_empty()) {
                return Err(FrontProxyError::Empty(flag));
            }
        }
        match bundles {
            Bundles::Overlap if self.allowed_names.is_empty() => Err(FrontProxyError::Overlap),
            Bundles::Overlap | Bundles::Apart => Ok(()),
        }
    }

    /// The user that a front proxy names; `None` if there is none, or it names nobody.
    pub fn user<'a, Headers>(&self, shown: &Shown<'a, Headers>) -> Result<Option<User>, AuthenticationError>
    where
        Headers: Iterator<Item = (&'a str, &'a [u8])> + Clone,
    {
        let subject = match shown.front_proxy {
            Certificate::Absent => return Ok(None),
            Certificate::Untrusted(reason) => return Err(AuthenticationError::Certificate(reason.to_owned())),
            Certificate::Verified(subject) => subject,
        };
        if !self.allowed_names.is_empty() && !self.allowed_names.contains(&subject.common_name) {
            return Err(AuthenticationError::NotAllowed(subject.common_name.clone()));
        }
        let first_of = |names: &[String]| {
            let value = names.iter().find_map(|name| {
                let value = first(shown.headers.clone(), name).filter(|value| !value.is_empty())?;
                Some(text(name, value))
            });
            value.transpose()
        };
        let Some(name) = first_of(&self.headers.user)? else { return Ok(None) };
        let uid = first_of(&self.headers.uid)?.unwrap_or_default();
        let mut groups = Vec::new();
        for group in &self.headers.group {
            let values =
                shown.headers.clone().filter(|(header, value)| header.eq_ignore_ascii_case(group) && !value.is_empty());
            for (_, value) in values {
                groups.push(text(group, value)?);
            }
        }
        let extra = extra_values(&self.headers.extra_prefix, &shown.headers)?;
        Ok(Some(User { name, uid, groups, extra }.authenticated()))
    }
}

/// Whether the bundles of `--client-ca-file` and `--requestheader-client-ca-file` share a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bundles {
    /// They do.
    Overlap,
    /// They do not.
    Apart,
}

impl HeaderNames {
    /// The names that all of Kubernetes uses.
    pub fn standard() -> Self {
        let one = |name: &str| vec![name.to_owned()];
        let [user, uid, group] = STANDARD.map(one);
        Self { user, uid, group, extra_prefix: one(REMOTE_EXTRA_PREFIX) }
    }

    /// Whether a header is one that all of Kubernetes believes, and that is removed whether configured or not.
    pub fn is_standard(header: &str) -> bool {
        STANDARD.iter().any(|name| name.eq_ignore_ascii_case(header))
            || strip_prefix(header, REMOTE_EXTRA_PREFIX).is_some()
    }

    /// Whether a header is one of these.
    pub fn contains(&self, header: &str) -> bool {
        let Self { user, uid, group, extra_prefix } = self;
        user.iter().chain(uid).chain(group).any(|name| name.eq_ignore_ascii_case(header))
            || extra_prefix.iter().any(|prefix| strip_prefix(header, prefix).is_some())
    }
}

/// The extra values under any of the prefixes. Keys are lower case and percent-decoded.
pub(crate) fn extra_values<'a>(
    prefixes: &[String],
    headers: &(impl Iterator<Item = (&'a str, &'a [u8])> + Clone),
) -> Result<BTreeMap<String, Vec<String>>, AuthenticationError> {
    let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for prefix in prefixes {
        for (header, value) in headers.clone() {
            let Some(key) = strip_prefix(header, prefix) else { continue };
            extra.entry(decode_key(&key.to_ascii_lowercase())).or_default().push(text(header, value)?);
        }
    }
    Ok(extra)
}

pub(crate) fn strip_prefix<'a>(header: &'a str, prefix: &str) -> Option<&'a str> {
    let (start, rest) = header.split_at_checked(prefix.len())?;
    start.eq_ignore_ascii_case(prefix).then_some(rest)
}

/// Decodes `%2f`. A key that does not decode stays as it is, as in Kubernetes.
fn decode_key(key: &str) -> String {
    let is_well_formed = key
        .split('%')
        .skip(1)
        .all(|part| part.get(..2).is_some_and(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit())));
    if !is_well_formed {
        return key.to_owned();
    }
    percent_decode_str(key).decode_utf8().map_or_else(|_| key.to_owned(), Cow::into_owned)
}

//! The front proxy authenticator: a trusted client certificate permits a proxy or peer to name the user in request
//! headers.

use std::borrow::Cow;
use std::collections::BTreeMap;

use api::headers::{REMOTE_EXTRA_PREFIX, REMOTE_GROUP, REMOTE_UID, REMOTE_USER};
use percent_encoding::percent_decode_str;

use super::{AuthenticationError, ClientCertificate, PresentedCredentials, first_header_value, utf8_header_value};
use crate::user::User;

/// The certificates that may name users, and the headers that do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FrontProxy {
    /// `--requestheader-allowed-names`; empty accepts every certificate signed by the CA bundle.
    pub allowed_names: Vec<String>,
    /// Read only if the certificate is trusted.
    pub headers: FrontProxyHeaderNames,
}

/// The header names given by the four `--requestheader-*-headers*` flags. A header that is not listed is not read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FrontProxyHeaderNames {
    /// The first header with a value is the user name.
    pub user: Vec<String>,
    /// The first header with a value is the uid.
    pub uid: Vec<String>,
    /// All values of all headers are groups.
    pub group: Vec<String>,
    /// Header name prefixes; the rest of the name is the extra key.
    pub extra_prefix: Vec<String>,
}

const STANDARD_HEADERS: [&str; 3] = [REMOTE_USER, REMOTE_UID, REMOTE_GROUP];

/// An invalid combination of `--requestheader-*` flags.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrontProxyError {
    /// A blank list entry.
    #[error("--{0}: empty value in {0:?}")]
    EmptyValue(&'static str),
    /// A certificate could be both a client's and a front proxy's.
    #[error(
        "--requestheader-client-ca-file and --client-ca-file contain overlapping certificates; --requestheader-allowed-names \
         must be specified to ensure regular client certificates cannot set authenticating proxy headers for arbitrary users"
    )]
    OverlappingCaBundles,
}

impl FrontProxy {
    /// Rejects blank list entries, and overlapping CA bundles without allowed names.
    pub fn validate(&self, ca_bundle_overlap: CaBundleOverlap) -> Result<(), FrontProxyError> {
        let FrontProxyHeaderNames { user, uid, group, extra_prefix } = &self.headers;
        for (flag, values) in [
            ("requestheader-allowed-names", &self.allowed_names),
            ("requestheader-username-headers", user),
            ("requestheader-uid-headers", uid),
            ("requestheader-group-headers", group),
            ("requestheader-extra-headers-prefix", extra_prefix),
        ] {
            if values.iter().any(|value| value.trim().is_empty()) {
                return Err(FrontProxyError::EmptyValue(flag));
            }
        }
        match ca_bundle_overlap {
            CaBundleOverlap::Overlapping if self.allowed_names.is_empty() => Err(FrontProxyError::OverlappingCaBundles),
            CaBundleOverlap::Overlapping | CaBundleOverlap::Disjoint => Ok(()),
        }
    }

    /// Returns the user named in the headers; `None` without a certificate or without a user header.
    pub fn authenticate<'a, Headers>(
        &self,
        credentials: &PresentedCredentials<'a, Headers>,
    ) -> Result<Option<User>, AuthenticationError>
    where
        Headers: Iterator<Item = (&'a str, &'a [u8])> + Clone,
    {
        let subject = match credentials.front_proxy_certificate {
            ClientCertificate::Absent => return Ok(None),
            ClientCertificate::Untrusted(reason) => {
                return Err(AuthenticationError::UntrustedCertificate(reason.to_owned()));
            }
            ClientCertificate::Verified(subject) => subject,
        };
        if !self.allowed_names.is_empty() && !self.allowed_names.contains(&subject.common_name) {
            return Err(AuthenticationError::CommonNameNotAllowed(subject.common_name.clone()));
        }
        let first_non_empty_value = |names: &[String]| {
            let value = names.iter().find_map(|name| {
                let value = first_header_value(credentials.headers.clone(), name).filter(|value| !value.is_empty())?;
                Some(utf8_header_value(name, value))
            });
            value.transpose()
        };
        let Some(name) = first_non_empty_value(&self.headers.user)? else { return Ok(None) };
        let uid = first_non_empty_value(&self.headers.uid)?.unwrap_or_default();
        let mut groups = Vec::new();
        for group in &self.headers.group {
            let values = credentials
                .headers
                .clone()
                .filter(|(header, value)| header.eq_ignore_ascii_case(group) && !value.is_empty());
            for (_, value) in values {
                groups.push(utf8_header_value(group, value)?);
            }
        }
        let extra = parse_extra_headers(&self.headers.extra_prefix, &credentials.headers)?;
        Ok(Some(User { name, uid, groups, extra }.with_authenticated_group()))
    }
}

/// Whether the bundles of `--client-ca-file` and `--requestheader-client-ca-file` share a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaBundleOverlap {
    /// At least one certificate is in both bundles.
    Overlapping,
    /// No certificate is in both bundles.
    Disjoint,
}

impl FrontProxyHeaderNames {
    /// Returns Kubernetes' default names: `X-Remote-User`, `X-Remote-Uid`, `X-Remote-Group`, `X-Remote-Extra-`.
    pub fn standard() -> Self {
        let one = |name: &str| vec![name.to_owned()];
        let [user, uid, group] = STANDARD_HEADERS.map(one);
        Self { user, uid, group, extra_prefix: one(REMOTE_EXTRA_PREFIX) }
    }

    /// Reports whether a header is one of the default names, which are removed from forwarded requests whether
    /// configured or not.
    pub fn is_standard(header: &str) -> bool {
        STANDARD_HEADERS.iter().any(|name| name.eq_ignore_ascii_case(header))
            || strip_header_prefix(header, REMOTE_EXTRA_PREFIX).is_some()
    }

    /// Reports whether a header is one of the configured ones.
    pub fn contains(&self, header: &str) -> bool {
        let Self { user, uid, group, extra_prefix } = self;
        user.iter().chain(uid).chain(group).any(|name| name.eq_ignore_ascii_case(header))
            || extra_prefix.iter().any(|prefix| strip_header_prefix(header, prefix).is_some())
    }
}

/// Collects the extra values under any of the prefixes. Keys are lower-cased and percent-decoded.
pub(crate) fn parse_extra_headers<'a>(
    prefixes: &[String],
    headers: &(impl Iterator<Item = (&'a str, &'a [u8])> + Clone),
) -> Result<BTreeMap<String, Vec<String>>, AuthenticationError> {
    let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for prefix in prefixes {
        for (header, value) in headers.clone() {
            let Some(key) = strip_header_prefix(header, prefix) else { continue };
            extra
                .entry(decode_extra_key(&key.to_ascii_lowercase()))
                .or_default()
                .push(utf8_header_value(header, value)?);
        }
    }
    Ok(extra)
}

pub(crate) fn strip_header_prefix<'a>(header: &'a str, prefix: &str) -> Option<&'a str> {
    let (start, remaining) = header.split_at_checked(prefix.len())?;
    start.eq_ignore_ascii_case(prefix).then_some(remaining)
}

/// Percent-decodes an extra key. A malformed key is returned unchanged, as in Kubernetes.
fn decode_extra_key(key: &str) -> String {
    let is_well_formed = key
        .split('%')
        .skip(1)
        .all(|part| part.get(..2).is_some_and(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit())));
    if !is_well_formed {
        return key.to_owned();
    }
    percent_decode_str(key).decode_utf8().map_or_else(|_| key.to_owned(), Cow::into_owned)
}

//! User impersonation by the `Impersonate-*` headers.
//!
//! The requester needs the verb `impersonate` on each part: user name, every group, uid, and every extra value.

use std::collections::BTreeMap;
use std::fmt;

use crate::attributes::{Attributes, ResourceAttributes};
use crate::authentication::{AuthenticationError, parse_extra_headers, strip_header_prefix};
use crate::authorization::{AccessDenied, Authorizer, Decision};
use crate::rbac::RbacIndex;
use crate::reviews::AUTHENTICATION_GROUP;
use crate::user::{ANONYMOUS_USER, UNAUTHENTICATED_GROUP, User, service_account_groups, split_service_account_name};

const USER_HEADER: &str = "Impersonate-User";
const GROUP_HEADER: &str = "Impersonate-Group";
const UID_HEADER: &str = "Impersonate-Uid";
const EXTRA_HEADER_PREFIX: &str = "Impersonate-Extra-";

/// Limit on groups plus extra values of one request, because each costs an authorization decision.
const IMPERSONATED_VALUES_MAX: usize = 1000;

/// The user that a request asks to impersonate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImpersonatedUser {
    user: String,
    uid: String,
    groups: Vec<String>,
    extra: BTreeMap<String, Vec<String>>,
}

/// Why impersonation failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImpersonationError {
    /// Groups, uid or extra values were given without `Impersonate-User`.
    #[error("requested {0} without impersonating a user")]
    MissingUser(String),
    /// A header is not UTF-8.
    #[error(transparent)]
    InvalidHeader(AuthenticationError),
    /// More than `IMPERSONATED_VALUES_MAX` groups and extra values.
    #[error("more than {IMPERSONATED_VALUES_MAX} groups and extra values are impersonated")]
    TooManyValues,
    /// The requester lacks `impersonate` on one part.
    #[error(transparent)]
    Forbidden(Box<AccessDenied>),
}

impl ImpersonatedUser {
    /// Parses the impersonation headers; `None` if there are none.
    pub fn from_headers<'a>(
        headers: &(impl Iterator<Item = (&'a str, &'a [u8])> + Clone),
    ) -> Result<Option<Self>, ImpersonationError> {
        let values = |name: &'static str| {
            let values = headers.clone().filter(move |(header, _)| header.eq_ignore_ascii_case(name));
            values.map(move |(_, value)| match std::str::from_utf8(value) {
                Ok(value) => Ok(value.to_owned()),
                Err(_) => Err(ImpersonationError::InvalidHeader(AuthenticationError::HeaderNotUtf8(name.to_owned()))),
            })
        };
        let impersonated = Self {
            user: values(USER_HEADER).next().transpose()?.unwrap_or_default(),
            uid: values(UID_HEADER).next().transpose()?.unwrap_or_default(),
            groups: values(GROUP_HEADER).collect::<Result<_, _>>()?,
            extra: parse_extra_headers(&[EXTRA_HEADER_PREFIX.to_owned()], headers)
                .map_err(ImpersonationError::InvalidHeader)?,
        };
        if impersonated.user.is_empty() {
            return if impersonated == Self::default() {
                Ok(None)
            } else {
                Err(ImpersonationError::MissingUser(impersonated.to_string()))
            };
        }
        if impersonated.groups.len() + impersonated.extra.values().map(Vec::len).sum::<usize>()
            > IMPERSONATED_VALUES_MAX
        {
            return Err(ImpersonationError::TooManyValues);
        }
        Ok(Some(impersonated))
    }

    /// Reports whether a header belongs to impersonation and must be removed before the request is forwarded.
    pub fn is_impersonation_header(name: &str) -> bool {
        [USER_HEADER, GROUP_HEADER, UID_HEADER].iter().any(|header| header.eq_ignore_ascii_case(name))
            || strip_header_prefix(name, EXTRA_HEADER_PREFIX).is_some()
    }

    /// Returns the impersonated user if the requester may impersonate every part. The audit log records both users.
    pub fn authorize(
        &self,
        authorizer: &Authorizer,
        index: &RbacIndex,
        requester: &User,
    ) -> Result<User, ImpersonationError> {
        for resource in self.required_attributes() {
            let attributes = Attributes::for_resource(requester, "impersonate", resource);
            if let Decision::NotAllowed { reason } = authorizer.decide(index, &attributes) {
                return Err(ImpersonationError::Forbidden(Box::new(AccessDenied::new(&attributes, &reason))));
            }
        }
        Ok(self.to_user())
    }

    /// Lists the permissions to check, in Kubernetes' order.
    fn required_attributes(&self) -> impl Iterator<Item = ResourceAttributes<'_>> {
        let name = match split_service_account_name(&self.user) {
            Some((namespace, name)) => {
                ResourceAttributes { resource: "serviceaccounts", namespace, name, ..ResourceAttributes::default() }
            }
            None => ResourceAttributes { resource: "users", name: &self.user, ..ResourceAttributes::default() },
        };
        let groups = self.groups.iter().map(|name| ResourceAttributes {
            resource: "groups",
            name,
            ..ResourceAttributes::default()
        });
        let authentication_resource =
            ResourceAttributes { group: AUTHENTICATION_GROUP, version: "v1", ..ResourceAttributes::default() };
        let extra = self.extra.iter().flat_map(move |(subresource, values)| {
            values.iter().map(move |name| ResourceAttributes {
                resource: "userextras",
                subresource,
                name,
                ..authentication_resource
            })
        });
        let uid = Some(&self.uid).filter(|uid| !uid.is_empty());
        let uid = uid.map(|name| ResourceAttributes { resource: "uids", name, ..authentication_resource });
        std::iter::once(name).chain(groups).chain(extra).chain(uid)
    }

    /// Builds the user, adding the groups that Kubernetes implies for service accounts and authenticated users.
    fn to_user(&self) -> User {
        let Self { user, uid, groups, extra } = self.clone();
        let mut user = User { name: user, uid, groups, extra };
        if user.groups.is_empty() {
            let account = split_service_account_name(&self.user);
            user.groups.extend(account.into_iter().flat_map(|(namespace, _)| service_account_groups(namespace)));
        }
        if user.name != ANONYMOUS_USER {
            return user.with_authenticated_group();
        }
        if !user.is_in_group(UNAUTHENTICATED_GROUP) {
            user.groups.push(UNAUTHENTICATED_GROUP.to_owned());
        }
        user
    }
}

/// Formats the parts as Kubernetes does: each as an object reference with seven fields.
impl fmt::Display for ImpersonatedUser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let groups = self.groups.iter().map(|group| format!("{{Group  {group}    }}"));
        let extra = self.extra.iter().flat_map(|(key, values)| {
            values.iter().map(move |value| format!("{{UserExtra  {value}  {AUTHENTICATION_GROUP}/v1  {key}}}"))
        });
        let uid = Some(&self.uid).filter(|uid| !uid.is_empty());
        let uid = uid.map(|uid| format!("{{UID  {uid}  {AUTHENTICATION_GROUP}/v1  }}"));
        let parts: Vec<String> = groups.chain(extra).chain(uid).collect();
        write!(f, "[{}]", parts.join(" "))
    }
}

#[cfg(test)]
mod tests;

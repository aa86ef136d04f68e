//! Acting as somebody else: the `Impersonate-*` headers.
//!
//! Every part of the other identity is asked for by itself — name, groups, uid, extra values — and needs the verb
//! `impersonate` on it. Whoever may impersonate the group `system:masters` may do anything, so few should.

use std::collections::BTreeMap;
use std::fmt;

use api::Status;

use crate::attributes::{Attributes, Resource};
use crate::authenticate::{AuthenticationError, extra_values, strip_prefix};
use crate::authorize::{Authorizer, Decision, forbidden};
use crate::rbac::Index;
use crate::user::{ANONYMOUS, UNAUTHENTICATED, User, service_account_groups, split_service_account_name};

const USER: &str = "Impersonate-User";
const GROUP: &str = "Impersonate-Group";
const UID: &str = "Impersonate-Uid";
const EXTRA_PREFIX: &str = "Impersonate-Extra-";

/// The group of uids and extra values; names, groups and service accounts are in the core group.
const AUTHENTICATION: &str = "authentication.k8s.io";

/// Each value costs a decision, and a client may send many.
const VALUES_MAX: usize = 1000;

/// Whom a request wants to act as.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Impersonation {
    user: String,
    uid: String,
    groups: Vec<String>,
    extra: BTreeMap<String, Vec<String>>,
}

/// Why somebody may not act as somebody else.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImpersonationError {
    /// Parts of an identity were asked for, but no name.
    #[error("requested {0} without impersonating a user")]
    NoUser(String),
    /// A header is not text.
    #[error(transparent)]
    Header(AuthenticationError),
    /// There are more groups and extra values than are looked at.
    #[error("more than {VALUES_MAX} groups and extra values are impersonated")]
    TooMany,
    /// One of the parts is not allowed.
    #[error("{}", .0.message)]
    Forbidden(Box<Status>),
}

impl Impersonation {
    /// Reads the headers; `None` if nobody is impersonated.
    pub fn from_headers<'a>(
        headers: &(impl Iterator<Item = (&'a str, &'a [u8])> + Clone),
    ) -> Result<Option<Self>, ImpersonationError> {
        let values = |name: &'static str| {
            let values = headers.clone().filter(move |(header, _)| header.eq_ignore_ascii_case(name));
            values.map(move |(_, value)| match std::str::from_utf8(value) {
                Ok(value) => Ok(value.to_owned()),
                Err(_) => Err(ImpersonationError::Header(AuthenticationError::Header(name.to_owned()))),
            })
        };
        let wanted = Self {
            user: values(USER).next().transpose()?.unwrap_or_default(),
            uid: values(UID).next().transpose()?.unwrap_or_default(),
            groups: values(GROUP).collect::<Result<_, _>>()?,
            extra: extra_values(&[EXTRA_PREFIX.to_owned()], headers).map_err(ImpersonationError::Header)?,
        };
        if wanted.user.is_empty() {
            return if wanted == Self::default() {
                Ok(None)
            } else {
                Err(ImpersonationError::NoUser(wanted.to_string()))
            };
        }
        if wanted.groups.len() + wanted.extra.values().map(Vec::len).sum::<usize>() > VALUES_MAX {
            return Err(ImpersonationError::TooMany);
        }
        Ok(Some(wanted))
    }

    /// Whether a header is about impersonation, so that it must not travel on.
    pub fn is_header(name: &str) -> bool {
        [USER, GROUP, UID].iter().any(|header| header.eq_ignore_ascii_case(name))
            || strip_prefix(name, EXTRA_PREFIX).is_some()
    }

    /// The user to go on as, if the one who asks may be all of it. The audit log shows both.
    pub fn authorize(&self, authorizer: &Authorizer, index: &Index, asking: &User) -> Result<User, ImpersonationError> {
        for resource in self.questions() {
            let asked = Attributes::resource(asking, "impersonate", resource);
            if let Decision::NotAllowed { reason } = authorizer.decide(index, &asked) {
                return Err(ImpersonationError::Forbidden(Box::new(forbidden(&asked, &reason))));
            }
        }
        Ok(self.user())
    }

    /// What must be allowed, in the order it is asked.
    fn questions(&self) -> impl Iterator<Item = Resource<'_>> {
        let name = match split_service_account_name(&self.user) {
            Some((namespace, name)) => Resource { resource: "serviceaccounts", namespace, name, ..Resource::default() },
            None => Resource { resource: "users", name: &self.user, ..Resource::default() },
        };
        let groups = self.groups.iter().map(|name| Resource { resource: "groups", name, ..Resource::default() });
        let ours = Resource { group: AUTHENTICATION, version: "v1", ..Resource::default() };
        let extra = self.extra.iter().flat_map(move |(subresource, values)| {
            values.iter().map(move |name| Resource { resource: "userextras", subresource, name, ..ours })
        });
        let uid = Some(&self.uid).filter(|uid| !uid.is_empty());
        let uid = uid.map(|name| Resource { resource: "uids", name, ..ours });
        std::iter::once(name).chain(groups).chain(extra).chain(uid)
    }

    fn user(&self) -> User {
        let Self { user, uid, groups, extra } = self.clone();
        let mut user = User { name: user, uid, groups, extra };
        if user.groups.is_empty() {
            let account = split_service_account_name(&self.user);
            user.groups.extend(account.into_iter().flat_map(|(namespace, _)| service_account_groups(namespace)));
        }
        if user.name != ANONYMOUS {
            return user.authenticated();
        }
        if !user.is_in(UNAUTHENTICATED) {
            user.groups.push(UNAUTHENTICATED.to_owned());
        }
        user
    }
}

impl ImpersonationError {
    /// The answer to the client.
    pub fn to_status(&self) -> Status {
        match self {
            Self::NoUser(_) | Self::Header(_) | Self::TooMany => Status::bad_request(self.to_string()),
            Self::Forbidden(status) => (**status).clone(),
        }
    }
}

/// As Kubernetes prints the parts of an identity: each as an object reference of seven fields.
impl fmt::Display for Impersonation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let groups = self.groups.iter().map(|group| format!("{{Group  {group}    }}"));
        let extra = self.extra.iter().flat_map(|(key, values)| {
            values.iter().map(move |value| format!("{{UserExtra  {value}  {AUTHENTICATION}/v1  {key}}}"))
        });
        let uid = Some(&self.uid).filter(|uid| !uid.is_empty());
        let uid = uid.map(|uid| format!("{{UID  {uid}  {AUTHENTICATION}/v1  }}"));
        let parts: Vec<String> = groups.chain(extra).chain(uid).collect();
        write!(f, "[{}]", parts.join(" "))
    }
}

#[cfg(test)]
mod tests;

//! The Lease that makes a server a member: how this server writes its own and reads those of others.

use std::time::Duration;

use api::Address;
use api::metadata::ObjectMeta;
use api::objects::{Lease, LeaseSpec};
use api::time::MicroTime;
use api::validation;

use super::{HolderIdentity, ServerId};

/// The namespace of identity leases; a lease elsewhere makes no member.
pub const IDENTITY_LEASE_NAMESPACE: &str = "kube-system";
/// The label that every identity lease has.
pub const IDENTITY_LABEL: &str = "apiserver.kubernetes.io/identity";
/// The value of [`IDENTITY_LABEL`] that makes a member; others are those of extension servers.
pub const IDENTITY_LABEL_VALUE: &str = "kube-apiserver";
/// The label with the hostname, for people.
pub const HOSTNAME_LABEL: &str = "kubernetes.io/hostname";
/// The annotation with the address, for people. No server reads it: a client that may write Leases could redirect requests.
pub const ADDRESS_ANNOTATION: &str = "kubernetes.io/peer-advertise-address";

/// The longest label value.
const LABEL_VALUE_BYTES_MAX: usize = 63;

/// The content of this server's own lease.
#[derive(Clone, Debug)]
pub struct IdentityLeaseTemplate {
    /// The identity of this server and the name of the lease.
    pub server: ServerId,
    /// The holder identity of this process.
    pub holder: HolderIdentity,
    /// The component, the value of [`IDENTITY_LABEL`]: [`IDENTITY_LABEL_VALUE`], or the name of an extension server.
    pub component: String,
    /// The hostname, for people.
    pub hostname: String,
    /// The advertised address, for people; `None` without peering.
    pub address: Option<Address>,
    /// How long the lease is valid after a renewal, in whole seconds.
    pub duration: Duration,
}

impl IdentityLeaseTemplate {
    /// A lease to be created.
    pub fn new_lease(&self, now: MicroTime) -> Lease {
        let spec = LeaseSpec { holder_identity: Some(self.holder.as_str().to_owned()), ..LeaseSpec::default() };
        let metadata = ObjectMeta {
            name: self.server.as_str().to_owned(),
            namespace: IDENTITY_LEASE_NAMESPACE.to_owned(),
            ..ObjectMeta::default()
        };
        self.renew(&Lease { metadata, spec, ..Lease::default() }, now)
    }

    /// The lease after a renewal. The holder is written once, when the lease is created.
    pub fn renew(&self, last: &Lease, now: MicroTime) -> Lease {
        let mut lease = last.clone();
        let seconds = self.duration.as_secs() + u64::from(self.duration.subsec_nanos() > 0);
        lease.spec.lease_duration_seconds = Some(i32::try_from(seconds).unwrap_or(i32::MAX).max(1));
        lease.spec.renew_time = Some(now);
        let labels = &mut lease.metadata.labels;
        labels.insert(IDENTITY_LABEL.to_owned(), self.component.clone());
        if let Some(hostname) = hostname_label_value(&self.hostname) {
            labels.insert(HOSTNAME_LABEL.to_owned(), hostname.to_owned());
        }
        if let Some(address) = &self.address {
            lease.metadata.annotations.insert(ADDRESS_ANNOTATION.to_owned(), address.to_string());
        }
        lease
    }
}

/// The longest prefix of a hostname that is a valid label value; `None` if there is none. kube-apiserver has no lease at all on
/// a host whose name is too long.
fn hostname_label_value(hostname: &str) -> Option<&str> {
    let mut value = &hostname[..hostname.floor_char_boundary(LABEL_VALUE_BYTES_MAX)];
    value = value.trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
    let is_valid = !value.is_empty() && validation::validate_label_value(value).is_empty();
    is_valid.then_some(value)
}

/// A lease that makes a server a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdentityLease {
    /// The server.
    pub server: ServerId,
    /// The process of the server.
    pub holder: HolderIdentity,
    /// The `renewTime`. Compared for change only, never with our clock.
    pub renew_time: Option<MicroTime>,
    /// How long a renewal is valid; a lease without a duration is expired.
    pub duration: Option<Duration>,
    /// For the precondition of a deletion.
    pub uid: String,
    /// For the precondition of a deletion.
    pub resource_version: String,
}

/// Why a lease makes no member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotAnIdentityLease {
    /// The lease is in another namespace, where clients other than servers may write.
    #[error("it is not in the namespace {IDENTITY_LEASE_NAMESPACE}")]
    WrongNamespace,
    /// The label of the component is missing or names another one.
    #[error("it lacks the label {IDENTITY_LABEL}={IDENTITY_LABEL_VALUE}")]
    WrongLabel,
    /// The name is no server identity.
    #[error("its name is not that of an API server")]
    WrongName,
    /// The holder is missing, or is no process of the server.
    #[error("its holder is not a process of the server that it is named after")]
    WrongHolder,
}

impl IdentityLease {
    /// Reads an identity lease.
    pub fn from_lease(lease: &Lease) -> Result<Self, NotAnIdentityLease> {
        let metadata = &lease.metadata;
        if metadata.namespace != IDENTITY_LEASE_NAMESPACE {
            return Err(NotAnIdentityLease::WrongNamespace);
        }
        if metadata.labels.get(IDENTITY_LABEL).is_none_or(|value| value != IDENTITY_LABEL_VALUE) {
            return Err(NotAnIdentityLease::WrongLabel);
        }
        let server = ServerId::from_name(&metadata.name).ok_or(NotAnIdentityLease::WrongName)?;
        let lease = Self::from_lease_unchecked(&server, lease);
        if lease.holder.belongs_to(&lease.server) { Ok(lease) } else { Err(NotAnIdentityLease::WrongHolder) }
    }

    /// Reads a lease under the name of this server without checking its labels or holder.
    pub(crate) fn from_lease_unchecked(server: &ServerId, lease: &Lease) -> Self {
        let Lease { metadata, spec, .. } = lease;
        let seconds = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
        Self {
            server: server.clone(),
            holder: HolderIdentity::from_text(spec.holder_identity.as_deref().unwrap_or_default()),
            renew_time: spec.renew_time,
            duration: seconds.map(Duration::from_secs),
            uid: metadata.uid.clone(),
            resource_version: metadata.resource_version.clone(),
        }
    }

    /// True if the lease has expired, given the time since its renewal was last seen to change. A lease without renewal time or
    /// duration is expired.
    pub fn is_expired(&self, since_renewal: Duration) -> bool {
        self.renew_time.is_none() || self.duration.is_none_or(|duration| since_renewal >= duration)
    }
}

#[cfg(test)]
mod tests {
    use api::objects::to_stored_json;
    use expect_test::expect;

    use super::*;

    fn lease_template(hostname: &str) -> IdentityLeaseTemplate {
        let server = ServerId::from_hostname("test-server-a");
        IdentityLeaseTemplate {
            holder: HolderIdentity::new(&server, 1),
            server,
            component: IDENTITY_LABEL_VALUE.to_owned(),
            hostname: hostname.to_owned(),
            address: Address::new("fd00::1", 6443),
            duration: Duration::from_secs(3600),
        }
    }

    fn at(text: &str) -> MicroTime {
        text.parse().unwrap()
    }

    #[test]
    fn new_lease_matches_kube_apiserver() {
        let lease = lease_template("test-server-a").new_lease(at("2026-11-15T10:00:00.000001Z"));
        expect![[r#"
            {"kind":"Lease","apiVersion":"coordination.k8s.io/v1","metadata":{"name":"apiserver-tcwjsvs6hjq4qbwzx5rvp5fsqe","namespace":"kube-system","labels":{"apiserver.kubernetes.io/identity":"kube-apiserver","kubernetes.io/hostname":"test-server-a"},"annotations":{"kubernetes.io/peer-advertise-address":"[fd00::1]:6443"}},"spec":{"holderIdentity":"apiserver-tcwjsvs6hjq4qbwzx5rvp5fsqe_00000000-0000-4000-8000-000000000001","leaseDurationSeconds":3600,"renewTime":"2026-11-15T10:00:00.000001Z"}}
        "#]]
        .assert_eq(std::str::from_utf8(&to_stored_json(&lease)).unwrap());
    }

    #[test]
    fn renew_changes_only_renew_time() {
        let form = lease_template("test-server-a");
        let mut lease = form.new_lease(at("2026-11-15T10:00:00Z"));
        lease.metadata.uid = "u".to_owned();
        lease.spec.holder_identity = Some("another".to_owned());
        let renewed = form.renew(&lease, at("2026-11-15T10:00:10Z"));
        assert_eq!(renewed.spec.renew_time, Some(at("2026-11-15T10:00:10Z")));
        lease.spec.renew_time = renewed.spec.renew_time;
        assert_eq!(renewed, lease);
    }

    #[test]
    fn lease_duration_is_rounded_up_to_seconds() {
        let mut form = lease_template("a");
        for (duration, seconds) in [(1, 1), (1000, 1), (1001, 2), (u64::MAX, i32::MAX)] {
            form.duration = Duration::from_millis(duration);
            let lease = form.new_lease(at("2026-11-15T10:00:00Z"));
            assert_eq!(lease.spec.lease_duration_seconds, Some(seconds), "{duration} ms");
        }
    }

    #[test]
    fn hostname_label_is_truncated_or_omitted() {
        let cut = format!("{}.{}", "a".repeat(62), "b".repeat(40));
        for (hostname, label) in [
            ("host", Some("host")),
            (&*cut, Some(&cut[..62])),
            ("host:6443", None),
            ("", None),
            ("-", None),
            ("ü", None),
        ] {
            assert_eq!(hostname_label_value(hostname), label, "{hostname}");
        }
    }

    #[track_caller]
    fn check(change: impl FnOnce(&mut Lease), expected: Result<(), NotAnIdentityLease>) {
        let mut lease = lease_template("a").new_lease(at("2026-11-15T10:00:00Z"));
        change(&mut lease);
        assert_eq!(IdentityLease::from_lease(&lease).map(|_| ()), expected);
    }

    #[test]
    fn from_lease_rejects_leases_of_other_components() {
        check(|_| {}, Ok(()));
        check(|lease| lease.metadata.namespace = "default".to_owned(), Err(NotAnIdentityLease::WrongNamespace));
        check(|lease| lease.metadata.labels.clear(), Err(NotAnIdentityLease::WrongLabel));
        check(
            |lease| {
                lease.metadata.labels.insert(IDENTITY_LABEL.to_owned(), "kube-controller-manager".to_owned());
            },
            Err(NotAnIdentityLease::WrongLabel),
        );
        check(|lease| lease.metadata.name = "phantom".to_owned(), Err(NotAnIdentityLease::WrongName));
        check(|lease| lease.metadata.name = "apiserver-other".to_owned(), Err(NotAnIdentityLease::WrongHolder));
        check(|lease| lease.spec.holder_identity = None, Err(NotAnIdentityLease::WrongHolder));
    }

    #[test]
    fn lease_expires_by_time_since_last_observed_renewal() {
        let read = |change: fn(&mut Lease)| {
            let mut lease = lease_template("a").new_lease(at("2026-11-15T10:00:00Z"));
            change(&mut lease);
            IdentityLease::from_lease(&lease).unwrap()
        };
        let whole = read(|_| {});
        assert!(!whole.is_expired(Duration::from_secs(3599)));
        assert!(whole.is_expired(Duration::from_secs(3600)));
        assert!(read(|lease| lease.spec.renew_time = None).is_expired(Duration::ZERO));
        assert!(read(|lease| lease.spec.lease_duration_seconds = None).is_expired(Duration::ZERO));
        assert!(read(|lease| lease.spec.lease_duration_seconds = Some(-1)).is_expired(Duration::ZERO));
    }
}

//! Identity leases of all components: which servers are alive, without their addresses and documents.
//!
//! Extension servers hold identity leases of components of their own. They are no members, so that nothing is routed to them; but
//! their storage versions count as long as their leases are valid.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use api::objects::Lease;
use tokio::time::Instant;

use super::{IDENTITY_LABEL, IDENTITY_LEASE_NAMESPACE};

/// The identity leases as they were last read. A lease is valid for its duration after a change of it was seen, by our own clock.
#[derive(Debug, Default)]
pub struct ComponentLeases {
    leases: HashMap<Arc<str>, ObservedLease>,
}

#[derive(Debug)]
struct ObservedLease {
    component: Arc<str>,
    resource_version: String,
    changed_at: Instant,
    duration: Duration,
}

impl ObservedLease {
    fn is_valid(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.changed_at) < self.duration
    }
}

impl ComponentLeases {
    /// Takes all leases of the namespace as they are now; returns the servers whose identity leases are valid, with the component of
    /// each.
    pub fn observe<'l>(
        &mut self,
        leases: impl IntoIterator<Item = &'l Lease>,
        now: Instant,
    ) -> Vec<(Arc<str>, Arc<str>)> {
        let mut known = std::mem::take(&mut self.leases);
        for lease in leases {
            let metadata = &lease.metadata;
            let component = metadata.labels.get(IDENTITY_LABEL).filter(|component| !component.is_empty());
            let Some(component) = component.filter(|_| metadata.namespace == IDENTITY_LEASE_NAMESPACE) else {
                continue;
            };
            let seconds = lease.spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
            let same = known.remove(metadata.name.as_str());
            let same = same.filter(|last| last.resource_version == metadata.resource_version);
            let observed = ObservedLease {
                component: component.as_str().into(),
                resource_version: metadata.resource_version.clone(),
                changed_at: same.map_or(now, |last| last.changed_at),
                duration: Duration::from_secs(seconds.unwrap_or_default()),
            };
            self.leases.insert(metadata.name.as_str().into(), observed);
        }
        let valid = self.leases.iter().filter(|(_, lease)| lease.is_valid(now));
        valid.map(|(server, lease)| (server.clone(), lease.component.clone())).collect()
    }

    /// True if the lease of this name was valid when it was last read.
    pub fn is_valid(&self, server: &str, now: Instant) -> bool {
        self.leases.get(server).is_some_and(|lease| lease.is_valid(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(name: &str, component: &str, version: &str) -> Lease {
        let mut lease = Lease::default();
        lease.metadata.name = name.to_owned();
        lease.metadata.namespace = IDENTITY_LEASE_NAMESPACE.to_owned();
        lease.metadata.resource_version = version.to_owned();
        lease.metadata.labels.insert(IDENTITY_LABEL.to_owned(), component.to_owned());
        lease.spec.lease_duration_seconds = Some(10);
        lease
    }

    fn names(valid: Vec<(Arc<str>, Arc<str>)>) -> Vec<String> {
        let mut names: Vec<String> = valid.into_iter().map(|(name, component)| format!("{name} {component}")).collect();
        names.sort();
        names
    }

    #[test]
    fn lease_is_valid_for_its_duration_after_each_change() {
        let (mut leases, start) = (ComponentLeases::default(), Instant::now());
        let after = |seconds| start + Duration::from_secs(seconds);
        let [a1, b1, a2] = [lease("a", "x", "1"), lease("b", "y", "2"), lease("a", "x", "3")];
        assert_eq!(names(leases.observe([&a1, &b1], start)), ["a x", "b y"]);
        assert_eq!(names(leases.observe([&a2, &b1], after(9))), ["a x", "b y"]);
        assert_eq!(names(leases.observe([&a2, &b1], after(10))), ["a x"]);
        assert!(leases.is_valid("a", after(18)) && !leases.is_valid("b", after(18)));
        assert!(names(leases.observe([&b1], after(11))).is_empty());
        assert!(!leases.is_valid("a", after(11)));
    }

    #[test]
    fn other_leases_are_no_identities() {
        let mut leases = ComponentLeases::default();
        let mut elsewhere = lease("a", "x", "1");
        elsewhere.metadata.namespace = "default".to_owned();
        let mut unlabelled = lease("b", "x", "1");
        unlabelled.metadata.labels.clear();
        let mut endless = lease("c", "x", "1");
        endless.spec.lease_duration_seconds = None;
        assert!(leases.observe([&elsewhere, &unlabelled, &endless], Instant::now()).is_empty());
    }
}

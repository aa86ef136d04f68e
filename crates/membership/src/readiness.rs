//! The milestones before this server is ready, under the names of kube-apiserver's post-start hooks.

use std::fmt;
use std::sync::Arc;

use tokio::sync::watch;

use crate::members::MemberState;
use crate::view::{Peering, View};

/// An event that happens once. Clones share it.
#[derive(Clone)]
pub struct Milestone {
    name: &'static str,
    reached: Arc<watch::Sender<bool>>,
}

impl Milestone {
    pub(crate) fn new(name: &'static str) -> Self {
        Self { name, reached: Arc::new(watch::Sender::new(false)) }
    }

    /// The name of the health check: `poststarthook/` and the name of the hook.
    pub fn check_name(&self) -> String {
        format!("poststarthook/{}", self.name)
    }

    /// `Ok` once it has happened; until then kube-apiserver's text.
    pub fn check(&self) -> Result<(), &'static str> {
        if *self.reached.borrow() { Ok(()) } else { Err("not finished") }
    }

    /// Waits until it has happened.
    pub async fn wait_until_reached(&self) {
        let mut reached = self.reached.subscribe();
        // The sender is in `self`, so the channel is open.
        let _ = reached.wait_for(|reached| *reached).await;
    }

    pub(crate) fn mark_reached(&self) {
        self.reached.send_if_modified(|reached| !std::mem::replace(reached, true));
    }
}

impl fmt::Debug for Milestone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name, if self.check().is_ok() { "reached" } else { "not finished" })
    }
}

/// The milestones of a server.
#[derive(Clone, Debug)]
pub struct Milestones {
    /// The identity lease was written or tried: a failed write does not delay readiness.
    pub identity_lease: Milestone,
    /// The cleanup task runs.
    pub lease_cleanup: Milestone,
    /// The endpoint record was written or tried.
    pub endpoint_record: Milestone,
    /// The first sync is over.
    pub first_sync: Milestone,
    /// What this server serves is known.
    pub local_document: Milestone,
    /// The discovery fetchers run.
    pub discovery_fetch: Milestone,
}

impl Milestones {
    pub(crate) fn new() -> Self {
        Self {
            identity_lease: Milestone::new("start-kube-apiserver-identity-lease-controller"),
            lease_cleanup: Milestone::new("start-kube-apiserver-identity-lease-garbage-collector"),
            endpoint_record: Milestone::new("peer-endpoint-reconciler-controller"),
            first_sync: Milestone::new("mixed-version-proxy-handler"),
            local_document: Milestone::new("local-discovery-cache-sync"),
            discovery_fetch: Milestone::new("peer-discovery-workers"),
        }
    }

    /// All milestones in the order of `/readyz?verbose`.
    pub fn all(&self) -> [&Milestone; 6] {
        let Self { identity_lease, lease_cleanup, endpoint_record, first_sync, local_document, discovery_fetch } = self;
        [identity_lease, lease_cleanup, endpoint_record, first_sync, local_document, discovery_fetch]
    }
}

/// Lines for `/readyz?verbose` about problems that do not affect readiness.
pub fn readiness_details(view: &View) -> Vec<String> {
    let disabled = (view.peering() == Peering::Disabled)
        .then(|| "peering is disabled: this server neither asks nor forwards to the others".to_owned());
    let members = view.members().iter().filter_map(|member| {
        let why = match member.state {
            MemberState::Live if member.may_serve_more() => "has restarted and was not heard since",
            MemberState::Live | MemberState::Gone => return None,
            MemberState::Suspect => "has stopped renewing its endpoint record",
            MemberState::Left => "has left",
            MemberState::Unknown => "has not said yet what it serves",
            MemberState::Mute => "does not say what it serves",
        };
        Some(format!("{} is {}: it {why}", member.server, member.state))
    });
    disabled.into_iter().chain(members).collect()
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::testing::{view_from_notation, view_inputs_from_notation};

    #[tokio::test]
    async fn milestone_is_shared_between_clones() {
        let milestone = Milestone::new("mixed-version-proxy-handler");
        assert_eq!(milestone.check_name(), "poststarthook/mixed-version-proxy-handler");
        assert_eq!(milestone.check(), Err("not finished"));
        let other = milestone.clone();
        other.mark_reached();
        milestone.wait_until_reached().await;
        assert_eq!(milestone.check(), Ok(()));
    }

    #[test]
    fn milestone_checks_have_names_of_kube_apiserver_hooks() {
        let milestones = Milestones::new();
        let names: Vec<_> = milestones.all().map(Milestone::check_name).into();
        expect![[r#"
            poststarthook/start-kube-apiserver-identity-lease-controller
            poststarthook/start-kube-apiserver-identity-lease-garbage-collector
            poststarthook/peer-endpoint-reconciler-controller
            poststarthook/mixed-version-proxy-handler
            poststarthook/local-discovery-cache-sync
            poststarthook/peer-discovery-workers"#]]
        .assert_eq(&names.join("\n"));
    }

    #[test]
    fn readiness_details_name_members_that_are_not_live() {
        let cluster =
            "a live: v1 xs:get; b live former: v1 xs:get; c suspect: v1 xs:get; d left: v1 xs:get; e unknown; f mute";
        expect![[r#"
            apiserver-b is live: it has restarted and was not heard since
            apiserver-c is suspect: it has stopped renewing its endpoint record
            apiserver-d is left: it has left
            apiserver-e is unknown: it has not said yet what it serves
            apiserver-f is mute: it does not say what it serves"#]]
        .assert_eq(&readiness_details(&view_from_notation(cluster)).join("\n"));
        let mut inputs = view_inputs_from_notation("a live: v1 xs:get");
        inputs.peering = Peering::Disabled;
        expect![[r#"
            peering is disabled: this server neither asks nor forwards to the others
            apiserver-a is mute: it does not say what it serves"#]]
        .assert_eq(&readiness_details(&View::new(inputs, None)).join("\n"));
    }
}

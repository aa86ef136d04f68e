//! ResourceQuota: charges the quotas of a namespace in the transaction that writes the object.
//!
//! All else is decided before. The store computes the charge from the quotas as the transactions before leave them, so
//! that many writes under one quota share a commit. A server remembers the quotas as it charged them: the next write need
//! not wait for the cache. What exists under a quota that another writer changed is counted first, in a cache that has
//! reached the quota's revision.
//!
//! A server may not have seen a new quota yet. So the write of a quota's spec also writes the
//! namespace, unchanged: every create compares the revision of its namespace, and is decided again with the quota.

mod ledger;

use std::sync::Arc;
use std::time::Duration;

use ::admission::quota::{self, QuotaState};
use ::admission::{Operation, Refusal};
use api::json::JsonObject;
use api::{GroupResource, GroupVersionResource, Status};
use object::StoredObject;
use parking_lot::Mutex;
use registry::{CachedValue, CompanionResource, CompanionWrite, ComputedWrites, WriteDecision};
use store::{Key, KeyState, Revision};

use self::ledger::{ChargeOutcome, ComputedCharge, QuotaCheck, Uncharged};
use super::RequestContext;
use super::companions::FoundCompanion;
use crate::object_codec;
use crate::resource::Resource;

pub(crate) use self::ledger::QuotaLedger;

const QUOTAS: GroupVersionResource<&str> =
    GroupVersionResource { group: "", version: "v1", resource: "resourcequotas" };
const NAMESPACES: GroupVersionResource<&str> =
    GroupVersionResource { group: "", version: "v1", resource: "namespaces" };
/// How long a write waits for the cache to reach the revision of a quota.
const CACHE_WAIT_MAX: Duration = Duration::from_secs(5);

/// The charges of a request.
#[derive(Debug, Default)]
pub(super) struct QuotaCharges {
    state: Mutex<ChargeState>,
}

#[derive(Debug, Default)]
struct ChargeState {
    /// What is to be charged for the decision that is being made.
    pending: Option<QuotaCheck>,
    /// The charge that the transaction of the decision computes.
    computed: Option<Arc<ComputedCharge>>,
    /// True once a refusal counts, because what exists was counted in a cache that had caught up with the store.
    is_view_current: bool,
}

impl QuotaCharges {
    pub(super) fn begin_decision(&self) {
        let mut state = self.state.lock();
        state.pending = None;
        state.computed = None;
    }
}

impl RequestContext<'_> {
    /// The charge that the transaction of a decision computes.
    pub(super) fn computed_charge(self, decision: &WriteDecision) -> Option<ComputedWrites> {
        let mut state = self.execution.quota.state.lock();
        let check = state.pending.take().filter(|_| matches!(decision, WriteDecision::Put { .. }))?;
        let resource = companion_resource(&check.quotas);
        let keys = entries(&check.quotas, self.namespace()).into_iter().map(|(key, _)| key).collect();
        let namespace = self.server.quota_ledger.of(self.namespace());
        let charge = Arc::new(ComputedCharge { check, namespace, keys, outcome: Mutex::default() });
        state.computed = Some(charge.clone());
        Some(ComputedWrites { values: charge, resource })
    }

    /// Prepares another attempt of a write whose charge was not computed. The Status of a refusal that counts.
    pub(super) async fn resolve_uncharged(self) -> Result<(), Status> {
        let uncomputed = || Status::internal_error("the charge of a quota could not be computed");
        let charge = self.execution.quota.state.lock().computed.take().ok_or_else(uncomputed)?;
        let outcome = charge.outcome.lock().take();
        let Some(ChargeOutcome { result: Err(uncharged), elapsed }) = outcome else { return Err(uncomputed()) };
        let refusal = match uncharged {
            Uncharged::Unknown(quotas) => return self.learn_quotas(&charge, quotas).await,
            Uncharged::Failed(status) => return Err(status),
            Uncharged::Refused(refusal) => refusal,
        };
        if !std::mem::replace(&mut self.execution.quota.state.lock().is_view_current, true) {
            return self.catch_up_for_quotas().await;
        }
        self.server.admission.observe_plugin("ResourceQuota", charge.check.operation, true, elapsed);
        Err(self.quota_refusal(refusal, &charge.check.new))
    }

    /// Observes the charge of a request that ends.
    pub(super) fn end_charges(self, is_put: bool) {
        if let (Some(charge), true) = (self.execution.quota.state.lock().computed.take(), is_put)
            && let Some(ChargeOutcome { elapsed, .. }) = charge.outcome.lock().take()
        {
            self.server.admission.observe_plugin("ResourceQuota", charge.check.operation, false, elapsed);
        }
    }

    async fn wait_for_cache(self, revision: Revision) -> Result<(), Status> {
        match self.server.registry.cache().wait_for_revision(revision, CACHE_WAIT_MAX).await {
            Ok(true) => Ok(()),
            Ok(false) | Err(_) => Err(behind()),
        }
    }

    async fn catch_up_for_quotas(self) -> Result<(), Status> {
        match self.server.registry.catch_up_with_store().await {
            Ok(true) => Ok(()),
            Ok(false) | Err(_) => Err(behind()),
        }
    }

    /// Prepares the charge of a write that quotas may cover. A dry run is checked at once, and charges nothing.
    pub(super) fn prepare_charge(
        self,
        operation: Operation,
        new: &JsonObject,
        old: Option<&JsonObject>,
        is_dry_run: bool,
    ) -> Result<(), Status> {
        let (server, target) = (self.server, self.target);
        let is_written = matches!(operation, Operation::Create | Operation::Update);
        if !server.admission.has_quota()
            || !is_written
            || self.namespace().is_empty()
            || target.resource == "namespaces"
        {
            return Ok(());
        }
        if !is_dry_run {
            self.announce_quota(new, old)?;
        }
        let gates = &server.feature_gates;
        let evaluator = quota::Evaluator::of(&target.group, &target.resource, gates);
        if !evaluator.is_some_and(|it| it.handles(operation, &target.subresource, new, old, gates)) {
            return Ok(());
        }
        let Some(quotas) = server.resolve(QUOTAS) else { return Ok(()) };
        if !has_entries(&quotas, self.namespace()) && server.admission.limited_resources().is_empty() {
            return Ok(());
        }
        let check = QuotaCheck {
            operation,
            resource: GroupResource { group: (*target.group).into(), resource: (*target.resource).into() },
            subresource: target.subresource.to_string(),
            new: new.clone(),
            old: old.cloned(),
            gates: gates.clone(),
            limited: server.admission.limited_resources().to_vec(),
            quotas,
        };
        if !is_dry_run {
            self.execution.quota.state.lock().pending = Some(check);
            return Ok(());
        }
        // A dry run counts in a current view only: see `AdmissionSession::run`.
        self.check_cached(&check)
    }

    /// Checks a create whose name is taken: like kube-apiserver, quotas refuse it first. The refusal counts in a current
    /// view.
    pub(super) fn check_quotas_of_taken_name(self) -> Result<(), Status> {
        let Some(check) = self.execution.quota.state.lock().pending.take() else { return Ok(()) };
        self.check_cached(&check).inspect_err(|status| self.admission.record_refusal(&status.message))
    }

    /// Checks a write against the quotas of its namespace and what exists, both as in the cache.
    fn check_cached(self, check: &QuotaCheck) -> Result<(), Status> {
        let namespace = self.server.quota_ledger.of(self.namespace());
        let mut quotas = Vec::new();
        for (key, stored) in entries(&check.quotas, self.namespace()) {
            let known = namespace.0.lock().get(&key).and_then(|quota| quota.cached(&stored, &check.resource));
            quotas.push(match known {
                Some(known) => known,
                None => {
                    let quota = object_codec::decode_served(&stored, &check.quotas)?;
                    let existing = self.count_existing(check, &quota)?;
                    QuotaState { quota, existing }
                }
            });
        }
        check.charge(&quotas).map(drop).map_err(|refusal| self.quota_refusal(refusal, &check.new))
    }

    /// Learns quotas as the store has them, and counts what exists of the resource.
    async fn learn_quotas(self, charge: &ComputedCharge, quotas: Vec<(Key, KeyState)>) -> Result<(), Status> {
        // Objects may be in the cache a moment later than a quota that another writer charged with them.
        let newest = quotas.iter().map(|(_, state)| state.since).max().unwrap_or_default();
        self.wait_for_cache(newest).await?;
        charge.namespace.forget_except(&charge.keys);
        for (key, state) in quotas {
            let stored = StoredObject::from_storage(&state.value, state.since.0);
            let stored = stored.map_err(|error| Status::internal_error(format!("a quota cannot be read: {error}")))?;
            let quota = object_codec::decode_served(&stored, &charge.check.quotas)?;
            let counted = self.count_existing(&charge.check, &quota)?;
            charge.namespace.learn(&key, &state, quota, &charge.check.resource, counted.as_ref());
        }
        Ok(())
    }

    /// Writes the namespace together with the spec of a quota, so that creates which were decided without it conflict.
    fn announce_quota(self, new: &JsonObject, old: Option<&JsonObject>) -> Result<(), Status> {
        let target = self.target;
        let is_quota = target.group.is_empty() && target.resource == QUOTAS.resource && target.subresource.is_empty();
        if !is_quota || old.is_some_and(|old| old.get("spec") == new.get("spec")) {
            return Ok(());
        }
        let Some(namespaces) = self.server.resolve(NAMESPACES) else { return Ok(()) };
        let key = Key::from([namespaces.cache.prefix().as_ref(), self.namespace().as_bytes()].concat());
        let companions = &self.execution.companions;
        let Some(FoundCompanion { entry, .. }) = companions.found(&key) else {
            companions.request(key);
            return Err(Status::service_unavailable("the namespace was not read").with_retry_after(1));
        };
        let missing = || Status::not_found(NAMESPACES.group_resource(), self.namespace());
        let entry = entry.ok_or_else(missing)?;
        let decision = WriteDecision::Put { value: entry.value, ttl: None };
        let resource = Some(companion_resource(&namespaces));
        companions.add(CompanionWrite { key, expected_revision: Some(entry.revision), decision, resource });
        Ok(())
    }

    fn quota_refusal(self, refusal: Refusal, new: &JsonObject) -> Status {
        match refusal {
            Refusal::Status(status) => *status,
            Refusal::Forbidden(text) => {
                let name = match &*self.target.name {
                    "" => object::unstructured::metadata_string(new, "name"),
                    name => name,
                };
                Status::forbidden(self.target.group_resource(), name, text)
            }
        }
    }

    /// What the objects of the resource in the cache use of a quota; `None` if the quota does not limit it.
    fn count_existing(self, check: &QuotaCheck, quota: &JsonObject) -> Result<Option<quota::ResourceList>, Status> {
        let Some(evaluator) = check.evaluator() else { return Ok(None) };
        if evaluator.matching(&quota::limits(quota)).is_empty() {
            return Ok(None);
        }
        let resource: &Resource = self.resource;
        let stored = entries(resource, self.namespace());
        if evaluator.only_counts() {
            return Ok(Some(quota::count(&evaluator, quota, stored.len())));
        }
        let decoded = stored.iter().map(|(_, stored)| object_codec::decode_served(stored, resource));
        let objects = decoded.collect::<Result<Vec<_>, _>>()?;
        Ok(Some(quota::measure(&evaluator, quota, &objects, &check.gates, super::current_time())))
    }
}

fn companion_resource(resource: &Resource) -> CompanionResource {
    let name = resource.storage_name();
    let name = api::GroupResource { group: name.group.into(), resource: name.resource.into() };
    CompanionResource { name, prefix: resource.cache.prefix().clone() }
}

fn behind() -> Status {
    Status::service_unavailable("the objects that quotas count have not caught up with storage").with_retry_after(1)
}

fn has_entries(resource: &Resource, namespace: &str) -> bool {
    let prefix = [resource.cache.prefix().as_ref(), namespace.as_bytes(), b"/"].concat();
    let snapshot = resource.cache.snapshot();
    let first = snapshot.entries.range(Key::from(prefix.clone())..).next();
    first.is_some_and(|(key, _)| key.starts_with(&prefix))
}

/// The objects of a namespace in the cache.
fn entries(resource: &Resource, namespace: &str) -> Vec<(Key, StoredObject)> {
    let prefix = [resource.cache.prefix().as_ref(), namespace.as_bytes(), b"/"].concat();
    let snapshot = resource.cache.snapshot();
    let within = snapshot.entries.range(Key::from(prefix.clone())..).take_while(|(key, _)| key.starts_with(&prefix));
    within
        .filter_map(|(key, cached)| match &cached.value {
            CachedValue::Object(stored) => Some((key.clone(), stored.clone())),
            CachedValue::Raw(_) | CachedValue::Undecodable(_) => None,
        })
        .collect()
}

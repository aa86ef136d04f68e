//! ResourceQuota: charges the quotas of a namespace in the transaction that writes the object.
//!
//! A store that computes operations charges the quota as the transaction before left it, so that many writes share a commit.
//! Otherwise writes that quotas of one namespace cover take turns on a server, from the check to the commit. In both ways
//! all else is decided before, and a server remembers the quotas as it charged them: the next write need not wait for the
//! cache. A quota that another writer changed is compared with what exists, in a cache that has reached the quota's
//! revision.
//!
//! A server may not have seen a new quota yet. So the write of a quota's spec also writes the
//! namespace, unchanged: every create compares the revision of its namespace, and is decided again with the quota.

mod ledger;

use std::sync::Arc;
use std::time::{Duration, Instant};

use ::admission::quota;
use ::admission::{Operation, Refusal};
use api::json::JsonObject;
use api::{GroupResource, GroupVersionResource, Status};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use object::StoredObject;
use parking_lot::Mutex;
use registry::{
    CachedValue, CompanionResource, CompanionWrite, ComputedWrites, DecidedWrite, WriteCompletion, WriteDecision,
};
use store::{Key, Revision};
use tokio::sync::OwnedMutexGuard;

use self::ledger::{Charge, ChargeOutcome, ComputedCharge, KnownQuota, QuotaCheck, Uncharged};
use super::RequestContext;
use super::companions::FoundCompanion;
use crate::object_codec;
use crate::resource::Resource;

pub(crate) use self::ledger::QuotaLedger;

const QUOTAS: GroupVersionResource<&str> =
    GroupVersionResource { group: "", version: "v1", resource: "resourcequotas" };
const NAMESPACES: GroupVersionResource<&str> =
    GroupVersionResource { group: "", version: "v1", resource: "namespaces" };
/// How long a decision waits for the cache to reach the revision of a quota.
const CACHE_WAIT_MAX: Duration = Duration::from_secs(5);
/// How often a write is checked in a turn: once on what this server knows, then after waits for the cache.
const CHECKS_MAX: usize = 16;

/// The charges of a request.
#[derive(Debug, Default)]
pub(super) struct QuotaCharges {
    state: Mutex<ChargeState>,
}

#[derive(Debug, Default)]
struct ChargeState {
    /// Held from the check to the commit.
    turn: Option<OwnedMutexGuard<()>>,
    /// What is to be charged for the decision that is being made.
    pending: Option<QuotaCheck>,
    /// The charges of the decision that is being made in a turn.
    charged: Option<(QuotaCheck, Vec<Charge>)>,
    /// The charge that the transaction of the decision computes.
    computed: Option<Arc<ComputedCharge>>,
    /// True once a refusal counts, because what exists was counted in a cache that had caught up with the store.
    is_view_current: bool,
}

impl QuotaCharges {
    pub(super) fn begin_decision(&self) {
        let mut state = self.state.lock();
        state.charged = None;
        state.pending = None;
        state.computed = None;
    }

    /// Ends the turn of a request that did not write.
    pub(super) fn end_turn(&self) {
        let mut state = self.state.lock();
        state.charged = None;
        state.turn = None;
    }
}

impl WriteCompletion<Status> for RequestContext<'_> {
    fn complete<'a>(&'a self, decided: &'a mut DecidedWrite) -> Option<BoxFuture<'a, Result<(), Status>>> {
        let check = self.execution.quota.state.lock().pending.take()?;
        if !matches!(decided.decision, WriteDecision::Put { .. }) {
            return None;
        }
        if !self.server.registry.computes_writes() {
            return Some(self.charge_in_turn(check, &mut decided.companions).boxed());
        }
        let prepared = self.prepare_computed(check);
        prepared.err().map(|status| std::future::ready(Err(status)).boxed())
    }

    fn computed(&self) -> Option<ComputedWrites> {
        let ops = self.execution.quota.state.lock().computed.clone()?;
        let resource = companion_resource(&ops.check.quotas);
        Some(ComputedWrites { ops, resource })
    }

    fn is_write_repeated(&self) -> bool {
        self.admission.has_pending_calls()
    }
}

impl RequestContext<'_> {
    fn prepare_computed(self, check: QuotaCheck) -> Result<(), Status> {
        let keys = self.learn_quotas(&check)?;
        let namespace = self.server.quota_ledger.of(self.namespace());
        let computed = ComputedCharge { check, namespace, keys, outcome: Mutex::default() };
        self.execution.quota.state.lock().computed = Some(Arc::new(computed));
        Ok(())
    }

    /// Prepares another attempt of a write whose charge was not computed. The Status of a refusal that counts.
    pub(super) async fn resolve_uncharged(self) -> Result<(), Status> {
        let uncomputed = || Status::internal_error("the charge of a quota could not be computed");
        let charge = self.execution.quota.state.lock().computed.take().ok_or_else(uncomputed)?;
        let outcome = charge.outcome.lock().take();
        let Some(ChargeOutcome { result: Err(uncharged), elapsed }) = outcome else { return Err(uncomputed()) };
        let refusal = match uncharged {
            Uncharged::Behind(revision) => return self.wait_for_cache(revision).await,
            Uncharged::Failed(status) => return Err(status),
            Uncharged::Refused(refusal) => refusal,
        };
        if !std::mem::replace(&mut self.execution.quota.state.lock().is_view_current, true) {
            return self.catch_up_for_quotas().await;
        }
        self.server.admission.observe_plugin("ResourceQuota", charge.check.operation, true, elapsed);
        Err(self.quota_refusal(refusal, &charge.check.new))
    }

    /// Ends the turn of a request that wrote, or did not. The next one decides on what this one wrote.
    pub(super) fn end_charges(self, put_at: Option<Revision>) {
        let mut state = self.execution.quota.state.lock();
        if let (Some((check, charges)), Some(revision)) = (state.charged.take(), put_at) {
            self.server.quota_ledger.of(self.namespace()).known.lock().record(&charges, &check.resource, revision);
        }
        state.turn = None;
        if let (Some(charge), Some(_)) = (state.computed.take(), put_at)
            && let Some(ChargeOutcome { elapsed, .. }) = charge.outcome.lock().take()
        {
            self.server.admission.observe_plugin("ResourceQuota", charge.check.operation, false, elapsed);
        }
    }

    async fn take_turn(self) -> Result<(), Status> {
        if self.execution.quota.state.lock().turn.is_some() {
            return Ok(());
        }
        let turn = self.server.quota_ledger.of(self.namespace()).turn.clone().lock_owned();
        let turn = tokio::time::timeout_at(self.deadline, turn).await;
        let turn = turn.map_err(|_| Status::internal_error("resource quota evaluation timed out"))?;
        self.execution.quota.state.lock().turn = Some(turn);
        Ok(())
    }

    /// Takes a turn, checks the write and adds the charged quotas to its transaction.
    async fn charge_in_turn(self, check: QuotaCheck, companions: &mut Vec<CompanionWrite>) -> Result<(), Status> {
        let mut is_current = false;
        for _ in 0..CHECKS_MAX {
            self.take_turn().await?;
            let started = Instant::now();
            match self.charge_known(&check) {
                Ok(charges) => {
                    self.observe_quota(check.operation, false, started);
                    companions.extend(charges.iter().map(|charge| companion_write(charge, &check.quotas)));
                    self.execution.quota.state.lock().charged = Some((check, charges));
                    return Ok(());
                }
                Err(Uncharged::Behind(revision)) => self.wait_for_cache(revision).await?,
                Err(Uncharged::Refused(_)) if !is_current => {
                    self.execution.quota.end_turn();
                    self.catch_up_for_quotas().await?;
                    is_current = true;
                }
                Err(Uncharged::Refused(refusal)) => {
                    self.observe_quota(check.operation, true, started);
                    self.execution.quota.end_turn();
                    return Err(self.quota_refusal(refusal, &check.new));
                }
                Err(Uncharged::Failed(status)) => {
                    self.execution.quota.end_turn();
                    return Err(status);
                }
            }
        }
        Err(Status::service_unavailable("the quota of the namespace was changed in every attempt").with_retry_after(1))
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
        match self.charge_known(&check) {
            Ok(_) => Ok(()),
            // A dry run counts in a current view only: see `AdmissionSession::run`.
            Err(Uncharged::Behind(_)) => Err(behind()),
            Err(Uncharged::Refused(refusal)) => Err(self.quota_refusal(refusal, new)),
            Err(Uncharged::Failed(status)) => Err(status),
        }
    }

    /// Checks a create whose name is taken: like kube-apiserver, quotas refuse it first. The refusal counts in a current
    /// view.
    pub(super) fn check_quotas_of_taken_name(self) -> Result<(), Status> {
        let Some(check) = self.execution.quota.state.lock().pending.take() else { return Ok(()) };
        let status = match self.charge_known(&check) {
            Ok(_) | Err(Uncharged::Behind(_)) => return Ok(()),
            Err(Uncharged::Refused(refusal)) => self.quota_refusal(refusal, &check.new),
            Err(Uncharged::Failed(status)) => status,
        };
        self.admission.record_refusal(&status.message);
        Err(status)
    }

    /// Checks a write against the quotas of its namespace as this server knows them.
    fn charge_known(self, check: &QuotaCheck) -> Result<Vec<Charge>, Uncharged> {
        let keys = self.learn_quotas(check).map_err(Uncharged::Failed)?;
        let namespace = self.server.quota_ledger.of(self.namespace());
        check.charge(keys.iter(), &namespace.known.lock())
    }

    /// Learns what the cache knows of the quotas of the namespace, and counts what exists of the resource unless the
    /// charges of this server include it. Returns the keys of the quotas.
    fn learn_quotas(self, check: &QuotaCheck) -> Result<Vec<Key>, Status> {
        let namespace = self.server.quota_ledger.of(self.namespace());
        let mut keys = Vec::new();
        for (key, stored) in entries(&check.quotas, self.namespace()) {
            let revision = Revision(stored.revision);
            let (since, uncounted) = {
                let mut known = namespace.known.lock();
                if known.0.get(&key).is_none_or(|known| known.revision < revision) {
                    let quota = object_codec::decode_served(&stored, &check.quotas)?;
                    known.0.insert(key.clone(), KnownQuota::of_other_writer(quota, revision));
                }
                let known = &known.0[&key];
                (known.since, (!known.is_charged(&check.resource)).then(|| known.quota.clone()))
            };
            // Objects may be in the cache a moment later than a quota that another writer charged with them.
            if let Some(quota) = uncounted
                && self.server.registry.cache().applied_revision() >= since
                && let Some(counted) = self.count_existing(check, &quota)?
                && let Some(known) = namespace.known.lock().0.get_mut(&key).filter(|known| known.since == since)
            {
                known.set_counted(&check.resource, counted);
            }
            keys.push(key);
        }
        Ok(keys)
    }

    fn observe_quota(self, operation: Operation, is_refused: bool, started: Instant) {
        self.server.admission.observe_plugin("ResourceQuota", operation, is_refused, started.elapsed());
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

fn companion_write(charge: &Charge, quotas: &Resource) -> CompanionWrite {
    CompanionWrite {
        key: charge.key.clone(),
        expected_revision: Some(charge.expected_revision),
        decision: WriteDecision::Put { value: charge.value.clone(), ttl: None },
        resource: Some(companion_resource(quotas)),
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

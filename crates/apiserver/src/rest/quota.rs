//! ResourceQuota: charges the quotas of a namespace in the transaction that writes the object.
//!
//! Writes that quotas of one namespace cover take turns on a server, so that they do not race for the quota's key. All
//! else is decided before the turn, which lasts from the check to the commit. A turn remembers what this server wrote
//! last, so that the next write need not wait for the cache. A quota that another writer changed is compared with what
//! exists, in a cache that has reached the quota's revision.
//!
//! A server may not have seen a new quota yet. So the write of a quota's spec also writes the
//! namespace, unchanged: every create compares the revision of its namespace, and is decided again with the quota.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::admission::Operation;
use ::admission::quota::{self, Evaluator, QuotaState, QuotaWrite};
use api::json::JsonObject;
use api::{GroupVersionResource, Status};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use object::StoredObject;
use parking_lot::Mutex;
use registry::{CachedValue, CompanionResource, CompanionWrite, DecidedWrite, WriteCompletion, WriteDecision};
use store::{Key, Revision};
use tokio::sync::OwnedMutexGuard;

use super::RequestContext;
use super::companions::FoundCompanion;
use crate::object_codec;
use crate::resource::Resource;

const QUOTAS: GroupVersionResource<&str> =
    GroupVersionResource { group: "", version: "v1", resource: "resourcequotas" };
const NAMESPACES: GroupVersionResource<&str> =
    GroupVersionResource { group: "", version: "v1", resource: "namespaces" };
/// Namespaces whose turns are kept; those that no request uses are dropped above this.
const NAMESPACES_MAX: usize = 1024;
/// How long a decision waits for the cache to reach the revision of a quota.
const CACHE_WAIT_MAX: Duration = Duration::from_secs(5);
/// How often a write is checked: once on what this server knows, then after waits for the cache.
const CHECKS_MAX: usize = 16;

/// The turns of all namespaces of this server.
#[derive(Debug, Default)]
pub(crate) struct QuotaTurns(Mutex<HashMap<String, Arc<tokio::sync::Mutex<OwnQuotas>>>>);

/// The quotas of a namespace as this server wrote them last.
type OwnQuotas = HashMap<Key, OwnQuota>;

/// A quota as this server wrote it last.
#[derive(Clone, Debug)]
struct OwnQuota {
    stored: StoredObject,
    /// Groups and resources whose usage this server has compared with what exists, and has charged in every version of
    /// the quota since then.
    verified: Vec<(String, String)>,
}

/// A quota to decide on.
struct NewestQuota {
    stored: StoredObject,
    /// As in [`OwnQuota`]; empty if another writer wrote the quota.
    verified: Vec<(String, String)>,
}

impl QuotaTurns {
    fn of(&self, namespace: &str) -> Arc<tokio::sync::Mutex<OwnQuotas>> {
        let mut turns = self.0.lock();
        if turns.len() >= NAMESPACES_MAX {
            turns.retain(|_, turn| Arc::strong_count(turn) > 1);
        }
        turns.entry(namespace.to_owned()).or_default().clone()
    }
}

/// What one request has to do with quotas.
#[derive(Debug, Default)]
pub(super) struct QuotaCharges {
    state: Mutex<ChargeState>,
}

#[derive(Debug, Default)]
struct ChargeState {
    turn: Option<OwnedMutexGuard<OwnQuotas>>,
    /// What is to be charged for the decision that is being made.
    pending: Option<PendingCharge>,
    /// The charges of the decision that is being made.
    charged: Vec<Charge>,
}

/// A write that quotas may cover, decided but for them.
#[derive(Clone, Debug)]
struct PendingCharge {
    operation: Operation,
    new: JsonObject,
    old: Option<JsonObject>,
}

/// A charged quota of a decision.
#[derive(Clone, Debug)]
struct Charge {
    key: Key,
    value: bytes::Bytes,
    verified: Vec<(String, String)>,
}

/// Why a check of quotas has no result.
enum Unchecked {
    /// The cache must reach the revision of a quota first.
    Behind(Revision),
    /// `true`: the refusal counts only in a view that has caught up with the store.
    Refused(Status, bool),
}

impl From<Status> for Unchecked {
    fn from(status: Status) -> Self {
        Self::Refused(status, false)
    }
}

impl QuotaCharges {
    pub(super) fn begin_decision(&self) {
        let mut state = self.state.lock();
        state.charged.clear();
        state.pending = None;
    }

    /// Ends the turn. After a commit the next request decides on what it wrote.
    pub(super) fn end_turn(&self, committed: Option<Revision>) {
        let mut state = self.state.lock();
        let charged = std::mem::take(&mut state.charged);
        let Some(mut turn) = state.turn.take() else { return };
        let Some(revision) = committed else { return };
        for Charge { key, value, verified } in charged {
            if let Ok(stored) = StoredObject::from_storage(&value, revision.0) {
                turn.insert(key, OwnQuota { stored, verified });
            }
        }
    }
}

impl WriteCompletion<Status> for RequestContext<'_> {
    fn complete<'a>(&'a self, decided: &'a mut DecidedWrite) -> Option<BoxFuture<'a, Result<(), Status>>> {
        let pending = self.execution.quota.state.lock().pending.take()?;
        let is_put = matches!(decided.decision, WriteDecision::Put { .. });
        is_put.then(|| self.charge(pending, &mut decided.companions).boxed())
    }

    fn is_write_repeated(&self) -> bool {
        self.admission.has_pending_calls()
    }
}

impl RequestContext<'_> {
    async fn take_turn(self) -> Result<(), Status> {
        if self.execution.quota.state.lock().turn.is_some() {
            return Ok(());
        }
        let turn = self.server.quota_turns.of(self.namespace()).lock_owned();
        let turn = tokio::time::timeout_at(self.deadline, turn).await;
        let turn = turn.map_err(|_| Status::internal_error("resource quota evaluation timed out"))?;
        self.execution.quota.state.lock().turn = Some(turn);
        Ok(())
    }

    /// Takes a turn, checks the write and adds the charged quotas to its transaction.
    async fn charge(self, pending: PendingCharge, companions: &mut Vec<CompanionWrite>) -> Result<(), Status> {
        let PendingCharge { operation, new, old } = &pending;
        let registry = &self.server.registry;
        let mut is_current = false;
        for _ in 0..CHECKS_MAX {
            self.take_turn().await?;
            let started = Instant::now();
            match self.check_quotas(new, old.as_ref()) {
                Ok(charges) => {
                    self.observe_quota(*operation, false, started);
                    let charged = charges.iter().map(|(charge, _)| charge.clone()).collect();
                    self.execution.quota.state.lock().charged = charged;
                    companions.extend(charges.into_iter().map(|(_, write)| write));
                    return Ok(());
                }
                Err(Unchecked::Behind(revision)) => {
                    if !matches!(registry.cache().wait_for_revision(revision, CACHE_WAIT_MAX).await, Ok(true)) {
                        return Err(behind());
                    }
                }
                Err(Unchecked::Refused(_, true)) if !is_current => {
                    self.execution.quota.end_turn(None);
                    if !matches!(registry.catch_up_with_store().await, Ok(true)) {
                        return Err(behind());
                    }
                    is_current = true;
                }
                Err(Unchecked::Refused(status, _)) => {
                    self.observe_quota(*operation, true, started);
                    self.execution.quota.end_turn(None);
                    return Err(status);
                }
            }
        }
        Err(Status::service_unavailable("the quota of the namespace was changed in every attempt").with_retry_after(1))
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
        let Some(evaluator) = Evaluator::of(&target.group, &target.resource, gates) else { return Ok(()) };
        if !evaluator.handles(operation, &target.subresource, new, old, gates) {
            return Ok(());
        }
        let Some(quotas) = server.resolve(QUOTAS) else { return Ok(()) };
        if !has_entries(&quotas, self.namespace()) && server.admission.limited_resources().is_empty() {
            return Ok(());
        }
        if !is_dry_run {
            let pending = PendingCharge { operation, new: new.clone(), old: old.cloned() };
            self.execution.quota.state.lock().pending = Some(pending);
            return Ok(());
        }
        match self.check_quotas(new, old) {
            Ok(_) => Ok(()),
            // A dry run counts in a current view only: see `AdmissionSession::run`.
            Err(Unchecked::Behind(_)) => Err(behind()),
            Err(Unchecked::Refused(status, _)) => Err(status),
        }
    }

    /// Checks a create whose name is taken: like kube-apiserver, quotas refuse it first. The refusal counts in a current
    /// view.
    pub(super) fn check_quotas_of_taken_name(self) -> Result<(), Status> {
        let Some(pending) = self.execution.quota.state.lock().pending.take() else { return Ok(()) };
        match self.check_quotas(&pending.new, pending.old.as_ref()) {
            Ok(_) | Err(Unchecked::Behind(_)) => Ok(()),
            Err(Unchecked::Refused(status, _)) => {
                self.admission.record_refusal(&status.message);
                Err(status)
            }
        }
    }

    /// Checks a write against the quotas of its namespace. Returns the charged ones.
    fn check_quotas(
        self,
        new: &JsonObject,
        old: Option<&JsonObject>,
    ) -> Result<Vec<(Charge, CompanionWrite)>, Unchecked> {
        let (server, target) = (self.server, self.target);
        let gates = &server.feature_gates;
        let limited = server.admission.limited_resources();
        let (Some(evaluator), Some(quotas)) =
            (Evaluator::of(&target.group, &target.resource, gates), server.resolve(QUOTAS))
        else {
            return Ok(Vec::new());
        };
        let cached = entries(&quotas, self.namespace());
        let mut found = Vec::with_capacity(cached.len());
        let mut states = Vec::with_capacity(cached.len());
        for (key, stored) in cached {
            let newest = self.newest(&key, stored);
            states.push(self.quota_state(&evaluator, &quotas, &newest)?);
            found.push((key, newest));
        }
        let write = QuotaWrite {
            evaluator: &evaluator,
            resource: (&target.group, &target.resource),
            subresource: &target.subresource,
            new,
            old,
        };
        let charged = quota::check(write, &states, limited, gates)
            .map_err(|refusal| Unchecked::Refused(self.quota_refusal(refusal, new), true))?;
        let mut charges = Vec::new();
        for (((key, newest), state), quota) in found.into_iter().zip(&states).zip(charged) {
            let Some(quota) = quota else { continue };
            let mut verified = newest.verified;
            if state.existing.is_some() {
                verified.push((target.group.to_string(), target.resource.to_string()));
            }
            let value = object_codec::encode_for_storage(quota, &quotas)?;
            let write = CompanionWrite {
                key: key.clone(),
                expected_revision: Some(Revision(newest.stored.revision)),
                decision: WriteDecision::Put { value: value.clone(), ttl: None },
                resource: Some(companion_resource(&quotas)),
            };
            charges.push((Charge { key, value, verified }, write));
        }
        Ok(charges)
    }

    fn observe_quota(self, operation: Operation, is_refused: bool, started: Instant) {
        self.server.admission.observe_plugin("ResourceQuota", operation, is_refused, started.elapsed());
    }

    /// A quota with what exists, unless its status is known to include that.
    fn quota_state(
        self,
        evaluator: &Evaluator<'_>,
        quotas: &Resource,
        newest: &NewestQuota,
    ) -> Result<QuotaState, Unchecked> {
        let target = self.target;
        let quota = object_codec::decode_served(&newest.stored, quotas)?;
        let is_verified =
            newest.verified.iter().any(|(group, name)| *group == target.group && *name == target.resource);
        let existing = match is_verified || evaluator.matching(&quota::limits(&quota)).is_empty() {
            true => None,
            false => Some(self.existing(evaluator, &quota, Revision(newest.stored.revision))?),
        };
        Ok(QuotaState { quota, existing })
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

    fn quota_refusal(self, refusal: ::admission::Refusal, new: &JsonObject) -> Status {
        match refusal {
            ::admission::Refusal::Status(status) => *status,
            ::admission::Refusal::Forbidden(text) => {
                let name = match &*self.target.name {
                    "" => object::unstructured::metadata_string(new, "name"),
                    name => name,
                };
                Status::forbidden(self.target.group_resource(), name, text)
            }
        }
    }

    /// The newest state of a quota that this server knows: of the cache, or as this server wrote it later.
    fn newest(self, key: &Key, cached: StoredObject) -> NewestQuota {
        let state = self.execution.quota.state.lock();
        match state.turn.as_ref().and_then(|turn| turn.get(key)) {
            Some(own) if own.stored.revision >= cached.revision => {
                NewestQuota { stored: own.stored.clone(), verified: own.verified.clone() }
            }
            Some(_) | None => NewestQuota { stored: cached, verified: Vec::new() },
        }
    }

    /// What the objects of the resource use of a quota, in a cache that has reached the quota's revision.
    fn existing(
        self,
        evaluator: &Evaluator<'_>,
        quota: &JsonObject,
        revision: Revision,
    ) -> Result<quota::ResourceList, Unchecked> {
        if self.server.registry.cache().applied_revision() < revision {
            return Err(Unchecked::Behind(revision));
        }
        let resource: &Resource = self.resource;
        let gates = &self.server.feature_gates;
        let stored = entries(resource, self.namespace());
        if evaluator.only_counts() {
            return Ok(quota::count(evaluator, quota, stored.len()));
        }
        let decoded = stored.iter().map(|(_, stored)| object_codec::decode_served(stored, resource));
        let objects = decoded.collect::<Result<Vec<_>, _>>()?;
        Ok(quota::measure(evaluator, quota, &objects, gates, super::current_time()))
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

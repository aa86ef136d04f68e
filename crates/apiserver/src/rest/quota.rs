//! ResourceQuota: charges the quotas of a namespace in the transaction that writes the object.
//!
//! Writes that quotas of one namespace cover take turns on a server, so that they do not race for the quota's key. A
//! turn remembers what this server wrote last, so that the next write need not wait for the cache. A quota that another
//! writer changed is compared with what exists, in a cache that has reached the quota's revision.
//!
//! A server may not have seen a new quota yet. So the write of a quota's spec also writes the
//! namespace, unchanged: every create compares the revision of its namespace, and is decided again with the quota.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use ::admission::Operation;
use ::admission::quota::{self, Evaluator, QuotaState, QuotaWrite};
use api::json::JsonObject;
use api::{GroupVersionResource, Status};
use object::StoredObject;
use parking_lot::Mutex;
use registry::{CachedValue, CompanionResource, CompanionWrite, WriteDecision};
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
    /// The charges of the decision that is being made.
    charged: Vec<Charge>,
    need: Option<Need>,
    /// True once the cache has caught up with the store, so that a refusal counts.
    is_current: bool,
}

/// A charged quota of a decision.
#[derive(Debug)]
struct Charge {
    key: Key,
    value: bytes::Bytes,
    verified: Vec<(String, String)>,
}

/// What a decision ended early for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Need {
    Turn,
    Revision(Revision),
    CurrentView,
}

impl QuotaCharges {
    pub(super) fn begin_decision(&self) {
        let mut state = self.state.lock();
        state.charged.clear();
        state.need = None;
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

    fn require(&self, need: Need) -> Status {
        self.state.lock().need = Some(need);
        Status::service_unavailable("the quota of the namespace was changed in every attempt").with_retry_after(1)
    }
}

impl RequestContext<'_> {
    /// Takes a turn before the first decision of a create that a quota may cover.
    pub(super) async fn take_quota_turn_for_create(self) -> Result<(), Status> {
        let is_create = matches!(self.target.verb, api::Verb::Create) && self.target.subresource.is_empty();
        if !is_create || !self.server.admission.has_quota() || self.namespace().is_empty() {
            return Ok(());
        }
        let Some(quotas) = self.server.resolve(QUOTAS) else { return Ok(()) };
        if quota::is_ignored(&self.target.group, &self.target.resource) || entries(&quotas, self.namespace()).is_empty()
        {
            return Ok(());
        }
        self.take_turn().await
    }

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

    /// Waits for what a decision about quotas needs. False if it needs nothing, so that its outcome counts.
    pub(super) async fn resolve_quota(self) -> Result<bool, Status> {
        let charges = &self.execution.quota;
        let need = charges.state.lock().need.take();
        match need {
            None => return Ok(false),
            Some(Need::Turn) => {}
            Some(Need::Revision(revision)) => {
                if !matches!(self.server.registry.cache().wait_for_revision(revision, CACHE_WAIT_MAX).await, Ok(true)) {
                    return Err(behind());
                }
            }
            Some(Need::CurrentView) => {
                if !matches!(self.server.registry.catch_up_with_store().await, Ok(true)) {
                    return Err(behind());
                }
                charges.state.lock().is_current = true;
            }
        }
        self.take_turn().await?;
        Ok(true)
    }

    /// Checks a write against the quotas of its namespace and adds the charged quotas to its transaction.
    pub(super) fn charge_quota(
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
        let cached = entries(&quotas, self.namespace());
        let limited = server.admission.limited_resources();
        if cached.is_empty() && limited.is_empty() {
            return Ok(());
        }
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
        let charged = match quota::check(write, &states, limited, gates) {
            Ok(charged) => charged,
            Err(_) if !self.execution.quota.state.lock().is_current => {
                return Err(self.execution.quota.require(Need::CurrentView));
            }
            Err(refusal) => return Err(self.quota_refusal(refusal, new)),
        };
        if is_dry_run || charged.iter().all(Option::is_none) {
            return Ok(());
        }
        if self.execution.quota.state.lock().turn.is_none() {
            return Err(self.execution.quota.require(Need::Turn));
        }
        let written = (&*target.group, &*target.resource);
        for (((key, newest), state), quota) in found.into_iter().zip(&states).zip(charged) {
            let Some(quota) = quota else { continue };
            let mut verified = newest.verified;
            if state.existing.is_some() {
                verified.push((written.0.to_owned(), written.1.to_owned()));
            }
            let value = object_codec::encode_for_storage(quota, &quotas)?;
            let charge = Charge { key: key.clone(), value: value.clone(), verified };
            self.execution.quota.state.lock().charged.push(charge);
            let decision = WriteDecision::Put { value, ttl: None };
            let (expected_revision, resource) =
                (Some(Revision(newest.stored.revision)), Some(companion_resource(&quotas)));
            self.execution.companions.add(CompanionWrite { key, expected_revision, decision, resource });
        }
        Ok(())
    }

    /// A quota with what exists, unless its status is known to include that.
    fn quota_state(
        self,
        evaluator: &Evaluator<'_>,
        quotas: &Resource,
        newest: &NewestQuota,
    ) -> Result<QuotaState, Status> {
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
    ) -> Result<quota::ResourceList, Status> {
        if self.server.registry.cache().applied_revision() < revision {
            return Err(self.execution.quota.require(Need::Revision(revision)));
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

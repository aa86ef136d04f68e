//! Addresses and ports of services: allocated and released in the transaction that writes the service.
//!
//! Writes that change a bitmap take turns on a server, so that they do not race for its key. A turn remembers what this
//! server wrote last, so that the next write need not wait for the cache.

use std::time::Duration;

use ::admission::allocation::{AllocationError, ServiceChange};
use api::Status;
use api::json::JsonObject;
use bytes::Bytes;
use object::Rejection;
use object::unstructured::metadata_string;
use parking_lot::Mutex;
use registry::{CompanionWrite, WriteDecision};
use serde_json::Value;
use store::{Key, Revision, StoreEntry};
use tokio::sync::OwnedMutexGuard;

use super::RequestContext;
use super::companions::FoundCompanion;
use crate::allocation::{OwnMaps, ServiceWrite};

/// The part of a request's time that is left for the response after a wait.
const RESPONSE_TIME: Duration = Duration::from_millis(500);

/// What one request has to do with allocations.
#[derive(Debug, Default)]
pub(super) struct AllocationProgress {
    state: Mutex<ProgressState>,
}

#[derive(Debug, Default)]
struct ProgressState {
    turn: Option<OwnedMutexGuard<OwnMaps>>,
    /// The bitmaps that the decision that is being made writes.
    changed_maps: Vec<(Key, Bytes)>,
    /// The keys of all records in its transaction.
    records: Vec<Key>,
    need: Option<Need>,
    /// True once the cache has caught up with the store, so that a refusal counts.
    is_current: bool,
}

/// What a decision ended early for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Need {
    Readiness,
    Turn,
    CurrentView,
}

impl AllocationProgress {
    pub(super) fn begin_decision(&self) {
        let mut state = self.state.lock();
        state.changed_maps.clear();
        state.records.clear();
        state.need = None;
    }

    /// Ends the turn. After a commit the next request decides on the bitmaps that it wrote.
    pub(super) fn end_turn(&self, committed: Option<Revision>) {
        let mut state = self.state.lock();
        let changed = std::mem::take(&mut state.changed_maps);
        state.is_current = false;
        let Some(mut turn) = state.turn.take() else { return };
        let Some(revision) = committed else { return };
        for (key, value) in changed {
            let entry = StoreEntry { key: key.clone(), value, revision };
            turn.insert(key, FoundCompanion { entry: Some(entry), as_of: revision });
        }
    }

    fn require(&self, need: Need) -> Status {
        self.state.lock().need = Some(need);
        Status::service_unavailable("the allocations of services changed in every attempt").with_retry_after(1)
    }
}

impl RequestContext<'_> {
    /// Takes a turn before the first decision of a create, if it will change a bitmap.
    pub(super) async fn take_allocation_turn_for_create(self) -> Result<(), Status> {
        let is_create = matches!(self.target.verb, api::Verb::Create) && self.target.subresource.is_empty();
        match is_create && self.allocates() && self.server.allocation.has_address_maps() {
            true => self.take_allocation_turn().await,
            false => Ok(()),
        }
    }

    async fn take_allocation_turn(self) -> Result<(), Status> {
        let progress = &self.execution.allocation;
        if progress.state.lock().turn.is_some() {
            return Ok(());
        }
        let turn = tokio::time::timeout_at(self.deadline, self.server.allocation.turn.clone().lock_owned()).await;
        let turn = turn.map_err(|_| Status::internal_error("the allocation of a service timed out"))?;
        progress.state.lock().turn = Some(turn);
        Ok(())
    }

    /// Waits for what a decision about allocations needs. False if it needs nothing, so that its outcome counts.
    pub(super) async fn resolve_allocation(self) -> Result<bool, Status> {
        let progress = &self.execution.allocation;
        let need = progress.state.lock().need.take();
        match need {
            None => return Ok(false),
            Some(Need::Turn) => self.take_allocation_turn().await?,
            Some(Need::Readiness) => {
                let limit = self.deadline.checked_sub(RESPONSE_TIME).unwrap_or(self.deadline);
                if tokio::time::timeout_at(limit, self.server.allocation.wait_until_ready()).await.is_err() {
                    let waiting = "the addresses of existing services are not recorded yet";
                    return Err(Status::service_unavailable(waiting).with_retry_after(1));
                }
            }
            Some(Need::CurrentView) => {
                if !matches!(self.server.registry.catch_up_with_store().await, Ok(true)) {
                    let behind = "the allocations of services have not caught up with storage";
                    return Err(Status::service_unavailable(behind).with_retry_after(1));
                }
                progress.state.lock().is_current = true;
            }
        }
        Ok(true)
    }

    fn allocates(self) -> bool {
        self.resource.strategy().allocates_addresses
    }

    /// Allocates for a new or changed service, and adds the records to its transaction.
    pub(super) fn allocate(
        self,
        old: Option<&JsonObject>,
        new: &mut JsonObject,
        random: u64,
        is_dry_run: bool,
    ) -> Result<(), Status> {
        if !self.allocates() || !self.target.subresource.is_empty() {
            return Ok(());
        }
        if !is_dry_run && !self.server.allocation.is_ready() {
            return Err(self.execution.allocation.require(Need::Readiness));
        }
        let name = metadata_string(new, "name").to_owned();
        let Some(spec) = new.get_mut("spec").and_then(Value::as_object_mut) else { return Ok(()) };
        let change = match old.and_then(|old| old.get("spec")).and_then(Value::as_object) {
            None => ServiceChange::Create(spec),
            Some(old) => ServiceChange::Update(old, spec),
        };
        self.decide_allocation(ServiceWrite { namespace: self.namespace(), name: &name, change, random, is_dry_run })
    }

    /// Releases what a service holds that is removed, in the transaction that removes it. What an update would have
    /// changed instead is withdrawn.
    pub(super) fn release_allocations(self, object: &JsonObject) -> Result<(), Status> {
        let Some(spec) = object.get("spec").and_then(Value::as_object).filter(|_| self.allocates()) else {
            return Ok(());
        };
        let name = metadata_string(object, "name");
        let change = ServiceChange::Remove(spec);
        let namespace = metadata_string(object, "namespace");
        self.decide_allocation(ServiceWrite { namespace, name, change, random: 0, is_dry_run: false })
    }

    fn decide_allocation(self, write: ServiceWrite<'_>) -> Result<(), Status> {
        let progress = &self.execution.allocation;
        let name = write.name;
        let newer = |key: &Key| {
            let own = progress.state.lock().turn.as_ref().and_then(|turn| turn.get(key).cloned());
            let found = self.execution.companions.found(key);
            own.into_iter().chain(found).max_by_key(|state| state.as_of)
        };
        let writes = match self.server.allocation.decide(write, &newer) {
            Ok(writes) => writes,
            Err(_) if !progress.state.lock().is_current => return Err(progress.require(Need::CurrentView)),
            Err(AllocationError::Internal(error)) => return Err(Status::internal_error(error)),
            Err(AllocationError::Invalid(errors)) => {
                return Rejection::ensure_no_errors(errors).map_err(|rejection| self.rejection_status(rejection, name));
            }
        };
        let changed_maps: Vec<_> = writes.iter().filter_map(changed_map).collect();
        if !changed_maps.is_empty() && progress.state.lock().turn.is_none() {
            return Err(progress.require(Need::Turn));
        }
        let mut state = progress.state.lock();
        self.execution.companions.withdraw(&state.records);
        state.records = writes.iter().map(|write| write.key.clone()).collect();
        state.changed_maps = changed_maps;
        drop(state);
        writes.into_iter().for_each(|write| self.execution.companions.add(write));
        Ok(())
    }
}

/// A write to a bitmap: unlike an IPAddress it is no object of a resource.
fn changed_map(write: &CompanionWrite) -> Option<(Key, Bytes)> {
    match (&write.resource, &write.decision) {
        (None, WriteDecision::Put { value, .. }) => Some((write.key.clone(), value.clone())),
        _ => None,
    }
}

//! Decides about definitions: which names they get, whether they are established, and when a deleted one may go.
//!
//! Every server runs it, without a leader. A decision is written by a transaction that compares what it depends on, so that
//! two servers cannot decide differently; the second finds nothing left to do.

use std::sync::Arc;
use std::time::Duration;

use api::json::JsonObject;
use api::{GroupVersionResource, Status};
use apiextensions::Definition;
use apiextensions::definition::CLEANUP_FINALIZER;
use apiextensions::naming::{self, Termination};
use object::StoredObject;
use object::delete::{self, DeleteOptions, DeleteOutcome};
use registry::{CachedValue, WriteConditions, WriteDecision, WriteError, WriteOutcome};
use serde_json::Value;
use store::{Key, Op};
use tasks::Backoff;
use tokio_util::sync::CancellationToken;

use super::LiveDefinition;
use super::acceptance::UnusedGuard;
use super::conditions::CheckedConditions;
use crate::resource::Resource;
use crate::rest::{current_time, record_status_of_server};
use crate::{ApiServer, error_status, object_codec};

const DEFINITIONS: GroupVersionResource<&str> =
    GroupVersionResource { group: "apiextensions.k8s.io", version: "v1", resource: "customresourcedefinitions" };
/// While a deleted definition waits for objects whose finalizers others remove, or after a failure.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(5));

/// Names, establishes and finalizes definitions.
pub struct DefinitionController {
    pub(super) server: Arc<ApiServer>,
    /// The storage prefix, such as `/registry`.
    pub(super) prefix: String,
}

/// Whether a definition needs another look without any change of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Progress {
    Settled,
    Waiting,
}

impl DefinitionController {
    /// Creates the controller of a server.
    pub fn new(server: Arc<ApiServer>, prefix: &str) -> Self {
        Self { server, prefix: prefix.to_owned() }
    }

    /// Runs until `stop`.
    pub async fn run(self, stop: CancellationToken) {
        stop.run_until_cancelled(self.control()).await;
    }

    async fn control(&self) {
        let Some(definitions) = self.server.resolve(DEFINITIONS) else { return std::future::pending().await };
        let mut snapshots = self.server.definitions.snapshots();
        let (mut backoff, mut checked) = (BACKOFF, CheckedConditions::default());
        loop {
            let snapshot = snapshots.borrow_and_update().clone();
            checked.forget_deleted(&snapshot);
            let (unnamed, settled): (Vec<_>, Vec<_>) = snapshot.definitions().partition(|live| needs_names(live));
            let (mut progress, unchanged) = self.accept_names(&definitions, &unnamed).await;
            for live in unchanged.iter().chain(settled) {
                let outcome = self.settle(&definitions, live, &mut checked).await;
                progress = progress.max(log_failure(&live.definition, outcome));
            }
            let changed = snapshots.changed();
            let is_stopped = match progress {
                Progress::Settled => {
                    backoff.reset();
                    changed.await.is_err()
                }
                Progress::Waiting => tokio::select! {
                    changed = changed => changed.is_err(),
                    () = tokio::time::sleep(backoff.next_wait()) => false,
                },
            };
            if is_stopped {
                return std::future::pending().await;
            }
        }
    }

    async fn settle(
        &self,
        definitions: &Resource,
        live: &Arc<LiveDefinition>,
        checked: &mut CheckedConditions,
    ) -> Result<Progress, Status> {
        let definition = &live.definition;
        if definition.metadata.deletion_timestamp.is_some() {
            let is_ours = definition.metadata.finalizers.iter().any(|finalizer| finalizer == CLEANUP_FINALIZER);
            return if is_ours { self.finalize(definitions, live).await } else { Ok(Progress::Settled) };
        }
        match checked.decide(live, definitions) {
            None => Ok(Progress::Settled),
            Some(update) => self.update_definition(definitions, live, WriteConditions::default(), update).await,
        }
    }

    /// Deletes the objects of a deleted definition. Once none is left, the definition may go: nothing can be created
    /// since it is terminating, because every create compares the definition.
    async fn finalize(&self, definitions: &Resource, live: &Arc<LiveDefinition>) -> Result<Progress, Status> {
        let spec = &live.definition.spec;
        let cache = self.server.registry.cache().custom_resource_cache(&spec.group, &spec.names.plural);
        let Some(cache) = cache else {
            return self.release(definitions, live, &Termination::OverlapsBuiltIn).await;
        };
        if !self.server.registry.catch_up_with_store().await.map_err(error_status::status_for_read_error)? {
            return Ok(Progress::Waiting);
        }
        let snapshot = cache.snapshot();
        if snapshot.entries.is_empty() {
            let outcome =
                if live.definition.is_established() { Termination::Completed } else { Termination::NeverEstablished };
            return self.release(definitions, live, &outcome).await;
        }
        let Some(position) = live.versions.iter().position(|version| version.version().storage) else {
            return Ok(Progress::Waiting);
        };
        let resource = Resource::custom(live, position, &cache);
        let mut is_left = false;
        for (key, cached) in &snapshot.entries {
            let CachedValue::Object(_) = &cached.value else {
                is_left = true;
                continue;
            };
            is_left |= !self.delete_object(&resource, key).await?;
        }
        if is_left { Ok(Progress::Waiting) } else { self.release(definitions, live, &Termination::Completed).await }
    }

    /// Deletes an object, or marks it if it has finalizers. True if it is gone. What decides is the same in all versions,
    /// so the object stays in the version that it is stored in: no webhook can hold up the end of a definition.
    async fn delete_object(&self, resource: &Resource, key: &Key) -> Result<bool, Status> {
        let options = DeleteOptions::default();
        let decide = |current: Option<&StoredObject>| {
            let Some(current) = current else { return Ok(WriteDecision::Keep) };
            let object = object_codec::decode_stored(current);
            let outcome = delete::decide_deletion(&object, &options, resource.rules(), current_time());
            Ok(match outcome.map_err(|rejection| Status::internal_error(rejection.to_string()))? {
                DeleteOutcome::Remove(_) => WriteDecision::Delete,
                DeleteOutcome::Pending => WriteDecision::Keep,
                DeleteOutcome::Mark(marked) if marked == object => WriteDecision::Keep,
                DeleteOutcome::Mark(marked) => {
                    WriteDecision::Put { value: object_codec::encode_unconverted(marked), ttl: None }
                }
            })
        };
        let registry = self.server.registry.with_server_author();
        // An object that stays is stored in the storage version of this state of the definition.
        let fence = resource.as_custom().map(|(live, _)| &live.fence);
        let conditions = WriteConditions::unchanged(fence.map_or(&[], std::slice::from_ref));
        let mut found = false;
        let written = registry
            .write_if(resource.storage_name(), &resource.cache, key, conditions, |current| {
                found = current.is_some();
                decide(current)
            })
            .await;
        match written {
            Ok(WriteOutcome::Deleted(_)) => Ok(true),
            Ok(WriteOutcome::Put(_)) => Ok(false),
            Ok(WriteOutcome::Unchanged) => Ok(!found),
            Err(WriteError::ConditionChanged { .. } | WriteError::BarrierClosed(_)) => Ok(false),
            Err(error) => Err(error_status::status_for_write_error(error)),
        }
    }

    /// Removes the finalizer; with the last one the definition goes, and with the last definition of a group the guard of its
    /// names.
    async fn release(
        &self,
        definitions: &Resource,
        live: &LiveDefinition,
        termination: &Termination<'_>,
    ) -> Result<Progress, Status> {
        let condition = termination.condition();
        let update = move |definition: &mut JsonObject| {
            naming::apply_condition(definition, &condition, current_time());
            if let Some(Value::Array(finalizers)) =
                definition.get_mut("metadata").and_then(|metadata| metadata.get_mut("finalizers"))
            {
                finalizers.retain(|finalizer| finalizer != CLEANUP_FINALIZER);
            }
        };
        if live.definition.metadata.finalizers != [CLEANUP_FINALIZER] {
            return self.update_definition(definitions, live, WriteConditions::default(), update).await;
        }
        let unused = match self.unused_guard(&live.definition).await? {
            UnusedGuard::None => None,
            UnusedGuard::Behind => return Ok(Progress::Waiting),
            UnusedGuard::Found(guard) => Some(guard),
        };
        let deletion = unused.as_ref().map(|guard| Op::Delete { key: guard.key.clone() });
        let conditions = WriteConditions { compares: unused.as_slice(), ops: deletion.as_slice() };
        self.update_definition(definitions, live, conditions, update).await
    }

    /// Writes a definition that is still in the state of `live`; otherwise the change will be decided again.
    async fn update_definition(
        &self,
        definitions: &Resource,
        live: &LiveDefinition,
        conditions: WriteConditions<'_>,
        update: impl Fn(&mut JsonObject),
    ) -> Result<Progress, Status> {
        let decide = |current: Option<&StoredObject>| {
            let Some(current) = current.filter(|stored| Some(stored.revision) == live.fence.revision.map(|at| at.0))
            else {
                return Ok::<_, Status>(WriteDecision::Keep);
            };
            let before = object_codec::decode_served(current, definitions)?;
            let mut object = before.clone();
            update(&mut object);
            let metadata = object.get("metadata");
            let is_deleted = metadata.is_some_and(|metadata| {
                let has_finalizers =
                    metadata.get("finalizers").and_then(Value::as_array).is_some_and(|all| !all.is_empty());
                metadata.get("deletionTimestamp").is_some() && !has_finalizers
            });
            if is_deleted {
                return Ok(WriteDecision::Delete);
            }
            record_status_of_server(definitions, &self.server.feature_gates, &before, &mut object)?;
            Ok(WriteDecision::Put { value: object_codec::encode_for_storage(object, definitions)?, ttl: None })
        };
        let registry = self.server.registry.with_server_author();
        let name = definitions.storage_name();
        match registry.write_if(name, &definitions.cache, &live.fence.key, conditions, decide).await {
            Ok(_) => Ok(Progress::Settled),
            Err(WriteError::ConditionChanged { .. } | WriteError::BarrierClosed(_)) => Ok(Progress::Waiting),
            Err(error) => Err(error_status::status_for_write_error(error)),
        }
    }
}

/// True if the names of a definition are still to be accepted, or the definition is to be established.
fn needs_names(live: &LiveDefinition) -> bool {
    let definition = &live.definition;
    let is_named = definition.spec.names == definition.status.accepted_names && definition.is_established();
    definition.metadata.deletion_timestamp.is_none() && !is_named
}

/// The progress; a failure is logged and tried again.
pub(super) fn log_failure(definition: &Definition, outcome: Result<Progress, Status>) -> Progress {
    outcome.unwrap_or_else(|status| {
        let name = &definition.metadata.name;
        tracing::warn!(definition = name, error = status.message, "definition not updated, will retry");
        Progress::Waiting
    })
}

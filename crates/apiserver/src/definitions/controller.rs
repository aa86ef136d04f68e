//! Decides about definitions: which names they get, whether they are established, and when a deleted one may go.
//!
//! Every server runs it, without a leader. A decision is written by a transaction that compares what it depends on, so that
//! two servers cannot decide differently; the second finds nothing left to do.

use std::sync::Arc;
use std::time::Duration;

use api::json::JsonObject;
use api::{GroupVersionResource, Status};
use apiextensions::definition::{CLEANUP_FINALIZER, DefinitionCondition, ResourceNames};
use apiextensions::naming::{self, GroupNames, NamingDecision, Termination};
use bytes::Bytes;
use object::StoredObject;
use object::delete::{self, DeleteOptions, DeleteOutcome};
use registry::{CachedValue, WriteConditions, WriteDecision, WriteError, WriteOutcome};
use serde_json::Value;
use store::{Compare, Key, Op, Revision};
use tasks::Backoff;
use tokio_util::sync::CancellationToken;

use super::LiveDefinition;
use super::conditions::CheckedConditions;
use super::name_guard::GuardedNames;
use crate::resource::Resource;
use crate::rest::current_time;
use crate::{ApiServer, error_status, object_codec};

const DEFINITIONS: GroupVersionResource<&str> =
    GroupVersionResource { group: "apiextensions.k8s.io", version: "v1", resource: "customresourcedefinitions" };
/// Below it, one key per group serializes the acceptance of names. No REST path reaches it: resource names have no
/// underscore.
const NAME_GUARDS: &str = "_unskew/names";
/// While a deleted definition waits for objects whose finalizers others remove, or after a failure.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(5));

/// Names, establishes and finalizes definitions.
pub struct DefinitionController {
    server: Arc<ApiServer>,
    /// The storage prefix, such as `/registry`.
    prefix: String,
}

/// Whether a definition needs another look without any change of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    Settled,
    Waiting,
}

/// The result of writing a definition.
enum DefinitionWrite {
    Written(WriteOutcome),
    /// The definition or a key beside it changed: it will be decided again.
    Changed,
    BarrierClosed,
}

impl DefinitionWrite {
    fn progress(&self) -> Progress {
        match self {
            Self::Written(_) | Self::Changed => Progress::Settled,
            Self::BarrierClosed => Progress::Waiting,
        }
    }
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
            let mut progress = Progress::Settled;
            checked.forget_deleted(&snapshot);
            let mut names = GuardedNames::default();
            for live in snapshot.definitions() {
                match self.settle(&definitions, live, &mut names, &mut checked).await {
                    Ok(Progress::Settled) => {}
                    Ok(Progress::Waiting) => progress = Progress::Waiting,
                    Err(status) => {
                        let name = &live.definition.metadata.name;
                        tracing::warn!(definition = name, error = status.message, "definition not updated, will retry");
                        progress = Progress::Waiting;
                    }
                }
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
        names: &mut GuardedNames,
        checked: &mut CheckedConditions,
    ) -> Result<Progress, Status> {
        let definition = &live.definition;
        if definition.metadata.deletion_timestamp.is_some() {
            let is_ours = definition.metadata.finalizers.iter().any(|finalizer| finalizer == CLEANUP_FINALIZER);
            return if is_ours { self.finalize(definitions, live).await } else { Ok(Progress::Settled) };
        }
        let is_named = definition.spec.names == definition.status.accepted_names && definition.is_established();
        if !is_named && let Some(progress) = self.accept_names(definitions, live, names).await? {
            return Ok(progress);
        }
        match checked.decide(live, definitions) {
            None => Ok(Progress::Settled),
            Some(update) => self.update_definition(definitions, live, WriteConditions::default(), update).await,
        }
    }

    /// Accepts the names of a definition and establishes it; `None` if nothing is to be decided. The guard key of the group
    /// serializes this with the acceptance of other names of the group by any server.
    ///
    /// As long as the guard has the revision of this server's last acceptance, no name of the group was accepted elsewhere:
    /// the next definition is decided at once, without waiting for the snapshot that shows the last one.
    async fn accept_names(
        &self,
        definitions: &Resource,
        live: &LiveDefinition,
        names: &mut GuardedNames,
    ) -> Result<Option<Progress>, Status> {
        let (group, name) = (&live.definition.spec.group, &live.definition.metadata.name);
        if !names.has_group(group) {
            let snapshot = self.server.definitions.snapshot();
            let others = snapshot.group(group);
            if naming_of(live, &GroupNames::new(others.iter().map(|other| &*other.definition))).is_none() {
                return Ok(None);
            }
            let guard = self.guard_key(group);
            let read = self.server.registry.read_raw(&guard).await.map_err(error_status::status_for_read_error)?;
            let (entry, read_at) = read;
            if !self.server.definitions.catch_up_to(read_at).await {
                return Ok(Some(Progress::Waiting));
            }
            names.insert_group(group, entry.map(|entry| entry.revision), &self.server.definitions.snapshot());
        }
        let Some((current, guarded)) = names.definition(group, name) else { return Ok(Some(Progress::Settled)) };
        let Some(naming) = naming_of(&current, &guarded.names) else { return Ok(None) };
        let key = self.guard_key(group);
        let compares = [Compare { key: key.clone(), revision: guarded.revision }];
        let ops = [Op::Put { key, value: Bytes::from_static(b"{}"), ttl: None }];
        let conditions = WriteConditions { compares: &compares, ops: &ops };
        let accepted = naming.accepted_names().cloned();
        let written = self.write_definition(definitions, &current, conditions, naming.into_update()).await?;
        match &written {
            DefinitionWrite::Written(WriteOutcome::Put(stored)) => {
                names.accept(group, &current.definition, accepted.as_ref(), Revision(stored.revision));
            }
            DefinitionWrite::Written(_) | DefinitionWrite::Changed | DefinitionWrite::BarrierClosed => {
                names.forget_group(group);
            }
        }
        Ok(Some(written.progress()))
    }

    fn guard_key(&self, group: &str) -> Key {
        Key::from(format!("{}/{NAME_GUARDS}/{group}", self.prefix))
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

    /// Removes the finalizer; with the last one the definition goes.
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
        self.update_definition(definitions, live, WriteConditions::default(), update).await
    }

    /// Writes a definition that is still in the state of `live`; otherwise the change will be decided again.
    async fn update_definition(
        &self,
        definitions: &Resource,
        live: &LiveDefinition,
        conditions: WriteConditions<'_>,
        update: impl Fn(&mut JsonObject),
    ) -> Result<Progress, Status> {
        Ok(self.write_definition(definitions, live, conditions, update).await?.progress())
    }

    async fn write_definition(
        &self,
        definitions: &Resource,
        live: &LiveDefinition,
        conditions: WriteConditions<'_>,
        update: impl Fn(&mut JsonObject),
    ) -> Result<DefinitionWrite, Status> {
        let decide = |current: Option<&StoredObject>| {
            let Some(current) = current.filter(|stored| Some(stored.revision) == live.fence.revision.map(|at| at.0))
            else {
                return Ok::<_, Status>(WriteDecision::Keep);
            };
            let mut object = object_codec::decode_served(current, definitions)?;
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
            Ok(WriteDecision::Put { value: object_codec::encode_for_storage(object, definitions)?, ttl: None })
        };
        let registry = self.server.registry.with_server_author();
        let name = definitions.storage_name();
        match registry.write_if(name, &definitions.cache, &live.fence.key, conditions, decide).await {
            Ok(outcome) => Ok(DefinitionWrite::Written(outcome)),
            Err(WriteError::ConditionChanged { .. }) => Ok(DefinitionWrite::Changed),
            Err(WriteError::BarrierClosed(_)) => Ok(DefinitionWrite::BarrierClosed),
            Err(error) => Err(error_status::status_for_write_error(error)),
        }
    }
}

/// The change of a definition's names and conditions.
struct Naming {
    decision: Option<NamingDecision>,
    established: Option<DefinitionCondition>,
}

impl Naming {
    fn accepted_names(&self) -> Option<&ResourceNames> {
        self.decision.as_ref().map(|decision| &decision.accepted_names)
    }

    fn into_update(self) -> impl Fn(&mut JsonObject) {
        move |object: &mut JsonObject| {
            let now = current_time();
            if let Some(decision) = &self.decision {
                naming::apply_decision(object, decision, now);
            }
            if let Some(established) = &self.established {
                naming::apply_condition(object, established, now);
            }
        }
    }
}

/// The change of a definition's names and conditions that follows from the accepted names of its group; `None` if everything
/// is as decided. Names are accepted and the definition is established in one step: every server sees both at once.
fn naming_of(live: &LiveDefinition, group: &GroupNames) -> Option<Naming> {
    let definition = &live.definition;
    let decision = naming::decide_names(definition, group);
    let mut next = (**definition).clone();
    if let Some(decision) = &decision {
        next.status.accepted_names = decision.accepted_names.clone();
        next.status
            .conditions
            .retain(|known| known.condition_type != "NamesAccepted" && known.condition_type != "Established");
        next.status.conditions.extend([decision.names_accepted.clone(), decision.established.clone()]);
    }
    let established = naming::decide_established(&next, apiextensions::validation::has_valid_ca_bundle(definition));
    (decision.is_some() || established.is_some()).then_some(Naming { decision, established })
}

//! Acceptance of names: many definitions are named and established by one transaction.
//!
//! The guard key of a group serializes the acceptance of names of the group by any server. As long as it has the revision of
//! this server's last acceptance, no name of the group was accepted elsewhere, and the next definitions are decided at once,
//! without waiting for the snapshot that shows the last ones.

use std::collections::BTreeSet;
use std::sync::Arc;

use api::Status;
use api::json::JsonObject;
use apiextensions::Definition;
use apiextensions::definition::{DefinitionCondition, ResourceNames};
use apiextensions::naming::{self, GroupNames, NamingDecision};
use bytes::Bytes;
use object::StoredObject;
use registry::{
    CachedValue, CompanionResource, CompanionWrite, DecidedWrite, WriteConditions, WriteDecision, WriteError,
    WriteOutcome,
};
use store::{Compare, Key, Op, Revision};

use super::LiveDefinition;
use super::controller::{DefinitionController, Progress, log_failure};
use super::name_guard::GuardedNames;
use crate::resource::Resource;
use crate::rest::{current_time, record_status_of_server};
use crate::{error_status, object_codec};

/// Below it, one key per group serializes the acceptance of names. No REST path reaches it: resource names have no
/// underscore.
const NAME_GUARDS: &str = "_unskew/names";
/// Definitions in one transaction. Each needs up to three compares, and a store takes 128.
const ACCEPTED_TOGETHER_MAX: usize = 32;
/// Bytes of definitions in one transaction, beyond the first; etcd takes 1.5 MiB.
const ACCEPTED_BYTES_MAX: usize = 256 << 10;

/// A definition as it is to be stored, with its names accepted.
struct Acceptance {
    live: Arc<LiveDefinition>,
    accepted: Option<ResourceNames>,
    value: Bytes,
}

/// What one transaction writes.
#[derive(Default)]
struct AcceptanceBatch {
    acceptances: Vec<Acceptance>,
    /// Definitions looked at: those above, and those about which there was nothing to decide.
    considered: usize,
    /// Of the latter, those that are as decided.
    unchanged: Vec<Arc<LiveDefinition>>,
    progress: Option<Progress>,
}

/// What became of a batch.
enum BatchOutcome {
    Written(Revision),
    /// Another server or a client was first: the next snapshot shows it.
    Changed,
    BarrierClosed,
}

impl DefinitionController {
    /// Accepts names of definitions and establishes them. Returns those about which there is nothing to decide.
    pub(super) async fn accept_names(
        &self,
        definitions: &Resource,
        unnamed: &[&Arc<LiveDefinition>],
    ) -> (Progress, Vec<Arc<LiveDefinition>>) {
        let (mut progress, mut unchanged) = (Progress::Settled, Vec::new());
        let mut names = GuardedNames::default();
        let (mut next, mut alone_before) = (0, 0);
        while next < unnamed.len() {
            let count_max = if next < alone_before { 1 } else { ACCEPTED_TOGETHER_MAX };
            let batch = self.plan_batch(definitions, &unnamed[next..], count_max, &mut names).await;
            match self.commit_batch(definitions, &batch, &names).await {
                Ok(BatchOutcome::Written(revision)) => {
                    for one in &batch.acceptances {
                        names.complete(&one.live.definition, one.accepted.as_ref(), revision);
                    }
                }
                Ok(BatchOutcome::Changed) => return (progress, unchanged),
                Ok(BatchOutcome::BarrierClosed) => return (Progress::Waiting, unchanged),
                // One of them may be at fault: not the others.
                Err(_) if batch.acceptances.len() > 1 => {
                    names = GuardedNames::default();
                    alone_before = next + batch.considered;
                    continue;
                }
                Err(status) => {
                    names = GuardedNames::default();
                    let failed = batch.acceptances.first().map_or(unnamed[next], |one| &one.live);
                    progress = log_failure(&failed.definition, Err(status));
                }
            }
            next += batch.considered;
            progress = progress.max(batch.progress.unwrap_or(Progress::Settled));
            unchanged.extend(batch.unchanged);
        }
        (progress, unchanged)
    }

    /// Decides about the first of some definitions, as many as one transaction takes.
    async fn plan_batch(
        &self,
        definitions: &Resource,
        unnamed: &[&Arc<LiveDefinition>],
        count_max: usize,
        names: &mut GuardedNames,
    ) -> AcceptanceBatch {
        let mut batch = AcceptanceBatch::default();
        let mut bytes = 0;
        for live in unnamed {
            if batch.acceptances.len() == count_max || bytes > ACCEPTED_BYTES_MAX {
                break;
            }
            batch.considered += 1;
            match self.plan(definitions, live, names).await {
                Ok(Plan::Accept(acceptance)) => {
                    bytes += acceptance.value.len();
                    let frees_names = names.accept(&acceptance.live.definition, acceptance.accepted.as_ref());
                    batch.acceptances.push(acceptance);
                    if frees_names {
                        break;
                    }
                }
                Ok(Plan::Unchanged) => batch.unchanged.push((*live).clone()),
                Ok(Plan::Later(progress)) => batch.progress = batch.progress.max(Some(progress)),
                Err(status) => batch.progress = Some(log_failure(&live.definition, Err(status))),
            }
        }
        batch
    }

    async fn plan(
        &self,
        definitions: &Resource,
        live: &LiveDefinition,
        names: &mut GuardedNames,
    ) -> Result<Plan, Status> {
        let (group, name) = (&live.definition.spec.group, &live.definition.metadata.name);
        if !names.has_group(group) {
            let snapshot = self.server.definitions.snapshot();
            let others = snapshot.group(group);
            if naming_of(live, &GroupNames::new(others.iter().map(|other| &*other.definition))).is_none() {
                return Ok(Plan::Unchanged);
            }
            let read = self.server.registry.read_raw(&self.guard_key(group)).await;
            let (entry, read_at) = read.map_err(error_status::status_for_read_error)?;
            if !self.server.definitions.catch_up_to(read_at).await {
                return Ok(Plan::Later(Progress::Waiting));
            }
            names.insert_group(group, entry.map(|entry| entry.revision), &self.server.definitions.snapshot());
        }
        let Some((current, guarded)) = names.definition(group, name) else { return Ok(Plan::Later(Progress::Settled)) };
        let Some(naming) = naming_of(&current, &guarded.names) else { return Ok(Plan::Unchanged) };
        let cached = definitions.cache.get(&current.fence.key);
        let stored = cached.filter(|cached| Some(cached.revision) == current.fence.revision);
        let Some(CachedValue::Object(stored)) = stored.as_deref().map(|cached| &cached.value) else {
            // Changed in the meantime: the next snapshot shows it.
            return Ok(Plan::Later(Progress::Settled));
        };
        let before = object_codec::decode_served(stored, definitions)?;
        let mut object = before.clone();
        naming.apply(&mut object);
        record_status_of_server(definitions, &self.server.feature_gates, &before, &mut object)?;
        let value = object_codec::encode_for_storage(object, definitions)?;
        let accepted = naming.decision.map(|decision| decision.accepted_names);
        Ok(Plan::Accept(Acceptance { live: current, accepted, value }))
    }

    /// Writes all definitions of a batch and the guards of their groups, or nothing.
    async fn commit_batch(
        &self,
        definitions: &Resource,
        batch: &AcceptanceBatch,
        names: &GuardedNames,
    ) -> Result<BatchOutcome, Status> {
        let Some((first, others)) = batch.acceptances.split_first() else {
            return Ok(BatchOutcome::Written(Revision::default()));
        };
        let groups: BTreeSet<&str> = batch.acceptances.iter().map(|one| &*one.live.definition.spec.group).collect();
        let guards = groups.iter().map(|group| Compare { key: self.guard_key(group), revision: names.revision(group) });
        let compares: Vec<_> = guards.collect();
        let puts = compares.iter().map(|guard| Op::Put {
            key: guard.key.clone(),
            value: Bytes::from_static(b"{}"),
            ttl: None,
        });
        let ops: Vec<_> = puts.collect();
        let name = definitions.storage_name();
        let resource = CompanionResource { name: name.owned(), prefix: definitions.cache.prefix().clone() };
        let companions: Vec<_> = others.iter().map(|one| one.as_companion(&resource)).collect();
        let decide = |current: Option<&StoredObject>| {
            let is_same = current.is_some_and(|stored| Some(Revision(stored.revision)) == first.live.fence.revision);
            Ok::<_, Status>(match is_same {
                true => DecidedWrite { decision: first.decision(), companions: companions.clone(), computed: None },
                false => WriteDecision::Keep.into(),
            })
        };
        let registry = self.server.registry.with_server_author();
        let conditions = WriteConditions { compares: &compares, ops: &ops };
        let key = &first.live.fence.key;
        match registry.write_with_companions(name, &definitions.cache, key, conditions, decide).await {
            Ok(WriteOutcome::Put(stored)) => Ok(BatchOutcome::Written(Revision(stored.revision))),
            Ok(WriteOutcome::Unchanged | WriteOutcome::Deleted(_))
            | Err(WriteError::ConditionChanged { .. } | WriteError::CompanionChanged { .. }) => {
                Ok(BatchOutcome::Changed)
            }
            Err(WriteError::BarrierClosed(_)) => Ok(BatchOutcome::BarrierClosed),
            Err(error) => Err(error_status::status_for_write_error(error)),
        }
    }

    /// The guard key of a group whose only definition is this one. While the key still has the revision in the result, no
    /// server has accepted a name since, so that the key may go together with the definition: absent, it stands for a group
    /// without names.
    pub(super) async fn unused_guard(&self, definition: &Definition) -> Result<UnusedGuard, Status> {
        let group = &*definition.spec.group;
        let is_last = || {
            let snapshot = self.server.definitions.snapshot();
            snapshot.group(group).len() <= 1 && !snapshot.has_unreadable(group)
        };
        if !is_last() {
            return Ok(UnusedGuard::None);
        }
        let key = self.guard_key(group);
        let read = self.server.registry.read_raw(&key).await;
        let (entry, read_at) = read.map_err(error_status::status_for_read_error)?;
        if !self.server.definitions.catch_up_to(read_at).await {
            return Ok(UnusedGuard::Behind);
        }
        Ok(match entry.filter(|_| is_last()) {
            Some(entry) => UnusedGuard::Found(Compare { key, revision: Some(entry.revision) }),
            None => UnusedGuard::None,
        })
    }

    fn guard_key(&self, group: &str) -> Key {
        Key::from(format!("{}/{NAME_GUARDS}/{group}", self.prefix))
    }
}

/// The guard key that a definition leaves behind.
pub(super) enum UnusedGuard {
    /// The group has other definitions, or no guard.
    None,
    /// This server is behind the store.
    Behind,
    Found(Compare),
}

/// What is to be done about the names of one definition.
enum Plan {
    Accept(Acceptance),
    Unchanged,
    /// Not decided in this pass.
    Later(Progress),
}

impl Acceptance {
    fn decision(&self) -> WriteDecision {
        WriteDecision::Put { value: self.value.clone(), ttl: None }
    }

    fn as_companion(&self, resource: &CompanionResource) -> CompanionWrite {
        CompanionWrite {
            key: self.live.fence.key.clone(),
            expected_revision: self.live.fence.revision,
            decision: self.decision(),
            resource: Some(resource.clone()),
        }
    }
}

/// The change of a definition's names and conditions.
struct Naming {
    decision: Option<NamingDecision>,
    established: Option<DefinitionCondition>,
}

impl Naming {
    fn apply(&self, object: &mut JsonObject) {
        let now = current_time();
        if let Some(decision) = &self.decision {
            naming::apply_decision(object, decision, now);
        }
        if let Some(established) = &self.established {
            naming::apply_condition(object, established, now);
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

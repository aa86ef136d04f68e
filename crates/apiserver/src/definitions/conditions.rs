//! The conditions that say whether a definition is structural and whether its API is approved.
//!
//! Like in kube-apiserver each is decided once per state of what it depends on, so that servers of different releases do
//! not overwrite each other's texts again and again.

use std::collections::HashMap;

use api::json::JsonObject;
use apiextensions::definition::DefinitionCondition;
use apiextensions::naming;
use apiextensions::validation::{ValidationOptions, is_protected_group, structural_condition};
use registry::CachedValue;
use store::Revision;

use super::{CustomResources, LiveDefinition};
use crate::object_codec;
use crate::resource::Resource;
use crate::rest::current_time;

const NON_STRUCTURAL: &str = "NonStructuralSchema";

/// What was decided about each definition.
#[derive(Debug, Default)]
pub(super) struct CheckedConditions {
    by_name: HashMap<String, CheckedDefinition>,
}

#[derive(Debug)]
struct CheckedDefinition {
    uid: String,
    generation: i64,
    revision: Option<Revision>,
}

impl CheckedConditions {
    pub(super) fn forget_deleted(&mut self, snapshot: &CustomResources) {
        self.by_name.retain(|name, _| snapshot.definition(name).is_some());
    }

    /// The change of a definition's conditions; `None` if they are as they should be, or were decided before.
    pub(super) fn decide(
        &mut self,
        live: &LiveDefinition,
        definitions: &Resource,
    ) -> Option<impl Fn(&mut JsonObject) + use<>> {
        let metadata = &live.definition.metadata;
        let revision = live.fence.revision;
        let known = self.by_name.get(&metadata.name).filter(|known| known.uid == metadata.uid);
        if known.is_some_and(|known| known.revision == revision) {
            return None;
        }
        let is_checked = match known {
            Some(known) => known.generation >= metadata.generation,
            // A definition is structural when it is created, and marked when it is not any more.
            None => !live.definition.spec.preserve_unknown_fields && find(live, NON_STRUCTURAL).is_none(),
        };
        let structural = if is_checked { None } else { decide_structural(live) };
        let approval = decide_approval(live, definitions);
        if structural.is_none() && approval.is_none() {
            // Only now: a change may fail, and is then decided again.
            let next = CheckedDefinition { uid: metadata.uid.clone(), generation: metadata.generation, revision };
            self.by_name.insert(metadata.name.clone(), next);
            return None;
        }
        Some(move |object: &mut JsonObject| {
            for (condition_type, condition) in structural.iter().chain(&approval) {
                match condition {
                    Some(condition) => naming::apply_condition(object, condition, current_time()),
                    None => naming::remove_condition(object, condition_type),
                }
            }
        })
    }
}

/// The type of a condition and its new state; `None` removes it.
type ConditionChange = (&'static str, Option<DefinitionCondition>);

fn decide_structural(live: &LiveDefinition) -> Option<ConditionChange> {
    let options = ValidationOptions { minor: live.release.minor(), object_meta: live.object_meta() };
    let wanted = structural_condition(&live.definition, &options);
    (find(live, NON_STRUCTURAL) != wanted.as_ref()).then_some((NON_STRUCTURAL, wanted))
}

/// Kubernetes leaves the condition of a group that is not protected as it is.
fn decide_approval(live: &LiveDefinition, definitions: &Resource) -> Option<ConditionChange> {
    if !is_protected_group(&live.definition.spec.group) {
        return None;
    }
    let cached = definitions.cache.get(&live.fence.key)?;
    let CachedValue::Object(stored) = &cached.value else { return None };
    let wanted = naming::approval_condition(&object_codec::decode_served(stored, definitions).ok()?)?;
    let is_new = find(live, &wanted.condition_type) != Some(&wanted);
    is_new.then_some(("KubernetesAPIApprovalPolicyConformant", Some(wanted)))
}

fn find<'l>(live: &'l LiveDefinition, condition_type: &str) -> Option<&'l DefinitionCondition> {
    live.definition.status.conditions.iter().find(|condition| condition.condition_type == condition_type)
}

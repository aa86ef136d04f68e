//! The conditions of definitions that follow from other definitions and from the definition itself.
//!
//! Names are unique among the accepted names of a group: plural, singular and short names share one set, kind and list
//! kind another.

use std::collections::HashSet;

use api::FieldError;
use api::json::JsonObject;
use api::time::Time;
use serde_json::Value;

use crate::definition::{Definition, DefinitionCondition, ResourceNames};
use crate::lifecycle::{Condition, set_condition};
use crate::validation::{ApprovalState, approval_state, is_protected_group};

/// What a definition's status becomes after its names were compared with those of its group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamingDecision {
    /// The requested names, except those in conflict, which stay as they were.
    pub accepted_names: ResourceNames,
    /// `NamesAccepted`.
    pub names_accepted: DefinitionCondition,
    /// `Established`; once true it stays.
    pub established: DefinitionCondition,
}

/// Decides which requested names are accepted. `group` has the names of all definitions of the group, this one included.
///
/// `None` if the status already says so.
pub fn decide_names(definition: &Definition, group: &GroupNames) -> Option<NamingDecision> {
    let (requested, accepted) = (&definition.spec.names, &definition.status.accepted_names);
    if requested == accepted {
        return None;
    }
    let (accepted_names, conflict) = group.accept(requested, accepted);
    let names_accepted = match conflict {
        None => condition("NamesAccepted", "True", "NoConflicts", "no conflicts found"),
        Some((reason, message)) => condition("NamesAccepted", "False", reason, &message),
    };
    if accepted_names == *accepted && find(definition, "NamesAccepted") == Some(&names_accepted) {
        return None;
    }
    let established = match find(definition, "Established") {
        Some(old) if old.status == "True" => old.clone(),
        _ if names_accepted.status == "True" => {
            condition("Established", "False", "Installing", "the initial names have been accepted")
        }
        Some(old) => old.clone(),
        None => condition("Established", "False", "NotAccepted", "not all names are accepted"),
    };
    Some(NamingDecision { accepted_names, names_accepted, established })
}

/// The condition that makes a definition whose names are accepted established; `None` if there is nothing to change.
pub fn decide_established(definition: &Definition, is_ca_bundle_valid: bool) -> Option<DefinitionCondition> {
    if !definition.has_condition("NamesAccepted") || definition.is_established() {
        return None;
    }
    let decided = if is_ca_bundle_valid {
        condition("Established", "True", "InitialNamesAccepted", "the initial names have been accepted")
    } else {
        condition("Established", "False", "InvalidCABundle", "The conversion webhook CABundle is invalid")
    };
    (find(definition, "Established") != Some(&decided)).then_some(decided)
}

/// The condition about the approval of an API in a protected group; `None` for other groups.
pub fn approval_condition(definition: &JsonObject) -> Option<DefinitionCondition> {
    let group = object::unstructured::text(definition, &["spec", "group"]);
    if !is_protected_group(group) {
        return None;
    }
    let (state, message) = approval_state(definition);
    let (status, reason) = match state {
        ApprovalState::Approved => ("True", "ApprovedAnnotation"),
        ApprovalState::Bypassed => ("False", "UnapprovedAnnotation"),
        ApprovalState::Invalid => ("False", "InvalidAnnotation"),
        ApprovalState::Missing => ("False", "MissingAnnotation"),
    };
    Some(condition("KubernetesAPIApprovalPolicyConformant", status, reason, &message))
}

/// The condition of a definition whose schemas violate structural rules; `None` removes the condition.
///
/// The errors have paths below `spec.versions[i].schema.openAPIV3Schema`, in the order of the versions.
pub fn non_structural_condition(preserves_unknown_fields: bool, errors: &[FieldError]) -> Option<DefinitionCondition> {
    let preserved =
        preserves_unknown_fields.then(|| FieldError::invalid("spec.preserveUnknownFields", true, "must be false"));
    let errors: Vec<FieldError> = preserved.into_iter().chain(errors.iter().cloned()).collect();
    let message = FieldError::aggregate(&errors)?;
    Some(condition("NonStructuralSchema", "True", "Violations", &message))
}

/// The condition of a definition with a schema that cannot be checked.
pub(crate) fn unchecked_schema_condition(message: &str) -> DefinitionCondition {
    condition("NonStructuralSchema", "Unknown", "StructuralError", message)
}

/// A state of the deletion of a definition's objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Termination<'a> {
    /// Objects are being deleted.
    InProgress,
    /// Objects could not be listed or deleted.
    Failed(&'a str),
    /// Objects are left.
    Unconfirmed(&'a str),
    /// No object is left.
    Completed,
    /// The definition was never established, so that there are no objects.
    NeverEstablished,
    /// The keys of the objects would be those of built-in objects.
    OverlapsBuiltIn,
}

impl Termination<'_> {
    /// The condition `Terminating`.
    pub fn condition(&self) -> DefinitionCondition {
        let (status, reason, message) = match *self {
            Self::InProgress => ("True", "InstanceDeletionInProgress", "CustomResource deletion is in progress"),
            Self::Failed(message) => ("True", "InstanceDeletionFailed", message),
            Self::Unconfirmed(error) => {
                let message = format!("could not confirm zero CustomResources remaining: {error}");
                return condition("Terminating", "True", "InstanceDeletionCheck", &message);
            }
            Self::Completed => ("False", "InstanceDeletionCompleted", "removed all instances"),
            Self::NeverEstablished => ("False", "NeverEstablished", "resource was never established"),
            Self::OverlapsBuiltIn => {
                ("False", "OverlappingBuiltInResource", "instances overlap with built-in resources in storage")
            }
        };
        condition("Terminating", status, reason, message)
    }
}

/// Writes a decision into a definition object.
pub fn apply_decision(definition: &mut JsonObject, decision: &NamingDecision, now: Time) {
    let status = object::unstructured::nested_object_mut(definition, "status");
    status.insert("acceptedNames".to_owned(), names_to_json(&decision.accepted_names));
    apply_condition(definition, &decision.names_accepted, now);
    apply_condition(definition, &decision.established, now);
}

/// Sets a condition of a definition object; its transition time moves only if the status changes.
pub fn apply_condition(definition: &mut JsonObject, condition: &DefinitionCondition, now: Time) {
    let DefinitionCondition { condition_type, status, reason, message } = condition;
    set_condition(definition, &Condition { condition_type, status, reason, message }, now);
}

/// Removes a condition of a definition object.
pub fn remove_condition(definition: &mut JsonObject, condition_type: &str) {
    let conditions = definition.get_mut("status").and_then(|status| status.get_mut("conditions"));
    if let Some(conditions) = conditions.and_then(Value::as_array_mut) {
        conditions.retain(|found| found.get("type").is_none_or(|found| found != condition_type));
    }
}

fn names_to_json(names: &ResourceNames) -> Value {
    let mut object = JsonObject::new();
    object.insert("plural".to_owned(), names.plural.as_str().into());
    object.insert("kind".to_owned(), names.kind.as_str().into());
    for (field, name) in [("singular", &names.singular), ("listKind", &names.list_kind)] {
        if !name.is_empty() {
            object.insert(field.to_owned(), name.as_str().into());
        }
    }
    for (field, list) in [("shortNames", &names.short_names), ("categories", &names.categories)] {
        if !list.is_empty() {
            object.insert(field.to_owned(), list.as_slice().into());
        }
    }
    Value::Object(object)
}

fn condition(condition_type: &str, status: &str, reason: &str, message: &str) -> DefinitionCondition {
    let [condition_type, status, reason, message] = [condition_type, status, reason, message].map(str::to_owned);
    DefinitionCondition { condition_type, status, reason, message }
}

fn find<'d>(definition: &'d Definition, condition_type: &str) -> Option<&'d DefinitionCondition> {
    definition.status.conditions.iter().find(|found| found.condition_type == condition_type)
}

/// Accepted names of a group.
#[derive(Clone, Debug, Default)]
pub struct GroupNames {
    resources: HashSet<String>,
    kinds: HashSet<String>,
}

impl GroupNames {
    /// The accepted names of the definitions of a group.
    pub fn new<'d>(definitions: impl IntoIterator<Item = &'d Definition>) -> Self {
        let mut names = Self::default();
        definitions.into_iter().for_each(|definition| names.insert(&definition.status.accepted_names));
        names
    }

    /// Adds the accepted names of one more definition.
    pub fn insert(&mut self, names: &ResourceNames) {
        let resources = [&names.plural, &names.singular].into_iter().chain(&names.short_names);
        self.resources.extend(resources.cloned());
        self.kinds.extend([names.kind.clone(), names.list_kind.clone()]);
    }

    /// The names to accept, and reason and message of the last conflict.
    fn accept(
        &self,
        requested: &ResourceNames,
        accepted: &ResourceNames,
    ) -> (ResourceNames, Option<(&'static str, String)>) {
        let mut names = accepted.clone();
        let mut conflict = None;
        accept_name(&mut conflict, "PluralConflict", &self.resources, &requested.plural, &mut names.plural);
        accept_name(&mut conflict, "SingularConflict", &self.resources, &requested.singular, &mut names.singular);
        let is_taken = |name: &&String| {
            !accepted.short_names.contains(*name) && !name.is_empty() && self.resources.contains(name.as_str())
        };
        let mut taken: Vec<String> = requested.short_names.iter().filter(is_taken).map(|name| in_use(name)).collect();
        taken.dedup();
        match &*taken {
            [] => names.short_names.clone_from(&requested.short_names),
            [one] => conflict = Some(("ShortNamesConflict", one.clone())),
            several => conflict = Some(("ShortNamesConflict", format!("[{}]", several.join(", ")))),
        }
        accept_name(&mut conflict, "KindConflict", &self.kinds, &requested.kind, &mut names.kind);
        accept_name(&mut conflict, "ListKindConflict", &self.kinds, &requested.list_kind, &mut names.list_kind);
        names.categories.clone_from(&requested.categories);
        (names, conflict)
    }
}

fn accept_name(
    conflict: &mut Option<(&'static str, String)>,
    reason: &'static str,
    used: &HashSet<String>,
    requested: &str,
    name: &mut String,
) {
    if requested != name && used.contains(requested) {
        *conflict = Some((reason, in_use(requested)));
    } else {
        requested.clone_into(name);
    }
}

fn in_use(name: &str) -> String {
    format!("{name:?} is already in use")
}

#[cfg(test)]
mod tests;

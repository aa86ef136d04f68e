//! Completes the stored default objects at every start.
//!
//! Reconciliation only adds: rules, subjects, selectors, labels and annotations. Servers of two releases therefore
//! end with the same objects in whatever order they start, and an older server undoes nothing of a newer one.
//! Kubernetes differs twice: it removes an aggregation rule it does not expect, and replaces a binding that refers to
//! another role. Here both objects are left unchanged and reported.

use api::wire::read;
use serde::Serialize;
use serde_json::{Map, Value};

use super::{AUTOUPDATE_ANNOTATION, DefaultRbacObject};
use crate::rbac::{AggregationRule, PolicyRule, RbacKind, RbacObjectError, Role, RoleBinding, missing_rules};

/// What to do with one default object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReconcileAction {
    /// The object is complete.
    UpToDate,
    /// The object does not exist; holds the JSON to create.
    Create(Vec<u8>),
    /// The object is incomplete; holds the JSON to write, conditional on the resourceVersion read.
    Update(Vec<u8>),
    /// The object is incomplete but must not be changed.
    Skip(SkipReason),
}

/// Why an incomplete object is left unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SkipReason {
    /// The object is annotated with `autoupdate=false`.
    AutoupdateDisabled,
    /// The stored role aggregates other roles; the default one does not.
    UnexpectedAggregation,
    /// The stored binding refers to another role.
    BindsOtherRole,
}

/// The stored object cannot be decoded.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct ReconcileError(#[from] RbacObjectError);

/// Compares the stored object with the default one and returns what to do. Unknown fields are preserved.
pub fn reconcile(existing: Option<&[u8]>, desired: &DefaultRbacObject) -> Result<ReconcileAction, ReconcileError> {
    let Some(json) = existing else { return Ok(ReconcileAction::Create(desired.to_json())) };
    let (kind, name) = (desired.kind(), &desired.metadata().name);
    let unreadable = |source| ReconcileError(RbacObjectError { kind, name: name.clone(), source });
    let mut object: Map<String, Value> = read(json).map_err(unreadable)?;
    let outcome = match desired {
        DefaultRbacObject::Role(wanted) => add_missing_rules(&mut object, &read(json).map_err(unreadable)?, wanted),
        DefaultRbacObject::Binding(wanted) => {
            add_missing_subjects(&mut object, &read(json).map_err(unreadable)?, wanted)
        }
    };
    let has_metadata = add_missing_metadata(&mut object, desired);
    let is_protected = object["metadata"]["annotations"][AUTOUPDATE_ANNOTATION] == "false";
    Ok(match outcome {
        Ok(CompletionResult::Unchanged) if has_metadata => ReconcileAction::UpToDate,
        Ok(_) if is_protected => ReconcileAction::Skip(SkipReason::AutoupdateDisabled),
        Err(skipped) => ReconcileAction::Skip(skipped),
        Ok(_) => ReconcileAction::Update(api::json::to_go_json(&object)),
    })
}

enum CompletionResult {
    Unchanged,
    Changed,
}

fn add_missing_rules(
    object: &mut Map<String, Value>,
    existing: &Role,
    desired: &Role,
) -> Result<CompletionResult, SkipReason> {
    if existing.aggregation_rule.is_some() && desired.aggregation_rule.is_none() {
        return Err(SkipReason::UnexpectedAggregation);
    }
    let mut result = CompletionResult::Unchanged;
    let missing = missing_rules(&existing.rules, &desired.rules);
    if !missing.is_empty() {
        let rules: Vec<&PolicyRule> = existing.rules.iter().chain(&missing).collect();
        object.insert("rules".to_owned(), to_value(&rules));
        result = CompletionResult::Changed;
    }
    if let Some(wanted) = &desired.aggregation_rule {
        let mut selectors = existing.aggregation_rule.clone().unwrap_or_default().cluster_role_selectors;
        let before = selectors.len();
        for selector in &wanted.cluster_role_selectors {
            if !selectors.contains(selector) {
                selectors.push(selector.clone());
            }
        }
        if selectors.len() > before {
            let rule = AggregationRule { cluster_role_selectors: selectors };
            object.insert("aggregationRule".to_owned(), to_value(&rule));
            result = CompletionResult::Changed;
        }
    }
    Ok(result)
}

fn add_missing_subjects(
    object: &mut Map<String, Value>,
    existing: &RoleBinding,
    desired: &RoleBinding,
) -> Result<CompletionResult, SkipReason> {
    let (existing_role, desired_role) = (&existing.role_ref, &desired.role_ref);
    if existing_role.kind != desired_role.kind || existing_role.name != desired_role.name {
        return Err(SkipReason::BindsOtherRole);
    }
    let mut subjects = existing.subjects.clone();
    subjects.extend(desired.subjects.iter().filter(|subject| !existing.subjects.contains(subject)).cloned());
    if subjects.len() == existing.subjects.len() {
        return Ok(CompletionResult::Unchanged);
    }
    object.insert("subjects".to_owned(), to_value(&subjects));
    Ok(CompletionResult::Changed)
}

/// Adds missing labels and annotations and returns true if none was missing. Existing values are kept.
fn add_missing_metadata(object: &mut Map<String, Value>, desired: &DefaultRbacObject) -> bool {
    let mut was_complete = true;
    let metadata = object.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
    let wanted = desired.metadata();
    for (field, pairs) in [("labels", &wanted.labels), ("annotations", &wanted.annotations)] {
        for (key, value) in pairs {
            if metadata[field].get(key).is_none() {
                metadata[field][key] = value.as_str().into();
                was_complete = false;
            }
        }
    }
    was_complete
}

fn to_value(value: &impl Serialize) -> Value {
    serde_json::to_value(value).expect("rules and subjects serialize to JSON")
}

impl SkipReason {
    /// Describes the skipped object for the log.
    pub fn describe(self, kind: RbacKind, name: &str) -> String {
        let reason = match self {
            Self::AutoupdateDisabled => format!("it is annotated {AUTOUPDATE_ANNOTATION}=false"),
            Self::UnexpectedAggregation => "it aggregates other roles".to_owned(),
            Self::BindsOtherRole => "it binds another role".to_owned(),
        };
        format!("{kind} {name} lacks defaults of this release and is left unchanged: {reason}")
    }
}

//! Completing what is there, at every start.
//!
//! Only ever a union: rules, subjects, selectors, labels and annotations are added and nothing is taken away. So servers of
//! two releases that start in any order end with the same objects, and an older one undoes nothing of a newer one.
//! Kubernetes differs in two places where it would undo: it drops an aggregation rule it does not know, and replaces a binding
//! that refers to another role. Here both are left as they are, and reported.

use api::wire::read;
use serde::Serialize;
use serde_json::{Map, Value};

use super::{AUTOUPDATE_ANNOTATION, DefaultRbacObject};
use crate::rbac::{AggregationRule, PolicyRule, RbacKind, RbacObjectError, Role, RoleBinding, missing_rules};

/// What is to be done about one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReconcileAction {
    /// It has all it should have.
    UpToDate,
    /// It does not exist: write it.
    Create(Vec<u8>),
    /// It lacks something: write it, if it has not changed since it was read.
    Update(Vec<u8>),
    /// It lacks something and is to be left alone.
    Skip(SkipReason),
}

/// Why an object is left alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SkipReason {
    /// Its annotation says so.
    AutoupdateDisabled,
    /// It is a union of other roles, where a plain role was expected.
    UnexpectedAggregation,
    /// It binds another role.
    BindsOtherRole,
}

/// The object there is cannot be read.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct ReconcileError(#[from] RbacObjectError);

/// What it takes to give the existing object everything that is wanted. Fields we do not know are kept.
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

/// Adds labels and annotations that are not there; says whether all were. Values that are there stay.
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
    serde_json::to_value(value).expect("rules and subjects are plain data")
}

impl SkipReason {
    /// What a log line says about the object.
    pub fn describe(self, kind: RbacKind, name: &str) -> String {
        let reason = match self {
            Self::AutoupdateDisabled => format!("it is annotated {AUTOUPDATE_ANNOTATION}=false"),
            Self::UnexpectedAggregation => "it aggregates other roles".to_owned(),
            Self::BindsOtherRole => "it binds another role".to_owned(),
        };
        format!("{kind} {name} lacks something that this release gives it, and is left alone: {reason}")
    }
}

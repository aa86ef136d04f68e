//! Completing what is there, at every start.
//!
//! Only ever a union: rules, subjects, selectors, labels and annotations are added and nothing is taken away. So servers of
//! two releases that start in any order end with the same objects, and an older one undoes nothing of a newer one.
//! Kubernetes differs in two places where it would undo: it drops an aggregation rule it does not know, and replaces a binding
//! that refers to another role. Here both are left as they are, and reported.

use api::wire::read;
use serde::Serialize;
use serde_json::{Map, Value};

use super::{AUTOUPDATE, Wanted};
use crate::rbac::{AggregationRule, Binding, Kind, ObjectError, PolicyRule, Role, missing_rules};

/// What is to be done about one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// It has all it should have.
    None,
    /// It does not exist: write it.
    Create(Vec<u8>),
    /// It lacks something: write it, if it has not changed since it was read.
    Update(Vec<u8>),
    /// It lacks something and is to be left alone.
    Skip(Skipped),
}

/// Why an object is left alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Skipped {
    /// Its annotation says so.
    Protected,
    /// It is a union of other roles, where a plain role was expected.
    Aggregates,
    /// It binds another role.
    OtherRole,
}

/// The object there is cannot be read.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct ReconcileError(#[from] ObjectError);

/// What it takes to give the existing object everything that is wanted. Fields we do not know are kept.
pub fn reconcile(existing: Option<&[u8]>, wanted: &Wanted) -> Result<Change, ReconcileError> {
    let Some(json) = existing else { return Ok(Change::Create(wanted.to_json())) };
    let (kind, name) = (wanted.kind(), &wanted.metadata().name);
    let unreadable = |source| ReconcileError(ObjectError { kind, name: name.clone(), source });
    let mut object: Map<String, Value> = read(json).map_err(unreadable)?;
    let outcome = match wanted {
        Wanted::Role(wanted) => complete_role(&mut object, &read(json).map_err(unreadable)?, wanted),
        Wanted::Binding(wanted) => complete_binding(&mut object, &read(json).map_err(unreadable)?, wanted),
    };
    let has_metadata = complete_metadata(&mut object, wanted);
    let is_protected = object["metadata"]["annotations"][AUTOUPDATE] == "false";
    Ok(match outcome {
        Ok(Completed::Nothing) if has_metadata => Change::None,
        Ok(_) if is_protected => Change::Skip(Skipped::Protected),
        Err(skipped) => Change::Skip(skipped),
        Ok(_) => Change::Update(api::json::to_go_json(&object)),
    })
}

enum Completed {
    Nothing,
    Something,
}

fn complete_role(object: &mut Map<String, Value>, existing: &Role, wanted: &Role) -> Result<Completed, Skipped> {
    if existing.aggregation_rule.is_some() && wanted.aggregation_rule.is_none() {
        return Err(Skipped::Aggregates);
    }
    let mut completed = Completed::Nothing;
    let missing = missing_rules(&existing.rules, &wanted.rules);
    if !missing.is_empty() {
        let rules: Vec<&PolicyRule> = existing.rules.iter().chain(&missing).collect();
        object.insert("rules".to_owned(), to_value(&rules));
        completed = Completed::Something;
    }
    if let Some(wanted) = &wanted.aggregation_rule {
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
            completed = Completed::Something;
        }
    }
    Ok(completed)
}

fn complete_binding(
    object: &mut Map<String, Value>,
    existing: &Binding,
    wanted: &Binding,
) -> Result<Completed, Skipped> {
    let (there, wanted_role) = (&existing.role_ref, &wanted.role_ref);
    if there.kind != wanted_role.kind || there.name != wanted_role.name {
        return Err(Skipped::OtherRole);
    }
    let mut subjects = existing.subjects.clone();
    subjects.extend(wanted.subjects.iter().filter(|subject| !existing.subjects.contains(subject)).cloned());
    if subjects.len() == existing.subjects.len() {
        return Ok(Completed::Nothing);
    }
    object.insert("subjects".to_owned(), to_value(&subjects));
    Ok(Completed::Something)
}

/// Adds labels and annotations that are not there; says whether all were. Values that are there stay.
fn complete_metadata(object: &mut Map<String, Value>, wanted: &Wanted) -> bool {
    let mut was_complete = true;
    let metadata = object.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
    let wanted = wanted.metadata();
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

impl Skipped {
    /// What a log line says about the object.
    pub fn describe(self, kind: Kind, name: &str) -> String {
        let why = match self {
            Self::Protected => format!("it is annotated {AUTOUPDATE}=false"),
            Self::Aggregates => "it aggregates other roles".to_owned(),
            Self::OtherRole => "it binds another role".to_owned(),
        };
        format!("{kind} {name} lacks something that this release gives it, and is left alone: {why}")
    }
}

//! ResourceQuota: what objects use, which quotas cover them, and whether a write fits.
//!
//! Pure. The caller passes the quotas of the namespace with what exists ([`QuotaState`]) and stores the changed quotas
//! that [`check()`] returns in the transaction of the object. It runs after all other validating plugins.

mod check;
mod evaluator;
mod list;
mod pod;
mod scopes;

pub use check::{LimitedResource, QuotaState, QuotaWrite, check};
pub use evaluator::{Evaluator, is_ignored};
pub use list::ResourceList;
pub(crate) use pod::requests as pod_requests;

use api::json::JsonObject;
use api::time::Time;
use kinds::FeatureGates;
use object::unstructured::nested_object;
use serde_json::Value;

/// The limits of a quota's spec.
pub fn limits(quota: &JsonObject) -> ResourceList {
    ResourceList::read(nested_object(quota, &["spec", "hard"]))
}

/// What existing objects use of the resources of a quota that their evaluator counts; zero for those that none uses.
/// Pods whose grace period was over before `now` count as objects only.
pub fn measure(
    evaluator: &Evaluator<'_>,
    quota: &JsonObject,
    objects: &[JsonObject],
    gates: &FeatureGates,
    now: Time,
) -> ResourceList {
    let names = evaluator.matching(&limits(quota));
    let mut used = ResourceList::zeros(&names);
    for object in objects.iter().filter(|object| scopes::quota_covers(evaluator, quota, object, gates)) {
        used.add(&evaluator.usage(object, gates, pod::is_past_grace(object, now)));
    }
    used.retain(&names);
    used
}

/// Like [`measure`], for objects of which only the number counts.
pub fn count(evaluator: &Evaluator<'_>, quota: &JsonObject, objects: usize) -> ResourceList {
    let names = evaluator.matching(&limits(quota));
    let mut used = evaluator.count(objects);
    used.retain(&names);
    used
}

/// A status of a quota: `spec.hard`, and what is used of it. Resources that `measured` lacks keep their old value.
pub fn status(quota: &JsonObject, measured: &ResourceList) -> Value {
    let hard = limits(quota);
    let mut used = ResourceList::read(nested_object(quota, &["status", "used"]));
    used.replace(measured);
    used.retain(&hard.names());
    serde_json::json!({ "hard": hard.to_value(), "used": used.to_value() })
}

/// True if two statuses of a quota mean the same.
pub fn is_same_status(quota: &JsonObject, status: &Value) -> bool {
    ["hard", "used"].iter().all(|list| {
        let new = ResourceList::read(status[list].as_object());
        nested_object(quota, &["status", list]).is_some_and(|old| ResourceList::read(Some(old)).is_equal(&new))
    })
}

#[cfg(test)]
mod tests;

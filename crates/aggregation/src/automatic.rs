//! The APIServices that servers keep for the group-versions that they serve themselves.
//!
//! They carry a label; an APIService without it is a user's and is never touched. All servers of a cluster share them, so that
//! one which this server does not serve is removed only once no other server serves it either.

use api::json::JsonObject;
use api::time::Time;
use serde_json::{Value, json};

use crate::condition::{self, Availability};

/// The label of an automatic APIService.
pub const AUTOMATIC_LABEL: &str = "kube-aggregator.kubernetes.io/automanaged";

/// What brings a group-version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VersionOrigin {
    /// The release: label value `onstart`.
    BuiltIn,
    /// CustomResourceDefinitions: label value `true`.
    Definition,
}

impl VersionOrigin {
    const fn label_value(self) -> &'static str {
        match self {
            Self::BuiltIn => "onstart",
            Self::Definition => "true",
        }
    }
}

/// The APIService of a group-version that this server serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AutomaticApiService {
    /// Empty for the core group.
    pub group: String,
    /// Such as `v1beta1`.
    pub version: String,
    /// Groups with a higher priority come first in discovery.
    pub group_priority: i32,
    /// Versions with a higher priority come first within the group.
    pub version_priority: i32,
    /// Decides the value of the label.
    pub origin: VersionOrigin,
}

/// Whether another server of the cluster serves a group-version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServedByOthers {
    /// A server that is live, suspect or left lists it.
    Yes,
    /// No server lists it.
    No,
    /// The document of some server is not known.
    Unknown,
}

/// What to do with the APIService of a group-version.
#[derive(Clone, Debug, PartialEq)]
pub enum AutomaticAction {
    /// Leave it as it is.
    Keep,
    /// Store this object.
    Put(JsonObject),
    /// Delete it.
    Delete,
}

impl AutomaticApiService {
    /// The name of the object, such as `v1.apps`, or `v1.` for the core group.
    pub fn name(&self) -> String {
        format!("{}.{}", self.version, self.group)
    }

    fn spec(&self) -> JsonObject {
        let mut spec = JsonObject::new();
        if !self.group.is_empty() {
            spec.insert("group".to_owned(), self.group.as_str().into());
        }
        spec.insert("groupPriorityMinimum".to_owned(), self.group_priority.into());
        spec.insert("version".to_owned(), self.version.as_str().into());
        spec.insert("versionPriority".to_owned(), self.version_priority.into());
        spec
    }
}

/// Decides about one APIService. `desired` is what this server serves of that name. A stored one whose priorities differ is
/// rewritten only if `may_update`, so that servers of different releases do not rewrite each other's.
pub fn decide(
    current: Option<&JsonObject>,
    desired: Option<&AutomaticApiService>,
    served_by_others: ServedByOthers,
    may_update: bool,
    now: Time,
) -> AutomaticAction {
    match (current, desired) {
        (None, None) => AutomaticAction::Keep,
        (None, Some(desired)) => {
            let mut object = JsonObject::new();
            let labels = json!({AUTOMATIC_LABEL: desired.origin.label_value()});
            object.insert("metadata".to_owned(), json!({"name": desired.name(), "labels": labels}));
            object.insert("spec".to_owned(), desired.spec().into());
            condition::set_available(&mut object, &Availability::local(), now);
            AutomaticAction::Put(object)
        }
        (Some(current), _) if !is_automatic(current) || is_terminating(current) => AutomaticAction::Keep,
        (Some(current), Some(desired)) => update(current, desired, may_update, now),
        (Some(_), None) => match served_by_others {
            ServedByOthers::Yes | ServedByOthers::Unknown => AutomaticAction::Keep,
            ServedByOthers::No => AutomaticAction::Delete,
        },
    }
}

/// True if the servers keep this APIService.
pub fn is_automatic(api_service: &JsonObject) -> bool {
    let label = api_service.get("metadata").and_then(|metadata| metadata.get("labels"));
    label.and_then(|labels| labels.get(AUTOMATIC_LABEL)).is_some_and(|value| value == "onstart" || value == "true")
}

fn is_terminating(api_service: &JsonObject) -> bool {
    api_service.get("metadata").is_some_and(|metadata| !metadata["deletionTimestamp"].is_null())
}

fn update(current: &JsonObject, desired: &AutomaticApiService, may_update: bool, now: Time) -> AutomaticAction {
    let mut next = current.clone();
    let spec = Value::from(desired.spec());
    if may_update && next.get("spec") != Some(&spec) {
        next.insert("spec".to_owned(), spec);
    }
    if let Some(labels) = next.get_mut("metadata").and_then(|metadata| metadata.get_mut("labels"))
        && may_update
    {
        labels[AUTOMATIC_LABEL] = desired.origin.label_value().into();
    }
    if condition::is_local(&next) {
        condition::set_available(&mut next, &Availability::local(), now);
    }
    if next == *current { AutomaticAction::Keep } else { AutomaticAction::Put(next) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: &str = "2026-01-01T00:00:00Z";

    fn now() -> Time {
        NOW.parse().unwrap()
    }

    fn apps(group_priority: i32) -> AutomaticApiService {
        let (group, version) = ("apps".to_owned(), "v1".to_owned());
        AutomaticApiService { group, version, group_priority, version_priority: 15, origin: VersionOrigin::BuiltIn }
    }

    fn created(desired: &AutomaticApiService) -> JsonObject {
        match decide(None, Some(desired), ServedByOthers::No, true, now()) {
            AutomaticAction::Put(object) => object,
            other @ (AutomaticAction::Keep | AutomaticAction::Delete) => panic!("{other:?}"),
        }
    }

    #[test]
    fn missing_api_service_is_created_available() {
        let object = created(&apps(17800));
        assert_eq!(
            Value::from(object),
            json!({
                "metadata": {"name": "v1.apps", "labels": {"kube-aggregator.kubernetes.io/automanaged": "onstart"}},
                "spec": {"group": "apps", "version": "v1", "groupPriorityMinimum": 17800, "versionPriority": 15},
                "status": {"conditions": [{"type": "Available", "status": "True", "reason": "Local",
                    "message": "Local APIServices are always available", "lastTransitionTime": NOW}]},
            })
        );
        let core = AutomaticApiService { group: String::new(), ..apps(18000) };
        assert_eq!((core.name().as_str(), core.spec().get("group")), ("v1.", None));
    }

    #[test]
    fn unchanged_api_service_is_not_written() {
        let stored = created(&apps(17800));
        let action = decide(Some(&stored), Some(&apps(17800)), ServedByOthers::No, true, now());
        assert_eq!(action, AutomaticAction::Keep);
    }

    #[test]
    fn other_priorities_are_corrected_only_if_updates_are_allowed() {
        let stored = created(&apps(1));
        let desired = apps(17800);
        assert_eq!(decide(Some(&stored), Some(&desired), ServedByOthers::Yes, false, now()), AutomaticAction::Keep);
        let action = decide(Some(&stored), Some(&desired), ServedByOthers::Yes, true, now());
        let AutomaticAction::Put(updated) = action else { panic!("{action:?}") };
        assert_eq!(updated["spec"]["groupPriorityMinimum"], 17800);
    }

    #[test]
    fn api_service_without_label_is_never_touched() {
        let mut stored = created(&apps(1));
        stored["metadata"]["labels"] = json!({});
        for desired in [None, Some(&apps(17800))] {
            assert_eq!(decide(Some(&stored), desired, ServedByOthers::No, true, now()), AutomaticAction::Keep);
        }
    }

    #[test]
    fn api_service_is_deleted_only_if_no_server_serves_it() {
        let stored = created(&apps(17800));
        let action = |others| decide(Some(&stored), None, others, true, now());
        assert_eq!(action(ServedByOthers::Yes), AutomaticAction::Keep);
        assert_eq!(action(ServedByOthers::Unknown), AutomaticAction::Keep);
        assert_eq!(action(ServedByOthers::No), AutomaticAction::Delete);
    }
}

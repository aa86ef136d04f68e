//! StorageVersionMigration objects: which to execute, and their conditions.

use api::GroupResource;
use jiff::Timestamp;
use serde_json::{Value, json};
use storageversion::migration::Progress;

/// The reason of `Running` that this controller writes; the in-tree migrator writes others.
pub(crate) const RUNNING_REASON: &str = "UnskewMigrationRunning";

/// What of a migration object decides whether it is executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MigrationObject {
    pub(crate) name: String,
    pub(crate) uid: String,
    created: String,
    pub(crate) group: String,
    pub(crate) resource: String,
    pub(crate) state: MigrationState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MigrationState {
    Pending,
    /// Set to Running by this controller.
    Running,
    /// Set to Running by another controller.
    RunningElsewhere,
    Succeeded,
    Failed,
}

impl MigrationObject {
    pub(crate) fn from_value(object: &Value) -> Option<Self> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let metadata = &object["metadata"];
        let resource = &object["spec"]["resource"];
        Some(Self {
            name: metadata["name"].as_str()?.to_owned(),
            uid: metadata["uid"].as_str()?.to_owned(),
            created: text(&metadata["creationTimestamp"]),
            group: text(&resource["group"]),
            resource: text(&resource["resource"]),
            state: state_of(object),
        })
    }

    pub(crate) fn is_ended(&self) -> bool {
        matches!(self.state, MigrationState::Succeeded | MigrationState::Failed)
    }

    /// False also if another controller runs it.
    pub(crate) fn is_ours_to_run(&self) -> bool {
        matches!(self.state, MigrationState::Pending | MigrationState::Running)
    }

    pub(crate) fn group_resource(&self) -> GroupResource<&str> {
        GroupResource { group: &self.group, resource: &self.resource }
    }

    /// The resource as `orders.shop.example.com`, for logs and metrics.
    pub(crate) fn label(&self) -> String {
        self.group_resource().to_string()
    }
}

fn state_of(object: &Value) -> MigrationState {
    let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    let mut state = MigrationState::Pending;
    for condition in conditions.filter(|condition| condition["status"] == "True") {
        match condition["type"].as_str() {
            Some("Succeeded") => return MigrationState::Succeeded,
            Some("Failed") => return MigrationState::Failed,
            Some("Running") if condition["reason"] == RUNNING_REASON => state = MigrationState::Running,
            Some("Running") => state = MigrationState::RunningElsewhere,
            _ => {}
        }
    }
    state
}

/// The objects to execute: of each resource the one that runs, or else the oldest; none while another controller runs one.
pub(crate) fn runnable(objects: &[MigrationObject]) -> Vec<&MigrationObject> {
    let mut candidates: Vec<&MigrationObject> = objects.iter().filter(|object| !object.is_ended()).collect();
    candidates.sort_by_key(|object| {
        (
            &object.group,
            &object.resource,
            object.state != MigrationState::RunningElsewhere,
            object.state != MigrationState::Running,
            &object.created,
            &object.name,
        )
    });
    candidates.dedup_by(|later, first| later.group_resource() == first.group_resource());
    for object in &candidates {
        if object.state == MigrationState::RunningElsewhere {
            tracing::info!(migration = %object.name, "another controller runs this storage migration, leaving it alone");
        }
    }
    candidates.retain(|object| object.state != MigrationState::RunningElsewhere);
    candidates
}

/// A condition of a migration.
#[derive(Clone, Debug)]
pub(crate) struct ConditionChange<'a> {
    pub(crate) condition_type: &'a str,
    pub(crate) status: &'a str,
    pub(crate) reason: &'a str,
    pub(crate) message: &'a str,
}

/// Sets a condition; the transition time changes only with its status. Returns false if nothing changed.
pub(crate) fn set_condition(object: &mut Value, change: &ConditionChange<'_>, now: Timestamp) -> bool {
    let is_alpha = object["apiVersion"].as_str().is_some_and(|version| version.ends_with("alpha1"));
    let time_field = if is_alpha { "lastUpdateTime" } else { "lastTransitionTime" };
    let ConditionChange { condition_type, status, reason, message } = change;
    let mut condition = json!({"type": condition_type, "status": status, "reason": reason, "message": message});
    if !object["status"]["conditions"].is_array() {
        object["status"]["conditions"] = json!([]);
    }
    let Some(conditions) = object["status"]["conditions"].as_array_mut() else { return false };
    let known = conditions.iter_mut().find(|known| known["type"] == *condition_type);
    let time = match &known {
        Some(known) if known["status"] == *status && !known[time_field].is_null() => known[time_field].clone(),
        Some(_) | None => api::time::Time::from(now).to_string().into(),
    };
    condition[time_field] = time;
    match known {
        Some(known) if *known == condition => false,
        Some(known) => {
            *known = condition;
            true
        }
        None => {
            conditions.push(condition);
            true
        }
    }
}

/// The message of `Running`, in the words of kube-controller-manager as far as it has them.
pub(crate) fn running_message(progress: &Progress) -> String {
    let mut message = "The migration is running".to_owned();
    if progress.surveyed_at > 0 {
        message.push_str(&format!(", {}/{} objects not yet migrated", progress.outdated, progress.objects));
    }
    if !progress.version.is_empty() {
        message.push_str(&format!(" to {}", progress.version));
    }
    if !progress.waiting_for.is_empty() {
        message.push_str(&format!("; waiting: {}", progress.waiting_for));
    }
    message
}

/// The message of `Succeeded`: what the last survey proved.
pub(crate) fn succeeded_message(progress: &Progress) -> String {
    format!(
        "Migration completed: all {} objects are stored as {} at revision {}, {} were rewritten",
        progress.objects, progress.version, progress.surveyed_at, progress.rewritten
    )
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    fn object(name: &str, resource: &str, created: &str, conditions: &Value) -> MigrationObject {
        MigrationObject::from_value(&json!({
            "metadata": {"name": name, "uid": name, "creationTimestamp": created},
            "spec": {"resource": {"group": "g", "resource": resource}},
            "status": {"conditions": conditions},
        }))
        .unwrap()
    }

    fn running(reason: &str) -> Value {
        json!([{"type": "Running", "status": "True", "reason": reason}])
    }

    #[test]
    fn oldest_object_of_each_resource_runs_unless_another_controller_runs_one() {
        let objects = [
            object("late", "a", "2026-02", &json!([])),
            object("early", "a", "2026-01", &json!([])),
            object("done", "a", "2025-01", &json!([{"type": "Succeeded", "status": "True"}])),
            object("waiting", "b", "2026-01", &json!([])),
            object("ours", "b", "2026-02", &running(RUNNING_REASON)),
            object("theirs", "c", "2026-02", &running("MigrationRunning")),
            object("after", "c", "2026-01", &json!([])),
            object("failed", "d", "2026-01", &json!([{"type": "Failed", "status": "True"}])),
        ];
        let names: Vec<&str> = runnable(&objects).iter().map(|object| &*object.name).collect();
        assert_eq!(names, ["early", "ours"]);
        let others: Vec<&str> = objects.iter().filter(|it| !it.is_ours_to_run()).map(|object| &*object.name).collect();
        assert_eq!(others, ["done", "theirs", "failed"]);
    }

    #[test]
    fn condition_keeps_its_transition_time_until_its_status_changes() {
        let mut object = json!({"apiVersion": "storagemigration.k8s.io/v1"});
        let change = |status: &'static str, message: &'static str| ConditionChange {
            condition_type: "Running",
            status,
            reason: "R",
            message,
        };
        let time = |text: &str| text.parse().unwrap();
        assert!(set_condition(&mut object, &change("True", "a"), time("2026-01-01T00:00:00Z")));
        assert!(!set_condition(&mut object, &change("True", "a"), time("2026-01-02T00:00:00Z")));
        assert!(set_condition(&mut object, &change("True", "b"), time("2026-01-03T00:00:00Z")));
        let condition = &object["status"]["conditions"][0];
        assert_eq!(
            (&condition["message"], &condition["lastTransitionTime"]),
            (&json!("b"), &json!("2026-01-01T00:00:00Z"))
        );
        assert!(set_condition(&mut object, &change("False", "b"), time("2026-01-04T00:00:00Z")));
        assert_eq!(object["status"]["conditions"][0]["lastTransitionTime"], "2026-01-04T00:00:00Z");
        let mut alpha = json!({"apiVersion": "storagemigration.k8s.io/v1alpha1"});
        set_condition(&mut alpha, &change("True", "a"), time("2026-01-01T00:00:00Z"));
        assert_eq!(alpha["status"]["conditions"][0]["lastUpdateTime"], "2026-01-01T00:00:00Z");
    }

    #[test]
    fn messages_tell_progress_and_proof() {
        let mut progress = Progress::default();
        expect!["The migration is running"].assert_eq(&running_message(&progress));
        progress = Progress {
            version: "g/v1".to_owned(),
            objects: 9,
            outdated: 4,
            rewritten: 5,
            surveyed_at: 77,
            waiting_for: "x".to_owned(),
        };
        expect!["The migration is running, 4/9 objects not yet migrated to g/v1; waiting: x"]
            .assert_eq(&running_message(&progress));
        expect!["Migration completed: all 9 objects are stored as g/v1 at revision 77, 5 were rewritten"]
            .assert_eq(&succeeded_message(&progress));
    }
}

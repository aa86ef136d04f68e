//! What disabled gates drop from a pod beyond single fields: restart policies of some containers, and image volumes with
//! their mounts.

use std::collections::BTreeSet;

use api::json::JsonObject;
use serde_json::Value;

use crate::fields::list_items;

pub(super) const RESTART_RULES: &str = "ContainerRestartRules";
const IMAGE_VOLUMES: &str = "ImageVolume";
const CONTAINER_LISTS: [&str; 3] = ["containers", "initContainers", "ephemeralContainers"];

/// True if a container has a restart policy that belongs to the gate; init containers that always restart are older.
pub(super) fn has_restart_policies(spec: &JsonObject) -> bool {
    CONTAINER_LISTS
        .iter()
        .any(|list| list_items(spec.get(*list)).iter().any(|container| has_gated_policy(list, container)))
}

fn has_gated_policy(list: &str, container: &Value) -> bool {
    let policy = container.get("restartPolicy").filter(|policy| !policy.is_null());
    policy.is_some_and(|policy| list != "initContainers" || policy != "Always")
}

pub(super) fn drop_fields(spec: &mut JsonObject, disabled: &BTreeSet<&'static str>) {
    if disabled.contains(RESTART_RULES) {
        for_each_container(spec, |list, container| {
            if has_gated_policy(list, container)
                && let Some(container) = container.as_object_mut()
            {
                container.remove("restartPolicy");
            }
        });
    }
    if disabled.contains(IMAGE_VOLUMES) {
        drop_image_volumes(spec);
    }
}

fn drop_image_volumes(spec: &mut JsonObject) {
    let Some(Value::Array(volumes)) = spec.get_mut("volumes") else { return };
    let mut dropped = Vec::new();
    volumes.retain(|volume| {
        let is_image = volume.get("image").is_some_and(|image| !image.is_null());
        dropped.extend(volume.get("name").filter(|_| is_image).cloned());
        !is_image
    });
    if volumes.is_empty() {
        spec.remove("volumes");
    }
    for_each_container(spec, |_, container| {
        let Some(Value::Array(mounts)) = container.get_mut("volumeMounts") else { return };
        mounts.retain(|mount| mount.get("name").is_none_or(|name| !dropped.contains(name)));
        if mounts.is_empty()
            && let Some(container) = container.as_object_mut()
        {
            container.remove("volumeMounts");
        }
    });
}

fn for_each_container(spec: &mut JsonObject, change: impl Fn(&str, &mut Value)) {
    for list in CONTAINER_LISTS {
        let containers = spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten();
        containers.for_each(|container| change(list, container));
    }
}

//! Defaults of pods, their containers and their volumes.

use api::json::JsonObject;
use serde_json::{Map, Value, json};

use crate::feature_gates::FeatureGates;
use crate::fields::{object_field_mut, objects_mut, set_if_absent, set_if_empty, string_field};

/// Defaults of pods that pod templates do not have.
pub(crate) fn set_pod_defaults(pod: &mut JsonObject, gates: &FeatureGates) {
    let Some(spec) = object_field_mut(pod, "spec") else { return };
    if spec.get("terminationGracePeriodSeconds").and_then(Value::as_i64).is_some_and(|seconds| seconds < 0) {
        spec.insert("terminationGracePeriodSeconds".to_owned(), 1.into());
    }
    let is_on_host = spec.get("hostNetwork").and_then(Value::as_bool).unwrap_or_default();
    for list in ["initContainers", "containers"] {
        for container in objects_mut(spec, list) {
            default_requests_to_limits(container);
            if is_on_host {
                default_host_ports(container);
            }
        }
    }
    if gates.enabled("H2CContainerProbe") {
        for list in ["initContainers", "containers", "ephemeralContainers"] {
            objects_mut(spec, list).for_each(default_probe_protocols);
        }
    }
    set_if_absent(spec, "enableServiceLinks", true);
}

/// A resource without a request is requested up to its limit.
fn default_requests_to_limits(container: &mut JsonObject) {
    let Some(resources) = container.get_mut("resources").and_then(Value::as_object_mut) else { return };
    let Some(Value::Object(limits)) = resources.get("limits").cloned() else { return };
    let Some(requests) = object_field_mut(resources, "requests") else { return };
    for (name, limit) in limits {
        requests.entry(name).or_insert(limit);
    }
}

/// On the host network every container port is a host port.
fn default_host_ports(container: &mut JsonObject) {
    for port in objects_mut(container, "ports") {
        if let Some(number) = port.get("containerPort").cloned() {
            set_if_empty(port, "hostPort", number);
        }
    }
}

fn default_probe_protocols(container: &mut JsonObject) {
    for pointer in [
        ["livenessProbe", ""],
        ["readinessProbe", ""],
        ["startupProbe", ""],
        ["lifecycle", "postStart"],
        ["lifecycle", "preStop"],
    ] {
        let mut place = container.get_mut(pointer[0]);
        if !pointer[1].is_empty() {
            place = place.and_then(|outer| outer.get_mut(pointer[1]));
        }
        if let Some(action) = place.and_then(|place| place.get_mut("httpGet")).and_then(Value::as_object_mut) {
            set_if_absent(action, "protocol", "HTTP1");
        }
    }
}

/// Keeps the two names of the service account field equal; the newer one wins.
pub(crate) fn set_pod_spec_defaults(spec: &mut JsonObject) {
    let (name, deprecated) = (string_field(spec, "serviceAccountName"), string_field(spec, "serviceAccount"));
    let name = if name.is_empty() { deprecated } else { name }.to_owned();
    if !name.is_empty() {
        spec.insert("serviceAccountName".to_owned(), name.clone().into());
        spec.insert("serviceAccount".to_owned(), name.into());
    }
}

/// Keeps `podIP` and `podIPs` consistent; `podIP` wins.
pub(crate) fn set_pod_status_defaults(status: &mut JsonObject) {
    let first = status.get("podIPs").and_then(|ips| ips.get(0)?.get("ip")?.as_str()).unwrap_or_default().to_owned();
    let single = string_field(status, "podIP").to_owned();
    match (single.as_str(), first.as_str()) {
        ("", "") => {}
        ("", first) => {
            status.insert("podIP".to_owned(), first.into());
        }
        (single, first) if single == first => {}
        (single, _) => {
            let list = json!([{"ip": single}]);
            status.insert("podIPs".to_owned(), list);
        }
    }
}

pub(crate) fn set_container_defaults(container: &mut JsonObject) {
    let policy = default_pull_policy(string_field(container, "image"));
    set_if_empty(container, "imagePullPolicy", policy);
    set_if_absent(container, "resources", Map::new());
}

/// A volume without a source is an `emptyDir`.
pub(crate) fn set_volume_defaults(volume: &mut JsonObject, gates: &FeatureGates) {
    if volume.keys().all(|name| name == "name") {
        volume.insert("emptyDir".to_owned(), json!({}));
    }
    if let Some(image) = volume.get_mut("image").and_then(Value::as_object_mut).filter(|_| gates.enabled("ImageVolume"))
    {
        let policy = default_pull_policy(string_field(image, "reference"));
        set_if_empty(image, "pullPolicy", policy);
    }
}

/// An image with the tag `latest` may have changed since it was pulled.
fn default_pull_policy(image: &str) -> &'static str {
    if has_latest_tag(image) { "Always" } else { "IfNotPresent" }
}

/// Longer paths of images are not valid.
const IMAGE_PATH_LENGTH_MAX: usize = 255;

/// The path of an image without a host and a folder is in this folder.
const DEFAULT_IMAGE_FOLDER: &str = "library/";

/// A name of so many hexadecimal digits is the id of an image.
const IMAGE_ID_LENGTH: usize = 64;

/// Whether the tag is `latest`, stated or implied; an invalid image name has no tag.
fn has_latest_tag(image: &str) -> bool {
    let (name, has_digest) = image.split_once('@').map_or((image, false), |(name, _)| (name, true));
    let (repository, tag) = match name.rsplit_once(':') {
        Some((repository, tag)) if !tag.contains('/') => (repository, tag),
        Some(_) | None => (name, ""),
    };
    // The first part is a host if it looks like one.
    let (path, path_length) = match repository.split_once('/') {
        Some((host, path)) if host == "localhost" || host.contains(['.', ':']) || host != host.to_lowercase() => {
            (path, path.len())
        }
        Some(_) => (repository, repository.len()),
        None => (repository, DEFAULT_IMAGE_FOLDER.len() + repository.len()),
    };
    let is_id = image.len() == IMAGE_ID_LENGTH && image.chars().all(|letter| matches!(letter, '0'..='9' | 'a'..='f'));
    let is_letter = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit();
    let is_part = |part: &str| {
        part.starts_with(is_letter)
            && part.ends_with(is_letter)
            && part.chars().all(|letter| is_letter(letter) || "._-".contains(letter))
    };
    let is_image = !is_id && path_length <= IMAGE_PATH_LENGTH_MAX && path.split('/').all(is_part);
    is_image && (tag == "latest" || tag.is_empty() && !has_digest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_pull_policy_is_always_for_latest_tag() {
        for image in
            ["web", "web:latest", "registry.example:5000/team/web", "localhost/web:latest", "a/b:latest@sha256:0"]
        {
            assert_eq!(default_pull_policy(image), "Always", "{image}");
        }
        for image in
            ["web:1", "registry.example:5000/web:1.2", "web@sha256:0", "web:1@sha256:0", "", "Web", "a b", "host.x/"]
        {
            assert_eq!(default_pull_policy(image), "IfNotPresent", "{image}");
        }
    }

    #[test]
    fn default_pull_policy_is_if_not_present_for_invalid_image() {
        for (letter, length, policy) in
            [("a", 64, "IfNotPresent"), ("x", 64, "Always"), ("a", 247, "Always"), ("a", 248, "IfNotPresent")]
        {
            assert_eq!(default_pull_policy(&letter.repeat(length)), policy, "{letter} {length} times");
        }
    }
}

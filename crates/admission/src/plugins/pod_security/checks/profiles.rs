//! Checks of AppArmor, SELinux and seccomp profiles.

use api::json::JsonObject;
use api::quote::Quoted;
use object::unstructured::{nested_object, text};
use serde_json::Value;

use super::{
    PodView, Violation, containers_of, containers_text, names_of, plural, quoted, setters_text, sorted, violation,
};

const APP_ARMOR_ANNOTATION: &str = "container.apparmor.security.beta.kubernetes.io/";
const SECCOMP_POD_ANNOTATION: &str = "seccomp.security.alpha.kubernetes.io/pod";
const SECCOMP_CONTAINER_ANNOTATION: &str = "container.seccomp.security.alpha.kubernetes.io/";

/// The type of a profile of a pod or container; `None` if it has none.
fn profile_type<'a>(object: &'a JsonObject, profile: &str) -> Option<&'a str> {
    nested_object(object, &["securityContext", profile]).map(|profile| text(profile, &["type"]))
}

pub(super) fn app_armor(pod: PodView<'_>) -> Option<Violation> {
    let bad = |object| {
        profile_type(object, "appArmorProfile").filter(|kind| !matches!(*kind, "RuntimeDefault" | "Localhost"))
    };
    let names = names_of(pod, |container| bad(container).is_some());
    let types = std::iter::once(pod.spec).chain(containers_of(pod)).filter_map(bad).map(str::to_owned);
    let mut values = sorted(types.collect());
    let is_allowed = |value: &str| value.is_empty() || value == "runtime/default" || value.starts_with("localhost/");
    let annotations = pod.annotations.into_iter().flatten().filter_map(|(key, value)| {
        let value = value.as_str().unwrap_or_default();
        let is_bad = key.starts_with(APP_ARMOR_ANNOTATION) && !is_allowed(value);
        is_bad.then(|| format!("{key}={}", Quoted(value)))
    });
    let annotations = sorted(annotations.collect());
    let mut setters = setters_text(bad(pod.spec).is_some(), &names);
    if !annotations.is_empty() {
        let word = plural("annotation", "annotations", annotations.len());
        setters = if setters.is_empty() { word.to_owned() } else { format!("{setters} and {word}") };
        values.extend(annotations);
    }
    if setters.is_empty() {
        return None;
    }
    let reason = plural("forbidden AppArmor profile", "forbidden AppArmor profiles", values.len());
    violation(reason, format!("{setters} must not set AppArmor profile type to {}", quoted(&values)))
}

pub(super) fn se_linux(pod: PodView<'_>) -> Option<Violation> {
    se_linux_options(pod, &["", "container_t", "container_init_t", "container_kvm_t"])
}

pub(super) fn se_linux_31(pod: PodView<'_>) -> Option<Violation> {
    se_linux_options(pod, &["", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"])
}

fn se_linux_of(object: &JsonObject) -> Option<&JsonObject> {
    nested_object(object, &["securityContext", "seLinuxOptions"])
}

fn se_linux_options(pod: PodView<'_>, allowed: &[&str]) -> Option<Violation> {
    let has = |options: &JsonObject, field| !text(options, &[field]).is_empty();
    let is_bad = |object: &JsonObject| {
        se_linux_of(object).is_some_and(|options| {
            !allowed.contains(&text(options, &["type"])) || has(options, "user") || has(options, "role")
        })
    };
    let names = names_of(pod, is_bad);
    if !is_bad(pod.spec) && names.is_empty() {
        return None;
    }
    let all: Vec<&JsonObject> = std::iter::once(pod.spec).chain(containers_of(pod)).filter_map(se_linux_of).collect();
    let types = all.iter().map(|options| text(options, &["type"])).filter(|kind| !allowed.contains(kind));
    let types = sorted(types.map(str::to_owned).collect());
    let mut details = Vec::new();
    if !types.is_empty() {
        details.push(format!("{} {}", plural("type", "types", types.len()), quoted(&types)));
    }
    for field in ["user", "role"] {
        if all.iter().any(|options| has(options, field)) {
            details.push(format!("{field} may not be set"));
        }
    }
    let setters = setters_text(is_bad(pod.spec), &names);
    let detail = format!("{setters} set forbidden securityContext.seLinuxOptions: {}", details.join("; "));
    violation("seLinuxOptions", detail)
}

/// Before 1.19 profiles were annotations.
pub(super) fn seccomp_annotations(pod: PodView<'_>) -> Option<Violation> {
    let bad = |key: String| {
        let value = pod.annotations?.get(&key).and_then(Value::as_str)?;
        let is_allowed = matches!(value, "runtime/default" | "docker/default") || value.starts_with("localhost/");
        (!is_allowed).then(|| format!("{key}={}", Quoted(value)))
    };
    let of_containers =
        containers_of(pod).map(|container| format!("{SECCOMP_CONTAINER_ANNOTATION}{}", text(container, &["name"])));
    let keys = std::iter::once(SECCOMP_POD_ANNOTATION.to_owned()).chain(of_containers);
    let forbidden = sorted(keys.filter_map(bad).collect());
    if forbidden.is_empty() {
        return None;
    }
    let word = plural("annotation", "annotations", forbidden.len());
    violation("seccompProfile", format!("forbidden {word} {}", forbidden.join(", ")))
}

pub(super) fn seccomp_baseline(pod: PodView<'_>) -> Option<Violation> {
    let bad = bad_seccomp_type;
    let names = names_of(pod, |container| bad(container).is_some());
    if bad(pod.spec).is_none() && names.is_empty() {
        return None;
    }
    let types = std::iter::once(pod.spec).chain(containers_of(pod)).filter_map(bad).map(str::to_owned);
    let detail = format!(
        "{} must not set securityContext.seccompProfile.type to {}",
        setters_text(bad(pod.spec).is_some(), &names),
        quoted(&sorted(types.collect()))
    );
    violation("seccompProfile", detail)
}

fn bad_seccomp_type(object: &JsonObject) -> Option<&str> {
    profile_type(object, "seccompProfile").filter(|kind| !matches!(*kind, "RuntimeDefault" | "Localhost"))
}

pub(super) fn seccomp_restricted(pod: PodView<'_>) -> Option<Violation> {
    if let Some(explicit) = seccomp_baseline(pod) {
        return Some(explicit);
    }
    let is_pod_set = profile_type(pod.spec, "seccompProfile").is_some();
    let implicit = names_of(pod, |container| !is_pod_set && profile_type(container, "seccompProfile").is_none());
    if implicit.is_empty() {
        return None;
    }
    let detail = format!(
        "pod or {} must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\"",
        containers_text(&implicit)
    );
    violation("seccompProfile", detail)
}

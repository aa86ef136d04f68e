//! What is valid in annotations that older releases used instead of fields.

use super::all_containers;
use crate::validation::Field;

const MIRROR: &str = "kubernetes.io/config.mirror";
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
const SECCOMP_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
const SECCOMP_CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";
const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";

pub(super) fn check_pod_annotations<'a>(annotations: Field<'a>, spec: Field<'a>) {
    let mirror = annotations.key(MIRROR);
    if mirror.is_present() && spec.at("nodeName").text().is_empty() {
        mirror.invalid("must set spec.nodeName if mirror pod annotation is set");
    }
    let cost = annotations.key(DELETION_COST);
    if cost.is_present() && !is_deletion_cost(cost.text()) {
        cost.invalid("must be a 32bit integer");
    }
    for (key, _) in annotations.entries().filter(|(key, _)| *key == SECCOMP_POD || key.starts_with(SECCOMP_CONTAINER)) {
        let profile = annotations.at(key);
        match profile.text() {
            "runtime/default" | "docker/default" | "unconfined" => {}
            text => match text.strip_prefix("localhost/") {
                Some(path) => profile.check_other(&path.into(), |path| path.local_descending_path()),
                None => profile.invalid("must be a valid seccomp profile"),
            },
        }
    }
    for (key, profile) in annotations.entries() {
        let Some(container) = key.strip_prefix(APP_ARMOR) else { continue };
        if !all_containers(spec).any(|one| one.at("name").text() == container) {
            profile.invalid_as(container, "container not found");
        }
        let text = profile.text();
        if !matches!(text, "" | "runtime/default" | "unconfined") && !text.starts_with("localhost/") {
            profile.invalid(format!("invalid AppArmor profile name: {text:?}"));
        }
    }
}

/// A number of 32 bits in its shortest form.
fn is_deletion_cost(text: &str) -> bool {
    let first = text.strip_prefix('-').unwrap_or(text);
    text.parse::<i32>().is_ok() && !text.starts_with('+') && (text == "0" || !first.starts_with('0'))
}

/// Profiles in annotations must equal those in fields.
pub(super) fn check_profiles_match<'a>(annotations: Field<'a>, spec: Field<'a>) {
    if annotations.len() == 0 {
        return;
    }
    let of_pod = spec.path("securityContext.seccompProfile");
    check_profile("seccomp", annotations.key(SECCOMP_POD), of_pod, of_pod);
    let find = |prefix: &str, name: &str| {
        annotations.entries().find(|(key, _)| key.strip_prefix(prefix) == Some(name)).map(|(_, value)| value)
    };
    for container in all_containers(spec) {
        let profile = container.path("securityContext.seccompProfile");
        if let Some(annotation) = find(SECCOMP_CONTAINER, container.at("name").text()) {
            check_profile("seccomp", annotation, profile, profile);
        }
    }
    if spec.path("os.name").text() == "windows" {
        return;
    }
    for container in all_containers(spec) {
        let own = container.path("securityContext.appArmorProfile");
        let profile = if own.is_present() { own } else { spec.path("securityContext.appArmorProfile") };
        if let Some(annotation) = find(APP_ARMOR, container.at("name").text()) {
            check_profile("apparmor", annotation, profile, own);
        }
    }
}

fn check_profile<'a>(word: &str, annotation: Field<'a>, profile: Field<'a>, shown: Field<'a>) {
    if !annotation.is_present() || !profile.is_present() {
        return;
    }
    let local = annotation.text().strip_prefix("localhost/");
    let matches = match profile.at("type").text() {
        "Unconfined" => annotation.text() == "unconfined",
        "RuntimeDefault" => {
            annotation.text() == "runtime/default" || word == "seccomp" && annotation.text() == "docker/default"
        }
        "Localhost" => local.is_some(),
        _ => return,
    };
    if !matches {
        shown.at("type").forbidden(format!("{word} type in annotation and field must match"));
    } else if local.is_some_and(|path| path != profile.at("localhostProfile").text()) {
        shown.at("localhostProfile").forbidden(format!("{word} profile in annotation and field must match"));
    }
}

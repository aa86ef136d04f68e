//! PodSecurity: pods must meet the pod security standards that the labels of their namespace choose.

mod checks;
mod policy;
mod settings;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use api::json::JsonObject;
use api::quote::Quoted;
use api::{GroupKind, GroupResource, Status};
use object::unstructured::{flag, metadata_string, nested_object, objects, text};
use serde_json::Value;

use self::checks::{PodView, details_of, violations};
use self::policy::{Level, LevelVersion, Policy};
pub use self::settings::PodSecuritySettings;
use super::Plugin;
use crate::attributes::Operation;
use crate::chain::{Environment, Write};
use crate::refusal::Refusal;
use crate::webhook::aggregate;

const NAMESPACES: GroupResource<&str> = GroupResource { group: "", resource: "namespaces" };
const PODS: GroupResource<&str> = GroupResource { group: "", resource: "pods" };
const ANNOTATION_PREFIX: &str = "pod-security.kubernetes.io/";
/// Pods of a namespace that a change of its level is checked against, as in Kubernetes.
const CHECKED_PODS_MAX: usize = 3000;

pub(super) static PLUGIN: Plugin = Plugin {
    name: "PodSecurity",
    operations: &[Operation::Create, Operation::Update],
    admit: None,
    validate: Some(validate),
};

fn validate(write: &mut Write<'_>, environment: &Environment<'_>) -> Result<(), Refusal> {
    let attributes = &write.attributes;
    match (attributes.resource.group, attributes.resource.resource, attributes.subresource) {
        ("", "namespaces", "") => validate_namespace(write, environment),
        ("", "pods", "exec" | "attach" | "binding" | "eviction" | "log" | "portforward" | "proxy" | "status") => Ok(()),
        ("", "pods", _) => validate_pod(write, environment),
        ("", "replicationcontrollers" | "podtemplates", "")
        | ("apps", "replicasets" | "deployments" | "statefulsets" | "daemonsets", "")
        | ("batch", "jobs" | "cronjobs", "") => validate_workload(write, environment),
        _ => Ok(()),
    }
}

fn release(environment: &Environment<'_>) -> u32 {
    environment.gates.release().minor().into()
}

/// Refuses labels that cannot be read, and warns about pods that a stricter level would refuse.
fn validate_namespace(write: &mut Write<'_>, environment: &Environment<'_>) -> Result<(), Refusal> {
    let Some(namespace) = &write.object else { return Ok(()) };
    let settings = &environment.settings.pod_security;
    let (policy, errors) = Policy::of_namespace(namespace, settings.defaults);
    let old = write.old_object.map(|old| Policy::of_namespace(old, settings.defaults));
    if !errors.is_empty() && old.as_ref().is_none_or(|(_, before)| *before != errors) {
        let kind = GroupKind { group: "", kind: "Namespace" };
        return Err(Status::invalid(kind, write.attributes.name, &errors).into());
    }
    let name = metadata_string(namespace, "name").to_owned();
    let exempt = settings.warning_of_exempt_namespace(&name, namespace, policy);
    let is_exempt = settings.is_exempt_namespace(&name);
    let Some((old, _)) = old else {
        write.notes.warn(exempt.unwrap_or_default());
        return Ok(());
    };
    let (new, before) = (policy.enforce, old.enforce);
    let is_relaxed = new.version == before.version && new.level <= before.level;
    if new == before || new.level == Level::Privileged || is_relaxed {
        return Ok(());
    }
    if is_exempt {
        write.notes.warn(exempt.unwrap_or_default());
        return Ok(());
    }
    for warning in warnings_about_pods(&name, new, environment)? {
        write.notes.warn(warning);
    }
    Ok(())
}

/// What a new level would refuse of the pods of a namespace, the same violations of several pods in one line.
fn warnings_about_pods(
    namespace: &str,
    enforce: LevelVersion,
    environment: &Environment<'_>,
) -> Result<Vec<String>, Refusal> {
    let mut pods = environment.view.list(PODS, namespace)?;
    pods.retain(|pod| !environment.settings.pod_security.is_exempt_class(text(pod, &["spec", "runtimeClassName"])));
    let pods = prioritized(pods);
    let mut names_by_reason: BTreeMap<String, (String, usize)> = BTreeMap::new();
    for pod in pods.iter().take(CHECKED_PODS_MAX) {
        let Some(view) = view_of(Some(pod)) else { continue };
        let found = violations(view, enforce, release(environment));
        if found.is_empty() {
            continue;
        }
        let reasons: Vec<&str> = found.iter().map(|violation| violation.reason).collect();
        let name = metadata_string(pod, "name");
        let (first, count) = names_by_reason.entry(reasons.join(", ")).or_insert_with(|| (name.to_owned(), 0));
        *count += 1;
        if name < first.as_str() {
            name.clone_into(first);
        }
    }
    let mut warnings = Vec::new();
    if pods.len() > CHECKED_PODS_MAX {
        warnings.push(format!(
            "new PodSecurity enforce level only checked against the first {CHECKED_PODS_MAX} of {} existing pods",
            pods.len()
        ));
    }
    if !names_by_reason.is_empty() {
        let (namespace, level) = (Quoted(namespace), enforce.to_string());
        let level = Quoted(&level);
        warnings
            .push(format!("existing pods in namespace {namespace} violate the new PodSecurity enforce level {level}"));
    }
    let mut lines: Vec<String> = names_by_reason
        .into_iter()
        .map(|(reasons, (name, count))| match count {
            1 => format!("{name}: {reasons}"),
            2 => format!("{name} (and 1 other pod): {reasons}"),
            count => format!("{name} (and {} other pods): {reasons}", count - 1),
        })
        .collect();
    lines.sort_unstable();
    warnings.append(&mut lines);
    Ok(warnings)
}

/// One pod of each controller before further ones of the same.
fn prioritized(pods: Vec<JsonObject>) -> Vec<JsonObject> {
    let mut seen = std::collections::BTreeSet::new();
    let (mut first, mut further) = (Vec::new(), Vec::new());
    for pod in pods {
        let controller = objects(&pod, &["metadata", "ownerReferences"])
            .find(|owner| flag(owner, &["controller"]))
            .map(|owner| text(owner, &["uid"]).to_owned());
        match controller {
            Some(uid) if !seen.insert(uid.clone()) => further.push(pod),
            Some(_) | None => first.push(pod),
        }
    }
    first.append(&mut further);
    first
}

fn validate_pod(write: &mut Write<'_>, environment: &Environment<'_>) -> Result<(), Refusal> {
    let namespace = write.attributes.namespace;
    if annotate_exemption(write, environment) {
        return Ok(());
    }
    let Some(found) = environment.view.get(NAMESPACES, "", namespace)? else {
        return Err(Refusal::internal(format!("failed to lookup namespace {}", Quoted(namespace))));
    };
    let (policy, errors) = Policy::of_namespace(&found, environment.settings.pod_security.defaults);
    if errors.is_empty() && policy.is_privileged() {
        write.notes.annotate(format!("{ANNOTATION_PREFIX}enforce-policy"), "privileged:latest");
        return Ok(());
    }
    if let (Operation::Update, Some(new), Some(old)) = (write.attributes.operation, &write.object, write.old_object)
        && !is_significant_update(new, old)
    {
        return Ok(());
    }
    let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
    evaluate(write, environment, &policy, &errors, None, true)
}

/// Only changes of images and new ephemeral containers matter; all else that the standards look at cannot change.
fn is_significant_update(new: &JsonObject, old: &JsonObject) -> bool {
    let images = |pod: &JsonObject, list: &str| -> Vec<String> {
        objects(pod, &["spec", list]).map(|container| text(container, &["image"]).to_owned()).collect()
    };
    let is_changed = |list| images(new, list) != images(old, list);
    let is_known = |container: &JsonObject| {
        objects(old, &["spec", "ephemeralContainers"])
            .any(|known| ["name", "image"].iter().all(|field| text(known, &[field]) == text(container, &[field])))
    };
    is_changed("containers")
        || is_changed("initContainers")
        || !objects(new, &["spec", "ephemeralContainers"]).all(is_known)
}

/// Workloads are never refused: their pods are. They get warnings and audit annotations.
fn validate_workload(write: &mut Write<'_>, environment: &Environment<'_>) -> Result<(), Refusal> {
    let namespace = write.attributes.namespace;
    if annotate_exemption(write, environment) {
        return Ok(());
    }
    let Some(found) = environment.view.get(NAMESPACES, "", namespace)? else { return Ok(()) };
    let (policy, errors) = Policy::of_namespace(&found, environment.settings.pod_security.defaults);
    if errors.is_empty() && policy.warn.level == Level::Privileged && policy.audit.level == Level::Privileged {
        return Ok(());
    }
    let path: &[&str] = match write.attributes.resource.resource {
        "podtemplates" => &["template"],
        "cronjobs" => &["spec", "jobTemplate", "spec", "template"],
        _ => &["spec", "template"],
    };
    let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
    evaluate(write, environment, &policy, &errors, Some(path), false)
}

/// True if the namespace or the user is exempt, which an audit annotation says.
fn annotate_exemption(write: &mut Write<'_>, environment: &Environment<'_>) -> bool {
    let settings = &environment.settings.pod_security;
    let exemption = match &write.attributes {
        attributes if settings.is_exempt_namespace(attributes.namespace) => "namespace",
        attributes if settings.is_exempt_user(&attributes.user.name) => "user",
        _ => return false,
    };
    write.notes.annotate(format!("{ANNOTATION_PREFIX}exempt"), exemption);
    true
}

/// The metadata and spec of a pod or template.
fn view_of(pod: Option<&JsonObject>) -> Option<PodView<'_>> {
    let pod = pod?;
    let spec = pod.get("spec").and_then(Value::as_object)?;
    Some(PodView { annotations: nested_object(pod, &["metadata", "annotations"]), spec })
}

fn evaluate(
    write: &mut Write<'_>,
    environment: &Environment<'_>,
    policy: &Policy,
    errors: &[String],
    template: Option<&[&str]>,
    is_enforced: bool,
) -> Result<(), Refusal> {
    let object = write.object.clone();
    let pod = match template {
        None => object.as_ref(),
        Some(path) => object.as_ref().and_then(|object| nested_object(object, path)),
    };
    let Some(view) = view_of(pod) else { return Ok(()) };
    if environment.settings.pod_security.is_exempt_class(text(view.spec, &["runtimeClassName"])) {
        write.notes.annotate(format!("{ANNOTATION_PREFIX}exempt"), "runtimeClass");
        return Ok(());
    }
    let mut annotate = |key: &str, value: String| write.notes.annotate(format!("{ANNOTATION_PREFIX}{key}"), value);
    if let Some(errors) = aggregate(errors) {
        annotate("error", format!("Failed to parse policy: {errors}"));
    }
    let details = |level_version| {
        let found = violations(view, level_version, release(environment));
        (!found.is_empty()).then(|| details_of(&found))
    };
    let violate = |level_version: LevelVersion, details: &str| {
        format!("violate PodSecurity {}: {details}", Quoted(&level_version.to_string()))
    };
    let mut refusal = None;
    if is_enforced {
        annotate("enforce-policy", policy.enforce.to_string());
        refusal = details(policy.enforce)
            .map(|details| format!("violates PodSecurity {}: {details}", Quoted(&policy.enforce.to_string())));
    }
    if let Some(details) = details(policy.audit) {
        annotate("audit-violations", format!("would {}", violate(policy.audit, &details)));
    }
    if let Some(reason) = refusal {
        let attributes = &write.attributes;
        let resource = attributes.resource.group_resource();
        return Err(Status::forbidden(resource, attributes.name, reason).into());
    }
    if let Some(details) = details(policy.warn) {
        write.notes.warn(format!("would {}", violate(policy.warn, &details)));
    }
    Ok(())
}

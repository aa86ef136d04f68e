//! What is valid in environment variables, and in references to fields of the pod.

use serde_json::Value;

use super::all_containers;
use crate::validation::Field;

/// Fields that an environment variable can have as its value.
const VARIABLE_FIELDS: [&str; 9] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];
/// Fields that a file of a volume can have as its content.
pub(super) const FILE_FIELDS: [&str; 5] =
    ["metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"];
/// Fields that the downward API knows at all.
const KNOWN_FIELDS: [&str; 13] = [
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.serviceAccountName",
    "spec.schedulerName",
    "status.phase",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
];
const RESOURCES: [&str; 6] = [
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];
const CPU_DIVISORS: [&str; 2] = ["1m", "1"];
const BYTE_DIVISORS: [&str; 13] = ["1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"];
const SOURCES: [&str; 5] = ["fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef"];

pub(super) fn check_variables(variables: Field<'_>) {
    variables.each(|variable| {
        let name = variable.at("name");
        if name.require_text() {
            check_variable_name(name);
        }
        if variable.at("valueFrom").is_present() {
            check_value_source(variable);
        }
    });
}

/// Before the relaxed rule a name was nearly an identifier.
fn check_variable_name(name: Field<'_>) {
    if name.is_enabled("RelaxedEnvironmentVariableValidation") {
        name.env_var_name();
    } else {
        name.strict_env_var_name();
    }
}

fn check_value_source(variable: Field<'_>) {
    let source = variable.at("valueFrom");
    if source.at("fieldRef").is_present() {
        check_field_reference(source.at("fieldRef"), &VARIABLE_FIELDS);
    }
    if source.at("resourceFieldRef").is_present() {
        check_resource_reference(source.at("resourceFieldRef"), false);
    }
    for reference in ["configMapKeyRef", "secretKeyRef"].iter().map(|name| source.at(name)) {
        if reference.is_present() {
            reference.at("name").dns_subdomain();
            if reference.at("key").require_text() {
                reference.at("key").config_key();
            }
        }
    }
    if source.at("fileKeyRef").is_present() {
        check_file_key(source.at("fileKeyRef"));
    }
    match SOURCES.iter().filter(|name| source.at(name).is_present()).count() {
        0 if source.is_enabled("EnvFiles") => source.invalid_as(
            "",
            "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`",
        ),
        0 => source
            .invalid_as("", "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef` or `secretKeyRef`"),
        _ if !variable.at("value").text().is_empty() => {
            source.invalid_as("", "may not be specified when `value` is not empty");
        }
        1 => {}
        _ => source.invalid_as("", "may not have more than one field specified at a time"),
    }
}

fn check_file_key(reference: Field<'_>) {
    if reference.at("key").require_text() {
        reference.at("key").env_var_name();
    }
    if reference.at("volumeName").require_text() {
        reference.at("volumeName").dns_label();
    }
    if reference.at("path").require_text() {
        reference.at("path").path_without_backsteps();
    }
}

/// A file with variables lies in an empty directory of the pod.
pub(super) fn check_file_key_volumes(spec: Field<'_>) {
    for variable in all_containers(spec).flat_map(|container| container.at("env").items()) {
        let reference = variable.path("valueFrom.fileKeyRef");
        if !reference.is_present() {
            continue;
        }
        let name = reference.at("volumeName");
        // Later volumes of a name replace earlier ones.
        let volume = spec.at("volumes").items().filter(|volume| volume.at("name").text() == name.text()).last();
        match volume {
            None => name.not_found(),
            Some(volume) if !volume.at("emptyDir").is_present() => {
                name.invalid_text("referenced volume must be of type emptyDir");
            }
            Some(_) => {}
        }
    }
}

pub(super) fn check_sources(sources: Field<'_>) {
    for source in sources.items() {
        if !source.at("prefix").text().is_empty() {
            check_variable_name(source.at("prefix"));
        }
        let references = ["configMapRef", "secretRef"].map(|name| source.at(name));
        for reference in references.into_iter().filter(|reference| reference.is_present()) {
            reference.at("name").require_object_name();
        }
        match references.into_iter().filter(|reference| reference.is_present()).count() {
            0 => sources.invalid_as("", "must specify one of: `configMapRef` or `secretRef`"),
            1 => {}
            _ => sources.invalid_as("", "may not have more than one field specified at a time"),
        }
    }
}

/// A field of the pod: `metadata.labels['app']`.
pub(super) fn check_field_reference(reference: Field<'_>, supported: &[&str]) {
    let path = reference.at("fieldPath");
    if !reference.at("apiVersion").require_text() || !path.require_text() {
        return;
    }
    if reference.at("apiVersion").text() != "v1" {
        let version = reference.at("apiVersion").text();
        return path.invalid(format!("error converting fieldPath: unsupported pod version: {version}"));
    }
    let subscript = path.text().strip_suffix("']").and_then(|text| text.split_once("['"));
    match subscript {
        Some(("metadata.annotations", key)) => {
            let key = Value::from(key.to_lowercase());
            reference.check_other(&key, |key| {
                key.qualified_name();
            });
        }
        Some(("metadata.labels", key)) => {
            let key = Value::from(key);
            reference.check_other(&key, |key| {
                key.qualified_name();
            });
        }
        Some(_) => {
            path.invalid(format!("error converting fieldPath: field label does not support subscript: {}", path.text()))
        }
        None if !KNOWN_FIELDS.contains(&path.text()) && !["status.podIPs", "spec.host"].contains(&path.text()) => {
            path.invalid(format!("error converting fieldPath: field label not supported: {}", path.text()));
        }
        None if !supported.contains(&path.text()) => path.unsupported(supported),
        None => {}
    }
}

/// An amount of a container, divided by a unit. A volume must name the container.
pub(super) fn check_resource_reference(reference: Field<'_>, is_volume: bool) {
    let resource = reference.at("resource");
    let is_huge_page =
        ["limits.hugepages-", "requests.hugepages-"].iter().any(|prefix| resource.text().starts_with(prefix));
    if is_volume && reference.at("containerName").text().is_empty() {
        reference.at("containerName").required("");
    } else if resource.require_text() && !RESOURCES.contains(&resource.text()) && !is_huge_page {
        resource.unsupported(&RESOURCES);
    }
    let divisor = reference.at("divisor");
    if divisor.quantity_sign().is_eq() {
        return;
    }
    let (allowed, name): (&[&str], _) = match resource.text() {
        "limits.cpu" | "requests.cpu" => (&CPU_DIVISORS, "cpu"),
        "limits.memory" | "requests.memory" => (&BYTE_DIVISORS, "memory"),
        "limits.ephemeral-storage" | "requests.ephemeral-storage" => (&BYTE_DIVISORS, "local ephemeral storage"),
        _ if is_huge_page => (&BYTE_DIVISORS, "hugepages"),
        _ => return,
    };
    if !allowed.contains(&&*divisor.quantity_text()) {
        let values = if name == "cpu" { allowed.join(" and ") } else { allowed.join(", ") };
        divisor.invalid_as(
            resource.text(),
            format!("only divisor's values {values} are supported with the {name} resource"),
        );
    }
}

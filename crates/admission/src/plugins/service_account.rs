//! ServiceAccount: every pod runs as a service account of its namespace and gets its token.

use api::GroupResource;
use api::json::JsonObject;
use object::unstructured::{get, metadata_string, nested_object_mut, objects, text};
use serde_json::{Value, json};

use super::Plugin;
use crate::attributes::Operation;
use crate::chain::{Environment, Write};
use crate::refusal::Refusal;

const SERVICE_ACCOUNTS: GroupResource<&str> = GroupResource { group: "", resource: "serviceaccounts" };
const DEFAULT_NAME: &str = "default";
const MIRROR_POD: &str = "kubernetes.io/config.mirror";
const ENFORCE_SECRETS: &str = "kubernetes.io/enforce-mountable-secrets";
const TOKEN_VOLUME_PREFIX: &str = "kube-api-access-";
const TOKEN_MOUNT_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// The lifetime that tells the token issuer to extend the token if its setting says so.
const TOKEN_SECONDS: i64 = 3607;

pub(super) static PLUGIN: Plugin = Plugin {
    name: "ServiceAccount",
    operations: &[Operation::Create, Operation::Update],
    admit: Some(admit),
    validate: Some(validate),
};

fn admit(write: &mut Write<'_>, environment: &Environment<'_>) -> Result<(), Refusal> {
    if !write.attributes.is_object("", "pods") || write.attributes.operation != Operation::Create {
        return Ok(());
    }
    let Some(pod) = &mut write.object else { return Ok(()) };
    if is_mirror_pod(pod) {
        return validate(write, environment);
    }
    let spec = nested_object_mut(pod, "spec");
    if text(spec, &["serviceAccountName"]).is_empty() {
        spec.insert("serviceAccountName".to_owned(), DEFAULT_NAME.into());
        spec.insert("serviceAccount".to_owned(), DEFAULT_NAME.into());
    }
    let name = text(spec, &["serviceAccountName"]).to_owned();
    let account = find_account(write.attributes.namespace, &name, environment)?;
    let Some(pod) = &mut write.object else { return Ok(()) };
    let spec = nested_object_mut(pod, "spec");
    let automount = |object: &JsonObject| object.get("automountServiceAccountToken").and_then(Value::as_bool);
    if automount(spec).or_else(|| automount(&account)).unwrap_or(true) {
        mount_token(spec, environment.random);
    }
    if spec.get("imagePullSecrets").and_then(Value::as_array).is_none_or(Vec::is_empty) {
        let names = objects(&account, &["imagePullSecrets"]).map(|secret| json!({"name": text(secret, &["name"])}));
        let secrets: Vec<Value> = names.collect();
        if !secrets.is_empty() {
            spec.insert("imagePullSecrets".to_owned(), secrets.into());
        }
    }
    validate(write, environment)
}

fn validate(write: &mut Write<'_>, environment: &Environment<'_>) -> Result<(), Refusal> {
    let attributes = &write.attributes;
    let is_ephemeral = match (attributes.operation, attributes.subresource) {
        (Operation::Create, "") => false,
        (Operation::Update, "ephemeralcontainers") => true,
        _ => return Ok(()),
    };
    let Some(pod) = write.object.as_ref().filter(|_| attributes.is_resource("", "pods")) else { return Ok(()) };
    if !is_ephemeral && is_mirror_pod(pod) {
        return check_mirror_pod(pod);
    }
    let name = text(pod, &["spec", "serviceAccountName"]);
    if name.is_empty() {
        let (namespace, pod) = (attributes.namespace, metadata_string(pod, "name"));
        return Err(Refusal::forbidden(format!("no service account specified for pod {namespace}/{pod}")));
    }
    let account = find_account(attributes.namespace, name, environment)?;
    let enforce = get(&account, &["metadata", "annotations", ENFORCE_SECRETS]).and_then(Value::as_str);
    if !enforce.is_some_and(|value| matches!(value, "1" | "t" | "T" | "TRUE" | "true" | "True")) {
        return Ok(());
    }
    let kinds: &[_] = if is_ephemeral {
        &[("ephemeralContainers", "ephemeral container")]
    } else {
        &[("initContainers", "init container"), ("containers", "container")]
    };
    check_secrets(pod, &account, kinds, is_ephemeral).map_err(Refusal::Forbidden)
}

fn find_account(namespace: &str, name: &str, environment: &Environment<'_>) -> Result<JsonObject, Refusal> {
    environment.view.get(SERVICE_ACCOUNTS, namespace, name)?.ok_or_else(|| {
        Refusal::forbidden(format!(
            "error looking up service account {namespace}/{name}: serviceaccount \"{name}\" not found"
        ))
    })
}

fn is_mirror_pod(pod: &JsonObject) -> bool {
    get(pod, &["metadata", "annotations", MIRROR_POD]).is_some()
}

fn check_mirror_pod(pod: &JsonObject) -> Result<(), Refusal> {
    if !text(pod, &["spec", "serviceAccountName"]).is_empty() {
        return Err(Refusal::forbidden("a mirror pod may not reference service accounts"));
    }
    if references_secrets(pod) {
        return Err(Refusal::forbidden("a mirror pod may not reference secrets"));
    }
    let has_token = objects(pod, &["spec", "volumes"])
        .flat_map(|volume| objects(volume, &["projected", "sources"]))
        .any(|source| source.contains_key("serviceAccountToken"));
    if has_token {
        return Err(Refusal::forbidden("a mirror pod may not use ServiceAccountToken volume projections"));
    }
    Ok(())
}

/// True if a pod names any secret: for pulling images, in environments or in volumes.
fn references_secrets(pod: &JsonObject) -> bool {
    let names = |object: &JsonObject, path: &[&str]| !text(object, path).is_empty();
    let in_containers = ["initContainers", "containers", "ephemeralContainers"].iter().any(|list| {
        objects(pod, &["spec", list]).any(|container| {
            objects(container, &["envFrom"]).any(|source| names(source, &["secretRef", "name"]))
                || objects(container, &["env"]).any(|variable| names(variable, &["valueFrom", "secretKeyRef", "name"]))
        })
    });
    let in_volumes = objects(pod, &["spec", "volumes"]).any(|volume| {
        const REFERENCES: &[&[&str]] = &[
            &["azureFile", "secretName"],
            &["cephfs", "secretRef", "name"],
            &["cinder", "secretRef", "name"],
            &["flexVolume", "secretRef", "name"],
            &["rbd", "secretRef", "name"],
            &["secret", "secretName"],
            &["scaleIO", "secretRef", "name"],
            &["iscsi", "secretRef", "name"],
            &["storageos", "secretRef", "name"],
            &["csi", "nodePublishSecretRef", "name"],
        ];
        REFERENCES.iter().any(|path| names(volume, path))
            || objects(volume, &["projected", "sources"]).any(|source| names(source, &["secret", "name"]))
    });
    objects(pod, &["spec", "imagePullSecrets"]).any(|secret| names(secret, &["name"])) || in_containers || in_volumes
}

/// Requires that the service account lists every secret that the pod uses.
fn check_secrets(
    pod: &JsonObject,
    account: &JsonObject,
    container_lists: &[(&str, &str)],
    only_containers: bool,
) -> Result<(), String> {
    let account_name = metadata_string(account, "name");
    let is_listed = |list: &str, name: &str| objects(account, &[list]).any(|secret| text(secret, &["name"]) == name);
    let missing = format!("is not allowed because service account {account_name} does not reference that");
    if !only_containers {
        for volume in objects(pod, &["spec", "volumes"]).filter(|volume| volume.contains_key("secret")) {
            let name = text(volume, &["secret", "secretName"]);
            if !is_listed("secrets", name) {
                return Err(format!("volume with secret.secretName=\"{name}\" {missing} secret"));
            }
        }
    }
    for (list, shown) in container_lists {
        for container in objects(pod, &["spec", list]) {
            let container_name = text(container, &["name"]);
            for variable in objects(container, &["env"]) {
                if get(variable, &["valueFrom", "secretKeyRef"]).is_none() {
                    continue;
                }
                let secret = text(variable, &["valueFrom", "secretKeyRef", "name"]);
                if !is_listed("secrets", secret) {
                    let name = text(variable, &["name"]);
                    return Err(format!(
                        "{shown} {container_name} with envVar {name} referencing secret.secretName=\"{secret}\" {missing} secret"
                    ));
                }
            }
            for source in objects(container, &["envFrom"]).filter(|source| source.contains_key("secretRef")) {
                let secret = text(source, &["secretRef", "name"]);
                if !is_listed("secrets", secret) {
                    return Err(format!(
                        "{shown} {container_name} with envFrom referencing secret.secretName=\"{secret}\" {missing} secret"
                    ));
                }
            }
        }
    }
    let pull_secrets = objects(pod, &["spec", "imagePullSecrets"]).enumerate().filter(|_| !only_containers);
    for (index, secret) in pull_secrets {
        let name = text(secret, &["name"]);
        if !is_listed("imagePullSecrets", name) {
            return Err(format!("imagePullSecrets[{index}].name=\"{name}\" {missing} imagePullSecret"));
        }
    }
    Ok(())
}

/// Mounts a projected token into all containers that do not mount something at its path.
fn mount_token(spec: &mut JsonObject, random: u64) {
    let existing = objects(spec, &["volumes"])
        .map(|volume| text(volume, &["name"]))
        .find(|name| name.starts_with(TOKEN_VOLUME_PREFIX))
        .map(str::to_owned);
    let name = existing.clone().unwrap_or_else(|| format!("{TOKEN_VOLUME_PREFIX}{}", suffix(random)));
    let mut is_mounted = false;
    for list in ["initContainers", "containers"] {
        let Some(Value::Array(containers)) = spec.get_mut(list) else { continue };
        for container in containers.iter_mut().filter_map(Value::as_object_mut) {
            if objects(container, &["volumeMounts"]).any(|mount| text(mount, &["mountPath"]) == TOKEN_MOUNT_PATH) {
                continue;
            }
            let mount = json!({"name": name, "readOnly": true, "mountPath": TOKEN_MOUNT_PATH});
            if let Value::Array(mounts) = container.entry("volumeMounts").or_insert_with(|| json!([])) {
                mounts.push(mount);
            }
            is_mounted = true;
        }
    }
    if existing.is_some() || !is_mounted {
        return;
    }
    let volume = json!({"name": name, "projected": {"defaultMode": 0o644, "sources": [
        {"serviceAccountToken": {"expirationSeconds": TOKEN_SECONDS, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [
            {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}},
        ]}},
    ]}});
    if let Value::Array(volumes) = spec.entry("volumes").or_insert_with(|| json!([])) {
        volumes.push(volume);
    }
}

/// Five characters of the alphabet of generated names.
fn suffix(mut random: u64) -> String {
    const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
    let mut next = || {
        let character = ALPHABET[usize::try_from(random % 27).unwrap_or_default()];
        random /= 27;
        char::from(character)
    };
    std::iter::repeat_with(&mut next).take(5).collect()
}

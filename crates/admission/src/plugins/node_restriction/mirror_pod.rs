//! Mirror pods, the only ones that a kubelet creates.

use api::Status;
use api::json::JsonObject;
use api::quote::Quoted;
use object::unstructured::{flag, get, metadata_string, objects, text};
use serde_json::Value;

use super::{NODES, require};
use crate::chain::{Environment, Write};
use crate::refusal::Refusal;

const MIRROR_ANNOTATION: &str = "kubernetes.io/config.mirror";
/// Sources of volumes that name no API object.
const PLAIN_VOLUMES: [&str; 22] = [
    "awsElasticBlockStore",
    "azureDisk",
    "cephfs",
    "cinder",
    "downwardAPI",
    "emptyDir",
    "fc",
    "flexVolume",
    "flocker",
    "gcePersistentDisk",
    "gitRepo",
    "hostPath",
    "image",
    "iscsi",
    "nfs",
    "photonPersistentDisk",
    "portworxVolume",
    "quobyte",
    "rbd",
    "scaleIO",
    "storageos",
    "vsphereVolume",
];
/// Sources of volumes, and what they name.
const NAMING_VOLUMES: [(&str, &str); 5] = [
    ("csi", "csidrivers (via CSI volumes)"),
    ("glusterfs", "endpoints (via glusterFS volumes)"),
    ("persistentVolumeClaim", "persistentvolumeclaims"),
    ("ephemeral", "persistentvolumeclaims (via ephemeral volumes)"),
    ("azureFile", "secrets (via azureFile volumes)"),
];
const NAMING_PROJECTIONS: [(&str, &str); 3] = [
    ("serviceAccountToken", "serviceaccounts (via projected volumes)"),
    ("clusterTrustBundle", "clustertrustbundles"),
    ("podCertificate", "podcertificates"),
];

pub(super) fn admit_create(node: &str, write: &Write<'_>, environment: &Environment<'_>) -> Result<(), Refusal> {
    let Some(pod) = &write.object else { return Ok(()) };
    let name = Quoted(node);
    let is_mirror = get(pod, &["metadata", "annotations", MIRROR_ANNOTATION]).is_some();
    let annotation = Quoted(MIRROR_ANNOTATION);
    require(is_mirror, format!("pod does not have {annotation} annotation, node {name} can only create mirror pods"))?;
    let is_own = text(pod, &["spec", "nodeName"]) == node;
    require(is_own, format!("node {name} can only create pods with spec.nodeName set to itself"))?;
    let owners: Vec<&JsonObject> = objects(pod, &["metadata", "ownerReferences"]).collect();
    let single = format!("node {name} can only create pods with a single owner reference set to itself");
    require(owners.len() <= 1, single)?;
    let is_owner = |owner: &&&JsonObject| {
        (text(owner, &["apiVersion"]), text(owner, &["kind"]), text(owner, &["name"])) == ("v1", "Node", node)
    };
    let Some(owner) = owners.first().filter(is_owner) else {
        let text = format!("node {name} can only create pods with an owner reference set to itself");
        return Err(Refusal::Forbidden(text));
    };
    let controller = format!("node {name} can only create pods with a controller owner reference set to itself");
    require(flag(owner, &["controller"]), controller)?;
    let blocks = flag(owner, &["blockOwnerDeletion"]);
    require(!blocks, format!("node {name} must not set blockOwnerDeletion on an owner reference"))?;
    let Some(found) = environment.view.get(NODES, "", node)? else {
        return Err(Status::not_found(NODES, node).into());
    };
    let (expected, actual) = (text(owner, &["uid"]), metadata_string(&found, "uid"));
    require(expected == actual, format!("node {node} UID mismatch: expected {expected} got {actual}"))?;
    match referenced(pod) {
        Ok(None) => Ok(()),
        Ok(Some(resource)) => {
            Err(Refusal::Forbidden(format!("node {name} can not create pods that reference {resource}")))
        }
        Err(error) => Err(Refusal::Forbidden(format!("error checking mirror pod for API references: {error}"))),
    }
}

/// What kind of API objects a pod names; `Err` if that is not known.
fn referenced(pod: &JsonObject) -> Result<Option<&'static str>, String> {
    if !text(pod, &["spec", "serviceAccountName"]).is_empty() {
        return Ok(Some("serviceaccounts"));
    }
    let spec = pod.get("spec").unwrap_or(&Value::Null);
    let has_pull_secrets = objects(pod, &["spec", "imagePullSecrets"]).next().is_some();
    let secrets = ["secretRef", "secretKeyRef", "nodePublishSecretRef", "secret", "secretName"];
    if has_pull_secrets || has_key(spec, &secrets) {
        return Ok(Some("secrets"));
    }
    if has_key(spec, &["configMapRef", "configMapKeyRef", "configMap"]) {
        return Ok(Some("configmaps"));
    }
    if objects(pod, &["spec", "resourceClaims"]).next().is_some() {
        return Ok(Some("resourceclaims"));
    }
    for volume in objects(pod, &["spec", "volumes"]) {
        if PLAIN_VOLUMES.iter().any(|source| volume.contains_key(*source)) {
            continue;
        }
        let name = Quoted(text(volume, &["name"]));
        if let Some((_, resource)) = NAMING_VOLUMES.iter().find(|(source, _)| volume.contains_key(*source)) {
            return Ok(Some(resource));
        }
        if !volume.contains_key("projected") {
            return Err(format!("unknown volume type for volume  {name}"));
        }
        for source in objects(volume, &["projected", "sources"]) {
            if let Some((_, resource)) = NAMING_PROJECTIONS.iter().find(|(kind, _)| source.contains_key(*kind)) {
                return Ok(Some(resource));
            }
            if !source.contains_key("downwardAPI") {
                return Err(format!("unknown source for projected volume {name}"));
            }
        }
    }
    Ok(None)
}

/// True if a value has a field of one of the names at any depth.
fn has_key(value: &Value, names: &[&str]) -> bool {
    match value {
        Value::Object(object) => {
            object.iter().any(|(name, value)| names.contains(&name.as_str()) || has_key(value, names))
        }
        Value::Array(items) => items.iter().any(|item| has_key(item, names)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

//! NodeRestriction: a kubelet may change only its own node, the pods on it, and what belongs to them.

mod mirror_pod;
mod token;

use std::collections::BTreeSet;

use access::User;
use api::json::JsonObject;
use api::quote::Quoted;
use api::{GroupResource, Status};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use object::unstructured::{get, metadata_string, nested_object, nested_object_mut, text};
use serde_json::Value;

use super::{Plugin, certificates};
use crate::attributes::Operation;
use crate::chain::{Environment, Write};
use crate::refusal::Refusal;

const PODS: GroupResource<&str> = GroupResource { group: "", resource: "pods" };
const NODES: GroupResource<&str> = GroupResource { group: "", resource: "nodes" };
const USER_PREFIX: &str = "system:node:";
const NODES_GROUP: &str = "system:nodes";
const LEASE_NAMESPACE: &str = "kube-node-lease";
const RESTRICTED_LABELS: &str = "node-restriction.kubernetes.io";
/// Labels of Kubernetes that a kubelet sets.
const KUBELET_LABELS: [&str; 11] = [
    "kubernetes.io/hostname",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "beta.kubernetes.io/instance-type",
    "node.kubernetes.io/instance-type",
    "kubernetes.io/os",
    "kubernetes.io/arch",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/arch",
];
const KUBELET_LABEL_DOMAINS: [&str; 2] = ["kubelet.kubernetes.io", "node.kubernetes.io"];
const KUBELET_SIGNERS: [&str; 2] = ["kubernetes.io/kubelet-serving", "kubernetes.io/kube-apiserver-client-kubelet"];

pub(super) static PLUGIN: Plugin = Plugin {
    name: "NodeRestriction",
    operations: &[Operation::Create, Operation::Update, Operation::Delete],
    admit: Some(admit),
    validate: None,
};

/// The name of the node that a user is; `None` for users that are no nodes.
fn node_of(user: &User) -> Option<&str> {
    user.name.strip_prefix(USER_PREFIX).filter(|_| user.groups.iter().any(|group| group == NODES_GROUP))
}

fn admit(write: &mut Write<'_>, environment: &Environment<'_>) -> Result<(), Refusal> {
    let attributes = &write.attributes;
    let Some(node) = node_of(attributes.user) else { return Ok(()) };
    if node.is_empty() {
        let user = Quoted(&attributes.user.name);
        return Err(Refusal::forbidden(format!("could not determine node from user {user}")));
    }
    match (attributes.resource.group, attributes.resource.resource, attributes.subresource) {
        ("", "pods", "") => admit_pod(node, write, environment),
        ("", "pods", "status") => admit_pod_status(node, write),
        ("", "pods", "eviction") => admit_eviction(node, write, environment),
        ("", "pods", other) => Err(Refusal::Forbidden(format!(
            "unexpected pod subresource {}, only 'status' and 'eviction' are allowed",
            Quoted(other)
        ))),
        ("", "nodes", _) => admit_node(node, write),
        ("", "persistentvolumeclaims", "status") => admit_claim_status(node, write, environment),
        ("", "persistentvolumeclaims", _) => Err(Refusal::forbidden("may only update PVC status")),
        ("", "serviceaccounts", "token") => token::admit(node, write, environment),
        ("coordination.k8s.io", "leases", _) => admit_lease(node, write),
        ("storage.k8s.io", "csinodes", _) => {
            require(attributes.name == node, "can only access CSINode with the same name as the requesting node")
        }
        ("resource.k8s.io", "resourceslices", _) => admit_resource_slice(node, write),
        ("certificates.k8s.io", "podcertificaterequests", _) => {
            let is_enabled = environment.gates.enabled("PodCertificateRequest");
            let unchecked = "this server does not check requests of nodes for pod certificates";
            let reason = if is_enabled { unchecked } else { "PodCertificateRequest feature gate is disabled" };
            Err(Refusal::forbidden(reason))
        }
        ("certificates.k8s.io", "certificatesigningrequests", _) => admit_signing_request(node, write, environment),
        _ => Ok(()),
    }
}

fn require(is_allowed: bool, reason: impl Into<String>) -> Result<(), Refusal> {
    if is_allowed { Ok(()) } else { Err(Refusal::forbidden(reason)) }
}

fn unexpected_operation(write: &Write<'_>) -> Refusal {
    Refusal::Forbidden(format!("unexpected operation {}", Quoted(write.attributes.operation.as_str())))
}

/// The pod of a name; the refusal of a missing one is a plain 404.
fn existing_pod(write: &Write<'_>, environment: &Environment<'_>, name: &str) -> Result<JsonObject, Refusal> {
    let pod = environment.view.get(PODS, write.attributes.namespace, name)?;
    pod.ok_or_else(|| Status::not_found(PODS, name).into())
}

fn admit_pod(node: &str, write: &Write<'_>, environment: &Environment<'_>) -> Result<(), Refusal> {
    match write.attributes.operation {
        Operation::Create => mirror_pod::admit_create(node, write, environment),
        Operation::Delete => {
            let is_own = write.old_object.is_some_and(|pod| text(pod, &["spec", "nodeName"]) == node);
            let node = Quoted(node);
            require(is_own, format!("node {node} can only delete pods with spec.nodeName set to itself"))
        }
        other @ (Operation::Update | Operation::Connect) => Err(Refusal::Forbidden(format!(
            "unexpected operation {}, node {} can only create and delete mirror pods",
            Quoted(other.as_str()),
            Quoted(node)
        ))),
    }
}

fn admit_pod_status(node: &str, write: &Write<'_>) -> Result<(), Refusal> {
    let (Operation::Update, Some(old), Some(new)) = (write.attributes.operation, write.old_object, &write.object)
    else {
        return Err(unexpected_operation(write));
    };
    let node_name = Quoted(node);
    let is_own = text(old, &["spec", "nodeName"]) == node;
    require(is_own, format!("node {node_name} can only update pod status for pods with spec.nodeName set to itself"))?;
    let is_same = |path: &[&str]| get(old, path) == get(new, path);
    let is_labelled = |pod| nested_object(pod, &["metadata", "labels"]).is_some_and(|labels| !labels.is_empty());
    let has_same_labels = is_same(&["metadata", "labels"]) || !(is_labelled(old) || is_labelled(new));
    require(has_same_labels, format!("node {node_name} cannot update labels through pod status"))?;
    let has_same_claims = is_same(&["status", "resourceClaimStatuses"]);
    require(has_same_claims, format!("node {node_name} cannot update resource claim statues"))?;
    let has_same_extended = is_same(&["status", "extendedResourceClaimStatus"]);
    require(has_same_extended, format!("node {node_name} cannot update extended resource claim status"))
}

fn admit_eviction(node: &str, write: &Write<'_>, environment: &Environment<'_>) -> Result<(), Refusal> {
    if write.attributes.operation != Operation::Create {
        return Err(unexpected_operation(write));
    }
    let name = match (write.attributes.name, &write.object) {
        ("", Some(eviction)) => metadata_string(eviction, "name"),
        (name, _) => name,
    };
    require(!name.is_empty(), "could not determine pod from request data")?;
    let pod = existing_pod(write, environment, name)?;
    let is_own = text(&pod, &["spec", "nodeName"]) == node;
    require(is_own, format!("node {node} can only evict pods with spec.nodeName set to itself"))
}

/// Only the capacity and the conditions of a claim, and what its expansion needs.
fn admit_claim_status(node: &str, write: &Write<'_>, environment: &Environment<'_>) -> Result<(), Refusal> {
    let (Operation::Update, Some(old), Some(new)) = (write.attributes.operation, write.old_object, &write.object)
    else {
        return Err(unexpected_operation(write));
    };
    let fixed = |claim: &JsonObject| {
        let mut claim = claim.clone();
        let status = nested_object_mut(&mut claim, "status");
        let recovers = environment.gates.enabled("RecoverVolumeExpansionFailure");
        let expansion: &[&str] = if recovers { &["allocatedResources", "allocatedResourceStatuses"] } else { &[] };
        for field in ["capacity", "conditions"].iter().chain(expansion) {
            status.remove(*field);
        }
        let metadata = nested_object_mut(&mut claim, "metadata");
        ["resourceVersion", "managedFields"].iter().for_each(|field| drop(metadata.remove(*field)));
        claim
    };
    let node = Quoted(node);
    require(
        fixed(old) == fixed(new),
        format!("node {node} is not allowed to update fields other than status.quantity and status.conditions"),
    )
}

fn admit_node(node: &str, write: &Write<'_>) -> Result<(), Refusal> {
    let (name, requested) = (Quoted(node), Quoted(write.attributes.name));
    require(write.attributes.name == node, format!("node {name} is not allowed to modify node {requested}"))?;
    let Some(new) = &write.object else { return Ok(()) };
    let source = |object| get(object, &["spec", "configSource"]).filter(|value| !value.is_null());
    match (write.attributes.operation, write.old_object) {
        (Operation::Create, _) => {
            let has_source = source(new).is_some();
            require(!has_source, format!("node {name} is not allowed to create pods with a non-nil configSource"))?;
            let labels = forbidden_labels(Some(new), None).join(", ");
            require(labels.is_empty(), format!("node {name} is not allowed to set the following labels: {labels}"))
        }
        (Operation::Update, Some(old)) => {
            let has_new_source = source(new).is_some() && source(new) != source(old);
            let text = format!("node {name} is not allowed to update configSource to a new non-nil configSource");
            require(!has_new_source, text)?;
            let list = |object, path: &[&str]| get(object, path).and_then(Value::as_array).cloned().unwrap_or_default();
            let is_same = |path: &[&str]| list(old, path) == list(new, path);
            require(is_same(&["spec", "taints"]), format!("node {name} is not allowed to modify taints"))?;
            let has_same_owners = is_same(&["metadata", "ownerReferences"]);
            require(has_same_owners, format!("node {name} is not allowed to modify ownerReferences"))?;
            let labels = forbidden_labels(Some(new), Some(old)).join(", ");
            require(labels.is_empty(), format!("is not allowed to modify labels: {labels}"))
        }
        _ => Ok(()),
    }
}

/// The changed labels that a kubelet may not change, sorted.
fn forbidden_labels(new: Option<&JsonObject>, old: Option<&JsonObject>) -> Vec<String> {
    let [new, old] = [new, old].map(|node| node.and_then(|node| nested_object(node, &["metadata", "labels"])));
    let keys: BTreeSet<&String> = new.into_iter().chain(old).flat_map(JsonObject::keys).collect();
    let value = |labels: Option<&JsonObject>, key: &str| labels.and_then(|labels| labels.get(key)).cloned();
    let is_changed = |key: &&&String| value(new, key) != value(old, key);
    keys.iter().filter(is_changed).filter(|key| is_forbidden_label(key)).map(|key| (**key).clone()).collect()
}

fn is_forbidden_label(key: &str) -> bool {
    let domain = key.split_once('/').map_or("", |(domain, _)| domain);
    let is_within =
        |parent: &str| domain == parent || domain.strip_suffix(parent).is_some_and(|rest| rest.ends_with('.'));
    let is_kubelet = KUBELET_LABELS.contains(&key) || KUBELET_LABEL_DOMAINS.iter().any(|parent| is_within(parent));
    is_within(RESTRICTED_LABELS) || (is_within("kubernetes.io") || is_within("k8s.io")) && !is_kubelet
}

fn admit_lease(node: &str, write: &Write<'_>) -> Result<(), Refusal> {
    let namespace = Quoted(LEASE_NAMESPACE);
    let is_node_lease = write.attributes.namespace == LEASE_NAMESPACE;
    require(is_node_lease, format!("can only access leases in the {namespace} system namespace"))?;
    let is_own = write.attributes.name == node;
    require(is_own, "can only access node lease with the same name as the requesting node")
}

fn admit_resource_slice(node: &str, write: &Write<'_>) -> Result<(), Refusal> {
    let (verb, slice) = match write.attributes.operation {
        Operation::Create => ("create", write.object.as_ref()),
        Operation::Delete => ("delete", write.old_object),
        Operation::Update | Operation::Connect => return Ok(()),
    };
    let is_own = slice.is_some_and(|slice| text(slice, &["spec", "nodeName"]) == node);
    require(is_own, format!("can only {verb} ResourceSlice with the same NodeName as the requesting node"))
}

fn admit_signing_request(node: &str, write: &Write<'_>, environment: &Environment<'_>) -> Result<(), Refusal> {
    if environment.gates.enabled("AllowInsecureKubeletCertificateSigningRequests")
        || write.attributes.operation != Operation::Create
        || !write.attributes.subresource.is_empty()
    {
        return Ok(());
    }
    let Some(request) = &write.object else { return Ok(()) };
    if !KUBELET_SIGNERS.contains(&text(request, &["spec", "signerName"])) {
        return Ok(());
    }
    let pem = BASE64_STANDARD.decode(text(request, &["spec", "request"])).unwrap_or_default();
    let subject = certificates::requested_subject(&pem)
        .map_err(|error| Refusal::forbidden(format!("unable to parse csr: {error}")))?;
    let is_own = subject.common_name.strip_prefix(USER_PREFIX) == Some(node);
    require(is_own, format!("can only create a node CSR with CN=system:node:{node}"))
}

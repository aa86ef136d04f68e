//! Tokens of service accounts, which a kubelet requests for the pods of its node.

use access::ResourceAttributes;
use api::GroupResource;
use api::json::JsonObject;
use api::quote::Quoted;
use object::unstructured::{get, metadata_string, nested_object, objects, text, texts};
use serde_json::Value;

use super::{existing_pod, require};
use crate::attributes::Operation;
use crate::chain::{Environment, Write};
use crate::refusal::Refusal;

const CLAIMS: GroupResource<&str> = GroupResource { group: "", resource: "persistentvolumeclaims" };
const VOLUMES: GroupResource<&str> = GroupResource { group: "", resource: "persistentvolumes" };
const DRIVERS: GroupResource<&str> = GroupResource { group: "storage.k8s.io", resource: "csidrivers" };
const VERB: &str = "request-serviceaccounts-token-audience";

pub(super) fn admit(node: &str, write: &Write<'_>, environment: &Environment<'_>) -> Result<(), Refusal> {
    let (Operation::Create, Some(request)) = (write.attributes.operation, &write.object) else { return Ok(()) };
    let bound = nested_object(request, &["spec", "boundObjectRef"]);
    let field = |name: &str| bound.map_or("", |bound| text(bound, &[name]));
    let is_bound = (field("apiVersion"), field("kind")) == ("v1", "Pod") && !field("name").is_empty();
    require(is_bound, "node requested token not bound to a pod")?;
    let uid = field("uid");
    require(!uid.is_empty(), "node requested token with a pod binding without a uid")?;
    let pod = existing_pod(write, environment, field("name"))?;
    let recreated = format!(
        "the UID in the bound object reference ({uid}) does not match the UID in record. The object might have been deleted and then recreated"
    );
    require(metadata_string(&pod, "uid") == uid, recreated)?;
    let is_own = text(&pod, &["spec", "nodeName"]) == node;
    require(is_own, "node requested token bound to a pod scheduled on a different node")?;
    if !environment.gates.enabled("ServiceAccountNodeAudienceRestriction") {
        return Ok(());
    }
    let audiences: Vec<&str> = texts(request, &["spec", "audiences"]).collect();
    require(audiences.len() <= 1, "node may only request 0 or 1 audiences")?;
    check_audience(write, environment, &pod, audiences.first().copied().unwrap_or_default())
}

/// The audience must be one of the pod's volumes, or the node must be allowed to request it.
fn check_audience(
    write: &Write<'_>,
    environment: &Environment<'_>,
    pod: &JsonObject,
    audience: &str,
) -> Result<(), Refusal> {
    for volume in objects(pod, &["spec", "volumes"]) {
        let is_projected = objects(volume, &["projected", "sources"])
            .filter_map(|source| nested_object(source, &["serviceAccountToken"]))
            .any(|token| text(token, &["audience"]) == audience);
        if is_projected || driver_has_audience(&driver_of(volume, pod, environment)?, environment, audience)? {
            return Ok(());
        }
    }
    let attributes = &write.attributes;
    let check = ResourceAttributes {
        version: "v1",
        resource: audience,
        namespace: attributes.namespace,
        name: attributes.name,
        ..ResourceAttributes::default()
    };
    let (audience, user) = (Quoted(audience), &attributes.user.name);
    require(
        environment.authorization.is_allowed(attributes.user, &check, VERB),
        format!(
            "audience {audience} not found in pod spec volume, {user} is not authorized to request tokens for this audience"
        ),
    )
}

/// The CSI driver of a volume; empty if it has none. Volumes of in-tree drivers are not translated.
fn driver_of(volume: &JsonObject, pod: &JsonObject, environment: &Environment<'_>) -> Result<String, Refusal> {
    if let Some(csi) = nested_object(volume, &["csi"]) {
        return Ok(text(csi, &["driver"]).to_owned());
    }
    let claim = match get(volume, &["ephemeral", "volumeClaimTemplate"]) {
        Some(_) => format!("{}-{}", metadata_string(pod, "name"), text(volume, &["name"])),
        None => text(volume, &["persistentVolumeClaim", "claimName"]).to_owned(),
    };
    if claim.is_empty() {
        return Ok(String::new());
    }
    let Some(claim) = environment.view.get(CLAIMS, metadata_string(pod, "namespace"), &claim)? else {
        return Ok(String::new());
    };
    let bound = environment.view.get(VOLUMES, "", text(&claim, &["spec", "volumeName"]))?;
    Ok(bound.map(|volume| text(&volume, &["spec", "csi", "driver"]).to_owned()).unwrap_or_default())
}

fn driver_has_audience(driver: &str, environment: &Environment<'_>, audience: &str) -> Result<bool, Refusal> {
    if driver.is_empty() {
        return Ok(false);
    }
    let Some(driver) = environment.view.get(DRIVERS, "", driver)? else { return Ok(false) };
    let requests = get(&driver, &["spec", "tokenRequests"]).and_then(Value::as_array);
    Ok(requests.into_iter().flatten().any(|request| request["audience"].as_str().unwrap_or_default() == audience))
}

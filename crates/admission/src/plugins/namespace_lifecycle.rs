//! NamespaceLifecycle: nothing is created in a namespace that is missing or terminating; the initial namespaces stay.
//!
//! The view may be a little old. The transaction that stores a new object also compares the namespace's revision, so that a
//! namespace that terminates at the same time wins.

use api::status::StatusCause;
use api::{GroupResource, Status};
use object::unstructured::{get, text};

use super::Plugin;
use crate::attributes::Operation;
use crate::chain::{Environment, Write};
use crate::refusal::Refusal;

const NAMESPACES: GroupResource<&str> = GroupResource { group: "", resource: "namespaces" };
const IMMORTAL: [&str; 3] = ["default", "kube-public", "kube-system"];

pub(super) static PLUGIN: Plugin = Plugin {
    name: "NamespaceLifecycle",
    operations: &[Operation::Create, Operation::Update, Operation::Delete],
    admit: Some(admit),
    validate: None,
};

fn admit(write: &mut Write<'_>, environment: &Environment<'_>) -> Result<(), Refusal> {
    let attributes = &write.attributes;
    let is_namespace = attributes.kind.group.is_empty() && attributes.kind.kind == "Namespace";
    if is_namespace {
        let is_refused = attributes.operation == Operation::Delete && IMMORTAL.contains(&attributes.name);
        return if is_refused { Err(Refusal::forbidden("this namespace may not be deleted")) } else { Ok(()) };
    }
    let is_review = attributes.is_resource("authorization.k8s.io", "localsubjectaccessreviews");
    if attributes.namespace.is_empty() || attributes.operation == Operation::Delete || is_review {
        return Ok(());
    }
    let namespace = attributes.namespace;
    let Some(found) = environment.view.get(NAMESPACES, "", namespace)? else {
        return Err(Status::not_found(NAMESPACES, namespace).into());
    };
    let is_terminating = text(&found, &["status", "phase"]) == "Terminating"
        || get(&found, &["metadata", "deletionTimestamp"]).is_some();
    if attributes.operation != Operation::Create || !is_terminating {
        return Ok(());
    }
    let message = format!("unable to create new content in namespace {namespace} because it is being terminated");
    let name = attributes.shown_name(write.object.as_ref());
    let mut status = Status::forbidden(attributes.resource.group_resource(), name, message);
    status.details.get_or_insert_default().causes.push(StatusCause {
        reason: "NamespaceTerminating".into(),
        message: format!("namespace {namespace} is being terminated"),
        field: "metadata.namespace".to_owned(),
    });
    Err(status.into())
}

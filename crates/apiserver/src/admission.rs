//! What must hold around an object before it may be written.

use access::User;
use access::rbac::escalation::{self, Write};
use api::{GroupResource, GroupVersionResource, Status};
use catalogue::Served;
use object::Stored;
use registry::Item;
use registry::read::Freshness;
use store::Key;

use crate::faults::{self, About};
use crate::forms::Object;
use crate::{ApiServer, Resource, kinds};

const NAMESPACES: GroupVersionResource<&str> =
    GroupVersionResource { group: "", version: "v1", resource: "namespaces" };

/// A role or binding that somebody is about to write, or anything else, which grants nothing.
pub(crate) struct Grant<'a> {
    pub(crate) user: &'a User,
    pub(crate) served: &'a Served,
    /// Of the request; empty at the cluster scope.
    pub(crate) namespace: &'a str,
    /// In the request's path, hence empty for create.
    pub(crate) name: &'a str,
    pub(crate) old: Option<&'a Object>,
    pub(crate) new: &'a Object,
}

impl ApiServer {
    /// Nobody may grant what they do not have.
    pub(crate) fn refuse_escalation(&self, grant: &Grant<'_>) -> Result<(), Status> {
        let Some(kind) = kinds::rbac_kind_of(grant.served) else { return Ok(()) };
        let bytes = |object: &Object| serde_json::to_vec(object).expect("an object has string keys");
        let (new, old) = (bytes(grant.new), grant.old.map(bytes));
        let Grant { user, namespace, name, .. } = *grant;
        let write = Write { user, kind, namespace, name, new: &new, old: old.as_deref() };
        let checked = escalation::check(&self.rules.authorizer, &self.rules.index.load(), &write);
        checked.map_err(|error| {
            let name = grant.new.get("metadata").and_then(|metadata| metadata["name"].as_str()).unwrap_or_default();
            error.to_status(kind, name)
        })
    }

    /// Nothing is created in a namespace that is not there, or that is about to go.
    pub(crate) async fn admit_into(&self, namespace: &str, about: About<'_>) -> Result<(), Status> {
        let Some(namespaces) = self.resolve(NAMESPACES) else { return Ok(()) };
        let key = Key::from([namespaces.shelf.prefix().as_ref(), namespace.as_bytes()].concat());
        let missing = || Err(Status::not_found(GroupResource { group: "", resource: "namespaces" }, namespace));
        // What the cache does not know may have been created a moment ago, elsewhere.
        for freshness in [Freshness::Any, Freshness::Latest] {
            let found = self.registry.get(namespaces.shelf, &key, freshness).await.map_err(faults::unread)?;
            if let Some(Item::Object(stored)) = found.as_deref().map(|cached| &cached.item) {
                return refuse_terminating(stored, namespaces, namespace, about);
            }
        }
        missing()
    }
}

fn refuse_terminating(
    stored: &Stored,
    namespaces: Resource<'_>,
    namespace: &str,
    about: About<'_>,
) -> Result<(), Status> {
    let object = crate::forms::object_of(stored, namespaces.served);
    let is_terminating = object.get("metadata").is_some_and(|metadata| metadata.get("deletionTimestamp").is_some());
    if !is_terminating {
        return Ok(());
    }
    let why = format!("unable to create new content in namespace {namespace} because it is being terminated");
    Err(Status::forbidden(about.resource, about.name, why)
        .with_cause("NamespaceTerminating", format!("namespace {namespace} is being terminated")))
}

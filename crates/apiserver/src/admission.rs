//! What must hold around an object before it may be written.

use api::{GroupResource, GroupVersionResource, Status};
use object::Stored;
use registry::Item;
use registry::read::Freshness;
use store::Key;

use crate::faults::{self, About};
use crate::{ApiServer, Resource};

const NAMESPACES: GroupVersionResource<&str> =
    GroupVersionResource { group: "", version: "v1", resource: "namespaces" };

impl ApiServer {
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

//! The storage-version barrier of the registry, and the storage versions that this server publishes.

use std::sync::Arc;

use api::objects::{StorageVersion, from_json};
use api::{GroupResource, GroupVersion};
use apiextensions::Definition;
use apiextensions::definition::DefinitionVersion;
use futures_util::future::BoxFuture;
use kinds::{ServedResource, ServedResources, StoredResource};
use registry::{BarrierClosed, Permit, PermitRequest, WriteAuthor, WriteBarrier};
use storageversion::{InvalidRegistration, Registration, Registrations, WriteIntent, WriteOperation};
use store::{Compare, Key, Revision, StoreEntry};

/// The storage versions to publish: those of all implemented stored resources. Unimplemented ones are left out, because
/// kube-apiservers up to 1.32 would route requests for them to this server.
pub fn registrations_for(served_resources: &ServedResources) -> Result<Registrations, InvalidRegistration> {
    let is_built = |stored_resource: &Arc<StoredResource>| {
        let of_it = |served: &&ServedResource| {
            served.stored_resource.as_ref().is_some_and(|kept| Arc::ptr_eq(kept, stored_resource))
        };
        served_resources.resources().iter().filter(of_it).any(|served| served.kind.is_implemented)
    };
    let all = served_resources.stored_resources().iter().filter(|stored_resource| is_built(stored_resource)).map(
        |stored_resource| {
            let registration = registration_of(stored_resource)?;
            Ok((registration.name(), Arc::new(registration)))
        },
    );
    all.collect()
}

/// The storage version of a custom resource: objects are encoded in the storage version of the definition, and every
/// version of the definition can be read. `None` if the definition has no storage version, which validation excludes.
pub(crate) fn registration_of_definition(definition: &Definition) -> Option<Registration> {
    let spec = &definition.spec;
    let text = |version: &DefinitionVersion| GroupVersion { group: &*spec.group, version: &version.name }.to_string();
    let registration = Registration::new(
        GroupResource { group: &*spec.group, resource: &*spec.names.plural }.owned(),
        text(definition.storage_version()?),
        spec.versions.iter().map(text).collect(),
        spec.versions.iter().filter(|version| version.served).map(text).collect(),
    );
    registration.ok()
}

fn registration_of(stored_resource: &StoredResource) -> Result<Registration, InvalidRegistration> {
    let encoding = stored_resource.encoding;
    let served = stored_resource.served_versions.iter().map(|version| GroupVersion { group: encoding.group, version });
    Registration::new(
        GroupResource { group: encoding.group, resource: stored_resource.resource }.owned(),
        encoding.group_version().to_string(),
        stored_resource.decodable_versions.iter().map(GroupVersion::to_string).collect(),
        served.map(|version| version.to_string()).collect(),
    )
}

/// Makes writes of registered resources conditional on the StorageVersion object with this server's entry.
#[derive(Debug)]
pub struct StorageVersionBarrier {
    barrier: storageversion::PublicationBarrier,
    /// The key prefix of StorageVersion objects.
    key_prefix: Key,
}

impl StorageVersionBarrier {
    /// Creates the barrier for the storage prefix `prefix`.
    pub fn new(barrier: storageversion::PublicationBarrier, prefix: &str) -> Self {
        Self { barrier, key_prefix: crate::storage_ports::storage_versions_prefix(prefix) }
    }
}

impl WriteBarrier for StorageVersionBarrier {
    fn permit(&self, request: &PermitRequest<'_>) -> Result<Permit, BarrierClosed> {
        match self.barrier.permit(&write_intent(request)) {
            Ok(None) => Ok(Permit::granted()),
            Ok(Some(fence)) => {
                let key = Key::from([&*self.key_prefix, fence.name.as_bytes()].concat());
                Ok(Permit::granted_if(Compare { key, revision: Some(Revision(fence.revision)) }))
            }
            Err(closed) => Err(BarrierClosed { reason: closed.to_string() }),
        }
    }

    fn handle_stale_permit(&self, request: &PermitRequest<'_>, current: Option<&StoreEntry>, as_of: Revision) {
        let object = current.and_then(|entry| {
            let mut object: StorageVersion = from_json(&entry.value).ok()?;
            object.metadata.resource_version = entry.revision.to_string();
            Some(object)
        });
        self.barrier.handle_stale_permit(&write_intent(request), object.as_ref(), as_of.0);
    }

    fn wait_until_permitted<'a>(&'a self, resource: GroupResource<&'a str>) -> BoxFuture<'a, ()> {
        Box::pin(self.barrier.wait_until_permitted(resource))
    }
}

fn write_intent<'a>(request: &PermitRequest<'a>) -> WriteIntent<'a> {
    WriteIntent {
        resource: request.resource,
        // No exemption names a key that is not UTF-8.
        path: std::str::from_utf8(request.path).unwrap_or_default(),
        author: match request.author {
            WriteAuthor::Client => storageversion::IntentAuthor::Client,
            WriteAuthor::Server => storageversion::IntentAuthor::Server,
        },
        operation: if request.is_create { WriteOperation::Create } else { WriteOperation::UpdateOrDelete },
    }
}

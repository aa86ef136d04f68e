//! The storage-version barrier before the registry's persist step, and what this server says about its resources.

use std::sync::Arc;

use api::GroupVersion;
use api::objects::{StorageVersion, from_json};
use catalogue::{Persisted, Served, Surface};
use registry::{Author, Barrier, Held, Permit, Subject};
use storageversion::{InvalidRegistration, Novelty, Registration, Registrations, Write};
use store::{Compare, Entry, Key, Revision};

/// What a server with this surface publishes: everything that it keeps, at its emulated version. What is listed and not built
/// is not kept; servers up to 1.32 would send us requests for it.
pub fn registrations(surface: &Surface) -> Result<Registrations, InvalidRegistration> {
    let is_built = |persisted: &Arc<Persisted>| {
        let of_it = |served: &&Served| served.persisted.as_ref().is_some_and(|kept| Arc::ptr_eq(kept, persisted));
        surface.served().iter().filter(of_it).any(|served| served.kind.built)
    };
    let all = surface.persisted().iter().filter(|persisted| is_built(persisted)).map(|persisted| {
        let registration = registration(persisted)?;
        Ok((registration.name(), Arc::new(registration)))
    });
    all.collect()
}

fn registration(persisted: &Persisted) -> Result<Registration, InvalidRegistration> {
    let encoding = persisted.encoding;
    let served = persisted.served.iter().map(|version| GroupVersion { group: encoding.group, version });
    Registration::new(
        api::GroupResource { group: encoding.group, resource: persisted.resource }.owned(),
        encoding.group_version().to_string(),
        persisted.decodable.iter().map(GroupVersion::to_string).collect(),
        served.map(|version| version.to_string()).collect(),
    )
}

/// The barrier of a server over its own storage: a permit depends on the object that holds the server's entry.
#[derive(Debug)]
pub struct StorageVersionBarrier {
    barrier: storageversion::Barrier,
    /// What comes before the name of an object.
    objects: Key,
}

impl StorageVersionBarrier {
    /// For storage below `prefix`.
    pub fn new(barrier: storageversion::Barrier, prefix: &str) -> Self {
        Self { barrier, objects: crate::ports::storage_versions_prefix(prefix) }
    }
}

impl Barrier for StorageVersionBarrier {
    fn permit(&self, subject: &Subject<'_>) -> Result<Permit, Held> {
        match self.barrier.permit(&write_of(subject)) {
            Ok(None) => Ok(Permit::granted()),
            Ok(Some(fence)) => {
                let key = Key::from([&*self.objects, fence.name.as_bytes()].concat());
                Ok(Permit::granted_while(Compare { key, revision: Some(Revision(fence.revision)) }))
            }
            Err(closed) => Err(Held { reason: closed.to_string() }),
        }
    }

    fn correct(&self, subject: &Subject<'_>, found: Option<&Entry>, as_of: Revision) {
        let object = found.and_then(|entry| {
            let mut object: StorageVersion = from_json(&entry.value).ok()?;
            object.metadata.resource_version = entry.revision.to_string();
            Some(object)
        });
        self.barrier.correct(&write_of(subject), object.as_ref(), as_of.0);
    }
}

fn write_of<'a>(subject: &Subject<'a>) -> Write<'a> {
    Write {
        resource: subject.resource,
        // A key that is no text is none that an exception names.
        path: std::str::from_utf8(subject.path).unwrap_or_default(),
        author: match subject.author {
            Author::Client => storageversion::Author::Client,
            Author::Server => storageversion::Author::Server,
        },
        novelty: if subject.seen.is_none() { Novelty::New } else { Novelty::Existing },
    }
}

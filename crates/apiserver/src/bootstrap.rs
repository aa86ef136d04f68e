//! The objects that every cluster has: put there by whichever server finds them missing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use api::{GroupVersionResource, Status};
use object::Stored;
use registry::{Decision, WriteError};
use serde_json::{Value, json};
use store::Key;

use crate::forms::{self, Object};
use crate::{ApiServer, rest};

/// The namespaces that are always there.
const NAMESPACES: [&str; 4] = ["default", "kube-system", "kube-public", "kube-node-lease"];
/// The pause before another try when storage does not take a write.
const RETRY_PAUSE: Duration = Duration::from_millis(500);

/// Whether the objects are there. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Progress(Arc<AtomicBool>);

impl Progress {
    /// Whether everything was put or found.
    pub fn is_done(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// Puts what is missing, and tries again until it is there.
pub async fn run(server: Arc<ApiServer>, progress: Progress) {
    if server.registry.cache().filled().await.is_err() {
        return;
    }
    for name in NAMESPACES {
        while let Err(error) = server.put_missing(namespace(name)).await {
            tracing::warn!(
                namespace = name,
                error = error.message,
                "a system namespace cannot be created; trying again"
            );
            tokio::time::sleep(RETRY_PAUSE).await;
        }
    }
    progress.0.store(true, Ordering::Release);
}

/// An object to be put where there is none.
struct Wanted {
    resource: GroupVersionResource<&'static str>,
    namespace: &'static str,
    name: String,
    object: Value,
}

fn namespace(name: &str) -> Wanted {
    Wanted {
        resource: GroupVersionResource { group: "", version: "v1", resource: "namespaces" },
        namespace: "",
        name: name.to_owned(),
        object: json!({
            "metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name}},
            "spec": {"finalizers": ["kubernetes"]},
            "status": {"phase": "Active"},
        }),
    }
}

impl ApiServer {
    async fn put_missing(&self, wanted: Wanted) -> Result<(), Status> {
        let Some(resource) = self.resolve(wanted.resource) else { return Ok(()) };
        let key = match wanted.namespace {
            "" => wanted.name.clone(),
            namespace => format!("{namespace}/{}", wanted.name),
        };
        let key = Key::from([resource.shelf.prefix().as_ref(), key.as_bytes()].concat());
        let Value::Object(mut object) = wanted.object else { unreachable!("wanted objects are objects") };
        stamp(&mut object);
        let persisted = resource.served.persisted.as_ref().expect("a bound resource is persisted");
        let value = forms::storage_bytes(object, persisted.encoding);
        let decide = |current: Option<&Stored>| {
            Ok::<_, Status>(match current {
                Some(_) => Decision::Keep,
                None => Decision::Put { value: value.clone(), ttl: None },
            })
        };
        let name = api::GroupResource { group: persisted.encoding.group, resource: persisted.resource };
        match self.registry.write(name, resource.shelf, &key, decide).await {
            Ok(_) => Ok(()),
            Err(error @ (WriteError::Held(_) | WriteError::Read(_) | WriteError::Store(_) | WriteError::Busy)) => {
                Err(crate::faults::unwritten(error))
            }
            Err(WriteError::Refused(status)) => Err(status),
        }
    }
}

fn stamp(object: &mut Object) {
    let metadata = object.get_mut("metadata").and_then(Value::as_object_mut).expect("wanted objects have metadata");
    metadata.insert("uid".to_owned(), rest::new_uid().into());
    metadata.insert("creationTimestamp".to_owned(), rest::now().to_string().into());
}

//! The objects that every cluster has: put there by whichever server finds them missing.

mod objects;
mod trust;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use access::rbac::Kind;
use api::{GroupVersionResource, Status};
use futures_util::{StreamExt as _, stream};
use object::Stored;
use registry::Decision;
use serde_json::Value;
use store::Key;

pub use trust::Trust;

use crate::forms::{self, Object};
use crate::policy::Known;
use crate::{ApiServer, rest};
use objects::SystemObject;

/// How many objects are written at once.
const AT_ONCE: usize = 64;
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

/// What the objects say about this server.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where others reach this server.
    pub address: SocketAddr,
    /// The address of the service `kubernetes`: the first of `--service-cluster-ip-range`.
    pub service_ip: Option<IpAddr>,
    /// For extension servers.
    pub trust: Trust,
}

/// Puts what is missing, and tries again until it is there and the roles among it are in effect. What is more than a namespace
/// is first tried when `permitted` is over, since it would be held before.
pub async fn run(
    server: Arc<ApiServer>,
    settings: Settings,
    mut rules: Known,
    progress: Progress,
    permitted: impl Future<Output = ()> + Send,
) {
    if server.registry.cache().filled().await.is_err() {
        return;
    }
    let server = &server;
    let roles = access::bootstrap::wanted().into_iter().map(|role| Wanted::Role(Box::new(role)));
    let others = objects::priority_classes()
        .chain([objects::service(settings.address, settings.service_ip), trust::config_map(&settings.trust)])
        .chain([objects::token_tracking(rest::now())])
        .chain(objects::endpoints(settings.address));
    // Namespaces first, since others lie in them; then everything at once, so that writes share commits.
    server.ensure_all(objects::namespaces().map(Wanted::Object)).await;
    permitted.await;
    server.ensure_all(roles.chain(others.map(Wanted::Object))).await;
    rules.catch_up().await;
    progress.0.store(true, Ordering::Release);
}

enum Wanted {
    /// To be put where there is none.
    Object(SystemObject),
    /// To be completed where it lacks something.
    Role(Box<access::bootstrap::Wanted>),
}

impl Wanted {
    fn describe(&self) -> String {
        match self {
            Self::Object(system) => format!("{} {}", system.resource.resource, system.key),
            Self::Role(role) => format!("{} {}", role.kind(), role.metadata().name),
        }
    }
}

impl ApiServer {
    async fn ensure_all(&self, wave: impl Iterator<Item = Wanted>) {
        stream::iter(wave.collect::<Vec<_>>())
            .for_each_concurrent(AT_ONCE, async |wanted| {
                while let Err(error) = self.ensure(&wanted).await {
                    let what = wanted.describe();
                    tracing::warn!(what, error = error.message, "a system object cannot be written; trying again");
                    tokio::time::sleep(RETRY_PAUSE).await;
                }
            })
            .await;
    }

    async fn ensure(&self, wanted: &Wanted) -> Result<(), Status> {
        match wanted {
            Wanted::Object(system) => {
                self.put_system(system.resource, &system.key, |current| Ok(system.next(current))).await
            }
            Wanted::Role(role) => {
                let metadata = role.metadata();
                let name = match &*metadata.namespace {
                    "" => metadata.name.clone(),
                    namespace => format!("{namespace}/{}", metadata.name),
                };
                let resource = match role.kind() {
                    Kind::Role => "roles",
                    Kind::ClusterRole => "clusterroles",
                    Kind::RoleBinding => "rolebindings",
                    Kind::ClusterRoleBinding => "clusterrolebindings",
                };
                let resource = GroupVersionResource { group: access::rbac::GROUP, version: "v1", resource };
                self.put_system(resource, &name, |current| complete_role(current, role)).await
            }
        }
    }

    /// Puts what `next` makes of an object; nothing if that is `None`.
    pub(crate) async fn put_system(
        &self,
        resource: GroupVersionResource<&'static str>,
        name: &str,
        mut next: impl FnMut(Option<&Stored>) -> Result<Option<Object>, Status>,
    ) -> Result<(), Status> {
        let Some(resource) = self.resolve(resource) else { return Ok(()) };
        let key = Key::from([resource.shelf.prefix().as_ref(), name.as_bytes()].concat());
        let persisted = resource.served.persisted.as_ref().expect("a bound resource is persisted");
        let decide = |current: Option<&Stored>| {
            Ok(match next(current)? {
                None => Decision::Keep,
                Some(mut object) => {
                    if current.is_none() {
                        stamp(&mut object);
                    }
                    Decision::Put { value: forms::storage_bytes(object, persisted.encoding), ttl: None }
                }
            })
        };
        let name = api::GroupResource { group: persisted.encoding.group, resource: persisted.resource };
        let written = self.registry.for_server().write(name, resource.shelf, &key, decide).await;
        written.map(drop).map_err(crate::faults::unwritten)
    }
}

fn complete_role(current: Option<&Stored>, wanted: &access::bootstrap::Wanted) -> Result<Option<Object>, Status> {
    use access::bootstrap::Change;
    match access::bootstrap::reconcile(current.map(|stored| &*stored.body), wanted) {
        Ok(Change::Create(json) | Change::Update(json)) => {
            Ok(Some(serde_json::from_slice(&json).expect("it was just written as JSON")))
        }
        Ok(Change::None) => Ok(None),
        Ok(Change::Skip(why)) => {
            tracing::info!(name = wanted.metadata().name, ?why, "a default role is left as it is");
            Ok(None)
        }
        // Somebody wrote something there that is no role. It grants nothing, and it is not ours to overwrite.
        Err(error) => {
            tracing::error!(%error, "a default role cannot be read and is left as it is");
            Ok(None)
        }
    }
}

fn stamp(object: &mut Object) {
    let metadata = object.get_mut("metadata").and_then(Value::as_object_mut).expect("wanted objects have metadata");
    metadata.insert("uid".to_owned(), rest::new_uid().into());
    metadata.insert("creationTimestamp".to_owned(), rest::now().to_string().into());
}

//! The objects that every cluster has: put there by whichever server finds them missing.

mod cluster_authentication;
mod system_objects;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use access::rbac::RbacKind;
use api::json::JsonObject;
use api::{GroupVersionResource, Status};
use futures_util::{StreamExt as _, stream};
use object::StoredObject;
use registry::WriteDecision;
use serde_json::Value;
use store::Key;

pub use cluster_authentication::ClusterAuthentication;

use crate::object_codec;
use crate::rbac_index::RbacIndexProgress;
use crate::{ApiServer, rest};
use system_objects::SystemObject;

/// How many objects are written at once.
const CONCURRENT_WRITES_MAX: usize = 64;
/// The pause before another try when storage does not take a write.
const RETRY_DELAY: Duration = Duration::from_millis(500);

/// Whether the objects are there. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct BootstrapProgress(Arc<AtomicBool>);

impl BootstrapProgress {
    /// Whether everything was put or found.
    pub fn is_done(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// What the objects say about this server.
#[derive(Clone, Debug)]
pub struct BootstrapConfig {
    /// Where others reach this server.
    pub address: SocketAddr,
    /// The address of the service `kubernetes`: the first of `--service-cluster-ip-range`.
    pub service_ip: Option<IpAddr>,
    /// For extension servers.
    pub cluster_authentication: ClusterAuthentication,
}

/// Puts what is missing, and tries again until it is there and the roles among it are in effect. What is more than a namespace
/// is first tried when `permitted` is over, since it would be held before.
pub async fn run(
    server: Arc<ApiServer>,
    config: BootstrapConfig,
    mut rbac_index_progress: RbacIndexProgress,
    progress: BootstrapProgress,
    barrier_open: impl Future<Output = ()> + Send,
) {
    if server.registry.cache().wait_for_sync().await.is_err() {
        return;
    }
    let server = &server;
    let roles = access::bootstrap::default_rbac_objects().into_iter().map(|role| BootstrapObject::Rbac(Box::new(role)));
    let others = system_objects::priority_classes()
        .chain([
            system_objects::kubernetes_service(config.address, config.service_ip),
            cluster_authentication::authentication_config_map(&config.cluster_authentication),
        ])
        .chain([system_objects::legacy_token_tracking(rest::current_time())])
        .chain(system_objects::kubernetes_endpoints(config.address));
    // Namespaces first, since others lie in them; then everything at once, so that writes share commits.
    server.write_all_missing(system_objects::system_namespaces().map(BootstrapObject::System)).await;
    barrier_open.await;
    server.write_all_missing(roles.chain(others.map(BootstrapObject::System))).await;
    rbac_index_progress.catch_up().await;
    progress.0.store(true, Ordering::Release);
}

enum BootstrapObject {
    /// To be put where there is none.
    System(SystemObject),
    /// To be completed where it lacks something.
    Rbac(Box<access::bootstrap::DefaultRbacObject>),
}

impl BootstrapObject {
    fn describe(&self) -> String {
        match self {
            Self::System(system) => format!("{} {}", system.resource.resource, system.key),
            Self::Rbac(role) => format!("{} {}", role.kind(), role.metadata().name),
        }
    }
}

impl ApiServer {
    async fn write_all_missing(&self, objects: impl Iterator<Item = BootstrapObject>) {
        stream::iter(objects.collect::<Vec<_>>())
            .for_each_concurrent(CONCURRENT_WRITES_MAX, async |wanted| {
                while let Err(error) = self.write_missing(&wanted).await {
                    let what = wanted.describe();
                    tracing::warn!(what, error = error.message, "a system object cannot be written; trying again");
                    tokio::time::sleep(RETRY_DELAY).await;
                }
            })
            .await;
    }

    async fn write_missing(&self, object: &BootstrapObject) -> Result<(), Status> {
        match object {
            BootstrapObject::System(system) => {
                self.write_system_object(system.resource, &system.key, |current| Ok(system.next_state(current))).await
            }
            BootstrapObject::Rbac(role) => {
                let metadata = role.metadata();
                let name = match &*metadata.namespace {
                    "" => metadata.name.clone(),
                    namespace => format!("{namespace}/{}", metadata.name),
                };
                let resource = match role.kind() {
                    RbacKind::Role => "roles",
                    RbacKind::ClusterRole => "clusterroles",
                    RbacKind::RoleBinding => "rolebindings",
                    RbacKind::ClusterRoleBinding => "clusterrolebindings",
                };
                let resource = GroupVersionResource { group: access::rbac::RBAC_GROUP, version: "v1", resource };
                self.write_system_object(resource, &name, |current| reconcile_role(current, role)).await
            }
        }
    }

    /// Puts what `next` makes of an object; nothing if that is `None`.
    pub(crate) async fn write_system_object(
        &self,
        resource: GroupVersionResource<&'static str>,
        name: &str,
        mut next: impl FnMut(Option<&StoredObject>) -> Result<Option<JsonObject>, Status>,
    ) -> Result<(), Status> {
        let Some(resource) = self.resolve(resource) else { return Ok(()) };
        let key = Key::from([resource.resource_cache.prefix().as_ref(), name.as_bytes()].concat());
        let stored_resource = resource.served.stored_resource.as_ref().expect("a bound resource is persisted");
        let decide = |current: Option<&StoredObject>| {
            Ok(match next(current)? {
                None => WriteDecision::Keep,
                Some(mut object) => {
                    if current.is_none() {
                        set_uid_and_creation_time(&mut object);
                    }
                    WriteDecision::Put { value: object_codec::encode_for_storage(object, resource.served), ttl: None }
                }
            })
        };
        let name = api::GroupResource { group: stored_resource.encoding.group, resource: stored_resource.resource };
        let written = self.registry.with_server_author().write(name, resource.resource_cache, &key, decide).await;
        written.map(drop).map_err(crate::error_status::status_for_write_error)
    }
}

fn reconcile_role(
    current: Option<&StoredObject>,
    desired: &access::bootstrap::DefaultRbacObject,
) -> Result<Option<JsonObject>, Status> {
    use access::bootstrap::ReconcileAction;
    match access::bootstrap::reconcile(current.map(|stored| &*stored.body), desired) {
        Ok(ReconcileAction::Create(json) | ReconcileAction::Update(json)) => {
            Ok(Some(serde_json::from_slice(&json).expect("it was just written as JSON")))
        }
        Ok(ReconcileAction::UpToDate) => Ok(None),
        Ok(ReconcileAction::Skip(reason)) => {
            tracing::info!(name = desired.metadata().name, ?reason, "a default role is left as it is");
            Ok(None)
        }
        // Somebody wrote something there that is no role. It grants nothing, and it is not ours to overwrite.
        Err(error) => {
            tracing::error!(%error, "a default role cannot be read and is left as it is");
            Ok(None)
        }
    }
}

fn set_uid_and_creation_time(object: &mut JsonObject) {
    let metadata = object.get_mut("metadata").and_then(Value::as_object_mut).expect("wanted objects have metadata");
    metadata.insert("uid".to_owned(), rest::new_uid().into());
    metadata.insert("creationTimestamp".to_owned(), rest::current_time().to_string().into());
}

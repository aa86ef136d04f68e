//! Writes the objects that Kubernetes creates in every cluster: system namespaces, default RBAC roles, priority
//! classes, the service `kubernetes`. Every server runs it at startup and writes only what is missing.

mod cluster_authentication;
mod system_objects;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use access::bootstrap::{DefaultRbacObject, ServerFeatures};
use access::rbac::RbacKind;
use api::json::JsonObject;
use api::{GroupVersionResource, Status};
use futures_util::{StreamExt as _, stream};
use kinds::FeatureGates;
use object::StoredObject;
use registry::WriteDecision;
use serde_json::Value;
use store::Key;

pub use cluster_authentication::ClusterAuthentication;

use crate::object_codec;
use crate::rbac_index::RbacIndexProgress;
use crate::{ApiServer, rest};
pub(crate) use system_objects::{SystemObject, default_service_cidr};

/// The maximum number of concurrent writes.
const CONCURRENT_WRITES_MAX: usize = 64;
/// The delay before a failed write is retried.
const RETRY_DELAY: Duration = Duration::from_millis(500);

/// Reports whether bootstrap is complete. Clones share the state.
#[derive(Clone, Debug, Default)]
pub struct BootstrapProgress(Arc<AtomicBool>);

impl BootstrapProgress {
    /// True once every object exists and the RBAC index contains the roles, or [`run`] stopped waiting for the index.
    pub fn is_done(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// The facts about this server that bootstrap objects contain.
#[derive(Clone, Debug)]
pub struct BootstrapConfig {
    /// The advertised address, for the endpoints of the service `kubernetes`.
    pub address: SocketAddr,
    /// The content of the ConfigMap `extension-apiserver-authentication`.
    pub cluster_authentication: ClusterAuthentication,
}

/// Writes the missing objects, retrying each until it succeeds, then waits for the RBAC index to contain the roles.
///
/// Namespaces are exempt from the storage-version barrier; all other objects are written after `barrier_open` resolves.
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
    let roles =
        default_rbac_objects(&server.feature_gates).into_iter().map(|role| BootstrapObject::Rbac(Box::new(role)));
    let others = system_objects::priority_classes()
        .chain([
            cluster_authentication::authentication_config_map(&config.cluster_authentication),
            system_objects::legacy_token_tracking(rest::current_time()),
        ])
        .chain(server.allocation.default_service_cidr())
        .chain(system_objects::kubernetes_endpoints(config.address));
    // Namespaces come first because other objects are in them. The rest is written concurrently, so that writes share
    // commits.
    server.write_all_missing(system_objects::system_namespaces().map(BootstrapObject::System)).await;
    barrier_open.await;
    server.write_all_missing(roles.chain(others.map(BootstrapObject::System))).await;
    let first_address = server.allocation.first_address();
    server.start_allocation(&system_objects::kubernetes_service(config.address, first_address)).await;
    rbac_index_progress.catch_up().await;
    progress.0.store(true, Ordering::Release);
}

/// The default roles and bindings of a server with these gates.
fn default_rbac_objects(gates: &FeatureGates) -> Vec<DefaultRbacObject> {
    let is_on = |gate: &str| gates.includes(gate);
    access::bootstrap::default_rbac_objects(&ServerFeatures { minor: gates.release().minor().into(), is_on: &is_on })
}

enum BootstrapObject {
    System(SystemObject),
    /// Created if absent, otherwise reconciled: missing rules and subjects are added.
    Rbac(Box<DefaultRbacObject>),
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
                    tracing::warn!(what, error = error.message, "bootstrap write failed; will retry");
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

    /// Writes the object that `next` returns for the current one; `None` leaves storage unchanged. The write is
    /// authored by the server, and skipped if this server does not serve the resource.
    pub(crate) async fn write_system_object(
        &self,
        resource: GroupVersionResource<&'static str>,
        name: &str,
        mut next: impl FnMut(Option<&StoredObject>) -> Result<Option<JsonObject>, Status>,
    ) -> Result<(), Status> {
        let Some(resource) = self.resolve(resource) else { return Ok(()) };
        let key = Key::from([resource.cache.prefix().as_ref(), name.as_bytes()].concat());
        let decide = |current: Option<&StoredObject>| {
            Ok(match next(current)? {
                None => WriteDecision::Keep,
                Some(mut object) => {
                    if current.is_none() {
                        set_uid_and_creation_time(&mut object);
                    }
                    WriteDecision::Put { value: object_codec::encode_for_storage(object, &resource)?, ttl: None }
                }
            })
        };
        let registry = self.registry.with_server_author();
        let written = registry.write(resource.storage_name(), &resource.cache, &key, decide).await;
        written.map(drop).map_err(crate::error_status::status_for_write_error)
    }
}

fn reconcile_role(current: Option<&StoredObject>, desired: &DefaultRbacObject) -> Result<Option<JsonObject>, Status> {
    use access::bootstrap::ReconcileAction;
    match access::bootstrap::reconcile(current.map(|stored| &*stored.body), desired) {
        Ok(ReconcileAction::Create(json) | ReconcileAction::Update(json)) => {
            Ok(Some(serde_json::from_slice(&json).expect("reconcile returns valid JSON")))
        }
        Ok(ReconcileAction::UpToDate) => Ok(None),
        Ok(ReconcileAction::Skip(reason)) => {
            tracing::info!(name = desired.metadata().name, ?reason, "default role not reconciled");
            Ok(None)
        }
        // An undecodable object grants nothing, and the server must not overwrite what a user wrote.
        Err(error) => {
            tracing::error!(%error, "default role is undecodable; not reconciled");
            Ok(None)
        }
    }
}

pub(crate) fn set_uid_and_creation_time(object: &mut JsonObject) {
    let metadata = object.get_mut("metadata").and_then(Value::as_object_mut).expect("bootstrap objects have metadata");
    metadata.insert("uid".to_owned(), rest::new_uid().into());
    metadata.insert("creationTimestamp".to_owned(), rest::current_time().to_string().into());
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use expect_test::{Expect, expect};
    use kinds::Release;

    use super::*;

    /// Each cluster role with its number of rules.
    fn roles(release: Release) -> BTreeMap<String, usize> {
        let objects = default_rbac_objects(&FeatureGates::new(release));
        let role = |object: DefaultRbacObject| match object {
            DefaultRbacObject::Role(role) if role.metadata.namespace.is_empty() => {
                Some((role.metadata.name, role.rules.len()))
            }
            DefaultRbacObject::Role(_) | DefaultRbacObject::Binding(_) => None,
        };
        objects.into_iter().filter_map(role).collect()
    }

    /// The roles that differ from those of the newest release.
    fn check(release: Release, expected: &Expect) {
        let (older, newest) = (roles(release), roles(Release::NEWEST));
        let names = newest.keys().chain(older.keys().filter(|name| !newest.contains_key(*name)));
        let changed = names.filter(|name| older.get(*name) != newest.get(*name));
        let shown = |count: Option<&usize>| count.map_or("none".to_owned(), ToString::to_string);
        let lines = changed.map(|name| format!("{name}: {}, not {}", shown(older.get(name)), shown(newest.get(name))));
        expected.assert_eq(&lines.collect::<Vec<_>>().join("\n"));
    }

    #[test]
    fn roles_and_rules_follow_release_and_gates() {
        check(
            Release::R36,
            &expect![[r#"
            system:cluster-trust-bundle-discovery: none, not 1
            system:controller:device-taint-eviction-controller: 6, not 8
            system:controller:kube-apiserver-serving-clustertrustbundle-publisher: none, not 3
            system:controller:node-controller: 5, not 6
            system:controller:podcertificaterequestcleaner: none, not 1
            system:kube-scheduler: 27, not 28
            system:node: 25, not 27"#]],
        );
        check(
            Release::R35,
            &expect![[r#"
            system:cluster-trust-bundle-discovery: none, not 1
            system:controller:device-taint-eviction-controller: none, not 8
            system:controller:expand-controller: 5, not 4
            system:controller:kube-apiserver-serving-clustertrustbundle-publisher: none, not 3
            system:controller:node-controller: 5, not 6
            system:controller:persistent-volume-binder: 10, not 9
            system:controller:podcertificaterequestcleaner: none, not 1
            system:controller:pvc-protection-controller: 3, not 4
            system:controller:resource-claim-controller: 6, not 7
            system:kube-scheduler: 25, not 28
            system:node: 25, not 27"#]],
        );
    }

    #[test]
    fn conditions_name_known_gates() {
        let asked = std::cell::RefCell::new(Vec::new());
        let is_on = |gate: &str| {
            asked.borrow_mut().push(gate.to_owned());
            true
        };
        access::bootstrap::default_rbac_objects(&ServerFeatures { minor: 37, is_on: &is_on });
        for gate in asked.into_inner() {
            let is_known = |release: &Release| kinds::feature_gates::feature_spec(*release, &gate).is_some();
            assert!(Release::ALL.iter().any(is_known), "{gate}");
        }
    }
}

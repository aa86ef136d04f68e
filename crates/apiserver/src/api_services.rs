//! Keeps the automatic APIServices, one for each group-version that this server serves itself, and the condition `Available` of the
//! others.
//!
//! Every server runs it, without a leader. A server writes its own once it is a member of its cluster, so that each stored one
//! belongs to a server whose document the others know; it removes one only if no member serves it and no definition brings it.
//!
//! Of an APIService that names a service, every server judges for itself whether it can be reached. The live member with the first
//! id writes its judgement, so that servers that judge differently do not overwrite each other.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use aggregation::api_service::RemoteApiService;
use aggregation::automatic::{AutomaticAction, AutomaticApiService, ServedByOthers, VersionOrigin, decide};
use aggregation::condition::{self, Availability};
use api::json::JsonObject;
use api::{GroupVersionResource, Status};
use discovery::build::LocalGroupVersion;
use membership::members::MemberState;
use membership::view::FirstSync;
use membership::{Cluster, View};
use object::StoredObject;
use registry::{CachedValue, WriteDecision};
use store::Key;
use tasks::Backoff;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::definitions::CustomResources;
use crate::extension_apis::ExtensionApi;
use crate::resource::Resource;
use crate::rest::current_time;
use crate::{ApiServer, bootstrap, error_status, object_codec};

const API_SERVICES: GroupVersionResource<&str> =
    GroupVersionResource { group: "apiregistration.k8s.io", version: "v1", resource: "apiservices" };
/// After a failed write.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(5));

/// Keeps the automatic APIServices of one server.
pub struct ApiServiceController {
    server: Arc<ApiServer>,
    /// The other servers; `None` if this server knows of none, and then counts as the only one.
    cluster: Option<Arc<Cluster>>,
    /// True once this server may write.
    has_joined: watch::Receiver<bool>,
    /// True once the automatic APIServices were written.
    has_registered: watch::Sender<bool>,
}

impl ApiServiceController {
    /// Creates the controller. It writes nothing before `has_joined` is true.
    pub fn new(server: Arc<ApiServer>, cluster: Option<Arc<Cluster>>, has_joined: watch::Receiver<bool>) -> Self {
        Self { server, cluster, has_joined, has_registered: watch::Sender::new(false) }
    }

    /// Becomes true once the automatic APIServices of this server are stored, and stays so.
    pub fn has_registered(&self) -> watch::Receiver<bool> {
        self.has_registered.subscribe()
    }

    /// Runs until `stop`.
    pub async fn run(self, stop: CancellationToken) {
        stop.run_until_cancelled(self.control()).await;
    }

    async fn control(mut self) {
        let Some(resource) = self.server.resolve(API_SERVICES) else {
            self.has_registered.send_replace(true);
            return std::future::pending().await;
        };
        // Fails when the server stops.
        if self.has_joined.wait_for(|has_joined| *has_joined).await.is_err() {
            return std::future::pending().await;
        }
        let mut definitions = self.server.definitions.snapshots();
        let mut extension_apis = self.server.extension_apis.snapshots();
        let mut views = self.cluster.as_ref().map(|cluster| cluster.views());
        let (mut backoff, mut updated) = (BACKOFF, BTreeSet::new());
        loop {
            definitions.mark_unchanged();
            extension_apis.mark_unchanged();
            views.iter_mut().for_each(watch::Receiver::mark_unchanged);
            let revision = resource.cache.snapshot().revision;
            let result = self.reconcile(&resource, &mut updated).await;
            let wait = match &result {
                Ok(()) => {
                    backoff.reset();
                    self.has_registered.send_replace(true);
                    None
                }
                Err(status) => {
                    tracing::warn!(error = status.message, "automatic APIServices not updated, will retry");
                    Some(backoff.next_wait())
                }
            };
            let stored_change = async {
                // Fails if the revision was compacted in between; the loop then reads again.
                if let Ok(mut watcher) = self.server.registry.watch(&resource.cache, revision) {
                    let _ = watcher.next_changes().await;
                }
            };
            tokio::select! {
                // Fails when the server stops.
                changed = definitions.changed() => if changed.is_err() { return std::future::pending().await },
                changed = extension_apis.changed() => if changed.is_err() { return std::future::pending().await },
                () = wait_for_view(views.as_mut()) => {}
                () = stored_change => {}
                () = sleep_if(wait) => {}
            }
        }
    }

    /// Brings the stored APIServices in line with what this server serves now. `updated` holds the names that were rewritten.
    async fn reconcile(&self, resource: &Resource, updated: &mut BTreeSet<String>) -> Result<(), Status> {
        if !self.server.definitions.catch_up_with_cache().await {
            return Err(crate::rest::definitions_behind());
        }
        let custom = self.server.definitions.snapshot();
        let desired = self.desired(&custom);
        let view = self.cluster.as_ref().map(|cluster| cluster.view());
        let extension_apis = self.server.extension_apis.snapshot();
        let writes_conditions = is_first_live_member(view.as_deref());
        let snapshot = resource.cache.snapshot();
        let stored_names = snapshot.entries.keys().filter_map(|key| {
            let name = key.strip_prefix(&**resource.cache.prefix())?;
            Some(std::str::from_utf8(name).ok()?.to_owned())
        });
        let names: BTreeSet<String> = desired.keys().cloned().chain(stored_names).collect();
        for name in names {
            let key = Key::from([resource.cache.prefix().as_ref(), name.as_bytes()].concat());
            let current = snapshot.entries.get(&key).and_then(|entry| match &entry.value {
                CachedValue::Object(stored) => Some(object_codec::decode_stored(stored)),
                CachedValue::Raw(_) | CachedValue::Undecodable(_) => None,
            });
            let wanted = desired.get(&name);
            // A definition's APIService is rewritten whenever it differs: its content is the same for all servers.
            let is_definition = wanted.is_some_and(|wanted| wanted.origin == VersionOrigin::Definition);
            let may_update = is_definition || !updated.contains(&name);
            // Another release may read a definition that this server cannot read.
            let served_by_others = match name.split_once('.').is_some_and(|(_, group)| custom.has_unreadable(group)) {
                true => ServedByOthers::Unknown,
                false => served_by_others(view.as_deref(), &name),
            };
            let extension_api = extension_apis.get_by_name(&name).filter(|_| writes_conditions);
            let next = |current: Option<&JsonObject>| match decide(
                current,
                wanted,
                served_by_others,
                may_update,
                current_time(),
            ) {
                AutomaticAction::Keep => update_condition(current, extension_api.map(|api| &**api)),
                action @ (AutomaticAction::Put(_) | AutomaticAction::Delete) => action,
            };
            if next(current.as_ref()) == AutomaticAction::Keep {
                continue;
            }
            self.write(resource, &key, next).await?;
            updated.insert(name);
        }
        Ok(())
    }

    /// The APIServices of the group-versions that this server serves, by name.
    fn desired(&self, custom: &CustomResources) -> BTreeMap<String, AutomaticApiService> {
        let built_in = self.server.served_resources.group_versions();
        let desired = |part: &LocalGroupVersion, origin| AutomaticApiService {
            group: part.group.to_string(),
            version: part.version.to_string(),
            group_priority: part.group_priority,
            version_priority: part.version_priority,
            origin,
        };
        let custom = custom.custom_discovery().group_versions;
        let custom = custom.iter().map(|part| desired(part, VersionOrigin::Definition));
        // The group of APIServices itself has none.
        let built_in = built_in.iter().filter(|part| &*part.group != API_SERVICES.group);
        let built_in = built_in.map(|part| desired(part, VersionOrigin::BuiltIn));
        // A built-in version hides custom resources in it.
        custom.chain(built_in).map(|service| (service.name(), service)).collect()
    }

    async fn write(
        &self,
        resource: &Resource,
        key: &Key,
        next: impl Fn(Option<&JsonObject>) -> AutomaticAction,
    ) -> Result<(), Status> {
        let decide = |current: Option<&StoredObject>| {
            let is_new = current.is_none();
            Ok(match next(current.map(object_codec::decode_stored).as_ref()) {
                AutomaticAction::Keep => WriteDecision::Keep,
                AutomaticAction::Delete => WriteDecision::Delete,
                AutomaticAction::Put(mut object) => {
                    if is_new {
                        bootstrap::set_uid_and_creation_time(&mut object);
                    }
                    WriteDecision::Put { value: object_codec::encode_for_storage(object, resource)?, ttl: None }
                }
            })
        };
        let registry = self.server.registry.with_server_author();
        let written = registry.write(resource.storage_name(), &resource.cache, key, decide).await;
        written.map(drop).map_err(error_status::status_for_write_error)
    }
}

/// Sets the condition of an APIService: always of one that names no service, otherwise by the judgement about the service that the
/// object names now.
fn update_condition(current: Option<&JsonObject>, extension_api: Option<&ExtensionApi>) -> AutomaticAction {
    let Some(current) = current else { return AutomaticAction::Keep };
    let judged = extension_api.filter(|api| {
        RemoteApiService::from_object(current).is_some_and(|remote| remote.server == api.api_service.server)
    });
    let availability = match judged.and_then(|api| api.availability.clone()) {
        Some(availability) => availability,
        None if condition::is_local(current) => Availability::local(),
        None => return AutomaticAction::Keep,
    };
    let mut next = current.clone();
    match condition::set_available(&mut next, &availability, current_time()) {
        true => AutomaticAction::Put(next),
        false => AutomaticAction::Keep,
    }
}

/// True if no live member has an id before this server's.
fn is_first_live_member(view: Option<&View>) -> bool {
    view.is_none_or(|view| {
        let live = view.members().iter().filter(|member| member.state == MemberState::Live);
        live.into_iter().all(|member| member.server > *view.this_server())
    })
}

/// Whether a member other than this server serves the group-version of an APIService name.
fn served_by_others(view: Option<&View>, name: &str) -> ServedByOthers {
    let (Some(view), Some((version, group))) = (view, name.split_once('.')) else { return ServedByOthers::No };
    let mut is_unknown = view.first_sync() == FirstSync::Pending;
    for member in view.members() {
        match (member.state, &member.document) {
            (MemberState::Gone, _) => {}
            (MemberState::Live | MemberState::Suspect | MemberState::Left, Some(tracked)) => {
                let document = &tracked.stored.document;
                let groups = if group.is_empty() { document.core() } else { document.apis() };
                if groups.version(group, version).is_some() {
                    return ServedByOthers::Yes;
                }
            }
            (MemberState::Live | MemberState::Suspect | MemberState::Left, None)
            | (MemberState::Unknown | MemberState::Mute, _) => is_unknown = true,
        }
    }
    if is_unknown { ServedByOthers::Unknown } else { ServedByOthers::No }
}

async fn wait_for_view(views: Option<&mut watch::Receiver<Arc<View>>>) {
    let is_changed = match views {
        Some(views) => views.changed().await.is_ok(),
        None => false,
    };
    if !is_changed {
        // There is no cluster, or the server stops: no change will follow.
        std::future::pending::<()>().await;
    }
}

async fn sleep_if(wait: Option<Duration>) {
    match wait {
        Some(wait) => tokio::time::sleep(wait).await,
        None => std::future::pending().await,
    }
}

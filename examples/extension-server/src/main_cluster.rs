//! The main cluster: this server's identity lease, and the ports of `storageversion` over its REST API.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::objects::{Lease, StorageVersion};
use api::time::MicroTime;
use controllers::client::{ApiError, ApiWatchEvent};
use controllers::{ApiClient, ApiLeaseClient};
use election::LeaseClient as _;
use futures_util::future::BoxFuture;
use membership::identity::{ComponentLeases, IDENTITY_LABEL, IDENTITY_LEASE_NAMESPACE, IdentityLeaseTemplate};
use parking_lot::Mutex;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use storageversion::MemberSet;
use storageversion::ports::{
    MemberSource, MembersUnknown, StorageVersionClient, StorageVersionSnapshot, StorageVersionWriteError,
};
use tasks::{Backoff, Tasks};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

const STORAGE_VERSIONS: &str = "/apis/internal.apiserver.k8s.io/v1alpha1/storageversions";
const JSON: &str = "application/json";
/// The backoff of failed lists and watches.
const RETRY_BACKOFF: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(5));
/// Renewals within the duration of a lease.
const RENEWALS_PER_DURATION: u32 = 5;

/// The main cluster, as this server sees it.
pub(crate) struct MainCluster {
    client: ApiClient,
    snapshots: watch::Sender<Arc<StorageVersionSnapshot>>,
    members: watch::Sender<Option<Arc<MemberSet>>>,
    leases: Mutex<ComponentLeases>,
}

/// A list of objects.
#[derive(Deserialize)]
struct ObjectList<T> {
    metadata: api::metadata::ListMeta,
    items: Vec<T>,
}

impl MainCluster {
    /// Starts to follow the StorageVersion objects.
    pub(crate) fn start(client: ApiClient, tasks: &Tasks) -> Arc<Self> {
        let (snapshots, members) = (watch::Sender::default(), watch::Sender::default());
        let main_cluster = Arc::new(Self { client, snapshots, members, leases: Mutex::default() });
        let follower = main_cluster.clone();
        tasks.spawn("storage-version-informer", |stop| async move {
            stop.run_until_cancelled(follower.follow_storage_versions()).await;
        });
        main_cluster
    }

    /// Creates the identity lease and renews it until `stop`; `renewed` gets the time of each renewal.
    pub(crate) async fn hold_identity_lease(
        &self,
        template: IdentityLeaseTemplate,
        renewed: watch::Sender<Option<Instant>>,
        stop: CancellationToken,
    ) {
        let interval = template.duration / RENEWALS_PER_DURATION;
        let holding = async {
            loop {
                let began = Instant::now();
                match self.renew_identity_lease(&template).await {
                    Ok(()) => {
                        renewed.send_replace(Some(began));
                        self.delete_expired_leases(&template.component).await;
                    }
                    Err(error) => tracing::warn!(error, "failed to renew the identity lease"),
                }
                tokio::time::sleep_until(began + interval).await;
            }
        };
        stop.run_until_cancelled(holding).await;
    }

    /// Renews the lease, creates it, or takes it over from a process of the same identity whose lease is expired.
    async fn renew_identity_lease(&self, template: &IdentityLeaseTemplate) -> Result<(), String> {
        let client = ApiLeaseClient(self.client.clone());
        let name = template.server.as_str();
        let now = MicroTime::from(jiff::Timestamp::now());
        let found = client.get(IDENTITY_LEASE_NAMESPACE, name).await.map_err(|error| error.to_string())?;
        let written = match found {
            None => client.create(template.new_lease(now)).await,
            Some(lease) if lease.spec.holder_identity.as_deref() == Some(template.holder.as_str()) => {
                client.update(template.renew(&lease, now)).await
            }
            Some(lease) => {
                self.list_leases().await.map_err(|error| error.to_string())?;
                if self.leases.lock().is_valid(name, Instant::now()) {
                    return Err("another process of this identity holds the lease".to_owned());
                }
                let next = Lease { metadata: lease.metadata, ..template.new_lease(now) };
                client.update(template.renew(&next, now)).await
            }
        };
        written.map(drop).map_err(|error| error.to_string())
    }

    /// Deletes the lease of this process.
    pub(crate) async fn release_identity_lease(&self, template: &IdentityLeaseTemplate) {
        let client = ApiLeaseClient(self.client.clone());
        let Ok(Some(lease)) = client.get(IDENTITY_LEASE_NAMESPACE, template.server.as_str()).await else { return };
        if lease.spec.holder_identity.as_deref() != Some(template.holder.as_str()) {
            return;
        }
        let path = format!("{}/{}", leases_path(), lease.metadata.name);
        let preconditions = json!({"preconditions": {"uid": lease.metadata.uid}});
        if let Err(error) = self.client.delete(&path, &preconditions).await {
            tracing::warn!(%error, "failed to delete the identity lease");
        }
    }

    /// Deletes the leases that killed replicas left behind: the main cluster deletes those of API servers alone.
    async fn delete_expired_leases(&self, component: &str) {
        let leases = match self.read_leases().await {
            Ok(leases) => leases,
            Err(error) => return tracing::warn!(%error, "failed to list the identity leases"),
        };
        let is_ours =
            |lease: &&Lease| lease.metadata.labels.get(IDENTITY_LABEL).is_some_and(|label| label == component);
        for Lease { metadata, .. } in leases.iter().filter(is_ours) {
            if self.leases.lock().is_valid(&metadata.name, Instant::now()) {
                continue;
            }
            let preconditions =
                json!({"preconditions": {"uid": metadata.uid, "resourceVersion": metadata.resource_version}});
            match self.client.delete(&format!("{}/{}", leases_path(), metadata.name), &preconditions).await {
                Ok(_) => tracing::info!(name = metadata.name, "deleted an expired identity lease"),
                Err(error) if error.is_not_found() || error.is_conflict() => {}
                Err(error) => tracing::warn!(%error, "failed to delete an expired identity lease"),
            }
        }
    }

    async fn read_leases(&self) -> Result<Vec<Lease>, ApiError> {
        let path = format!("{}?labelSelector={IDENTITY_LABEL}", leases_path());
        let list: ObjectList<Lease> = parse(&self.client.get(&path, JSON).await?.body)?;
        let valid = self.leases.lock().observe(list.items.iter(), Instant::now());
        self.members.send_replace(Some(Arc::new(MemberSet::from_components(valid))));
        Ok(list.items)
    }

    /// Reads all identity leases; returns the servers whose leases are valid.
    async fn list_leases(&self) -> Result<Arc<MemberSet>, ApiError> {
        self.read_leases().await?;
        self.members.borrow().clone().ok_or_else(|| ApiError::NoResponse("no leases were read".to_owned()))
    }

    async fn follow_storage_versions(&self) {
        let mut backoff = RETRY_BACKOFF;
        loop {
            match self.list_and_watch(&mut backoff).await {
                Ok(()) => {}
                Err(error) => {
                    tracing::warn!(%error, "failed to watch StorageVersions, will retry");
                    tokio::time::sleep(backoff.next_wait()).await;
                }
            }
        }
    }

    async fn list_and_watch(&self, backoff: &mut Backoff) -> Result<(), ApiError> {
        let list: ObjectList<StorageVersion> = parse(&self.client.get(STORAGE_VERSIONS, JSON).await?.body)?;
        let version = list.metadata.resource_version;
        let mut objects: BTreeMap<Arc<str>, Arc<StorageVersion>> =
            list.items.into_iter().map(|object| (object.metadata.name.as_str().into(), Arc::new(object))).collect();
        self.publish_snapshot(&version, &objects);
        let path = format!("{STORAGE_VERSIONS}?watch=true&allowWatchBookmarks=true&resourceVersion={version}");
        let mut events = self.client.watch(&path, JSON).await?;
        backoff.reset();
        while let Some(event) = events.next_event().await? {
            let object = match &event {
                ApiWatchEvent::Applied(object) | ApiWatchEvent::Deleted(object) => object,
                ApiWatchEvent::Bookmark(_) => continue,
            };
            let object: StorageVersion = parse(object.get().as_bytes())?;
            let (name, version) = (Arc::from(object.metadata.name.as_str()), object.metadata.resource_version.clone());
            match event {
                ApiWatchEvent::Deleted(_) => objects.remove(&name),
                ApiWatchEvent::Applied(_) | ApiWatchEvent::Bookmark(_) => objects.insert(name, Arc::new(object)),
            };
            self.publish_snapshot(&version, &objects);
        }
        Ok(())
    }

    fn publish_snapshot(&self, version: &str, objects: &BTreeMap<Arc<str>, Arc<StorageVersion>>) {
        let revision = version.parse().unwrap_or_default();
        self.snapshots.send_replace(Arc::new(StorageVersionSnapshot { revision, objects: objects.clone() }));
    }

    /// The current object after a conflicting write.
    async fn conflict(&self, name: &str) -> StorageVersionWriteError {
        match self.client.get(&format!("{STORAGE_VERSIONS}/{name}"), JSON).await {
            Ok(answer) => match parse(&answer.body) {
                Ok(object) => StorageVersionWriteError::Conflict(Some(Box::new(object))),
                Err(error) => unavailable(&error),
            },
            Err(error) if error.is_not_found() => StorageVersionWriteError::Conflict(None),
            Err(error) => unavailable(&error),
        }
    }

    async fn write(
        &self,
        name: &str,
        result: Result<controllers::client::ApiResponse, ApiError>,
    ) -> Result<StorageVersion, StorageVersionWriteError> {
        match result {
            Ok(answer) => parse(&answer.body).map_err(|error| unavailable(&error)),
            Err(error) if error.is_conflict() || error.is_not_found() => Err(self.conflict(name).await),
            Err(error) => Err(unavailable(&error)),
        }
    }
}

impl StorageVersionClient for MainCluster {
    fn subscribe(&self) -> watch::Receiver<Arc<StorageVersionSnapshot>> {
        self.snapshots.subscribe()
    }

    /// The status is a subresource: an object is created empty, and its entries are written next.
    fn put(&self, mut object: StorageVersion) -> BoxFuture<'_, Result<StorageVersion, StorageVersionWriteError>> {
        Box::pin(async move {
            let name = object.metadata.name.clone();
            if object.metadata.uid.is_empty() {
                let empty = StorageVersion { metadata: object.metadata.clone(), ..StorageVersion::default() };
                let created = self.client.create(STORAGE_VERSIONS, &json!(empty)).await;
                object.metadata = self.write(&name, created).await?.metadata;
            }
            let path = format!("{STORAGE_VERSIONS}/{name}/status");
            let updated = self.client.update(&path, &json!(object)).await;
            self.write(&name, updated).await
        })
    }

    fn delete(&self, expected: &StorageVersion) -> BoxFuture<'_, Result<(), StorageVersionWriteError>> {
        let name = expected.metadata.name.clone();
        let preconditions = json!({"preconditions": {
            "uid": expected.metadata.uid, "resourceVersion": expected.metadata.resource_version,
        }});
        Box::pin(async move {
            match self.client.delete(&format!("{STORAGE_VERSIONS}/{name}"), &preconditions).await {
                Ok(_) => Ok(()),
                Err(error) if error.is_conflict() || error.is_not_found() => Err(self.conflict(&name).await),
                Err(error) => Err(unavailable(&error)),
            }
        })
    }
}

impl MemberSource for MainCluster {
    fn subscribe(&self) -> watch::Receiver<Option<Arc<MemberSet>>> {
        self.members.subscribe()
    }

    fn fetch_current(&self) -> BoxFuture<'_, Result<Arc<MemberSet>, MembersUnknown>> {
        Box::pin(async move { self.list_leases().await.map_err(|_| MembersUnknown) })
    }
}

fn leases_path() -> String {
    format!("/apis/coordination.k8s.io/v1/namespaces/{IDENTITY_LEASE_NAMESPACE}/leases")
}

fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, ApiError> {
    serde_json::from_slice(body).map_err(|error| ApiError::InvalidResponse(error.to_string()))
}

fn unavailable(error: &ApiError) -> StorageVersionWriteError {
    StorageVersionWriteError::Unavailable { reason: error.to_string() }
}

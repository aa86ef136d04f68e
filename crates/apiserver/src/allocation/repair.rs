//! Repairs the records of allocations: at start, so that what existing services hold is not taken, then periodically.
//!
//! Every server runs it, as every kube-apiserver does: each change compares what it was decided on. An IPAddress that a
//! service lacks is created as soon as the service is seen, since servers of older releases record addresses in bitmaps
//! alone.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use ::admission::allocation::{
    AddressRange, Leaks, RangeAllocation, ServiceChange, ServiceHoldings, ip_address, is_leaked_record,
    is_wrong_record, parent_service, repair_bitmap,
};
use api::json::JsonObject;
use api::time::Time;
use api::{GroupVersionResource, Status};
use object::StoredObject;
use object::unstructured::metadata_string;
use registry::{CachedEntry, CachedValue, DecidedWrite, RawWriteOutcome, WriteConditions, WriteDecision, WriteError};
use serde_json::Value;
use store::{Compare, Key, Revision};
use tokio_util::sync::CancellationToken;

use super::{ADDRESS_MAPS, AllocationObjects, PORT_MAP, ServiceWrite};
use crate::resource::Resource;
use crate::rest::{FoundCompanion, current_time};
use crate::{ApiServer, bootstrap, error_status, object_codec};

const SERVICES: GroupVersionResource<&str> = GroupVersionResource { group: "", version: "v1", resource: "services" };
/// kube-apiserver's interval of repairs.
const REPAIR_INTERVAL: Duration = Duration::from_secs(3 * 60);
/// The delay before a failed pass is repeated.
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// How long a pass waits for the cache to reach the revision of a bitmap.
const CACHE_WAIT_MAX: Duration = Duration::from_secs(5);
/// How often a pass decides again about a bitmap that others change.
const CONFLICTS_MAX: usize = 16;

/// Keeps the records of allocations in line with the services.
pub struct ServiceAllocationController {
    server: Arc<ApiServer>,
}

/// The services of a pass.
struct Services {
    /// By the key in storage.
    by_key: BTreeMap<Key, ServiceState>,
}

struct ServiceState {
    namespace: String,
    name: String,
    revision: Revision,
    created: Option<Time>,
    holdings: ServiceHoldings,
}

impl ServiceAllocationController {
    /// Creates the controller of a server. It begins once bootstrap has made the first pass.
    pub fn new(server: Arc<ApiServer>) -> Self {
        Self { server }
    }

    /// Runs until `stop`.
    pub async fn run(self, stop: CancellationToken) {
        stop.run_until_cancelled(self.control()).await;
    }

    async fn control(self) {
        let server = &*self.server;
        server.allocation.wait_until_ready().await;
        let Some(services) = server.resolve(SERVICES) else { return std::future::pending().await };
        let mut leaks = BTreeMap::new();
        loop {
            let next_pass = tokio::time::Instant::now() + REPAIR_INTERVAL;
            let revision = services.cache.snapshot().revision;
            while let Err(error) = server.repair_allocations(&mut leaks).await {
                tracing::warn!(error = error.message, "allocations of services not repaired, will retry");
                tokio::time::sleep(RETRY_DELAY).await;
            }
            // Ends early if changes are missed.
            let _ = tokio::time::timeout_at(next_pass, follow(server, &services, revision)).await;
            tokio::time::sleep_until(next_pass).await;
        }
    }
}

/// Creates the IPAddresses that services lack which change after `revision`. Ends if changes are missed.
async fn follow(server: &ApiServer, services: &Resource, revision: Revision) {
    let Some(objects) = &server.allocation.objects else { return std::future::pending().await };
    let Ok(mut watcher) = server.registry.watch(&services.cache, revision) else { return };
    while let Ok(changes) = watcher.next_changes().await {
        for service in changes.iter().filter_map(|change| ServiceState::of(change.current.as_deref()?)) {
            for address in &service.holdings.addresses {
                if server.allocation.addresses.get(&server.allocation.address_key(*address)).is_none()
                    && let Err(error) = server.record_address(objects, &services.cache, &service, *address).await
                {
                    tracing::warn!(error = error.message, %address, "address of a service not recorded, will retry");
                }
            }
        }
    }
}

impl ApiServer {
    /// Records what existing services hold, then creates the service `kubernetes`. Allocations wait for it.
    pub(crate) async fn start_allocation(&self, kubernetes_service: &JsonObject) {
        let retry = |error: Status| async move {
            tracing::warn!(error = error.message, "allocation of service addresses not started, will retry");
            tokio::time::sleep(RETRY_DELAY).await;
        };
        let mut leaks = BTreeMap::new();
        while let Err(error) = self.repair_allocations(&mut leaks).await {
            retry(error).await;
        }
        while let Err(error) = self.create_service(kubernetes_service).await {
            retry(error).await;
        }
        self.allocation.is_ready.send_replace(true);
    }

    /// Creates a service with its allocations, unless it exists.
    async fn create_service(&self, service: &JsonObject) -> Result<(), Status> {
        let Some(resource) = self.resolve(SERVICES) else { return Ok(()) };
        let [namespace, name] = ["namespace", "name"].map(|part| metadata_string(service, part));
        let key = Key::from([resource.cache.prefix().as_ref(), format!("{namespace}/{name}").as_bytes()].concat());
        let registry = self.registry.with_server_author();
        let found = parking_lot::Mutex::new(BTreeMap::<Key, FoundCompanion>::new());
        for _ in 0..CONFLICTS_MAX {
            let decide = |current: Option<&StoredObject>| {
                if current.is_some() {
                    return Ok(WriteDecision::Keep.into());
                }
                let mut service = service.clone();
                let companions = match service.get_mut("spec").and_then(Value::as_object_mut) {
                    None => Vec::new(),
                    Some(spec) => {
                        let (change, random, is_dry_run) = (ServiceChange::Create(spec), 0, false);
                        let write = ServiceWrite { namespace, name, change, random, is_dry_run };
                        let decided = self.allocation.decide(write, &|key| found.lock().get(key).cloned());
                        decided.map_err(|error| Status::internal_error(format!("{error:?}")))?
                    }
                };
                bootstrap::set_uid_and_creation_time(&mut service);
                let value = object_codec::encode_for_storage(service, &resource)?;
                Ok(DecidedWrite { decision: WriteDecision::Put { value, ttl: None }, companions, computed: None })
            };
            let (storage_name, conditions) = (resource.storage_name(), WriteConditions::default());
            let written = registry.write_with_companions(storage_name, &resource.cache, &key, conditions, decide).await;
            match written {
                Err(WriteError::CompanionChanged { key, current, as_of }) => {
                    found.lock().insert(key, FoundCompanion { entry: current, as_of });
                }
                written => return written.map(drop).map_err(error_status::status_for_write_error),
            }
        }
        Err(changed_in_every_attempt())
    }

    /// One pass over all records. `leaks` is kept from pass to pass, by the name of the bitmap.
    pub(super) async fn repair_allocations(&self, leaks: &mut BTreeMap<&'static str, Leaks>) -> Result<(), Status> {
        let Some(resource) = self.resolve(SERVICES) else { return Ok(()) };
        if !matches!(self.registry.catch_up_with_store().await, Ok(true)) {
            return Err(Status::service_unavailable("the services have not caught up with storage"));
        }
        for (position, name) in ADDRESS_MAPS.into_iter().enumerate() {
            let configured = self.allocation.ranges.addresses.get(position);
            let range_of = |stored: Option<&RangeAllocation>| {
                let stored: Option<AddressRange> = stored.and_then(|stored| stored.range.parse().ok());
                let range = if self.allocation.keeps_maps { configured.copied() } else { stored };
                range.map(|range| (range.to_string(), Offsets::Addresses(range)))
            };
            self.repair_map(&resource, name, leaks.entry(name).or_default(), range_of).await?;
        }
        let ports = self.allocation.ranges.node_ports;
        let range_of = |_: Option<&RangeAllocation>| Some((ports.to_string(), Offsets::Ports(ports)));
        self.repair_map(&resource, PORT_MAP, leaks.entry(PORT_MAP).or_default(), range_of).await?;
        match &self.allocation.objects {
            Some(objects) => self.repair_records(&resource, objects).await,
            None => Ok(()),
        }
    }

    /// Repairs one bitmap, if `range_of` says that there is to be one.
    async fn repair_map(
        &self,
        services: &Resource,
        name: &'static str,
        leaks: &mut Leaks,
        range_of: impl Fn(Option<&RangeAllocation>) -> Option<(String, Offsets)>,
    ) -> Result<(), Status> {
        let allocation = &self.allocation;
        let key = allocation.map_key(name);
        let mut newer: Option<FoundCompanion> = None;
        for _ in 0..CONFLICTS_MAX {
            let stored = allocation.newest(&allocation.maps, &key, &|_| newer.clone());
            let revision = stored.as_ref().map(|(_, revision)| *revision);
            // The services are at least as new as the bitmap, and any later allocation changes its revision.
            let reached = self.registry.cache().wait_for_revision(revision.unwrap_or_default(), CACHE_WAIT_MAX).await;
            if !matches!(reached, Ok(true)) {
                return Err(Status::service_unavailable("the services have not caught up with their allocations"));
            }
            // What cannot be read is replaced, as it would block all allocations.
            let parsed = stored.and_then(|(value, _)| RangeAllocation::parse(&value).ok());
            let Some((range, offsets)) = range_of(parsed.as_ref()) else { return Ok(()) };
            let held =
                Services::read(services).by_key.values().flat_map(|service| offsets.of(&service.holdings)).collect();
            let mut counted = leaks.clone();
            let Some(repaired) = repair_bitmap(parsed.as_ref(), &range, &held, &mut counted) else {
                *leaks = counted;
                return Ok(());
            };
            let value = repaired.to_json().into();
            let written = self.registry.write_raw(&key, revision, value).await;
            match written.map_err(|error| error_status::status_for_write_error(WriteError::Store(error)))? {
                RawWriteOutcome::Written => {
                    tracing::info!(name, "allocations of services repaired");
                    *leaks = counted;
                    return Ok(());
                }
                RawWriteOutcome::Conflict { current, as_of } => {
                    newer = Some(FoundCompanion { entry: current, as_of });
                }
            }
        }
        Err(changed_in_every_attempt())
    }

    /// Creates missing IPAddresses, and deletes wrong ones and those whose service does not hold the address.
    async fn repair_records(&self, resource: &Resource, objects: &AllocationObjects) -> Result<(), Status> {
        let services = Services::read(resource);
        let services_prefix = resource.cache.prefix();
        let service_key = |(namespace, name): (&str, &str)| {
            Key::from([services_prefix.as_ref(), format!("{namespace}/{name}").as_bytes()].concat())
        };
        for service in services.by_key.values() {
            for address in &service.holdings.addresses {
                let key = self.allocation.address_key(*address);
                if let Some((record, _)) = self.allocation.addresses.get(&key).and_then(|entry| decoded(&entry)) {
                    let parent = parent_service(&record).map(service_key);
                    let parent_exists = parent.is_some_and(|key| services.by_key.contains_key(&key));
                    if !is_wrong_record(&record, *address, parent_exists) {
                        continue;
                    }
                    self.delete_record(objects, &key, &[]).await?;
                }
                self.record_address(objects, &resource.cache, service, *address).await?;
            }
        }
        let records = self.allocation.addresses.snapshot();
        for (record, _) in records.entries.values().filter_map(|entry| decoded(entry)) {
            let created = creation_time(&record);
            let age = created
                .and_then(|created| current_time().timestamp().duration_since(created.timestamp()).try_into().ok());
            let parent_key = parent_service(&record).map(service_key);
            let parent = parent_key.as_ref().and_then(|key| services.by_key.get(key));
            let holder = parent.map(|service| (&service.holdings, created > service.created));
            if is_leaked_record(&record, age.unwrap_or_default(), holder) {
                let name = metadata_string(&record, "name");
                tracing::info!(name, "deleting an IPAddress that no service holds");
                let key = Key::from([self.allocation.addresses.prefix().as_ref(), name.as_bytes()].concat());
                let revision = parent.map(|service| service.revision);
                let condition = parent_key.map(|key| Compare { key, revision });
                self.delete_record(objects, &key, condition.as_slice()).await?;
            }
        }
        Ok(())
    }

    /// Creates the IPAddress of an address that a service holds, unless one exists or the service changed.
    async fn record_address(
        &self,
        objects: &AllocationObjects,
        services: &registry::ResourceCache,
        service: &ServiceState,
        address: IpAddr,
    ) -> Result<(), Status> {
        let ServiceState { namespace, name, revision, .. } = service;
        let holder = Key::from([services.prefix().as_ref(), format!("{namespace}/{name}").as_bytes()].concat());
        let condition = [Compare { key: holder, revision: Some(*revision) }];
        let decide = |current: Option<&StoredObject>| -> Result<WriteDecision, Status> {
            if current.is_some() {
                return Ok(WriteDecision::Keep);
            }
            let mut object = ip_address(address, namespace, name);
            bootstrap::set_uid_and_creation_time(&mut object);
            Ok(WriteDecision::Put { value: object_codec::encode_for_storage(object, &objects.addresses)?, ttl: None })
        };
        self.write_record(objects, &self.allocation.address_key(address), &condition, decide).await
    }

    async fn delete_record(
        &self,
        objects: &AllocationObjects,
        key: &Key,
        conditions: &[Compare],
    ) -> Result<(), Status> {
        let decide = |current: Option<&StoredObject>| {
            Ok(if current.is_some() { WriteDecision::Delete } else { WriteDecision::Keep })
        };
        self.write_record(objects, key, conditions, decide).await
    }

    async fn write_record(
        &self,
        AllocationObjects { addresses, .. }: &AllocationObjects,
        key: &Key,
        conditions: &[Compare],
        decide: impl FnMut(Option<&StoredObject>) -> Result<WriteDecision, Status>,
    ) -> Result<(), Status> {
        let registry = self.registry.with_server_author();
        let conditions = WriteConditions::unchanged(conditions);
        match registry.write_if(addresses.storage_name(), &addresses.cache, key, conditions, decide).await {
            // The service changed: its next state is seen later.
            Err(WriteError::ConditionChanged { .. }) => Ok(()),
            written => written.map(drop).map_err(error_status::status_for_write_error),
        }
    }
}

/// What the offsets of a bitmap mean.
enum Offsets {
    Addresses(AddressRange),
    Ports(::admission::allocation::PortRange),
}

impl Offsets {
    fn of(&self, holdings: &ServiceHoldings) -> BTreeSet<usize> {
        match self {
            Self::Addresses(range) => {
                let offsets = holdings.addresses.iter().filter_map(|address| range.offset(*address));
                offsets
                    .filter_map(|offset| usize::try_from(offset).ok())
                    .filter(|at| *at < range.bitmap_size())
                    .collect()
            }
            Self::Ports(range) => holdings.ports.iter().filter_map(|port| range.offset(*port)).collect(),
        }
    }
}

impl Services {
    fn read(resource: &Resource) -> Self {
        let snapshot = resource.cache.snapshot();
        let entries = snapshot.entries.iter();
        let by_key = entries.filter_map(|(key, entry)| Some((key.clone(), ServiceState::of(entry)?)));
        Self { by_key: by_key.collect() }
    }
}

impl ServiceState {
    fn of(entry: &CachedEntry) -> Option<Self> {
        let (object, revision) = decoded(entry)?;
        Some(Self {
            namespace: metadata_string(&object, "namespace").to_owned(),
            name: metadata_string(&object, "name").to_owned(),
            revision,
            created: creation_time(&object),
            holdings: ServiceHoldings::of(&object),
        })
    }
}

fn decoded(entry: &CachedEntry) -> Option<(JsonObject, Revision)> {
    match &entry.value {
        CachedValue::Object(stored) => Some((object_codec::decode_stored(stored), entry.revision)),
        CachedValue::Raw(_) | CachedValue::Undecodable(_) => None,
    }
}

fn creation_time(object: &JsonObject) -> Option<Time> {
    metadata_string(object, "creationTimestamp").parse().ok()
}

fn changed_in_every_attempt() -> Status {
    Status::service_unavailable("the allocations of services changed in every attempt").with_retry_after(1)
}

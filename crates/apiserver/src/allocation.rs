//! Addresses and ports of services: the records in storage, what a write of a service does to them, and their repair.
//!
//! A write compares every record that its decision depends on in its own transaction, whichever of the two forms of
//! records the server's release keeps: no address is taken while either form says that it is held. A bitmap that exists is
//! written by all servers, since one of them may read nothing else.

mod metrics;
mod repair;

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use ::admission::allocation::{
    AddressRange, AllocationError, ClusterFamilies, PortRange, RangeAllocation, Recorded, ServiceAllocator,
    ServiceChange, ip_address, parent_service,
};
use api::json::JsonObject;
use api::{GroupResource, GroupVersionResource};
use bytes::Bytes;
use kinds::FeatureGates;
use object::StoredObject;
use registry::{CachedValue, CompanionResource, CompanionWrite, Registry, ResourceCache, ValueFormat, WriteDecision};
use serde_json::Value;
use store::{Key, Revision};
use tokio::sync::watch;

pub use repair::ServiceAllocationController;

use crate::bootstrap::SystemObject;
use crate::resource::Resource;
use crate::rest::{FoundCompanion, current_time};
use crate::{bootstrap, object_codec};

const IP_ADDRESSES: &str = "ipaddresses";
const SERVICE_CIDRS: &str = "servicecidrs";
const RANGES: &str = "ranges";
const ADDRESS_MAPS: [&str; 2] = ["serviceips", "secondaryserviceips"];
const PORT_MAP: &str = "servicenodeports";

/// The ranges from which services get addresses and ports.
#[derive(Clone, Debug)]
pub struct ServiceRanges {
    /// `--service-cluster-ip-range`: one range, or one of each family. The family of the first is the default.
    pub addresses: Vec<AddressRange>,
    /// `--service-node-port-range`.
    pub node_ports: PortRange,
}

impl Default for ServiceRanges {
    /// kube-apiserver's defaults.
    fn default() -> Self {
        let addresses = vec!["10.0.0.0/24".parse().expect("it is a range")];
        Self { addresses, node_ports: PortRange::DEFAULT }
    }
}

/// The records of allocations, as this server reads and writes them.
#[derive(Debug)]
pub(crate) struct ServiceAllocation {
    ranges: ServiceRanges,
    registry: Registry,
    gates: FeatureGates,
    /// The bitmaps.
    maps: Arc<ResourceCache>,
    /// The IPAddress objects, also on a server that does not serve them.
    addresses: Arc<ResourceCache>,
    /// IPAddresses and ServiceCIDRs, if this server records allocations in objects.
    objects: Option<AllocationObjects>,
    /// Whether this server creates the bitmaps of addresses if they are absent.
    keeps_maps: bool,
    /// Held by a write that changes a bitmap, so that the writes of this server do not race.
    pub(crate) turn: Arc<tokio::sync::Mutex<OwnMaps>>,
    is_ready: watch::Sender<bool>,
}

#[derive(Debug)]
struct AllocationObjects {
    addresses: Arc<Resource>,
    service_cidrs: Arc<Resource>,
}

/// The bitmaps as this server wrote them last.
pub(crate) type OwnMaps = HashMap<Key, FoundCompanion>;

/// A state of a key that may be newer than the cache's.
pub(crate) type NewerState<'a> = &'a dyn Fn(&Key) -> Option<FoundCompanion>;

/// A write of a service, for which something may have to be allocated or released.
pub(crate) struct ServiceWrite<'a> {
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    /// The change of the spec.
    pub(crate) change: ServiceChange<'a>,
    /// Where the search for free addresses and ports begins.
    pub(crate) random: u64,
    pub(crate) is_dry_run: bool,
}

/// The keys that the cache must hold besides those of served resources.
pub(crate) fn record_prefixes(prefix: &str) -> [(Key, ValueFormat); 2] {
    [RANGES, IP_ADDRESSES].map(|part| (Key::from(format!("{prefix}/{part}/")), ValueFormat::Raw))
}

impl ServiceAllocation {
    /// Panics if the cache does not hold [`record_prefixes`].
    pub(crate) fn new(
        registry: &Registry,
        prefix: &str,
        ranges: &ServiceRanges,
        gates: &FeatureGates,
        metrics: &prometheus::Registry,
        resolve: impl Fn(GroupVersionResource<&'static str>) -> Option<Arc<Resource>>,
    ) -> Self {
        let cache = |part: &str| {
            let cache = registry.cache().resource_cache(format!("{prefix}/{part}/").as_bytes());
            cache.expect("the cache was started with the prefixes of the records").clone()
        };
        let newest = |resource| {
            let named = |version| resolve(GroupVersionResource { group: "networking.k8s.io", version, resource });
            named("v1").or_else(|| named("v1beta1"))
        };
        let objects = match gates.enabled("MultiCIDRServiceAllocator") {
            true => newest(IP_ADDRESSES)
                .zip(newest(SERVICE_CIDRS))
                .map(|(addresses, service_cidrs)| AllocationObjects { addresses, service_cidrs }),
            false => None,
        };
        let allocation = Self {
            ranges: ranges.clone(),
            registry: registry.clone(),
            gates: gates.clone(),
            maps: cache(RANGES),
            addresses: cache(IP_ADDRESSES),
            keeps_maps: objects.is_none() || !gates.enabled("DisableAllocatorDualWrite"),
            objects,
            turn: Arc::default(),
            is_ready: watch::Sender::new(false),
        };
        metrics::AllocationGauges::register(&allocation, metrics);
        allocation
    }

    /// The address of the service `kubernetes`.
    pub(crate) fn first_address(&self) -> IpAddr {
        self.ranges.addresses[0].address(0)
    }

    /// The ServiceCIDR of this server's ranges, if it serves ServiceCIDRs.
    pub(crate) fn default_service_cidr(&self) -> Option<SystemObject> {
        let objects = self.objects.as_ref()?;
        let version = objects.service_cidrs.as_built_in()?.version.name;
        let ranges: Vec<String> = self.ranges.addresses.iter().map(ToString::to_string).collect();
        Some(bootstrap::default_service_cidr(&ranges, version, current_time()))
    }

    /// True once the records contain what existing services hold.
    pub(crate) fn is_ready(&self) -> bool {
        *self.is_ready.borrow()
    }

    pub(crate) async fn wait_until_ready(&self) {
        // Cannot fail: the sender is part of `self`.
        let _ = self.is_ready.subscribe().wait_for(|is_ready| *is_ready).await;
    }

    /// True if each service with an address changes a bitmap.
    pub(crate) fn has_address_maps(&self) -> bool {
        ADDRESS_MAPS.iter().any(|name| self.maps.get(&self.map_key(name)).is_some())
    }

    fn map_key(&self, name: &str) -> Key {
        Key::from([self.maps.prefix().as_ref(), name.as_bytes()].concat())
    }

    fn address_key(&self, address: IpAddr) -> Key {
        Key::from([self.addresses.prefix().as_ref(), address.to_string().as_bytes()].concat())
    }

    fn families(&self) -> ClusterFamilies {
        let [first, others @ ..] = &*self.ranges.addresses else { unreachable!("the first range has a default") };
        ClusterFamilies { primary: first.family(), is_dual: !others.is_empty() }
    }

    /// The value of a key and its revision; `None` if it is absent.
    fn newest(&self, cache: &ResourceCache, key: &Key, newer: NewerState<'_>) -> Option<(Bytes, Revision)> {
        let applied = self.registry.cache().applied_revision();
        if let Some(found) = newer(key).filter(|found| found.as_of > applied) {
            return found.entry.map(|entry| (entry.value, entry.revision));
        }
        let entry = cache.get(key)?;
        let value = match &entry.value {
            CachedValue::Object(stored) => stored.body.clone(),
            CachedValue::Raw(value) => value.clone(),
            CachedValue::Undecodable(_) => Bytes::new(),
        };
        Some((value, entry.revision))
    }

    /// A bitmap with its revision; `None` if it is absent.
    fn map(&self, key: &Key, newer: NewerState<'_>) -> Result<Option<(Recorded, Revision)>, AllocationError> {
        let Some((value, revision)) = self.newest(&self.maps, key, newer) else { return Ok(None) };
        let parsed = RangeAllocation::parse(&value);
        let allocation = parsed.map_err(|error| {
            AllocationError::Internal(format!("the key {} is unusable: {error}", key.escape_ascii()))
        })?;
        Ok(Some((Recorded::new(allocation), revision)))
    }

    /// Decides what a write allocates and releases. Changes the spec, and returns the writes to the records.
    pub(crate) fn decide(
        &self,
        write: ServiceWrite<'_>,
        newer: NewerState<'_>,
    ) -> Result<Vec<CompanionWrite>, AllocationError> {
        let ServiceWrite { namespace, name, change, random, is_dry_run } = write;
        let mut maps = Vec::with_capacity(ADDRESS_MAPS.len());
        for key in ADDRESS_MAPS.map(|map| self.map_key(map)) {
            let found = self.map(&key, newer)?;
            maps.push((key, found));
        }
        let port_key = self.map_key(PORT_MAP);
        let (ports, port_revision) = self.map(&port_key, newer)?.unzip();
        let has_object = |address: IpAddr| {
            let key = self.address_key(address);
            self.newest(&self.addresses, &key, newer).is_some()
        };
        let mut allocator = ServiceAllocator {
            families: self.families(),
            name,
            gates: &self.gates,
            ranges: self.current_ranges(),
            has_service_cidrs: self.objects.is_some(),
            address_maps: maps.iter().filter_map(|(_, found)| Some(found.as_ref()?.0.clone())).collect(),
            port_range: self.ranges.node_ports,
            ports,
            has_object: &has_object,
            is_dry_run,
            random,
            taken_by_write: Vec::new(),
            released_addresses: Vec::new(),
            dry_run_ports: Vec::new(),
        };
        allocator.apply(change)?;
        let ServiceAllocator { address_maps, ports, taken_by_write, released_addresses, .. } = allocator;
        let (existing, absent): (Vec<_>, Vec<_>) = maps.into_iter().partition(|(_, found)| found.is_some());
        let revisions = existing.into_iter().filter_map(|(key, found)| Some((key, found?.1)));
        let revisions = revisions.chain(port_revision.map(|revision| (port_key, revision)));
        let changed = revisions.zip(address_maps.into_iter().chain(ports)).filter(|(_, map)| map.is_changed);
        let mut writes: Vec<_> = changed.map(|((key, revision), map)| put_map(key, revision, &map)).collect();
        if !taken_by_write.is_empty() {
            // Were a bitmap created now, the addresses would have to be in it.
            writes.extend(absent.into_iter().map(|(key, _)| require_absent(key)));
        }
        writes.extend(taken_by_write.into_iter().map(|address| self.take(address, namespace, name)));
        let released = released_addresses.into_iter();
        writes.extend(released.filter_map(|address| self.release(address, (namespace, name), newer)));
        Ok(writes)
    }

    /// The ranges of ServiceCIDRs that are ready, those of this server's flags first.
    fn current_ranges(&self) -> Vec<AddressRange> {
        let configured = &self.ranges.addresses;
        let Some(objects) = &self.objects else { return configured.clone() };
        let mut found: Vec<AddressRange> = Vec::new();
        for entry in objects.service_cidrs.cache.snapshot().entries.values() {
            let CachedValue::Object(stored) = &entry.value else { continue };
            let object = object_codec::decode_stored(stored);
            if is_ready(&object) {
                let cidrs = object::unstructured::texts(&object, &["spec", "cidrs"]);
                found.extend(cidrs.filter_map(|cidr| cidr.parse::<AddressRange>().ok()));
            }
        }
        // None exists before the first server has created the default one.
        if found.is_empty() {
            return configured.clone();
        }
        let (mut ranges, others): (Vec<_>, Vec<_>) = found.into_iter().partition(|range| configured.contains(range));
        ranges.extend(others);
        ranges.dedup();
        ranges
    }

    /// Records an address of a service, or at least requires that no IPAddress does.
    fn take(&self, address: IpAddr, namespace: &str, service: &str) -> CompanionWrite {
        let key = self.address_key(address);
        let Some(objects) = &self.objects else { return require_absent(key) };
        let mut object = ip_address(address, namespace, service);
        bootstrap::set_uid_and_creation_time(&mut object);
        let value = object_codec::encode_for_storage(object, &objects.addresses)
            .expect("the version of a built-in object only changes its name");
        let decision = WriteDecision::Put { value, ttl: None };
        CompanionWrite {
            key,
            expected_revision: None,
            decision,
            resource: Some(companion_resource(&objects.addresses)),
        }
    }

    /// Deletes the IPAddress of an address that a service gives back, unless it refers to something else.
    fn release(&self, address: IpAddr, service: (&str, &str), newer: NewerState<'_>) -> Option<CompanionWrite> {
        let key = self.address_key(address);
        let Some((value, revision)) = self.newest(&self.addresses, &key, newer) else {
            return Some(require_absent(key));
        };
        let record = StoredObject::from_storage(&value, revision.0).ok()?.to_object();
        if parent_service(&record) != Some(service) {
            return None;
        }
        // A deletion encodes nothing, so that a server may delete objects that it does not serve.
        let resource = self.objects.as_ref().map(|objects| companion_resource(&objects.addresses));
        let decision = WriteDecision::Delete;
        Some(CompanionWrite { key, expected_revision: Some(revision), decision, resource })
    }
}

/// As kube-apiserver does, a ServiceCIDR without a condition counts as ready: it may be that no controller sets one.
fn is_ready(service_cidr: &JsonObject) -> bool {
    let conditions = object::unstructured::get(service_cidr, &["status", "conditions"]).and_then(Value::as_array);
    let mut conditions = conditions.into_iter().flatten();
    let ready = conditions.find(|condition| condition.get("type").is_some_and(|name| name == "Ready"));
    object::unstructured::get(service_cidr, &["metadata", "deletionTimestamp"]).is_none()
        && ready.is_none_or(|condition| condition.get("status").is_some_and(|status| status == "True"))
}

fn put_map(key: Key, revision: Revision, map: &Recorded) -> CompanionWrite {
    let decision = WriteDecision::Put { value: map.allocation.to_json().into(), ttl: None };
    CompanionWrite { key, expected_revision: Some(revision), decision, resource: None }
}

fn require_absent(key: Key) -> CompanionWrite {
    CompanionWrite { key, expected_revision: None, decision: WriteDecision::Keep, resource: None }
}

fn companion_resource(resource: &Resource) -> CompanionResource {
    let GroupResource { group, resource: name } = resource.storage_name();
    let name = GroupResource { group: group.into(), resource: name.into() };
    CompanionResource { name, prefix: resource.cache.prefix().clone() }
}

//! What a write of a service allocates and releases.

use std::net::IpAddr;

use api::FieldError;
use api::json::JsonObject;
use kinds::FeatureGates;
use serde_json::{Value, json};

use super::families::{
    ClusterFamilies, default_on_read, is_headless, keeps_preferred_families, set_ip_families, text, texts,
};
use super::range::choose;
use super::{AddressRange, PortRange, RangeAllocation};

const ALLOCATED_IP: &str = "provided IP is already allocated";
const ALLOCATED_PORT: &str = "provided port is already allocated";
const FULL: &str = "range is full";
const RANGE_CHANGED: &str = "the provided range does not match the current range";
/// The port before the first that a dry run shows.
const DRY_RUN_PORT: i64 = 32768;

/// Why nothing is allocated.
#[derive(Clone, Debug, PartialEq)]
pub enum AllocationError {
    /// The service names what it cannot have.
    Invalid(Vec<FieldError>),
    /// Nothing is left, or the records do not fit the server.
    Internal(String),
}

/// A bitmap as a write finds and leaves it.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// The state to store.
    pub allocation: RangeAllocation,
    /// Whether the write changes it.
    pub is_changed: bool,
}

impl Recorded {
    /// An unchanged bitmap.
    pub fn new(allocation: RangeAllocation) -> Self {
        Self { allocation, is_changed: false }
    }

    fn set(&mut self, offset: usize, is_taken: bool) {
        if self.allocation.bitmap.contains(offset) != is_taken {
            self.is_changed = true;
            match is_taken {
                true => self.allocation.bitmap.insert(offset),
                false => self.allocation.bitmap.remove(offset),
            }
        }
    }
}

/// Allocates for one write of a service, on one state of the records.
pub struct ServiceAllocator<'a> {
    /// The families of the server's ranges.
    pub families: ClusterFamilies,
    /// The name of the service, for texts.
    pub name: &'a str,
    /// The gates of the server.
    pub gates: &'a FeatureGates,
    /// The ranges that addresses are taken from, the preferred one of a family first.
    pub ranges: Vec<AddressRange>,
    /// Whether ranges are ServiceCIDR objects. Otherwise addresses are taken only from the bitmaps.
    pub has_service_cidrs: bool,
    /// The bitmaps of addresses that exist.
    pub address_maps: Vec<Recorded>,
    /// The range of node ports.
    pub port_range: PortRange,
    /// The bitmap of node ports, once it exists.
    pub ports: Option<Recorded>,
    /// Whether an IPAddress of this address exists.
    pub has_object: &'a dyn Fn(IpAddr) -> bool,
    /// Whether nothing is recorded.
    pub is_dry_run: bool,
    /// Where the search for a free address or port begins.
    pub random: u64,
    /// The addresses that the write takes.
    pub taken_by_write: Vec<IpAddr>,
    /// The addresses that it gives back.
    pub released_addresses: Vec<IpAddr>,
    /// The ports that a dry run took.
    pub dry_run_ports: Vec<i64>,
}

/// What happens to the spec of a service.
pub enum ServiceChange<'a> {
    /// It is new.
    Create(&'a mut JsonObject),
    /// The spec before and after.
    Update(&'a JsonObject, &'a mut JsonObject),
    /// It is removed.
    Remove(&'a JsonObject),
}

impl ServiceAllocator<'_> {
    /// Allocates and releases for a change, and completes the spec.
    pub fn apply(&mut self, change: ServiceChange<'_>) -> Result<(), AllocationError> {
        let completed = |old: &JsonObject| {
            let mut old = old.clone();
            default_on_read(self.families, &mut old);
            old
        };
        match change {
            ServiceChange::Create(spec) => self.create(spec),
            ServiceChange::Update(old, new) => {
                let old = completed(old);
                kinds::keep_allocated_values(&old, new);
                self.update(&old, new)
            }
            ServiceChange::Remove(old) => {
                let old = completed(old);
                self.release(&old);
                Ok(())
            }
        }
    }

    /// Allocates for a new service.
    pub(super) fn create(&mut self, spec: &mut JsonObject) -> Result<(), AllocationError> {
        set_ip_families(self.families, self.gates, None, spec).map_err(AllocationError::Invalid)?;
        self.take_cluster_ips(spec)?;
        self.init_node_ports(spec)?;
        if needs_health_check(spec) {
            self.take_health_check_port(spec)?;
        }
        Ok(())
    }

    /// Allocates and releases what an update changes.
    pub(super) fn update(&mut self, old: &JsonObject, new: &mut JsonObject) -> Result<(), AllocationError> {
        set_ip_families(self.families, self.gates, Some(old), new).map_err(AllocationError::Invalid)?;
        self.update_cluster_ips(old, new)?;
        let uses_ports = |spec: &JsonObject| matches!(text(spec, "type"), "NodePort" | "LoadBalancer");
        let old_ports = node_ports(old);
        if uses_ports(new) {
            self.update_node_ports(&old_ports, new)?;
        }
        if !needs_health_check(old) && needs_health_check(new) {
            self.take_health_check_port(new)?;
        }
        let kept = if uses_ports(new) { node_ports(new) } else { Vec::new() };
        for port in old_ports.into_iter().filter(|port| !kept.contains(port)) {
            self.release_port(port);
        }
        if needs_health_check(old) && !needs_health_check(new) {
            self.release_port(integer(old, "healthCheckNodePort"));
        }
        Ok(())
    }

    /// Releases all that a removed service has.
    pub(super) fn release(&mut self, spec: &JsonObject) {
        if text(spec, "type") != "ExternalName" && !is_headless(spec) {
            self.release_addresses(&texts(spec, "clusterIPs"));
        }
        node_ports(spec).into_iter().for_each(|port| self.release_port(port));
        if needs_health_check(spec) {
            self.release_port(integer(spec, "healthCheckNodePort"));
        }
    }

    fn update_cluster_ips(&mut self, old: &JsonObject, new: &mut JsonObject) -> Result<(), AllocationError> {
        if keeps_preferred_families(old, new) {
            return Ok(());
        }
        let [was_external, is_external] = [old, &*new].map(|spec| text(spec, "type") == "ExternalName");
        // A service that was stored before addresses were allocated gets one now.
        if !is_external && (was_external || texts(old, "clusterIPs").is_empty()) {
            return self.take_cluster_ips(new);
        }
        if is_headless(old) {
            return Ok(());
        }
        let before: Vec<&str> = texts(old, "clusterIPs");
        if is_external {
            if !was_external {
                self.release_addresses(&before);
            }
            return Ok(());
        }
        match (texts(old, "ipFamilies").len(), texts(new, "ipFamilies").len()) {
            (1, 2) => self.take_cluster_ips_from(new, 1),
            (2, 1) => {
                self.release_addresses(&before[1..]);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn take_cluster_ips(&mut self, spec: &mut JsonObject) -> Result<(), AllocationError> {
        if text(spec, "type") == "ExternalName" || is_headless(spec) {
            return Ok(());
        }
        self.take_cluster_ips_from(spec, 0)
    }

    /// Takes the addresses of the families from `first` on.
    fn take_cluster_ips_from(&mut self, spec: &mut JsonObject, first: usize) -> Result<(), AllocationError> {
        let families: Vec<String> = texts(spec, "ipFamilies").into_iter().map(str::to_owned).collect();
        let mut addresses: Vec<String> = texts(spec, "clusterIPs").into_iter().map(str::to_owned).collect();
        addresses.resize(addresses.len().max(families.len()), String::new());
        for (index, family) in families.iter().enumerate().skip(first) {
            addresses[index] = self.take_address(family, &addresses[index], &addresses)?;
        }
        if let Some(primary) = addresses.first() {
            spec.insert("clusterIP".to_owned(), primary.as_str().into());
        }
        spec.insert("clusterIPs".to_owned(), json!(addresses));
        Ok(())
    }

    /// Takes an address: the named one, or a free one if `wanted` is empty.
    fn take_address(&mut self, family: &str, wanted: &str, shown: &[String]) -> Result<String, AllocationError> {
        let unusable = self.unusable_map(family);
        if wanted.is_empty() {
            if let Some(reason) = unusable {
                let detail = format!("failed to allocate IP: {reason}");
                let error = FieldError::invalid("spec.clusterIPs", json!(shown), detail);
                return Err(AllocationError::Invalid(vec![error]));
            }
            let Some(address) = self.choose_address(family) else {
                let error = format!("failed to allocate a serviceIP for Service {:?}: {FULL}", self.name);
                return Err(AllocationError::Internal(error));
            };
            self.record_address(address);
            return Ok(address.to_string());
        }
        let parsed: Option<IpAddr> = wanted.parse().ok();
        let address =
            parsed.ok_or_else(|| AllocationError::Internal(format!("failed to parse service IP {wanted:?}")))?;
        let refuse = |reason: String| {
            let detail = format!("failed to allocate IP {wanted}: {reason}");
            Err(AllocationError::Invalid(vec![FieldError::invalid("spec.clusterIPs", json!(shown), detail)]))
        };
        if !self.ranges.iter().any(|range| range.offset(address).is_some()) {
            let range = self.ranges.iter().find(|range| range.family().as_str() == family);
            return match range {
                Some(range) if !self.has_service_cidrs || self.is_dry_run => refuse(format!(
                    "the provided IP ({address}) is not in the valid range. The range of valid IPs is {range}"
                )),
                Some(_) | None => refuse("the provided network does not match the current range".to_owned()),
            };
        }
        if let Some(reason) = unusable {
            return refuse(reason.to_owned());
        }
        if !self.is_dry_run && self.is_taken(address) {
            return refuse(ALLOCATED_IP.to_owned());
        }
        self.record_address(address);
        Ok(wanted.to_owned())
    }

    /// Why a server that takes addresses from bitmaps alone cannot use that of a family.
    fn unusable_map(&self, family: &str) -> Option<&'static str> {
        if self.has_service_cidrs || self.is_dry_run {
            return None;
        }
        let of_family = |range: &AddressRange| range.family().as_str() == family;
        let range = self.ranges.iter().find(|range| of_family(range))?.to_string();
        let map_ranges = || self.address_maps.iter().map(|map| &*map.allocation.range);
        if map_ranges().any(|stored| stored == range) {
            return None;
        }
        let is_changed = map_ranges().any(|stored| stored.parse().is_ok_and(|stored| of_family(&stored)));
        Some(match is_changed {
            true => RANGE_CHANGED,
            false => "cannot allocate resources of type serviceipallocations at this time",
        })
    }

    fn choose_address(&self, family: &str) -> Option<IpAddr> {
        let mut ranges = self.ranges.iter().filter(|range| range.family().as_str() == family);
        if self.is_dry_run {
            return ranges.next().map(AddressRange::network);
        }
        ranges.find_map(|range| {
            let is_taken = |offset| self.is_taken(range.address(offset));
            // A server that reads bitmaps sees no address beyond them.
            let is_mapped = self.address_maps.iter().any(|map| map.allocation.range == range.to_string());
            let size = if is_mapped { range.size().min(range.bitmap_size() as u128) } else { range.size() };
            choose(size, range.static_band(), self.random, is_taken).map(|offset| range.address(offset))
        })
    }

    /// True if either form of records holds the address, or this write already took it.
    fn is_taken(&self, address: IpAddr) -> bool {
        let is_mapped =
            |map: &Recorded| map_offset(map, address).is_some_and(|offset| map.allocation.bitmap.contains(offset));
        self.taken_by_write.contains(&address) || self.address_maps.iter().any(is_mapped) || (self.has_object)(address)
    }

    fn record_address(&mut self, address: IpAddr) {
        if self.is_dry_run {
            return;
        }
        self.set_in_maps(address, true);
        self.taken_by_write.push(address);
    }

    fn release_addresses(&mut self, addresses: &[&str]) {
        if self.is_dry_run {
            return;
        }
        for address in addresses.iter().filter_map(|address| address.parse().ok()) {
            self.set_in_maps(address, false);
            self.released_addresses.push(address);
        }
    }

    fn set_in_maps(&mut self, address: IpAddr, is_taken: bool) {
        for map in &mut self.address_maps {
            if let Some(offset) = map_offset(map, address) {
                map.set(offset, is_taken);
            }
        }
    }

    /// Ports of one number, such as TCP and UDP of a DNS server, share their node port.
    fn init_node_ports(&mut self, spec: &mut JsonObject) -> Result<(), AllocationError> {
        if !matches!(text(spec, "type"), "NodePort" | "LoadBalancer") {
            return Ok(());
        }
        let is_allocating = allocates_node_ports(spec);
        let wanted: Vec<(i64, i64)> =
            ports(spec).map(|port| (integer(port, "port"), integer(port, "nodePort"))).collect();
        let mut by_port: Vec<(i64, i64)> = Vec::new();
        let mut chosen = Vec::with_capacity(wanted.len());
        for (index, (port, node_port)) in wanted.iter().copied().enumerate() {
            if node_port == 0 && !is_allocating {
                chosen.push(0);
                continue;
            }
            let shared = by_port.iter().find(|(number, _)| *number == port).map(|(_, node_port)| *node_port);
            let number = match shared {
                None => {
                    let named = wanted.iter().find(|(number, named)| *number == port && *named != 0);
                    let number = match named {
                        Some((_, named)) => {
                            self.take_port(*named).map_err(|error| refused_port(index, *named, &error))?
                        }
                        None => self.take_any_port().map_err(|error| no_port(&error))?,
                    };
                    by_port.push((port, number));
                    number
                }
                Some(shared) if node_port == 0 || node_port == shared => shared,
                Some(_) => self.take_port(node_port).map_err(|error| refused_port(index, node_port, &error))?,
            };
            chosen.push(number);
        }
        set_node_ports(spec, &chosen);
        Ok(())
    }

    fn update_node_ports(&mut self, old_ports: &[i64], new: &mut JsonObject) -> Result<(), AllocationError> {
        let is_allocating = allocates_node_ports(new);
        let wanted: Vec<i64> = ports(new).map(|port| integer(port, "nodePort")).collect();
        let mut taken: Vec<i64> = old_ports.to_vec();
        let mut chosen = Vec::with_capacity(wanted.len());
        for (index, port) in wanted.into_iter().enumerate() {
            chosen.push(match port {
                0 if !is_allocating => 0,
                0 => self.take_any_port().map_err(|error| no_port(&error))?,
                port if taken.contains(&port) => port,
                port => {
                    taken.push(port);
                    self.take_port(port).map_err(|error| refused_port(index, port, &error))?
                }
            });
        }
        set_node_ports(new, &chosen);
        Ok(())
    }

    fn take_health_check_port(&mut self, spec: &mut JsonObject) -> Result<(), AllocationError> {
        let port = match integer(spec, "healthCheckNodePort") {
            0 => self.take_any_port().map_err(|error| {
                AllocationError::Internal(format!("failed to allocate a HealthCheck NodePort 0: {error}"))
            })?,
            wanted => self.take_port(wanted).map_err(|error| {
                let error = format!("failed to allocate requested HealthCheck NodePort {wanted}: {error}");
                AllocationError::Internal(error)
            })?,
        };
        spec.insert("healthCheckNodePort".to_owned(), port.into());
        Ok(())
    }

    fn take_port(&mut self, port: i64) -> Result<i64, String> {
        let offset = self.port_range.offset(port);
        let is_taken = offset.is_some_and(|offset| self.is_port_taken(offset));
        if is_taken || self.dry_run_ports.contains(&port) {
            return Err(ALLOCATED_PORT.to_owned());
        }
        if self.is_dry_run {
            self.dry_run_ports.push(port);
            return Ok(port);
        }
        let Some(offset) = offset else {
            let range = self.port_range;
            return Err(format!("provided port is not in the valid range. The range of valid ports is {range}"));
        };
        self.usable_ports()?.set(offset, true);
        Ok(port)
    }

    fn take_any_port(&mut self) -> Result<i64, String> {
        if self.is_dry_run {
            let port = self.dry_run_ports.iter().copied().max().unwrap_or(DRY_RUN_PORT) + 1;
            self.dry_run_ports.push(port);
            return Ok(port);
        }
        let (size, band) = (self.port_range.size() as u128, self.port_range.static_band() as u128);
        let as_index = |offset: u128| usize::try_from(offset).unwrap_or(usize::MAX);
        let is_taken = |offset: u128| self.is_port_taken(as_index(offset));
        let offset = choose(size, band, self.random, is_taken).map(as_index);
        self.usable_ports()?.set(offset.ok_or(FULL)?, true);
        Ok(offset.map_or(0, |offset| self.port_range.port(offset)))
    }

    fn is_port_taken(&self, offset: usize) -> bool {
        self.ports.as_ref().is_some_and(|ports| ports.allocation.bitmap.contains(offset))
    }

    /// The bitmap of node ports, if it is of this server's range.
    fn usable_ports(&mut self) -> Result<&mut Recorded, String> {
        match &mut self.ports {
            None => Err("cannot allocate resources of type servicenodeportallocations at this time".to_owned()),
            Some(ports) if ports.allocation.range != self.port_range.to_string() => Err(RANGE_CHANGED.to_owned()),
            Some(ports) => Ok(ports),
        }
    }

    fn release_port(&mut self, port: i64) {
        let range = self.port_range;
        if let (Some(offset), Ok(ports)) = (range.offset(port).filter(|_| !self.is_dry_run), self.usable_ports()) {
            ports.set(offset, false);
        }
    }
}

/// The offset of an address in a bitmap; `None` if the bitmap does not cover it.
fn map_offset(map: &Recorded, address: IpAddr) -> Option<usize> {
    let range: AddressRange = map.allocation.range.parse().ok()?;
    let offset = usize::try_from(range.offset(address)?).ok()?;
    (offset < range.bitmap_size()).then_some(offset)
}

fn no_port(error: &str) -> AllocationError {
    AllocationError::Internal(format!("failed to allocate a nodePort: {error}"))
}

fn refused_port(index: usize, port: i64, error: &str) -> AllocationError {
    AllocationError::Invalid(vec![FieldError::invalid(format!("spec.ports[{index}].nodePort"), port, error)])
}

fn ports(spec: &JsonObject) -> impl Iterator<Item = &JsonObject> {
    spec.get("ports").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_object)
}

pub(super) fn node_ports(spec: &JsonObject) -> Vec<i64> {
    ports(spec).map(|port| integer(port, "nodePort")).filter(|port| *port != 0).collect()
}

fn set_node_ports(spec: &mut JsonObject, chosen: &[i64]) {
    let ports = spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten();
    for (port, number) in ports.filter_map(Value::as_object_mut).zip(chosen).filter(|(_, number)| **number != 0) {
        port.insert("nodePort".to_owned(), (*number).into());
    }
}

fn allocates_node_ports(spec: &JsonObject) -> bool {
    text(spec, "type") == "NodePort" || spec.get("allocateLoadBalancerNodePorts") != Some(&Value::Bool(false))
}

pub(super) fn needs_health_check(spec: &JsonObject) -> bool {
    text(spec, "type") == "LoadBalancer" && text(spec, "externalTrafficPolicy") == "Local"
}

pub(super) fn integer(object: &JsonObject, name: &str) -> i64 {
    object.get(name).and_then(Value::as_i64).unwrap_or_default()
}

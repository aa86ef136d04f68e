//! How much of the ranges of services is allocated, with Kubernetes' names. Counted when metrics are read.

use std::net::IpAddr;
use std::sync::Arc;

use ::admission::allocation::{AddressRange, RangeAllocation};
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{IntGauge, IntGaugeVec, Opts, Registry};
use registry::{CachedValue, ResourceCache};
use store::Key;

use super::{ADDRESS_MAPS, PORT_MAP, ServiceAllocation, ServiceRanges};

/// The records, and the gauges that show them.
pub(super) struct AllocationGauges {
    ranges: ServiceRanges,
    maps: Arc<ResourceCache>,
    addresses: Arc<ResourceCache>,
    /// Whether addresses are counted by IPAddress objects, not by bitmaps.
    counts_objects: bool,
    allocated_addresses: IntGaugeVec,
    available_addresses: IntGaugeVec,
    allocated_ports: IntGauge,
    available_ports: IntGauge,
}

impl AllocationGauges {
    pub(super) fn register(allocation: &ServiceAllocation, registry: &Registry) {
        let by_range = |name: &str, help: &str| {
            IntGaugeVec::new(Opts::new(name, help), &["cidr"]).expect("the name and labels are valid")
        };
        let gauge = |name: &str, help: &str| IntGauge::new(name, help).expect("the name is valid");
        let gauges = Self {
            ranges: allocation.ranges.clone(),
            maps: allocation.maps.clone(),
            addresses: allocation.addresses.clone(),
            counts_objects: allocation.objects.is_some(),
            allocated_addresses: by_range(
                "kube_apiserver_clusterip_allocator_allocated_ips",
                "Allocated addresses of services, by range",
            ),
            available_addresses: by_range(
                "kube_apiserver_clusterip_allocator_available_ips",
                "Free addresses for services, by range",
            ),
            allocated_ports: gauge(
                "kube_apiserver_nodeport_allocator_allocated_ports",
                "Allocated node ports of services",
            ),
            available_ports: gauge("kube_apiserver_nodeport_allocator_available_ports", "Free node ports for services"),
        };
        registry.register(Box::new(gauges)).expect("each name is registered once");
    }

    fn count_addresses(&self, position: usize, range: &AddressRange) -> u128 {
        if !self.counts_objects {
            return ADDRESS_MAPS.get(position).map_or(0, |map| self.count_bits(map));
        }
        let prefix = self.addresses.prefix().clone();
        let is_in_range = |key: &Key| {
            let name = key.strip_prefix(prefix.as_ref()).and_then(|name| std::str::from_utf8(name).ok());
            let address = name.and_then(|name| name.parse::<IpAddr>().ok());
            address.is_some_and(|address| range.offset(address).is_some())
        };
        self.addresses.snapshot().entries.keys().filter(|key| is_in_range(key)).count() as u128
    }

    fn count_bits(&self, map: &str) -> u128 {
        let found = self.maps.get(&[self.maps.prefix().as_ref(), map.as_bytes()].concat());
        let allocation = found.and_then(|entry| match &entry.value {
            CachedValue::Raw(value) => RangeAllocation::parse(value).ok(),
            CachedValue::Object(_) | CachedValue::Undecodable(_) => None,
        });
        allocation.map_or(0, |allocation| allocation.bitmap.offsets().count() as u128)
    }
}

impl Collector for AllocationGauges {
    fn desc(&self) -> Vec<&Desc> {
        let by_range = [&self.allocated_addresses, &self.available_addresses].map(Collector::desc);
        let of_ports = [&self.allocated_ports, &self.available_ports].map(Collector::desc);
        by_range.into_iter().chain(of_ports).flatten().collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let shown = |number: u128| i64::try_from(number).unwrap_or(i64::MAX);
        for (position, range) in self.ranges.addresses.iter().enumerate() {
            let allocated = self.count_addresses(position, range);
            let labels = [&*range.to_string()];
            self.allocated_addresses.with_label_values(&labels).set(shown(allocated));
            self.available_addresses.with_label_values(&labels).set(shown(range.size().saturating_sub(allocated)));
        }
        let ports = self.count_bits(PORT_MAP);
        self.allocated_ports.set(shown(ports));
        self.available_ports.set(shown((self.ranges.node_ports.size() as u128).saturating_sub(ports)));
        let by_range = [&self.allocated_addresses, &self.available_addresses].map(Collector::collect);
        let of_ports = [&self.allocated_ports, &self.available_ports].map(Collector::collect);
        by_range.into_iter().chain(of_ports).flatten().collect()
    }
}

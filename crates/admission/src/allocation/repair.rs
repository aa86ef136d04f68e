//! Repair: what must change in the records of allocations so that they agree with the services.
//!
//! kube-apiserver records an allocation before it writes the service, so that a record without a service may be about to
//! get one. It is removed only after a time, or after several passes.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use api::json::JsonObject;
use serde_json::{Value, json};

use super::families::{IpFamily, is_headless, text, texts};
use super::service::{integer, needs_health_check, node_ports};
use super::{Bitmap, RangeAllocation};

/// The pass that frees an offset which no service holds is the third that found it so, as in kube-apiserver.
const PASSES_UNTIL_FREED: u32 = 3;
/// How long an IPAddress may exist before its service: the timeout of requests.
const ORPHAN_GRACE: Duration = Duration::from_secs(60);
/// How long an IPAddress may be there that a failed write of its service is about to take back.
const REVERT_GRACE: Duration = Duration::from_secs(5);

const MANAGED_BY: &str = "ipaddress.kubernetes.io/managed-by";
const FAMILY: &str = "ipaddress.kubernetes.io/ip-family";
const ALLOCATOR: &str = "ipallocator.k8s.io";

/// What a service holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceHoldings {
    /// Its cluster addresses.
    pub addresses: Vec<IpAddr>,
    /// Its node ports and its health-check port.
    pub ports: Vec<i64>,
    is_external: bool,
}

impl ServiceHoldings {
    /// Reads a service.
    pub fn of(service: &JsonObject) -> Self {
        let empty = JsonObject::new();
        let spec = service.get("spec").and_then(Value::as_object).unwrap_or(&empty);
        let is_external = text(spec, "type") == "ExternalName";
        let mut addresses = texts(spec, "clusterIPs");
        // Of a service that was written before the list existed.
        if addresses.is_empty() {
            addresses.push(text(spec, "clusterIP"));
        }
        addresses.retain(|_| !is_external && !is_headless(spec));
        let mut ports = node_ports(spec);
        ports.extend(Some(integer(spec, "healthCheckNodePort")).filter(|port| *port != 0 && needs_health_check(spec)));
        let addresses = addresses.into_iter().filter_map(|address| address.parse().ok()).collect();
        Self { addresses, ports, is_external }
    }
}

/// Allocated offsets that no service holds, with the number of passes that found them so.
pub type Leaks = BTreeMap<usize, u32>;

/// The bitmap of a range after a pass; `None` if the stored one is right.
pub fn repair_bitmap(
    stored: Option<&RangeAllocation>,
    range: &str,
    held: &BTreeSet<usize>,
    leaks: &mut Leaks,
) -> Option<RangeAllocation> {
    let of_range = stored.filter(|stored| stored.range == range);
    let recorded: BTreeSet<usize> = of_range.map(|stored| stored.bitmap.offsets().collect()).unwrap_or_default();
    leaks.retain(|offset, _| recorded.contains(offset) && !held.contains(offset));
    let mut bitmap = Bitmap::default();
    held.iter().for_each(|offset| bitmap.insert(*offset));
    for offset in recorded.difference(held) {
        let passes = leaks.entry(*offset).or_default();
        *passes += 1;
        if *passes < PASSES_UNTIL_FREED {
            bitmap.insert(*offset);
        } else {
            leaks.remove(offset);
        }
    }
    if of_range.is_some_and(|stored| stored.bitmap.offsets().eq(bitmap.offsets())) {
        return None;
    }
    let mut repaired = stored.cloned().unwrap_or_else(|| RangeAllocation::empty(String::new()));
    repaired.range = range.to_owned();
    repaired.bitmap = bitmap;
    Some(repaired)
}

/// The IPAddress that records an address of a service.
pub fn ip_address(address: IpAddr, namespace: &str, service: &str) -> JsonObject {
    let labels = json!({FAMILY: IpFamily::of(address).as_str(), MANAGED_BY: ALLOCATOR});
    let object = json!({
        "kind": "IPAddress",
        "apiVersion": "networking.k8s.io/v1",
        "metadata": {"name": address.to_string(), "labels": labels},
        "spec": {"parentRef": {"resource": "services", "namespace": namespace, "name": service}},
    });
    let Value::Object(object) = object else { unreachable!("the literal is an object") };
    object
}

/// The namespace and the name of the service that an IPAddress refers to; `None` if it refers to something else.
pub fn parent_service(address: &JsonObject) -> Option<(&str, &str)> {
    let parent = address.get("spec")?.get("parentRef")?.as_object()?;
    let is_service = text(parent, "group").is_empty() && text(parent, "resource") == "services";
    is_service.then(|| (text(parent, "namespace"), text(parent, "name")))
}

/// True if the IPAddress of an address that a service holds does not record it: it refers to something else than a
/// service that exists, or its labels are wrong.
pub fn is_wrong_record(record: &JsonObject, address: IpAddr, parent_exists: bool) -> bool {
    let has_labels = label(record, MANAGED_BY) == ALLOCATOR && label(record, FAMILY) == IpFamily::of(address).as_str();
    parent_service(record).is_none() || !parent_exists || !has_labels
}

/// True if an IPAddress records an address that no service holds. `age` is the time since it was created; `parent` is the
/// service that it refers to, with whether the IPAddress was created after it.
pub fn is_leaked_record(record: &JsonObject, age: Duration, parent: Option<(&ServiceHoldings, bool)>) -> bool {
    if label(record, MANAGED_BY) != ALLOCATOR {
        return false;
    }
    if parent_service(record).is_none() {
        return true;
    }
    let Some((service, is_younger)) = parent else { return age > ORPHAN_GRACE };
    let name = record.get("metadata").and_then(|metadata| metadata.get("name")).and_then(Value::as_str);
    let is_held = service.addresses.iter().any(|address| name == Some(&*address.to_string()));
    let is_expected = service.is_external && age <= ORPHAN_GRACE || is_younger && age < REVERT_GRACE;
    !is_held && !is_expected
}

fn label<'a>(object: &'a JsonObject, name: &str) -> &'a str {
    let labels = object.get("metadata").and_then(|metadata| metadata.get("labels"));
    labels.and_then(|labels| labels.get(name)).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(value: Value) -> JsonObject {
        let Value::Object(object) = value else { unreachable!("test values are objects") };
        object
    }

    #[test]
    fn bitmap_gets_missing_offsets_at_once_and_loses_leaks_at_the_third_pass() {
        let (mut leaks, mut stored) = (Leaks::new(), RangeAllocation::empty("10.0.0.0/24".to_owned()));
        stored.bitmap.insert(7);
        let held = BTreeSet::from([3]);
        let offsets = |allocation: &RangeAllocation| allocation.bitmap.offsets().collect::<Vec<_>>();
        stored = repair_bitmap(Some(&stored), "10.0.0.0/24", &held, &mut leaks).unwrap();
        assert_eq!(offsets(&stored), [3, 7]);
        assert_eq!(repair_bitmap(Some(&stored), "10.0.0.0/24", &held, &mut leaks), None);
        stored = repair_bitmap(Some(&stored), "10.0.0.0/24", &held, &mut leaks).unwrap();
        assert_eq!((offsets(&stored), leaks.len()), (vec![3], 0));
        // An offset that a service holds again is no leak, however often it was found before.
        stored.bitmap.insert(7);
        for held in [&[3][..], &[3], &[3, 7], &[3], &[3]] {
            let held = held.iter().copied().collect();
            assert_eq!(repair_bitmap(Some(&stored), "10.0.0.0/24", &held, &mut leaks), None, "{held:?}");
        }
    }

    #[test]
    fn bitmap_of_another_range_is_rebuilt() {
        let mut stored = RangeAllocation::empty("10.1.0.0/24".to_owned());
        stored.bitmap.insert(7);
        for stored in [Some(&stored), None] {
            let held = BTreeSet::from([3]);
            let repaired = repair_bitmap(stored, "10.0.0.0/24", &held, &mut Leaks::new()).unwrap();
            assert_eq!((&*repaired.range, repaired.bitmap.offsets().collect::<Vec<_>>()), ("10.0.0.0/24", vec![3]));
        }
    }

    #[test]
    fn holdings_are_addresses_and_ports_of_services_that_have_them() {
        let holdings = |spec: Value| {
            let ServiceHoldings { addresses, ports, .. } = ServiceHoldings::of(&object(json!({"spec": spec})));
            (addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "), ports)
        };
        let balancer = json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local", "healthCheckNodePort": 30005,
            "clusterIPs": ["10.0.0.5", "fd00::5"], "ports": [{"nodePort": 30001}, {"port": 1}]});
        assert_eq!(holdings(balancer), ("10.0.0.5 fd00::5".to_owned(), vec![30001, 30005]));
        assert_eq!(holdings(json!({"clusterIP": "10.0.0.5"})).0, "10.0.0.5");
        assert_eq!(holdings(json!({"clusterIP": "None", "clusterIPs": ["None"]})).0, "");
        assert_eq!(holdings(json!({"type": "ExternalName", "clusterIP": "10.0.0.5"})).0, "");
    }

    #[test]
    fn record_is_leaked_after_the_grace_of_a_request() {
        let address: IpAddr = "10.0.0.5".parse().unwrap();
        let record = ip_address(address, "default", "a");
        assert_eq!(parent_service(&record), Some(("default", "a")));
        let seconds = Duration::from_secs;
        assert_eq!([60, 61].map(|age| is_leaked_record(&record, seconds(age), None)), [false, true]);
        let service = |spec: Value| ServiceHoldings::of(&object(json!({"spec": spec})));
        let holder = service(json!({"clusterIPs": ["10.0.0.5"]}));
        assert!(!is_leaked_record(&record, seconds(99), Some((&holder, true))));
        let other = service(json!({"clusterIPs": ["10.0.0.6"]}));
        let leaked = |age, is_younger| is_leaked_record(&record, seconds(age), Some((&other, is_younger)));
        assert_eq!([leaked(4, true), leaked(4, false), leaked(6, true)], [false, true, true]);
        let external = service(json!({"type": "ExternalName"}));
        assert_eq!(
            [30, 61].map(|age| is_leaked_record(&record, seconds(age), Some((&external, false)))),
            [false, true]
        );
        let foreign = object(json!({"metadata": {"name": "10.0.0.5"}, "spec": {"parentRef": {"resource": "x"}}}));
        assert!(!is_leaked_record(&foreign, seconds(99), None), "another controller keeps it");
        assert!(!is_wrong_record(&record, address, true));
        assert!(is_wrong_record(&record, address, false) && is_wrong_record(&foreign, address, true));
    }
}

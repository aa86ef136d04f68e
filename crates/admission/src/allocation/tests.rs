use serde_json::{Value, json};

use super::*;

fn allocator<'a>(gates: &'a kinds::FeatureGates, ranges: &[&str]) -> ServiceAllocator<'a> {
    let ranges: Vec<AddressRange> = ranges.iter().map(|range| range.parse().unwrap()).collect();
    ServiceAllocator {
        families: ClusterFamilies { primary: ranges[0].family(), is_dual: ranges.len() == 2 },
        name: "s",
        gates,
        address_maps: ranges.iter().map(|range| Recorded::new(RangeAllocation::empty(range.to_string()))).collect(),
        ranges,
        has_service_cidrs: true,
        port_range: PortRange::DEFAULT,
        ports: Some(Recorded::new(RangeAllocation::empty(PortRange::DEFAULT.to_string()))),
        has_object: &|_| false,
        is_dry_run: false,
        random: 0,
        taken_by_write: Vec::new(),
        released_addresses: Vec::new(),
        dry_run_ports: Vec::new(),
    }
}

fn gates() -> kinds::FeatureGates {
    kinds::FeatureGates::new(kinds::Release::R36)
}

fn object(value: Value) -> api::json::JsonObject {
    let Value::Object(object) = value else { unreachable!("test values are objects") };
    object
}

fn shown(error: AllocationError) -> String {
    match error {
        AllocationError::Invalid(errors) => errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "),
        AllocationError::Internal(error) => error,
    }
}

/// What a create makes of a spec: the addresses, families and policy, or the refusal.
fn created(ranges: &[&str], spec: Value) -> String {
    let gates = gates();
    let mut spec = object(spec);
    match allocator(&gates, ranges).create(&mut spec) {
        Ok(()) => {
            let names = ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"];
            json!(names.map(|name| spec.get(name))).to_string()
        }
        Err(error) => shown(error),
    }
}

const SINGLE: &[&str] = &["10.0.0.0/24"];
const DUAL: &[&str] = &["10.0.0.0/24", "fd00::/112"];

#[test]
fn range_allocation_has_the_bytes_of_go() {
    let mut allocation = RangeAllocation::empty("10.0.0.0/24".to_owned());
    let empty = "{\"apiVersion\":\"v1\",\"data\":\"\",\"kind\":\"RangeAllocation\",\"metadata\":{\"creationTimestamp\":null},\
                 \"range\":\"10.0.0.0/24\"}\n";
    assert_eq!(String::from_utf8(allocation.to_json()).unwrap(), empty);
    for offset in [0, 9, 200] {
        allocation.bitmap.insert(offset);
    }
    // 2^200 + 2^9 + 2^0, big endian.
    assert_eq!(allocation.bitmap.to_big_endian().len(), 26);
    assert_eq!(allocation.bitmap.to_big_endian()[..1], [1]);
    assert_eq!(allocation.bitmap.to_big_endian()[24..], [2, 1]);
    let read = RangeAllocation::parse(&allocation.to_json()).unwrap();
    assert_eq!(read, allocation);
    assert_eq!(read.bitmap.offsets().collect::<Vec<_>>(), [0, 9, 200]);
    allocation.bitmap.remove(200);
    assert_eq!(allocation.bitmap.to_big_endian(), [2, 1]);
    // The envelope of protobuf: a type, which is skipped, and the object with a range and data.
    let stored = b"k8s\0\x0a\x02\x0a\x00\x12\x0c\x12\x06abcdef\x1a\x02\x02\x01";
    let read = RangeAllocation::parse(stored).unwrap();
    assert_eq!((&*read.range, read.bitmap.offsets().collect::<Vec<_>>()), ("abcdef", vec![0, 9]));
    assert!(RangeAllocation::parse(b"k8s\0\x12\x09\x12").unwrap_err().to_string().contains("protobuf"));
}

#[test]
fn ranges_have_the_bands_of_kubernetes() {
    let range = |text: &str| text.parse::<AddressRange>().unwrap();
    let facts = |text: &str| (range(text).size(), range(text).static_band(), range(text).bitmap_size());
    assert_eq!(facts("10.0.0.0/24"), (254, 16, 254));
    assert_eq!(facts("10.0.0.0/16"), (65534, 256, 65534));
    assert_eq!(facts("10.0.0.0/28"), (14, 0, 14));
    assert_eq!(facts("fd00::/108"), ((1 << 20) - 1, 256, 65535));
    assert_eq!(range("10.0.0.77/24").to_string(), "10.0.0.0/24");
    assert_eq!(range("10.0.0.0/24").offset("10.0.0.0".parse().unwrap()), None);
    assert_eq!(range("10.0.0.0/24").offset("10.0.0.255".parse().unwrap()), None);
    assert_eq!(range("10.0.0.0/24").address(0).to_string(), "10.0.0.1");
    let ports = |text: &str| text.parse::<PortRange>().map(|range| (range.to_string(), range.static_band()));
    assert_eq!(ports("30000-32767"), Ok(("30000-32767".to_owned(), 86)));
    assert_eq!(ports("30000+10"), Ok(("30000-30010".to_owned(), 0)));
    assert_eq!(ports("9-8"), Err("end port cannot be less than start port: 9-8".to_owned()));
}

#[test]
fn create_sets_families_and_addresses() {
    let cases: &[(&[&str], Value, &str)] = &[
        (SINGLE, json!({"type": "ClusterIP"}), r#"["10.0.0.17",["10.0.0.17"],["IPv4"],"SingleStack"]"#),
        (
            DUAL,
            json!({"type": "ClusterIP", "ipFamilyPolicy": "PreferDualStack"}),
            r#"["10.0.0.17",["10.0.0.17","fd00::101"],["IPv4","IPv6"],"PreferDualStack"]"#,
        ),
        (
            SINGLE,
            json!({"type": "ClusterIP", "ipFamilyPolicy": "PreferDualStack"}),
            r#"["10.0.0.17",["10.0.0.17"],["IPv4"],"PreferDualStack"]"#,
        ),
        (
            SINGLE,
            json!({"type": "ClusterIP", "clusterIP": "None", "clusterIPs": ["None"], "selector": {"a": "b"}}),
            r#"["None",["None"],["IPv4"],"SingleStack"]"#,
        ),
        (
            SINGLE,
            json!({"type": "ClusterIP", "clusterIP": "None", "clusterIPs": ["None"]}),
            r#"["None",["None"],["IPv4","IPv6"],"RequireDualStack"]"#,
        ),
        (SINGLE, json!({"type": "ExternalName"}), "[null,null,null,null]"),
        (
            SINGLE,
            json!({"type": "ClusterIP", "ipFamilyPolicy": "RequireDualStack"}),
            "spec.ipFamilyPolicy: Invalid value: \"RequireDualStack\": this cluster is not configured for dual-stack services",
        ),
        (
            SINGLE,
            json!({"type": "ClusterIP", "ipFamilies": ["IPv6"]}),
            "spec.ipFamilies[0]: Invalid value: \"IPv6\": not configured on this cluster",
        ),
        (
            SINGLE,
            json!({"type": "ClusterIP", "clusterIP": "10.1.0.1", "clusterIPs": ["10.1.0.1"]}),
            "spec.clusterIPs: Invalid value: [\"10.1.0.1\"]: failed to allocate IP 10.1.0.1: the provided network does not \
             match the current range",
        ),
    ];
    for (ranges, spec, expected) in cases {
        assert_eq!(created(ranges, spec.clone()), *expected, "{spec}");
    }
}

#[test]
fn named_address_is_refused_while_it_is_taken() {
    let gates = gates();
    let mut allocator = allocator(&gates, SINGLE);
    let wanted = || object(json!({"type": "ClusterIP", "clusterIP": "10.0.0.5", "clusterIPs": ["10.0.0.5"]}));
    allocator.create(&mut wanted()).unwrap();
    let text = "spec.clusterIPs: Invalid value: [\"10.0.0.5\"]: failed to allocate IP 10.0.0.5: provided IP is already allocated";
    assert_eq!(shown(allocator.create(&mut wanted()).unwrap_err()), text);
    allocator.release(&wanted());
    allocator.taken_by_write.clear();
    allocator.create(&mut wanted()).unwrap();
}

#[test]
fn full_range_is_an_internal_error() {
    let gates = gates();
    let mut allocator = allocator(&gates, &["10.0.0.0/29"]);
    for _ in 0..6 {
        allocator.create(&mut object(json!({"type": "ClusterIP"}))).unwrap();
    }
    let full = allocator.create(&mut object(json!({"type": "ClusterIP"}))).unwrap_err();
    assert_eq!(shown(full), "failed to allocate a serviceIP for Service \"s\": range is full");
}

#[test]
fn node_ports_of_one_port_are_shared() {
    let gates = gates();
    let mut allocator = allocator(&gates, SINGLE);
    let mut spec = object(json!({"type": "NodePort", "ports": [
        {"port": 53, "protocol": "TCP"}, {"port": 53, "protocol": "UDP"}, {"port": 80}, {"port": 81, "nodePort": 30500}]}));
    allocator.create(&mut spec).unwrap();
    let ports: Vec<_> =
        spec["ports"].as_array().unwrap().iter().map(|port| port["nodePort"].as_i64().unwrap()).collect();
    assert_eq!(ports, [30086, 30086, 30087, 30500]);
    let mut again = object(json!({"type": "NodePort", "ports": [{"port": 1, "nodePort": 30500}]}));
    let refused = shown(allocator.create(&mut again).unwrap_err());
    assert_eq!(refused, "spec.ports[0].nodePort: Invalid value: 30500: provided port is already allocated");
    let mut beyond = object(json!({"type": "NodePort", "ports": [{"port": 1, "nodePort": 80}]}));
    assert_eq!(
        shown(allocator.create(&mut beyond).unwrap_err()),
        "spec.ports[0].nodePort: Invalid value: 80: provided port is not in the valid range. The range of valid ports is \
         30000-32767"
    );
    let old = spec.clone();
    let mut changed =
        object(json!({"type": "ClusterIP", "clusterIP": old["clusterIP"], "clusterIPs": old["clusterIPs"],
        "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack", "ports": [{"port": 53}]}));
    allocator.update(&old, &mut changed).unwrap();
    assert_eq!(allocator.ports.unwrap().allocation.bitmap.offsets().count(), 0);
}

#[test]
fn update_adds_and_releases_the_second_family() {
    let gates = gates();
    let mut allocator = allocator(&gates, DUAL);
    let mut old = object(json!({"type": "ClusterIP"}));
    allocator.create(&mut old).unwrap();
    let mut dual = old.clone();
    dual.insert("ipFamilyPolicy".to_owned(), "RequireDualStack".into());
    allocator.update(&old, &mut dual).unwrap();
    assert_eq!(dual["clusterIPs"], json!(["10.0.0.17", "fd00::101"]));
    let mut single = dual.clone();
    single.insert("ipFamilyPolicy".to_owned(), "SingleStack".into());
    allocator.update(&dual, &mut single).unwrap();
    assert_eq!(single["clusterIPs"], json!(["10.0.0.17"]));
    assert_eq!(allocator.released_addresses, ["fd00::101".parse::<std::net::IpAddr>().unwrap()]);
    let mut external = object(json!({"type": "ExternalName", "externalName": "a.b"}));
    allocator.update(&single, &mut external).unwrap();
    assert!(allocator.address_maps.iter().all(|map| map.allocation.bitmap.offsets().count() == 0));
}

#[test]
fn dry_run_records_nothing() {
    let gates = gates();
    let mut allocator = allocator(&gates, SINGLE);
    allocator.is_dry_run = true;
    let mut spec = object(json!({"type": "NodePort", "ports": [{"port": 80}, {"port": 81}]}));
    allocator.create(&mut spec).unwrap();
    assert_eq!((&spec["clusterIP"], &spec["ports"][1]["nodePort"]), (&json!("10.0.0.0"), &json!(32770)));
    assert!(!allocator.ports.unwrap().is_changed && allocator.taken_by_write.is_empty());
}

//! Addresses and ports of services beside a real kube-apiserver on the same etcd, and services as each creates them.

use std::collections::BTreeSet;

use cluster_tests::kube_apiserver::{KubeApiserver, KubeApiserverRelease, release_of_assets};
use cluster_tests::{Client, ControlPlane, Etcd, RunningServer, TestStore};
use futures_util::future::join_all;
use futures_util::stream::{self, StreamExt as _};
use serde_json::{Value, json};

use crate::block_on;
use crate::services::{ADDRESSES, SERVICES, created, recorded_addresses, service};

const RANGE: &str = "--service-cluster-ip-range=10.32.0.0/16";
const SERVICES_EACH: usize = 100;
const WRITERS_EACH: usize = 8;

/// Addresses that the compared services name, below those that are chosen by chance.
const NAMED_ADDRESSES: [&str; 4] = ["10.0.0.7", "10.0.0.8", "fd00::8", "10.0.0.9"];

/// Creates services until each writer has done its part. Returns the addresses and ports.
async fn fill(client: &Client, server: &str) {
    let writers = (0..WRITERS_EACH).map(async |writer| {
        for number in (writer..SERVICES_EACH).step_by(WRITERS_EACH) {
            created(client, &service(&format!("{server}-{number}"), &json!({"type": "NodePort"}))).await;
        }
    });
    join_all(writers).await;
}

#[test]
fn servers_beside_kube_apiserver_take_no_address_and_no_port_twice() {
    let etcd = Etcd::start();
    let mut plane = ControlPlane::new(TestStore::Etcd(&etcd));
    for release in ["1.36", "1.33"] {
        plane.start(release, &[&*format!("--emulated-version={release}"), RANGE]);
    }
    let real = KubeApiserver::start(plane.folder(), &etcd, &[RANGE]);
    let clients = [plane.admin("1.36"), plane.admin("1.33"), real.admin()];
    let names = ["new", "old", "real"];
    block_on(async {
        join_all(clients.iter().zip(names).map(|(client, name)| fill(client, name))).await;
        let list = real.admin().get(SERVICES).await.json();
        let specs: Vec<&Value> = list["items"].as_array().unwrap().iter().map(|item| &item["spec"]).collect();
        let addresses: BTreeSet<String> = specs.iter().map(|spec| spec["clusterIP"].to_string()).collect();
        let ports: BTreeSet<String> = specs.iter().map(|spec| spec["ports"][0]["nodePort"].to_string()).collect();
        // The service kubernetes has an address and no port.
        let expected = SERVICES_EACH * clients.len() + 1;
        assert_eq!((specs.len(), addresses.len(), ports.len()), (expected, expected, expected));
        assert_eq!(recorded_addresses(&clients[2]).await.len(), expected);

        // Each server releases what another allocated, and takes what another released.
        let all = stream::iter((0..SERVICES_EACH).flat_map(|number| names.map(|name| format!("{name}-{number}"))));
        let deleting = all.enumerate().for_each_concurrent(WRITERS_EACH, async |(position, name)| {
            let client = &clients[(position + position / 3 + 1) % clients.len()];
            let deleted = client.delete(&format!("{SERVICES}/{name}")).await;
            assert_eq!(deleted.status, 200, "{}", deleted.summary());
        });
        deleting.await;
        assert_eq!(recorded_addresses(&clients[0]).await, ["10.32.0.1"]);
        let freed = specs.iter().filter(|spec| spec["type"] == "NodePort").take(30);
        for (number, spec) in freed.enumerate() {
            let named = json!({"type": "NodePort", "ports": spec["ports"]});
            created(&clients[number % clients.len()], &service(&format!("n{number}"), &named)).await;
        }
    });
}

/// Specs of all types, and what changes them.
fn specs() -> Vec<(&'static str, Value)> {
    let external = json!({"type": "ExternalName", "externalName": "a.example", "ports": null});
    let balancer = json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local"});
    let internal = json!({"type": "LoadBalancer", "allocateLoadBalancerNodePorts": false});
    let two = json!([{"name": "a", "port": 53, "protocol": "TCP"}, {"name": "b", "port": 53, "protocol": "UDP"}]);
    vec![
        ("plain", json!({})),
        ("selected", json!({"selector": {"a": "b"}})),
        ("headless", json!({"clusterIP": "None"})),
        ("headless-selected", json!({"clusterIP": "None", "selector": {"a": "b"}})),
        ("headless-dual", json!({"clusterIP": "None", "ipFamilyPolicy": "PreferDualStack", "selector": {"a": "b"}})),
        ("external", external),
        ("node-port", json!({"type": "NodePort"})),
        ("two-ports", json!({"type": "NodePort", "ports": two})),
        ("balancer", balancer),
        ("internal", internal),
        ("external-ips", json!({"externalIPs": ["1.2.3.4"]})),
        ("prefers-dual", json!({"ipFamilyPolicy": "PreferDualStack"})),
        ("requires-dual", json!({"ipFamilyPolicy": "RequireDualStack"})),
        ("second-family-first", json!({"ipFamilies": ["IPv6", "IPv4"], "ipFamilyPolicy": "PreferDualStack"})),
        ("named", json!({"clusterIP": "10.0.0.7"})),
        (
            "named-both",
            json!({"clusterIP": "10.0.0.8", "clusterIPs": ["10.0.0.8", "fd00::8"],
            "ipFamilyPolicy": "RequireDualStack"}),
        ),
        ("taken", json!({"clusterIP": "10.0.0.7"})),
        ("outside", json!({"clusterIP": "10.9.0.1"})),
        ("network", json!({"clusterIP": "10.0.0.0"})),
        ("wrong-family", json!({"clusterIP": "10.0.0.79", "ipFamilies": ["IPv6"]})),
        ("two-of-one-family", json!({"clusterIP": "10.0.0.79", "clusterIPs": ["10.0.0.79", "10.0.0.80"]})),
        ("single-with-two", json!({"ipFamilies": ["IPv4", "IPv6"], "ipFamilyPolicy": "SingleStack"})),
        ("port-outside", json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 80}]})),
        ("port-named", json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 30011}]})),
        ("port-taken", json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 30011}]})),
        (
            "health-taken",
            json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local",
            "healthCheckNodePort": 30011}),
        ),
    ]
}

/// Merge patches that move a service from type to type.
fn moves() -> Vec<Value> {
    let spec = |spec: Value| json!({"spec": spec});
    vec![
        spec(json!({"type": "NodePort"})),
        spec(json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local"})),
        spec(json!({"type": "LoadBalancer", "externalTrafficPolicy": "Cluster"})),
        spec(json!({"ipFamilyPolicy": "PreferDualStack"})),
        spec(json!({"ipFamilies": ["IPv4"]})),
        spec(json!({"ipFamilyPolicy": "SingleStack"})),
        spec(json!({"type": "ClusterIP"})),
        spec(json!({"clusterIP": "10.0.0.9"})),
        spec(json!({"clusterIP": null})),
        spec(json!({"type": "ExternalName", "externalName": "a.example"})),
        spec(json!({"type": "ClusterIP", "externalName": null})),
        spec(json!({"type": "NodePort", "ports": [{"name": "a", "port": 80}, {"name": "b", "port": 81}]})),
        spec(json!({"ports": [{"name": "b", "port": 81}]})),
    ]
}

/// What differs from server to server and from run to run is replaced.
fn normalized(mut object: Value) -> Value {
    fn walk(value: &mut Value) {
        match value {
            Value::Object(fields) => {
                for name in ["uid", "resourceVersion", "creationTimestamp", "managedFields"] {
                    fields.remove(name);
                }
                for name in ["nodePort", "healthCheckNodePort"] {
                    if let Some(port) = fields.get_mut(name).filter(|port| **port != json!(30011)) {
                        *port = json!("PORT");
                    }
                }
                fields.values_mut().for_each(walk);
            }
            Value::Array(items) => items.iter_mut().for_each(walk),
            Value::String(text) => {
                let is_named = NAMED_ADDRESSES.contains(&text.as_str());
                if let Ok(address) = text.parse::<std::net::IpAddr>()
                    && !is_named
                {
                    *text = if address.is_ipv4() { "V4" } else { "V6" }.to_owned();
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
    walk(&mut object);
    object
}

async fn outcomes(client: &Client) -> Vec<(String, Value)> {
    let mut outcomes = Vec::new();
    for (name, fields) in specs() {
        for suffix in ["?dryRun=All", ""] {
            let response = client.create(&format!("{SERVICES}{suffix}"), &service(name, &fields)).await;
            outcomes.push((format!("create {name}{suffix}"), normalized(response.json())));
        }
    }
    for name in ["plain", "headless", "two-ports", "prefers-dual"] {
        for patch in moves() {
            for suffix in ["?dryRun=All", ""] {
                let (path, body) = (format!("{SERVICES}/{name}{suffix}"), patch.to_string().into());
                let response = client.send_body(http::Method::PATCH, &path, "application/merge-patch+json", body).await;
                outcomes.push((format!("patch {name}{suffix} {patch}"), normalized(response.json())));
            }
        }
    }
    for fields in [json!({"clusterIP": "10.0.0.9"}), json!({}), json!({"type": "NodePort"})] {
        for name in ["selected", "node-port", "external"] {
            let response = client.update(&format!("{SERVICES}/{name}"), &service(name, &fields)).await;
            outcomes.push((format!("update {name} {fields}"), normalized(response.json())));
        }
    }
    let named = client.get(&format!("{ADDRESSES}/10.0.0.7")).await.json();
    outcomes.push(("IPAddress".to_owned(), normalized(named)));
    for path in ["/apis/networking.k8s.io/v1/servicecidrs/kubernetes", "/api/v1/namespaces/default/services/kubernetes"]
    {
        let mut object = normalized(client.get(path).await.json());
        if let Some(condition) = object.pointer_mut("/status/conditions/0/lastTransitionTime") {
            *condition = json!("TIME");
        }
        if let Some(port) = object.pointer_mut("/spec/ports/0/targetPort") {
            *port = json!("PORT");
        }
        outcomes.push((path.to_owned(), object));
    }
    outcomes
}

#[test]
fn services_are_created_and_changed_like_by_kube_apiserver() {
    let release = release_of_assets();
    let etcd = Etcd::start();
    for range in ["--service-cluster-ip-range=10.0.0.0/24,fd00::/112", "--service-cluster-ip-range=10.0.0.0/24"] {
        let folder = tempfile::tempdir().unwrap();
        let flags = [&*format!("--emulated-version={release}"), range];
        let ours = RunningServer::start(folder.path(), TestStore::Sqlite, &flags);
        let prefix = format!("--etcd-prefix=/registry{}", range.len());
        let real = KubeApiserver::start_stock(KubeApiserverRelease::New, folder.path(), &etcd, &[range, &prefix]);
        let (ours_said, real_said) = block_on(async { (outcomes(&ours.admin()).await, outcomes(&real.admin()).await) });
        let differing = ours_said.iter().zip(&real_said).filter(|(ours, real)| ours != real);
        let differing: Vec<String> =
            differing.map(|(ours, real)| format!("{}\n  ours {}\n  real {}", ours.0, ours.1, real.1)).collect();
        assert!(differing.is_empty(), "{} of {}:\n{}", differing.len(), ours_said.len(), differing.join("\n"));
    }
}

//! What the types of services get from one server, on each store.

use bytes::Bytes;
use cluster_tests::wait::metric_value;
use cluster_tests::{Client, Etcd, RunningServer, TestStore};
use http::Method;
use serde_json::{Value, json};

use super::{SERVICES, created, recorded_addresses, service};
use crate::block_on;

const DUAL: &str = "--service-cluster-ip-range=10.0.0.0/24,fd00::/112";

fn for_each_store_with(flags: &[&str], test: impl AsyncFn(Client)) {
    let etcd = Etcd::start();
    for store in [TestStore::Sqlite, TestStore::Etcd(&etcd)] {
        let folder = tempfile::tempdir().unwrap();
        let server = RunningServer::start(folder.path(), store, flags);
        block_on(test(server.admin()));
    }
}

/// Sends a merge patch and returns the response's summary, or the spec of the object.
async fn patched(client: &Client, name: &str, patch: &Value) -> Result<Value, String> {
    let body = Bytes::from(patch.to_string());
    let path = format!("{SERVICES}/{name}");
    let response = client.send_body(Method::PATCH, &path, "application/merge-patch+json", body).await;
    if response.status == 200 { Ok(response.json()["spec"].clone()) } else { Err(response.summary()) }
}

fn addresses(spec: &Value) -> Vec<String> {
    let list = spec["clusterIPs"].as_array().cloned().unwrap_or_default();
    list.iter().map(|address| address.as_str().unwrap().to_owned()).collect()
}

#[test]
fn types_get_addresses_and_ports_and_give_them_back() {
    for_each_store_with(&[DUAL], async |client| {
        let plain = created(&client, &service("plain", &json!({}))).await;
        assert_eq!((&plain["ipFamilies"], &plain["ipFamilyPolicy"]), (&json!(["IPv4"]), &json!("SingleStack")));
        assert_eq!(addresses(&plain), [plain["clusterIP"].as_str().unwrap()]);
        let dual = created(&client, &service("dual", &json!({"ipFamilyPolicy": "RequireDualStack"}))).await;
        assert_eq!(dual["ipFamilies"], json!(["IPv4", "IPv6"]), "{dual}");
        assert!(addresses(&dual)[1].starts_with("fd00::"), "{dual}");
        let headless = created(&client, &service("headless", &json!({"clusterIP": "None"}))).await;
        assert_eq!(
            (&headless["clusterIPs"], &headless["ipFamilyPolicy"]),
            (&json!(["None"]), &json!("RequireDualStack"))
        );
        let external = json!({"type": "ExternalName", "externalName": "a.example"});
        let external = created(&client, &service("external", &external)).await;
        assert_eq!((external.get("clusterIP"), external.get("ipFamilies")), (None, None), "{external}");
        let balancer = json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local",
            "ports": [{"name": "a", "port": 53, "protocol": "TCP"}, {"name": "b", "port": 53, "protocol": "UDP"}]});
        let balancer = created(&client, &service("balancer", &balancer)).await;
        let port = |at: usize| balancer["ports"][at]["nodePort"].as_i64().unwrap();
        assert_eq!(port(0), port(1), "ports of one number share their node port: {balancer}");
        let health = balancer["healthCheckNodePort"].as_i64().unwrap();
        assert!((30000..=32767).contains(&health) && health != port(0), "{balancer}");

        // The second family comes and goes with the policy.
        let upgraded =
            patched(&client, "plain", &json!({"spec": {"ipFamilyPolicy": "PreferDualStack"}})).await.unwrap();
        assert_eq!((addresses(&upgraded).len(), addresses(&upgraded)[0] == addresses(&plain)[0]), (2, true));
        let single = json!({"spec": {"ipFamilyPolicy": "SingleStack"}});
        let downgraded = patched(&client, "plain", &single).await.unwrap();
        assert_eq!(addresses(&downgraded), addresses(&plain));

        // A type that needs less gives back the rest.
        let small = json!({"spec": {"type": "ClusterIP"}});
        let small = patched(&client, "balancer", &small).await.unwrap();
        assert_eq!((small["ports"][0].get("nodePort"), small.get("healthCheckNodePort")), (None, None), "{small}");
        let taker = json!({"type": "NodePort", "ports": [{"name": "a", "port": 1, "nodePort": port(0)},
            {"name": "b", "port": 2, "nodePort": health}]});
        created(&client, &service("taker", &taker)).await;
        let leaving = json!({"spec": {"type": "ExternalName", "externalName": "a.example", "ports": null}});
        let left = patched(&client, "dual", &leaving).await.unwrap();
        assert_eq!((left.get("clusterIPs"), left.get("ipFamilyPolicy")), (None, None), "{left}");
        let expected: Vec<String> = [&["10.0.0.1".to_owned()][..], &addresses(&plain), &addresses(&balancer)].concat();
        let mut recorded = recorded_addresses(&client).await;
        recorded.retain(|address| !expected.contains(address));
        assert_eq!(recorded.len(), 1, "all but the address of the last service: {recorded:?}");

        // The collection gives back everything but the service of the servers.
        let all = client.delete(&format!("{SERVICES}?fieldSelector=metadata.name!=kubernetes")).await;
        assert_eq!(all.status, 200, "{}", all.summary());
        assert_eq!(recorded_addresses(&client).await, ["10.0.0.1"]);
        let named = json!({"type": "NodePort", "clusterIP": addresses(&plain)[0],
            "ports": [{"port": 80, "nodePort": port(0)}]});
        created(&client, &service("again", &named)).await;
    });
}

#[test]
fn refused_allocations_have_the_texts_of_kubernetes() {
    for_each_store_with(&["--service-cluster-ip-range=10.0.0.0/28"], async |client| {
        let refused = async |fields: &Value| client.create(SERVICES, &service("s", fields)).await.summary();
        let invalid = "422 Service \"s\" is invalid: ";
        assert_eq!(
            refused(&json!({"clusterIP": "10.0.0.1"})).await,
            format!(
                "{invalid}spec.clusterIPs: Invalid value: [\"10.0.0.1\"]: failed to allocate IP 10.0.0.1: provided IP is \
                 already allocated"
            )
        );
        assert_eq!(
            refused(&json!({"clusterIP": "10.1.0.1"})).await,
            format!(
                "{invalid}spec.clusterIPs: Invalid value: [\"10.1.0.1\"]: failed to allocate IP 10.1.0.1: the provided \
                 network does not match the current range"
            )
        );
        assert_eq!(
            refused(&json!({"ipFamilyPolicy": "RequireDualStack"})).await,
            format!(
                "{invalid}spec.ipFamilyPolicy: Invalid value: \"RequireDualStack\": this cluster is not configured for \
                 dual-stack services"
            )
        );
        assert_eq!(
            refused(&json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 80}]})).await,
            format!(
                "{invalid}spec.ports[0].nodePort: Invalid value: 80: provided port is not in the valid range. The range \
                 of valid ports is 30000-32767"
            )
        );
        // A dry run shows an address and takes none.
        for _ in 0..2 {
            let dry =
                client.create(&format!("{SERVICES}?dryRun=All"), &service("dry", &json!({"type": "NodePort"}))).await;
            let spec = dry.json()["spec"].clone();
            assert_eq!((&spec["clusterIP"], &spec["ports"][0]["nodePort"]), (&json!("10.0.0.0"), &json!(32769)));
        }
        for number in 0..13 {
            created(&client, &service(&format!("s{number}"), &json!({}))).await;
        }
        assert_eq!(
            refused(&json!({})).await,
            "500 Internal error occurred: failed to allocate a serviceIP for Service \"s\": range is full"
        );
        assert_eq!(client.delete(&format!("{SERVICES}/s7")).await.status, 200);
        created(&client, &service("s", &json!({}))).await;
    });
}

#[test]
fn service_without_records_keeps_its_address_and_port() {
    let etcd = Etcd::start();
    let stored = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "old", "namespace": "default",
        "uid": "u"}, "spec": {"type": "NodePort", "clusterIP": "10.0.0.20", "sessionAffinity": "None",
        "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80, "nodePort": 30500}]}});
    etcd.put("/registry/services/specs/default/old", stored.to_string().as_bytes());
    for release in ["1.36", "1.33", "1.32"] {
        let folder = tempfile::tempdir().unwrap();
        let flags = [&*format!("--emulated-version={release}")];
        let server = RunningServer::start(folder.path(), TestStore::Etcd(&etcd), &flags);
        let client = server.admin();
        block_on(async {
            let address = client.create(SERVICES, &service("s", &json!({"clusterIP": "10.0.0.20"}))).await.summary();
            assert!(
                address.ends_with("failed to allocate IP 10.0.0.20: provided IP is already allocated"),
                "{address}"
            );
            let port = json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 30500}]});
            let port = client.create(SERVICES, &service("s", &port)).await.summary();
            assert!(port.ends_with("nodePort: Invalid value: 30500: provided port is already allocated"), "{port}");
            for (series, expected) in [
                ("clusterip_allocator_allocated_ips{cidr=\"10.0.0.0/24\"}", 2),
                ("clusterip_allocator_available_ips{cidr=\"10.0.0.0/24\"}", 252),
                ("nodeport_allocator_allocated_ports", 1),
                ("nodeport_allocator_available_ports", 2767),
            ] {
                let found = metric_value(&client, &format!("kube_apiserver_{series}")).await;
                assert_eq!(found, expected, "{release}: {series}");
            }
            if release != "1.32" {
                assert_eq!(recorded_addresses(&client).await, ["10.0.0.1", "10.0.0.20"]);
            }
        });
        assert_eq!(server.stop(), Some(0));
    }
}

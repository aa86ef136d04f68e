//! The feature gate, the API and disabling both.

use super::*;
use crate::{CONFIG_MAPS_PATH, config_map};

const GATE_OFF: &str = "--feature-gates=StorageVersionAPI=false";

#[test]
fn server_with_gate_off_writes_and_is_reported_as_missing() {
    ControlPlane::for_each_store(|mut plane| {
        plane.start("a", &[]);
        plane.launch("b", &[GATE_OFF]);
        let (a, b) = (plane.admin("a"), plane.admin("b"));
        plane.server("b").wait_ready();
        let ready = block_on(b.get("/readyz?verbose"));
        assert!(!String::from_utf8_lossy(&ready.body).contains("storage-version"), "{ready:?}");
        assert_eq!(block_on(b.create(CONFIG_MAPS_PATH, &config_map("one"))).status, 201);
        wait_for_storage_version(CONVERGENCE_TIMEOUT, &a, "core.configmaps", "a=v1 | v1 | True False");
        let object = block_on(a.get(&format!("{STORAGE_VERSIONS_PATH}/core.configmaps"))).json();
        let names = block_on(hostnames(&a));
        let b_identity = names.iter().find(|(_, hostname)| *hostname == "b").unwrap().0;
        let message = format!("No entry of {b_identity}");
        assert_eq!(condition(&object, "AllServersReporting")["message"], message.as_str());
        plane.stop("b");
        plane.start("b", &[]);
        wait_for_storage_version(CONVERGENCE_TIMEOUT, &a, "core.configmaps", "a=v1 b=v1 | v1 | True True");
    });
}

#[test]
fn entries_are_published_with_the_api_disabled() {
    ControlPlane::for_each_store(|mut plane| {
        plane.start("a", &["--runtime-config=internal.apiserver.k8s.io/v1alpha1=false"]);
        let a = plane.admin("a");
        assert_eq!(block_on(a.create(CONFIG_MAPS_PATH, &config_map("one"))).status, 201);
        plane.start("b", &[]);
        let b = plane.admin("b");
        assert_eq!(block_on(summarize_storage_version(&b, "core.configmaps")), "a=v1 b=v1 | v1 | True True");
    });
}

#[test]
fn leftover_entries_are_deletable_and_return_with_the_gate() {
    ControlPlane::for_each_store(|mut plane| {
        plane.start("a", &[]);
        plane.stop("a");
        plane.start("a", &[GATE_OFF, "--peer-linger=1s"]);
        let a = plane.admin("a");
        wait_within(CONVERGENCE_TIMEOUT, "with the gate off the API is off", async || {
            let answer = a.get(STORAGE_VERSIONS_PATH).await;
            if answer.status == 404 { Ok(()) } else { Err(answer.summary()) }
        });
        plane.stop("a");
        // The steps of docs/operating.md.
        plane.start("a", &[GATE_OFF, "--runtime-config=internal.apiserver.k8s.io/v1alpha1=true"]);
        assert!(!block_on(a.get(STORAGE_VERSIONS_PATH)).json()["items"].as_array().unwrap().is_empty());
        assert_eq!(block_on(a.delete(STORAGE_VERSIONS_PATH)).status, 200);
        assert_eq!(block_on(a.get(STORAGE_VERSIONS_PATH)).json()["items"], json!([]));
        plane.stop("a");
        plane.start("a", &[]);
        assert_eq!(block_on(summarize_storage_version(&a, "core.configmaps")), "a=v1 | v1 | True True");
    });
}

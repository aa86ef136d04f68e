//! The gate, the API and the way back.

use super::*;
use crate::{CONFIG_MAPS, config_map};

const GATE_OFF: &str = "--feature-gates=StorageVersionAPI=false";

#[test]
fn a_server_with_the_gate_off_is_not_held_and_is_missed_by_the_others() {
    ControlPlane::on_both(|mut plane| {
        plane.start("a", &[]);
        plane.launch("b", &[GATE_OFF]);
        let (a, b) = (plane.admin("a"), plane.admin("b"));
        plane.server("b").wait_ready();
        let ready = block_on(b.get("/readyz?verbose"));
        assert!(!String::from_utf8_lossy(&ready.body).contains("storage-version"), "{ready:?}");
        assert_eq!(block_on(b.create(CONFIG_MAPS, &config_map("one"))).status, 201);
        becomes(PATIENCE, &a, "core.configmaps", "a=v1 | v1 | True False");
        let object = block_on(a.get(&format!("{STORAGE_VERSIONS}/core.configmaps"))).json();
        let names = block_on(hostnames(&a));
        let b_identity = names.iter().find(|(_, hostname)| *hostname == "b").unwrap().0;
        let message = format!("No entry of {b_identity}");
        assert_eq!(condition(&object, "AllServersReporting")["message"], message.as_str());
        plane.stop("b");
        plane.start("b", &[]);
        becomes(PATIENCE, &a, "core.configmaps", "a=v1 b=v1 | v1 | True True");
    });
}

#[test]
fn without_the_api_everything_is_published_all_the_same() {
    ControlPlane::on_both(|mut plane| {
        plane.start("a", &["--runtime-config=internal.apiserver.k8s.io/v1alpha1=false"]);
        let a = plane.admin("a");
        assert_eq!(block_on(a.create(CONFIG_MAPS, &config_map("one"))).status, 201);
        plane.start("b", &[]);
        let b = plane.admin("b");
        assert_eq!(block_on(shown(&b, "core.configmaps")), "a=v1 b=v1 | v1 | True True");
    });
}

#[test]
fn after_a_rollback_what_is_left_can_be_deleted_and_comes_back_with_the_gate() {
    ControlPlane::on_both(|mut plane| {
        plane.start("a", &[]);
        plane.stop("a");
        plane.start("a", &[GATE_OFF, "--peer-linger=1s"]);
        let a = plane.admin("a");
        within(PATIENCE, "with the gate off the API is off", async || {
            let answer = a.get(STORAGE_VERSIONS).await;
            if answer.status == 404 { Ok(()) } else { Err(answer.brief()) }
        });
        plane.stop("a");
        // As docs/operating.md says.
        plane.start("a", &[GATE_OFF, "--runtime-config=internal.apiserver.k8s.io/v1alpha1=true"]);
        assert!(!block_on(a.get(STORAGE_VERSIONS)).json()["items"].as_array().unwrap().is_empty());
        assert_eq!(block_on(a.delete(STORAGE_VERSIONS)).status, 200);
        assert_eq!(block_on(a.get(STORAGE_VERSIONS)).json()["items"], json!([]));
        plane.stop("a");
        plane.start("a", &[]);
        assert_eq!(block_on(shown(&a, "core.configmaps")), "a=v1 | v1 | True True");
    });
}

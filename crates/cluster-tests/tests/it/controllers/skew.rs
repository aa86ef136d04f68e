//! The two user stories of KEP-4020: controllers on a server that lacks resources of another.
//!
//! Only one of three servers serves jobs, and the controllers run on the others. Whatever happens to that server, no
//! live object is deleted, and no namespace is removed while the store holds objects of it, which the tests check
//! directly.

use super::*;

/// Flags of servers that run the controllers and do not serve jobs.
const WITHOUT_JOBS: [&str; 3] = [ALL_CONTROLLERS, "--runtime-config=batch/v1=false", "--peer-endpoint-ttl=3s"];
/// Flags of the server that serves jobs.
const WITH_JOBS: [&str; 2] = ["--controllers=", "--peer-endpoint-ttl=3s"];
const PEER_PROXY_GATE_OFF: &str = "--feature-gates=UnknownVersionInteroperabilityProxy=false";

const JOBS: &str = "/apis/batch/v1/namespaces/shop/jobs";
const SHOP: &str = "/api/v1/namespaces/shop";
const SHOP_MAPS: &str = "/api/v1/namespaces/shop/configmaps";

fn job(name: &str) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}},
    })
}

fn owned_by_job(name: &str, uid: &str) -> Value {
    json!({"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid})
}

fn holds_job(keys: &[String]) -> bool {
    keys.iter().any(|key| key.contains("/jobs/"))
}

/// Starts two servers without jobs and one with, and creates a namespace with a job and a ConfigMap that it owns.
/// Returns the job's uid.
#[track_caller]
fn start_servers_with_and_without_jobs<'a>(store: TestStore<'a>, flags: &[&str]) -> (ControlPlane<'a>, Client, String) {
    let mut plane = ControlPlane::new(store);
    for (name, own) in [("old-1", &WITHOUT_JOBS[..]), ("old-2", &WITHOUT_JOBS[..]), ("new", &WITH_JOBS[..])] {
        plane.start(name, &[own, flags].concat());
    }
    let (old, new) = (plane.admin("old-1"), plane.admin("new"));
    let uid = block_on(async {
        create_namespace(&new, "shop").await;
        let uid = create_object(&new, JOBS, &job("sale")).await;
        let mut child = config_map("of-the-sale");
        child["metadata"]["ownerReferences"] = json!([owned_by_job("sale", &uid)]);
        create_object(&new, SHOP_MAPS, &child).await;
        uid
    });
    (plane, old, uid)
}

/// Outage of the server with jobs.
#[derive(Clone, Copy, Debug)]
enum Outage {
    Killed,
    Paused,
    Stopped,
}

impl Outage {
    #[track_caller]
    fn begin(self, plane: &mut ControlPlane<'_>) {
        match self {
            Self::Killed => plane.kill("new"),
            Self::Paused => plane.server("new").pause(),
            Self::Stopped => plane.stop("new"),
        }
    }

    #[track_caller]
    fn end(self, plane: &mut ControlPlane<'_>) {
        match self {
            Self::Paused => plane.server("new").resume(),
            Self::Killed | Self::Stopped => drop(plane.start("new", &WITH_JOBS)),
        }
    }
}

async fn wait_until_jobs_are_served(old: &Client) {
    eventually("jobs are served through the old server", async || {
        let answer = old.get(JOBS).await;
        assert_ne!(answer.status, StatusCode::NOT_FOUND, "{}", answer.summary());
        if answer.status == StatusCode::OK { Ok(()) } else { Err(answer.summary()) }
    })
    .await;
}

#[test]
fn namespace_is_kept_while_the_only_server_of_a_resource_is_down() {
    let etcd = Etcd::start();
    for (store, outage) in [
        (TestStore::Sqlite, Outage::Killed),
        (TestStore::Sqlite, Outage::Paused),
        (TestStore::Sqlite, Outage::Stopped),
        (TestStore::Etcd(&etcd), Outage::Killed),
    ] {
        let (mut plane, old, _) = start_servers_with_and_without_jobs(store, &[]);
        block_on(wait_until_jobs_are_served(&old));
        outage.begin(&mut plane);
        block_on(async {
            assert_eq!(old.delete(SHOP).await.status, StatusCode::OK);
            let sort = "NamespaceDeletionDiscoveryFailure";
            let condition = wait_for_condition(&old, "shop", sort, "True", "batch/v1").await;
            assert_eq!(condition["reason"], "DiscoveryFailed", "{outage:?}: {condition}");
            assert_eq!(old.get(SHOP).await.json()["status"]["phase"], "Terminating");
        });
        assert!(holds_job(&stored_keys(&plane, "shop")), "{outage:?}: the job is stored, and no server reaches it");
        outage.end(&mut plane);
        block_on(wait_until_deleted(&old, SHOP));
        assert_eq!(stored_keys(&plane, "shop"), Vec::<String>::new(), "{outage:?}: nothing is left behind");
    }
}

#[test]
fn dependents_are_kept_while_the_only_server_of_their_owner_is_down() {
    for outage in [Outage::Killed, Outage::Paused, Outage::Stopped] {
        let (mut plane, old, uid) = start_servers_with_and_without_jobs(TestStore::Sqlite, &[]);
        let two = create_config_map_with_two_owners(&old, &uid);
        outage.begin(&mut plane);
        // One owner is deleted, so the collector must check the other one, which no reachable server serves.
        block_on(async {
            old.delete(&format!("{SHOP_MAPS}/near")).await;
            wait_for_collector(&old, "mark").await;
        });
        // A restarted collector knows about jobs only from the store.
        plane.kill("old-1");
        plane.kill("old-2");
        plane.start("old-1", &WITHOUT_JOBS);
        let old = plane.admin("old-1");
        block_on(async {
            wait_for_collector(&old, "mark").await;
            for name in ["of-the-sale", "of-two"] {
                assert!(
                    object_exists(&old, &format!("{SHOP_MAPS}/{name}")).await,
                    "{outage:?}: {name}: the owner exists"
                );
            }
            let owners = old.get(&format!("{SHOP_MAPS}/of-two")).await.json()["metadata"]["ownerReferences"].clone();
            assert_eq!(owners, two, "{outage:?}: references stay while an owner is unreachable");
        });
        outage.end(&mut plane);
        block_on(async {
            wait_until_jobs_are_served(&old).await;
            eventually("the absent owner is removed from the references", async || {
                let map = old.get(&format!("{SHOP_MAPS}/of-two")).await.json();
                let owners = &map["metadata"]["ownerReferences"];
                if *owners == json!([owned_by_job("sale", &uid)]) { Ok(()) } else { Err(map.to_string()) }
            })
            .await;
            delete_with_propagation(&old, &format!("{JOBS}/sale"), "Background").await;
            for name in ["of-the-sale", "of-two"] {
                wait_until_deleted(&old, &format!("{SHOP_MAPS}/{name}")).await;
            }
        });
    }
}

/// Creates a ConfigMap owned by the job and another ConfigMap, waits until the collector knows it, and returns its
/// owner references.
fn create_config_map_with_two_owners(old: &Client, job: &str) -> Value {
    block_on(async {
        wait_until_jobs_are_served(old).await;
        let near = create_object(old, SHOP_MAPS, &config_map("near")).await;
        let mut child = config_map("of-two");
        child["metadata"]["ownerReferences"] = json!([owner_reference("near", &near), owned_by_job("sale", job)]);
        create_object(old, SHOP_MAPS, &child).await;
        wait_for_collector(old, "before").await;
        child["metadata"]["ownerReferences"].clone()
    })
}

#[test]
fn foreground_deletion_waits_for_dependents_on_unreachable_server() {
    let (mut plane, old, _) = start_servers_with_and_without_jobs(TestStore::Sqlite, &[]);
    block_on(wait_until_jobs_are_served(&old));
    let near = block_on(async {
        let near = create_object(&old, SHOP_MAPS, &config_map("near")).await;
        let mut dependent = job("of-near");
        dependent["metadata"]["ownerReferences"] = json!([blocking_owner_reference("near", &near)]);
        create_object(&old, JOBS, &dependent).await;
        near
    });
    plane.kill("new");
    plane.kill("old-1");
    plane.kill("old-2");
    plane.start("old-1", &WITHOUT_JOBS);
    let old = plane.admin("old-1");
    block_on(async {
        delete_with_propagation(&old, &format!("{SHOP_MAPS}/near"), "Foreground").await;
        wait_for_collector(&old, "mark").await;
        let waiting = old.get(&format!("{SHOP_MAPS}/near")).await.json();
        assert_eq!(waiting["metadata"]["uid"], near, "an unreachable job may depend on it: {waiting}");
    });
    plane.start("new", &WITH_JOBS);
    block_on(async {
        wait_until_deleted(&old, &format!("{SHOP_MAPS}/near")).await;
        wait_until_deleted(&old, &format!("{JOBS}/of-near")).await;
    });
}

#[test]
fn namespace_deletion_completes_across_a_rolling_restart() {
    let (mut plane, old, uid) = start_servers_with_and_without_jobs(TestStore::Sqlite, &[]);
    block_on(wait_until_jobs_are_served(&old));
    block_on(old.delete(SHOP));
    for (name, flags) in [("new", &WITH_JOBS[..]), ("old-1", &WITHOUT_JOBS[..]), ("old-2", &WITHOUT_JOBS[..])] {
        plane.stop(name);
        plane.start(name, flags);
    }
    let old = plane.admin("old-1");
    block_on(wait_until_deleted(&old, SHOP));
    assert_eq!(stored_keys(&plane, "shop"), Vec::<String>::new(), "the job was {uid}");
}

#[test]
fn without_peer_proxy_namespace_deletion_leaves_objects_behind() {
    let (plane, old, uid) = start_servers_with_and_without_jobs(TestStore::Sqlite, &[PEER_PROXY_GATE_OFF]);
    block_on(async {
        // The problem that the KEP describes: an old server returns 404 for a live owner.
        let denied = old.get(&format!("{JOBS}/sale")).await;
        assert_eq!(denied.status, StatusCode::NOT_FOUND, "{}", denied.summary());
        // Our collector does not take that 404 for absence, and hence cannot collect the dependents either.
        delete_with_propagation(&plane.admin("new"), &format!("{JOBS}/sale"), "Background").await;
        wait_for_collector(&old, "mark").await;
        assert!(
            object_exists(&old, &format!("{SHOP_MAPS}/of-the-sale")).await,
            "dependents of {uid} are never collected"
        );
        create_object(&plane.admin("new"), JOBS, &job("second")).await;
        old.delete(SHOP).await;
        wait_until_deleted(&old, SHOP).await;
    });
    let left = stored_keys(&plane, "shop");
    assert!(holds_job(&left), "the namespace is gone, but not its job: {left:?}");
    block_on(async {
        create_namespace(&old, "shop").await;
        let reappeared = plane.admin("new").get(&format!("{JOBS}/second")).await;
        assert_eq!(reappeared.status, StatusCode::OK, "the object reappears in a new namespace of that name");
    });
}

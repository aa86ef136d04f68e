//! The two user stories of KEP-4020: controllers at a server that lacks what another has.
//!
//! Jobs are served by one of three servers alone, and the controllers run at those that lack them. Whatever happens to that one
//! server, no live object is deleted and no namespace goes while storage holds something of it, which is looked up below the servers.

use super::*;

/// Servers that do not know of jobs, and run the controllers.
const OLD: [&str; 3] = [ALL, "--runtime-config=batch/v1=false", "--peer-endpoint-ttl=3s"];
/// The one that knows.
const NEW: [&str; 2] = ["--controllers=", "--peer-endpoint-ttl=3s"];
const GATE_OFF: &str = "--feature-gates=UnknownVersionInteroperabilityProxy=false";

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

/// Two servers without jobs and one with, and a namespace with a job and a ConfigMap that it owns; the job's uid.
#[track_caller]
fn with_story<'a>(store: Store<'a>, flags: &[&str]) -> (ControlPlane<'a>, Client, String) {
    let mut plane = ControlPlane::new(store);
    for (name, own) in [("old-1", &OLD[..]), ("old-2", &OLD[..]), ("new", &NEW[..])] {
        plane.start(name, &[own, flags].concat());
    }
    let (old, new) = (plane.admin("old-1"), plane.admin("new"));
    let uid = block_on(async {
        create_namespace(&new, "shop").await;
        let uid = create(&new, JOBS, &job("sale")).await;
        let mut child = config_map("of-the-sale");
        child["metadata"]["ownerReferences"] = json!([owned_by_job("sale", &uid)]);
        create(&new, SHOP_MAPS, &child).await;
        uid
    });
    (plane, old, uid)
}

/// What happens to the server with jobs.
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
            Self::Killed | Self::Stopped => drop(plane.start("new", &NEW)),
        }
    }
}

async fn wait_served(old: &Client) {
    eventually("jobs are served through the old server", async || {
        let answer = old.get(JOBS).await;
        assert_ne!(answer.status, StatusCode::NOT_FOUND, "{}", answer.brief());
        if answer.status == StatusCode::OK { Ok(()) } else { Err(answer.brief()) }
    })
    .await;
}

#[test]
fn a_namespace_outlasts_the_outage_of_the_only_server_that_sees_into_it() {
    let etcd = Etcd::start();
    for (store, outage) in [
        (Store::Sqlite, Outage::Killed),
        (Store::Sqlite, Outage::Paused),
        (Store::Sqlite, Outage::Stopped),
        (Store::Etcd(&etcd), Outage::Killed),
    ] {
        let (mut plane, old, _) = with_story(store, &[]);
        block_on(wait_served(&old));
        outage.begin(&mut plane);
        block_on(async {
            assert_eq!(old.delete(SHOP).await.status, StatusCode::OK);
            let sort = "NamespaceDeletionDiscoveryFailure";
            let condition = wait_for_condition(&old, "shop", sort, "True", "batch/v1").await;
            assert_eq!(condition["reason"], "DiscoveryFailed", "{outage:?}: {condition}");
            assert_eq!(old.get(SHOP).await.json()["status"]["phase"], "Terminating");
        });
        assert!(holds_job(&stored(&plane, "shop")), "{outage:?}: the job is in storage, and nobody can reach it");
        outage.end(&mut plane);
        block_on(wait_gone(&old, SHOP));
        assert_eq!(stored(&plane, "shop"), Vec::<String>::new(), "{outage:?}: nothing is left behind");
    }
}

#[test]
fn dependents_outlast_the_outage_of_the_only_server_that_knows_their_owner() {
    for outage in [Outage::Killed, Outage::Paused, Outage::Stopped] {
        let (mut plane, old, uid) = with_story(Store::Sqlite, &[]);
        let two = create_two_owners(&old, &uid);
        outage.begin(&mut plane);
        // One owner goes, so the collector must look at the other, which nobody can reach.
        block_on(async {
            old.delete(&format!("{SHOP_MAPS}/near")).await;
            wait_for_collector(&old, "mark").await;
        });
        // A collector that starts now knows nothing of jobs but what storage says.
        plane.kill("old-1");
        plane.kill("old-2");
        plane.start("old-1", &OLD);
        let old = plane.admin("old-1");
        block_on(async {
            wait_for_collector(&old, "mark").await;
            for name in ["of-the-sale", "of-two"] {
                assert!(is_there(&old, &format!("{SHOP_MAPS}/{name}")).await, "{outage:?}: {name}: its owner lives");
            }
            let owners = old.get(&format!("{SHOP_MAPS}/of-two")).await.json()["metadata"]["ownerReferences"].clone();
            assert_eq!(owners, two, "{outage:?}: nothing is struck while one owner is out of reach");
        });
        outage.end(&mut plane);
        block_on(async {
            wait_served(&old).await;
            eventually("the absent owner is struck", async || {
                let map = old.get(&format!("{SHOP_MAPS}/of-two")).await.json();
                let owners = &map["metadata"]["ownerReferences"];
                if *owners == json!([owned_by_job("sale", &uid)]) { Ok(()) } else { Err(map.to_string()) }
            })
            .await;
            delete(&old, &format!("{JOBS}/sale"), "Background").await;
            for name in ["of-the-sale", "of-two"] {
                wait_gone(&old, &format!("{SHOP_MAPS}/{name}")).await;
            }
        });
    }
}

/// A ConfigMap that the job and another ConfigMap own, once the collector knows of it; its owners.
fn create_two_owners(old: &Client, job: &str) -> Value {
    block_on(async {
        wait_served(old).await;
        let near = create(old, SHOP_MAPS, &config_map("near")).await;
        let mut child = config_map("of-two");
        child["metadata"]["ownerReferences"] = json!([owner("near", &near), owned_by_job("sale", job)]);
        create(old, SHOP_MAPS, &child).await;
        wait_for_collector(old, "before").await;
        child["metadata"]["ownerReferences"].clone()
    })
}

#[test]
fn an_owner_in_foreground_deletion_waits_for_dependents_that_are_out_of_sight() {
    let (mut plane, old, _) = with_story(Store::Sqlite, &[]);
    block_on(wait_served(&old));
    let near = block_on(async {
        let near = create(&old, SHOP_MAPS, &config_map("near")).await;
        let mut dependent = job("of-near");
        dependent["metadata"]["ownerReferences"] = json!([blocking("near", &near)]);
        create(&old, JOBS, &dependent).await;
        near
    });
    plane.kill("new");
    plane.kill("old-1");
    plane.kill("old-2");
    plane.start("old-1", &OLD);
    let old = plane.admin("old-1");
    block_on(async {
        delete(&old, &format!("{SHOP_MAPS}/near"), "Foreground").await;
        wait_for_collector(&old, "mark").await;
        let waiting = old.get(&format!("{SHOP_MAPS}/near")).await.json();
        assert_eq!(waiting["metadata"]["uid"], near, "a job that nobody sees may depend on it: {waiting}");
    });
    plane.start("new", &NEW);
    block_on(async {
        wait_gone(&old, &format!("{SHOP_MAPS}/near")).await;
        wait_gone(&old, &format!("{JOBS}/of-near")).await;
    });
}

#[test]
fn a_roll_of_all_servers_loses_nothing_and_hangs_nothing() {
    let (mut plane, old, uid) = with_story(Store::Sqlite, &[]);
    block_on(wait_served(&old));
    block_on(old.delete(SHOP));
    for (name, flags) in [("new", &NEW[..]), ("old-1", &OLD[..]), ("old-2", &OLD[..])] {
        plane.stop(name);
        plane.start(name, flags);
    }
    let old = plane.admin("old-1");
    block_on(wait_gone(&old, SHOP));
    assert_eq!(stored(&plane, "shop"), Vec::<String>::new(), "the job was {uid}");
}

#[test]
fn without_the_proxy_a_namespace_goes_too_early_and_a_live_owner_seems_absent() {
    let (plane, old, uid) = with_story(Store::Sqlite, &[GATE_OFF]);
    block_on(async {
        // What the KEP describes: an old server denies a live owner, with a 404 that a hasty collector takes for its absence.
        let denied = old.get(&format!("{JOBS}/sale")).await;
        assert_eq!(denied.status, StatusCode::NOT_FOUND, "{}", denied.brief());
        // Ours does not, and so cannot collect what belongs to it either.
        delete(&plane.admin("new"), &format!("{JOBS}/sale"), "Background").await;
        wait_for_collector(&old, "mark").await;
        assert!(is_there(&old, &format!("{SHOP_MAPS}/of-the-sale")).await, "garbage of {uid} stays for ever");
        create(&plane.admin("new"), JOBS, &job("second")).await;
        old.delete(SHOP).await;
        wait_gone(&old, SHOP).await;
    });
    let left = stored(&plane, "shop");
    assert!(holds_job(&left), "the namespace is gone, and its job is not: {left:?}");
    block_on(async {
        create_namespace(&old, "shop").await;
        let reappeared = plane.admin("new").get(&format!("{JOBS}/second")).await;
        assert_eq!(reappeared.status, StatusCode::OK, "it reappears in a new namespace of that name");
    });
}

//! "Predicted = observed" with kube-apiservers of two releases. Runs with `cargo xtask real`.

use std::collections::BTreeMap;
use std::time::Duration;

use cluster_tests::kube_apiserver::{KubeApiserver, KubeApiserverRelease, release_of_assets, release_of_old_assets};
use cluster_tests::{Etcd, RunningServer, TestStore};
use serde_json::Value;
use store::etcd::{Config, EtcdStore};
use tasks::Tasks;

use super::objects::test_objects;
use super::pairs::{ALL_APIS, ALL_GATES, Outcomes, api_object, fill, observe_objects, plurals, predict};
use crate::block_on;

/// Readable without the layout of protobuf.
const JSON: &str = "--storage-media-type=application/json";

async fn stored_objects(etcd: &Etcd) -> BTreeMap<String, Value> {
    let tasks = Tasks::new();
    let store = EtcdStore::open(&Config::new(vec![etcd.url().to_owned()]), tasks.clone()).await.unwrap();
    let mut scan = store.scan("/registry/".to_owned());
    let mut objects = BTreeMap::new();
    while let Some(entries) = scan.next_chunk().await.unwrap() {
        objects.extend(entries.iter().filter_map(api_object));
    }
    drop(scan);
    drop(store);
    tasks.stop(Duration::from_secs(5)).await.unwrap();
    objects
}

/// Each of `flag_sets` starts the server of the other release.
#[track_caller]
fn check(from: KubeApiserverRelease, to: KubeApiserverRelease, release: &str, flag_sets: &[&[&str]]) {
    let (etcd, folder) = (Etcd::start(), tempfile::tempdir().unwrap());
    // Makes the certificates.
    RunningServer::start(folder.path(), TestStore::Sqlite, &[]).stop();
    let server = KubeApiserver::start_stock(from, folder.path(), &etcd, &[ALL_APIS, ALL_GATES, JSON]);
    let certificate = std::fs::read_to_string(folder.path().join("unskew-data/pki/ca.crt")).unwrap();
    let client = server.admin();
    let created = block_on(fill(&client, &test_objects(&certificate)));
    assert!(created > 10, "{created} objects");
    let plurals = block_on(plurals(&client));
    let always = block_on(async { observe_objects(&client, &stored_objects(&etcd).await, &plurals).await });
    server.kill();
    let storage = format!("--etcd-servers={}", etcd.url());
    let file = folder.path().join("flags");
    for flags in flag_sets {
        let command_line =
            ["kube-apiserver", JSON].into_iter().chain(flags.iter().copied()).collect::<Vec<_>>().join(" ");
        std::fs::write(&file, command_line).unwrap();
        let server_flags = format!("--server-flags={}", file.display());
        let predicted = predict(folder.path(), &storage, release, &[&server_flags], true);
        let before = block_on(stored_objects(&etcd));
        let server = KubeApiserver::start_stock(to, folder.path(), &etcd, &[*flags, &[JSON]].concat());
        let observed = block_on(observe_objects(&server.admin(), &before, &plurals));
        server.kill();
        let observed: Outcomes = observed.difference(&always).cloned().collect();
        let missed: Vec<&String> = observed.difference(&predicted).collect();
        let wrong: Vec<&String> = predicted.difference(&observed).collect();
        assert!(missed.is_empty() && wrong.is_empty(), "to {release} {flags:?}: missed {missed:#?}, wrong {wrong:#?}");
    }
}

// None of the sets has all gates: a kube-apiserver that cannot list Workloads is never ready.

#[test]
fn predictions_for_a_rollback_of_a_real_kube_apiserver_come_true() {
    let sets = [&[][..], &[ALL_APIS]];
    check(KubeApiserverRelease::New, KubeApiserverRelease::Old, &release_of_old_assets(), &sets);
}

#[test]
fn predictions_for_an_upgrade_of_a_real_kube_apiserver_come_true() {
    // Without it the new program would emulate.
    let old = release_of_old_assets();
    let first_step = ["--emulated-version", "--min-compatibility-version"].map(|flag| format!("{flag}={old}"));
    let sets = [&[][..], &[ALL_APIS], &[ALL_APIS, &first_step[0], &first_step[1]]];
    check(KubeApiserverRelease::Old, KubeApiserverRelease::New, &release_of_assets(), &sets);
}

//! Sends requests about custom objects to a real kube-apiserver and to ours. With `UNSKEW_REAL_RECORD` the real server's
//! responses replace the recorded ones.

use cluster_tests::kube_apiserver::{KubeApiserver, KubeApiserverRelease, release_of_assets};
use cluster_tests::tools::optional_text;
use cluster_tests::{Etcd, RunningServer, TestStore};

use crate::block_on;
use crate::custom_resources::responses::{differences, record, responses_of};

#[test]
fn responses_about_custom_objects_agree_with_kube_apiserver() {
    let folder = tempfile::tempdir().unwrap();
    let etcd = Etcd::start();
    let release_flag = format!("--emulated-version={}", release_of_assets());
    let ours = RunningServer::start(folder.path(), TestStore::Sqlite, &[&release_flag]);
    let real = KubeApiserver::start_stock(KubeApiserverRelease::New, folder.path(), &etcd, &[]);
    let (ours, real) = block_on(async { (responses_of(&ours.admin()).await, responses_of(&real.admin()).await) });
    if optional_text("UNSKEW_REAL_RECORD").is_some() {
        record(&real);
    }
    let lines: Vec<String> = real.iter().map(|(name, response)| format!("{name}: {response}")).collect();
    let found = differences(&ours, &lines);
    assert!(found.is_empty(), "{} differences:\n{}", found.len(), found.concat());
}

//! Conversion webhooks: the same requests to a real kube-apiserver and to ours.

use cluster_tests::kube_apiserver::{KubeApiserver, KubeApiserverRelease};
use cluster_tests::{Etcd, RunningServer, TestStore};

use crate::block_on;
use crate::custom_resources::conversion::record_responses;

#[test]
fn conversion_webhooks_are_handled_as_by_kube_apiserver() {
    let folder = tempfile::tempdir().unwrap();
    let etcd = Etcd::start();
    let ours = RunningServer::start(folder.path(), TestStore::Sqlite, &[]);
    let real = KubeApiserver::start_stock(KubeApiserverRelease::New, folder.path(), &etcd, &[]);
    let [ours, real] = [ours.admin(), real.admin()].map(|client| block_on(record_responses(&client)));
    let differences = ours.iter().zip(&real).filter(|(ours, real)| ours != real);
    let differences: Vec<String> = differences.map(|(ours, real)| format!("ours {ours}\nreal {real}\n")).collect();
    assert!(differences.is_empty() && ours.len() == real.len(), "{}", differences.concat());
}

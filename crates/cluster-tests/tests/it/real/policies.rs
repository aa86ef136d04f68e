//! Judges the writes of all policy cases on a real kube-apiserver and on ours. `UNSKEW_REAL_RECORD` replaces the recorded
//! outcomes, which ci compares with.

use cluster_tests::kube_apiserver::{KubeApiserver, KubeApiserverRelease, release_of_assets};
use cluster_tests::tools::optional_text;
use cluster_tests::{Etcd, RunningServer, TestStore};
use serde_json::Value;

use crate::admission::policy_cases::{load_cases, perform_all, recorded_file};
use crate::block_on;

#[test]
fn policies_agree_with_kube_apiserver() {
    let folder = tempfile::tempdir().unwrap();
    let etcd = Etcd::start();
    let release_flag = format!("--emulated-version={}", release_of_assets());
    let ours = RunningServer::start(folder.path(), TestStore::Sqlite, &[&release_flag]);
    let real = KubeApiserver::start_stock(KubeApiserverRelease::New, folder.path(), &etcd, &[]);
    let cases = load_cases();
    let (ours, real) =
        block_on(async { (perform_all(&ours.admin(), &cases).await, perform_all(&real.admin(), &cases).await) });
    let mut different = 0;
    for (name, expected) in &real {
        if ours.get(name) != Some(expected) {
            different += 1;
            println!("{name}:\n  real {expected}\n  ours {}", ours.get(name).unwrap_or(&Value::Null));
        }
    }
    let writes: usize = real.values().filter_map(Value::as_array).map(Vec::len).sum();
    println!("{} cases with {writes} writes, {different} differ", real.len());
    if optional_text("UNSKEW_REAL_RECORD").is_some() {
        let lines: Vec<String> =
            real.iter().map(|(name, outcomes)| format!("{}: {outcomes}", Value::from(name.as_str()))).collect();
        std::fs::write(recorded_file(), format!("{{\n{}\n}}\n", lines.join(",\n"))).unwrap();
    }
    assert_eq!(different, 0);
}

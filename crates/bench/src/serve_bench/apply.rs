//! Server-side apply of a large pod, compared with a real kube-apiserver of `KUBEBUILDER_ASSETS`.

use std::time::Instant;

use cluster_tests::kube_apiserver::{KubeApiserver, KubeApiserverRelease};
use cluster_tests::tools::optional_text;
use cluster_tests::{Etcd, RunningServer, TestStore};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use super::beside_kube_apiserver::REAL_ASSETS;
use super::load::{AdminTls, LoadGenerator, TURNS, send_typed};
use super::{CONNECTIONS, ServeBenchSizes};
use crate::table::{BenchRow, BenchTable, Measurement};

/// Goals relative to kube-apiserver, which has its objects in etcd.
const SQLITE_RATIO_MIN: f64 = 3.0;
const ETCD_RATIO_MIN: f64 = 1.0;
/// Environment variables of the pod: with these it has some 20 KB, managed fields included.
const VARIABLES: usize = 102;
const POD_BYTES: std::ops::Range<usize> = 19_000..21_000;

pub(super) fn measure(sizes: ServeBenchSizes, table: &mut BenchTable) -> anyhow::Result<()> {
    let [our_etcd, real_etcd] = [Etcd::start(), Etcd::start()];
    let [folder, other_folder] = [tempfile::tempdir()?, tempfile::tempdir()?];
    let on_sqlite = RunningServer::start(folder.path(), TestStore::Sqlite, &[]);
    let on_etcd = RunningServer::start(other_folder.path(), TestStore::Etcd(&our_etcd), &[]);
    let real = optional_text(REAL_ASSETS).map(|_| {
        let flags = ["--disable-admission-plugins=ServiceAccount"];
        KubeApiserver::start_stock(KubeApiserverRelease::New, folder.path(), &real_etcd, &flags)
    });
    let mut loads = Vec::new();
    for server in [&on_sqlite, &on_etcd] {
        let (tls, address) = (AdminTls::for_admin(server)?, server.address().to_owned());
        loads.push(LoadGenerator { tls, address, duration: sizes.load_duration });
    }
    if let Some(real) = &real {
        let (tls, address) = (loads[0].tls.clone(), real.admin().address().to_owned());
        loads.push(LoadGenerator { tls, address, duration: sizes.load_duration });
    }
    let rates = Runtime::new()?.block_on(apply_in_turns(&loads))?;
    let stores = [("SQLite", SQLITE_RATIO_MIN), ("etcd", ETCD_RATIO_MIN)];
    for ((store, ratio), rate) in stores.into_iter().zip(&rates) {
        let name = format!("{store}: apply that changes one field of a 20 KB pod, {CONNECTIONS} connections");
        let row = BenchRow::new(name, Measurement::Rate(*rate));
        table.push(match rates.get(stores.len()) {
            Some(real) => row.compared_with("kube-apiserver", Measurement::Rate(*real)).with_ratio_goal(ratio),
            None => row,
        });
    }
    if real.is_none() {
        table.note("apply: KUBEBUILDER_ASSETS names no folder with a kube-apiserver to compare with");
    }
    Ok(())
}

/// The median rate of each target. They take turns, so that a busy moment, such as a start, counts for little.
async fn apply_in_turns(loads: &[LoadGenerator]) -> anyhow::Result<Vec<f64>> {
    let mut rates = vec![Vec::new(); loads.len()];
    for turn in 0..TURNS {
        for (rates, load) in rates.iter_mut().zip(loads) {
            rates.push(apply_until_end(&load.with_turn_duration(), turn).await?);
        }
    }
    let median = |mut rates: Vec<f64>| {
        rates.sort_by(f64::total_cmp);
        rates[rates.len() / 2]
    };
    Ok(rates.into_iter().map(median).collect())
}

/// Applies on each connection to a pod of its own, with another image each time. Returns the rate.
async fn apply_until_end(load: &LoadGenerator, turn: usize) -> anyhow::Result<f64> {
    let config = pod().to_string();
    let mut appliers = Vec::new();
    for number in 0..CONNECTIONS {
        let path = format!("/api/v1/namespaces/default/pods/p{number}?fieldManager=bench&force=true");
        appliers.push((load.connect().await?, path, config.replace("NAME", &format!("p{number}"))));
    }
    let started = Instant::now();
    let ends = started + load.duration;
    let applying = appliers.into_iter().map(async |(mut sender, path, config)| {
        let mut count = 0_u64;
        while Instant::now() < ends {
            let config = config.replace("IMAGE", &format!("i{turn}.{count}")).into_bytes();
            let pod = send_typed(&mut sender, "PATCH", &path, "application/apply-patch+yaml", config).await?;
            anyhow::ensure!(POD_BYTES.contains(&pod.len()), "the pod has {} bytes", pod.len());
            count += 1;
        }
        anyhow::Ok(count)
    });
    let counts = futures_util::future::try_join_all(applying).await?;
    Ok(counts.iter().sum::<u64>() as f64 / started.elapsed().as_secs_f64())
}

fn pod() -> Value {
    let variable = |number: usize| json!({"name": format!("VARIABLE_{number}"), "value": "v".repeat(60)});
    let container = |name: &str| {
        json!({
            "name": name, "image": "i", "ports": [{"containerPort": 80}, {"containerPort": 443}],
            "env": (0..VARIABLES / 3).map(variable).collect::<Value>(),
            "resources": {"requests": {"cpu": "1", "memory": "1Gi"}},
            "volumeMounts": [{"name": "data", "mountPath": "/data"}],
            "readinessProbe": {"httpGet": {"path": "/ready", "port": 80}},
        })
    };
    let mut containers = ["first", "second", "third"].map(container);
    containers[0]["image"] = "IMAGE".into();
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "NAME", "labels": {"app": "bench"}},
        "spec": {"containers": containers, "volumes": [{"name": "data", "emptyDir": {}}], "tolerations": [{"operator": "Exists"}]},
    })
}

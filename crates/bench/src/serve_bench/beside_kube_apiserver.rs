//! Rates of creates on etcd beside a real kube-apiserver of `KUBEBUILDER_ASSETS`.

use cluster_tests::kube_apiserver::{KubeApiserver, KubeApiserverRelease};
use cluster_tests::tools::optional_text;
use cluster_tests::{Client, Etcd, RunningServer, TestStore};
use tokio::runtime::Runtime;

use super::load::{AdminTls, LoadGenerator, TURNS};
use super::{CONNECTIONS, ServeBenchSizes};

/// Names the folder with kube-apiserver.
pub(super) const REAL_ASSETS: &str = "KUBEBUILDER_ASSETS";

/// Creates objects through our server and through kube-apiserver in turns, after `prepare` on each. Returns our rate, then
/// that of kube-apiserver; `None` if there is none. Each server has an etcd of its own, so that neither caches the objects
/// of the other.
pub(super) fn compare_creates(
    sizes: ServeBenchSizes,
    prepare: impl AsyncFn(Client) -> anyhow::Result<()>,
    path: &'static str,
    new_object: fn() -> Vec<u8>,
) -> anyhow::Result<Option<[f64; 2]>> {
    if optional_text(REAL_ASSETS).is_none() {
        return Ok(None);
    }
    let etcds = [Etcd::start(), Etcd::start()];
    let folder = tempfile::tempdir()?;
    let ours = RunningServer::start(folder.path(), TestStore::Etcd(&etcds[0]), &[]);
    let real = KubeApiserver::start_stock(KubeApiserverRelease::New, folder.path(), &etcds[1], &[]);
    let tls = AdminTls::for_admin(&ours)?;
    Runtime::new()?.block_on(async {
        let mut loads = Vec::new();
        for client in [ours.admin(), real.admin()] {
            let (tls, address) = (tls.clone(), client.address().to_owned());
            loads.push(LoadGenerator { tls, address, duration: sizes.load_duration }.with_turn_duration());
            prepare(client).await?;
        }
        let mut rates = [0.0; 2];
        for _ in 0..TURNS {
            for (rate, load) in rates.iter_mut().zip(&loads) {
                *rate += load.run(CONNECTIONS, "POST", path, Some(new_object)).await?.rate / TURNS as f64;
            }
        }
        Ok(Some(rates))
    })
}

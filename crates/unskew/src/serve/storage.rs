//! The store of a server: opened, watched over, closed.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use store::etcd::EtcdStore;
use store::sqlite::SqliteStore;
use store::{KeyRange, Store};
use tasks::Tasks;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::config::StorageConfig;

/// How often storage is asked whether it answers, and how long it may take.
const PROBE_INTERVAL: Duration = Duration::from_secs(1);
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);

/// How many values are looked at to tell in which form others store theirs.
const SAMPLE_ENTRIES: usize = 500;
/// What Kubernetes' protobuf form begins with.
const PROTOBUF_PREFIX: &[u8] = b"k8s\0";

/// A store that was opened and must be closed.
pub(super) struct StoreHandle {
    store: Arc<dyn Store>,
    sqlite: Option<Arc<SqliteStore>>,
    tasks: Tasks,
}

impl StoreHandle {
    /// Opens a store. An etcd that is there and was filled by servers that store protobuf is refused, and nothing is written.
    pub(super) async fn open(storage: &StorageConfig, prefix: &str) -> anyhow::Result<Self> {
        let tasks = Tasks::new();
        match storage {
            StorageConfig::Sqlite(file) => {
                create_parent_dir(file)?;
                let store = Arc::new(SqliteStore::open(store::sqlite::Config::new(file), &tasks).await?);
                Ok(Self { store: store.clone(), sqlite: Some(store), tasks })
            }
            StorageConfig::Etcd(config) => {
                let store = Arc::new(EtcdStore::open(config, tasks.clone()).await?);
                reject_protobuf_storage(&*store, prefix).await?;
                Ok(Self { store, sqlite: None, tasks })
            }
        }
    }

    pub(super) fn store(&self) -> Arc<dyn Store> {
        self.store.clone()
    }

    /// Waits for the first task of the store that ends unasked.
    pub(super) async fn wait_for_failure(&self) -> tasks::TaskFailure {
        self.tasks.wait_for_failure().await
    }

    pub(super) async fn close(&self, grace: Duration) {
        if let Some(sqlite) = &self.sqlite {
            sqlite.close().await;
        }
        if let Err(error) = self.tasks.stop(grace).await {
            tracing::warn!(%error, "the store did not close in time");
        }
    }
}

/// Namespaces tell, because every kube-apiserver writes some. Of everything else one part is JSON always, so more than half of
/// a sample must be protobuf; single values of it are told of when they are read.
async fn reject_protobuf_storage(store: &dyn Store, prefix: &str) -> anyhow::Result<()> {
    for (below, share_max) in [(format!("{prefix}/namespaces/"), 0.0), (format!("{prefix}/"), 0.5)] {
        let entries = match store.range(KeyRange::prefix(below).limit(SAMPLE_ENTRIES)).await {
            Ok(page) => page.entries,
            // Requests are answered 503 until it is there; it cannot be judged now.
            Err(error) => {
                tracing::warn!(%error, "storage cannot be read at the start");
                return Ok(());
            }
        };
        let mut found = entries.iter().filter(|entry| entry.value.starts_with(PROTOBUF_PREFIX)).peekable();
        let Some(first) = found.peek().map(|entry| entry.key.escape_ascii().to_string()) else { continue };
        anyhow::ensure!(
            found.count() as f64 <= share_max * entries.len() as f64,
            "etcd holds objects that are stored as protobuf, such as {first}, and this server reads JSON; give \
             --storage-media-type=application/json to the kube-apiservers that share this etcd and have every object \
             stored again, or name another --etcd-prefix"
        );
    }
    Ok(())
}

/// Whether storage answers, as of the last time it was asked. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct StorageProbe {
    last_result: watch::Receiver<Result<(), String>>,
}

impl StorageProbe {
    pub(super) fn start(store: Arc<dyn Store>, tasks: &Tasks) -> Self {
        let (sender, last) = watch::channel(Err("storage was not asked yet".to_owned()));
        tasks.spawn("storage-probe", |stop| probe_repeatedly(store, sender, stop));
        Self { last_result: last }
    }

    pub(super) fn check(&self) -> Result<(), String> {
        self.last_result.borrow().clone()
    }
}

async fn probe_repeatedly(store: Arc<dyn Store>, results: watch::Sender<Result<(), String>>, stop: CancellationToken) {
    let ask = async || match tokio::time::timeout(PROBE_TIMEOUT, store.get("unskew-probe".into())).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("storage does not answer".to_owned()),
    };
    loop {
        let Some(answer) = stop.run_until_cancelled(ask()).await else { return };
        results.send_if_modified(|last| {
            let is_news = *last != answer;
            match &answer {
                Err(reason) if is_news => tracing::warn!(reason, "storage is not available"),
                Ok(()) if is_news => tracing::info!("storage is available"),
                _ => {}
            }
            *last = answer;
            is_news
        });
        if stop.run_until_cancelled(tokio::time::sleep(PROBE_INTERVAL)).await.is_none() {
            return;
        }
    }
}

fn create_parent_dir(file: &Path) -> anyhow::Result<()> {
    let Some(folder) = file.parent().filter(|folder| !folder.as_os_str().is_empty()) else { return Ok(()) };
    std::fs::create_dir_all(folder).with_context(|| format!("cannot create {} for --sqlite-file", folder.display()))
}

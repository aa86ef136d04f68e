//! The store of a server: opened, watched over, closed.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use store::Store;
use store::etcd::Etcd;
use store::sqlite::SqliteStore;
use tasks::Tasks;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::config::Storage;

/// How often storage is asked whether it answers, and how long it may take.
const PROBE_INTERVAL: Duration = Duration::from_secs(1);
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);

/// A store that was opened and must be closed.
pub(super) struct Opened {
    store: Arc<dyn Store>,
    sqlite: Option<Arc<SqliteStore>>,
    tasks: Tasks,
}

impl Opened {
    pub(super) async fn open(storage: &Storage) -> anyhow::Result<Self> {
        let tasks = Tasks::new();
        match storage {
            Storage::Sqlite(file) => {
                create_folder(file)?;
                let store = Arc::new(SqliteStore::open(store::sqlite::Config::new(file), &tasks).await?);
                Ok(Self { store: store.clone(), sqlite: Some(store), tasks })
            }
            Storage::Etcd(config) => {
                let store = Arc::new(Etcd::open(config, tasks.clone()).await?);
                Ok(Self { store, sqlite: None, tasks })
            }
        }
    }

    pub(super) fn store(&self) -> Arc<dyn Store> {
        self.store.clone()
    }

    /// Waits for the first task of the store that ends unasked.
    pub(super) async fn failed(&self) -> tasks::Failure {
        self.tasks.failed().await
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

/// Whether storage answers, as of the last time it was asked. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct Probe {
    last: watch::Receiver<Result<(), String>>,
}

impl Probe {
    pub(super) fn start(store: Arc<dyn Store>, tasks: &Tasks) -> Self {
        let (sender, last) = watch::channel(Err("storage was not asked yet".to_owned()));
        tasks.spawn("storage-probe", |stop| ask_on(store, sender, stop));
        Self { last }
    }

    pub(super) fn check(&self) -> Result<(), String> {
        self.last.borrow().clone()
    }
}

async fn ask_on(store: Arc<dyn Store>, answers: watch::Sender<Result<(), String>>, stop: CancellationToken) {
    let ask = async || match tokio::time::timeout(PROBE_TIMEOUT, store.get("unskew-probe".into())).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("storage does not answer".to_owned()),
    };
    loop {
        let Some(answer) = stop.run_until_cancelled(ask()).await else { return };
        answers.send_if_modified(|last| {
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

fn create_folder(file: &Path) -> anyhow::Result<()> {
    let Some(folder) = file.parent().filter(|folder| !folder.as_os_str().is_empty()) else { return Ok(()) };
    std::fs::create_dir_all(folder).with_context(|| format!("cannot create {} for --sqlite-file", folder.display()))
}

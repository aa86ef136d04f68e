//! `unskew inventory`: what is stored, per resource. Reads SQLite or etcd directly and changes nothing.

use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use ::lab::cluster::object_counts::{ObjectCount, fetch_object_counts};
use ::lab::data_dir::state::LabStorage;
use anyhow::Context as _;
use clap::Args;
use object::decode::{self, BodyEncoding};
use preflight::encryption::EncryptionConfig;
use preflight::inventory::{Inventory, InventoryBuilder, ResourceInventory};
use preflight::table::render_inventory;
use store::StoreEntry;
use store::etcd::{EtcdScan, EtcdStore};
use store::sqlite::SqliteScan;
use tasks::Tasks;

use crate::lab::args::DataDirArgs;
use crate::{EXIT_UNAVAILABLE, lab, print_error, print_line};

pub(crate) const EXAMPLES: &str = "Examples:
  unskew inventory                                   the lab of `unskew up`, running or stopped
  unskew inventory --sqlite-file unskew-data/store.db
  unskew inventory --etcd-servers https://10.0.0.1:2379 --etcd-cafile ca.crt --etcd-certfile c.crt --etcd-keyfile c.key
  unskew inventory --etcd-servers http://127.0.0.1:2379 --encryption-provider-config encryption.yaml
  unskew inventory --kubeconfig ~/.kube/config       counts only: the API does not show how objects are stored";

/// How often a scan starts again because its revision was compacted: servers keep minutes of history, so once is unusual.
const SCANS_MAX: u32 = 3;
/// How often progress is shown on a terminal, and in a log.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(200);
const PROGRESS_LOG_INTERVAL: Duration = Duration::from_secs(10);
/// How long one page may take, over all members. For the first page etcd counts every key of the prefix: seconds for a million
/// on a busy machine.
const ETCD_REQUEST_TIMEOUT: Duration = Duration::from_secs(90);
/// How long etcd connections may take to close.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub(crate) struct InventoryArgs {
    #[command(flatten)]
    pub(crate) storage: StorageArgs,
    /// Count the objects that the cluster of this kubeconfig serves; how they are stored is not known then
    #[arg(long, value_name = "FILE", conflicts_with_all = ["data_dir", "sqlite_file", "etcd_servers"])]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// How it is shown: table or json
    #[arg(short, long, value_name = "FORM", default_value = "table", value_parser = ["table", "json"])]
    pub(crate) output: String,
}

/// Which storage to read; the flags of kube-apiserver, or a lab.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub(crate) struct StorageArgs {
    #[command(flatten)]
    pub(crate) lab: DataDirArgs,
    /// The SQLite file of `unskew serve`; read-only, also while servers run
    #[arg(long, value_name = "FILE", conflicts_with_all = ["data_dir", "etcd_servers"])]
    pub(crate) sqlite_file: Option<PathBuf>,
    /// etcd endpoints, scheme://host:port
    #[arg(long, value_name = "URLS", value_delimiter = ',', conflicts_with = "data_dir")]
    pub(crate) etcd_servers: Vec<String>,
    /// The authority of etcd's certificates
    #[arg(long, value_name = "FILE", requires = "etcd_servers")]
    pub(crate) etcd_cafile: Option<PathBuf>,
    /// The client certificate shown to etcd
    #[arg(long, value_name = "FILE", requires = "etcd_servers")]
    pub(crate) etcd_certfile: Option<PathBuf>,
    /// The key of --etcd-certfile
    #[arg(long, value_name = "FILE", requires = "etcd_servers")]
    pub(crate) etcd_keyfile: Option<PathBuf>,
    /// What every key in storage begins with
    #[arg(long, value_name = "PREFIX", default_value = "/registry")]
    pub(crate) etcd_prefix: String,
    /// The servers' EncryptionConfiguration, to read the versions of encrypted objects
    #[arg(long, value_name = "FILE")]
    pub(crate) encryption_provider_config: Option<PathBuf>,
}

pub(crate) fn main(args: InventoryArgs) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let outcome = match runtime {
        Ok(runtime) => runtime.block_on(run(args)),
        Err(error) => Err(error.into()),
    };
    outcome.unwrap_or_else(|error| {
        print_error("unskew inventory", &error);
        ExitCode::from(EXIT_UNAVAILABLE)
    })
}

async fn run(args: InventoryArgs) -> anyhow::Result<ExitCode> {
    let inventory = match &args.kubeconfig {
        Some(file) => count_served_objects(file).await?,
        None => read_inventory(&args.storage).await?,
    };
    let text = match &*args.output {
        "json" => serde_json::to_string_pretty(&inventory)?,
        _ => render_inventory(&inventory),
    };
    print_line(&mut std::io::stdout(), text.trim_end());
    Ok(ExitCode::SUCCESS)
}

/// Reads every envelope below the prefix.
pub(crate) async fn read_inventory(args: &StorageArgs) -> anyhow::Result<Inventory> {
    let encryption = args.encryption_provider_config.as_deref().map(read_encryption_config).transpose()?;
    scan(StorageReader::open(args).await?, InventoryBuilder::new(&args.etcd_prefix, encryption)).await
}

/// Reads every envelope below the prefix of the builder.
pub(crate) async fn scan(storage: StorageReader, mut builder: InventoryBuilder) -> anyhow::Result<Inventory> {
    let prefix = builder.prefix().to_owned();
    let scanned = storage.scan(&prefix, |event| match event {
        ScanEvent::Restarted => builder.reset(),
        ScanEvent::Entry(entry) => builder.add(&entry.key, &entry.value, entry.revision.0),
    });
    let revision = scanned.await;
    let source = storage.close().await;
    Ok(builder.finish(source, revision?))
}

/// Storage that is open for reading.
pub(crate) struct StorageReader {
    /// As the flags name it.
    source: String,
    backend: StorageBackend,
    tasks: Tasks,
    shows_progress: bool,
}

enum StorageBackend {
    Sqlite(PathBuf),
    Etcd(EtcdStore),
}

/// What a scan reports.
pub(crate) enum ScanEvent<'a> {
    /// Everything that was reported so far is void: the scan begins again at another revision.
    Restarted,
    /// The next entry in the order of keys.
    Entry(&'a StoreEntry),
}

enum StorageScan {
    Sqlite(Box<SqliteScan>),
    Etcd(Box<EtcdScan>),
}

impl StorageReader {
    pub(crate) async fn open(args: &StorageArgs) -> anyhow::Result<Self> {
        let tasks = Tasks::new();
        let etcd = async |mut config: store::etcd::Config| -> anyhow::Result<Self> {
            config.timeouts.request = ETCD_REQUEST_TIMEOUT;
            let source = config.servers.join(",");
            let backend = StorageBackend::Etcd(EtcdStore::open(&config, tasks.clone()).await?);
            Ok(Self { source, backend, tasks: tasks.clone(), shows_progress: true })
        };
        let sqlite = |file: PathBuf| {
            let source = file.display().to_string();
            Ok(Self { source, backend: StorageBackend::Sqlite(file), tasks: tasks.clone(), shows_progress: true })
        };
        if let Some(file) = &args.sqlite_file {
            return sqlite(file.clone());
        }
        if !args.etcd_servers.is_empty() {
            return etcd(store::etcd::Config {
                ca_file: args.etcd_cafile.clone(),
                cert_file: args.etcd_certfile.clone(),
                key_file: args.etcd_keyfile.clone(),
                ..store::etcd::Config::new(args.etcd_servers.clone())
            })
            .await;
        }
        let data_dir = lab::data_dir(&args.lab)?;
        let state = data_dir.read_state()?.with_context(|| {
            let folder = data_dir.path().display();
            format!("there is no lab in {folder}: name the storage with --sqlite-file or --etcd-servers")
        })?;
        match state.store {
            LabStorage::Sqlite => sqlite(data_dir.sqlite_file()),
            LabStorage::Etcd { servers } => etcd(store::etcd::Config::new(servers)).await,
            LabStorage::OwnEtcd { client_port, .. } => {
                etcd(store::etcd::Config::new(vec![format!("http://127.0.0.1:{client_port}")])).await
            }
        }
    }

    /// Without progress on stderr.
    #[must_use]
    pub(crate) fn quiet(self) -> Self {
        Self { shows_progress: false, ..self }
    }

    /// Reports every entry below `prefix` at one revision, which is returned.
    pub(crate) async fn scan(&self, prefix: &str, mut report: impl FnMut(ScanEvent<'_>)) -> anyhow::Result<u64> {
        for _ in 0..SCANS_MAX {
            match self.scan_once(prefix, &mut report).await {
                Err(store::Error::Compacted { .. }) => report(ScanEvent::Restarted),
                Ok(revision) => return Ok(revision),
                Err(error) => return Err(anyhow::Error::from(error).context(format!("cannot read {}", self.source))),
            }
        }
        anyhow::bail!("{}: history was compacted faster than it could be read, {SCANS_MAX} times", self.source)
    }

    async fn scan_once(&self, prefix: &str, report: &mut impl FnMut(ScanEvent<'_>)) -> Result<u64, store::Error> {
        let mut scan = match &self.backend {
            StorageBackend::Sqlite(file) => {
                let unavailable =
                    |error: store::sqlite::OpenError| store::Error::Unavailable { reason: error.to_string() };
                StorageScan::Sqlite(Box::new(SqliteScan::open(file, prefix.to_owned()).map_err(unavailable)?))
            }
            StorageBackend::Etcd(store) => StorageScan::Etcd(Box::new(store.scan(prefix.to_owned()))),
        };
        let mut progress = Progress::new();
        while let Some(entries) = scan.next_chunk().await? {
            for entry in &entries {
                report(ScanEvent::Entry(entry));
            }
            if self.shows_progress {
                progress.add(entries.len() as u64, scan.total());
            }
        }
        progress.clear();
        Ok(scan.revision())
    }

    /// Closes the connections; the storage's name remains.
    pub(crate) async fn close(self) -> String {
        if let Err(error) = self.tasks.stop(CLOSE_TIMEOUT).await {
            tracing::debug!(%error, "etcd connections did not close in time");
        }
        self.source
    }
}

impl StorageScan {
    async fn next_chunk(&mut self) -> Result<Option<Vec<StoreEntry>>, store::Error> {
        match self {
            Self::Sqlite(scan) => scan.next_chunk(),
            Self::Etcd(scan) => scan.next_chunk().await,
        }
    }

    fn total(&self) -> u64 {
        match self {
            Self::Sqlite(scan) => scan.total(),
            Self::Etcd(scan) => scan.total(),
        }
    }

    fn revision(&self) -> u64 {
        match self {
            Self::Sqlite(scan) => scan.revision().0,
            Self::Etcd(scan) => scan.revision().0,
        }
    }
}

/// Progress on stderr: one line that is overwritten on a terminal, now and then a line elsewhere.
struct Progress {
    is_terminal: bool,
    entries: u64,
    shown_at: Instant,
    is_shown: bool,
}

impl Progress {
    fn new() -> Self {
        let is_terminal = std::io::stderr().is_terminal();
        Self { is_terminal, entries: 0, shown_at: Instant::now(), is_shown: false }
    }

    fn add(&mut self, entries: u64, total: u64) {
        self.entries += entries;
        let interval = if self.is_terminal { PROGRESS_INTERVAL } else { PROGRESS_LOG_INTERVAL };
        if self.shown_at.elapsed() < interval {
            return;
        }
        self.shown_at = Instant::now();
        self.is_shown = true;
        let mut stderr = std::io::stderr();
        let _ = match self.is_terminal {
            true => write!(stderr, "\rread {} of {total} objects\x1b[K", self.entries),
            false => writeln!(stderr, "read {} of {total} objects", self.entries),
        };
        let _ = stderr.flush();
    }

    fn clear(&self) {
        if self.is_terminal && self.is_shown {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

pub(crate) fn read_encryption_config(file: &Path) -> anyhow::Result<EncryptionConfig> {
    let flag = || format!("--encryption-provider-config: {}", file.display());
    let bytes = std::fs::read(file).with_context(flag)?;
    let config = decode::decode_value(&bytes, BodyEncoding::Yaml).map_err(anyhow::Error::msg).with_context(flag)?;
    EncryptionConfig::from_value(&config.value).with_context(flag)
}

async fn count_served_objects(kubeconfig: &Path) -> anyhow::Result<Inventory> {
    let counts = fetch_object_counts(&lab::cluster_access(kubeconfig)?).await?;
    let refused: Vec<String> = counts.iter().filter_map(refusal).collect();
    let mut not_known = vec![
        "How objects are stored: version, encoding, encryption key and undecodable values. The API converts every object \
         and hides all of it; give --sqlite-file or --etcd-servers."
            .to_owned(),
    ];
    not_known.extend(refused);
    let counted = counts.into_iter().filter_map(|ObjectCount { group, resource, objects }| {
        Some(ResourceInventory::counted(&group, &resource, objects.ok().filter(|objects| *objects > 0)?))
    });
    let source = format!("the API of {}", kubeconfig.display());
    Ok(Inventory { source, revision: None, resources: counted.collect(), not_known })
}

fn refusal(count: &ObjectCount) -> Option<String> {
    let reason = count.objects.as_ref().err()?;
    Some(format!("The number of {}.{}: {reason}", count.resource, count.group))
}

//! `unskew migrate`: rewrites stored objects until all are in the version and with the key that the servers write.
//!
//! For servers that do not execute StorageVersionMigrations, stock kube-apiservers above all. When to write and what
//! counts as done is decided by [`storageversion::migration`]; this command brings evidence about the servers, requests to
//! named servers, and the view of storage.

mod cluster;
mod servers;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use preflight::key_layout::ResourceClass;
use storageversion::migration::{
    MigrationOutcome, MigrationSettings, Progress, Survey, TargetForm, WriterHistory, migrate,
};

use crate::inventory::{StorageArgs, StorageReader, read_encryption_config};
use crate::{EXIT_CHECK_FAILED, EXIT_UNAVAILABLE, lab, print_error, print_line};
use cluster::{MigratedResource, StockCluster};
pub(crate) use servers::ServerList;

pub(crate) const EXAMPLES: &str = "Examples:
  unskew migrate --kubeconfig admin.conf --etcd-servers https://10.0.0.1:2379 --etcd-cafile ca.crt \\
    --etcd-certfile c.crt --etcd-keyfile c.key --dry-run --all
  unskew migrate volumeattributesclasses.storage.k8s.io --kubeconfig admin.conf --etcd-servers http://127.0.0.1:2379
  unskew migrate secrets --encryption-provider-config encryption.yaml …      after the first key changed

Writes only while all API servers are known to write one version, and says which one does not. Exits with 0 if storage
proves that nothing is left, with 1 if something is.";

/// Observations of the servers while they disagree.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub(crate) struct MigrateArgs {
    /// Resources with their group, such as secrets or deployments.apps
    #[arg(value_name = "RESOURCE", required_unless_present = "all")]
    pub(crate) resources: Vec<String>,
    /// Every resource with objects that are stored otherwise
    #[arg(long, conflicts_with = "resources")]
    pub(crate) all: bool,
    /// The cluster, as an administrator
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: PathBuf,
    /// An API server, https://host:port; repeated for each one. Default: the endpoints of the service kubernetes
    #[arg(long, value_name = "URL")]
    pub(crate) server: Vec<String>,
    #[command(flatten)]
    pub(crate) storage: StorageArgs,
    /// Seconds to wait after a server left: at least its --shutdown-delay-duration and --request-timeout
    #[arg(long, value_name = "SECONDS", default_value_t = 70)]
    pub(crate) linger: u64,
    /// Seconds after which a resource is given up
    #[arg(long, value_name = "SECONDS", default_value_t = 3600)]
    pub(crate) timeout: u64,
    /// The servers' --storage-media-type, to rewrite objects in other encodings too
    #[arg(long, value_name = "TYPE")]
    pub(crate) storage_media_type: Option<String>,
    /// Say what would be rewritten, and write nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
}

pub(crate) fn main(args: MigrateArgs) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let outcome = match runtime {
        Ok(runtime) => runtime.block_on(run(args)),
        Err(error) => Err(error.into()),
    };
    outcome.unwrap_or_else(|error| {
        print_error("unskew migrate", &error);
        ExitCode::from(EXIT_UNAVAILABLE)
    })
}

async fn run(args: MigrateArgs) -> anyhow::Result<ExitCode> {
    let encryption = args.storage.encryption_provider_config.as_deref().map(read_encryption_config).transpose()?;
    let access = lab::cluster_access(&args.kubeconfig)?;
    let storage = StorageReader::open(&args.storage).await?;
    let wanted = match args.all {
        true => stored_resources(&storage, &args.storage.etcd_prefix).await?,
        false => args.resources.iter().map(|name| split_resource(name)).collect(),
    };
    let servers = ServerList::find(&access, &args.server).await?;
    let history = WriterHistory::default();
    let mut is_complete = true;
    for (group, resource) in wanted {
        let label = api::GroupResource { group: &*group, resource: &*resource }.to_string();
        let encryption_key = encryption.as_ref().map(|config| config.write_key(&group, &resource).to_owned());
        let found = MigratedResource::find(&access, &group, &resource, &args.storage.etcd_prefix).await;
        let found = match found.with_context(|| label.clone()) {
            Ok(found) => found,
            // Resources that are stored and not served cannot be rewritten by any request.
            Err(error) if args.all => {
                report_line(&format!("{error:#}: skipped"));
                continue;
            }
            Err(error) => return Err(error),
        };
        let cluster = StockCluster::new(&access, &servers, &storage, encryption.as_ref(), found);
        let form = TargetForm {
            media_type: args.storage_media_type.clone().filter(|_| !cluster.is_custom()),
            encryption: encryption_key,
            ..TargetForm::default()
        };
        is_complete &= match args.dry_run {
            true => dry_run(&cluster, &label, &form).await?,
            false => execute(&cluster, &label, form, &args, &history).await,
        };
    }
    drop(servers);
    storage.close().await;
    Ok(if is_complete { ExitCode::SUCCESS } else { ExitCode::from(EXIT_CHECK_FAILED) })
}

/// `deployments.apps` as group and resource.
fn split_resource(name: &str) -> (String, String) {
    let (resource, group) = name.split_once('.').unwrap_or((name, ""));
    (group.to_owned(), resource.to_owned())
}

/// Every API resource with stored objects, in order of groups.
async fn stored_resources(storage: &StorageReader, prefix: &str) -> anyhow::Result<BTreeSet<(String, String)>> {
    let layout = preflight::key_layout::KeyLayout::default();
    let prefix = format!("{}/", prefix.trim_end_matches('/'));
    let mut found = BTreeSet::new();
    let scanned = storage.scan(&prefix, |event| {
        let crate::inventory::ScanEvent::Entry(entry) = event else { return };
        let key = String::from_utf8_lossy(&entry.key);
        let owner = layout.owner(key.strip_prefix(&*prefix).unwrap_or_default());
        if matches!(owner.class, ResourceClass::BuiltIn | ResourceClass::Custom) {
            let name = (owner.group.to_owned(), owner.resource.to_owned());
            found.insert(name);
        }
    });
    scanned.await?;
    Ok(found)
}

/// What would be rewritten. True if nothing.
async fn dry_run(cluster: &StockCluster<'_>, label: &str, form: &TargetForm) -> anyhow::Result<bool> {
    use storageversion::migration::MigrationPort as _;
    let evidence = cluster.observe_without_probe().await.map_err(anyhow::Error::msg)?;
    let agreed = match evidence.judge() {
        Ok(agreed) => agreed,
        Err(reason) => {
            report_line(&format!("{label}: would wait: {reason}"));
            return Ok(false);
        }
    };
    let target = TargetForm { api_version: agreed.version.clone(), ..form.clone() };
    let Survey { objects, outdated, revision, .. } = cluster.survey(&target).await.map_err(anyhow::Error::msg)?;
    let key = target.encryption.as_ref().filter(|key| !key.is_empty()).map(|key| format!(" with {key}"));
    let form = format!("{}{}", agreed.version, key.unwrap_or_default());
    report_line(&format!("{label}: would rewrite {outdated} of {objects} objects to {form} (revision {revision})"));
    Ok(outdated == 0)
}

/// Runs the migration of one resource. True if storage proves that it is done.
async fn execute(
    cluster: &StockCluster<'_>,
    label: &str,
    form: TargetForm,
    args: &MigrateArgs,
    history: &WriterHistory,
) -> bool {
    let linger = Duration::from_secs(args.linger);
    let settings = MigrationSettings { linger, poll_interval: POLL_INTERVAL, form, history: history.clone() };
    let limit = Duration::from_secs(args.timeout);
    let Ok(outcome) = tokio::time::timeout(limit, migrate(cluster, &settings)).await else {
        report_line(&format!("{label}: given up after {} s: {}", args.timeout, cluster.last_report().waiting_for));
        return false;
    };
    match outcome {
        MigrationOutcome::Proven(progress) => {
            let Progress { version, objects, rewritten, surveyed_at, .. } = &progress;
            report_line(&format!(
                "{label}: done: all {objects} objects are stored as {version} at revision {surveyed_at}, {rewritten} were rewritten"
            ));
            match cluster.cut_stored_versions(&progress).await {
                Ok(None) => true,
                Ok(Some(cut)) => {
                    report_line(&format!("{label}: {cut}"));
                    true
                }
                Err(reason) => {
                    report_line(&format!("{label}: storedVersions of the definition stay: {reason}"));
                    false
                }
            }
        }
        MigrationOutcome::Refused { progress, objects } => {
            report_line(&format!(
                "{label}: {} of {} objects are refused: {}",
                progress.outdated,
                progress.objects,
                objects.join("; ")
            ));
            false
        }
    }
}

fn report_line(line: &str) {
    print_line(&mut std::io::stdout(), line);
}

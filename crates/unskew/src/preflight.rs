//! `unskew preflight --to RELEASE`: whether servers of another release can take over what is stored.

use std::io::{BufRead, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ::preflight::clients::{ClientUseCounter, ClientUses, LINE_BYTES_MAX};
use ::preflight::flags::ServerFlags;
use ::preflight::releases::{Release, TargetServer};
use ::preflight::table::{render_plan, render_preflight};
use ::preflight::verdict::{Preflight, PreflightBuilder};
use anyhow::Context as _;
use clap::Args;
use object::decode::{self, BodyEncoding};

use crate::inventory::{ScanEvent, StorageArgs, StorageReader, read_encryption_config};
use crate::migrate::ServerList;
use crate::{EXIT_CHECK_FAILED, EXIT_UNAVAILABLE, lab, print_error, print_line};

pub(crate) const EXAMPLES: &str = "Examples:
  unskew preflight --to 1.33                         can the lab go back to 1.33?
  unskew preflight --to 1.37 --etcd-servers https://10.0.0.1:2379 --etcd-cafile ca.crt --etcd-certfile c.crt --etcd-keyfile c.key
  unskew preflight --to 1.37 --kubeconfig admin.conf --etcd-servers … --plan   with the way back
  unskew preflight --to 1.33 --runtime-config storage.k8s.io/v1beta1=true --audit-log audit.log --plan
  unskew preflight --to 1.33 --server-flags /etc/kubernetes/manifests/kube-apiserver.yaml

Reads storage directly and changes nothing. Exits with 0 if nothing was found, with 1 if the change is not safe.";

#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub(crate) struct PreflightArgs {
    /// The release that the servers shall become, such as 1.36
    #[arg(long, value_name = "RELEASE")]
    pub(crate) to: Release,
    /// The release that the servers have now: shows what closes the way back. Default: asked of --server
    #[arg(long, value_name = "RELEASE")]
    pub(crate) from: Option<Release>,
    /// The cluster, to ask its servers for their release, emulated version and minimum compatibility version
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// An API server to ask, https://host:port; repeated. Default: the endpoints of the service kubernetes
    #[arg(long, value_name = "URL", requires = "kubeconfig")]
    pub(crate) server: Vec<String>,
    #[command(flatten)]
    pub(crate) storage: StorageArgs,
    /// The manifest of kube-apiserver's Pod, or its command line, unit or environment file: shows flags that stop the start
    #[arg(long, value_name = "FILE")]
    pub(crate) server_flags: Option<PathBuf>,
    /// The --feature-gates that the servers of that release will be started with
    #[arg(long, value_name = "GATES", value_delimiter = ',')]
    pub(crate) feature_gates: Vec<String>,
    /// The --runtime-config that they will be started with
    #[arg(long, value_name = "CONFIG", value_delimiter = ',')]
    pub(crate) runtime_config: Vec<String>,
    /// An audit log of the servers, to see which clients use versions that go
    #[arg(long, value_name = "FILE")]
    pub(crate) audit_log: Vec<PathBuf>,
    /// An access log of `unskew gateway`, for the same
    #[arg(long, value_name = "FILE")]
    pub(crate) access_log: Vec<PathBuf>,
    /// Print the steps of the change, too
    #[arg(long)]
    pub(crate) plan: bool,
    /// How it is shown: table or json
    #[arg(short, long, value_name = "FORM", default_value = "table", value_parser = ["table", "json"])]
    pub(crate) output: String,
}

pub(crate) fn main(args: PreflightArgs) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let outcome = match runtime {
        Ok(runtime) => runtime.block_on(run(args)),
        Err(error) => Err(error.into()),
    };
    outcome.unwrap_or_else(|error| {
        print_error("unskew preflight", &error);
        ExitCode::from(EXIT_UNAVAILABLE)
    })
}

async fn run(args: PreflightArgs) -> anyhow::Result<ExitCode> {
    let mut counter = ClientUseCounter::default();
    for file in &args.audit_log {
        let read = read_log(file, &mut counter, ClientUseCounter::add_audit_line);
        read.with_context(|| format!("--audit-log: {}", file.display()))?;
    }
    for file in &args.access_log {
        let read = read_log(file, &mut counter, ClientUseCounter::add_access_line);
        read.with_context(|| format!("--access-log: {}", file.display()))?;
    }
    let preflight = build_report(&args, &counter.finish()).await?;
    let text = match &*args.output {
        "json" => serde_json::to_string_pretty(&preflight)?,
        _ if args.plan => format!("{}\n{}", render_preflight(&preflight), render_plan(&preflight)),
        _ => render_preflight(&preflight),
    };
    print_line(&mut std::io::stdout(), text.trim_end());
    Ok(if preflight.safe { ExitCode::SUCCESS } else { ExitCode::from(EXIT_CHECK_FAILED) })
}

/// Scans all stored objects and reports what would break on the target release. A scan restarts, and the report with it,
/// if its revision is compacted meanwhile.
async fn build_report(args: &PreflightArgs, clients: &ClientUses) -> anyhow::Result<Preflight> {
    let encryption = args.storage.encryption_provider_config.as_deref().map(read_encryption_config).transpose()?;
    let target = TargetServer::new(args.to, &server_flags(args)?);
    let from = args.from.or(ask_servers(args).await?);
    let mut builder = PreflightBuilder::new(&args.storage.etcd_prefix, encryption, target).coming_from(from);
    let prefix = builder.prefix().to_owned();
    let storage = StorageReader::open(&args.storage).await?;
    let scanned = storage.scan(&prefix, |event| match event {
        ScanEvent::Restarted => builder.reset(),
        ScanEvent::Entry(entry) => builder.add(&entry.key, &entry.value, entry.revision.0),
    });
    let revision = scanned.await;
    let source = storage.close().await;
    Ok(builder.finish(source, revision?, clients))
}

/// The lowest release that the servers emulate, which is the one that they could go back to. Prints what each says.
async fn ask_servers(args: &PreflightArgs) -> anyhow::Result<Option<Release>> {
    let Some(kubeconfig) = &args.kubeconfig else { return Ok(None) };
    let access = lab::cluster_access(kubeconfig)?;
    let mut lowest = None;
    for server in ServerList::find(&access, &args.server).await?.servers {
        let version = server.version().await.map_err(anyhow::Error::msg)?;
        print_line(&mut std::io::stderr(), &format!("{} is {version}", server.address));
        lowest = Some(lowest.map_or(version.emulated(), |known: Release| known.min(version.emulated())));
    }
    Ok(lowest)
}

/// The flags of the file, then those given to this command.
fn server_flags(args: &PreflightArgs) -> anyhow::Result<ServerFlags> {
    let mut flags = match &args.server_flags {
        Some(file) => read_server_flags(file).with_context(|| format!("--server-flags: {}", file.display()))?,
        None => ServerFlags::default(),
    };
    flags.push("feature-gates", args.feature_gates.join(","));
    flags.push("runtime-config", args.runtime_config.join(","));
    Ok(flags)
}

fn read_server_flags(file: &Path) -> anyhow::Result<ServerFlags> {
    let text = std::fs::read_to_string(file)?;
    let manifest =
        decode::decode_value(text.as_bytes(), BodyEncoding::Yaml).ok().filter(|decoded| decoded.value.is_object());
    let flags = match manifest {
        Some(decoded) => ServerFlags::from_manifest(&decoded.value).context("no container of kube-apiserver")?,
        None => ServerFlags::from_command_line(&text),
    };
    anyhow::ensure!(!flags.is_empty(), "no flags in it");
    Ok(flags)
}

/// One line at a time, because logs are large. Lines beyond the limit are skipped and counted.
fn read_log(
    file: &Path,
    counter: &mut ClientUseCounter,
    add_line: impl Fn(&mut ClientUseCounter, &[u8]),
) -> std::io::Result<()> {
    let mut reader = BufReader::new(std::fs::File::open(file)?);
    let mut line = Vec::new();
    while (&mut reader).take(LINE_BYTES_MAX as u64).read_until(b'\n', &mut line)? > 0 {
        if line.len() == LINE_BYTES_MAX && !line.ends_with(b"\n") {
            counter.skip_line();
            skip_rest_of_line(&mut reader)?;
        } else {
            add_line(counter, &line);
        }
        line.clear();
    }
    Ok(())
}

fn skip_rest_of_line(reader: &mut impl BufRead) -> std::io::Result<()> {
    loop {
        let buffer = reader.fill_buf()?;
        let (length, end) = (buffer.len(), buffer.iter().position(|byte| *byte == b'\n'));
        reader.consume(end.map_or(length, |end| end + 1));
        if end.is_some() || length == 0 {
            return Ok(());
        }
    }
}

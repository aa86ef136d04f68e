//! The command line of the lab.

use std::path::PathBuf;

use clap::Args;
use kinds::Release;

/// `unskew up` in the background; started by `unskew up --detach` alone.
pub(crate) const DETACHED_COMMAND: &str = "stay";
/// Like `BACKGROUND_COMMAND`, for a lab whose folder is deleted at its end.
pub(crate) const DETACHED_PURGE_COMMAND: &str = "stay-and-purge";

/// The folder by which commands find a lab.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub(crate) struct DataDirArgs {
    /// The folder of the lab [default: unskew/lab below the user's data home]
    #[arg(long, value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
}

/// What happens to the folder of a background lab when it ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum DetachedMode {
    /// The lab runs in the foreground.
    #[default]
    Foreground,
    /// The folder is kept.
    KeepDataDir,
    /// The folder is deleted.
    PurgeDataDir,
}

#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub(crate) struct UpArgs {
    /// Releases of the servers, one each [default: 1.33,1.34,1.36, or what the lab was when it stopped]
    #[arg(long, value_name = "RELEASES", value_delimiter = ',')]
    pub(crate) servers: Vec<Release>,
    #[command(flatten)]
    pub(crate) lab: DataDirArgs,
    /// Use a new folder and delete it at the end
    #[arg(long, conflicts_with = "data_dir")]
    pub(crate) ephemeral: bool,
    /// The port of the load balancer [default: a free one, the same at every start]
    #[arg(long)]
    pub(crate) port: Option<u16>,
    /// Write the kubeconfig there, too
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Keep objects in this etcd, instead of SQLite
    #[arg(long, value_name = "URLS", value_delimiter = ',')]
    pub(crate) etcd_servers: Vec<String>,
    /// Keep objects in an etcd that the lab runs; it must be on PATH
    #[arg(long, conflicts_with = "etcd_servers")]
    pub(crate) etcd: bool,
    /// Feature gates for every server: Name=true|false,…
    #[arg(long, value_name = "GATES", value_delimiter = ',')]
    pub(crate) feature_gates: Vec<String>,
    /// Return when the lab is ready, and leave it running until `unskew down`
    #[arg(long)]
    pub(crate) detach: bool,
    /// Set in the process that `--detach` starts.
    #[arg(skip)]
    pub(crate) detached: DetachedMode,
}

#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub(crate) struct DownArgs {
    #[command(flatten)]
    pub(crate) lab: DataDirArgs,
    /// Delete the lab's folder: objects, keys, ports
    #[arg(long)]
    pub(crate) purge: bool,
}

#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub(crate) struct KubeconfigArgs {
    #[command(flatten)]
    pub(crate) lab: DataDirArgs,
    /// The one for this server alone, such as a, and not for the load balancer
    #[arg(long)]
    pub(crate) server: Option<String>,
}

#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    pub(crate) lab: DataDirArgs,
    /// Show it again every second
    #[arg(long)]
    pub(crate) watch: bool,
    /// How it is shown: table or json
    #[arg(short, long, value_name = "FORM", default_value = "table", value_parser = ["table", "json"])]
    pub(crate) output: String,
    /// Say what would become unavailable if this server were stopped now
    #[arg(long, value_name = "SERVER")]
    pub(crate) if_stopped: Option<String>,
    /// Look at the cluster of this kubeconfig instead of a lab; nothing is changed there
    #[arg(long, value_name = "FILE", conflicts_with = "data_dir")]
    pub(crate) kubeconfig: Option<PathBuf>,
}

#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServerActionArgs {
    /// The name of the server, such as b
    pub(crate) server: String,
    #[command(flatten)]
    pub(crate) lab: DataDirArgs,
}

#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub(crate) struct RolloutArgs {
    /// The release that every server becomes, or one for each server, such as 1.33,1.34,1.36
    #[arg(long, value_name = "RELEASES", value_delimiter = ',', required_unless_present = "back")]
    pub(crate) to: Vec<Release>,
    /// Undo the last rollout
    #[arg(long, conflicts_with = "to")]
    pub(crate) back: bool,
    #[command(flatten)]
    pub(crate) lab: DataDirArgs,
}

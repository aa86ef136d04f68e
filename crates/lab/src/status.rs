//! State of a lab at one instant, shown as a table, as JSON and on the page.
//!
//! A [`LabSnapshot`] is complete and immutable; all output derives from one.

pub mod collect;
pub mod compose;
pub mod table;

use serde::{Deserialize, Serialize};

/// The whole lab. Serialized as `unskew status -o json` and for the page.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LabSnapshot {
    /// Address, data directory and process of the lab.
    pub lab: LabInfo,
    /// Servers in order of their names.
    pub servers: Vec<ServerSnapshot>,
    /// Group-versions with the servers that serve them, ordered by name, the core group first.
    pub groups: Vec<ServedGroupVersion>,
    /// Requests that each server forwarded to each peer since it was started; only pairs with at least one.
    pub forwards: Vec<ForwardedRequests>,
    /// Encoding versions per resource, ordered by name. Empty if no server responded.
    pub storage_versions: Vec<StorageVersionSummary>,
    /// Versions of stored objects per resource, ordered by name. Empty if storage has not been read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stored_versions: Vec<StoredVersionsSummary>,
    /// StorageVersionMigrations that have not ended, by name. Empty if the API is not served.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub migrations: Vec<MigrationSummary>,
    /// The current rollout, or the last one since the lab was started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rollout: Option<RolloutStatus>,
}

/// Address, data directory and process of a lab.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LabInfo {
    /// Data directory. Empty for a cluster that is not a lab.
    #[serde(rename = "folder")]
    pub data_dir: String,
    /// Load balancer address, `https://…`.
    pub address: String,
    /// Web page address, `http://…`. Empty if there is none.
    pub page: String,
    /// Path of the administrator's kubeconfig.
    pub kubeconfig: String,
    /// Storage backend: `sqlite`, or the URLs of etcd.
    pub store: String,
    /// Pid of the lab itself.
    pub pid: u32,
}

/// A StorageVersionMigration that has not ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MigrationSummary {
    /// The name of the object.
    pub name: String,
    /// The resource, `secrets` or `deployments.apps`.
    pub resource: String,
    /// The message of `Running`; empty if no migrator has taken it.
    pub message: String,
}

/// State of one server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServerSnapshot {
    /// One letter; for a cluster that is not a lab, the hostname, identity or address.
    pub name: String,
    /// Kubernetes release; empty if unknown.
    pub release: String,
    /// The server's own address, `https://…`; without the scheme for upstreams of a gateway.
    pub address: String,
    /// Lifecycle phase of the process.
    pub phase: Phase,
    /// Seconds since `phase` changed.
    pub phase_seconds: u64,
    /// Pid, if the process runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Member identity, `apiserver-…`. Empty while unknown.
    pub identity: String,
    /// State that a peer reports for this member: `live`, `suspect`, `left`, … Empty while unknown.
    pub member_state: String,
    /// Seconds since `member_state` changed.
    pub member_seconds: u64,
    /// Number of resources it serves itself, without subresources; 0 while unknown.
    pub resources: usize,
    /// Resources that no other ready server serves, as `group/version/resource`, or `version/resource` for core.
    #[serde(rename = "only")]
    pub exclusive_resources: Vec<String>,
    /// Reason why the server failed or is not ready. Empty if there is none.
    #[serde(rename = "trouble")]
    pub problem: String,
}

/// Lifecycle phase of a server process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Phase {
    /// No process: stopped, or never started.
    #[default]
    Stopped,
    /// The process runs and has not been ready yet.
    Starting,
    /// `/readyz` succeeds.
    Ready,
    /// The process was ready before; `/readyz` fails now.
    NotReady,
    /// Suspended by SIGSTOP.
    Paused,
    /// Told to stop, not yet exited.
    Stopping,
    /// Exited without being told to.
    Failed,
}

impl Phase {
    /// Name as shown in the table.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stopped => "stopped",
            Self::Starting => "starting",
            Self::Ready => "ready",
            Self::NotReady => "not ready",
            Self::Paused => "paused",
            Self::Stopping => "stopping",
            Self::Failed => "failed",
        }
    }

    /// True if there is a process.
    pub fn is_running(self) -> bool {
        matches!(self, Self::Starting | Self::Ready | Self::NotReady | Self::Paused | Self::Stopping)
    }
}

/// One group-version and the servers that serve its resources.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServedGroupVersion {
    /// Group-version, such as `storage.k8s.io/v1`, or `v1` for core.
    pub name: String,
    /// All resources and subresources that any server lists, sorted.
    pub resources: Vec<String>,
    /// Per server, in the order of the snapshot: indexes into `resources` that it serves. A stopped server keeps what
    /// it served last.
    #[serde(rename = "served")]
    pub served_by_server: Vec<Vec<usize>>,
}

/// Requests that one server forwarded to another.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ForwardedRequests {
    /// Name of the server that received the request from the client.
    pub from: String,
    /// Name of the server that served it; its identity if it is not part of the lab.
    pub to: String,
    /// Number of requests.
    pub requests: u64,
}

/// Encoding versions of one resource, from its StorageVersion object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StorageVersionSummary {
    /// Name of the StorageVersion object, `group.resource`.
    pub name: String,
    /// Common encoding version; empty if the servers do not agree.
    #[serde(rename = "agreed")]
    pub common_encoding_version: String,
    /// Server and the version it writes; the server by name, or by identity if it is not part of the lab.
    #[serde(rename = "writes")]
    pub encoding_versions: Vec<(String, String)>,
}

/// Versions in which the objects of one resource are stored, read from storage itself: the API converts every object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StoredVersionsSummary {
    /// Like the name of the StorageVersion object, `group.resource`.
    pub name: String,
    /// Versions and numbers of objects, ordered by version.
    pub versions: Vec<(String, u64)>,
}

/// State of a rolling upgrade.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RolloutStatus {
    /// Release of each server before, in order.
    pub from: Vec<String>,
    /// Release of each server after, in order.
    pub to: Vec<String>,
    /// Number of servers to move.
    pub steps: usize,
    /// Number of servers moved so far.
    #[serde(rename = "done")]
    pub steps_done: usize,
    /// Current step in a few words. Empty when finished.
    #[serde(rename = "doing")]
    pub current_action: String,
    /// How it ended: `done`, or what went wrong. Empty while running.
    pub outcome: String,
    /// What the probe counted so far.
    pub probe: ProbeCounts,
}

/// What a probe counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProbeCounts {
    /// Requests sent whose response could be judged.
    pub requests: u64,
    /// 404s for resources that the cluster serves.
    pub wrong_not_found: u64,
    /// 503s and 429s, which are allowed while no server can serve the resource.
    pub unavailable: u64,
    /// Other failures: unexpected status, broken connection or timeout.
    pub failed: u64,
    /// Acknowledged writes.
    pub writes: u64,
    /// Watch events received.
    pub events: u64,
    /// Acknowledged writes without a watch event, summed over all watches.
    pub lost_events: u64,
    /// Watches that had to relist because their revision had expired.
    pub relists: u64,
    /// Discovery documents read.
    pub documents: u64,
    /// Documents that lack a resource that the cluster serves.
    pub shrunk_discovery: u64,
    /// Longest time between two good responses through the load balancer, in milliseconds.
    pub longest_gap_millis: u64,
}

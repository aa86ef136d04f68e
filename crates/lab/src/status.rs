//! What a lab looks like at one instant: for the table, for programs, for the page.
//!
//! A [`LabSnapshot`] is complete in itself and immutable; everything shown is derived from one.

pub mod collect;
pub mod compose;
pub mod table;

use serde::{Deserialize, Serialize};

/// The whole lab.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LabSnapshot {
    /// Where it is and how it is reached.
    pub lab: LabInfo,
    /// Its servers, in the order of their names.
    pub servers: Vec<ServerSnapshot>,
    /// Which group-version is served by whom, in the order of the names; the core group first.
    pub groups: Vec<ServedGroupVersion>,
    /// Requests that one server forwarded to another since the first was started; only pairs that have any.
    pub forwards: Vec<ForwardedRequests>,
    /// Agreement on encoding versions, in the order of the resources' names. Empty if no server could be asked.
    pub storage_versions: Vec<StorageVersionSummary>,
    /// The rolling upgrade that is under way, or the last one of this lab's process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rollout: Option<RolloutStatus>,
}

/// Where a lab is and how it is reached.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LabInfo {
    /// The folder of its data. Empty for a cluster that is no lab.
    #[serde(rename = "folder")]
    pub data_dir: String,
    /// The one address in front of all servers, `https://…`.
    pub address: String,
    /// The page for browsers, `http://…`. Empty if there is none.
    pub page: String,
    /// The administrator's kubeconfig.
    pub kubeconfig: String,
    /// What the servers keep their objects in: `sqlite`, or the addresses of etcd.
    pub store: String,
    /// The process that runs the lab.
    pub pid: u32,
}

/// One server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServerSnapshot {
    /// A letter.
    pub name: String,
    /// The Kubernetes release that it is.
    pub release: String,
    /// Its own address, `https://…`.
    pub address: String,
    /// What its process does.
    pub phase: Phase,
    /// For how long it has been doing so.
    pub phase_seconds: u64,
    /// Its process, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Its name in the cluster, `apiserver-…`. Empty as long as nobody knows it.
    pub identity: String,
    /// What the other servers take it for: `live`, `suspect`, `left`, … Empty as long as nobody says.
    pub member_state: String,
    /// For how long they have.
    pub member_seconds: u64,
    /// How many resources it serves itself; 0 as long as nobody knows.
    pub resources: usize,
    /// What no other running server serves, as `group/version/resource`, `version/resource` for core.
    #[serde(rename = "only")]
    pub exclusive_resources: Vec<String>,
    /// Why it is not well, in one line. Empty if it is.
    #[serde(rename = "trouble")]
    pub problem: String,
}

/// What a server's process does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Phase {
    /// There is none, because it was told to stop or never told to start.
    #[default]
    Stopped,
    /// It runs and has not been ready yet.
    Starting,
    /// It runs and says that it is ready.
    Ready,
    /// It runs and was ready before, but is not now.
    NotReady,
    /// It was told to pause: it exists and does nothing.
    Paused,
    /// It was told to stop and has not ended yet.
    Stopping,
    /// It ended although nobody asked it to.
    Failed,
}

impl Phase {
    /// As people read it.
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

    /// Whether there is a process.
    pub fn is_running(self) -> bool {
        matches!(self, Self::Starting | Self::Ready | Self::NotReady | Self::Paused | Self::Stopping)
    }
}

/// One group-version, and who serves how much of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServedGroupVersion {
    /// Such as `storage.k8s.io/v1`, `v1` for core.
    pub name: String,
    /// All its resources that any server lists, in order.
    pub resources: Vec<String>,
    /// For each server of the snapshot, in the same order, those of `resources` that it serves, as positions. Of a server that
    /// does not run, what it served last.
    #[serde(rename = "served")]
    pub served_by_server: Vec<Vec<usize>>,
}

/// Requests that went from one server to another.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ForwardedRequests {
    /// The name of the server that was asked.
    pub from: String,
    /// The name of the server that answered.
    pub to: String,
    /// How many.
    pub requests: u64,
}

/// What the servers say of one resource's form in storage.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StorageVersionSummary {
    /// `group.resource`, as the object is named.
    pub name: String,
    /// The version that all write; empty if they do not agree.
    #[serde(rename = "agreed")]
    pub common_encoding_version: String,
    /// What each server writes, by the name of the server in the lab, or its identity if it is not of the lab.
    #[serde(rename = "writes")]
    pub encoding_versions: Vec<(String, String)>,
}

/// A rolling upgrade.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RolloutStatus {
    /// The release of each server before, in their order.
    pub from: Vec<String>,
    /// The release of each server after, in their order.
    pub to: Vec<String>,
    /// How many servers have to change.
    pub steps: usize,
    /// How many have.
    #[serde(rename = "done")]
    pub steps_done: usize,
    /// What is being done, in a few words. Empty when it is over.
    #[serde(rename = "doing")]
    pub current_action: String,
    /// How it ended; empty while it goes on.
    pub outcome: String,
    /// What clients noticed so far.
    pub probe: ProbeCounts,
}

/// What a probe noticed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProbeCounts {
    /// Requests answered.
    pub requests: u64,
    /// 404 for what a server of the cluster serves.
    pub wrong_not_found: u64,
    /// 503, which is allowed while nobody who can is there.
    pub unavailable: u64,
    /// Requests that failed in another way: an unexpected code or a connection that broke.
    pub failed: u64,
    /// Acknowledged writes.
    pub writes: u64,
    /// Watch events received.
    pub events: u64,
    /// Acknowledged writes that a watch never told of.
    pub lost_events: u64,
    /// How often a watch had to begin anew from a list.
    pub relists: u64,
    /// Discovery documents read.
    pub documents: u64,
    /// Those in which something was missing that a server of the cluster serves.
    pub shrunk_discovery: u64,
    /// The longest time between two good answers through the front door, in milliseconds.
    pub longest_gap_millis: u64,
}

//! Composes a snapshot from the responses of the servers. Pure.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use tokio::time::Instant;

use super::{
    ForwardedRequests, LabInfo, LabSnapshot, MigrationSummary, Phase, RolloutStatus, ServedGroupVersion,
    ServerSnapshot, StorageVersionSummary,
};
use crate::supervisor::{ProcessTable, ServerProcess};

/// Group-version → resources and subresources, such as `pods` and `pods/status`.
pub type ResourcesByGroupVersion = BTreeMap<String, BTreeSet<String>>;

/// Last responses of one server.
#[derive(Clone, Debug, Default)]
pub struct ServerReport {
    /// Process generation that responded.
    pub generation: u64,
    /// Contents of its `/debug/peers`.
    pub peers: Option<PeersPage>,
    /// Requests it has forwarded, by identity of the peer.
    pub forwards: BTreeMap<String, u64>,
    /// Resources it serves itself.
    pub resources: Option<ResourcesByGroupVersion>,
}

/// The part of `/debug/peers` that the lab uses.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct PeersPage {
    /// Identity of the server itself.
    pub server: String,
    /// `enabled` or `disabled`.
    #[serde(default)]
    pub peering: String,
    /// Its peers.
    #[serde(default)]
    pub members: Vec<PeersPageMember>,
}

/// One peer on the page.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PeersPageMember {
    /// Identity of the peer.
    pub server: String,
    /// State, such as `live` or `suspect`.
    pub state: String,
    /// Seconds since the state changed.
    pub state_seconds: u64,
}

/// Composes a snapshot. `reports` has the order of `process_table.servers`.
pub fn compose_snapshot(
    info: &LabInfo,
    process_table: &ProcessTable,
    reports: &[ServerReport],
    storage_versions: &[StorageVersionSummary],
    rollout: Option<RolloutStatus>,
    now: Instant,
) -> LabSnapshot {
    let identities: BTreeMap<&str, &str> = process_table
        .servers
        .iter()
        .zip(reports)
        .filter_map(|(process, learned)| Some((&*learned.peers.as_ref()?.server, &*process.server.name)))
        .collect();
    let groups = served_group_versions(reports);
    let phases: Vec<Phase> = process_table.servers.iter().map(|process| process.phase).collect();
    let mut servers: Vec<ServerSnapshot> = Vec::new();
    for (at, process) in process_table.servers.iter().enumerate() {
        servers.push(server_snapshot(process, at, reports, only_served_by(&groups, &phases, at), now));
    }
    let name_of = |identity: &str| identities.get(identity).map_or(identity, |name| name).to_owned();
    LabSnapshot {
        lab: info.clone(),
        servers,
        groups,
        forwards: forwarded_requests(process_table, reports, &name_of),
        storage_versions: storage_versions.iter().map(|version| with_server_names(version, &name_of)).collect(),
        stored_versions: Vec::new(),
        migrations: Vec::new(),
        rollout,
    }
}

/// Replaces identities by the names of the lab's servers and sorts by them.
fn with_server_names(version: &StorageVersionSummary, name_of: &dyn Fn(&str) -> String) -> StorageVersionSummary {
    let mut writes: Vec<_> =
        version.encoding_versions.iter().map(|(id, writes)| (name_of(id), writes.clone())).collect();
    writes.sort();
    StorageVersionSummary { encoding_versions: writes, ..version.clone() }
}

/// Combines the process state of a server with its own report and the member state that a peer reports for it.
fn server_snapshot(
    process: &ServerProcess,
    index: usize,
    reports: &[ServerReport],
    only: Vec<String>,
    now: Instant,
) -> ServerSnapshot {
    let known = reports.get(index);
    let identity = known.and_then(|known| known.peers.as_ref()).map(|page| page.server.clone()).unwrap_or_default();
    let others = reports.iter().enumerate().filter(|(other, _)| *other != index);
    let member = others
        .filter_map(|(_, learned)| learned.peers.as_ref())
        .flat_map(|page| &page.members)
        .find(|member| !identity.is_empty() && member.server == identity);
    ServerSnapshot {
        name: process.server.name.clone(),
        release: process.server.release.clone(),
        address: format!("https://127.0.0.1:{}", process.server.port),
        phase: process.phase,
        phase_seconds: now.saturating_duration_since(process.phase_since).as_secs(),
        pid: process.pid,
        identity,
        member_state: member.map(|member| member.state.clone()).unwrap_or_default(),
        member_seconds: member.map(|member| member.state_seconds).unwrap_or_default(),
        resources: known
            .and_then(|known| known.resources.as_ref())
            .map_or(0, |resources| resources.values().flatten().filter(|name| !name.contains('/')).count()),
        exclusive_resources: only,
        problem: process.problem.clone(),
    }
}

fn served_group_versions(reports: &[ServerReport]) -> Vec<ServedGroupVersion> {
    let mut all = ResourcesByGroupVersion::new();
    for (name, resources) in reports.iter().filter_map(|learned| learned.resources.as_ref()).flatten() {
        all.entry(name.clone()).or_default().extend(resources.iter().cloned());
    }
    let row = |(name, resources): (String, BTreeSet<String>)| {
        let resources: Vec<String> = resources.into_iter().collect();
        let serves = |learned: &ServerReport| -> Vec<usize> {
            let served = learned.resources.as_ref().and_then(|served| served.get(&name));
            let is_served = |resource: &String| served.is_some_and(|served| served.contains(resource));
            (0..).zip(&resources).filter(|(_, resource)| is_served(resource)).map(|(position, _)| position).collect()
        };
        ServedGroupVersion { served_by_server: reports.iter().map(serves).collect(), resources, name }
    };
    let mut rows: Vec<ServedGroupVersion> = all.into_iter().map(row).collect();
    // Core group-versions have no `/`: sort them first.
    rows.sort_by_key(|row| row.name.contains('/'));
    rows
}

/// Resources that `server` serves and no other ready server does.
pub fn only_served_by(groups: &[ServedGroupVersion], phases: &[Phase], server: usize) -> Vec<String> {
    let mut found = Vec::new();
    for group in groups {
        let others = || {
            (0..group.served_by_server.len())
                .filter(|other| *other != server && phases.get(*other) == Some(&Phase::Ready))
        };
        let Some(served) = group.served_by_server.get(server) else { continue };
        let alone =
            served.iter().filter(|resource| !others().any(|other| group.served_by_server[other].contains(resource)));
        found.extend(alone.map(|resource| format!("{}/{}", group.name, group.resources[*resource])));
    }
    found
}

/// Resources that become unavailable (503) if the server stops, by its name or identity; `None` for an unknown server.
pub fn unavailable_if_stopped(snapshot: &LabSnapshot, name: &str) -> Option<Vec<String>> {
    let at = snapshot.servers.iter().position(|server| server.name == name || server.identity == name)?;
    let phases: Vec<Phase> = snapshot.servers.iter().map(|server| server.phase).collect();
    if snapshot.groups.is_empty() {
        // A cluster that is not a lab: use what the queried server reported.
        return Some(snapshot.servers[at].exclusive_resources.clone());
    }
    if phases[at] != Phase::Ready {
        return Some(Vec::new());
    }
    Some(only_served_by(&snapshot.groups, &phases, at))
}

fn forwarded_requests(
    process_table: &ProcessTable,
    reports: &[ServerReport],
    name_of: &dyn Fn(&str) -> String,
) -> Vec<ForwardedRequests> {
    let pairs = process_table.servers.iter().zip(reports).flat_map(|(process, learned)| {
        learned.forwards.iter().map(|(to, requests)| (process.server.name.clone(), to.clone(), *requests))
    });
    pairs
        .filter(|(.., requests)| *requests > 0)
        .map(|(from, to, requests)| ForwardedRequests { from, to: name_of(&to), requests })
        .collect()
}

/// Parses a metrics page: forwarded requests by identity of the peer.
pub fn parse_forward_counts(metrics: &str) -> BTreeMap<String, u64> {
    const BEGINNING: &str = "unskew_peer_forward_duration_seconds_count{peer=\"";
    let line = |line: &str| {
        let (peer, rest) = line.strip_prefix(BEGINNING)?.split_once('"')?;
        let requests: f64 = rest.rsplit(' ').next()?.parse().ok()?;
        Some((peer.to_owned(), requests as u64))
    };
    metrics.lines().filter_map(line).collect()
}

/// Parses a StorageVersionMigrationList; without migrations that have ended.
pub fn parse_migrations(list: &serde_json::Value) -> Vec<MigrationSummary> {
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let summary = |object: &serde_json::Value| {
        let conditions = object["status"]["conditions"].as_array();
        let is_true = |condition_type: &str| {
            let mut conditions = conditions.into_iter().flatten();
            conditions.find(|known| known["type"] == condition_type && known["status"] == "True")
        };
        if is_true("Succeeded").or(is_true("Failed")).is_some() {
            return None;
        }
        let (group, resource) =
            (text(&object["spec"]["resource"]["group"]), text(&object["spec"]["resource"]["resource"]));
        Some(MigrationSummary {
            name: text(&object["metadata"]["name"]),
            resource: if group.is_empty() { resource } else { format!("{resource}.{group}") },
            message: is_true("Running").map(|running| text(&running["message"])).unwrap_or_default(),
        })
    };
    list["items"].as_array().into_iter().flatten().filter_map(summary).collect()
}

/// Parses a StorageVersionList; servers appear by identity.
pub fn parse_storage_versions(list: &serde_json::Value) -> Vec<StorageVersionSummary> {
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let entry = |entry: &serde_json::Value| (text(&entry["apiServerID"]), text(&entry["encodingVersion"]));
    let item = |item: &serde_json::Value| StorageVersionSummary {
        name: text(&item["metadata"]["name"]),
        common_encoding_version: text(&item["status"]["commonEncodingVersion"]),
        encoding_versions: item["status"]["storageVersions"].as_array().into_iter().flatten().map(entry).collect(),
    };
    list["items"].as_array().into_iter().flatten().map(item).collect()
}

/// Adds the resources and subresources that a discovery document lists.
pub fn collect_resources(groups: &discovery::GroupDiscoveryList, resources: &mut ResourcesByGroupVersion) {
    for (group, version) in groups.items().iter().flat_map(|group| group.versions.iter().map(move |v| (group, v))) {
        let name = match &*group.name {
            "" => version.name.to_string(),
            group => format!("{group}/{}", version.name),
        };
        let listed = resources.entry(name).or_default();
        for resource in &version.resources {
            if resource.verbs.is_some() {
                listed.insert(resource.name.to_string());
            }
            let subresources = resource.subresources.iter();
            listed.extend(subresources.map(|subresource| format!("{}/{}", resource.name, subresource.name)));
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;

//! What a lab remembers from one start to the next, and how a wish changes it. Pure.

use serde::{Deserialize, Serialize};

use crate::plan::{self, PlanError};

/// What `unskew up` starts if nothing else is said: a control plane in the middle of an upgrade.
pub const DEFAULT_RELEASES: [&str; 3] = ["1.33", "1.34", "1.36"];

/// What a lab remembers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LabState {
    /// The port of the front door.
    #[serde(rename = "doorPort")]
    pub load_balancer_port: u16,
    /// The port of the page.
    pub page_port: u16,
    /// What the servers keep their objects in.
    pub store: LabStorage,
    /// The servers, in order.
    pub servers: Vec<ServerSpec>,
    /// Feature gates that every server is given, `Name=true|false`.
    #[serde(default)]
    pub feature_gates: Vec<String>,
    /// The releases before the last rollout, in the order of the servers; for the way back.
    #[serde(rename = "before", default, skip_serializing_if = "Option::is_none")]
    pub previous_releases: Option<Vec<String>>,
}

/// One server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerSpec {
    /// A letter.
    pub name: String,
    /// Its release.
    pub release: String,
    /// Its own port.
    pub port: u16,
}

/// What the servers keep their objects in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum LabStorage {
    /// One file in the folder.
    Sqlite,
    /// An etcd that is there already.
    Etcd {
        /// Its addresses.
        servers: Vec<String>,
    },
    /// An etcd that the lab runs.
    #[serde(rename_all = "camelCase")]
    OwnEtcd {
        /// Where its clients reach it.
        client_port: u16,
        /// Where its peers would.
        peer_port: u16,
    },
}

impl LabStorage {
    fn description(&self) -> &'static str {
        match self {
            Self::Sqlite => "SQLite",
            Self::Etcd { .. } => "an etcd that was there already",
            Self::OwnEtcd { .. } => "an etcd of its own",
        }
    }
}

/// What was asked for; what was not asked for stays as it was.
#[derive(Clone, Debug, Default)]
pub struct LabOptions {
    /// Releases of the servers.
    pub releases: Option<Vec<String>>,
    /// The port of the front door.
    pub port: Option<u16>,
    /// Where objects are kept.
    pub store: Option<RequestedStorage>,
    /// Feature gates for every server.
    pub feature_gates: Option<Vec<String>>,
}

/// Where objects shall be kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestedStorage {
    /// In an etcd that is there.
    Etcd(Vec<String>),
    /// In an etcd that the lab shall run.
    OwnEtcd,
}

/// Why a wish cannot be met.
#[derive(Debug, thiserror::Error)]
pub enum LabOptionsError {
    /// Not these servers.
    #[error("--servers: {0}")]
    Servers(#[from] PlanError),
    /// Objects do not move from one store to another.
    #[error("this lab keeps its objects in {0}: `unskew down --purge` deletes them, --data-dir chooses another folder")]
    StorageChanged(&'static str),
    /// There is no port for it.
    #[error("no free port: {0}")]
    NoPort(#[from] std::io::Error),
}

/// The lab to be, from the one there was and what is wished for. `free_port` gives a port that nobody has.
pub fn apply_options(
    previous: Option<LabState>,
    options: &LabOptions,
    free_port: &mut dyn FnMut() -> std::io::Result<u16>,
) -> Result<LabState, LabOptionsError> {
    let mut state = match previous {
        Some(state) => state,
        None => LabState {
            load_balancer_port: match options.port {
                Some(port) => port,
                None => free_port()?,
            },
            page_port: free_port()?,
            store: match &options.store {
                None => LabStorage::Sqlite,
                Some(RequestedStorage::Etcd(servers)) => LabStorage::Etcd { servers: servers.clone() },
                Some(RequestedStorage::OwnEtcd) => {
                    LabStorage::OwnEtcd { client_port: free_port()?, peer_port: free_port()? }
                }
            },
            servers: build_server_specs(&DEFAULT_RELEASES.map(str::to_owned), &[], free_port)?,
            feature_gates: Vec::new(),
            previous_releases: None,
        },
    };
    state.load_balancer_port = options.port.unwrap_or(state.load_balancer_port);
    if let Some(requested) = &options.store {
        state.store = update_storage(&state.store, requested)?;
    }
    if let Some(gates) = &options.feature_gates {
        state.feature_gates.clone_from(gates);
    }
    if let Some(releases) = &options.releases {
        state.servers = build_server_specs(releases, &state.servers, free_port)?;
        state.previous_releases = None;
    }
    Ok(state)
}

/// Servers of these releases; those that were there keep their ports.
fn build_server_specs(
    releases: &[String],
    existing: &[ServerSpec],
    free_port: &mut dyn FnMut() -> std::io::Result<u16>,
) -> Result<Vec<ServerSpec>, LabOptionsError> {
    let mut servers = Vec::new();
    for plan::PlannedServer { name, release } in plan::name_servers(releases)? {
        let port = match existing.iter().find(|server| server.name == name) {
            Some(server) => server.port,
            None => free_port()?,
        };
        servers.push(ServerSpec { name, release, port });
    }
    Ok(servers)
}

fn update_storage(store: &LabStorage, requested: &RequestedStorage) -> Result<LabStorage, LabOptionsError> {
    match (store, requested) {
        // The same cluster may have got other addresses.
        (LabStorage::Etcd { .. }, RequestedStorage::Etcd(servers)) => Ok(LabStorage::Etcd { servers: servers.clone() }),
        (LabStorage::OwnEtcd { .. }, RequestedStorage::OwnEtcd) => Ok(store.clone()),
        (other, _) => Err(LabOptionsError::StorageChanged(other.description())),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    /// `a=1.33:7001 b=1.36:7002`, with the front door at 7100 and the page at 7101.
    pub(crate) fn test_lab_state(servers: &str) -> LabState {
        let server = |text: &str| {
            let (name, rest) = text.split_once('=').unwrap();
            let (release, port) = rest.split_once(':').unwrap();
            ServerSpec { name: name.to_owned(), release: release.to_owned(), port: port.parse().unwrap() }
        };
        LabState {
            load_balancer_port: 7100,
            page_port: 7101,
            store: LabStorage::Sqlite,
            servers: servers.split_whitespace().map(server).collect(),
            feature_gates: Vec::new(),
            previous_releases: None,
        }
    }

    #[track_caller]
    fn check(before: Option<LabState>, wish: &LabOptions, expected: &Expect) {
        let mut port = 8000;
        let settled = apply_options(before, wish, &mut || {
            port += 1;
            Ok(port)
        });
        let shown = match settled {
            Ok(LabState { load_balancer_port: door_port, page_port, store, servers, .. }) => {
                let servers =
                    servers.iter().map(|server| format!("{}={}:{}", server.name, server.release, server.port));
                format!("{door_port} {page_port} {store:?} {}", servers.collect::<Vec<_>>().join(" "))
            }
            Err(error) => error.to_string(),
        };
        expected.assert_eq(&shown);
    }

    fn some_releases(releases: &[&str]) -> Option<Vec<String>> {
        Some(releases.iter().map(|release| (*release).to_owned()).collect())
    }

    #[test]
    fn new_lab_has_servers_of_three_releases() {
        check(None, &LabOptions::default(), &expect![[r#"8001 8002 Sqlite a=1.33:8003 b=1.34:8004 c=1.36:8005"#]]);
        let wish = LabOptions { port: Some(6443), store: Some(RequestedStorage::OwnEtcd), ..LabOptions::default() };
        check(
            None,
            &wish,
            &expect![[
                r#"6443 8001 OwnEtcd { client_port: 8002, peer_port: 8003 } a=1.33:8004 b=1.34:8005 c=1.36:8006"#
            ]],
        );
    }

    #[test]
    fn restarted_lab_keeps_ports_and_storage() {
        let before = || Some(test_lab_state("a=1.33:7001 b=1.36:7002"));
        check(before(), &LabOptions::default(), &expect![[r#"7100 7101 Sqlite a=1.33:7001 b=1.36:7002"#]]);
        let wish =
            LabOptions { releases: some_releases(&["1.36", "1.36", "1.37"]), port: Some(9), ..LabOptions::default() };
        check(before(), &wish, &expect![[r#"9 7101 Sqlite a=1.36:7001 b=1.36:7002 c=1.37:8001"#]]);
    }

    #[test]
    fn impossible_lab_options_are_rejected() {
        let wish = LabOptions { store: Some(RequestedStorage::OwnEtcd), ..LabOptions::default() };
        check(
            Some(test_lab_state("a=1.33:7001")),
            &wish,
            &expect![[
                r#"this lab keeps its objects in SQLite: `unskew down --purge` deletes them, --data-dir chooses another folder"#
            ]],
        );
        let wish = LabOptions { releases: some_releases(&[]), ..LabOptions::default() };
        check(None, &wish, &expect![[r#"--servers: no server: give releases, such as 1.33,1.36,1.36"#]]);
    }
}

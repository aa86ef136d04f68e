//! Settings that a lab keeps from one start to the next, and how flags change them. Pure.

use serde::{Deserialize, Serialize};

use crate::plan::{self, PlanError};

/// Releases that `unskew up` starts by default: a control plane in the middle of an upgrade.
pub const DEFAULT_RELEASES: [&str; 3] = ["1.33", "1.34", "1.36"];

/// Contents of the state file `lab.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LabState {
    /// Port of the load balancer.
    #[serde(rename = "doorPort")]
    pub load_balancer_port: u16,
    /// Port of the web page.
    pub page_port: u16,
    /// Storage backend; fixed when the lab is created.
    pub store: LabStorage,
    /// Servers in order of their names.
    pub servers: Vec<ServerSpec>,
    /// Feature gates passed to every server, as `Name=true|false`.
    #[serde(default)]
    pub feature_gates: Vec<String>,
    /// Releases before the last rollout, in the order of `servers`; `unskew rollout --back` returns to them.
    #[serde(rename = "before", default, skip_serializing_if = "Option::is_none")]
    pub previous_releases: Option<Vec<String>>,
}

impl LabState {
    fn ports(&self) -> Vec<u16> {
        let etcd = match self.store {
            LabStorage::OwnEtcd { client_port, peer_port } => vec![client_port, peer_port],
            LabStorage::Sqlite | LabStorage::Etcd { .. } => Vec::new(),
        };
        let servers = self.servers.iter().map(|server| server.port);
        [self.load_balancer_port, self.page_port].into_iter().chain(etcd).chain(servers).collect()
    }
}

/// Name, release and port of one server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerSpec {
    /// One letter: `a`, `b`, `c`, ...
    pub name: String,
    /// Kubernetes release, such as `1.36`.
    pub release: String,
    /// Port of the server itself, behind the load balancer.
    pub port: u16,
}

/// Storage backend of the servers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum LabStorage {
    /// One SQLite file in the data directory.
    Sqlite,
    /// An etcd that the lab does not run.
    Etcd {
        /// Client URLs.
        servers: Vec<String>,
    },
    /// An etcd that the lab runs.
    #[serde(rename_all = "camelCase")]
    OwnEtcd {
        /// Port for etcd clients.
        client_port: u16,
        /// Port for etcd peers; unused, as etcd runs alone.
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

/// Settings given by flags; `None` keeps the previous setting.
#[derive(Clone, Debug, Default)]
pub struct LabOptions {
    /// Releases of the servers, one server each.
    pub releases: Option<Vec<String>>,
    /// Port of the load balancer.
    pub port: Option<u16>,
    /// Storage backend; rejected if it differs from that of an existing lab.
    pub store: Option<RequestedStorage>,
    /// Feature gates for every server.
    pub feature_gates: Option<Vec<String>>,
}

/// Storage backend that flags select.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestedStorage {
    /// An etcd that already runs, by its client URLs.
    Etcd(Vec<String>),
    /// An etcd that the lab runs.
    OwnEtcd,
}

/// Why flags cannot be applied.
#[derive(Debug, thiserror::Error)]
pub enum LabOptionsError {
    /// `--servers` is not valid.
    #[error("--servers: {0}")]
    Servers(#[from] PlanError),
    /// The lab exists with another storage backend; objects are not migrated.
    #[error("this lab keeps its objects in {0}: `unskew down --purge` deletes them, --data-dir chooses another folder")]
    StorageChanged(&'static str),
    /// The kernel assigned no free port.
    #[error("no free port: {0}")]
    NoPort(#[from] std::io::Error),
}

/// Returns the settings of the next start: `previous`, changed by `options`. `free_port` returns a port that is not in
/// use.
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
        // Nothing listens on the ports of a stopped lab, but they are taken.
        let taken = state.ports();
        let mut untaken_port = || {
            let untaken = |port: &std::io::Result<u16>| port.as_ref().map_or(true, |port| !taken.contains(port));
            let found = std::iter::repeat_with(&mut *free_port).take(100).find(untaken);
            found.unwrap_or_else(|| Err(std::io::Error::other("each is used by this lab")))
        };
        state.servers = build_server_specs(releases, &state.servers, &mut untaken_port)?;
        state.previous_releases = None;
    }
    Ok(state)
}

/// Assigns names and ports to servers of these releases; existing servers keep their ports.
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

/// Rejects a change of the storage backend, because objects are not migrated.
fn update_storage(store: &LabStorage, requested: &RequestedStorage) -> Result<LabStorage, LabOptionsError> {
    match (store, requested) {
        // Accepts new URLs of the same etcd cluster.
        (LabStorage::Etcd { .. }, RequestedStorage::Etcd(servers)) => Ok(LabStorage::Etcd { servers: servers.clone() }),
        (LabStorage::OwnEtcd { .. }, RequestedStorage::OwnEtcd) => Ok(store.clone()),
        (other, _) => Err(LabOptionsError::StorageChanged(other.description())),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    /// Parses `a=1.33:7001 b=1.36:7002`; the load balancer has port 7100 and the page 7101.
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
            Ok(LabState { load_balancer_port, page_port, store, servers, .. }) => {
                let servers =
                    servers.iter().map(|server| format!("{}={}:{}", server.name, server.release, server.port));
                format!("{load_balancer_port} {page_port} {store:?} {}", servers.collect::<Vec<_>>().join(" "))
            }
            Err(error) => error.to_string(),
        };
        expected.assert_eq(&shown);
    }

    #[test]
    fn a_new_server_gets_no_port_of_a_stopped_one() {
        let options = LabOptions { releases: some_releases(&["1.33", "1.36", "1.36"]), ..Default::default() };
        check(
            Some(test_lab_state("a=1.33:8001 b=1.36:8002")),
            &options,
            &expect!["7100 7101 Sqlite a=1.33:8001 b=1.36:8002 c=1.36:8003"],
        );
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

//! What a lab remembers from one start to the next, and how a wish changes it. Pure.

use serde::{Deserialize, Serialize};

use crate::plan::{self, PlanError};

/// What `unskew up` starts if nothing else is said: a control plane in the middle of an upgrade.
pub const DEFAULT_RELEASES: [&str; 3] = ["1.33", "1.34", "1.36"];

/// What a lab remembers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct State {
    /// The port of the front door.
    pub door_port: u16,
    /// The port of the page.
    pub page_port: u16,
    /// What the servers keep their objects in.
    pub store: Store,
    /// The servers, in order.
    pub servers: Vec<Remembered>,
    /// Feature gates that every server is given, `Name=true|false`.
    #[serde(default)]
    pub feature_gates: Vec<String>,
    /// The releases before the last rollout, in the order of the servers; for the way back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Vec<String>>,
}

/// One server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remembered {
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
pub enum Store {
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

impl Store {
    fn kind(&self) -> &'static str {
        match self {
            Self::Sqlite => "SQLite",
            Self::Etcd { .. } => "an etcd that was there already",
            Self::OwnEtcd { .. } => "an etcd of its own",
        }
    }
}

/// What was asked for; what was not asked for stays as it was.
#[derive(Clone, Debug, Default)]
pub struct Wish {
    /// Releases of the servers.
    pub releases: Option<Vec<String>>,
    /// The port of the front door.
    pub port: Option<u16>,
    /// Where objects are kept.
    pub store: Option<WishedStore>,
    /// Feature gates for every server.
    pub feature_gates: Option<Vec<String>>,
}

/// Where objects shall be kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WishedStore {
    /// In an etcd that is there.
    Etcd(Vec<String>),
    /// In an etcd that the lab shall run.
    OwnEtcd,
}

/// Why a wish cannot be met.
#[derive(Debug, thiserror::Error)]
pub enum WishError {
    /// Not these servers.
    #[error("--servers: {0}")]
    Servers(#[from] PlanError),
    /// Objects do not move from one store to another.
    #[error("this lab keeps its objects in {0}: `unskew down --purge` deletes them, --data-dir chooses another folder")]
    OtherStore(&'static str),
    /// There is no port for it.
    #[error("no free port: {0}")]
    NoPort(#[from] std::io::Error),
}

/// The lab to be, from the one there was and what is wished for. `free_port` gives a port that nobody has.
pub fn settle(
    before: Option<State>,
    wish: &Wish,
    free_port: &mut dyn FnMut() -> std::io::Result<u16>,
) -> Result<State, WishError> {
    let mut state = match before {
        Some(state) => state,
        None => State {
            door_port: match wish.port {
                Some(port) => port,
                None => free_port()?,
            },
            page_port: free_port()?,
            store: match &wish.store {
                None => Store::Sqlite,
                Some(WishedStore::Etcd(servers)) => Store::Etcd { servers: servers.clone() },
                Some(WishedStore::OwnEtcd) => Store::OwnEtcd { client_port: free_port()?, peer_port: free_port()? },
            },
            servers: remembered(&DEFAULT_RELEASES.map(str::to_owned), &[], free_port)?,
            feature_gates: Vec::new(),
            before: None,
        },
    };
    state.door_port = wish.port.unwrap_or(state.door_port);
    if let Some(wished) = &wish.store {
        state.store = restock(&state.store, wished)?;
    }
    if let Some(gates) = &wish.feature_gates {
        state.feature_gates.clone_from(gates);
    }
    if let Some(releases) = &wish.releases {
        state.servers = remembered(releases, &state.servers, free_port)?;
        state.before = None;
    }
    Ok(state)
}

/// Servers of these releases; those that were there keep their ports.
fn remembered(
    releases: &[String],
    known: &[Remembered],
    free_port: &mut dyn FnMut() -> std::io::Result<u16>,
) -> Result<Vec<Remembered>, WishError> {
    let mut servers = Vec::new();
    for plan::Planned { name, release } in plan::servers(releases)? {
        let port = match known.iter().find(|server| server.name == name) {
            Some(server) => server.port,
            None => free_port()?,
        };
        servers.push(Remembered { name, release, port });
    }
    Ok(servers)
}

fn restock(store: &Store, wished: &WishedStore) -> Result<Store, WishError> {
    match (store, wished) {
        // The same cluster may have got other addresses.
        (Store::Etcd { .. }, WishedStore::Etcd(servers)) => Ok(Store::Etcd { servers: servers.clone() }),
        (Store::OwnEtcd { .. }, WishedStore::OwnEtcd) => Ok(store.clone()),
        (other, _) => Err(WishError::OtherStore(other.kind())),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    /// `a=1.33:7001 b=1.36:7002`, with the front door at 7100 and the page at 7101.
    pub(crate) fn state(servers: &str) -> State {
        let server = |text: &str| {
            let (name, rest) = text.split_once('=').unwrap();
            let (release, port) = rest.split_once(':').unwrap();
            Remembered { name: name.to_owned(), release: release.to_owned(), port: port.parse().unwrap() }
        };
        State {
            door_port: 7100,
            page_port: 7101,
            store: Store::Sqlite,
            servers: servers.split_whitespace().map(server).collect(),
            feature_gates: Vec::new(),
            before: None,
        }
    }

    #[track_caller]
    fn check(before: Option<State>, wish: &Wish, expected: &Expect) {
        let mut port = 8000;
        let settled = settle(before, wish, &mut || {
            port += 1;
            Ok(port)
        });
        let shown = match settled {
            Ok(State { door_port, page_port, store, servers, .. }) => {
                let servers =
                    servers.iter().map(|server| format!("{}={}:{}", server.name, server.release, server.port));
                format!("{door_port} {page_port} {store:?} {}", servers.collect::<Vec<_>>().join(" "))
            }
            Err(error) => error.to_string(),
        };
        expected.assert_eq(&shown);
    }

    fn releases(releases: &[&str]) -> Option<Vec<String>> {
        Some(releases.iter().map(|release| (*release).to_owned()).collect())
    }

    #[test]
    fn a_new_lab_is_in_the_middle_of_an_upgrade() {
        check(None, &Wish::default(), &expect![[r#"8001 8002 Sqlite a=1.33:8003 b=1.34:8004 c=1.36:8005"#]]);
        let wish = Wish { port: Some(6443), store: Some(WishedStore::OwnEtcd), ..Wish::default() };
        check(
            None,
            &wish,
            &expect![[
                r#"6443 8001 OwnEtcd { client_port: 8002, peer_port: 8003 } a=1.33:8004 b=1.34:8005 c=1.36:8006"#
            ]],
        );
    }

    #[test]
    fn a_lab_started_again_is_the_same_lab() {
        let before = || Some(state("a=1.33:7001 b=1.36:7002"));
        check(before(), &Wish::default(), &expect![[r#"7100 7101 Sqlite a=1.33:7001 b=1.36:7002"#]]);
        let wish = Wish { releases: releases(&["1.36", "1.36", "1.37"]), port: Some(9), ..Wish::default() };
        check(before(), &wish, &expect![[r#"9 7101 Sqlite a=1.36:7001 b=1.36:7002 c=1.37:8001"#]]);
    }

    #[test]
    fn what_cannot_be_is_said() {
        let wish = Wish { store: Some(WishedStore::OwnEtcd), ..Wish::default() };
        check(
            Some(state("a=1.33:7001")),
            &wish,
            &expect![[
                r#"this lab keeps its objects in SQLite: `unskew down --purge` deletes them, --data-dir chooses another folder"#
            ]],
        );
        let wish = Wish { releases: releases(&[]), ..Wish::default() };
        check(None, &wish, &expect![[r#"--servers: no server: give releases, such as 1.33,1.36,1.36"#]]);
    }
}

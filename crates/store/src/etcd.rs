//! The etcd backend: real etcd v3 over gRPC.
//!
//! Invariants: a write that may have been done is never sent again; a watch delivers every revision whole and once, over
//! as many connections and members as it takes; every request has a deadline.
//!
//! Reading order: `proto` (what is said), `link` (one connection), `members` (failover), `failure` (what an error means),
//! then `reads`, `writes`, `leases` and `watch`.

mod config;
mod failure;
mod leases;
mod link;
mod members;
mod proto;
mod reads;
mod version;
mod watch;
mod writes;

use std::sync::Arc;

use futures_util::FutureExt;
use tasks::Tasks;
use tokio::sync::{mpsc, oneshot};

pub use self::config::{Config, ConfigError, Timeouts};
use self::leases::Leases;
use self::link::Dialer;
use self::members::Members;
use self::reads::{Caller, PROBES_MAX};
use crate::contract::{Entry, Error, Key, Outcome, Page, Pending, Range, Revision, Store, Transaction, Watch};

/// A client of one etcd cluster. Its connections and watches end with the tasks it was opened with.
#[derive(Debug)]
pub struct Etcd {
    client: Arc<Client>,
    probes: mpsc::Sender<Caller>,
}

impl Etcd {
    /// Reads the files that `config` names and greets every etcd that is there. An etcd that is not there yet is no error:
    /// requests fail as unavailable until one is, and watches begin when one is.
    pub async fn open(config: &Config, tasks: Tasks) -> Result<Self, ConfigError> {
        let addresses = config.addresses()?;
        let dialer = Dialer { tls: config.tls()?, timeouts: config.timeouts, tasks: tasks.clone() };
        let members = Members::new(addresses, dialer);
        members.greet().await;
        let client =
            Arc::new(Client { members, leases: Leases::default(), timeouts: config.timeouts, tasks: tasks.clone() });
        let (probes, callers) = mpsc::channel(PROBES_MAX);
        let answering = client.clone();
        tasks.spawn_once("etcd revision", async move {
            let stop = answering.tasks.stopping();
            answering.answer_probes(callers, stop).await;
        });
        Ok(Self { client, probes })
    }

    async fn probe(&self) -> Result<Revision, Error> {
        let closed = || Error::Unavailable { reason: "the store is closed".to_owned() };
        let (caller, answer) = oneshot::channel();
        self.probes.send(caller).await.map_err(|_| closed())?;
        answer.await.map_err(|_| closed())?
    }
}

/// What requests and watches share.
#[derive(Debug)]
struct Client {
    members: Members,
    leases: Leases,
    timeouts: Timeouts,
    tasks: Tasks,
}

impl Store for Etcd {
    fn get(&self, key: Key) -> Pending<'_, (Option<Entry>, Revision)> {
        self.client.get(key).boxed()
    }

    fn range(&self, range: Range) -> Pending<'_, Page> {
        self.client.range(range).boxed()
    }

    fn commit(&self, transaction: Transaction) -> Pending<'_, Outcome> {
        self.client.commit(transaction).boxed()
    }

    fn watch(&self, prefix: Key, from: Revision) -> Pending<'_, Watch> {
        std::future::ready(Ok(self.client.watch(prefix, from))).boxed()
    }

    fn revision(&self) -> Pending<'_, Revision> {
        self.probe().boxed()
    }

    fn answers_progress(&self) -> bool {
        self.client.members.answer_progress()
    }

    fn compact(&self, revision: Revision) -> Pending<'_, ()> {
        self.client.compact(revision).boxed()
    }
}

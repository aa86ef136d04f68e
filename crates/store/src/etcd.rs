//! The etcd backend: real etcd v3 over gRPC.
//!
//! Invariants: a write that may have been done is never sent again; a watch delivers every revision whole and once, over
//! as many connections and members as it takes; every request has a deadline.
//!
//! Reading order: `proto` (what is said), `link` (one connection), `members` (failover), `failure` (what an error means),
//! then `reads`, `probes` (with a `lane` of their own, which is `hush`ed), `writes`, `leases` and `watch`.

mod config;
mod failure;
mod hush;
mod lane;
mod leases;
mod link;
mod members;
mod probes;
mod proto;
mod reads;
mod version;
mod watch;
mod writes;

use std::sync::Arc;

use futures_util::FutureExt;
use tasks::Tasks;

pub use self::config::{Config, ConfigError, Timeouts};
use self::lane::Lane;
use self::leases::Leases;
use self::link::Dialer;
use self::members::Members;
use self::probes::Probes;
use crate::contract::{Entry, Key, Outcome, Page, Pending, Range, Revision, Store, Transaction, Watch};

/// A client of one etcd cluster. Its connections and watches end with the tasks it was opened with.
#[derive(Debug)]
pub struct Etcd {
    client: Arc<Client>,
    probes: Arc<Probes>,
}

impl Etcd {
    /// Reads the files that `config` names and greets every etcd that is there. An etcd that is not there yet is no error:
    /// requests fail as unavailable until one is, and watches begin when one is.
    pub async fn open(config: &Config, tasks: Tasks) -> Result<Self, ConfigError> {
        let addresses = config.addresses()?;
        let dialer = Dialer { tls: config.tls()?, timeouts: config.timeouts, tasks: tasks.clone() };
        let members = Members::new(addresses, dialer);
        members.greet().await;
        let client = Arc::new(Client {
            members,
            lane: tokio::sync::Mutex::default(),
            leases: Leases::default(),
            timeouts: config.timeouts,
            tasks: tasks.clone(),
        });
        let probes = Arc::new(Probes::new());
        let (asked, answering, stop) = (probes.clone(), client.clone(), tasks.stopping());
        tasks.spawn_once("etcd revision", async move {
            stop.run_until_cancelled(asked.answer_all(|| answering.probe_in_lane())).await;
            asked.close();
        });
        Ok(Self { client, probes })
    }
}

/// What requests and watches share.
#[derive(Debug)]
struct Client {
    members: Members,
    /// Used by one after the other; there is only one who does.
    lane: tokio::sync::Mutex<Lane>,
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
        self.probes.ask().boxed()
    }

    fn answers_progress(&self) -> bool {
        self.client.members.answer_progress()
    }

    fn compact(&self, revision: Revision) -> Pending<'_, ()> {
        self.client.compact(revision).boxed()
    }
}

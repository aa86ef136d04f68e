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

use std::sync::{Arc, Once};

use futures_util::FutureExt;
use tasks::{Tasks, WorkerNumber};

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
    /// For whoever asks from a worker.
    of_workers: Desk,
    /// For all others.
    of_process: Desk,
}

/// Where those wait who need to know the current revision. One probe is under way for all who wait here: more would have etcd
/// pay for what one finds out.
#[derive(Debug)]
struct Desk {
    probes: Arc<Probes>,
    /// Probes are sent from where the first lives who asks here, as long as anybody there can ask.
    opened: Once,
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
        let desk = || Desk { probes: Arc::new(Probes::new(tasks.clone())), opened: Once::new() };
        Ok(Self { client, of_workers: desk(), of_process: desk() })
    }

    /// Where those wait who ask from this thread.
    fn desk(&self) -> &Desk {
        let desk = if WorkerNumber::here().is_worker() { &self.of_workers } else { &self.of_process };
        desk.opened.call_once(|| {
            let (probes, client, stop) = (desk.probes.clone(), self.client.clone(), self.client.tasks.stopping());
            self.client.tasks.spawn_once("etcd revision", async move {
                let lane = tokio::sync::Mutex::new(Lane::default());
                stop.run_until_cancelled(probes.answer_all(|| client.probe_in(&lane))).await;
                probes.close();
            });
        });
        desk
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
        self.desk().probes.ask().boxed()
    }

    fn answers_progress(&self) -> bool {
        self.client.members.answer_progress()
    }

    fn compact(&self, revision: Revision) -> Pending<'_, ()> {
        self.client.compact(revision).boxed()
    }
}

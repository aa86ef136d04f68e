//! One watch, from where it begins until nobody listens any more.

use std::sync::Arc;

use tokio::sync::mpsc;

use crate::Revision;
use crate::sqlite::history;
use crate::sqlite::hub::{Hub, Membership, NotJoined, Subscription};
use crate::sqlite::pool::Pool;
use crate::sqlite::revision_file::RevisionFile;
use crate::sqlite::wake::Poke;

/// Reads history for a watch while it is behind, and sits beside it while the hub feeds it.
#[derive(Debug)]
pub(super) struct Feed {
    pub(super) subscription: Subscription,
    pub(super) requests: mpsc::Receiver<()>,
    /// What was asked last, if it may still be unanswered.
    pub(super) asked: Option<Revision>,
    pub(super) hub: Arc<Hub>,
    pub(super) pool: Pool,
    pub(super) revisions: Arc<RevisionFile>,
    pub(super) tail: Poke,
}

/// Nobody listens any more, or there is nothing more to say.
struct Over;

impl Feed {
    pub(super) async fn run(mut self) {
        let mut next = self.subscription.from;
        loop {
            let step = match self.hub.join(&self.subscription, next) {
                Ok(membership) => self.sit(membership).await,
                Err(NotJoined::Behind) => self.catch_up(next).await,
                Err(NotJoined::Closed) => Err(Over),
            };
            match step {
                Ok(unseen) => next = unseen,
                Err(Over) => return,
            }
        }
    }

    /// Waits while the hub feeds the watch, and returns where it fell behind.
    async fn sit(&mut self, mut membership: Membership) -> Result<Revision, Over> {
        if let Some(asked) = self.asked {
            self.hub.ask_progress(membership.id, asked);
        }
        loop {
            tokio::select! {
                left = &mut membership.left => return left.map_err(|_| Over),
                request = self.requests.recv() => {
                    // The other end is part of the watch, so without it there is no watch.
                    let Some(()) = request else { break };
                    self.ask_hub(membership.id);
                }
                () = self.subscription.batches.closed() => break,
            }
        }
        self.hub.leave(membership.id);
        Err(Over)
    }

    /// Sends one piece of history, and returns where the next begins.
    async fn catch_up(&mut self, next: Revision) -> Result<Revision, Over> {
        if self.requests.try_recv().is_ok() {
            self.asked = self.revisions.read().ok();
        }
        let prefix = self.subscription.prefix.clone();
        let piece = self.pool.read(move |reader| history::read(reader, &prefix, next)).await;
        if piece.is_err() && self.hub.is_closed() {
            return Err(Over);
        }
        let (is_news, unseen) = match &piece {
            Ok(batch) => {
                let is_answer = self.asked.is_some_and(|asked| asked <= batch.through);
                let is_answer = is_answer && batch.through >= self.subscription.from;
                self.asked = self.asked.filter(|_| !is_answer);
                (is_answer || !batch.events.is_empty(), Ok(next.max(batch.through.next())))
            }
            Err(_) => (true, Err(Over)),
        };
        if is_news {
            self.subscription.batches.send(piece).await.map_err(|_| Over)?;
        }
        unseen
    }

    /// A revision file that cannot be read fails every read of the store; a watch has nothing to add.
    fn ask_hub(&mut self, id: u64) {
        if let Ok(asked) = self.revisions.read() {
            self.asked = Some(asked);
            self.hub.ask_progress(id, asked);
            self.tail.poke();
        }
    }
}

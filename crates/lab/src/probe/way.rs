//! The ways on which a probe asks: the front door, and each server.

use std::sync::Arc;

use tokio::sync::watch;

use crate::client::{Answer, Ask, Client, ClientError};
use crate::lab::Inside;
use crate::status::Phase;
use crate::supervisor::Board;

/// All ways into a lab, the front door first.
pub(super) fn all(inside: &Inside) -> Vec<Way> {
    let servers = inside.clients.iter().enumerate();
    let direct = servers.map(|(at, client)| Way { client: client.clone(), watched: Some((at, inside.handle.board())) });
    std::iter::once(Way { client: inside.door.clone(), watched: None }).chain(direct).collect()
}

/// A way to ask: the front door, or a server that is asked only while it is ready.
#[derive(Clone, Debug)]
pub(super) struct Way {
    pub(super) client: Client,
    watched: Option<(usize, watch::Receiver<Arc<Board>>)>,
}

impl Way {
    /// Which process would answer; `None` if that server is not ready.
    pub(super) fn generation(&self) -> Option<u64> {
        let Some((at, board)) = &self.watched else { return Some(0) };
        let board = board.borrow();
        let standing = &board.servers[*at];
        (standing.phase == Phase::Ready).then_some(standing.generation)
    }

    /// Asks; `None` if the server was not ready all the time, so that its answer says nothing.
    pub(super) async fn ask(&self, ask: Ask) -> Option<Result<Answer, ClientError>> {
        let before = self.generation()?;
        let answer = self.client.ask(ask).await;
        (self.generation() == Some(before)).then_some(answer)
    }

    pub(super) fn is_door(&self) -> bool {
        self.watched.is_none()
    }
}

//! Upgraded connections: bytes in both directions, of whatever protocol.

use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::time::Duration;

use http::Response;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};

use super::body::PeerBody;
use super::connection::Connection;

/// How long one direction may go on when the other has ended: for what is still on its way.
const LINGER: Duration = Duration::from_secs(10);

/// The peer's end of a connection that is being handed over.
#[derive(Debug)]
pub struct PeerEnd {
    upgrade: OnUpgrade,
    connection: Option<Connection>,
}

impl PeerEnd {
    /// From an answer with status 101, whose head stays with the caller.
    pub fn of(mut response: Response<PeerBody>) -> (http::response::Parts, Self) {
        let upgrade = hyper::upgrade::on(&mut response);
        let (head, body) = response.into_parts();
        (head, Self { upgrade, connection: body.into_connection() })
    }

    /// Waits until the connection has been handed over.
    pub async fn ready(self) -> hyper::Result<Upgraded> {
        let Self { upgrade, mut connection } = self;
        let mut upgrade = pin!(upgrade);
        poll_fn(|context| {
            if let Some(connection) = &mut connection {
                connection.drive(context);
            }
            Future::poll(upgrade.as_mut(), context)
        })
        .await
    }
}

/// Carries bytes between two upgraded connections until both directions have ended, or one has and the other does not follow.
pub async fn join(a: Upgraded, b: Upgraded) -> io::Result<()> {
    let (mut from_a, mut to_a) = tokio::io::split(TokioIo::new(a));
    let (mut from_b, mut to_b) = tokio::io::split(TokioIo::new(b));
    let mut there = pin!(carry(&mut from_a, &mut to_b));
    let mut back = pin!(carry(&mut from_b, &mut to_a));
    tokio::select! {
        ended = &mut there => {
            ended?;
            tokio::time::timeout(LINGER, back).await.unwrap_or(Ok(()))
        }
        ended = &mut back => {
            ended?;
            tokio::time::timeout(LINGER, there).await.unwrap_or(Ok(()))
        }
    }
}

async fn carry(from: &mut (impl AsyncRead + Unpin), to: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
    tokio::io::copy(from, to).await?;
    to.shutdown().await
}

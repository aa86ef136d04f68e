//! Upgraded connections: bytes in both directions, of whatever protocol.

use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::time::Duration;

use http::Response;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use super::body::PeerBody;
use super::connection::Connection;

/// How long one direction may go on when the other has ended: for what is still on its way.
const LINGER: Duration = Duration::from_secs(10);
/// What is read at once if each piece has to wait; as much as without a wait.
const PIECE_BYTES: usize = 8 * 1024;

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
    both(carry(&mut from_a, &mut to_b), carry(&mut from_b, &mut to_a)).await
}

/// The same, with a wait before each piece is passed on, which is given its length.
pub async fn join_paced<W: Future<Output = ()>>(a: Upgraded, b: Upgraded, wait: impl Fn(usize) -> W) -> io::Result<()> {
    let (mut from_a, mut to_a) = tokio::io::split(TokioIo::new(a));
    let (mut from_b, mut to_b) = tokio::io::split(TokioIo::new(b));
    both(carry_paced(&mut from_a, &mut to_b, &wait), carry_paced(&mut from_b, &mut to_a, &wait)).await
}

async fn both(
    there: impl Future<Output = io::Result<()>>,
    back: impl Future<Output = io::Result<()>>,
) -> io::Result<()> {
    let (mut there, mut back) = (pin!(there), pin!(back));
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

async fn carry_paced<W: Future<Output = ()>>(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    wait: &impl Fn(usize) -> W,
) -> io::Result<()> {
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        let length = from.read(&mut piece).await?;
        if length == 0 {
            return to.shutdown().await;
        }
        wait(length).await;
        to.write_all(&piece[..length]).await?;
        to.flush().await?;
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[tokio::test]
    async fn a_paced_way_waits_for_each_piece_and_then_closes() {
        let (mut client, mut near) = tokio::io::duplex(PIECE_BYTES);
        let (mut far, mut peer) = tokio::io::duplex(2 * PIECE_BYTES);
        let pieces = RefCell::new(Vec::new());
        client.write_all(b"stdin").await.unwrap();
        client.shutdown().await.unwrap();
        let wait = |length| {
            pieces.borrow_mut().push(length);
            std::future::ready(())
        };
        carry_paced(&mut near, &mut far, &wait).await.unwrap();
        let mut received = String::new();
        peer.read_to_string(&mut received).await.unwrap();
        assert_eq!((&*received, &pieces.borrow()[..]), ("stdin", &[5][..]));
    }
}

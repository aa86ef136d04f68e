//! Upgraded connections: bytes copied in both directions.

use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::time::Duration;

use http::Response;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use super::body::PeerBody;
use super::http1_connection::Http1Connection;

/// How long one direction may continue after the other has ended.
const HALF_CLOSE_TIMEOUT: Duration = Duration::from_secs(10);
/// Buffer size of throttled copying; same as tokio's.
const CHUNK_BYTES: usize = 8 * 1024;

/// A peer connection in the process of an upgrade.
#[derive(Debug)]
pub struct PeerUpgrade {
    upgrade: OnUpgrade,
    connection: Option<Http1Connection>,
}

impl PeerUpgrade {
    /// Splits a 101 response into its head and the pending upgrade.
    pub fn from_response(mut response: Response<PeerBody>) -> (http::response::Parts, Self) {
        let upgrade = hyper::upgrade::on(&mut response);
        let (head, body) = response.into_parts();
        (head, Self { upgrade, connection: body.into_connection() })
    }

    /// Drives the connection until hyper hands over the upgraded stream.
    pub async fn wait_for_upgrade(self) -> hyper::Result<Upgraded> {
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

/// Copies bytes in both directions until both have ended, or `HALF_CLOSE_TIMEOUT` after the first one has.
pub async fn copy_bidirectional(a: Upgraded, b: Upgraded) -> io::Result<()> {
    let (mut from_a, mut to_a) = tokio::io::split(TokioIo::new(a));
    let (mut from_b, mut to_b) = tokio::io::split(TokioIo::new(b));
    join_directions(copy_and_shutdown(&mut from_a, &mut to_b), copy_and_shutdown(&mut from_b, &mut to_a)).await
}

/// Like [`copy_bidirectional`], but awaits `throttle` with the length of each chunk before forwarding it.
pub async fn copy_bidirectional_throttled<W: Future<Output = ()>>(
    a: Upgraded,
    b: Upgraded,
    throttle: impl Fn(usize) -> W,
) -> io::Result<()> {
    let (mut from_a, mut to_a) = tokio::io::split(TokioIo::new(a));
    let (mut from_b, mut to_b) = tokio::io::split(TokioIo::new(b));
    join_directions(
        copy_throttled(&mut from_a, &mut to_b, &throttle),
        copy_throttled(&mut from_b, &mut to_a, &throttle),
    )
    .await
}

/// Runs both directions; once one has ended, the other gets `HALF_CLOSE_TIMEOUT`.
async fn join_directions(
    there: impl Future<Output = io::Result<()>>,
    back: impl Future<Output = io::Result<()>>,
) -> io::Result<()> {
    let (mut there, mut back) = (pin!(there), pin!(back));
    tokio::select! {
        ended = &mut there => {
            ended?;
            tokio::time::timeout(HALF_CLOSE_TIMEOUT, back).await.unwrap_or(Ok(()))
        }
        ended = &mut back => {
            ended?;
            tokio::time::timeout(HALF_CLOSE_TIMEOUT, there).await.unwrap_or(Ok(()))
        }
    }
}

async fn copy_and_shutdown(from: &mut (impl AsyncRead + Unpin), to: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
    tokio::io::copy(from, to).await?;
    to.shutdown().await
}

async fn copy_throttled<W: Future<Output = ()>>(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    throttle: &impl Fn(usize) -> W,
) -> io::Result<()> {
    let mut piece = vec![0; CHUNK_BYTES];
    loop {
        let length = from.read(&mut piece).await?;
        if length == 0 {
            return to.shutdown().await;
        }
        throttle(length).await;
        to.write_all(&piece[..length]).await?;
        to.flush().await?;
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[tokio::test]
    async fn copy_throttled_waits_for_each_chunk_and_then_closes() {
        let (mut client, mut near) = tokio::io::duplex(CHUNK_BYTES);
        let (mut far, mut peer) = tokio::io::duplex(2 * CHUNK_BYTES);
        let pieces = RefCell::new(Vec::new());
        client.write_all(b"stdin").await.unwrap();
        client.shutdown().await.unwrap();
        let wait = |length| {
            pieces.borrow_mut().push(length);
            std::future::ready(())
        };
        copy_throttled(&mut near, &mut far, &wait).await.unwrap();
        let mut received = String::new();
        peer.read_to_string(&mut received).await.unwrap();
        assert_eq!((&*received, &pieces.borrow()[..]), ("stdin", &[5][..]));
    }
}

//! Holds small writes back until whoever makes them has made them all.
//!
//! HTTP/2 sends frame by frame, and each would be a record of TLS and a call of the kernel: as dear as the answer in it. Events
//! for a hundred watches, and answers that are ready together, travel in one instead. Nothing waits for it: what is held goes
//! out as soon as the connection has nothing more to say for the moment.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, BytesMut};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// So much is held at most: one record of TLS. Whatever is as long goes out by itself.
const HELD_MAX: usize = 16 << 10;

/// A stream whose writes are held. Clones are the same stream: one for who writes, one for who [lets go](Cork::let_go).
/// Both belong to one task, so the lock is never contended.
pub(crate) struct Cork<S>(Arc<Mutex<Held<S>>>);

struct Held<S> {
    stream: S,
    bytes: BytesMut,
    /// Whether the stream itself holds something back.
    is_behind: bool,
}

impl<S> Clone for Cork<S> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<S: AsyncWrite + Unpin> Cork<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self(Arc::new(Mutex::new(Held { stream, bytes: BytesMut::new(), is_behind: false })))
    }

    /// Sends what is held.
    pub(crate) fn let_go(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.lock().let_go(context)
    }
}

impl<S: AsyncWrite + Unpin> Held<S> {
    fn let_go(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.write_held(context))?;
        if self.is_behind {
            ready!(Pin::new(&mut self.stream).poll_flush(context))?;
            self.is_behind = false;
        }
        Poll::Ready(Ok(()))
    }

    fn write_held(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.bytes.is_empty() {
            let written = ready!(Pin::new(&mut self.stream).poll_write(context, &self.bytes))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.bytes.advance(written);
            self.is_behind = true;
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Cork<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(context, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut held = self.0.lock();
        let length: usize = parts.iter().map(|part| part.len()).sum();
        if held.bytes.len() + length > HELD_MAX {
            ready!(held.write_held(context))?;
            if length > HELD_MAX {
                held.is_behind = true;
                return Pin::new(&mut held.stream).poll_write_vectored(context, parts);
            }
        }
        for part in parts {
            held.bytes.extend_from_slice(part);
        }
        Poll::Ready(Ok(length))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// Not yet: more may come.
    fn poll_flush(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut held = self.0.lock();
        ready!(held.let_go(context))?;
        Pin::new(&mut held.stream).poll_shutdown(context)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Cork<S> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut held = self.0.lock();
        Pin::new(&mut held.stream).poll_read(context, buffer)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};

    use super::*;

    fn let_go(cork: &Cork<DuplexStream>) -> Poll<io::Result<()>> {
        cork.let_go(&mut Context::from_waker(std::task::Waker::noop()))
    }

    #[tokio::test]
    async fn small_writes_leave_together_and_in_order() {
        let (near, mut far) = duplex(64 << 10);
        let cork = Cork::new(near);
        let mut writer = cork.clone();
        for part in ["one ", "two ", "three"] {
            writer.write_all(part.as_bytes()).await.unwrap();
            writer.flush().await.unwrap();
        }
        let mut read = [0; 100];
        assert!(futures_util::future::poll_immediate(far.read(&mut read)).await.is_none(), "held");
        assert!(matches!(let_go(&cork), Poll::Ready(Ok(()))));
        let length = far.read(&mut read).await.unwrap();
        assert_eq!(&read[..length], b"one two three");
    }

    #[tokio::test]
    async fn a_long_write_does_not_overtake_what_is_held() {
        let (near, mut far) = duplex(64 << 10);
        let cork = Cork::new(near);
        let mut writer = cork.clone();
        let long = vec![b'x'; HELD_MAX + 1];
        writer.write_all(b"short").await.unwrap();
        writer.write_all(&long).await.unwrap();
        let mut read = vec![0; 5 + long.len()];
        far.read_exact(&mut read).await.unwrap();
        assert_eq!((&read[..5], &read[5..]), (&b"short"[..], &long[..]));
    }

    #[tokio::test]
    async fn no_more_is_held_than_the_limit_while_the_other_end_does_not_read() {
        let (near, mut far) = duplex(10);
        let cork = Cork::new(near);
        let mut writer = cork.clone();
        let mut taken = 0;
        while let Some(written) = futures_util::future::poll_immediate(writer.write(&[b'x'; 100])).await {
            taken += written.unwrap();
            assert!(taken <= HELD_MAX + 10);
        }
        assert!(let_go(&cork).is_pending());
        drop(writer);
        let reading = async {
            let mut read = vec![0; taken];
            far.read_exact(&mut read).await.unwrap();
        };
        let sending = std::future::poll_fn(|context| cork.let_go(context));
        let (sent, ()) = tokio::join!(sending, reading);
        sent.unwrap();
    }

    #[tokio::test]
    async fn a_shutdown_sends_what_is_held_first() {
        let (near, mut far) = duplex(64 << 10);
        let mut writer = Cork::new(near);
        writer.write_all(b"last words").await.unwrap();
        writer.shutdown().await.unwrap();
        let mut read = String::new();
        far.read_to_string(&mut read).await.unwrap();
        assert_eq!(read, "last words");
    }
}

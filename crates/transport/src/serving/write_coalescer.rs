//! Buffers small writes of an HTTP/2 connection until the connection has written all it can.
//!
//! HTTP/2 writes frame by frame, and each write would be a TLS record and a system call. Events of a hundred watches, and
//! responses that are ready together, share one record instead. Nothing waits: the buffer is flushed as soon as a poll of the
//! connection returns.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, BytesMut};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The size of the buffer: one TLS record. Larger writes bypass it.
const BUFFER_MAX: usize = 16 << 10;

/// A stream whose writes are buffered. Clones share it: one writes, the other [flushes](WriteCoalescer::poll_flush_buffered). Both
/// belong to one task, so the lock is never contended.
pub struct WriteCoalescer<S>(Arc<Mutex<CoalescerState<S>>>);

struct CoalescerState<S> {
    stream: S,
    buffered: BytesMut,
    /// True if the stream itself has bytes to flush.
    needs_flush: bool,
}

impl<S> Clone for WriteCoalescer<S> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<S: AsyncWrite + Unpin> WriteCoalescer<S> {
    /// Wraps a stream.
    pub fn new(stream: S) -> Self {
        Self(Arc::new(Mutex::new(CoalescerState { stream, buffered: BytesMut::new(), needs_flush: false })))
    }

    /// Writes the buffer and flushes the stream.
    pub fn poll_flush_buffered(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.lock().poll_flush_buffered(context)
    }
}

impl<S: AsyncWrite + Unpin> CoalescerState<S> {
    fn poll_flush_buffered(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_write_buffered(context))?;
        if self.needs_flush {
            ready!(Pin::new(&mut self.stream).poll_flush(context))?;
            self.needs_flush = false;
        }
        Poll::Ready(Ok(()))
    }

    fn poll_write_buffered(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.buffered.is_empty() {
            let written = ready!(Pin::new(&mut self.stream).poll_write(context, &self.buffered))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.buffered.advance(written);
            self.needs_flush = true;
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WriteCoalescer<S> {
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
        if held.buffered.len() + length > BUFFER_MAX {
            ready!(held.poll_write_buffered(context))?;
            if length > BUFFER_MAX {
                held.needs_flush = true;
                return Pin::new(&mut held.stream).poll_write_vectored(context, parts);
            }
        }
        for part in parts {
            held.buffered.extend_from_slice(part);
        }
        Poll::Ready(Ok(length))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// Does nothing: [`WriteCoalescer::poll_flush_buffered`] flushes.
    fn poll_flush(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut held = self.0.lock();
        ready!(held.poll_flush_buffered(context))?;
        Pin::new(&mut held.stream).poll_shutdown(context)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WriteCoalescer<S> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut held = self.0.lock();
        Pin::new(&mut held.stream).poll_read(context, buffer)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};

    use super::*;

    fn flush_buffered_now(coalescer: &WriteCoalescer<DuplexStream>) -> Poll<io::Result<()>> {
        coalescer.poll_flush_buffered(&mut Context::from_waker(std::task::Waker::noop()))
    }

    #[tokio::test]
    async fn small_writes_are_coalesced_in_order() {
        let (near, mut far) = duplex(64 << 10);
        let coalescer = WriteCoalescer::new(near);
        let mut writer = coalescer.clone();
        for part in ["one ", "two ", "three"] {
            writer.write_all(part.as_bytes()).await.unwrap();
            writer.flush().await.unwrap();
        }
        let mut read = [0; 100];
        assert!(futures_util::future::poll_immediate(far.read(&mut read)).await.is_none(), "held");
        assert!(matches!(flush_buffered_now(&coalescer), Poll::Ready(Ok(()))));
        let length = far.read(&mut read).await.unwrap();
        assert_eq!(&read[..length], b"one two three");
    }

    #[tokio::test]
    async fn large_write_does_not_overtake_buffered_bytes() {
        let (near, mut far) = duplex(64 << 10);
        let coalescer = WriteCoalescer::new(near);
        let mut writer = coalescer.clone();
        let long = vec![b'x'; BUFFER_MAX + 1];
        writer.write_all(b"short").await.unwrap();
        writer.write_all(&long).await.unwrap();
        let mut read = vec![0; 5 + long.len()];
        far.read_exact(&mut read).await.unwrap();
        assert_eq!((&read[..5], &read[5..]), (&b"short"[..], &long[..]));
    }

    #[tokio::test]
    async fn buffer_is_bounded_while_reader_is_stalled() {
        let (near, mut far) = duplex(10);
        let coalescer = WriteCoalescer::new(near);
        let mut writer = coalescer.clone();
        let mut taken = 0;
        while let Some(written) = futures_util::future::poll_immediate(writer.write(&[b'x'; 100])).await {
            taken += written.unwrap();
            assert!(taken <= BUFFER_MAX + 10);
        }
        assert!(flush_buffered_now(&coalescer).is_pending());
        drop(writer);
        let reading = async {
            let mut read = vec![0; taken];
            far.read_exact(&mut read).await.unwrap();
        };
        let sending = std::future::poll_fn(|context| coalescer.poll_flush_buffered(context));
        let (sent, ()) = tokio::join!(sending, reading);
        sent.unwrap();
    }

    #[tokio::test]
    async fn shutdown_flushes_buffered_bytes_first() {
        let (near, mut far) = duplex(64 << 10);
        let mut writer = WriteCoalescer::new(near);
        writer.write_all(b"last words").await.unwrap();
        writer.shutdown().await.unwrap();
        let mut read = String::new();
        far.read_to_string(&mut read).await.unwrap();
        assert_eq!(read, "last words");
    }
}

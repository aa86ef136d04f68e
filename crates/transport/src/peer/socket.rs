//! A socket whose state can be checked while its connection owns it.
//!
//! The runtime learns that a peer closed a connection some time after the kernel does. A request written in between
//! is lost with unknown outcome, so the pool checks an idle connection in the kernel before reuse.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv, sockopt};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

/// TCP keepalive: a dead peer host is detected within 30 seconds (15 s idle, then 3 probes 5 s apart), also by an
/// idle watch.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(15);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEPALIVE_COUNT: u32 = 3;
/// The same bound for sent and unacknowledged data.
const TCP_USER_TIMEOUT_MS: u32 = 30_000;

/// A connected socket. Clones share the socket.
///
/// The lock is uncontended, because only one task uses a connection at a time. tokio caches readiness only for a
/// mutable stream, which saves a read system call.
#[derive(Clone, Debug)]
pub(super) struct Socket(Arc<Mutex<SocketStream>>);

#[derive(Debug)]
enum SocketStream {
    Tcp(TcpStream),
    Unix(UnixStream),
    /// Moving to another runtime failed.
    Closed,
}

impl Socket {
    /// Wraps a TCP stream; sets TCP_NODELAY and keepalive.
    pub(super) fn from_tcp(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        sockopt::set_socket_keepalive(&stream, true)?;
        sockopt::set_tcp_keepidle(&stream, KEEPALIVE_IDLE)?;
        sockopt::set_tcp_keepintvl(&stream, KEEPALIVE_INTERVAL)?;
        sockopt::set_tcp_keepcnt(&stream, KEEPALIVE_COUNT)?;
        sockopt::set_tcp_user_timeout(&stream, TCP_USER_TIMEOUT_MS)?;
        Ok(Self(Arc::new(Mutex::new(SocketStream::Tcp(stream)))))
    }

    pub(super) fn from_unix(stream: UnixStream) -> Self {
        Self(Arc::new(Mutex::new(SocketStream::Unix(stream))))
    }

    /// Reports whether the socket is open with nothing to read, by a non-blocking peek.
    pub(super) fn is_open_and_idle(&self) -> bool {
        let mut byte = [0];
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        let looked = match &*self.0.lock() {
            SocketStream::Tcp(stream) => recv(stream, &mut byte, flags),
            SocketStream::Unix(stream) => recv(stream, &mut byte, flags),
            SocketStream::Closed => return false,
        };
        matches!(looked, Err(Errno::AGAIN))
    }

    /// Registers the socket with this thread's runtime instead of its former one. No task may be waiting on it.
    pub(super) fn move_to_current_runtime(&self) -> io::Result<()> {
        let mut kind = self.0.lock();
        *kind = match std::mem::replace(&mut *kind, SocketStream::Closed) {
            SocketStream::Tcp(stream) => SocketStream::Tcp(TcpStream::from_std(stream.into_std()?)?),
            SocketStream::Unix(stream) => SocketStream::Unix(UnixStream::from_std(stream.into_std()?)?),
            SocketStream::Closed => return Err(io::ErrorKind::NotConnected.into()),
        };
        Ok(())
    }
}

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match &mut *self.0.lock() {
            SocketStream::Tcp(stream) => Pin::new(stream).poll_read(context, buffer),
            SocketStream::Unix(stream) => Pin::new(stream).poll_read(context, buffer),
            SocketStream::Closed => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match &mut *self.0.lock() {
            SocketStream::Tcp(stream) => Pin::new(stream).poll_write(context, bytes),
            SocketStream::Unix(stream) => Pin::new(stream).poll_write(context, bytes),
            SocketStream::Closed => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut *self.0.lock() {
            SocketStream::Tcp(stream) => Pin::new(stream).poll_write_vectored(context, parts),
            SocketStream::Unix(stream) => Pin::new(stream).poll_write_vectored(context, parts),
            SocketStream::Closed => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self.0.lock() {
            SocketStream::Tcp(stream) => Pin::new(stream).poll_shutdown(context),
            SocketStream::Unix(stream) => Pin::new(stream).poll_shutdown(context),
            SocketStream::Closed => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    }
}

//! A socket that can be looked at while somebody else reads from it.
//!
//! The runtime learns that a connection was closed some time after the kernel does. A request that is written in between is
//! lost with an unknown outcome, so a connection that was idle is looked at once more, in the kernel, before it is used.

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

/// A quiet connection is asked whether its other end is there after this time, so often, and thrice: a machine that lost
/// power is noticed within half a minute, also by a watch that waits for nothing but events.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(15);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEPALIVE_COUNT: u32 = 3;
/// The same for what was sent and not acknowledged.
const TCP_USER_TIMEOUT_MS: u32 = 30_000;

/// A connected socket. Clones are the same socket.
///
/// Behind a lock, which nobody ever waits for: whoever looks at it has the connection to themselves. Only through a mutable
/// stream does the runtime remember that a read took all there was, which spares the next look at the kernel.
#[derive(Clone, Debug)]
pub(super) struct Socket(Arc<Mutex<SocketStream>>);

#[derive(Debug)]
enum SocketStream {
    Tcp(TcpStream),
    Unix(UnixStream),
    /// It could not be moved, and is closed.
    Closed,
}

impl Socket {
    /// A TCP connection, set up for short messages and for noticing that the other end is gone.
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

    /// Whether it is open and holds nothing to read: all that an idle connection may be.
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

    /// Has the runtime of this thread watch over it, and no longer the one that did. Nobody may wait for it.
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

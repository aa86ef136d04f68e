//! Dials peers, directly or through the egress selector's proxy.

use std::fmt;
use std::io;
use std::path::PathBuf;

use rustls::pki_types::ServerName;
use tasks::Tasks;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;

use super::socket::Socket;
use super::tls::{ClientTls, ClientTlsError, ClientTlsFiles};
use crate::Reloading;

/// Limit on the size of a proxy's response head to CONNECT.
const PROXY_RESPONSE_HEAD_MAX: usize = 8 << 10;

/// The configured route to peers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Egress {
    /// Connect to the peer's address.
    Direct,
    /// An HTTP CONNECT proxy that listens on a Unix socket.
    Unix(PathBuf),
    /// An HTTP CONNECT proxy that listens on TCP.
    Tcp {
        /// The proxy's host.
        host: String,
        /// The proxy's port.
        port: u16,
        /// Plain TCP if `None`.
        tls: Option<ProxyTls>,
    },
}

/// TLS settings for a proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxyTls {
    /// CA bundle and client certificate.
    pub files: ClientTlsFiles,
    /// The name that the proxy's certificate must have.
    pub server_name: ServerName<'static>,
}

/// Opens connections to peers along the configured route.
#[derive(Clone, Debug)]
pub struct Dialer(EgressRoute);

#[derive(Clone, Debug)]
enum EgressRoute {
    Direct,
    Unix(PathBuf),
    Tcp { host: String, port: u16, tls: Option<(Reloading<ClientTls>, ServerName<'static>)> },
}

/// Why dialing failed. No part of a request was sent.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// The peer refuses connections or has no route.
    #[error("cannot connect: {0}")]
    Unreachable(#[source] io::Error),
    /// The egress proxy is unreachable or refuses the CONNECT.
    #[error("cannot connect through the egress proxy: {0}")]
    Proxy(#[source] io::Error),
    /// Either side rejects the other's certificate.
    #[error("the TLS handshake failed: {0}")]
    Tls(#[source] io::Error),
    /// The connection timeout has passed.
    #[error("timed out connecting")]
    TimedOut,
}

impl DialError {
    /// Copies the error for another waiter on the same connection attempt (`io::Error` is not `Clone`).
    pub(super) fn clone_for_waiter(&self) -> Self {
        let same = |error: &io::Error| io::Error::new(error.kind(), error.to_string());
        match self {
            Self::Unreachable(error) => Self::Unreachable(same(error)),
            Self::Proxy(error) => Self::Proxy(same(error)),
            Self::Tls(error) => Self::Tls(same(error)),
            Self::TimedOut => Self::TimedOut,
        }
    }

    /// Returns the value of the metrics label `reason`.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Unreachable(_) => "unreachable",
            Self::Proxy(_) => "egress_proxy",
            Self::Tls(_) => "tls",
            Self::TimedOut => "connect_timeout",
        }
    }
}

/// A bidirectional byte stream.
pub(super) trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for T {}

/// A connection before the TLS handshake with the peer, and its socket.
pub(super) struct RawConnection {
    pub(super) stream: Box<dyn ByteStream>,
    pub(super) socket: Socket,
}

impl fmt::Debug for RawConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RawConnection").field("socket", &self.socket).finish_non_exhaustive()
    }
}

impl Dialer {
    /// Returns a dialer that connects to peers directly.
    pub fn direct() -> Self {
        Self(EgressRoute::Direct)
    }

    /// Returns a dialer for the route. The proxy's certificate files are loaded now and whenever they change.
    pub fn start(egress: &Egress, tasks: &Tasks) -> Result<Self, ClientTlsError> {
        let connection = match egress {
            Egress::Direct => EgressRoute::Direct,
            Egress::Unix(path) => EgressRoute::Unix(path.clone()),
            Egress::Tcp { host, port, tls } => {
                let tls = match tls {
                    None => None,
                    Some(ProxyTls { files, server_name }) => {
                        Some((files.clone().start_reloading(tasks)?, server_name.clone()))
                    }
                };
                EgressRoute::Tcp { host: host.clone(), port: *port, tls }
            }
        };
        Ok(Self(connection))
    }

    /// Connects to a peer. Applies no timeout.
    pub(super) async fn dial(&self, host: &str, port: u16) -> Result<RawConnection, DialError> {
        match &self.0 {
            EgressRoute::Direct => {
                let socket = connect_tcp(host, port).await.map_err(DialError::Unreachable)?;
                Ok(RawConnection { stream: Box::new(socket.clone()), socket })
            }
            EgressRoute::Unix(path) => {
                let stream = UnixStream::connect(path).await.map_err(DialError::Proxy)?;
                let socket = Socket::from_unix(stream);
                connect_through_proxy(Box::new(socket.clone()), socket, host, port).await
            }
            EgressRoute::Tcp { host: proxy, port: proxy_port, tls } => {
                let socket = connect_tcp(proxy, *proxy_port).await.map_err(DialError::Proxy)?;
                let stream: Box<dyn ByteStream> = match tls {
                    None => Box::new(socket.clone()),
                    Some((tls, name)) => {
                        let connector = TlsConnector::from(tls.get().http1_config.clone());
                        Box::new(connector.connect(name.clone(), socket.clone()).await.map_err(DialError::Proxy)?)
                    }
                };
                connect_through_proxy(stream, socket, host, port).await
            }
        }
    }
}

async fn connect_tcp(host: &str, port: u16) -> io::Result<Socket> {
    Socket::from_tcp(TcpStream::connect((host, port)).await?)
}

/// Requests a tunnel to the peer from a proxy.
async fn connect_through_proxy(
    mut stream: Box<dyn ByteStream>,
    socket: Socket,
    host: &str,
    port: u16,
) -> Result<RawConnection, DialError> {
    let target = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
    send_connect(&mut stream, &target).await.map_err(DialError::Proxy)?;
    Ok(RawConnection { stream, socket })
}

/// Sends a CONNECT request, byte for byte as kube-apiserver does.
async fn send_connect(stream: &mut (impl ByteStream + ?Sized), target: &str) -> io::Result<()> {
    stream.write_all(format!("CONNECT {target} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n").as_bytes()).await?;
    stream.flush().await?;
    let mut head = Vec::with_capacity(256);
    while !head.ends_with(b"\r\n\r\n") {
        // Read single bytes: what follows the head belongs to the peer. Dialing is rare, so the cost does not matter.
        match stream.read_u8().await {
            Ok(byte) if head.len() < PROXY_RESPONSE_HEAD_MAX => head.push(byte),
            Ok(_) => return Err(io::Error::other("the proxy's response is too long")),
            Err(error) => return Err(error),
        }
    }
    let line = head.split(|&byte| byte == b'\r').next().unwrap_or_default();
    let mut words = line.split(|&byte| byte == b' ');
    let is_http = words.next().is_some_and(|version| version.starts_with(b"HTTP/1."));
    if is_http && words.next() == Some(b"200") {
        return Ok(());
    }
    Err(io::Error::other(format!("the proxy responded {:?} to CONNECT {target}", String::from_utf8_lossy(line))))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn connect_with_response(answer: &str) -> Result<String, String> {
        let (mut near, mut far) = tokio::io::duplex(64 << 10);
        far.write_all(answer.as_bytes()).await.unwrap();
        let asked = send_connect(&mut near, "10.0.0.1:6443").await.map_err(|error| error.to_string());
        drop(near);
        let mut request = String::new();
        far.read_to_string(&mut request).await.unwrap();
        asked.map(|()| request)
    }

    #[tokio::test]
    async fn connect_request_matches_kube_apiserver_and_requires_200() {
        assert_eq!(
            connect_with_response("HTTP/1.1 200 OK\r\nVia: x\r\n\r\n").await.unwrap(),
            "CONNECT 10.0.0.1:6443 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
        );
        let refused = connect_with_response("HTTP/1.1 403 Forbidden\r\n\r\n").await.unwrap_err();
        assert_eq!(refused, r#"the proxy responded "HTTP/1.1 403 Forbidden" to CONNECT 10.0.0.1:6443"#);
        let garbage = connect_with_response("SSH-2.0-x\r\n\r\n").await.unwrap_err();
        assert_eq!(garbage, r#"the proxy responded "SSH-2.0-x" to CONNECT 10.0.0.1:6443"#);
        let endless = connect_with_response(&"x".repeat(PROXY_RESPONSE_HEAD_MAX + 1)).await.unwrap_err();
        assert_eq!(endless, "the proxy's response is too long");
    }
}

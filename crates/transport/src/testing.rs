//! A scripted HTTP/1.1 peer over real TLS on a real socket, for tests of clients of peers.

mod http2_peer;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustls::ServerConfig;
use tasks::Tasks;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex, mpsc};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::Reloading;
use crate::TlsPolicy;
use crate::peer::{ClientTlsFiles, Connector, Dialer};
use crate::pki::{CertificateAuthority, CertificateFiles, CertificateUsage};
use crate::server::server_config;

pub use http2_peer::{Http2Exchange, Http2Peer};

/// Certificates of one CA, in a directory that the test owns.
pub struct TestCertificates {
    dir: PathBuf,
    authority: CertificateAuthority,
}

impl TestCertificates {
    /// Opens or creates the CA.
    pub fn new(folder: &Path) -> Self {
        let authority = CertificateAuthority::open_or_create(folder, "ca").expect("the directory is writable");
        Self { dir: folder.to_owned(), authority }
    }

    /// Returns the files of a client's TLS configuration.
    pub fn client_files(&self) -> ClientTlsFiles {
        let own = self.issue("proxy-client", &CertificateUsage::Client);
        ClientTlsFiles { ca_bundle: self.authority.certificate().to_owned(), client_certificate: Some(own) }
    }

    /// Returns a peer's serving certificate.
    pub fn serving_files(&self) -> CertificateFiles {
        self.issue("serving", &CertificateUsage::Serving { addresses: Vec::new(), names: Vec::new() })
    }

    /// Returns a peer's TLS configuration.
    pub fn server_config(&self) -> ServerConfig {
        let pair = self.serving_files();
        server_config(&pair.certificate, &pair.key, &TlsPolicy::default()).expect("just created")
    }

    /// Returns the TLS configuration of a server with this name and on loopback.
    pub fn server_config_named(&self, name: &str) -> ServerConfig {
        let addresses = vec![std::net::Ipv4Addr::LOCALHOST.into()];
        let pair = self.issue(name, &CertificateUsage::Serving { addresses, names: vec![name.to_owned()] });
        server_config(&pair.certificate, &pair.key, &TlsPolicy::default()).expect("just created")
    }

    /// Returns the certificate of the CA, PEM.
    pub fn ca_pem(&self) -> Vec<u8> {
        std::fs::read(self.authority.certificate()).expect("just created")
    }

    /// Returns the directory of the certificates.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns a connector that dials peers directly with these certificates.
    pub fn connector(&self) -> Arc<Connector> {
        let tls = self.client_files().load().expect("just created");
        Arc::new(Connector::new(Reloading::fixed(tls), Dialer::direct()))
    }

    fn issue(&self, name: &str, purpose: &CertificateUsage) -> CertificateFiles {
        self.authority.open_or_issue(name, name, None, purpose).expect("the directory is writable")
    }
}

/// A request as the peer received it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceivedRequest {
    /// The connection's number, from 0.
    pub connection: usize,
    /// Such as `GET / HTTP/1.1`.
    pub request_line: String,
    /// In request order, names in lower case.
    pub headers: Vec<(String, String)>,
    /// The whole body, de-chunked.
    pub body: String,
}

impl ReceivedRequest {
    /// Returns all values of a header.
    pub fn header(&self, name: &str) -> Vec<&str> {
        self.headers.iter().filter(|(header, _)| header == name).map(|(_, value)| value.as_str()).collect()
    }
}

/// An HTTP/1.1 peer that follows a script.
pub struct ScriptedPeer {
    /// The listening address.
    pub address: SocketAddr,
    connections: Arc<AtomicUsize>,
    requests: Mutex<mpsc::UnboundedReceiver<ReceivedRequest>>,
}

impl ScriptedPeer {
    /// Starts a peer that runs `script` on every connection.
    pub async fn start<Play, Playing>(mut tls: ServerConfig, tasks: &Tasks, script: Play) -> Self
    where
        Play: Fn(ScriptedConnection) -> Playing + Clone + Send + Sync + 'static,
        Playing: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("the listener is bound");
        let connections = Arc::new(AtomicUsize::new(0));
        let (sender, received) = mpsc::unbounded_channel();
        tls.alpn_protocols = vec![b"http/1.1".to_vec()];
        let acceptor = TlsAcceptor::from(Arc::new(tls));
        let (count, tasks_within) = (connections.clone(), tasks.clone());
        tasks.spawn("scripted-peer", |stop| async move {
            while let Some(Ok((stream, _))) = stop.run_until_cancelled(listener.accept()).await {
                let connection = count.fetch_add(1, Ordering::SeqCst);
                let (acceptor, script, received) = (acceptor.clone(), script.clone(), sender.clone());
                tasks_within.spawn_once("scripted-connection", async move {
                    if let Ok(stream) = acceptor.accept(stream).await {
                        script(ScriptedConnection { stream, buffer: Vec::new(), connection, requests: received }).await;
                    }
                });
            }
        });
        Self { address, connections, requests: Mutex::new(received) }
    }

    /// Starts a peer that responds to every request.
    pub async fn start_responder<Answer>(tls: ServerConfig, tasks: &Tasks, respond: Answer) -> Self
    where
        Answer: Fn(&ReceivedRequest) -> String + Clone + Send + Sync + 'static,
    {
        Self::start(tls, tasks, move |mut visit| {
            let answer = respond.clone();
            async move {
                while let Some(received) = visit.read_request().await {
                    visit.write(&answer(&received)).await;
                }
            }
        })
        .await
    }

    /// Waits for the next request.
    pub async fn next_request(&self) -> ReceivedRequest {
        self.requests.lock().await.recv().await.expect("the peer outlives the test")
    }

    /// Takes the requests received so far.
    pub async fn take_requests(&self) -> Vec<ReceivedRequest> {
        let mut received = self.requests.lock().await;
        std::iter::from_fn(|| received.try_recv().ok()).collect()
    }

    /// Returns the number of accepted connections.
    pub fn connection_count(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

/// A connection accepted by a scripted peer.
pub struct ScriptedConnection {
    stream: TlsStream<TcpStream>,
    buffer: Vec<u8>,
    /// The connection's number, from 0.
    pub connection: usize,
    requests: mpsc::UnboundedSender<ReceivedRequest>,
}

impl ScriptedConnection {
    /// Reads a whole request; `None` when the connection is closed.
    pub async fn read_request(&mut self) -> Option<ReceivedRequest> {
        let mut received = self.read_head().await?;
        received.body = self.read_body(&received).await?;
        // The test may have ended already.
        let _ = self.requests.send(received.clone());
        Some(received)
    }

    /// Reads the head of a request.
    pub async fn read_head(&mut self) -> Option<ReceivedRequest> {
        let head = self.read_until(b"\r\n\r\n").await?;
        let mut lines = head.trim_end().lines();
        let line = lines.next()?.to_owned();
        let headers = lines.filter_map(|line| line.split_once(": "));
        let headers = headers.map(|(name, value)| (name.to_lowercase(), value.to_owned())).collect();
        Some(ReceivedRequest { connection: self.connection, request_line: line, headers, body: String::new() })
    }

    /// Reads one body chunk; the last one is empty.
    pub async fn read_chunk(&mut self) -> Option<String> {
        let size = self.read_until(b"\r\n").await?;
        let size = usize::from_str_radix(size.trim_end(), 16).ok()?;
        let mut chunk = self.read_exactly(size + 2).await?;
        chunk.truncate(size);
        Some(chunk)
    }

    async fn read_body(&mut self, received: &ReceivedRequest) -> Option<String> {
        if let [length] = received.header("content-length")[..] {
            return self.read_exactly(length.parse().ok()?).await;
        }
        let mut body = String::new();
        if received.header("transfer-encoding") != ["chunked"] {
            return Some(body);
        }
        loop {
            let chunk = self.read_chunk().await?;
            if chunk.is_empty() {
                return Some(body);
            }
            body.push_str(&chunk);
        }
    }

    /// Writes text; ignores a closed connection.
    pub async fn write(&mut self, text: &str) {
        let _ = self.stream.write_all(text.as_bytes()).await;
        let _ = self.stream.flush().await;
    }

    /// Waits until the client closes the connection.
    pub async fn wait_for_close(&mut self) {
        let mut rest = [0; 1024];
        while matches!(self.stream.read(&mut rest).await, Ok(length) if length > 0) {}
    }

    /// Reads `length` bytes.
    pub async fn read_exactly(&mut self, length: usize) -> Option<String> {
        while self.buffer.len() < length {
            self.fill_buffer().await?;
        }
        Some(self.take_from_buffer(length))
    }

    async fn read_until(&mut self, end: &[u8]) -> Option<String> {
        loop {
            if let Some(at) = self.buffer.windows(end.len()).position(|window| window == end) {
                return Some(self.take_from_buffer(at + end.len()));
            }
            self.fill_buffer().await?;
        }
    }

    async fn fill_buffer(&mut self) -> Option<()> {
        let read = self.stream.read_buf(&mut self.buffer).await.ok()?;
        (read > 0).then_some(())
    }

    fn take_from_buffer(&mut self, length: usize) -> String {
        let rest = self.buffer.split_off(length);
        let taken = std::mem::replace(&mut self.buffer, rest);
        String::from_utf8_lossy(&taken).into_owned()
    }
}

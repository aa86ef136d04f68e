//! A peer that says what it is told to say, over real TLS on a real socket: for tests of whoever connects to peers.

mod sharing;

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

use crate::Watched;
use crate::peer::{ClientFiles, Connector, Dialer};
use crate::pki::{Authority, Pair, Purpose};
use crate::server::serving;

pub use sharing::{Asked, SharingPeer};

/// Certificates of one authority, in a folder that the test owns.
pub struct Certificates {
    folder: PathBuf,
    authority: Authority,
}

impl Certificates {
    /// Makes them, or finds them.
    pub fn new(folder: &Path) -> Self {
        let authority = Authority::open(folder, "ca").expect("the folder can be written");
        Self { folder: folder.to_owned(), authority }
    }

    /// What a client shows and believes.
    pub fn client(&self) -> ClientFiles {
        let own = self.issue("proxy-client", &Purpose::Client);
        ClientFiles { authorities: self.authority.certificate().to_owned(), own: Some(own) }
    }

    /// What a peer shows.
    pub fn server(&self) -> ServerConfig {
        let pair = self.issue("serving", &Purpose::Serving { addresses: Vec::new(), names: Vec::new() });
        serving(&pair.certificate, &pair.key).expect("it was just made")
    }

    /// The folder that they are in.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Connections straight to peers, with these certificates.
    pub fn connector(&self) -> Arc<Connector> {
        let tls = self.client().read().expect("they were just made");
        Arc::new(Connector::new(Watched::fixed(tls), Dialer::direct()))
    }

    fn issue(&self, name: &str, purpose: &Purpose) -> Pair {
        self.authority.issue(name, name, None, purpose).expect("the folder can be written")
    }
}

/// A request as a peer heard it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heard {
    /// On which connection, from 0.
    pub connection: usize,
    /// The request line.
    pub line: String,
    /// The headers, in their order, names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: String,
}

impl Heard {
    /// All values of a header.
    pub fn header(&self, name: &str) -> Vec<&str> {
        self.headers.iter().filter(|(header, _)| header == name).map(|(_, value)| value.as_str()).collect()
    }
}

/// A peer that follows a script, of HTTP/1.1.
pub struct ScriptedPeer {
    /// Where it listens.
    pub address: SocketAddr,
    connections: Arc<AtomicUsize>,
    heard: Mutex<mpsc::UnboundedReceiver<Heard>>,
}

impl ScriptedPeer {
    /// A peer that plays `script` on every connection.
    pub async fn start<Play, Playing>(mut tls: ServerConfig, tasks: &Tasks, script: Play) -> Self
    where
        Play: Fn(Visit) -> Playing + Clone + Send + Sync + 'static,
        Playing: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let connections = Arc::new(AtomicUsize::new(0));
        let (sender, heard) = mpsc::unbounded_channel();
        tls.alpn_protocols = vec![b"http/1.1".to_vec()];
        let acceptor = TlsAcceptor::from(Arc::new(tls));
        let (count, tasks_within) = (connections.clone(), tasks.clone());
        tasks.spawn("scripted-peer", |stop| async move {
            while let Some(Ok((stream, _))) = stop.run_until_cancelled(listener.accept()).await {
                let connection = count.fetch_add(1, Ordering::SeqCst);
                let (acceptor, script, heard) = (acceptor.clone(), script.clone(), sender.clone());
                tasks_within.spawn_once("scripted-connection", async move {
                    if let Ok(stream) = acceptor.accept(stream).await {
                        script(Visit { stream, buffer: Vec::new(), connection, heard }).await;
                    }
                });
            }
        });
        Self { address, connections, heard: Mutex::new(heard) }
    }

    /// A peer that gives an answer to every request.
    pub async fn answering<Answer>(tls: ServerConfig, tasks: &Tasks, answer: Answer) -> Self
    where
        Answer: Fn(&Heard) -> String + Clone + Send + Sync + 'static,
    {
        Self::start(tls, tasks, move |mut visit| {
            let answer = answer.clone();
            async move {
                while let Some(heard) = visit.hear().await {
                    visit.say(&answer(&heard)).await;
                }
            }
        })
        .await
    }

    /// The next request that it heard.
    pub async fn heard(&self) -> Heard {
        self.heard.lock().await.recv().await.expect("the peer lives as long as its test")
    }

    /// What it has heard so far and was not asked for.
    pub async fn heard_so_far(&self) -> Vec<Heard> {
        let mut heard = self.heard.lock().await;
        std::iter::from_fn(|| heard.try_recv().ok()).collect()
    }

    /// How many connections were opened to it.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

/// One connection to a scripted peer.
pub struct Visit {
    stream: TlsStream<TcpStream>,
    buffer: Vec<u8>,
    /// Which connection it is, from 0.
    pub connection: usize,
    heard: mpsc::UnboundedSender<Heard>,
}

impl Visit {
    /// Reads a whole request; `None` at the end of the connection.
    pub async fn hear(&mut self) -> Option<Heard> {
        let mut heard = self.hear_head().await?;
        heard.body = self.body(&heard).await?;
        // A test that has ended does not listen any more.
        let _ = self.heard.send(heard.clone());
        Some(heard)
    }

    /// Reads the head of a request.
    pub async fn hear_head(&mut self) -> Option<Heard> {
        let head = self.until(b"\r\n\r\n").await?;
        let mut lines = head.trim_end().lines();
        let line = lines.next()?.to_owned();
        let headers = lines.filter_map(|line| line.split_once(": "));
        let headers = headers.map(|(name, value)| (name.to_lowercase(), value.to_owned())).collect();
        Some(Heard { connection: self.connection, line, headers, body: String::new() })
    }

    /// Reads a chunk of a body; the last one is empty.
    pub async fn hear_chunk(&mut self) -> Option<String> {
        let size = self.until(b"\r\n").await?;
        let size = usize::from_str_radix(size.trim_end(), 16).ok()?;
        let mut chunk = self.exactly(size + 2).await?;
        chunk.truncate(size);
        Some(chunk)
    }

    async fn body(&mut self, heard: &Heard) -> Option<String> {
        if let [length] = heard.header("content-length")[..] {
            return self.exactly(length.parse().ok()?).await;
        }
        let mut body = String::new();
        if heard.header("transfer-encoding") != ["chunked"] {
            return Some(body);
        }
        loop {
            let chunk = self.hear_chunk().await?;
            if chunk.is_empty() {
                return Some(body);
            }
            body.push_str(&chunk);
        }
    }

    /// Says this. That nobody listens is no fault.
    pub async fn say(&mut self, text: &str) {
        let _ = self.stream.write_all(text.as_bytes()).await;
        let _ = self.stream.flush().await;
    }

    /// Waits until the other side has closed the connection.
    pub async fn closed(&mut self) {
        let mut rest = [0; 1024];
        while matches!(self.stream.read(&mut rest).await, Ok(length) if length > 0) {}
    }

    /// Reads as many bytes.
    pub async fn exactly(&mut self, length: usize) -> Option<String> {
        while self.buffer.len() < length {
            self.more().await?;
        }
        Some(self.split(length))
    }

    async fn until(&mut self, end: &[u8]) -> Option<String> {
        loop {
            if let Some(at) = self.buffer.windows(end.len()).position(|window| window == end) {
                return Some(self.split(at + end.len()));
            }
            self.more().await?;
        }
    }

    async fn more(&mut self) -> Option<()> {
        let read = self.stream.read_buf(&mut self.buffer).await.ok()?;
        (read > 0).then_some(())
    }

    fn split(&mut self, length: usize) -> String {
        let rest = self.buffer.split_off(length);
        let taken = std::mem::replace(&mut self.buffer, rest);
        String::from_utf8_lossy(&taken).into_owned()
    }
}

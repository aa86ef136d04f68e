//! A peer that speaks HTTP/2, whose answers the test writes piece by piece.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderMap, Request, Response, Uri};
use http_body::{Body, Frame};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::ServerConfig;
use tasks::Tasks;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex, mpsc, watch};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// A peer that many answers share connections to.
pub struct SharingPeer {
    /// Where it listens.
    pub address: SocketAddr,
    connections: Arc<AtomicUsize>,
    asked: Mutex<mpsc::UnboundedReceiver<Asked>>,
    mood: watch::Sender<Mood>,
}

/// A request as the peer heard it, and the answer to it, of which the head was sent.
pub struct Asked {
    /// On which connection, from 0.
    pub connection: usize,
    /// Whether the other side showed a certificate on it.
    pub shows_certificate: bool,
    /// Its target.
    pub uri: Uri,
    /// Its headers.
    pub headers: HeaderMap,
    /// What is sent here is a piece of the answer; dropped, it ends. Closed when the other side does not want it any more.
    pub answer: mpsc::Sender<Bytes>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mood {
    Serving,
    Draining,
    Gone,
}

impl SharingPeer {
    /// A peer that allows so many answers on a connection.
    pub async fn start(tls: ServerConfig, tasks: &Tasks, streams_max: u32) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let connections = Arc::new(AtomicUsize::new(0));
        let (sender, asked) = mpsc::unbounded_channel();
        let (mood, moods) = watch::channel(Mood::Serving);
        let acceptor = TlsAcceptor::from(Arc::new(tls));
        let (count, within) = (connections.clone(), tasks.clone());
        tasks.spawn("sharing-peer", |stop| async move {
            while let Some(Ok((stream, _))) = stop.run_until_cancelled(listener.accept()).await {
                let connection = count.fetch_add(1, Ordering::SeqCst);
                // A connection is in the mood that there is from now on: one that is opened later serves.
                let mut moods = moods.clone();
                moods.mark_unchanged();
                let visit = Visit { connection, streams_max, asked: sender.clone(), moods };
                let acceptor = acceptor.clone();
                within.spawn_once("sharing-connection", async move {
                    if let Ok(stream) = acceptor.accept(stream).await {
                        visit.serve(stream).await;
                    }
                });
            }
        });
        Self { address, connections, asked: Mutex::new(asked), mood }
    }

    /// The next request.
    pub async fn asked(&self) -> Asked {
        self.asked.lock().await.recv().await.expect("the peer lives as long as its test")
    }

    /// How many connections were opened to it.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// Tells on every connection that there is that it takes nothing new, and goes on with what it has.
    pub fn drain(&self) {
        self.mood.send_replace(Mood::Draining);
    }

    /// Closes every connection that there is, without a word.
    pub fn cut(&self) {
        self.mood.send_replace(Mood::Gone);
    }
}

struct Visit {
    connection: usize,
    streams_max: u32,
    asked: mpsc::UnboundedSender<Asked>,
    moods: watch::Receiver<Mood>,
}

impl Visit {
    async fn serve(mut self, stream: TlsStream<TcpStream>) {
        let (connection, asked) = (self.connection, self.asked.clone());
        let shows_certificate = stream.get_ref().1.peer_certificates().is_some();
        let service = service_fn(move |request: Request<Incoming>| {
            let (answer, pieces) = mpsc::channel(1);
            let (head, _) = request.into_parts();
            // A test that has ended does not ask any more.
            let _ = asked.send(Asked { connection, shows_certificate, uri: head.uri, headers: head.headers, answer });
            async { Ok::<_, Infallible>(Response::new(Pieces(pieces))) }
        });
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder.max_concurrent_streams(self.streams_max);
        let mut serving = std::pin::pin!(builder.serve_connection(TokioIo::new(stream), service));
        loop {
            tokio::select! {
                _ended = serving.as_mut() => return,
                Ok(()) = self.moods.changed() => match *self.moods.borrow_and_update() {
                    Mood::Serving => {}
                    Mood::Draining => serving.as_mut().graceful_shutdown(),
                    Mood::Gone => return,
                },
            }
        }
    }
}

struct Pieces(mpsc::Receiver<Bytes>);

impl Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.get_mut().0.poll_recv(context).map(|piece| piece.map(|bytes| Ok(Frame::data(bytes))))
    }
}

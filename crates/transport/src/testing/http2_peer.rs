//! A scripted HTTP/2 peer whose response bodies the test writes chunk by chunk.

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

/// An HTTP/2 peer.
pub struct Http2Peer {
    /// The listening address.
    pub address: SocketAddr,
    connections: Arc<AtomicUsize>,
    exchanges: Mutex<mpsc::UnboundedReceiver<Http2Exchange>>,
    state: watch::Sender<Http2PeerState>,
}

/// A received request and its open response, whose head is sent.
pub struct Http2Exchange {
    /// The connection's number, from 0.
    pub connection: usize,
    /// True if the client presented a certificate.
    pub has_client_certificate: bool,
    /// The request target.
    pub uri: Uri,
    /// The request headers.
    pub headers: HeaderMap,
    /// Sends a chunk of the response; dropping it ends the response. Closed once the client resets the stream.
    pub response_body: mpsc::Sender<Bytes>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Http2PeerState {
    Serving,
    Draining,
    Closed,
}

impl Http2Peer {
    /// Starts a peer that allows `streams_max` streams per connection.
    pub async fn start(tls: ServerConfig, tasks: &Tasks, streams_max: u32) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("the listener is bound");
        let connections = Arc::new(AtomicUsize::new(0));
        let (sender, asked) = mpsc::unbounded_channel();
        let (mood, moods) = watch::channel(Http2PeerState::Serving);
        let acceptor = TlsAcceptor::from(Arc::new(tls));
        let (count, within) = (connections.clone(), tasks.clone());
        tasks.spawn("sharing-peer", |stop| async move {
            while let Some(Ok((stream, _))) = stop.run_until_cancelled(listener.accept()).await {
                let connection = count.fetch_add(1, Ordering::SeqCst);
                // Earlier drain and close commands do not affect new connections.
                let mut moods = moods.clone();
                moods.mark_unchanged();
                let visit = Http2PeerConnection { connection, streams_max, exchanges: sender.clone(), states: moods };
                let acceptor = acceptor.clone();
                within.spawn_once("sharing-connection", async move {
                    if let Ok(stream) = acceptor.accept(stream).await {
                        visit.serve(stream).await;
                    }
                });
            }
        });
        Self { address, connections, exchanges: Mutex::new(asked), state: mood }
    }

    /// Waits for the next request.
    pub async fn next_exchange(&self) -> Http2Exchange {
        self.exchanges.lock().await.recv().await.expect("the peer outlives the test")
    }

    /// Returns the number of accepted connections.
    pub fn connection_count(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// Sends GOAWAY on every open connection and continues their streams.
    pub fn drain(&self) {
        self.state.send_replace(Http2PeerState::Draining);
    }

    /// Closes every open connection without GOAWAY.
    pub fn close_abruptly(&self) {
        self.state.send_replace(Http2PeerState::Closed);
    }
}

struct Http2PeerConnection {
    connection: usize,
    streams_max: u32,
    exchanges: mpsc::UnboundedSender<Http2Exchange>,
    states: watch::Receiver<Http2PeerState>,
}

impl Http2PeerConnection {
    async fn serve(mut self, stream: TlsStream<TcpStream>) {
        let (connection, asked) = (self.connection, self.exchanges.clone());
        let shows_certificate = stream.get_ref().1.peer_certificates().is_some();
        let service = service_fn(move |request: Request<Incoming>| {
            let (answer, pieces) = mpsc::channel(1);
            let (head, _) = request.into_parts();
            // The test may have ended already.
            let _ = asked.send(Http2Exchange {
                connection,
                has_client_certificate: shows_certificate,
                uri: head.uri,
                headers: head.headers,
                response_body: answer,
            });
            async { Ok::<_, Infallible>(Response::new(ChannelBody(pieces))) }
        });
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder.max_concurrent_streams(self.streams_max);
        let mut serving = std::pin::pin!(builder.serve_connection(TokioIo::new(stream), service));
        loop {
            tokio::select! {
                _ended = serving.as_mut() => return,
                Ok(()) = self.states.changed() => match *self.states.borrow_and_update() {
                    Http2PeerState::Serving => {}
                    Http2PeerState::Draining => serving.as_mut().graceful_shutdown(),
                    Http2PeerState::Closed => return,
                },
            }
        }
    }
}

struct ChannelBody(mpsc::Receiver<Bytes>);

impl Body for ChannelBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.get_mut().0.poll_recv(context).map(|piece| piece.map(|bytes| Ok(Frame::data(bytes))))
    }
}

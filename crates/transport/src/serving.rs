//! Accepted connections, and all machinery that only makes them cheaper: the threads they live on, and writes that share a
//! system call.
//!
//! [`Acceptor`] assigns each connection to a worker: a thread with a single-threaded runtime. A task stays on its worker
//! with everything it awaits, so no queue is shared and no other thread is woken. The price is that a long computation
//! blocks every other connection of the worker, so such work belongs on the process-wide runtime. Other crates see no
//! worker; the pools of [`peer`](crate::peer) keep a connection on the runtime that uses it.

mod workers;
mod write_coalescer;

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tasks::Tasks;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

pub(crate) use workers::{RuntimeIndex, Workers};
pub use write_coalescer::WriteCoalescer;

/// The pause after a failed accept, so that the loop does not spin while file descriptors are exhausted.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(50);

/// A listener with the workers that its connections live on.
#[derive(Debug)]
pub struct Acceptor {
    listener: TcpListener,
    workers: Workers,
}

/// Reports whether the current thread is one that connections live on.
pub fn is_connection_thread() -> bool {
    RuntimeIndex::current().is_worker()
}

impl Acceptor {
    /// Starts one worker per available core.
    pub fn new(listener: TcpListener) -> io::Result<Self> {
        Ok(Self { listener, workers: Workers::start()? })
    }

    /// Runs `serve` for each connection, on the least loaded worker, until `stop`. Connections go on afterwards; stopping
    /// `tasks` waits for them.
    pub async fn run<Serving>(
        self,
        tasks: &Tasks,
        stop: &CancellationToken,
        serve: impl Fn(TcpStream, SocketAddr) -> Serving + Clone + Send + 'static,
    ) where
        Serving: Future<Output = ()> + Send + 'static,
    {
        while let Some(accepted) = stop.run_until_cancelled(self.listener.accept()).await {
            // Deregistered from this runtime; the worker registers the socket with its own.
            match accepted.and_then(|(stream, client)| Ok((stream.into_std()?, client))) {
                Ok((stream, client)) => {
                    let serve = serve.clone();
                    self.workers.spawn(tasks, "connection", async move {
                        match TcpStream::from_std(stream) {
                            Ok(stream) => serve(stream, client).await,
                            Err(error) => tracing::warn!(%client, %error, "failed to register a connection"),
                        }
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "failed to accept a connection");
                    tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
                }
            }
        }
    }
}

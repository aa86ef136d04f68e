//! The web page of a lab, on its own loopback port.
//!
//! *Invariant:* read-only. Rejects methods other than GET and HEAD, and hosts other than loopback, so that a foreign
//! web page cannot read it through DNS rebinding. Loads nothing from other origins.

mod events;
mod routes;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Empty, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tasks::Tasks;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;

use crate::lab::LabHandle;
use crate::status::LabSnapshot;
use routes::PageResponse;

/// A browser opens up to six connections per host; this allows for several browsers.
const CONNECTIONS_MAX: usize = 64;
/// A browser on the same machine sends its request at once.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// Delay after a failed accept; without it, running out of file descriptors would spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

type PageBody = UnsyncBoxBody<Bytes, Infallible>;

/// Spawns [`run`] for a lab.
pub(crate) fn spawn(listener: TcpListener, lab: &LabHandle) {
    let LabHandle { snapshots, tasks, stop, .. } = lab;
    tasks.spawn_once("page", run(listener, snapshots.clone(), tasks.clone(), stop.clone()));
}

/// Serves the page and the snapshots until `stop` is cancelled. Closes a connection at once above `CONNECTIONS_MAX`.
pub async fn run(
    listener: TcpListener,
    snapshots: watch::Receiver<Arc<LabSnapshot>>,
    tasks: Tasks,
    stop: CancellationToken,
) {
    let permits = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    while let Some(accepted) = stop.run_until_cancelled(listener.accept()).await {
        let Ok((stream, _)) = accepted else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        // Dropping the stream closes the connection; the browser retries.
        let Ok(permit) = permits.clone().try_acquire_owned() else { continue };
        let (snapshots, stop) = (snapshots.clone(), stop.clone());
        tasks.spawn_once("page", async move {
            stop.run_until_cancelled(serve(stream, &snapshots, &stop)).await;
            drop(permit);
        });
    }
}

async fn serve(stream: TcpStream, snapshots: &watch::Receiver<Arc<LabSnapshot>>, stop: &CancellationToken) {
    let _ = stream.set_nodelay(true);
    let service = service_fn(|request: Request<Incoming>| {
        let response = build_response(request.method(), request.uri().path(), request.headers(), snapshots, stop);
        async { Ok::<_, Infallible>(response) }
    });
    let mut server = hyper::server::conn::http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT);
    // Closing the browser tab breaks the connection: not an error.
    let _ = server.serve_connection(TokioIo::new(stream), service).await;
}

fn build_response(
    method: &Method,
    path: &str,
    headers: &HeaderMap,
    snapshots: &watch::Receiver<Arc<LabSnapshot>>,
    stop: &CancellationToken,
) -> Response<PageBody> {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let found = routes::route(method, path, host);
    let mut response = Response::new(match found {
        _ if method == Method::HEAD => Empty::new().boxed_unsync(),
        PageResponse::File { text, .. } => Full::new(Bytes::from_static(text.as_bytes())).boxed_unsync(),
        PageResponse::Snapshot => Full::new(Bytes::from(to_json(&snapshots.borrow().clone()))).boxed_unsync(),
        PageResponse::Events => events::event_stream_body(snapshots.clone(), stop.clone()).boxed_unsync(),
        PageResponse::Rejected { message: why, .. } => Full::new(Bytes::from_static(why.as_bytes())).boxed_unsync(),
    });
    *response.status_mut() = found.status();
    *response.headers_mut() = found.headers();
    response
}

/// Serializes the snapshot in one line, as event streams require.
fn to_json(snapshot: &LabSnapshot) -> String {
    serde_json::to_string(snapshot).expect("snapshot serializes to JSON")
}

#[cfg(test)]
mod tests;

//! The page: the lab in a browser, on a loopback port of its own.
//!
//! *Invariant:* it only shows. Whatever is no reading is refused, and so is a request under a name that is not this machine's, or
//! a page of somebody else could read along by pointing its own name here. It needs nothing from anywhere else.

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

/// A browser opens six to one host; more than a few people looking at once have no business here.
const CONNECTIONS_MAX: usize = 64;
/// A browser on the same machine sends its request at once.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// The pause after a failed accept: out of file descriptors, it would otherwise spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Never sent with an error: what we show is made here.
type PageBody = UnsyncBoxBody<Bytes, Infallible>;

/// Shows a lab until it ends.
pub(crate) fn spawn(listener: TcpListener, lab: &LabHandle) {
    let LabHandle { snapshots, tasks, stop, .. } = lab;
    tasks.spawn_once("page", run(listener, snapshots.clone(), tasks.clone(), stop.clone()));
}

/// Shows the snapshots to whoever connects, until `stop`.
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
        // Without a permit the connection ends here, and the browser tries again.
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
    // A browser that closes its tab ends the connection in the middle: that is how all of them end.
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

/// The snapshot as programs read it, in one line.
fn to_json(snapshot: &LabSnapshot) -> String {
    serde_json::to_string(snapshot).expect("it is made of strings and numbers")
}

#[cfg(test)]
mod tests;

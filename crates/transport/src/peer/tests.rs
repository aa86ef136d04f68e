use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response};
use http_body_util::{BodyExt as _, Full};
use tasks::Tasks;

use super::*;
use crate::Watched;
use crate::pki::{Authority, Pair, Purpose};
use crate::testing::{Asked, Certificates, Heard, ScriptedPeer, SharingPeer};

mod certificates;
mod lines;
mod sharing;
mod ways;

/// Long enough for a loaded machine, and only ever waited for by a test that fails.
const ENOUGH: Duration = Duration::from_secs(30);

fn get(path: &str) -> Request<RequestBody> {
    let request = Request::builder().method(Method::GET).uri(path).header("host", "peer");
    request.body(RequestBody::empty()).unwrap()
}

fn ok(heard: &Heard) -> String {
    let body = format!("{} on {}", heard.line, heard.connection);
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

async fn text(response: Response<PeerBody>) -> String {
    let body = response.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(body.to_vec()).unwrap()
}

fn pool(connector: Arc<Connector>, peer: &ScriptedPeer) -> Arc<Pool> {
    Pool::new(connector, "127.0.0.1", peer.address.port(), PoolLimits::default())
}

async fn ask(pool: &Arc<Pool>, path: &str) -> Response<PeerBody> {
    let line = match pool.take() {
        Some(line) => line,
        None => pool.open(ENOUGH).await.unwrap(),
    };
    line.send(get(path)).await.unwrap()
}

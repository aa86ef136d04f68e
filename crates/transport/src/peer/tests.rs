use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response};
use http_body_util::{BodyExt as _, Full};
use tasks::Tasks;

use super::*;
use crate::Reloading;
use crate::pki::{CertificateAuthority, CertificateFiles, CertificateUsage};
use crate::testing::{Http2Exchange, Http2Peer, ReceivedRequest, ScriptedPeer, TestCertificates};

mod certificates;
mod egress_proxy;
mod http2_streams;
mod pooling;

/// Long enough for a loaded machine; only a failing test waits this long.
const TEST_TIMEOUT: Duration = Duration::from_secs(30);

fn get(path: &str) -> Request<RequestBody> {
    let request = Request::builder().method(Method::GET).uri(path).header("host", "peer");
    request.body(RequestBody::empty()).unwrap()
}

fn ok_response(received: &ReceivedRequest) -> String {
    let body = format!("{} on {}", received.request_line, received.connection);
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

async fn body_text(response: Response<PeerBody>) -> String {
    let body = response.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(body.to_vec()).unwrap()
}

fn pool(connector: Arc<Connector>, peer: &ScriptedPeer) -> Arc<ConnectionPool> {
    ConnectionPool::new(connector, "127.0.0.1", peer.address.port(), PoolLimits::default())
}

async fn send_get(pool: &Arc<ConnectionPool>, path: &str) -> Response<PeerBody> {
    let line = match pool.take_idle() {
        Some(line) => line,
        None => pool.open(TEST_TIMEOUT).await.unwrap(),
    };
    line.send(get(path)).await.unwrap()
}

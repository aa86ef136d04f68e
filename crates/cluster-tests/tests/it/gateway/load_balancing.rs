//! Load balancing of single requests.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Empty};
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};

use super::*;

pub(super) async fn connect_http2(client: &Client) -> SendRequest<Empty<Bytes>> {
    let stream = client.tls_stream(Some(b"h2")).await.unwrap();
    let (sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    #[expect(clippy::disallowed_methods, reason = "the task ends with the connection")]
    tokio::spawn(connection);
    sender
}

/// Name of the server that serves a request on this connection.
async fn served_by_on_connection(connection: &mut SendRequest<Empty<Bytes>>, path: &str) -> String {
    let request = Request::get(format!("https://gateway{path}")).body(Empty::new()).unwrap();
    let response = connection.send_request(request).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK, "{path}");
    let server = response.headers()["x-unskew-served-by"].to_str().unwrap().to_owned();
    response.into_body().collect().await.unwrap();
    server
}

fn start_three_stock_servers() -> ControlPlane<'static> {
    let mut plane = ControlPlane::new(TestStore::Sqlite);
    for name in ["a", "b", "c"] {
        plane.start(name, &[PEER_PROXY_OFF]);
    }
    plane
}

#[test]
fn requests_of_one_connection_are_balanced_over_all_servers() {
    let plane = start_three_stock_servers();
    let gateway = RunningGateway::start("gateway", &plane, &["a", "b", "c"], &[]);
    block_on(async {
        let mut connection = connect_http2(&gateway.admin()).await;
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for _ in 0..100 {
            *counts.entry(served_by_on_connection(&mut connection, "/api/v1/namespaces/default").await).or_default() +=
                1;
        }
        assert_eq!(counts.len(), 3, "{counts:?}");
        assert!(counts.values().all(|count| *count >= 20), "{counts:?}");
    });
}

#[test]
fn reads_at_a_resource_version_stay_on_one_server() {
    let plane = start_three_stock_servers();
    let gateway = RunningGateway::start("gateway", &plane, &["a", "b", "c"], &[]);
    block_on(async {
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..6 {
            let mut connection = connect_http2(&gateway.admin()).await;
            let first = served_by_on_connection(&mut connection, "/api/v1/namespaces?resourceVersion=0").await;
            for turn in 0..5 {
                let plain = served_by_on_connection(&mut connection, "/api/v1/namespaces").await;
                let named = served_by_on_connection(&mut connection, "/api/v1/configmaps?resourceVersion=1").await;
                assert_eq!(named, first, "turn {turn}, while plain reads go to {plain}");
            }
            seen.insert(first);
        }
        assert!(seen.len() > 1, "connections are still spread: {seen:?}");
    });
}

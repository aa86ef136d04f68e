//! exec, attach, port-forward and logs forwarded to a peer: the user is passed on, bytes flow both ways, and either
//! side notices when the other disconnects.

mod backends;

use std::time::Duration;

use cluster_tests::client::ClientCredentials;
use cluster_tests::scripted_members::{ScriptedDiscovery, ScriptedMembers, http_response};
use cluster_tests::wait::{eventually, metric_value};
use cluster_tests::{Client, ControlPlane};
use http_body_util::BodyExt as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_rustls::client::TlsStream;
use transport::pki::{CertificateAuthority, CertificateUsage};
use transport::testing::{ReceivedRequest, ScriptedConnection, ScriptedPeer};

use crate::*;

const POD_PATH: &str = "/api/v1/namespaces/default/pods/p";
/// Prevents a hanging server from hanging the test run.
const STREAM_TIMEOUT: Duration = Duration::from_secs(60);

/// A scripted peer that serves pod subresources.
struct PodStreamsPeer {
    peer: ScriptedPeer,
    /// Request lines of connections that the other side has closed.
    closed: mpsc::UnboundedReceiver<String>,
}

impl PodStreamsPeer {
    async fn start(stage: &ScriptedMembers) -> Self {
        let listing =
            ScriptedDiscovery::default().with_resource("", "v1", "pods", &["attach", "exec", "log", "portforward"]);
        let (sender, closed) = mpsc::unbounded_channel();
        let script = move |mut visit: ScriptedConnection| {
            let (listing, sender) = (listing.clone(), sender.clone());
            async move {
                while let Some(received) = visit.read_request().await {
                    if let Some(whole) = listing.respond(&received).or_else(|| refused_pod_response(&received)) {
                        visit.write(&whole).await;
                        continue;
                    }
                    serve_pod_stream(&mut visit, &received).await;
                    visit.wait_for_close().await;
                    // The receiver may be gone when the test has ended.
                    let _ = sender.send(received.request_line);
                    return;
                }
            }
        };
        Self { peer: stage.start_peer(script).await, closed }
    }

    /// Returns the next request for a pod subresource.
    async fn next_pod_request(&self) -> ReceivedRequest {
        loop {
            let received =
                tokio::time::timeout(STREAM_TIMEOUT, self.peer.next_request()).await.expect("the request arrives");
            if received.request_line.contains("/pods/") {
                return received;
            }
        }
    }

    async fn next_closed_request(&mut self) -> String {
        tokio::time::timeout(STREAM_TIMEOUT, self.closed.recv()).await.expect("the connection is closed").unwrap()
    }
}

/// Response for the pod `refused`: 400 without upgrade.
fn refused_pod_response(received: &ReceivedRequest) -> Option<String> {
    let status = r#"{"kind":"Status","apiVersion":"v1","status":"Failure","message":"no shell here","code":400}"#;
    received
        .request_line
        .contains("/pods/refused/")
        .then(|| http_response("400 Bad Request", "application/json", status))
}

async fn serve_pod_stream(visit: &mut ScriptedConnection, received: &ReceivedRequest) {
    if received.request_line.contains("/log") {
        visit.write("HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ntransfer-encoding: chunked\r\n\r\n").await;
        return visit.write("6\r\nfirst\n\r\n").await;
    }
    let protocol = received.header("upgrade").join(",");
    if protocol.is_empty() {
        return;
    }
    visit
        .write(&format!(
            "HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\nupgrade: {protocol}\r\nx-stream-protocol-version: \
             v4.channel.k8s.io\r\n\r\nhello"
        ))
        .await;
    while let Some(word) = visit.read_exactly(4).await {
        visit.write(&word.to_uppercase()).await;
        if word == "quit" {
            return;
        }
    }
}

/// Adds the scripted peer to the server `one` and grants jane the pod subresources. Returns the peer and jane's client.
async fn start_peer_with_pod_streams(plane: &ControlPlane<'_>) -> (PodStreamsPeer, Client) {
    let admin = plane.admin("one");
    let stage = ScriptedMembers::connect(plane).await;
    let kubelets = PodStreamsPeer::start(&stage).await;
    assert_eq!(admin.get(&format!("{POD_PATH}/log")).await.status, 501, "no member serves it yet");
    stage.add_member(&admin, "apiserver-kubelets", kubelets.peer.address).await;
    let role = json!({
        "metadata": {"name": "shells"},
        "rules": [{"verbs": ["*"], "apiGroups": [""], "resources": ["pods/attach", "pods/exec", "pods/log", "pods/portforward"]}],
    });
    assert_eq!(admin.create("/apis/rbac.authorization.k8s.io/v1/clusterroles", &role).await.status, 201);
    let binding = json!({
        "metadata": {"name": "shells"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "shells"},
        "subjects": [{"kind": "Group", "name": "operators", "apiGroup": "rbac.authorization.k8s.io"}],
    });
    assert_eq!(admin.create("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", &binding).await.status, 201);
    let server = plane.server("one");
    let authority = CertificateAuthority::open_or_create(&server.pki(), "ca").unwrap();
    let pair = authority.open_or_issue("jane", "jane", Some("operators"), &CertificateUsage::Client).unwrap();
    let jane = server.client_with(ClientCredentials::Certificate { certificate: pair.certificate, key: pair.key });
    let refused = "/api/v1/namespaces/default/pods/refused/exec";
    let is_known = async || match jane.get(refused).await.status.as_u16() {
        400 => Ok(()),
        other => Err(other.to_string()),
    };
    eventually("the member is discovered and jane is authorized", is_known).await;
    (kubelets, jane)
}

/// Requests an upgrade as `jane` with forged identity headers. Returns the response head and the stream.
async fn request_upgrade(client: &Client, method: &str, path: &str, protocol: &str) -> (String, TlsStream<TcpStream>) {
    let mut stream = client.tls_stream(None).await.unwrap();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: keep-alive, Upgrade\r\nupgrade: {protocol}\r\n\
         sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nsec-websocket-version: 13\r\n\
         sec-websocket-protocol: v5.channel.k8s.io\r\nx-remote-user: kubernetes-admin\r\nx-remote-group: system:masters\r\n\
         x-stream-protocol-version: v4.channel.k8s.io\r\nx-stream-protocol-version: v3.channel.k8s.io\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answered = Vec::new();
    while !answered.ends_with(b"\r\n\r\n") {
        let byte = tokio::time::timeout(STREAM_TIMEOUT, stream.read_u8()).await.expect("a response arrives").unwrap();
        answered.push(byte);
    }
    (String::from_utf8(answered).unwrap(), stream)
}

async fn read_text(stream: &mut TlsStream<TcpStream>, length: usize) -> String {
    let mut bytes = vec![0; length];
    tokio::time::timeout(STREAM_TIMEOUT, stream.read_exact(&mut bytes)).await.expect("bytes arrive in time").unwrap();
    String::from_utf8(bytes).unwrap()
}

#[track_caller]
fn check_forwarded_for_jane(received: &ReceivedRequest, line: &str, protocol: &str) {
    assert_eq!(received.request_line, format!("{line} HTTP/1.1"));
    assert_eq!(received.header("x-remote-user"), ["jane"]);
    assert_eq!(received.header("x-remote-group"), ["operators", "system:authenticated"]);
    assert_eq!(received.header("x-kubernetes-peer-proxied"), ["true"]);
    assert_eq!(received.header("upgrade"), [protocol]);
    assert_eq!(received.header("connection").join(",").to_lowercase(), "upgrade");
    assert_eq!(received.header("x-stream-protocol-version"), ["v4.channel.k8s.io", "v3.channel.k8s.io"]);
    assert!(received.header("authorization").is_empty());
}

#[test]
fn upgraded_connection_forwards_user_and_bytes_both_ways() {
    let mut plane = ControlPlane::new(TestStore::Sqlite);
    plane.start("one", &[]);
    block_on(async {
        let (mut kubelets, jane) = start_peer_with_pod_streams(&plane).await;
        while kubelets.closed.try_recv().is_ok() {}
        kubelets.peer.take_requests().await;
        let mut count = 0;
        for (method, part, protocol) in [
            ("GET", "exec?command=sh&command=-c&stdin=true&tty=%2F", "websocket"),
            ("POST", "exec?command=sh&stdin=true", "SPDY/3.1"),
            ("POST", "attach?stdin=true", "SPDY/3.1"),
            ("GET", "portforward?ports=80", "websocket"),
        ] {
            let path = format!("{POD_PATH}/{part}");
            let (answered, mut stream) = request_upgrade(&jane, method, &path, protocol).await;
            assert!(answered.starts_with("HTTP/1.1 101 "), "{answered}");
            assert!(
                answered.to_lowercase().contains(&format!("upgrade: {}\r\n", protocol.to_lowercase())),
                "{answered}"
            );
            check_forwarded_for_jane(&kubelets.next_pod_request().await, &format!("{method} {path}"), protocol);
            assert_eq!(read_text(&mut stream, 5).await, "hello", "bytes right after the response head are not lost");
            for word in ["ping", "more"] {
                stream.write_all(word.as_bytes()).await.unwrap();
                assert_eq!(read_text(&mut stream, 4).await, word.to_uppercase());
            }
            if count % 2 == 0 {
                // The client disconnects, and the peer notices.
                drop(stream);
                assert!(kubelets.next_closed_request().await.contains(&path));
            } else {
                // The client shuts down its writing side and still receives pending bytes.
                stream.write_all(b"quit").await.unwrap();
                assert_eq!(read_text(&mut stream, 4).await, "QUIT");
                stream.shutdown().await.unwrap();
                assert!(kubelets.next_closed_request().await.contains(&path));
            }
            count += 1;
        }
        let series = "apiserver_rerouted_request_total{code=\"101\",group=\"\",resource=\"pods\",version=\"v1\"}";
        assert_eq!(
            metric_value(&plane.admin("one"), series).await,
            count,
            "an upgraded connection is counted with status 101"
        );
    });
}

#[test]
fn refused_upgrade_returns_the_response_of_the_peer() {
    let mut plane = ControlPlane::new(TestStore::Sqlite);
    plane.start("one", &[]);
    block_on(async {
        let (_kubelets, jane) = start_peer_with_pod_streams(&plane).await;
        let path = "/api/v1/namespaces/default/pods/refused/exec?command=sh";
        let (answered, mut stream) = request_upgrade(&jane, "GET", path, "websocket").await;
        assert!(answered.starts_with("HTTP/1.1 400 "), "{answered}");
        assert!(read_text(&mut stream, 40).await.contains("Status"));
        // The server rejects an unauthorized upgrade itself; the peer does not see it.
        let anonymous = plane.server("one").client_with(ClientCredentials::Anonymous);
        let (answered, _stream) = request_upgrade(&anonymous, "GET", path, "websocket").await;
        assert!(answered.starts_with("HTTP/1.1 403 "), "{answered}");
    });
}

#[test]
fn followed_log_is_streamed_and_closed_with_the_client() {
    let mut plane = ControlPlane::new(TestStore::Sqlite);
    plane.start("one", &[]);
    block_on(async {
        let (mut kubelets, jane) = start_peer_with_pod_streams(&plane).await;
        while kubelets.closed.try_recv().is_ok() {}
        let path = format!("{POD_PATH}/log?follow=true");
        let mut log =
            jane.send_streaming(jane.request_builder(http::Method::GET, &path), bytes::Bytes::new()).await.into_body();
        let first =
            tokio::time::timeout(STREAM_TIMEOUT, log.frame()).await.expect("a line arrives at once").unwrap().unwrap();
        assert_eq!(first.into_data().unwrap(), "first\n");
        drop(log);
        assert!(kubelets.next_closed_request().await.contains(&path), "the peer sees the disconnect");
    });
}

#[test]
fn client_disconnect_closes_the_connection_to_the_peer() {
    let mut plane = ControlPlane::new(TestStore::Sqlite);
    plane.start("one", &[]);
    block_on(async {
        let (mut kubelets, jane) = start_peer_with_pod_streams(&plane).await;
        while kubelets.closed.try_recv().is_ok() {}
        kubelets.peer.take_requests().await;
        let path = format!("{POD_PATH}/attach");
        let mut stream = jane.tls_stream(None).await.unwrap();
        stream
            .write_all(format!("POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n").as_bytes())
            .await
            .unwrap();
        assert!(kubelets.next_pod_request().await.request_line.contains(&path), "the request is waiting at the peer");
        drop(stream);
        assert!(kubelets.next_closed_request().await.contains(&path));
    });
}

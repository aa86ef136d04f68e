//! Shells, port-forwards and logs through a server to a member that has them: the user travels along, bytes go both ways, and
//! whoever leaves is missed at the other end.

mod backends;

use std::time::Duration;

use cluster_tests::client::Identity;
use cluster_tests::scripted::{Listing, Stage, answer};
use cluster_tests::wait::{eventually, figure};
use cluster_tests::{Client, ControlPlane};
use http_body_util::BodyExt as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_rustls::client::TlsStream;
use transport::pki::{Authority, Purpose};
use transport::testing::{Heard, ScriptedPeer, Visit};

use super::*;

const POD: &str = "/api/v1/namespaces/default/pods/p";
/// A hanging server must not hang the run.
const PATIENCE: Duration = Duration::from_secs(60);

/// A member that has what pods have beyond storage.
struct Kubelets {
    peer: ScriptedPeer,
    /// Connections that the other side has closed, by what was asked for on them.
    closed: mpsc::UnboundedReceiver<String>,
}

impl Kubelets {
    async fn start(stage: &Stage) -> Self {
        let listing = Listing::default().with("", "v1", "pods", &["attach", "exec", "log", "portforward"]);
        let (sender, closed) = mpsc::unbounded_channel();
        let script = move |mut visit: Visit| {
            let (listing, sender) = (listing.clone(), sender.clone());
            async move {
                while let Some(heard) = visit.hear().await {
                    if let Some(whole) = listing.answer(&heard).or_else(|| refusal(&heard)) {
                        visit.say(&whole).await;
                        continue;
                    }
                    serve(&mut visit, &heard).await;
                    visit.closed().await;
                    // A test that has ended does not listen any more.
                    let _ = sender.send(heard.line);
                    return;
                }
            }
        };
        Self { peer: stage.peer(script).await, closed }
    }

    /// The next request for a pod's part.
    async fn heard(&self) -> Heard {
        loop {
            let heard = tokio::time::timeout(PATIENCE, self.peer.heard()).await.expect("the request arrives");
            if heard.line.contains("/pods/") {
                return heard;
            }
        }
    }

    async fn was_left(&mut self) -> String {
        tokio::time::timeout(PATIENCE, self.closed.recv()).await.expect("the connection is closed").unwrap()
    }
}

/// What is said of a pod that has none of it.
fn refusal(heard: &Heard) -> Option<String> {
    let status = r#"{"kind":"Status","apiVersion":"v1","status":"Failure","message":"no shell here","code":400}"#;
    heard.line.contains("/pods/refused/").then(|| answer("400 Bad Request", "application/json", status))
}

async fn serve(visit: &mut Visit, heard: &Heard) {
    if heard.line.contains("/log") {
        visit.say("HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ntransfer-encoding: chunked\r\n\r\n").await;
        return visit.say("6\r\nfirst\n\r\n").await;
    }
    let protocol = heard.header("upgrade").join(",");
    if protocol.is_empty() {
        return;
    }
    visit
        .say(&format!(
            "HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\nupgrade: {protocol}\r\nx-stream-protocol-version: \
             v4.channel.k8s.io\r\n\r\nhello"
        ))
        .await;
    while let Some(word) = visit.exactly(4).await {
        visit.say(&word.to_uppercase()).await;
        if word == "quit" {
            return;
        }
    }
}

/// A server beside such a member, and a user who may do all that.
async fn set_up(plane: &ControlPlane<'_>) -> (Kubelets, Client) {
    let admin = plane.admin("one");
    let stage = Stage::open(plane).await;
    let kubelets = Kubelets::start(&stage).await;
    assert_eq!(admin.get(&format!("{POD}/log")).await.status, 501, "nobody has it yet");
    stage.admit(&admin, "apiserver-kubelets", kubelets.peer.address).await;
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
    let authority = Authority::open(&server.pki(), "ca").unwrap();
    let pair = authority.issue("jane", "jane", Some("operators"), &Purpose::Client).unwrap();
    let jane = server.client(Identity::Certificate { certificate: pair.certificate, key: pair.key });
    let refused = "/api/v1/namespaces/default/pods/refused/exec";
    let is_known = async || match jane.get(refused).await.status.as_u16() {
        400 => Ok(()),
        other => Err(other.to_string()),
    };
    eventually("the member is known and jane may", is_known).await;
    (kubelets, jane)
}

/// Asks for an upgrade as `jane`, and claims to be somebody else.
async fn upgrade(client: &Client, method: &str, path: &str, protocol: &str) -> (String, TlsStream<TcpStream>) {
    let mut stream = client.stream(None).await.unwrap();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: keep-alive, Upgrade\r\nupgrade: {protocol}\r\n\
         sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nsec-websocket-version: 13\r\n\
         sec-websocket-protocol: v5.channel.k8s.io\r\nx-remote-user: kubernetes-admin\r\nx-remote-group: system:masters\r\n\
         x-stream-protocol-version: v4.channel.k8s.io\r\nx-stream-protocol-version: v3.channel.k8s.io\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answered = Vec::new();
    while !answered.ends_with(b"\r\n\r\n") {
        let byte = tokio::time::timeout(PATIENCE, stream.read_u8()).await.expect("an answer comes").unwrap();
        answered.push(byte);
    }
    (String::from_utf8(answered).unwrap(), stream)
}

async fn read(stream: &mut TlsStream<TcpStream>, length: usize) -> String {
    let mut bytes = vec![0; length];
    tokio::time::timeout(PATIENCE, stream.read_exact(&mut bytes)).await.expect("bytes come in time").unwrap();
    String::from_utf8(bytes).unwrap()
}

#[track_caller]
fn is_of_jane(heard: &Heard, line: &str, protocol: &str) {
    assert_eq!(heard.line, format!("{line} HTTP/1.1"));
    assert_eq!(heard.header("x-remote-user"), ["jane"]);
    assert_eq!(heard.header("x-remote-group"), ["operators", "system:authenticated"]);
    assert_eq!(heard.header("x-kubernetes-peer-proxied"), ["true"]);
    assert_eq!(heard.header("upgrade"), [protocol]);
    assert_eq!(heard.header("connection").join(",").to_lowercase(), "upgrade");
    assert_eq!(heard.header("x-stream-protocol-version"), ["v4.channel.k8s.io", "v3.channel.k8s.io"]);
    assert!(heard.header("authorization").is_empty());
}

#[test]
fn upgraded_connections_carry_the_user_and_bytes_both_ways() {
    let mut plane = ControlPlane::new(Store::Sqlite);
    plane.start("one", &[]);
    block_on(async {
        let (mut kubelets, jane) = set_up(&plane).await;
        while kubelets.closed.try_recv().is_ok() {}
        kubelets.peer.heard_so_far().await;
        let mut count = 0;
        for (method, part, protocol) in [
            ("GET", "exec?command=sh&command=-c&stdin=true&tty=%2F", "websocket"),
            ("POST", "exec?command=sh&stdin=true", "SPDY/3.1"),
            ("POST", "attach?stdin=true", "SPDY/3.1"),
            ("GET", "portforward?ports=80", "websocket"),
        ] {
            let path = format!("{POD}/{part}");
            let (answered, mut stream) = upgrade(&jane, method, &path, protocol).await;
            assert!(answered.starts_with("HTTP/1.1 101 "), "{answered}");
            assert!(
                answered.to_lowercase().contains(&format!("upgrade: {}\r\n", protocol.to_lowercase())),
                "{answered}"
            );
            is_of_jane(&kubelets.heard().await, &format!("{method} {path}"), protocol);
            assert_eq!(read(&mut stream, 5).await, "hello", "what comes right behind the head is not lost");
            for word in ["ping", "more"] {
                stream.write_all(word.as_bytes()).await.unwrap();
                assert_eq!(read(&mut stream, 4).await, word.to_uppercase());
            }
            if count % 2 == 0 {
                // The client leaves, and the member learns of it.
                drop(stream);
                assert!(kubelets.was_left().await.contains(&path));
            } else {
                // The client says that it is done, and still gets what is under way.
                stream.write_all(b"quit").await.unwrap();
                assert_eq!(read(&mut stream, 4).await, "QUIT");
                stream.shutdown().await.unwrap();
                assert!(kubelets.was_left().await.contains(&path));
            }
            count += 1;
        }
        let series = "apiserver_rerouted_request_total{code=\"101\",group=\"\",resource=\"pods\",version=\"v1\"}";
        assert_eq!(figure(&plane.admin("one"), series).await, count, "an upgraded connection is counted with its code");
    });
}

#[test]
fn a_refused_upgrade_is_the_members_answer() {
    let mut plane = ControlPlane::new(Store::Sqlite);
    plane.start("one", &[]);
    block_on(async {
        let (_kubelets, jane) = set_up(&plane).await;
        let path = "/api/v1/namespaces/default/pods/refused/exec?command=sh";
        let (answered, mut stream) = upgrade(&jane, "GET", path, "websocket").await;
        assert!(answered.starts_with("HTTP/1.1 400 "), "{answered}");
        assert!(read(&mut stream, 40).await.contains("Status"));
        // Who may not, may not: the member never hears of it.
        let nobody = plane.server("one").client(Identity::Nobody);
        let (answered, _stream) = upgrade(&nobody, "GET", path, "websocket").await;
        assert!(answered.starts_with("HTTP/1.1 403 "), "{answered}");
    });
}

#[test]
fn a_log_is_followed_line_by_line_and_left_by_leaving() {
    let mut plane = ControlPlane::new(Store::Sqlite);
    plane.start("one", &[]);
    block_on(async {
        let (mut kubelets, jane) = set_up(&plane).await;
        while kubelets.closed.try_recv().is_ok() {}
        let path = format!("{POD}/log?follow=true");
        let mut log = jane.open(jane.request(http::Method::GET, &path), bytes::Bytes::new()).await.into_body();
        let first = tokio::time::timeout(PATIENCE, log.frame()).await.expect("a line comes at once").unwrap().unwrap();
        assert_eq!(first.into_data().unwrap(), "first\n");
        drop(log);
        assert!(kubelets.was_left().await.contains(&path), "the member may stop");
    });
}

#[test]
fn a_client_that_gives_up_waiting_is_missed_by_the_member() {
    let mut plane = ControlPlane::new(Store::Sqlite);
    plane.start("one", &[]);
    block_on(async {
        let (mut kubelets, jane) = set_up(&plane).await;
        while kubelets.closed.try_recv().is_ok() {}
        kubelets.peer.heard_so_far().await;
        let path = format!("{POD}/attach");
        let mut stream = jane.stream(None).await.unwrap();
        stream
            .write_all(format!("POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n").as_bytes())
            .await
            .unwrap();
        assert!(kubelets.heard().await.line.contains(&path), "it is with the member, which does not answer");
        drop(stream);
        assert!(kubelets.was_left().await.contains(&path));
    });
}

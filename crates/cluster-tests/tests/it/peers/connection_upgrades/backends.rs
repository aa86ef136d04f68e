//! Responses of kubelets and pods behind a peer are passed on unchanged, never requested twice, and not counted as
//! failures of the peer.

use super::*;

/// Scripted kubelet whose behaviour depends on the pod's name: `s404` returns that status, `torn` breaks the
/// connection.
async fn run_kubelet(mut visit: ScriptedConnection, listing: ScriptedDiscovery) {
    while let Some(received) = visit.read_request().await {
        if let Some(document) = listing.respond(&received) {
            visit.write(&document).await;
            continue;
        }
        let pod = received.request_line.split('/').nth(6).unwrap_or_default();
        let Some(status) = pod.strip_prefix('s') else { return };
        // kube-apiserver hijacks the connection of an upgrade and closes it after the kubelet's response.
        visit.write(&http_response(&format!("{status} Said"), "text/plain", &kubelet_response(status))).await;
        if !received.header("upgrade").is_empty() {
            return;
        }
    }
}

fn kubelet_response(status: &str) -> String {
    format!("the kubelet says {status}")
}

/// Adds two scripted members that can reach the kubelets.
async fn start_members_with_kubelets(plane: &ControlPlane<'_>) -> [ScriptedPeer; 2] {
    let admin = plane.admin("one");
    let stage = ScriptedMembers::connect(plane).await;
    let parts = ["attach", "exec", "log", "portforward", "proxy"];
    let listing = ScriptedDiscovery::default().with_resource("", "v1", "pods", &parts);
    let script = move |visit| run_kubelet(visit, listing.clone());
    let peers = [stage.start_peer(script.clone()).await, stage.start_peer(script).await];
    for (peer, identity) in peers.iter().zip(["apiserver-a", "apiserver-b"]) {
        stage.add_member(&admin, identity, peer.address).await;
    }
    let are_known = async || match metric_value(&admin, "unskew_peer_members{state=\"live\"}").await {
        2 => Ok(()),
        live => Err(format!("{live} are live")),
    };
    eventually("both members are discovered", are_known).await;
    for peer in &peers {
        peer.take_requests().await;
    }
    peers
}

/// Takes the requests for pods that both peers have received since the last call.
async fn take_pod_requests(peers: &[ScriptedPeer; 2]) -> Vec<String> {
    let mut lines = Vec::new();
    for peer in peers {
        lines.extend(peer.take_requests().await.into_iter().map(|received| received.request_line));
    }
    lines.retain(|line| line.contains("/pods/"));
    lines
}

async fn assert_nothing_failed(admin: &Client) {
    let metrics = String::from_utf8_lossy(&admin.get("/metrics").await.body).into_owned();
    assert!(!metrics.contains("unskew_peer_transport_failures_total{"), "{metrics}");
}

#[test]
fn kubelet_response_to_upgrade_passes_unchanged_and_is_sent_once() {
    let mut plane = ControlPlane::new(TestStore::Sqlite);
    plane.start("one", &[]);
    block_on(async {
        let peers = start_members_with_kubelets(&plane).await;
        let admin = plane.admin("one");
        for (method, part, protocol) in [
            ("GET", "exec?command=sh", "websocket"),
            ("POST", "exec?command=sh", "SPDY/3.1"),
            ("POST", "attach", "SPDY/3.1"),
            ("GET", "portforward?ports=80", "websocket"),
            ("GET", "proxy/socket", "websocket"),
        ] {
            for status in ["400", "401", "403", "404", "500", "503"] {
                let path = format!("/api/v1/namespaces/default/pods/s{status}/{part}");
                let (answered, mut stream) = request_upgrade(&admin, method, &path, protocol).await;
                assert!(answered.starts_with(&format!("HTTP/1.1 {status} ")), "{path}: {answered}");
                assert_eq!(
                    read_text(&mut stream, kubelet_response(status).len()).await,
                    kubelet_response(status),
                    "{path}"
                );
                assert_eq!(take_pod_requests(&peers).await, [format!("{method} {path} HTTP/1.1")]);
            }
        }
        assert_nothing_failed(&admin).await;
    });
}

#[test]
fn kubelet_response_without_upgrade_passes_unchanged_and_is_sent_once() {
    let mut plane = ControlPlane::new(TestStore::Sqlite);
    plane.start("one", &[]);
    block_on(async {
        let peers = start_members_with_kubelets(&plane).await;
        let admin = plane.admin("one");
        for (method, part) in [
            (http::Method::GET, "log"),
            (http::Method::GET, "exec"),
            (http::Method::GET, "proxy/metrics"),
            (http::Method::OPTIONS, "proxy/metrics"),
            (http::Method::POST, "proxy/run"),
        ] {
            for status in ["302", "401", "404", "503"] {
                let path = format!("/api/v1/namespaces/default/pods/s{status}/{part}");
                let answered = admin.send(admin.request_builder(method.clone(), &path), bytes::Bytes::new()).await;
                let found = (answered.status.as_str().to_owned(), String::from_utf8_lossy(&answered.body).into_owned());
                assert_eq!(found, (status.to_owned(), kubelet_response(status)), "{method} {path}");
                assert_eq!(take_pod_requests(&peers).await, [format!("{method} {path} HTTP/1.1")]);
            }
        }
        assert_nothing_failed(&admin).await;
    });
}

#[test]
fn request_to_backend_is_not_resent_after_its_connection_broke() {
    let mut plane = ControlPlane::new(TestStore::Sqlite);
    plane.start("one", &[]);
    block_on(async {
        let peers = start_members_with_kubelets(&plane).await;
        let admin = plane.admin("one");
        let path = "/api/v1/namespaces/default/pods/torn";
        for method in [http::Method::GET, http::Method::OPTIONS, http::Method::POST] {
            let line = format!("{path}/proxy/x");
            let answered = admin.send(admin.request_builder(method.clone(), &line), bytes::Bytes::new()).await;
            assert_eq!(answered.status, 503, "{method}");
            assert!(!answered.headers.contains_key("retry-after"), "{method}: the request may have been executed");
            assert_eq!(take_pod_requests(&peers).await, [format!("{method} {line} HTTP/1.1")]);
        }
        let line = format!("{path}/exec?command=sh");
        let (answered, _stream) = request_upgrade(&admin, "GET", &line, "websocket").await;
        assert!(answered.starts_with("HTTP/1.1 503 "), "{answered}");
        assert_eq!(take_pod_requests(&peers).await, [format!("GET {line} HTTP/1.1")]);
    });
}

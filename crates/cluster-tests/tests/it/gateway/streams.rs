//! Streaming through a gateway without changes: upgraded connections, pod proxies, compressed bodies.

use cluster_tests::client::ClientCredentials;
use cluster_tests::scripted_members::{ScriptedDiscovery, ScriptedMembers, http_response};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::runtime::Runtime;
use transport::testing::{ReceivedRequest, ScriptedConnection, ScriptedPeer};

use super::*;

pub(crate) const POD_PATH: &str = "/api/v1/namespaces/default/pods/a";

/// The gateway's access review for its own pages.
const REVIEW_REQUEST_LINE: &str = "POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews HTTP/1.1";

/// A scripted upstream and a gateway in front of it.
pub(crate) struct ScriptedGateway {
    pub(crate) runtime: Runtime,
    pub(crate) peer: ScriptedPeer,
    pub(crate) gateway: RunningGateway,
    plane: ControlPlane<'static>,
}

impl ScriptedGateway {
    /// `play` handles requests other than health checks, discovery and settings.
    pub(crate) fn new<Play, Playing>(play: Play) -> Self
    where
        Play: Fn(ScriptedConnection, ReceivedRequest) -> Playing + Clone + Send + Sync + 'static,
        Playing: Future<Output = Option<ScriptedConnection>> + Send + 'static,
    {
        Self::with_flags(&[], play)
    }

    /// Like `new`, with flags of the gateway.
    pub(super) fn with_flags<Play, Playing>(flags: &[&str], play: Play) -> Self
    where
        Play: Fn(ScriptedConnection, ReceivedRequest) -> Playing + Clone + Send + Sync + 'static,
        Playing: Future<Output = Option<ScriptedConnection>> + Send + 'static,
    {
        let mut plane = ControlPlane::new(TestStore::Sqlite);
        // Creates the certificates.
        plane.start("first", &[PEER_PROXY_OFF]);
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listing = ScriptedDiscovery::default().with_resource(
            "",
            "v1",
            "pods",
            &["attach", "exec", "log", "portforward", "proxy"],
        );
        let peer = runtime.block_on(async {
            let stage = ScriptedMembers::connect(&plane).await;
            stage.start_peer(move |visit| serve_connection(visit, listing.clone(), play.clone())).await
        });
        let upstream = format!("--upstream=https://{}", peer.address);
        let flags: Vec<&str> = [upstream.as_str()].into_iter().chain(flags.iter().copied()).collect();
        let gateway = RunningGateway::launch("gateway", &plane, &[], &flags);
        gateway.wait_ready();
        Self { runtime, peer, gateway, plane }
    }

    /// Directory of the certificates.
    pub(crate) fn pki(&self) -> std::path::PathBuf {
        self.plane.server("first").pki()
    }

    /// Returns the next request that concerns a pod.
    pub(super) async fn next_pod_request(&self) -> ReceivedRequest {
        loop {
            let received = self.peer.next_request().await;
            if received.request_line.contains("/pods/") {
                return received;
            }
        }
    }
}

const SETTINGS_REQUEST: &str =
    "GET /api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication HTTP/1.1";

/// The upstream's request header settings, as the ConfigMap holds them.
fn settings_response() -> String {
    let list = |name: &str| serde_json::json!([name]).to_string();
    serde_json::json!({"data": {
        "requestheader-username-headers": list("X-Remote-User"),
        "requestheader-group-headers": list("X-Remote-Group"),
        "requestheader-extra-headers-prefix": list("X-Remote-Extra-"),
    }})
    .to_string()
}

async fn serve_connection<Playing>(
    mut visit: ScriptedConnection,
    listing: ScriptedDiscovery,
    play: impl Fn(ScriptedConnection, ReceivedRequest) -> Playing,
) where
    Playing: Future<Output = Option<ScriptedConnection>>,
{
    while let Some(received) = visit.read_request().await {
        let page = match received.request_line.as_str() {
            "GET /readyz HTTP/1.1" | "GET /livez HTTP/1.1" => Some(http_response("200 OK", "text/plain", "ok")),
            "GET /version HTTP/1.1" => Some(http_response("200 OK", "application/json", r#"{"gitVersion":"v1.30.1"}"#)),
            SETTINGS_REQUEST => Some(http_response("200 OK", "application/json", &settings_response())),
            REVIEW_REQUEST_LINE => {
                Some(http_response("201 Created", "application/json", r#"{"status":{"allowed":true}}"#))
            }
            _ => listing.respond(&received),
        };
        match page {
            Some(page) => visit.write(&page).await,
            None => match play(visit, received).await {
                Some(same) => visit = same,
                None => return,
            },
        }
    }
}

pub(super) async fn read_head(stream: &mut (impl tokio::io::AsyncRead + Unpin)) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    String::from_utf8(head).unwrap().to_lowercase()
}

/// Upstream that switches protocols, sends `first ` and then echoes what it receives.
async fn echo_after_upgrade(mut visit: ScriptedConnection, _heard: ReceivedRequest) -> Option<ScriptedConnection> {
    visit.write("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\nfirst ").await;
    let said = visit.read_exactly(5).await?;
    visit.write(&said).await;
    visit.wait_for_close().await;
    None
}

#[test]
fn upgraded_connection_carries_the_certificate_user() {
    let scene = ScriptedGateway::new(echo_after_upgrade);
    scene.runtime.block_on(async {
        let mut stream = scene.gateway.admin().tls_stream(None).await.unwrap();
        let request = format!(
            "POST {POD_PATH}/exec?command=ls HTTP/1.1\r\nHost: gateway\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\
             X-Remote-User: mallory\r\nAuthorization: Bearer secret\r\nContent-Length: 0\r\n\r\nhello"
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let head = read_head(&mut stream).await;
        assert!(head.starts_with("http/1.1 101 ") && head.contains("upgrade: spdy/3.1\r\n"), "{head}");
        let mut echoed = [0; 11];
        stream.read_exact(&mut echoed).await.unwrap();
        assert_eq!(&echoed, b"first hello");
        let received = scene.next_pod_request().await;
        assert_eq!(received.request_line, format!("POST {POD_PATH}/exec?command=ls HTTP/1.1"));
        assert_eq!(received.header("x-remote-user"), ["kubernetes-admin"]);
        assert_eq!(received.header("x-remote-group"), ["system:masters", "system:authenticated"]);
        assert!(received.header("authorization").is_empty());
    });
}

#[test]
fn websocket_protocol_token_is_forwarded() {
    let scene = ScriptedGateway::new(echo_after_upgrade);
    scene.runtime.block_on(async {
        let mut stream = scene.gateway.client_with(ClientCredentials::Anonymous).tls_stream(None).await.unwrap();
        let protocols = "base64url.bearer.authorization.k8s.io.c2VjcmV0, v5.channel.k8s.io";
        let request = format!(
            "GET {POD_PATH}/exec HTTP/1.1\r\nHost: gateway\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Protocol: {protocols}\r\nX-Remote-User: mallory\r\n\r\nhello"
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        assert!(read_head(&mut stream).await.starts_with("http/1.1 101 "));
        let mut echoed = [0; 11];
        stream.read_exact(&mut echoed).await.unwrap();
        assert_eq!(&echoed, b"first hello");
        let received = scene.next_pod_request().await;
        assert_eq!(received.header("sec-websocket-protocol"), [protocols]);
        assert!(received.header("x-remote-user").is_empty(), "{received:?}");
    });
}

#[test]
fn responses_of_proxied_pods_do_not_count_against_the_upstream() {
    let scene = ScriptedGateway::new(|mut visit: ScriptedConnection, received: ReceivedRequest| async move {
        let page =
            match received.request_line.split(' ').nth(1).unwrap_or_default().rsplit('/').next().unwrap_or_default() {
                "missing" => http_response("404 Not Found", "text/plain", "no such page"),
                "login" => http_response("401 Unauthorized", "text/plain", "who are you?"),
                "down" => http_response("503 Service Unavailable", "text/plain", "later"),
                _ => "HTTP/1.1 302 Found\r\nlocation: /elsewhere\r\ncontent-length: 0\r\n\r\n".to_owned(),
            };
        visit.write(&page).await;
        Some(visit)
    });
    scene.runtime.block_on(async {
        let admin = scene.gateway.admin();
        for (page, status, body) in [
            ("missing", 404, "no such page"),
            ("login", 401, "who are you?"),
            ("down", 503, "later"),
            ("moved", 302, ""),
        ] {
            let said = admin.get(&format!("{POD_PATH}/proxy/{page}")).await;
            assert_eq!((said.status.as_u16(), &said.body[..]), (status, body.as_bytes()), "{page}");
        }
        // The gateway counted no failure of the upstream.
        let metrics = String::from_utf8_lossy(&admin.get("/metrics").await.body).into_owned();
        assert!(metrics.contains("unskew_upstream_ready{"), "{metrics}");
        assert!(!metrics.contains("unskew_peer_transport_failures_total{"), "{metrics}");
    });
}

#[test]
fn bodies_and_headers_are_forwarded_unchanged() {
    const ZIPPED: &str = "these bytes are whatever the server says they are";
    let scene = ScriptedGateway::new(|mut visit: ScriptedConnection, _heard: ReceivedRequest| async move {
        let length = ZIPPED.len();
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-encoding: gzip\r\ncontent-length: {length}\r\n\
             warning: 299 - \"old\"\r\n\r\n{ZIPPED}"
        );
        visit.write(&head).await;
        Some(visit)
    });
    scene.runtime.block_on(async {
        let client = scene.gateway.client_with(ClientCredentials::Token("secret".to_owned()));
        let path = format!("{POD_PATH}?fieldSelector=a%3Db%2Cc&pretty=true&x=%7E");
        let request =
            client.request_builder(Method::GET, &path).header("accept-encoding", "gzip").header("user-agent", "me/1");
        let said = client.send(request, "".into()).await;
        assert_eq!(said.headers["content-encoding"], "gzip");
        assert_eq!(said.headers["warning"], "299 - \"old\"");
        assert_eq!(&said.body[..], ZIPPED.as_bytes());
        let received = scene.next_pod_request().await;
        assert_eq!(received.request_line, format!("GET {path} HTTP/1.1"));
        assert_eq!(received.header("authorization"), ["Bearer secret"]);
        assert_eq!((received.header("accept-encoding"), received.header("user-agent")), (vec!["gzip"], vec!["me/1"]));
        assert_eq!(received.header("x-forwarded-for"), ["127.0.0.1"]);
    });
}

#[test]
fn cors_preflight_requests_are_answered_by_upstreams() {
    let scene = ScriptedGateway::new(|mut visit: ScriptedConnection, received: ReceivedRequest| async move {
        let head = if received.request_line.starts_with("OPTIONS ") {
            "204 No Content"
        } else {
            "200 OK\r\ncontent-length: 0"
        };
        let cors = "access-control-allow-origin: https://shop.example\r\naccess-control-allow-methods: GET, PATCH\r\n\
                    access-control-allow-headers: Authorization\r\naccess-control-allow-credentials: true";
        visit.write(&format!("HTTP/1.1 {head}\r\n{cors}\r\n\r\n")).await;
        Some(visit)
    });
    scene.runtime.block_on(async {
        let anonymous = scene.gateway.client_with(ClientCredentials::Anonymous);
        let asked = |method: Method, path: &str| {
            let request = anonymous.request_builder(method, path).header("origin", "https://shop.example");
            request.header("access-control-request-method", "PATCH")
        };
        // A resource, a pod proxy, a page of the upstream, and pages of the gateway itself.
        for path in [POD_PATH, &format!("{POD_PATH}/proxy/x"), "/version/pods/x", "/apis", "/metrics", "/debug/peers"] {
            let said = anonymous.send(asked(Method::OPTIONS, path), "".into()).await;
            assert_eq!(said.status, StatusCode::NO_CONTENT, "{path}: {}", said.summary());
            assert_eq!(said.headers["access-control-allow-origin"], "https://shop.example", "{path}");
            assert_eq!(said.headers["access-control-allow-methods"], "GET, PATCH", "{path}");
            assert_eq!(said.headers["access-control-allow-headers"], "Authorization", "{path}");
            assert_eq!(said.headers["access-control-allow-credentials"], "true", "{path}");
        }
        let received = scene.next_pod_request().await;
        assert_eq!(received.request_line, format!("OPTIONS {POD_PATH} HTTP/1.1"));
        assert_eq!(received.header("origin"), ["https://shop.example"]);
        assert_eq!(received.header("access-control-request-method"), ["PATCH"]);
        let said = anonymous.send(asked(Method::GET, POD_PATH), "".into()).await;
        assert_eq!(said.headers["access-control-allow-origin"], "https://shop.example");
    });
}

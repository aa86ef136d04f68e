//! Everything streams, and nothing is touched on the way: upgraded connections, pages of pods, compressed bodies.

use cluster_tests::client::Identity;
use cluster_tests::scripted::{Listing, Stage, answer};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::runtime::Runtime;
use transport::testing::{Heard, ScriptedPeer, Visit};

use super::*;

pub(super) const POD: &str = "/api/v1/namespaces/default/pods/a";

/// How the gateway asks who may see its own pages.
const REVIEW: &str = "POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews HTTP/1.1";

/// An upstream that says what a test wants it to say, and a gateway before it.
pub(super) struct Scene {
    pub(super) runtime: Runtime,
    pub(super) peer: ScriptedPeer,
    pub(super) gateway: Gateway,
    _plane: ControlPlane<'static>,
}

impl Scene {
    /// `play` is what the upstream does about requests that are neither about its health nor about what it serves.
    pub(super) fn new<Play, Playing>(play: Play) -> Self
    where
        Play: Fn(Visit, Heard) -> Playing + Clone + Send + Sync + 'static,
        Playing: Future<Output = Option<Visit>> + Send + 'static,
    {
        Self::with(&[], play)
    }

    /// The same with flags of the gateway.
    pub(super) fn with<Play, Playing>(flags: &[&str], play: Play) -> Self
    where
        Play: Fn(Visit, Heard) -> Playing + Clone + Send + Sync + 'static,
        Playing: Future<Output = Option<Visit>> + Send + 'static,
    {
        let mut plane = ControlPlane::new(Store::Sqlite);
        // For its keys.
        plane.start("first", &[STOCK]);
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listing = Listing::default().with("", "v1", "pods", &["attach", "exec", "log", "portforward", "proxy"]);
        let peer = runtime.block_on(async {
            let stage = Stage::open(&plane).await;
            stage.peer(move |visit| live(visit, listing.clone(), play.clone())).await
        });
        let upstream = format!("--upstream=https://{}", peer.address);
        let flags: Vec<&str> = [upstream.as_str()].into_iter().chain(flags.iter().copied()).collect();
        let gateway = Gateway::launch("gateway", &plane, &[], &flags);
        gateway.wait_ready();
        Self { runtime, peer, gateway, _plane: plane }
    }

    /// What the upstream heard of a request that is not about itself.
    pub(super) async fn heard(&self) -> Heard {
        loop {
            let heard = self.peer.heard().await;
            if heard.line.contains("/pods/") {
                return heard;
            }
        }
    }
}

const SETTINGS: &str = "GET /api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication HTTP/1.1";

/// From which headers the upstream reads users.
fn settings() -> String {
    let list = |name: &str| serde_json::json!([name]).to_string();
    serde_json::json!({"data": {
        "requestheader-username-headers": list("X-Remote-User"),
        "requestheader-group-headers": list("X-Remote-Group"),
        "requestheader-extra-headers-prefix": list("X-Remote-Extra-"),
    }})
    .to_string()
}

async fn live<Playing>(mut visit: Visit, listing: Listing, play: impl Fn(Visit, Heard) -> Playing)
where
    Playing: Future<Output = Option<Visit>>,
{
    while let Some(heard) = visit.hear().await {
        let page = match heard.line.as_str() {
            "GET /readyz HTTP/1.1" | "GET /livez HTTP/1.1" => Some(answer("200 OK", "text/plain", "ok")),
            "GET /version HTTP/1.1" => Some(answer("200 OK", "application/json", r#"{"gitVersion":"v1.30.1"}"#)),
            SETTINGS => Some(answer("200 OK", "application/json", &settings())),
            REVIEW => Some(answer("201 Created", "application/json", r#"{"status":{"allowed":true}}"#)),
            _ => listing.answer(&heard),
        };
        match page {
            Some(page) => visit.say(&page).await,
            None => match play(visit, heard).await {
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

/// An upstream that switches protocols, says something, and says again what it hears.
async fn echo(mut visit: Visit, _heard: Heard) -> Option<Visit> {
    visit.say("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\nfirst ").await;
    let said = visit.exactly(5).await?;
    visit.say(&said).await;
    visit.closed().await;
    None
}

#[test]
fn a_connection_is_handed_over_with_the_user_of_the_certificate() {
    let scene = Scene::new(echo);
    scene.runtime.block_on(async {
        let mut stream = scene.gateway.admin().stream(None).await.unwrap();
        let request = format!(
            "POST {POD}/exec?command=ls HTTP/1.1\r\nHost: gateway\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\
             X-Remote-User: mallory\r\nAuthorization: Bearer secret\r\nContent-Length: 0\r\n\r\nhello"
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let head = read_head(&mut stream).await;
        assert!(head.starts_with("http/1.1 101 ") && head.contains("upgrade: spdy/3.1\r\n"), "{head}");
        let mut echoed = [0; 11];
        stream.read_exact(&mut echoed).await.unwrap();
        assert_eq!(&echoed, b"first hello");
        let heard = scene.heard().await;
        assert_eq!(heard.line, format!("POST {POD}/exec?command=ls HTTP/1.1"));
        assert_eq!(heard.header("x-remote-user"), ["kubernetes-admin"]);
        assert_eq!(heard.header("x-remote-group"), ["system:masters", "system:authenticated"]);
        assert!(heard.header("authorization").is_empty());
    });
}

#[test]
fn a_browsers_token_travels_on_among_its_protocols() {
    let scene = Scene::new(echo);
    scene.runtime.block_on(async {
        let mut stream = scene.gateway.client(Identity::Nobody).stream(None).await.unwrap();
        let protocols = "base64url.bearer.authorization.k8s.io.c2VjcmV0, v5.channel.k8s.io";
        let request = format!(
            "GET {POD}/exec HTTP/1.1\r\nHost: gateway\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Protocol: {protocols}\r\nX-Remote-User: mallory\r\n\r\nhello"
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        assert!(read_head(&mut stream).await.starts_with("http/1.1 101 "));
        let mut echoed = [0; 11];
        stream.read_exact(&mut echoed).await.unwrap();
        assert_eq!(&echoed, b"first hello");
        let heard = scene.heard().await;
        assert_eq!(heard.header("sec-websocket-protocol"), [protocols]);
        assert!(heard.header("x-remote-user").is_empty(), "{heard:?}");
    });
}

#[test]
fn what_a_pod_says_is_no_word_of_its_server() {
    let scene = Scene::new(|mut visit: Visit, heard: Heard| async move {
        let page = match heard.line.split(' ').nth(1).unwrap_or_default().rsplit('/').next().unwrap_or_default() {
            "missing" => answer("404 Not Found", "text/plain", "no such page"),
            "login" => answer("401 Unauthorized", "text/plain", "who are you?"),
            "down" => answer("503 Service Unavailable", "text/plain", "later"),
            _ => "HTTP/1.1 302 Found\r\nlocation: /elsewhere\r\ncontent-length: 0\r\n\r\n".to_owned(),
        };
        visit.say(&page).await;
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
            let said = admin.get(&format!("{POD}/proxy/{page}")).await;
            assert_eq!((said.status.as_u16(), &said.body[..]), (status, body.as_bytes()), "{page}");
        }
        // Nothing of that was held against the server.
        let metrics = String::from_utf8_lossy(&admin.get("/metrics").await.body).into_owned();
        assert!(metrics.contains("unskew_upstream_ready{"), "{metrics}");
        assert!(!metrics.contains("unskew_peer_transport_failures_total{"), "{metrics}");
    });
}

#[test]
fn bytes_and_headers_arrive_as_they_are() {
    const ZIPPED: &str = "these bytes are whatever the server says they are";
    let scene = Scene::new(|mut visit: Visit, _heard: Heard| async move {
        let length = ZIPPED.len();
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-encoding: gzip\r\ncontent-length: {length}\r\n\
             warning: 299 - \"old\"\r\n\r\n{ZIPPED}"
        );
        visit.say(&head).await;
        Some(visit)
    });
    scene.runtime.block_on(async {
        let client = scene.gateway.client(Identity::Token("secret".to_owned()));
        let path = format!("{POD}?fieldSelector=a%3Db%2Cc&pretty=true&x=%7E");
        let request = client.request(Method::GET, &path).header("accept-encoding", "gzip").header("user-agent", "me/1");
        let said = client.send(request, "".into()).await;
        assert_eq!(said.headers["content-encoding"], "gzip");
        assert_eq!(said.headers["warning"], "299 - \"old\"");
        assert_eq!(&said.body[..], ZIPPED.as_bytes());
        let heard = scene.heard().await;
        assert_eq!(heard.line, format!("GET {path} HTTP/1.1"));
        assert_eq!(heard.header("authorization"), ["Bearer secret"]);
        assert_eq!((heard.header("accept-encoding"), heard.header("user-agent")), (vec!["gzip"], vec!["me/1"]));
        assert_eq!(heard.header("x-forwarded-for"), ["127.0.0.1"]);
    });
}

#[test]
fn what_browsers_ask_before_they_ask_is_for_upstreams_to_answer() {
    let scene = Scene::new(|mut visit: Visit, heard: Heard| async move {
        let head = if heard.line.starts_with("OPTIONS ") { "204 No Content" } else { "200 OK\r\ncontent-length: 0" };
        let cors = "access-control-allow-origin: https://shop.example\r\naccess-control-allow-methods: GET, PATCH\r\n\
                    access-control-allow-headers: Authorization\r\naccess-control-allow-credentials: true";
        visit.say(&format!("HTTP/1.1 {head}\r\n{cors}\r\n\r\n")).await;
        Some(visit)
    });
    scene.runtime.block_on(async {
        let nobody = scene.gateway.client(Identity::Nobody);
        let asked = |method: Method, path: &str| {
            let request = nobody.request(method, path).header("origin", "https://shop.example");
            request.header("access-control-request-method", "PATCH")
        };
        // A resource, the way to a pod, a page that is the upstream's, and pages that the gateway has of its own.
        for path in [POD, &format!("{POD}/proxy/x"), "/version/pods/x", "/apis", "/metrics", "/debug/peers"] {
            let said = nobody.send(asked(Method::OPTIONS, path), "".into()).await;
            assert_eq!(said.status, StatusCode::NO_CONTENT, "{path}: {}", said.brief());
            assert_eq!(said.headers["access-control-allow-origin"], "https://shop.example", "{path}");
            assert_eq!(said.headers["access-control-allow-methods"], "GET, PATCH", "{path}");
            assert_eq!(said.headers["access-control-allow-headers"], "Authorization", "{path}");
            assert_eq!(said.headers["access-control-allow-credentials"], "true", "{path}");
        }
        let heard = scene.heard().await;
        assert_eq!(heard.line, format!("OPTIONS {POD} HTTP/1.1"));
        assert_eq!(heard.header("origin"), ["https://shop.example"]);
        assert_eq!(heard.header("access-control-request-method"), ["PATCH"]);
        let said = nobody.send(asked(Method::GET, POD), "".into()).await;
        assert_eq!(said.headers["access-control-allow-origin"], "https://shop.example");
    });
}

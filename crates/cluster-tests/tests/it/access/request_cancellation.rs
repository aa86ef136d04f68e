//! Requests whose client disconnects: each ends in exactly one audit event and releases its in-flight seat.

use std::convert::Infallible;
use std::path::PathBuf;

use cluster_tests::wait::{eventually, metric_value};
use futures_util::StreamExt as _;
use futures_util::future::{Either, select};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::AsyncWriteExt as _;

use super::*;

const AUDIT_POLICY: &str = "
apiVersion: audit.k8s.io/v1
kind: Policy
rules:
- {level: Request, users: [kubernetes-admin]}
- {level: None}
";

/// A revision that no test reaches: a read waits for it until the server's own limit.
const FUTURE_REVISION: &str = "resourceVersion=9999999999";

type AuditedRequestSender = SendRequest<BoxBody<Bytes, Infallible>>;

struct AuditedServer {
    server: RunningServer,
    audit_log: PathBuf,
}

impl AuditedServer {
    fn start(dir: &Path, store: TestStore<'_>) -> Self {
        let (policy, log) = (dir.join("policy.yaml"), dir.join("audit.log"));
        std::fs::write(&policy, AUDIT_POLICY).unwrap();
        let flags =
            [format!("--audit-policy-file={}", policy.display()), format!("--audit-log-path={}", log.display())];
        Self { server: RunningServer::start(dir, store, &[&flags[0], &flags[1]]), audit_log: log }
    }

    /// Audit stages of a request so far, with their status codes.
    fn audited_stages(&self, id: &str) -> Vec<String> {
        read_stages(&self.audit_log, id)
    }

    async fn wait_until_received(&self, id: &str) {
        eventually(id, async || has_stage(&self.audited_stages(id), "RequestReceived")).await;
    }

    async fn wait_until_complete(&self, id: &str) -> Vec<String> {
        eventually(id, async || has_stage(&self.audited_stages(id), "ResponseComplete")).await;
        self.audited_stages(id)
    }

    async fn wait_until_seats_are_free(&self) {
        let admin = self.server.admin();
        for kind in ["readOnly", "mutating"] {
            let series = format!("apiserver_current_inflight_requests{{request_kind=\"{kind}\"}}");
            eventually(kind, async || match metric_value(&admin, &series).await {
                0 => Ok(()),
                taken => Err(format!("{taken} {kind} seats are taken")),
            })
            .await;
        }
    }

    async fn connect_http2(&self) -> AuditedRequestSender {
        let stream = TokioIo::new(self.server.admin().tls_stream(Some(b"h2")).await.unwrap());
        let (sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), stream).await.unwrap();
        #[expect(clippy::disallowed_methods, reason = "the task ends with the connection")]
        tokio::spawn(connection);
        sender
    }

    fn request(&self, method: Method, path: &str, id: &str) -> http::request::Builder {
        let uri = format!("https://{}{path}", self.server.address());
        http::Request::builder()
            .method(method)
            .uri(uri)
            .header("audit-id", id)
            .header("content-type", "application/json")
    }

    /// Sends a request, waits until the server has received it, and resets its stream. Returns once the server has seen
    /// the reset.
    async fn send_and_reset(
        &self,
        sender: &mut AuditedRequestSender,
        request: http::Request<BoxBody<Bytes, Infallible>>,
    ) {
        let id = request.headers()["audit-id"].to_str().unwrap().to_owned();
        let sending = Box::pin(sender.send_request(request));
        match select(sending, Box::pin(self.wait_until_received(&id))).await {
            Either::Left((answer, _)) => panic!("{id} got a response: {answer:?}"),
            Either::Right(((), sending)) => drop(sending),
        }
        // Frames of one connection are read in order: the server sees the reset before it responds to this.
        let next = self.request(Method::GET, "/version", "next").body(full_body("")).unwrap();
        assert_eq!(sender.send_request(next).await.unwrap().status(), 200);
    }
}

fn read_stages(log: &Path, id: &str) -> Vec<String> {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let events = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let shown = events.filter(|event| event["auditID"] == id).map(|event| {
        let stage = event["stage"].as_str().unwrap_or_default().to_owned();
        let code = event["responseStatus"]["code"].as_u64().map_or(String::new(), |code| format!(" {code}"));
        let object = if event["requestObject"].is_null() { "" } else { " with object" };
        stage + &code + object
    });
    shown.collect()
}

fn has_stage(stages: &[String], stage: &str) -> Result<(), String> {
    if stages.iter().any(|shown| shown.starts_with(stage)) { Ok(()) } else { Err(format!("{stages:?}")) }
}

fn full_body(text: &str) -> BoxBody<Bytes, Infallible> {
    Full::new(Bytes::from(text.to_owned())).boxed()
}

/// A body whose end never arrives.
fn unfinished_body() -> BoxBody<Bytes, Infallible> {
    let beginning = futures_util::stream::once(async { Ok(Frame::data(Bytes::from_static(b"{\"metadata\":"))) });
    BodyExt::boxed(StreamBody::new(beginning.chain(futures_util::stream::pending())))
}

#[test]
fn write_of_disconnected_client_is_audited_with_its_outcome() {
    let etcd = Etcd::start();
    let folder = tempfile::tempdir().unwrap();
    let audited = AuditedServer::start(folder.path(), TestStore::Etcd(&etcd));
    let admin = audited.server.admin();
    block_on(async {
        let mut sender = audited.connect_http2().await;
        etcd.pause();
        let create = audited.request(Method::POST, CONFIG_MAPS_PATH, "h2");
        audited.send_and_reset(&mut sender, create.body(full_body(&config_map("h2").to_string())).unwrap()).await;

        let body = config_map("h1").to_string();
        let head = format!(
            "POST {CONFIG_MAPS_PATH} HTTP/1.1\r\nhost: x\r\naudit-id: h1\r\ncontent-type: application/json\r\n"
        );
        let mut stream = admin.tls_stream(None).await.unwrap();
        stream.write_all(format!("{head}content-length: {}\r\n\r\n{body}", body.len()).as_bytes()).await.unwrap();
        audited.wait_until_received("h1").await;
        let open_files = audited.server.open_files();
        drop(stream);
        eventually("the server closes its end", async || match audited.server.open_files() {
            fewer if fewer < open_files => Ok(()),
            same => Err(same.to_string()),
        })
        .await;

        etcd.resume();
        for id in ["h2", "h1"] {
            let stages = audited.wait_until_complete(id).await;
            assert_eq!(stages, ["RequestReceived", "ResponseComplete 201 with object"], "{id}");
            assert_eq!(admin.get(&format!("{CONFIG_MAPS_PATH}/{id}")).await.status, 200);
        }
        audited.wait_until_seats_are_free().await;
    });
}

#[test]
fn cancelled_request_ends_in_one_audit_event() {
    let folder = tempfile::tempdir().unwrap();
    let audited = AuditedServer::start(folder.path(), TestStore::Sqlite);
    block_on(async {
        let mut sender = audited.connect_http2().await;
        let upload = audited.request(Method::POST, CONFIG_MAPS_PATH, "upload").body(unfinished_body()).unwrap();
        audited.send_and_reset(&mut sender, upload).await;
        for (id, path) in [
            ("get", format!("{CONFIG_MAPS_PATH}/x?{FUTURE_REVISION}")),
            ("list", format!("{CONFIG_MAPS_PATH}?{FUTURE_REVISION}")),
        ] {
            let read = audited.request(Method::GET, &path, id).body(full_body("")).unwrap();
            audited.send_and_reset(&mut sender, read).await;
        }
        let watch =
            audited.request(Method::GET, &format!("{CONFIG_MAPS_PATH}?watch=1"), "watch").body(full_body("")).unwrap();
        drop(sender.send_request(watch).await.unwrap());
        for (id, expected) in [
            ("upload", &["RequestReceived", "ResponseComplete 400"][..]),
            ("get", &["RequestReceived", "ResponseComplete 504"]),
            ("list", &["RequestReceived", "ResponseComplete 504"]),
            ("watch", &["RequestReceived", "ResponseStarted 200", "ResponseComplete 200"]),
        ] {
            assert_eq!(audited.wait_until_complete(id).await, expected, "{id}");
        }
        audited.wait_until_seats_are_free().await;
    });
}

#[test]
fn completed_request_ends_in_one_audit_event() {
    let etcd = Etcd::start();
    let folder = tempfile::tempdir().unwrap();
    let audited = AuditedServer::start(folder.path(), TestStore::Etcd(&etcd));
    let admin = audited.server.admin();
    block_on(async {
        let send = async |id: &str, method: Method, path: &str, body: &str| {
            let request =
                admin.request_builder(method, path).header("audit-id", id).header("content-type", "application/json");
            admin.send(request, body.to_owned().into()).await.status.as_u16()
        };
        assert_eq!(send("served", Method::GET, CONFIG_MAPS_PATH, "").await, 200);
        assert_eq!(send("refused", Method::POST, CONFIG_MAPS_PATH, "{").await, 400);
        assert_eq!(send("absent", Method::GET, "/apis/example.com/v1/widgets", "").await, 404);
        assert_eq!(send("ended", Method::GET, &format!("{CONFIG_MAPS_PATH}?watch=1&timeoutSeconds=1"), "").await, 200);
        etcd.pause();
        let create = config_map("late").to_string();
        assert_eq!(send("late", Method::POST, &format!("{CONFIG_MAPS_PATH}?timeout=1s"), &create).await, 504);
        etcd.resume();
        for (id, expected) in [
            ("served", &["RequestReceived", "ResponseComplete 200"][..]),
            ("refused", &["RequestReceived", "ResponseComplete 400"]),
            ("absent", &["RequestReceived", "ResponseComplete 404"]),
            ("ended", &["RequestReceived", "ResponseStarted 200", "ResponseComplete 200"]),
            ("late", &["RequestReceived", "ResponseComplete 504 with object"]),
        ] {
            assert_eq!(audited.wait_until_complete(id).await, expected, "{id}");
        }
        audited.wait_until_seats_are_free().await;
    });
}

#[test]
fn request_that_outlasts_the_server_ends_in_one_audit_event() {
    let folder = tempfile::tempdir().unwrap();
    let audited = AuditedServer::start(folder.path(), TestStore::Sqlite);
    let log = audited.audit_log.clone();
    block_on(async {
        let mut sender = audited.connect_http2().await;
        let watch =
            audited.request(Method::GET, &format!("{CONFIG_MAPS_PATH}?watch=1"), "watch").body(full_body("")).unwrap();
        let watch = sender.send_request(watch).await.unwrap();
        let upload = audited.request(Method::POST, CONFIG_MAPS_PATH, "upload").body(unfinished_body()).unwrap();
        let upload = Box::pin(sender.send_request(upload));
        let Either::Right(((), upload)) = select(upload, Box::pin(audited.wait_until_received("upload"))).await else {
            panic!("an unfinished upload got a response");
        };
        let stopping = tokio::task::spawn_blocking(move || audited.server.stop());
        // The client stays connected and sends nothing more.
        assert_eq!(stopping.await.unwrap(), Some(0));
        drop((watch, upload));
    });
    assert_eq!(read_stages(&log, "watch"), ["RequestReceived", "ResponseStarted 200", "ResponseComplete 200"]);
    let upload = read_stages(&log, "upload");
    assert_eq!(upload.len(), 2, "{upload:?}");
    has_stage(&upload, "ResponseComplete").unwrap();
}

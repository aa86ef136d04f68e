//! The places where a raw request arrives, and the users as whom requests were executed there.

use std::path::{Path, PathBuf};

use cluster_tests::client::ClientCredentials;
use cluster_tests::scripted_members::http_response;
use cluster_tests::wait::eventually;
use cluster_tests::{Client, ControlPlane, RunningServer, TestStore};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::runtime::Runtime;
use transport::pki::{CertificateAuthority, CertificateUsage};
use transport::testing::{ReceivedRequest, ScriptedConnection};

use crate::access::certificate_credentials;
use crate::gateway::streams::{POD_PATH, ScriptedGateway};
use crate::peers::CLASSES_PATH;

/// Names its user in the response.
pub(super) const REVIEWS_PATH: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";

const AUDIT_POLICY: &str = "
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
";

/// A place where raw requests arrive.
pub(super) struct Site {
    pub(super) name: &'static str,
    /// A POST to this path has a response that names the user.
    pub(super) path: &'static str,
    pub(super) jane: Client,
    joe: Client,
    pub(super) runtime: Runtime,
    backend: Backend,
    executions: Vec<Execution>,
}

/// Where requests are executed.
enum Backend {
    /// Servers and their audit logs.
    AuditLogs { _plane: ControlPlane<'static>, logs: Vec<PathBuf> },
    /// The scripted upstream of a gateway.
    Upstream(Box<ScriptedGateway>),
}

/// A request that was executed.
#[derive(Clone, Debug)]
pub(super) struct Execution {
    /// The user names, in order of their headers.
    pub(super) users: Vec<String>,
    pub(super) groups: Vec<String>,
    /// Path and query.
    pub(super) target: String,
}

/// One HTTP/1.1 response.
#[derive(Debug)]
pub(super) struct RawResponse {
    pub(super) status: u16,
    pub(super) body: String,
}

fn user_credentials(pki: &Path, name: &str) -> ClientCredentials {
    let authority = CertificateAuthority::open_or_create(pki, "ca").unwrap();
    certificate_credentials(&authority.open_or_issue(name, name, None, &CertificateUsage::Client).unwrap())
}

fn audit_flags(folder: &Path, name: &str) -> ([String; 2], PathBuf) {
    let (policy, log) = (folder.join("policy.yaml"), folder.join(format!("{name}-audit.json")));
    std::fs::write(&policy, AUDIT_POLICY).unwrap();
    ([format!("--audit-policy-file={}", policy.display()), format!("--audit-log-path={}", log.display())], log)
}

/// Responds with the user that the request names.
async fn respond_with_user(mut visit: ScriptedConnection, received: ReceivedRequest) -> Option<ScriptedConnection> {
    let users = received.header("x-remote-user").join(",");
    visit.write(&http_response("201 Created", "application/json", &format!(r#"{{"username":"{users}"}}"#))).await;
    Some(visit)
}

impl Site {
    /// A server that serves the requests itself.
    pub(super) fn server() -> Self {
        let mut plane = ControlPlane::new(TestStore::Sqlite);
        let (flags, log) = audit_flags(plane.folder(), "one");
        plane.start("one", &[&flags[0], &flags[1]]);
        let clients = ["jane", "joe"].map(|name| client_of(plane.server("one"), name));
        Self::new("server", REVIEWS_PATH, clients, Backend::AuditLogs { _plane: plane, logs: vec![log] })
    }

    /// A server that forwards the requests to a peer, which authorizes them and names the user in its 403.
    pub(super) fn forwarding_server() -> Self {
        let mut plane = ControlPlane::new(TestStore::Sqlite);
        let (new_flags, new_log) = audit_flags(plane.folder(), "new");
        let (old_flags, old_log) = audit_flags(plane.folder(), "old");
        plane.start("new", &["--emulated-version=1.36", &new_flags[0], &new_flags[1]]);
        let allow = "--authorization-mode=AlwaysAllow";
        plane.start("old", &["--emulated-version=1.33", allow, &old_flags[0], &old_flags[1]]);
        let clients = ["jane", "joe"].map(|name| client_of(plane.server("old"), name));
        let admin = plane.admin("old");
        let site = Self::new(
            "peer",
            CLASSES_PATH,
            clients,
            Backend::AuditLogs { _plane: plane, logs: vec![old_log, new_log] },
        );
        site.runtime.block_on(async {
            eventually("the servers discover each other", async || match admin.get(CLASSES_PATH).await {
                found if found.status == 200 => Ok(()),
                other => Err(other.summary()),
            })
            .await;
        });
        site
    }

    /// A gateway with a scripted upstream, which names the user in its response.
    pub(super) fn gateway() -> Self {
        let scene = ScriptedGateway::new(respond_with_user);
        let pki = scene.pki();
        let clients = ["jane", "joe"].map(|name| scene.gateway.client_with(user_credentials(&pki, name)));
        Self::new("gateway", POD_PATH, clients, Backend::Upstream(Box::new(scene)))
    }

    fn new(name: &'static str, path: &'static str, [jane, joe]: [Client; 2], backend: Backend) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        Self { name, path, jane, joe, runtime, backend, executions: Vec::new() }
    }

    /// Sends bytes as jane and reads all responses. The last request in `bytes` must close the connection.
    pub(super) fn exchange(&self, bytes: &[u8]) -> Vec<RawResponse> {
        self.runtime.block_on(async {
            let mut stream = self.jane.tls_stream(None).await.unwrap();
            let mut answers = Vec::new();
            // The server may close before it has read everything, and without a TLS close_notify.
            let _ = stream.write_all(bytes).await;
            let reading = stream.read_to_end(&mut answers);
            let _ = tokio::time::timeout(std::time::Duration::from_secs(20), reading).await.expect("closed in time");
            parse_responses(&answers)
        })
    }

    /// Sends a well-formed request as joe, whose response must name joe.
    pub(super) fn check_joe_is_served(&self) {
        let path = format!("{}?as=joe", self.path);
        let body = self.runtime.block_on(self.joe.create(&path, &serde_json::json!({}))).body;
        self.check_names("joe", &String::from_utf8_lossy(&body));
    }

    /// The response must name this user and no other.
    #[track_caller]
    pub(super) fn check_names(&self, user: &str, body: &str) {
        let others = ["jane", "joe", "root", "system:masters"].into_iter().filter(|other| *other != user);
        assert!(body.contains(user), "{}: {user} is not named in {body}", self.name);
        for other in others {
            assert!(!body.contains(other), "{}: {other} is named in {body}", self.name);
        }
    }

    /// All requests executed so far whose query has a sender.
    pub(super) fn executions(&mut self) -> &[Execution] {
        match &self.backend {
            Backend::AuditLogs { logs, .. } => {
                let events = logs.iter().flat_map(|log| read_events(log));
                self.executions = events.filter(|execution| execution.target.contains("as=")).collect();
            }
            Backend::Upstream(scene) => {
                let received = scene.runtime.block_on(scene.peer.take_requests());
                let received = received.iter().filter(|received| received.request_line.contains("as="));
                self.executions.extend(received.map(upstream_execution));
            }
        }
        &self.executions
    }

    /// Every executed request must have the user that its query names, and no group of another.
    #[track_caller]
    pub(super) fn check_users_of_executions(&mut self) {
        let name = self.name;
        let executions = self.executions();
        assert!(executions.len() > 1, "{name}: requests were executed");
        for execution in executions {
            let sender = if execution.target.contains("as=joe") { "joe" } else { "jane" };
            assert_eq!(execution.users, [sender], "{name}: {execution:?}");
            assert_eq!(execution.groups, ["system:authenticated"], "{name}: {execution:?}");
        }
    }
}

fn client_of(server: &RunningServer, name: &str) -> Client {
    server.client_with(user_credentials(&server.pki(), name))
}

fn strings(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

fn read_events(log: &Path) -> Vec<Execution> {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let events = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let execution = |event: Value| Execution {
        users: event["user"]["username"].as_str().map(str::to_owned).into_iter().collect(),
        groups: strings(&event["user"]["groups"]),
        target: event["requestURI"].as_str().unwrap_or_default().to_owned(),
    };
    events.map(execution).collect()
}

fn upstream_execution(received: &ReceivedRequest) -> Execution {
    let values = |name: &str| received.header(name).into_iter().map(str::to_owned).collect();
    Execution {
        users: values("x-remote-user"),
        groups: values("x-remote-group"),
        target: received.request_line.clone(),
    }
}

/// Splits what a server sent until it closed the connection.
fn parse_responses(bytes: &[u8]) -> Vec<RawResponse> {
    let text = String::from_utf8_lossy(bytes).into_owned();
    let mut rest = text.as_str();
    let mut responses = Vec::new();
    while let Some((head, after)) = rest.split_once("\r\n\r\n") {
        let header = |name: &str| {
            let lines = head.lines().filter_map(|line| line.split_once(": "));
            lines.filter(|(header, _)| header.eq_ignore_ascii_case(name)).map(|(_, value)| value).next()
        };
        let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or_default();
        // Whatever has no length ends with the connection.
        let length = header("content-length").map_or(after.len(), |length| length.parse().unwrap());
        let (body, next) = after.split_at(length.min(after.len()));
        responses.push(RawResponse { status, body: body.to_owned() });
        rest = next;
    }
    assert!(rest.is_empty(), "bytes after the last response: {rest:?}");
    responses
}

//! A scripted extension API server over real TLS: gadgets, in the group `ext.example.com`.

pub(super) mod openapi;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use cluster_tests::Client;
use cluster_tests::scripted_members::http_response;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tasks::Tasks;
use tokio::sync::broadcast;
use transport::testing::{ReceivedRequest, ScriptedConnection, ScriptedPeer, TestCertificates};

pub(super) const GROUP: &str = "ext.example.com";
pub(super) const NAME: &str = "v1.ext.example.com";
pub(super) const GADGETS: &str = "/apis/ext.example.com/v1/namespaces/default/gadgets";
const VERSION_PATH: &str = "/apis/ext.example.com/v1";
/// The name in its certificate.
const SERVER_NAME: &str = "ext.default.svc";

/// How the server behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Normal,
    /// Serves no aggregated discovery.
    LegacyDiscovery,
    /// Closes every connection without a response.
    Down,
    /// Reads requests and never responds.
    Silent,
    /// Responds with bytes that are no HTTP.
    Garbage,
    /// Executes writes, and closes the connection without a response.
    LosesResponses,
    /// Serves another release of its OpenAPI documents.
    NewerOpenApi,
    /// Serves an OpenAPI index and documents that are no JSON.
    BrokenOpenApi,
    /// Never responds to requests for OpenAPI.
    SilentOpenApi,
    /// Answers requests of clients with 401.
    Unauthorized,
}

#[derive(Default)]
struct State {
    mode: Option<Mode>,
    /// By namespace and name.
    objects: BTreeMap<(String, String), Value>,
    revision: u64,
    creates: usize,
}

pub(super) struct ExtensionServer {
    _folder: tempfile::TempDir,
    certificates: TestCertificates,
    tasks: Tasks,
    state: Arc<Mutex<State>>,
    pub(super) peer: ScriptedPeer,
}

impl ExtensionServer {
    pub(super) async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let certificates = TestCertificates::new(folder.path());
        let (state, tasks) = (Arc::new(Mutex::new(State::default())), Tasks::new());
        let (events, _) = broadcast::channel(64);
        let shared = state.clone();
        let tls = certificates.server_config_named(SERVER_NAME);
        let peer =
            ScriptedPeer::start(tls, &tasks, move |connection| serve(connection, shared.clone(), events.clone())).await;
        Self { _folder: folder, certificates, tasks, state, peer }
    }

    /// Another process of the same service: it has the same objects.
    pub(super) async fn start_replica(&self) -> ScriptedPeer {
        let (events, _) = broadcast::channel(64);
        let shared = self.state.clone();
        let tls = self.certificates.server_config_named(SERVER_NAME);
        ScriptedPeer::start(tls, &self.tasks, move |connection| {
            let shared = shared.clone();
            let events = events.clone();
            async move { serve_in_mode(connection, &shared, &events, || Mode::Normal).await }
        })
        .await
    }

    pub(super) fn set_mode(&self, mode: Mode) {
        self.state.lock().mode = Some(mode);
    }

    /// The creates that were executed.
    pub(super) fn creates(&self) -> usize {
        self.state.lock().creates
    }

    pub(super) fn ca_bundle(&self) -> String {
        BASE64_STANDARD.encode(self.certificates.ca_pem())
    }

    /// An APIService of a version of the group.
    pub(super) fn api_service(&self, version: &str) -> Value {
        json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
            "metadata": {"name": format!("{version}.{GROUP}")},
            "spec": {"group": GROUP, "version": version, "groupPriorityMinimum": 2000, "versionPriority": 200,
                "service": {"namespace": "default", "name": "ext", "port": self.peer.address.port()},
                "caBundle": self.ca_bundle()}})
    }

    /// Creates the service and the APIService of `v1`.
    pub(super) async fn register(&self, client: &Client) {
        let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "ext"},
            "spec": {"type": "ExternalName", "externalName": "localhost"}});
        let created = client.create("/api/v1/namespaces/default/services", &service).await;
        assert_eq!(created.status, 201, "{}", created.summary());
        let created = client.create(super::API_SERVICES, &self.api_service("v1")).await;
        assert_eq!(created.status, 201, "{}", created.summary());
    }

    /// The requests of clients since the last call: not those of checks, discovery and pings.
    pub(super) async fn take_proxied(&self) -> Vec<ReceivedRequest> {
        let own = |request: &ReceivedRequest| request.header("x-remote-user") == ["system:kube-aggregator"];
        self.peer.take_requests().await.into_iter().filter(|request| !own(request)).collect()
    }
}

pub(super) fn gadget(name: &str) -> Value {
    json!({"apiVersion": "ext.example.com/v1", "kind": "Gadget", "metadata": {"name": name}, "size": 3})
}

async fn serve(connection: ScriptedConnection, state: Arc<Mutex<State>>, events: broadcast::Sender<Value>) {
    let mode = || state.lock().mode.unwrap_or(Mode::Normal);
    serve_in_mode(connection, &state, &events, mode).await;
}

async fn serve_in_mode(
    mut connection: ScriptedConnection,
    state: &Mutex<State>,
    events: &broadcast::Sender<Value>,
    mode: impl Fn() -> Mode,
) {
    if mode() == Mode::Down {
        return;
    }
    while let Some(received) = connection.read_request().await {
        match mode() {
            Mode::SilentOpenApi if received.request_line.contains(" /openapi/") => {
                return connection.wait_for_close().await;
            }
            Mode::Normal
            | Mode::LegacyDiscovery
            | Mode::NewerOpenApi
            | Mode::BrokenOpenApi
            | Mode::SilentOpenApi
            | Mode::Unauthorized => {}
            Mode::Down => return,
            Mode::Silent => return connection.wait_for_close().await,
            Mode::Garbage => return connection.write("SSH-2.0-OpenSSH\r\n\r\n").await,
            Mode::LosesResponses if received.request_line.starts_with("GET") => {}
            Mode::LosesResponses => {
                respond(&received, state, events, mode());
                return;
            }
        }
        if received.request_line.contains("/shell") {
            connection.write("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n").await;
            let line = connection.read_exactly("hello".len()).await.unwrap_or_default();
            return connection.write(&format!("{line} to you")).await;
        }
        if received.request_line.contains("watch=") {
            return stream_events(connection, events.subscribe()).await;
        }
        let response = respond(&received, state, events, mode());
        connection.write(&response).await;
    }
}

async fn stream_events(mut connection: ScriptedConnection, mut events: broadcast::Receiver<Value>) {
    let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n";
    connection.write(head).await;
    // The test ends the watch by closing its connection, which the next write notices.
    while let Ok(Ok(event)) = tokio::time::timeout(Duration::from_secs(60), events.recv()).await {
        let line = format!("{event}\n");
        connection.write(&format!("{:x}\r\n{line}\r\n", line.len())).await;
    }
}

fn respond(received: &ReceivedRequest, state: &Mutex<State>, events: &broadcast::Sender<Value>, mode: Mode) -> String {
    let mut words = received.request_line.split(' ');
    let (method, target) = (words.next().unwrap(), words.next().unwrap());
    let path = target.split('?').next().unwrap();
    let accept = received.header("accept").join(",");
    let json = |status: &str, body: &Value| http_response(status, "application/json", &body.to_string());
    if let Some(response) = openapi::respond(target, mode) {
        return response;
    }
    match (method, path) {
        _ if mode == Mode::Unauthorized && path.contains("/gadgets") => {
            let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Unauthorized",
                "code": 401, "message": "the extension server says Unauthorized"});
            json("401 Unauthorized", &status)
        }
        ("GET", "/apis") if mode == Mode::LegacyDiscovery => {
            json("200 OK", &json!({"kind": "APIGroupList", "groups": []}))
        }
        ("GET", "/apis") => {
            assert!(accept.contains("apidiscovery.k8s.io"), "{accept}");
            http_response("200 OK", super::DISCOVERY_ACCEPT, &aggregated_document().to_string())
        }
        ("GET", VERSION_PATH) => json("200 OK", &resource_list()),
        ("GET", "/apis/ext.example.com/v1/moved") => {
            "HTTP/1.1 302 Found\r\nLocation: https://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n".to_owned()
        }
        (_, path) => match path
            .strip_prefix("/apis/ext.example.com/v1/namespaces/")
            .and_then(|rest| rest.split_once('/'))
        {
            Some((namespace, "gadgets")) => respond_collection(method, namespace, received, state, events),
            Some((namespace, rest)) if rest.starts_with("gadgets/") => {
                respond_object(method, namespace, &rest["gadgets/".len()..], state, events)
            }
            _ if path == "/apis/ext.example.com/v1/gadgets" => respond_collection(method, "", received, state, events),
            _ => http_response("404 Not Found", "text/plain", "404 page not found\n"),
        },
    }
}

fn respond_collection(
    method: &str,
    namespace: &str,
    received: &ReceivedRequest,
    state: &Mutex<State>,
    events: &broadcast::Sender<Value>,
) -> String {
    let mut state = state.lock();
    let json = |status: &str, body: &Value| http_response(status, "application/json", &body.to_string());
    match method {
        "POST" => {
            let mut object: Value = serde_json::from_str(&received.body).unwrap();
            let name = object["metadata"]["name"].as_str().unwrap().to_owned();
            state.revision += 1;
            state.creates += 1;
            object["metadata"]["namespace"] = namespace.into();
            object["metadata"]["uid"] = format!("uid-{name}").into();
            object["metadata"]["resourceVersion"] = state.revision.to_string().into();
            state.objects.insert((namespace.to_owned(), name), object.clone());
            // Fails without watches.
            let _ = events.send(json!({"type": "ADDED", "object": object}));
            json("201 Created", &object)
        }
        "DELETE" => {
            state.objects.retain(|(of, _), _| of != namespace);
            json("200 OK", &json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}))
        }
        _ => {
            let of_namespace = |(key, _): &(&(String, String), &Value)| namespace.is_empty() || key.0 == namespace;
            let objects: Vec<&Value> = state.objects.iter().filter(of_namespace).map(|(_, object)| object).collect();
            let metadata = json!({"resourceVersion": state.revision.to_string()});
            if received.header("accept").join(",").contains("as=Table") {
                let row =
                    |object: &&Value| json!({"cells": [object["metadata"]["name"], object["size"]], "object": object});
                let rows: Vec<Value> = objects.iter().map(row).collect();
                return json(
                    "200 OK",
                    &json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
                    "columnDefinitions": [{"name": "Name", "type": "string"}, {"name": "Size", "type": "integer"}],
                    "rows": rows}),
                );
            }
            let list = json!({"kind": "GadgetList", "apiVersion": "ext.example.com/v1", "metadata": metadata, "items": objects});
            json("200 OK", &list)
        }
    }
}

fn respond_object(
    method: &str,
    namespace: &str,
    name: &str,
    state: &Mutex<State>,
    events: &broadcast::Sender<Value>,
) -> String {
    let mut state = state.lock();
    let key = (namespace.to_owned(), name.to_owned());
    let found = if method == "DELETE" { state.objects.remove(&key) } else { state.objects.get(&key).cloned() };
    let Some(found) = found else {
        let details = json!({"name": name, "group": GROUP, "kind": "gadgets"});
        let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404,
            "message": format!("gadgets.ext.example.com {name:?} not found"), "details": details});
        return http_response("404 Not Found", "application/json", &status.to_string());
    };
    if method == "DELETE" {
        let _ = events.send(json!({"type": "DELETED", "object": found}));
    }
    http_response("200 OK", "application/json", &found.to_string())
}

fn aggregated_document() -> Value {
    json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": [
        {"metadata": {"name": GROUP}, "versions": [{"version": "v1", "freshness": "Current", "resources": [
            {"resource": "gadgets", "scope": "Namespaced", "singularResource": "gadget",
                "responseKind": {"group": "", "version": "", "kind": "Gadget"},
                "verbs": ["create", "delete", "deletecollection", "get", "list", "watch"]}]}]}]})
}

fn resource_list() -> Value {
    json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "ext.example.com/v1", "resources": [
        {"name": "gadgets", "singularName": "gadget", "namespaced": true, "kind": "Gadget",
            "verbs": ["create", "delete", "deletecollection", "get", "list", "watch"]}]})
}

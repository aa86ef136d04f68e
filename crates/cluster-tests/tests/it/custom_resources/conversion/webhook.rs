//! A conversion webhook over real TLS, on a thread of its own: tests also run programs that block.

#![expect(clippy::wildcard_enum_match_arm, reason = "most behaviours differ in one place")]

use std::sync::Arc;
use std::sync::mpsc;

use base64::Engine as _;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tasks::Tasks;
use tempfile::TempDir;
use tokio::sync::oneshot;
use transport::testing::{ScriptedConnection, ScriptedPeer, TestCertificates};

/// The name in the webhook's certificate, beside `127.0.0.1`.
const NAME: &str = "hook.default.svc";

/// What the webhook does with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Behaviour {
    Convert,
    Hang,
    /// 500 with a text.
    ServerError,
    /// A review whose result is a failure with a message.
    Failure,
    /// Another uid than that of the request.
    WrongUid,
    /// Another `metadata.uid` of the object.
    ChangedUid,
    /// Another name of the object.
    ChangedName,
    WrongKind,
    /// The object in the version that it had.
    Unconverted,
    NoObjects,
    /// Not a review.
    Garbage,
}

impl Behaviour {
    /// All but the one that does not respond.
    pub(super) const ALL: [Self; 10] = [
        Self::Convert,
        Self::ServerError,
        Self::Failure,
        Self::WrongUid,
        Self::ChangedUid,
        Self::ChangedName,
        Self::WrongKind,
        Self::Unconverted,
        Self::NoObjects,
        Self::Garbage,
    ];
}

#[derive(Debug)]
pub(super) struct ConversionWebhook {
    pub(super) port: u16,
    ca_pem: Vec<u8>,
    state: Arc<Mutex<WebhookState>>,
    _stop: oneshot::Sender<()>,
    _dir: TempDir,
}

#[derive(Debug)]
struct WebhookState {
    behaviour: Behaviour,
    /// Target version and number of objects of each request.
    calls: Vec<(String, usize)>,
}

impl ConversionWebhook {
    pub(super) fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let certificates = TestCertificates::new(dir.path());
        let (tls, ca_pem) = (certificates.server_config_named(NAME), certificates.ca_pem());
        let state = Arc::new(Mutex::new(WebhookState { behaviour: Behaviour::Convert, calls: Vec::new() }));
        let (shared, (started, address), (stop, stopped)) = (state.clone(), mpsc::channel(), oneshot::channel());
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let tasks = Tasks::new();
                let script = move |connection| serve(connection, shared.clone());
                let peer = ScriptedPeer::start(tls, &tasks, script).await;
                started.send(peer.address.port()).unwrap();
                let _ = stopped.await;
            });
        });
        let port = address.recv().unwrap();
        Self { port, ca_pem, state, _stop: stop, _dir: dir }
    }

    /// The `conversion` of a definition, by URL.
    pub(super) fn by_url(&self) -> Value {
        self.conversion(&json!({"url": format!("https://127.0.0.1:{}/convert", self.port)}))
    }

    /// The `conversion` of a definition, by the service `hook` in the namespace `default`.
    pub(super) fn by_service(&self) -> Value {
        self.conversion(&json!({"service":
            {"namespace": "default", "name": "hook", "port": self.port, "path": "/convert"}}))
    }

    fn conversion(&self, config: &Value) -> Value {
        let mut config = config.clone();
        config["caBundle"] = base64::engine::general_purpose::STANDARD.encode(&self.ca_pem).into();
        json!({"strategy": "Webhook",
            "webhook": {"clientConfig": config, "conversionReviewVersions": ["v1", "v1beta1"]}})
    }

    pub(super) fn set(&self, behaviour: Behaviour) {
        self.state.lock().behaviour = behaviour;
    }

    /// Target version and number of objects of the requests since the last call.
    pub(super) fn take_calls(&self) -> Vec<(String, usize)> {
        std::mem::take(&mut self.state.lock().calls)
    }
}

async fn serve(mut connection: ScriptedConnection, state: Arc<Mutex<WebhookState>>) {
    while let Some(request) = connection.read_request().await {
        assert!(request.request_line.starts_with("POST /convert?timeout="), "{}", request.request_line);
        let review: Value = serde_json::from_str(&request.body).unwrap();
        let behaviour = {
            let mut state = state.lock();
            let objects = review["request"]["objects"].as_array().unwrap().len();
            let desired = review["request"]["desiredAPIVersion"].as_str().unwrap().to_owned();
            state.calls.push((desired, objects));
            state.behaviour
        };
        let (code, content_type, body) = match behaviour {
            Behaviour::Hang => return connection.wait_for_close().await,
            Behaviour::ServerError => (500, "text/plain", "out of order\n".to_owned()),
            Behaviour::Garbage => (200, "application/json", "{}".to_owned()),
            _ => (200, "application/json", respond(&review, behaviour).to_string()),
        };
        let length = body.len();
        let head = format!("HTTP/1.1 {code} x\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\n\r\n");
        connection.write(&format!("{head}{body}")).await;
    }
}

fn respond(review: &Value, behaviour: Behaviour) -> Value {
    let request = &review["request"];
    let desired = request["desiredAPIVersion"].as_str().unwrap();
    let objects = request["objects"].as_array().unwrap().iter();
    let converted: Vec<Value> = objects.map(|object| convert(object, desired, behaviour)).collect();
    let (uid, result) = match behaviour {
        Behaviour::WrongUid => (json!("other"), json!({"status": "Success"})),
        Behaviour::Failure => (request["uid"].clone(), json!({"status": "Failure", "message": "no such port"})),
        _ => (request["uid"].clone(), json!({"status": "Success"})),
    };
    let converted = if behaviour == Behaviour::NoObjects { Vec::new() } else { converted };
    json!({"apiVersion": review["apiVersion"], "kind": "ConversionReview",
        "response": {"uid": uid, "convertedObjects": converted, "result": result}})
}

/// `hostPort` of version 1 is `host` and `port` in version 2; an annotation counts the conversions.
fn convert(object: &Value, desired: &str, behaviour: Behaviour) -> Value {
    let mut converted = object.clone();
    if behaviour == Behaviour::Unconverted {
        return converted;
    }
    let spec = converted["spec"].as_object_mut().unwrap();
    if desired.ends_with("/v2") {
        let host_port = spec.remove("hostPort").unwrap();
        let (host, port) = host_port.as_str().unwrap().split_once(':').unwrap();
        spec.insert("host".to_owned(), host.into());
        spec.insert("port".to_owned(), port.parse::<u64>().unwrap().into());
    } else {
        let (host, port) = (spec.remove("host").unwrap(), spec.remove("port").unwrap());
        spec.insert("hostPort".to_owned(), format!("{}:{port}", host.as_str().unwrap()).into());
    }
    // Pruned by the target's schema.
    spec.insert("unknown".to_owned(), true.into());
    converted["apiVersion"] = desired.into();
    converted["metadata"]["labels"]["shown-in"] = desired.rsplit('/').next().unwrap().into();
    // Ignored: only labels and annotations are the webhook's.
    converted["metadata"]["generation"] = 77.into();
    match behaviour {
        Behaviour::ChangedUid => converted["metadata"]["uid"] = "other".into(),
        Behaviour::ChangedName => converted["metadata"]["name"] = "other".into(),
        Behaviour::WrongKind => converted["kind"] = "Other".into(),
        _ => {}
    }
    converted
}

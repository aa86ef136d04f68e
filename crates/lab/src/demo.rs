//! The story of the two KEPs, told on a throw-away lab: every line is a real request, and every claim is checked.

use http::Method;
use serde_json::{Value, json};
use tokio::time::{Duration, Instant};

use crate::client::{Answer, Ask};
use crate::lab::Inside;
use crate::status::Phase;
use crate::status::collect::{STORAGE_VERSIONS, storage_versions};
use crate::supervisor::Act;

/// Old, newer and newest: the first does not know what the story is about, the others store it differently.
pub const RELEASES: [&str; 3] = ["1.33", "1.34", "1.36"];
/// What turns the mixed version proxy off, for the first half.
pub const GATE_OFF: &str = crate::launch::PEERING_OFF;
/// The same, for the second half.
pub const GATE_ON: &str = "UnknownVersionInteroperabilityProxy=true";

const CLASSES: &str = "/apis/storage.k8s.io/v1/volumeattributesclasses";
const CLASS: &str = "/apis/storage.k8s.io/v1/volumeattributesclasses/gold";
const CLASS_RECORD: &str = "storage.k8s.io.volumeattributesclasses";
const MERGED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
const PATIENCE: Duration = Duration::from_secs(30);
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// A claim that did not hold.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Untrue(String);

/// Tells the story, line by line.
pub struct Teller<'a> {
    inside: &'a Inside,
    say: &'a mut dyn FnMut(&str),
}

impl std::fmt::Debug for Teller<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Teller").finish_non_exhaustive()
    }
}

impl<'a> Teller<'a> {
    /// A teller about this lab, which is ready.
    pub fn new(inside: &'a Inside, say: &'a mut dyn FnMut(&str)) -> Self {
        Self { inside, say }
    }

    /// The first half: what happens without the mixed version proxy.
    pub async fn without_proxy(&mut self) -> Result<(), Untrue> {
        self.chapter("1. Three servers in the middle of an upgrade, as they have always been");
        self.note("a is 1.33, b is 1.34, c is 1.36. VolumeAttributesClass v1 exists from 1.34 on. It is created at c:");
        let object = json!({"apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttributesClass",
            "metadata": {"name": "gold"}, "driverName": "disk.example", "parameters": {"iops": "9000"}});
        self.send(2, Ask::send(Method::POST, CLASSES, &object), 201).await?;
        self.note("Asked for at a, which does not know it:");
        self.get(0, CLASS, 404).await?;
        self.note("\"Not found\" for what exists. A garbage collector that asks a would take everything owned by it for orphaned,");
        self.note("and delete it. Discovery differs, too:");
        let (old, new) = (self.document(0).await?, self.document(2).await?);
        self.claim(!lists_classes(&old) && lists_classes(&new), "only c's document lists volumeattributesclasses in v1")
    }

    /// The second half: the same with it.
    pub async fn with_proxy(&mut self) -> Result<(), Untrue> {
        self.chapter("2. The same servers and the same data, with the mixed version proxy");
        self.note("a asks somebody who knows:");
        self.get(0, CLASS, 200).await?;
        let (old, new) = (self.document(0).await?, self.document(2).await?);
        self.claim(lists_classes(&old), "a's document lists volumeattributesclasses in v1")?;
        self.claim(old.body == new.body, "a and c give the same document, byte for byte")?;
        self.chapter("3. Nobody who knows it is there");
        for server in ["b", "c"] {
            self.order(server, Act::Kill).await?;
        }
        self.note("Whether it exists cannot be known now, and a says so, instead of denying it:");
        self.get(0, CLASS, 503).await?;
        self.note("What a serves itself is not touched:");
        self.get(0, "/api/v1/namespaces/default", 200).await?;
        self.chapter("4. Back again");
        for server in ["b", "c"] {
            self.order(server, Act::Start).await?;
        }
        self.wait_ready().await?;
        self.get(0, CLASS, 200).await?;
        self.storage().await
    }

    async fn storage(&mut self) -> Result<(), Untrue> {
        self.chapter("5. In which form is it stored?");
        self.note("Each server says which version it writes. 1.34 writes v1beta1, 1.36 writes v1:");
        self.get(0, &format!("{STORAGE_VERSIONS}/{CLASS_RECORD}"), 200).await?;
        let agreed = self.wait_agreed(|agreed| agreed.is_empty()).await;
        self.claim(agreed, "b and c do not agree, so a storage migration would be polluted now")?;
        self.order("b", Act::Stop).await?;
        self.order("b", Act::StartAs("1.36".to_owned())).await?;
        self.wait_ready().await?;
        let agreed = self.wait_agreed(|agreed| agreed == "storage.k8s.io/v1").await;
        self.claim(agreed, "b is 1.36 now, and all who write it agree on storage.k8s.io/v1")
    }

    fn chapter(&mut self, title: &str) {
        (self.say)(&format!("\n{title}\n"));
    }

    fn note(&mut self, text: &str) {
        (self.say)(&format!("  {text}"));
    }

    fn claim(&mut self, holds: bool, claim: &str) -> Result<(), Untrue> {
        if !holds {
            return Err(Untrue(format!("this does not hold: {claim}")));
        }
        (self.say)(&format!("  => {claim}"));
        Ok(())
    }

    async fn get(&mut self, at: usize, path: &str, expected: u16) -> Result<(), Untrue> {
        self.send(at, Ask::get(path), expected).await.map(drop)
    }

    /// Sends a request to server `at`, shows it as a command, and checks the code.
    async fn send(&mut self, at: usize, ask: Ask, expected: u16) -> Result<Answer, Untrue> {
        let address = self.address(at);
        (self.say)(&format!("  $ kubectl --server {address} {}", command(&ask)));
        let path = ask.path.clone();
        let answer = self.inside.clients[at].ask(ask).await;
        let answer = answer.map_err(|error| Untrue(format!("{path} at {address}: {error}")))?;
        let shown = brief(&answer);
        if answer.status.as_u16() != expected {
            return Err(Untrue(format!("{path} at {address}: {expected} was expected and not {shown}")));
        }
        (self.say)(&format!("    {shown}"));
        Ok(answer)
    }

    async fn document(&mut self, at: usize) -> Result<Answer, Untrue> {
        self.send(at, Ask::get("/apis").with("accept", MERGED), 200).await
    }

    async fn order(&mut self, server: &str, act: Act) -> Result<(), Untrue> {
        let shown = match &act {
            Act::Kill => format!("unskew kill {server}"),
            Act::Stop => format!("unskew stop {server}"),
            Act::StartAs(release) => format!("unskew start {server}   # as {release}"),
            Act::Start => format!("unskew start {server}"),
            Act::Pause => format!("unskew pause {server}"),
            Act::Resume => format!("unskew resume {server}"),
        };
        (self.say)(&format!("  $ {shown}"));
        self.inside.handle.order(server, act).await.map_err(|error| Untrue(error.to_string()))
    }

    /// Until all servers are ready and take each other for live.
    async fn wait_ready(&self) -> Result<(), Untrue> {
        self.inside.ready().await.map_err(|error| Untrue(error.to_string()))?;
        let mut snapshots = self.inside.snapshots.clone();
        let settled = |snapshot: &std::sync::Arc<crate::status::Snapshot>| {
            let servers = &snapshot.servers;
            servers.iter().all(|server| server.phase == Phase::Ready && server.member_state == "live")
        };
        let waited = tokio::time::timeout(PATIENCE, snapshots.wait_for(settled)).await;
        match waited {
            Ok(_) => Ok(()),
            Err(_) => Err(Untrue("the servers do not see each other".to_owned())),
        }
    }

    async fn wait_agreed(&self, is_expected: impl Fn(&str) -> bool) -> bool {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            let versions = storage_versions(&self.inside.clients[0]).await.unwrap_or_default();
            let class = versions.iter().find(|version| version.name == CLASS_RECORD);
            if class.is_some_and(|class| !class.writes.is_empty() && is_expected(&class.agreed)) {
                return true;
            }
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
        false
    }

    fn address(&self, at: usize) -> String {
        let board = self.inside.handle.board();
        let port = board.borrow().servers[at].server.port;
        format!("https://127.0.0.1:{port}")
    }
}

/// What kubectl would be told, for the same request.
fn command(ask: &Ask) -> String {
    match ask.method {
        Method::POST => format!("create --raw {} -f gold.json", ask.path),
        _ => format!("get --raw {}", ask.path),
    }
}

/// The code, and what is said in a few words.
fn brief(answer: &Answer) -> String {
    let json: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    let said = match (json["kind"].as_str(), json["message"].as_str()) {
        (Some("Status"), Some(message)) => message.to_owned(),
        (Some(kind), _) => match json["metadata"]["name"].as_str() {
            Some(name) => format!("{kind} {name}"),
            None => format!("{kind}, {} bytes", answer.body.len()),
        },
        (None, _) => format!("{} bytes", answer.body.len()),
    };
    format!("{} {said}", answer.status.as_u16())
}

fn lists_classes(document: &Answer) -> bool {
    discovery::parse::parse_aggregated(&document.body).is_ok_and(|groups| {
        groups.version("storage.k8s.io", "v1").is_some_and(|version| {
            version.resources.iter().any(|resource| &*resource.name == "volumeattributesclasses")
        })
    })
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::{HeaderMap, StatusCode};

    use super::*;

    #[track_caller]
    fn check(status: StatusCode, body: &str, expected: &str) {
        let answer = Answer { status, headers: HeaderMap::new(), body: Bytes::copy_from_slice(body.as_bytes()) };
        assert_eq!(brief(&answer), expected);
    }

    #[test]
    fn answers_are_shown_in_a_few_words() {
        check(StatusCode::NOT_FOUND, r#"{"kind":"Status","message":"nothing there"}"#, "404 nothing there");
        check(StatusCode::OK, r#"{"kind":"Namespace","metadata":{"name":"default"}}"#, "200 Namespace default");
        check(StatusCode::OK, r#"{"kind":"List","metadata":{}}"#, "200 List, 29 bytes");
        check(StatusCode::OK, "ok", "200 2 bytes");
    }

    #[test]
    fn requests_are_shown_as_commands() {
        assert_eq!(command(&Ask::get("/api")), "get --raw /api");
        assert_eq!(command(&Ask::send(Method::POST, "/x", &json!({}))), "create --raw /x -f gold.json");
    }
}

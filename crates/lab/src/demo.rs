//! The story of the two KEPs, told on a throw-away lab: every line is a real request, and every claim is checked.

use http::Method;
use serde_json::{Value, json};
use tokio::time::{Duration, Instant};

use crate::client::{AdminRequest, AdminResponse};
use crate::lab::LabHandle;
use crate::status::Phase;
use crate::status::collect::{STORAGE_VERSIONS_PATH, fetch_storage_versions};
use crate::supervisor::ServerAction;

/// Old, newer and newest: the first does not know what the story is about, the others store it differently.
pub const RELEASES: [&str; 3] = ["1.33", "1.34", "1.36"];
/// What turns the mixed version proxy off, for the first half.
pub const GATE_OFF: &str = crate::process_args::PEER_PROXY_GATE_OFF;
/// The same, for the second half.
pub const GATE_ON: &str = "UnknownVersionInteroperabilityProxy=true";

const CLASSES_PATH: &str = "/apis/storage.k8s.io/v1/volumeattributesclasses";
const CLASS_PATH: &str = "/apis/storage.k8s.io/v1/volumeattributesclasses/gold";
const CLASSES_STORAGE_VERSION: &str = "storage.k8s.io.volumeattributesclasses";
const MERGED_DISCOVERY_ACCEPT: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
const CLAIM_TIMEOUT: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A claim that did not hold.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ClaimError(String);

/// Tells the story, line by line.
pub struct Demo<'a> {
    lab: &'a LabHandle,
    print_line: &'a mut dyn FnMut(&str),
}

impl std::fmt::Debug for Demo<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Demo").finish_non_exhaustive()
    }
}

impl<'a> Demo<'a> {
    /// A teller about this lab, which is ready.
    pub fn new(inside: &'a LabHandle, say: &'a mut dyn FnMut(&str)) -> Self {
        Self { lab: inside, print_line: say }
    }

    /// The first half: what happens without the mixed version proxy.
    pub async fn run_without_proxy(&mut self) -> Result<(), ClaimError> {
        self.print_heading("1. Three servers in the middle of an upgrade, as they have always been");
        self.print_note(
            "a is 1.33, b is 1.34, c is 1.36. VolumeAttributesClass v1 exists from 1.34 on. It is created at c:",
        );
        let object = json!({"apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttributesClass",
            "metadata": {"name": "gold"}, "driverName": "disk.example", "parameters": {"iops": "9000"}});
        self.send_expecting(2, AdminRequest::with_json_body(Method::POST, CLASSES_PATH, &object), 201).await?;
        self.print_note("Asked for at a, which does not know it:");
        self.get_expecting(0, CLASS_PATH, 404).await?;
        self.print_note("\"Not found\" for what exists. A garbage collector that asks a would take everything owned by it for orphaned,");
        self.print_note("and delete it. Discovery differs, too:");
        let (old, new) = (self.fetch_merged_discovery(0).await?, self.fetch_merged_discovery(2).await?);
        self.check_claim(
            !lists_volume_attributes_classes(&old) && lists_volume_attributes_classes(&new),
            "only c's document lists volumeattributesclasses in v1",
        )
    }

    /// The second half: the same with it.
    pub async fn run_with_proxy(&mut self) -> Result<(), ClaimError> {
        self.print_heading("2. The same servers and the same data, with the mixed version proxy");
        self.print_note("a asks somebody who knows:");
        self.get_expecting(0, CLASS_PATH, 200).await?;
        let (old, new) = (self.fetch_merged_discovery(0).await?, self.fetch_merged_discovery(2).await?);
        self.check_claim(lists_volume_attributes_classes(&old), "a's document lists volumeattributesclasses in v1")?;
        self.check_claim(old.body == new.body, "a and c give the same document, byte for byte")?;
        self.print_heading("3. Nobody who knows it is there");
        for server in ["b", "c"] {
            self.run_action(server, ServerAction::Kill).await?;
        }
        self.print_note("Whether it exists cannot be known now, and a says so, instead of denying it:");
        self.get_expecting(0, CLASS_PATH, 503).await?;
        self.print_note("What a serves itself is not touched:");
        self.get_expecting(0, "/api/v1/namespaces/default", 200).await?;
        self.print_heading("4. Back again");
        for server in ["b", "c"] {
            self.run_action(server, ServerAction::Start).await?;
        }
        self.wait_ready().await?;
        self.get_expecting(0, CLASS_PATH, 200).await?;
        self.run_storage_versions().await
    }

    async fn run_storage_versions(&mut self) -> Result<(), ClaimError> {
        self.print_heading("5. In which form is it stored?");
        self.print_note("Each server says which version it writes. 1.34 writes v1beta1, 1.36 writes v1:");
        self.get_expecting(0, &format!("{STORAGE_VERSIONS_PATH}/{CLASSES_STORAGE_VERSION}"), 200).await?;
        let agreed = self.wait_for_agreement(|agreed| agreed.is_empty()).await;
        self.check_claim(agreed, "b and c do not agree, so a storage migration would be polluted now")?;
        self.run_action("b", ServerAction::Stop).await?;
        self.run_action("b", ServerAction::StartAs("1.36".to_owned())).await?;
        self.wait_ready().await?;
        let agreed = self.wait_for_agreement(|agreed| agreed == "storage.k8s.io/v1").await;
        self.check_claim(agreed, "b is 1.36 now, and all who write it agree on storage.k8s.io/v1")
    }

    fn print_heading(&mut self, title: &str) {
        (self.print_line)(&format!("\n{title}\n"));
    }

    fn print_note(&mut self, text: &str) {
        (self.print_line)(&format!("  {text}"));
    }

    fn check_claim(&mut self, holds: bool, claim: &str) -> Result<(), ClaimError> {
        if !holds {
            return Err(ClaimError(format!("this does not hold: {claim}")));
        }
        (self.print_line)(&format!("  => {claim}"));
        Ok(())
    }

    async fn get_expecting(&mut self, server: usize, path: &str, expected: u16) -> Result<(), ClaimError> {
        self.send_expecting(server, AdminRequest::get(path), expected).await.map(drop)
    }

    /// Sends a request to server `at`, shows it as a command, and checks the code.
    async fn send_expecting(
        &mut self,
        server: usize,
        request: AdminRequest,
        expected: u16,
    ) -> Result<AdminResponse, ClaimError> {
        let address = self.server_address(server);
        (self.print_line)(&format!("  $ kubectl --server {address} {}", kubectl_command(&request)));
        let path = request.path.clone();
        let answer = self.lab.clients[server].request(request).await;
        let answer = answer.map_err(|error| ClaimError(format!("{path} at {address}: {error}")))?;
        let shown = summarize_response(&answer);
        if answer.status.as_u16() != expected {
            return Err(ClaimError(format!("{path} at {address}: {expected} was expected and not {shown}")));
        }
        (self.print_line)(&format!("    {shown}"));
        Ok(answer)
    }

    async fn fetch_merged_discovery(&mut self, server: usize) -> Result<AdminResponse, ClaimError> {
        self.send_expecting(server, AdminRequest::get("/apis").with_header("accept", MERGED_DISCOVERY_ACCEPT), 200)
            .await
    }

    async fn run_action(&mut self, server: &str, action: ServerAction) -> Result<(), ClaimError> {
        let shown = match &action {
            ServerAction::Kill => format!("unskew kill {server}"),
            ServerAction::Stop => format!("unskew stop {server}"),
            ServerAction::StartAs(release) => format!("unskew start {server}   # as {release}"),
            ServerAction::Start => format!("unskew start {server}"),
            ServerAction::Pause => format!("unskew pause {server}"),
            ServerAction::Resume => format!("unskew resume {server}"),
        };
        (self.print_line)(&format!("  $ {shown}"));
        self.lab.supervisor.run_action(server, action).await.map_err(|error| ClaimError(error.to_string()))
    }

    /// Until all servers are ready and take each other for live.
    async fn wait_ready(&self) -> Result<(), ClaimError> {
        self.lab.wait_until_ready().await.map_err(|error| ClaimError(error.to_string()))?;
        let mut snapshots = self.lab.snapshots.clone();
        let settled = |snapshot: &std::sync::Arc<crate::status::LabSnapshot>| {
            let servers = &snapshot.servers;
            servers.iter().all(|server| server.phase == Phase::Ready && server.member_state == "live")
        };
        let waited = tokio::time::timeout(CLAIM_TIMEOUT, snapshots.wait_for(settled)).await;
        match waited {
            Ok(_) => Ok(()),
            Err(_) => Err(ClaimError("the servers do not see each other".to_owned())),
        }
    }

    async fn wait_for_agreement(&self, is_expected: impl Fn(&str) -> bool) -> bool {
        let deadline = Instant::now() + CLAIM_TIMEOUT;
        while Instant::now() < deadline {
            let versions = fetch_storage_versions(&self.lab.clients[0]).await.unwrap_or_default();
            let class = versions.iter().find(|version| version.name == CLASSES_STORAGE_VERSION);
            if class
                .is_some_and(|class| !class.encoding_versions.is_empty() && is_expected(&class.common_encoding_version))
            {
                return true;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        false
    }

    fn server_address(&self, server: usize) -> String {
        let board = self.lab.supervisor.process_table();
        let port = board.borrow().servers[server].server.port;
        format!("https://127.0.0.1:{port}")
    }
}

/// What kubectl would be told, for the same request.
fn kubectl_command(request: &AdminRequest) -> String {
    match request.method {
        Method::POST => format!("create --raw {} -f gold.json", request.path),
        _ => format!("get --raw {}", request.path),
    }
}

/// The code, and what is said in a few words.
fn summarize_response(response: &AdminResponse) -> String {
    let json: Value = serde_json::from_slice(&response.body).unwrap_or_default();
    let said = match (json["kind"].as_str(), json["message"].as_str()) {
        (Some("Status"), Some(message)) => message.to_owned(),
        (Some(kind), _) => match json["metadata"]["name"].as_str() {
            Some(name) => format!("{kind} {name}"),
            None => format!("{kind}, {} bytes", response.body.len()),
        },
        (None, _) => format!("{} bytes", response.body.len()),
    };
    format!("{} {said}", response.status.as_u16())
}

fn lists_volume_attributes_classes(document: &AdminResponse) -> bool {
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
        let answer = AdminResponse { status, headers: HeaderMap::new(), body: Bytes::copy_from_slice(body.as_bytes()) };
        assert_eq!(summarize_response(&answer), expected);
    }

    #[test]
    fn responses_are_summarized_in_one_line() {
        check(StatusCode::NOT_FOUND, r#"{"kind":"Status","message":"nothing there"}"#, "404 nothing there");
        check(StatusCode::OK, r#"{"kind":"Namespace","metadata":{"name":"default"}}"#, "200 Namespace default");
        check(StatusCode::OK, r#"{"kind":"List","metadata":{}}"#, "200 List, 29 bytes");
        check(StatusCode::OK, "ok", "200 2 bytes");
    }

    #[test]
    fn requests_are_shown_as_kubectl_commands() {
        assert_eq!(kubectl_command(&AdminRequest::get("/api")), "get --raw /api");
        assert_eq!(
            kubectl_command(&AdminRequest::with_json_body(Method::POST, "/x", &json!({}))),
            "create --raw /x -f gold.json"
        );
    }
}

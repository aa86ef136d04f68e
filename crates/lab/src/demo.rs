//! Scripted demo of the two KEPs on a temporary lab. Every line is a real request, and every claim is checked.

use http::Method;
use serde_json::{Value, json};
use tokio::time::{Duration, Instant};

use crate::client::{AdminRequest, AdminResponse};
use crate::lab::LabHandle;
use crate::status::Phase;
use crate::status::collect::{STORAGE_VERSIONS_PATH, fetch_storage_versions};
use crate::supervisor::ServerAction;

/// 1.33 does not serve VolumeAttributesClass v1; 1.34 and 1.36 store it in different versions.
pub const RELEASES: [&str; 3] = ["1.33", "1.34", "1.36"];
/// Feature gate setting of the first part: peer proxy off.
pub const GATE_OFF: &str = crate::process_args::PEER_PROXY_GATE_OFF;
/// Feature gate setting of the second part: peer proxy on.
pub const GATE_ON: &str = "UnknownVersionInteroperabilityProxy=true";

const CLASSES_PATH: &str = "/apis/storage.k8s.io/v1/volumeattributesclasses";
const CLASS_PATH: &str = "/apis/storage.k8s.io/v1/volumeattributesclasses/gold";
const CLASSES_STORAGE_VERSION: &str = "storage.k8s.io.volumeattributesclasses";
const MERGED_DISCOVERY_ACCEPT: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
const CLAIM_TIMEOUT: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A claim that did not hold, or a request that failed.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ClaimError(String);

/// Runs the script and prints it line by line.
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
    /// Creates the demo for a lab whose servers are ready.
    pub fn new(inside: &'a LabHandle, say: &'a mut dyn FnMut(&str)) -> Self {
        Self { lab: inside, print_line: say }
    }

    /// Part one: the mixed-version control plane without the peer proxy.
    pub async fn run_without_proxy(&mut self) -> Result<(), ClaimError> {
        self.print_heading("1. Three servers in the middle of an upgrade, without the mixed version proxy");
        self.print_note(
            "a is 1.33, b is 1.34, c is 1.36. VolumeAttributesClass v1 exists from 1.34 on. It is created at c:",
        );
        let object = json!({"apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttributesClass",
            "metadata": {"name": "gold"}, "driverName": "disk.example", "parameters": {"iops": "9000"}});
        self.send_expecting(2, AdminRequest::with_json_body(Method::POST, CLASSES_PATH, &object), 201).await?;
        self.print_note("The same object requested from a, which does not serve the kind:");
        self.get_expecting(0, CLASS_PATH, 404).await?;
        self.print_note("404 for an object that exists. A garbage collector that reads from a would take its dependents for orphans");
        self.print_note("and delete them. Discovery differs, too:");
        let (old, new) = (self.fetch_merged_discovery(0).await?, self.fetch_merged_discovery(2).await?);
        self.check_claim(
            !lists_volume_attributes_classes(&old) && lists_volume_attributes_classes(&new),
            "only c's document lists volumeattributesclasses in v1",
        )
    }

    /// Part two: the same servers and data with the peer proxy.
    pub async fn run_with_proxy(&mut self) -> Result<(), ClaimError> {
        self.print_heading("2. The same servers and the same data, with the mixed version proxy");
        self.print_note("a forwards the request to a server that serves the kind:");
        self.get_expecting(0, CLASS_PATH, 200).await?;
        let (old, new) = (self.fetch_merged_discovery(0).await?, self.fetch_merged_discovery(2).await?);
        self.check_claim(lists_volume_attributes_classes(&old), "a's document lists volumeattributesclasses in v1")?;
        self.check_claim(old.body == new.body, "a and c return the same document, byte for byte")?;
        self.print_heading("3. No server that serves the kind is running");
        for server in ["b", "c"] {
            self.run_action(server, ServerAction::Kill).await?;
        }
        self.print_note("a cannot know whether the object exists: it responds 503, not 404:");
        self.get_expecting(0, CLASS_PATH, 503).await?;
        self.print_note("Resources that a serves itself are unaffected:");
        self.get_expecting(0, "/api/v1/namespaces/default", 200).await?;
        self.print_heading("4. b and c are back");
        for server in ["b", "c"] {
            self.run_action(server, ServerAction::Start).await?;
        }
        self.wait_ready().await?;
        self.get_expecting(0, CLASS_PATH, 200).await?;
        self.run_storage_versions().await
    }

    async fn run_storage_versions(&mut self) -> Result<(), ClaimError> {
        self.print_heading("5. In which version is it stored?");
        self.print_note("Each server publishes which version it writes. 1.34 writes v1beta1, 1.36 writes v1:");
        self.get_expecting(0, &format!("{STORAGE_VERSIONS_PATH}/{CLASSES_STORAGE_VERSION}"), 200).await?;
        let agreed = self.wait_for_agreement(|agreed| agreed.is_empty()).await;
        self.check_claim(
            agreed,
            "b and c do not agree, so a storage migration now would leave objects in both versions",
        )?;
        self.run_action("b", ServerAction::Stop).await?;
        self.run_action("b", ServerAction::StartAs("1.36".to_owned())).await?;
        self.wait_ready().await?;
        let agreed = self.wait_for_agreement(|agreed| agreed == "storage.k8s.io/v1").await;
        self.check_claim(agreed, "b is 1.36 now, and all servers that write the resource agree on storage.k8s.io/v1")
    }

    fn print_heading(&mut self, title: &str) {
        (self.print_line)(&format!("\n{title}\n"));
    }

    fn print_note(&mut self, text: &str) {
        (self.print_line)(&format!("  {text}"));
    }

    /// Prints a claim that holds; fails with one that does not.
    fn check_claim(&mut self, holds: bool, claim: &str) -> Result<(), ClaimError> {
        if !holds {
            return Err(ClaimError(format!("claim does not hold: {claim}")));
        }
        (self.print_line)(&format!("  => {claim}"));
        Ok(())
    }

    async fn get_expecting(&mut self, server: usize, path: &str, expected: u16) -> Result<(), ClaimError> {
        self.send_expecting(server, AdminRequest::get(path), expected).await.map(drop)
    }

    /// Sends a request to `server`, prints it as a kubectl command, and checks the status code.
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
            return Err(ClaimError(format!("{path} at {address}: expected {expected}, got {shown}")));
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

    /// Waits until all servers are ready and consider each other live.
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
            Err(_) => Err(ClaimError("the servers do not consider each other live after 30 s".to_owned())),
        }
    }

    /// Polls the common encoding version of the class until it is as expected; false after 30 s.
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
        let process_table = self.lab.supervisor.process_table();
        let port = process_table.borrow().servers[server].server.port;
        format!("https://127.0.0.1:{port}")
    }
}

/// Returns the kubectl arguments for the same request.
fn kubectl_command(request: &AdminRequest) -> String {
    match request.method {
        Method::POST => format!("create --raw {} -f gold.json", request.path),
        _ => format!("get --raw {}", request.path),
    }
}

/// Returns the status code with the Status message, the kind and name, or the size of the body.
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

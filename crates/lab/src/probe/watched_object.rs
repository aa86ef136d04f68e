//! Writes an object repeatedly through the load balancer, and watches it there and at every server.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tasks::Tasks;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::ProbeState;
use super::endpoint::ProbeEndpoint;
use super::history::{ProbedResource, classify_response};
use crate::client::{AdminClient, AdminRequest, AdminResponse};

const WRITE_INTERVAL: Duration = Duration::from_millis(50);
/// Delay before a watch that ended is opened again.
const REOPEN_DELAY: Duration = Duration::from_millis(20);
/// A watch without data for this long is reopened, as its server may hang.
const IDLE_TIMEOUT: Duration = Duration::from_secs(5);
/// Limit for one line of a watch; probe events are far smaller.
const LINE_MAX_BYTES: usize = 1 << 20;

/// An object that the probe writes and watches.
#[derive(Clone, Debug)]
pub(super) struct ProbeObject {
    resource: ProbedResource,
    collection: &'static str,
    name: String,
    object: Value,
    /// Returns a merge patch that differs for each number, so that every write is a change.
    patch: fn(u64) -> Value,
}

/// Returns a ConfigMap, which every release serves, and a VolumeAttributesClass v1 if the cluster serves it.
pub(super) fn create_probe_objects(shared: &ProbeState) -> Vec<ProbeObject> {
    let name = format!("unskew-probe-{:08x}", fastrand::u32(..));
    let mut subjects = vec![ProbeObject {
        resource: ("v1".to_owned(), "configmaps".to_owned()),
        collection: "/api/v1/namespaces/default/configmaps",
        name: name.clone(),
        object: json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}),
        patch: |number| json!({"data": {"number": number.to_string()}}),
    }];
    let classes = ("storage.k8s.io/v1".to_owned(), "volumeattributesclasses".to_owned());
    if shared.with_history(|history| history.served_throughout(&classes, Instant::now(), Instant::now())) {
        subjects.push(ProbeObject {
            resource: classes,
            collection: "/apis/storage.k8s.io/v1/volumeattributesclasses",
            object: json!({
                "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttributesClass",
                "metadata": {"name": name}, "driverName": "probe.unskew.example", "parameters": {"iops": "1"},
            }),
            name,
            patch: |number| json!({"metadata": {"annotations": {"unskew.example/number": number.to_string()}}}),
        });
    }
    subjects
}

impl ProbeObject {
    pub(super) fn path(&self) -> String {
        format!("{}/{}", self.collection, self.name)
    }

    /// True if the cluster served the resource since `from`. The object itself exists until the probe ends.
    pub(super) fn was_served_since(&self, shared: &ProbeState, from: Instant) -> bool {
        shared.with_history(|history| history.served_throughout(&self.resource, from, Instant::now()))
    }

    pub(super) fn delete_request(&self) -> AdminRequest {
        AdminRequest { method: Method::DELETE, ..AdminRequest::get(self.path()) }
    }

    fn watch_request(&self, revision: u64) -> AdminRequest {
        AdminRequest::get(format!(
            "{}?watch=true&fieldSelector=metadata.name%3D{}&resourceVersion={revision}&timeoutSeconds=60&allowWatchBookmarks=true",
            self.collection, self.name
        ))
    }

    fn list_request(&self) -> AdminRequest {
        AdminRequest::get(format!("{}?fieldSelector=metadata.name%3D{}", self.collection, self.name))
    }
}

/// Creates the object, then starts its writer and one watch per endpoint. `stop_writing` ends the writer;
/// `endpoints[0]` is the load balancer.
pub(super) async fn start_writer_and_watches(
    endpoints: &[ProbeEndpoint],
    object: &ProbeObject,
    state: &Arc<ProbeState>,
    tasks: &Tasks,
    stop_writing: &CancellationToken,
) -> Result<(), String> {
    let door = &endpoints[0].client;
    let create = AdminRequest::with_json_body(Method::POST, object.collection, &object.object);
    let created = door.request(create).await.map_err(|error| error.to_string())?;
    let revision = revision_of_response(&created).ok_or_else(|| String::from_utf8_lossy(&created.body).into_owned())?;
    let mut ledgers = Vec::new();
    for way in endpoints {
        let ledger = state.add_event_tracker();
        ledgers.push(ledger);
        let watcher = watch(way.clone(), object.clone(), ledger, revision, state.clone());
        tasks.spawn("probe watch", |stop| async move {
            stop.run_until_cancelled(watcher).await;
        });
    }
    let writer = write_repeatedly(door.clone(), object.clone(), ledgers, state.clone(), stop_writing.clone());
    tasks.spawn_once("probe writes", writer);
    Ok(())
}

/// Patches the object until stopped, and records every acknowledged write in all trackers.
async fn write_repeatedly(
    load_balancer: AdminClient,
    object: ProbeObject,
    trackers: Vec<usize>,
    state: Arc<ProbeState>,
    stop_writing: CancellationToken,
) {
    let mut number = 0;
    while stop_writing.run_until_cancelled(tokio::time::sleep(WRITE_INTERVAL)).await.is_some() {
        number += 1;
        let ask = AdminRequest::with_json_body(Method::PATCH, object.path(), &(object.patch)(number));
        let from = Instant::now();
        let answer = load_balancer.request(ask).await;
        let had = object.was_served_since(&state, from);
        state.record_outcome(classify_response(answer.as_ref().ok().map(|answer| answer.status.as_u16()), had));
        match answer {
            Ok(answer) if answer.status.is_success() => {
                state.record_success(Instant::now());
                state.update_counts(|counts| counts.writes += 1);
                if let Some(revision) = revision_of_response(&answer) {
                    trackers
                        .iter()
                        .for_each(|at| state.with_event_tracker(*at, |ledger| ledger.write_acknowledged(revision)));
                }
            }
            Ok(answer) => tracing::debug!(code = answer.status.as_u16(), path = object.path(), "probe write refused"),
            Err(error) => tracing::warn!(%error, path = object.path(), "probe write got no response"),
        }
    }
}

/// Watches the object from `revision` on, reopening the watch when it ends and relisting when it is expired (410).
async fn watch(way: ProbeEndpoint, subject: ProbeObject, at: usize, mut revision: u64, shared: Arc<ProbeState>) {
    loop {
        if way.ready_generation().is_some()
            && read_watch(&way.client, &subject, at, &mut revision, &shared).await == ProbeWatchEnd::Expired
        {
            shared.update_counts(|counts| counts.relists += 1);
            if let Some(newer) = relist_object(&way.client, &subject, at, &shared).await {
                revision = newer;
            }
        }
        tokio::time::sleep(REOPEN_DELAY).await;
    }
}

#[derive(Debug, PartialEq, Eq)]
enum ProbeWatchEnd {
    Ended,
    Expired,
}

/// Reads one watch until it ends, is silent too long or is expired (410); `revision` follows the events.
async fn read_watch(
    client: &AdminClient,
    object: &ProbeObject,
    tracker: usize,
    revision: &mut u64,
    state: &ProbeState,
) -> ProbeWatchEnd {
    let from = Instant::now();
    let Ok(response) = client.open_stream(&object.watch_request(*revision)).await else { return ProbeWatchEnd::Ended };
    match response.status().as_u16() {
        200 => {}
        410 => return ProbeWatchEnd::Expired,
        code => {
            state.record_outcome(classify_response(Some(code), object.was_served_since(state, from)));
            return ProbeWatchEnd::Ended;
        }
    }
    let mut body = response.into_body();
    let mut pending: Vec<u8> = Vec::new();
    while let Ok(Some(Ok(frame))) = tokio::time::timeout(IDLE_TIMEOUT, body.frame()).await {
        pending.extend_from_slice(frame.data_ref().map(|data| &data[..]).unwrap_or_default());
        while let Some(end) = pending.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = pending.drain(..=end).collect();
            match parse_event(&line) {
                ProbeWatchEvent::Object(event_revision) => {
                    *revision = event_revision;
                    state.update_counts(|counts| counts.events += 1);
                    state.with_event_tracker(tracker, |ledger| ledger.event_received(event_revision));
                }
                ProbeWatchEvent::Bookmark(event_revision) => *revision = event_revision,
                ProbeWatchEvent::Expired => return ProbeWatchEnd::Expired,
                ProbeWatchEvent::Other => {}
            }
        }
        if pending.len() > LINE_MAX_BYTES {
            return ProbeWatchEnd::Ended;
        }
    }
    ProbeWatchEnd::Ended
}

/// Reads the object by a list, counts it as an event, and returns the revision to watch from.
async fn relist_object(client: &AdminClient, object: &ProbeObject, tracker: usize, state: &ProbeState) -> Option<u64> {
    let answer = client.request(object.list_request()).await.ok().filter(|answer| answer.status.is_success())?;
    let list = answer.json();
    for item in list["items"].as_array()? {
        if let Some(revision) = revision_of_object(item) {
            state.with_event_tracker(tracker, |ledger| ledger.event_received(revision));
        }
    }
    revision_of_object(&list)
}

#[derive(Debug, PartialEq, Eq)]
enum ProbeWatchEvent {
    Object(u64),
    Bookmark(u64),
    Expired,
    Other,
}

fn parse_event(line: &[u8]) -> ProbeWatchEvent {
    let event: Value = serde_json::from_slice(line).unwrap_or_default();
    let revision = revision_of_object(&event["object"]);
    match (event["type"].as_str(), revision) {
        (Some("ADDED" | "MODIFIED" | "DELETED"), Some(revision)) => ProbeWatchEvent::Object(revision),
        (Some("BOOKMARK"), Some(revision)) => ProbeWatchEvent::Bookmark(revision),
        (Some("ERROR"), _) if event["object"]["code"] == 410 => ProbeWatchEvent::Expired,
        _ => ProbeWatchEvent::Other,
    }
}

fn revision_of_response(answer: &AdminResponse) -> Option<u64> {
    answer.status.is_success().then(|| revision_of_object(&answer.json())).flatten()
}

fn revision_of_object(object: &Value) -> Option<u64> {
    object["metadata"]["resourceVersion"].as_str()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watch_events_are_parsed_by_type() {
        let check = |text: &str, expected| assert_eq!(parse_event(text.as_bytes()), expected, "{text}");
        check(r#"{"type":"MODIFIED","object":{"metadata":{"resourceVersion":"7"}}}"#, ProbeWatchEvent::Object(7));
        check(r#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"9"}}}"#, ProbeWatchEvent::Bookmark(9));
        check(r#"{"type":"ERROR","object":{"kind":"Status","code":410}}"#, ProbeWatchEvent::Expired);
        check(r#"{"type":"ERROR","object":{"kind":"Status","code":500}}"#, ProbeWatchEvent::Other);
        check("nonsense", ProbeWatchEvent::Other);
    }
}

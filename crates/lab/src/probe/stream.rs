//! Writes an object again and again through the front door, and watches it there and at every server.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tasks::Tasks;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Shared;
use super::history::{Name, judge};
use super::way::Way;
use crate::client::{Answer, Ask, Client};

/// How often each object is written.
const WRITE_INTERVAL: Duration = Duration::from_millis(50);
/// The pause before a watch that ended is opened again.
const REOPEN_PAUSE: Duration = Duration::from_millis(20);
/// A watch over which nothing came for so long is opened again: its server may hang.
const SILENCE_MAX: Duration = Duration::from_secs(5);
/// Events are small; a line beyond this is none of ours.
const LINE_MAX_BYTES: usize = 1 << 20;

/// An object that is written and watched.
#[derive(Clone, Debug)]
pub(super) struct Subject {
    kind: Name,
    collection: &'static str,
    name: String,
    object: Value,
    /// Makes every write a change.
    change: fn(u64) -> Value,
}

/// One that every server has, and one that only newer ones have, if the cluster has it.
pub(super) fn subjects(shared: &Shared) -> Vec<Subject> {
    let name = format!("unskew-probe-{:08x}", fastrand::u32(..));
    let mut subjects = vec![Subject {
        kind: ("v1".to_owned(), "configmaps".to_owned()),
        collection: "/api/v1/namespaces/default/configmaps",
        name: name.clone(),
        object: json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}),
        change: |number| json!({"data": {"number": number.to_string()}}),
    }];
    let classes = ("storage.k8s.io/v1".to_owned(), "volumeattributesclasses".to_owned());
    if shared.history(|history| history.has(&classes, Instant::now(), Instant::now())) {
        subjects.push(Subject {
            kind: classes,
            collection: "/apis/storage.k8s.io/v1/volumeattributesclasses",
            object: json!({
                "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttributesClass",
                "metadata": {"name": name}, "driverName": "probe.unskew.example", "parameters": {"iops": "1"},
            }),
            name,
            change: |number| json!({"metadata": {"annotations": {"unskew.example/number": number.to_string()}}}),
        });
    }
    subjects
}

impl Subject {
    pub(super) fn path(&self) -> String {
        format!("{}/{}", self.collection, self.name)
    }

    /// Whether the cluster had its kind during all of that time; the object itself is there until the probe ends.
    pub(super) fn is_had(&self, shared: &Shared, from: Instant) -> bool {
        shared.history(|history| history.has(&self.kind, from, Instant::now()))
    }

    pub(super) fn delete(&self) -> Ask {
        Ask { method: Method::DELETE, ..Ask::get(self.path()) }
    }

    fn watch(&self, revision: u64) -> Ask {
        Ask::get(format!(
            "{}?watch=true&fieldSelector=metadata.name%3D{}&resourceVersion={revision}&timeoutSeconds=60&allowWatchBookmarks=true",
            self.collection, self.name
        ))
    }

    fn list(&self) -> Ask {
        Ask::get(format!("{}?fieldSelector=metadata.name%3D{}", self.collection, self.name))
    }
}

/// Creates the object, and starts to write and to watch it. The writer ends with `writing`. The first way is the front door.
pub(super) async fn start(
    ways: &[Way],
    subject: &Subject,
    shared: &Arc<Shared>,
    tasks: &Tasks,
    writing: &CancellationToken,
) -> Result<(), String> {
    let door = &ways[0].client;
    let create = Ask::send(Method::POST, subject.collection, &subject.object);
    let created = door.ask(create).await.map_err(|error| error.to_string())?;
    let revision = revision_of(&created).ok_or_else(|| String::from_utf8_lossy(&created.body).into_owned())?;
    let mut ledgers = Vec::new();
    for way in ways {
        let ledger = shared.open_ledger();
        ledgers.push(ledger);
        let watcher = watch(way.clone(), subject.clone(), ledger, revision, shared.clone());
        tasks.spawn("probe watch", |stop| async move {
            stop.run_until_cancelled(watcher).await;
        });
    }
    let writer = write(door.clone(), subject.clone(), ledgers, shared.clone(), writing.clone());
    tasks.spawn_once("probe writes", writer);
    Ok(())
}

async fn write(door: Client, subject: Subject, ledgers: Vec<usize>, shared: Arc<Shared>, writing: CancellationToken) {
    let mut number = 0;
    while writing.run_until_cancelled(tokio::time::sleep(WRITE_INTERVAL)).await.is_some() {
        number += 1;
        let ask = Ask::send(Method::PATCH, subject.path(), &(subject.change)(number));
        let from = Instant::now();
        let answer = door.ask(ask).await;
        let had = subject.is_had(&shared, from);
        shared.judge(judge(answer.as_ref().ok().map(|answer| answer.status.as_u16()), had));
        match answer {
            Ok(answer) if answer.status.is_success() => {
                shared.good(Instant::now());
                shared.count(|counts| counts.writes += 1);
                if let Some(revision) = revision_of(&answer) {
                    ledgers.iter().for_each(|at| shared.ledger(*at, |ledger| ledger.acknowledge(revision)));
                }
            }
            Ok(answer) => tracing::debug!(code = answer.status.as_u16(), path = subject.path(), "a write was refused"),
            Err(error) => tracing::warn!(%error, path = subject.path(), "a write got no answer"),
        }
    }
}

/// Follows the object from a revision on, over whatever connections that takes.
async fn watch(way: Way, subject: Subject, at: usize, mut revision: u64, shared: Arc<Shared>) {
    loop {
        if way.generation().is_some()
            && follow(&way.client, &subject, at, &mut revision, &shared).await == Followed::TooOld
        {
            shared.count(|counts| counts.relists += 1);
            if let Some(newer) = relist(&way.client, &subject, at, &shared).await {
                revision = newer;
            }
        }
        tokio::time::sleep(REOPEN_PAUSE).await;
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Followed {
    Ended,
    TooOld,
}

async fn follow(client: &Client, subject: &Subject, at: usize, revision: &mut u64, shared: &Shared) -> Followed {
    let from = Instant::now();
    let Ok(response) = client.open(&subject.watch(*revision)).await else { return Followed::Ended };
    match response.status().as_u16() {
        200 => {}
        410 => return Followed::TooOld,
        code => {
            shared.judge(judge(Some(code), subject.is_had(shared, from)));
            return Followed::Ended;
        }
    }
    let mut body = response.into_body();
    let mut pending: Vec<u8> = Vec::new();
    while let Ok(Some(Ok(frame))) = tokio::time::timeout(SILENCE_MAX, body.frame()).await {
        pending.extend_from_slice(frame.data_ref().map(|data| &data[..]).unwrap_or_default());
        while let Some(end) = pending.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = pending.drain(..=end).collect();
            match event(&line) {
                Event::Object(told) => {
                    *revision = told;
                    shared.count(|counts| counts.events += 1);
                    shared.ledger(at, |ledger| ledger.tell(told));
                }
                Event::Bookmark(told) => *revision = told,
                Event::TooOld => return Followed::TooOld,
                Event::Other => {}
            }
        }
        if pending.len() > LINE_MAX_BYTES {
            return Followed::Ended;
        }
    }
    Followed::Ended
}

async fn relist(client: &Client, subject: &Subject, at: usize, shared: &Shared) -> Option<u64> {
    let answer = client.ask(subject.list()).await.ok().filter(|answer| answer.status.is_success())?;
    let list = answer.json();
    for item in list["items"].as_array()? {
        if let Some(revision) = revision_in(item) {
            shared.ledger(at, |ledger| ledger.tell(revision));
        }
    }
    revision_in(&list)
}

#[derive(Debug, PartialEq, Eq)]
enum Event {
    Object(u64),
    Bookmark(u64),
    TooOld,
    Other,
}

fn event(line: &[u8]) -> Event {
    let event: Value = serde_json::from_slice(line).unwrap_or_default();
    let revision = revision_in(&event["object"]);
    match (event["type"].as_str(), revision) {
        (Some("ADDED" | "MODIFIED" | "DELETED"), Some(revision)) => Event::Object(revision),
        (Some("BOOKMARK"), Some(revision)) => Event::Bookmark(revision),
        (Some("ERROR"), _) if event["object"]["code"] == 410 => Event::TooOld,
        _ => Event::Other,
    }
}

fn revision_of(answer: &Answer) -> Option<u64> {
    answer.status.is_success().then(|| revision_in(&answer.json())).flatten()
}

fn revision_in(object: &Value) -> Option<u64> {
    object["metadata"]["resourceVersion"].as_str()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_told_apart() {
        let check = |text: &str, expected| assert_eq!(event(text.as_bytes()), expected, "{text}");
        check(r#"{"type":"MODIFIED","object":{"metadata":{"resourceVersion":"7"}}}"#, Event::Object(7));
        check(r#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"9"}}}"#, Event::Bookmark(9));
        check(r#"{"type":"ERROR","object":{"kind":"Status","code":410}}"#, Event::TooOld);
        check(r#"{"type":"ERROR","object":{"kind":"Status","code":500}}"#, Event::Other);
        check("nonsense", Event::Other);
    }
}

//! Watches that go on at another server whenever theirs is gone.

use std::sync::atomic::AtomicU64;

use cluster_tests::WatchReader;

use super::writer::DefinitionSlot;
use super::*;

/// How often a watch without events looks for its goal.
const GOAL_INTERVAL: Duration = Duration::from_millis(50);

/// The revision of the last event that a watch must show; 0 while it is not known.
#[derive(Debug, Default)]
pub(super) struct WatchGoal(AtomicU64);

impl WatchGoal {
    pub(super) fn set(&self, revision: u64) {
        self.0.store(revision, Ordering::Relaxed);
    }

    fn is_reached(&self, position: u64) -> bool {
        let goal = self.0.load(Ordering::Relaxed);
        goal != 0 && position >= goal
    }
}

/// The events that one client saw.
pub(super) struct WatchedEvents {
    /// Changes after this revision belong to the watch.
    pub(super) from: u64,
    /// Revision, type and name, in order.
    pub(super) events: Vec<(u64, String, String)>,
    /// True if the client reached its goal; otherwise the resource was gone before.
    pub(super) is_complete: bool,
}

impl WatchedEvents {
    fn new(from: u64) -> Self {
        Self { from, events: Vec::new(), is_complete: false }
    }

    /// The revision to continue from.
    fn position(&self) -> u64 {
        self.events.last().map_or(self.from, |(revision, ..)| *revision)
    }

    fn push(&mut self, event: &Value) {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        assert_ne!(event["type"], "ERROR", "a watch can always be resumed: {event}");
        let metadata = &event["object"]["metadata"];
        let revision = text(&metadata["resourceVersion"]).parse().unwrap();
        self.events.push((revision, text(&event["type"]), text(&metadata["name"])));
    }
}

/// How reading a watch ended.
enum WatchEnd {
    /// The connection broke, the server stopped, or the watch ended with an edit of the definition.
    Interrupted,
    GoalReached,
    /// The resource is gone.
    NotFound,
}

/// Follows a collection from a revision to its goal, or until the resource is gone.
pub(super) async fn follow(
    clients: &StormClients,
    first: usize,
    collection: &str,
    from: u64,
    goal: &WatchGoal,
) -> WatchedEvents {
    let mut watched = WatchedEvents::new(from);
    for attempt in first.. {
        match read_events(clients, attempt, collection, &mut watched, goal).await {
            WatchEnd::Interrupted => {}
            WatchEnd::GoalReached => {
                watched.is_complete = true;
                break;
            }
            WatchEnd::NotFound => break,
        }
    }
    watched
}

/// Follows the objects of a definition from now on.
pub(super) async fn follow_objects(
    clients: &StormClients,
    slot: &DefinitionSlot,
    first: usize,
    goal: &WatchGoal,
) -> WatchedEvents {
    let collection = slot.collection("v1");
    let listed = clients.get(first, &collection).await;
    assert_eq!(listed.status, 200, "{}", listed.summary());
    let from = listed.json()["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
    follow(clients, first, &collection, from, goal).await
}

/// Reads one watch to its end.
async fn read_events(
    clients: &StormClients,
    attempt: usize,
    collection: &str,
    watched: &mut WatchedEvents,
    goal: &WatchGoal,
) -> WatchEnd {
    let path = format!("{collection}?watch=true&resourceVersion={}", watched.position());
    let client = &clients.clients[attempt % SERVERS.len()];
    let mut reader = match WatchReader::open_if_reachable(client, &path).await {
        Some(Ok(reader)) => reader,
        Some(Err(StatusCode::NOT_FOUND)) => return WatchEnd::NotFound,
        Some(Err(StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS)) | None => {
            tokio::time::sleep(Duration::from_millis(5)).await;
            return WatchEnd::Interrupted;
        }
        Some(Err(status)) => panic!("{path}: {status}"),
    };
    while !goal.is_reached(watched.position()) {
        match tokio::time::timeout(GOAL_INTERVAL, reader.try_next_event()).await {
            Ok(Ok(event)) => watched.push(&event),
            Ok(Err(_)) => return WatchEnd::Interrupted,
            Err(_) => {}
        }
    }
    WatchEnd::GoalReached
}

//! Watch: changes as they happen, each encoded once for all who see it unfiltered.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use api::Status;
use bytes::Bytes;
use edge::{Body, Request, Response};
use http::header::{CONTENT_TYPE, HeaderValue};
use object::Stored;
use object::table::Headings;
use registry::read::{Freshness, PATIENCE};
use registry::{Change, Expired, Item, SnapshotReader, Watcher};
use store::{Key, Revision};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::selection::Selection;
use super::{Context, accept};
use crate::options::{ListOptions, Purpose, Version};
use crate::shape::Shape;
use crate::{faults, forms};

/// kube-apiserver's interval between bookmarks.
const BOOKMARK_INTERVAL: Duration = Duration::from_secs(60);
/// The longest that a watch lasts, whatever `timeoutSeconds` and `--min-request-timeout` say: a time that can be added to any clock.
const WATCH_SECONDS_MAX: u64 = 365 * 24 * 60 * 60;

pub(super) async fn watch(context: Context<'_>, request: &Request) -> Result<Response, Status> {
    let query = request.uri().query().unwrap_or_default();
    let shape = Shape::negotiate_stream(accept(request), query)?;
    context.refuse_odd_names()?;
    let options = ListOptions::parse(query, Purpose::Watch)?;
    let duration = watch_duration(options.timeout_seconds, context.server.watch_seconds_min, fastrand::f64());
    let ends = Instant::now() + duration;
    let selection = Selection::new(options.labels, options.fields, context.resource.served)?.named(&context.asked.name);
    context.await_history().await?;
    let (initial, revision) = match options.send_initial_events.unwrap_or(is_without_revision(options.version)) {
        true => {
            let reader = context.read_initial(options.version).await?;
            let revision = reader.revision();
            (Some(reader), revision)
        }
        false => (None, context.revision_to_follow(options.version).await?),
    };
    let watcher = context.server.registry.watch(context.resource.shelf, revision).map_err(expired)?;
    let events = Events {
        initial,
        watcher,
        changes: Vec::new().into_iter(),
        lines: VecDeque::new(),
        selection,
        within: context.within(),
        served: served_of(context),
        shape,
        has_sent: false,
        bookmarks: Bookmarks::of(options.allow_bookmarks, options.send_initial_events),
        next_bookmark: Instant::now() + BOOKMARK_INTERVAL,
        ends,
        is_over: false,
        stop: context.server.streams_end.clone(),
    };
    let lines = futures_util::stream::unfold(events, |mut events| async move {
        let line = events.next_line().await?;
        Some((line, events))
    });
    let mut response = Response::new(Body::pulled(lines));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}

/// How long a watch lasts: as long as it asks for, or between once and twice the minimum, so that the watches of a restarted
/// server do not all end together. `chance` is between 0 and 1.
fn watch_duration(asked: Option<u64>, seconds_min: u64, chance: f64) -> Duration {
    let min = Duration::from_secs(seconds_min.min(WATCH_SECONDS_MAX));
    let asked = asked.filter(|seconds| *seconds > 0).map(Duration::from_secs);
    asked.unwrap_or_else(|| min + min.mul_f64(chance)).min(Duration::from_secs(WATCH_SECONDS_MAX))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bookmarks {
    None,
    Periodic,
    /// The same, and one that says where the initial events end.
    AfterInitialEvents,
}

impl Bookmarks {
    fn of(allowed: bool, initial_events: Option<bool>) -> Self {
        match (allowed, initial_events) {
            (true, Some(true)) => Self::AfterInitialEvents,
            (true, _) => Self::Periodic,
            (false, _) => Self::None,
        }
    }
}

/// A version of a served resource, as the stream needs it: it outlives the request.
type ServedRef = (Arc<catalogue::Surface>, usize);

fn served_of(context: Context<'_>) -> ServedRef {
    (context.server.surface.clone(), context.resource.served_position)
}

/// Without a revision to go on from, a watch begins with what is there unless it says otherwise.
fn is_without_revision(version: Version) -> bool {
    matches!(version, Version::Unset | Version::Any)
}

fn expired(expired: Expired) -> Status {
    Status::expired(expired.to_string())
}

fn bookmark(served: &catalogue::Served, revision: Revision, more: &str) -> Bytes {
    let kind = served.response_kind();
    let api_version = api::GroupVersion { group: kind.group, version: kind.version };
    let object = format!(
        r#"{{"kind":"{}","apiVersion":"{api_version}","metadata":{{"resourceVersion":"{revision}"{more}}}}}"#,
        kind.kind
    );
    forms::frame("BOOKMARK", object.as_bytes())
}

impl Context<'_> {
    /// A server that has just been started reads what happened before; until it has, every revision would seem forgotten.
    async fn await_history(&self) -> Result<(), Status> {
        match self.server.registry.cache().reached(Revision(0), PATIENCE).await {
            Ok(true) => Ok(()),
            Ok(false) => Err(Status::service_unavailable("the watch cache is not filled yet").with_retry_after(1)),
            Err(stopped) => Err(faults::unread(stopped.into())),
        }
    }

    /// The state that a watch begins with.
    async fn read_initial(&self, version: Version) -> Result<SnapshotReader, Status> {
        let freshness = match version {
            Version::Unset => Freshness::Latest,
            Version::Any => Freshness::Any,
            Version::NotOlderThan(revision) | Version::At(revision) | Version::Exact(revision) => {
                Freshness::AtLeast(revision)
            }
        };
        let registry = &self.server.registry;
        registry.read_snapshot(self.resource.shelf, self.within(), freshness).await.map_err(faults::unread)
    }

    /// The revision whose next change a watch begins with: the one that was given, or that of now.
    async fn revision_to_follow(&self, version: Version) -> Result<Revision, Status> {
        let registry = &self.server.registry;
        match version {
            Version::NotOlderThan(revision) | Version::At(revision) | Version::Exact(revision) => Ok(revision),
            Version::Any => Ok(registry.cache().through()),
            Version::Unset => {
                if !registry.catch_up_with_store().await.map_err(faults::unread)? {
                    let behind = "the watch cache has not caught up with storage";
                    return Err(Status::service_unavailable(behind).with_retry_after(1));
                }
                Ok(registry.cache().through())
            }
        }
    }
}

/// The events of one watch, each made when the client can take it: an unread watch holds positions and no copies of objects.
struct Events {
    /// What is left of the state that the watch begins with.
    initial: Option<SnapshotReader>,
    watcher: Watcher,
    /// Changes that were read from the watcher and not sent yet.
    changes: std::vec::IntoIter<Arc<Change>>,
    /// What is left of the event that is being sent.
    lines: VecDeque<Bytes>,
    selection: Selection,
    within: Key,
    served: ServedRef,
    shape: Shape,
    /// Whether an object was sent: the first of a watch of tables says what the columns are.
    has_sent: bool,
    bookmarks: Bookmarks,
    next_bookmark: Instant,
    ends: Instant,
    is_over: bool,
    stop: CancellationToken,
}

impl Events {
    /// The next line or piece of one; `None` at the end of the watch.
    async fn next_line(&mut self) -> Option<Bytes> {
        loop {
            if let Some(line) = self.lines.pop_front() {
                return Some(line);
            }
            if self.is_over || self.stop.is_cancelled() || Instant::now() >= self.ends {
                return None;
            }
            // Other connections of this thread get their turn, however many events are ready or not selected.
            tokio::task::coop::consume_budget().await;
            if self.initial.is_some() {
                self.read_initial();
            } else if let Some(change) = self.changes.next() {
                if change.key.starts_with(&self.within)
                    && let Some(line) = self.line_of(&change)
                {
                    self.lines.push_back(line);
                }
            } else {
                self.wait().await;
            }
        }
    }

    /// Waits for changes, the next bookmark or the end.
    async fn wait(&mut self) {
        tokio::select! {
            changes = self.watcher.next() => match changes {
                Ok(changes) => self.changes = changes.into_iter(),
                Err(too_slow) => self.end_expired(too_slow),
            },
            () = tokio::time::sleep_until(self.next_bookmark), if self.bookmarks != Bookmarks::None => {
                self.next_bookmark = Instant::now() + BOOKMARK_INTERVAL;
                let revision = self.watcher.through();
                self.lines.push_back(bookmark(&self.served.0.served()[self.served.1], revision, ""));
            }
            () = tokio::time::sleep_until(self.ends) => self.is_over = true,
            () = self.stop.cancelled() => self.is_over = true,
        }
    }

    /// Takes the next object of the initial state, or ends that state.
    fn read_initial(&mut self) {
        let Some(reader) = &mut self.initial else { return };
        let served = &self.served.0.served()[self.served.1];
        match reader.next_item() {
            Ok(Some(cached)) => {
                if let Some(stored) = stored_of(&cached.item).filter(|stored| self.selection.selects(stored)) {
                    let object = self.shape.body_of(stored, served, headings_of(!self.has_sent));
                    self.has_sent = true;
                    self.lines.extend(forms::pieces("ADDED", object));
                }
            }
            Ok(None) => {
                if self.bookmarks == Bookmarks::AfterInitialEvents {
                    let end = r#","annotations":{"k8s.io/initial-events-end":"true"}"#;
                    self.lines.push_back(bookmark(served, reader.revision(), end));
                }
                self.initial = None;
                self.next_bookmark = Instant::now() + BOOKMARK_INTERVAL;
            }
            Err(too_slow) => self.end_expired(too_slow),
        }
    }

    fn end_expired(&mut self, too_slow: Expired) {
        self.lines.push_back(forms::error_frame(&expired(too_slow)));
        self.is_over = true;
    }

    /// What this watcher sees of a change; `None`: nothing.
    fn line_of(&mut self, change: &Change) -> Option<Bytes> {
        let served = &self.served.0.served()[self.served.1];
        let previous = change.previous.as_deref().and_then(|cached| stored_of(&cached.item));
        let current = change.current.as_deref().and_then(|cached| stored_of(&cached.item));
        let (kind, object) = seen(previous, current, change.revision, |stored| self.selection.selects(stored))?;
        if self.shape == Shape::Whole && self.selection.is_everything() && is_own_version(&object, served) {
            return Some(change.frame(|| forms::frame(kind, &forms::body_of(&object, served))));
        }
        let headings = headings_of(!self.has_sent);
        self.has_sent = true;
        Some(forms::frame(kind, &self.shape.body_of(&object, served, headings)))
    }
}

fn headings_of(is_first: bool) -> Headings {
    if is_first { Headings::Shown } else { Headings::Omitted }
}

/// Frames are shared between watchers of the storage version only: those of others look different.
fn is_own_version(object: &Stored, served: &catalogue::Served) -> bool {
    let kind = served.response_kind();
    let api_version = api::GroupVersion { group: kind.group, version: kind.version }.to_string();
    *object.api_version == *api_version
}

/// A change as a selection sees it: objects that begin or cease to match appear and disappear.
fn seen<'a>(
    previous: Option<&'a Stored>,
    current: Option<&'a Stored>,
    revision: Revision,
    selects: impl Fn(&Stored) -> bool,
) -> Option<(&'static str, std::borrow::Cow<'a, Stored>)> {
    use std::borrow::Cow;
    let was = previous.filter(|stored| selects(stored));
    let is = current.filter(|stored| selects(stored));
    match (was, is) {
        (None, Some(object)) => Some(("ADDED", Cow::Borrowed(object))),
        (Some(_), Some(object)) => Some(("MODIFIED", Cow::Borrowed(object))),
        // The last that was seen of it, at the revision at which it went.
        (Some(object), None) => Some(("DELETED", Cow::Owned(object.at_revision(revision.0)))),
        (None, None) => None,
    }
}

fn stored_of(item: &Item) -> Option<&Stored> {
    match item {
        Item::Object(stored) => Some(stored),
        Item::Raw(_) | Item::Undecodable(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watch_lasts_as_asked_within_a_bound() {
        let hour = 3600;
        for (asked, min, chance, expected) in [
            (Some(5), 1800, 0.0, 5),
            (None, 1800, 0.0, 1800),
            (None, 1800, 1.0, 3600),
            (Some(0), 1800, 0.5, 2700),
            (Some(hour), 0, 0.0, hour),
            (Some(i64::MAX as u64), 1800, 0.0, WATCH_SECONDS_MAX),
            (Some(u64::MAX), 1800, 0.0, WATCH_SECONDS_MAX),
            (None, u64::MAX, 1.0, WATCH_SECONDS_MAX),
        ] {
            assert_eq!(watch_duration(asked, min, chance), Duration::from_secs(expected), "{asked:?} {min} {chance}");
        }
    }
}

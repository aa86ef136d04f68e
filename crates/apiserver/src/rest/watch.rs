//! Watch: changes as they happen, each encoded once for all who see it unfiltered.

use std::sync::Arc;
use std::time::Duration;

use api::Status;
use bytes::Bytes;
use edge::{Body, Request, Response};
use http::header::{CONTENT_TYPE, HeaderValue};
use object::Stored;
use object::table::Headings;
use registry::read::{Freshness, PATIENCE};
use registry::{Change, Expired, Item, Span, Watcher};
use store::{Key, Revision};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::selection::Selection;
use super::{Context, accept};
use crate::options::{ListOptions, Purpose, Version};
use crate::shape::Shape;
use crate::{faults, forms};

/// How many lines may wait for a client. What it has not read beyond that stays in the shelf's history, once for all.
const LINES_WAITING_MAX: usize = 64;
/// kube-apiserver's interval between bookmarks.
const BOOKMARK_INTERVAL: Duration = Duration::from_secs(60);

pub(super) async fn watch(context: Context<'_>, request: &Request) -> Result<Response, Status> {
    let query = request.uri().query().unwrap_or_default();
    let shape = Shape::negotiate_stream(accept(request), query)?;
    context.refuse_odd_names()?;
    let options = ListOptions::parse(query, Purpose::Watch)?;
    let ends = Instant::now() + context.watch_duration(options.timeout_seconds);
    let selection = Selection::new(options.labels, options.fields, context.resource.served)?.named(&context.asked.name);
    let bookmarks = Bookmarks::of(options.allow_bookmarks, options.send_initial_events);
    context.await_history().await?;
    let start = match options.send_initial_events.unwrap_or(is_without_revision(options.version)) {
        true => Start::with_objects(context, &selection, options.version, bookmarks, shape).await?,
        false => Start::after(context, options.version).await?,
    };
    let watcher = context.server.registry.watch(context.resource.shelf, start.revision).map_err(expired)?;
    let (lines, body) = mpsc::channel(LINES_WAITING_MAX);
    let stream = Stream {
        watcher,
        selection,
        within: context.within(),
        served: served_of(context),
        shape,
        has_sent: !start.initial.is_empty(),
        bookmarks,
        ends,
        lines,
    };
    context.server.spawn(stream.run(start.initial));
    let mut response = Response::new(Body::Stream(body));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}

/// What a watch sends before the first change, and the state that this shows.
struct Start {
    initial: Vec<Bytes>,
    revision: Revision,
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

impl Start {
    /// Begins with the objects as they are.
    async fn with_objects(
        context: Context<'_>,
        selection: &Selection,
        version: Version,
        bookmarks: Bookmarks,
        shape: Shape,
    ) -> Result<Self, Status> {
        let freshness = match version {
            Version::Unset => Freshness::Latest,
            Version::Any => Freshness::Any,
            Version::NotOlderThan(revision) | Version::At(revision) | Version::Exact(revision) => {
                Freshness::AtLeast(revision)
            }
        };
        let wants = |stored: &Stored| selection.selects(stored);
        let span = Span { within: context.within(), start: Key::new(), limit: None, wants: &wants };
        let listing = context.server.registry.list(context.resource.shelf, &span, freshness).await;
        let listing = listing.map_err(faults::unread)?;
        let served = context.resource.served;
        let stored = listing.items.iter().filter_map(|cached| stored_of(&cached.item));
        let mut initial: Vec<Bytes> = stored
            .enumerate()
            .map(|(at, stored)| forms::frame("ADDED", &shape.body_of(stored, served, headings_of(at == 0))))
            .collect();
        if bookmarks == Bookmarks::AfterInitialEvents {
            initial.push(bookmark(served, listing.revision, r#","annotations":{"k8s.io/initial-events-end":"true"}"#));
        }
        Ok(Self { initial, revision: listing.revision })
    }

    /// Begins with the first change after a revision: the one that was given, or that of now.
    async fn after(context: Context<'_>, version: Version) -> Result<Self, Status> {
        let registry = &context.server.registry;
        let revision = match version {
            Version::NotOlderThan(revision) | Version::At(revision) | Version::Exact(revision) => revision,
            Version::Any => registry.cache().through(),
            Version::Unset => {
                if !registry.catch_up_with_store().await.map_err(faults::unread)? {
                    let behind = "the watch cache has not caught up with storage";
                    return Err(Status::service_unavailable(behind).with_retry_after(1));
                }
                registry.cache().through()
            }
        };
        Ok(Self { initial: Vec::new(), revision })
    }
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

    /// How long a watch lasts: as long as it asks for, or between once and twice the minimum, so that the watches of a
    /// restarted server do not all end together.
    fn watch_duration(&self, asked: Option<u64>) -> Duration {
        let min = self.server.watch_seconds_min;
        let seconds = asked.filter(|seconds| *seconds > 0).unwrap_or_else(|| min + fastrand::u64(0..=min));
        Duration::from_secs(seconds)
    }
}

/// One client's watch.
struct Stream {
    watcher: Watcher,
    selection: Selection,
    within: Key,
    served: ServedRef,
    shape: Shape,
    /// Whether an object was sent: the first of a watch of tables says what the columns are.
    has_sent: bool,
    bookmarks: Bookmarks,
    ends: Instant,
    lines: mpsc::Sender<Bytes>,
}

/// The client is gone.
struct Gone;

impl Stream {
    async fn run(mut self, initial: Vec<Bytes>) {
        // Whether it ended by time or by the client, there is nobody left to tell.
        let _ = tokio::time::timeout_at(self.ends, self.follow(initial)).await;
    }

    async fn follow(&mut self, initial: Vec<Bytes>) -> Result<(), Gone> {
        for line in initial {
            self.send(line).await?;
        }
        let mut next_bookmark = Instant::now() + BOOKMARK_INTERVAL;
        loop {
            let lines = self.lines.clone();
            tokio::select! {
                changes = self.watcher.next() => match changes {
                    Ok(changes) => self.send_changes(&changes).await?,
                    Err(too_slow) => {
                        self.send(forms::error_frame(&expired(too_slow))).await?;
                        return Ok(());
                    }
                },
                () = tokio::time::sleep_until(next_bookmark), if self.bookmarks != Bookmarks::None => {
                    next_bookmark = Instant::now() + BOOKMARK_INTERVAL;
                    let revision = self.watcher.through();
                    let line = bookmark(&self.served.0.served()[self.served.1], revision, "");
                    self.send(line).await?;
                }
                () = lines.closed() => return Err(Gone),
            }
        }
    }

    async fn send_changes(&mut self, changes: &[Arc<Change>]) -> Result<(), Gone> {
        for change in changes {
            if change.key.starts_with(&self.within)
                && let Some(line) = self.line_of(change)
            {
                self.send(line).await?;
            }
        }
        Ok(())
    }

    async fn send(&self, line: Bytes) -> Result<(), Gone> {
        self.lines.send(line).await.map_err(|_| Gone)
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

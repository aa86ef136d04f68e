//! Watch: streams changes from the watch cache. Unfiltered watches of the stored version share one encoding per change.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use api::{GroupVersionResource, Status};
use bytes::Bytes;
use edge::{Body, Response};
use futures_util::FutureExt as _;
use object::StoredObject;
use object::table::ColumnDefinitions;
use registry::read::{CATCH_UP_TIMEOUT, ReadConsistency};
use registry::{CacheWatcher, CachedEntry, CachedValue, KeyChange, SnapshotReader, WatchExpired};
use store::{Key, Revision};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::BufferedRequest;
use super::object_selector::ObjectSelector;
use super::{RequestContext, accept_header};
use crate::definitions::{LiveDefinitions, ROUNDS_MAX, View};
use crate::representation::ObjectRepresentation;
use crate::request_options::{ListOptions, ReadVerb, RequestedVersion};
use crate::resource::Resource;
use crate::{error_status, object_codec};

/// The interval between bookmarks, as in kube-apiserver.
const BOOKMARK_INTERVAL: Duration = Duration::from_secs(60);
/// Initial events that are read ahead if a webhook converts them, so that one call converts many.
const INITIAL_BATCH_MAX: usize = 100;
/// Keeps a huge `timeoutSeconds` or `--min-request-timeout` from overflowing the clock.
const WATCH_SECONDS_MAX: u64 = 365 * 24 * 60 * 60;

pub(super) async fn watch(context: RequestContext<'_>, request: &BufferedRequest) -> Result<Response, Status> {
    let query = request.uri().query().unwrap_or_default();
    let representation = ObjectRepresentation::negotiate_stream(accept_header(request), query)?;
    context.check_path_names()?;
    let options = ListOptions::parse(query, ReadVerb::Watch)?;
    let duration = watch_duration(options.timeout_seconds, context.server.watch_seconds_min, fastrand::f64());
    let deadline = Instant::now() + duration;
    let object_selector = ObjectSelector::new(options.label_selector, options.field_selector, context.resource)?
        .with_name(&context.target.name);
    context.wait_for_history().await?;
    let (initial_reader, revision) =
        match options.send_initial_events.unwrap_or(starts_without_revision(options.requested_version)) {
            true => {
                let reader = context.open_initial_reader(options.requested_version).await?;
                let revision = reader.revision();
                (Some(reader), revision)
            }
            false => (None, context.start_revision(options.requested_version).await?),
        };
    let watcher = context.server.registry.watch(&context.resource.cache, revision).map_err(expired_status)?;
    let needs_details =
        matches!(representation, ObjectRepresentation::Table(..)) || object_selector.needs_selectable_fields();
    let custom_view = context.resource.view(needs_details).map(|view| CustomView {
        name: context.target.group_version_resource().owned(),
        definitions: context.server.definitions(),
        needs_details,
        view: view.clone(),
    });
    let mut events = WatchStream {
        initial_reader,
        initial_items: VecDeque::new(),
        watcher,
        changes: Vec::new().into_iter(),
        pending_chunks: VecDeque::new(),
        object_selector,
        key_prefix: context.key_prefix(),
        resource: context.resource.clone(),
        representation,
        has_sent_object: false,
        bookmark_mode: BookmarkMode::from_options(options.allow_bookmarks, options.send_initial_events),
        next_bookmark: Instant::now() + BOOKMARK_INTERVAL,
        deadline,
        is_ended: false,
        view_ended_at: None,
        custom_view,
        stop_token: context.server.stream_stop.clone(),
    };
    // The initial events may be newer than the definition by which the resource was resolved.
    events.follow_definition().await;
    if context.resource.conversions().is_some() {
        // The first failure is one of the request; kube-apiserver cannot fill its watch cache then.
        let kind = context.resource.group_version_kind();
        Box::pin(events.read_initial_items()).await.map_err(|status| {
            let reason = format!("storage is (re)initializing: failed to list {kind}: {}", status.message);
            Status::too_many_requests(reason, 1)
        })?;
    }
    events.is_ended = events.view_ended_at.is_some();
    let lines = futures_util::stream::unfold(events, |mut events| async move {
        let line = events.next_chunk().await?;
        Some((line, events))
    });
    Ok(representation.watch_response(Body::from_stream(lines)))
}

/// The duration of a watch: the requested one, or between one and two times the minimum, so that watches do not all end
/// at once. `chance` is between 0 and 1.
fn watch_duration(requested: Option<u64>, seconds_min: u64, chance: f64) -> Duration {
    let min = Duration::from_secs(seconds_min.min(WATCH_SECONDS_MAX));
    let asked = requested.filter(|seconds| *seconds > 0).map(Duration::from_secs);
    asked.unwrap_or_else(|| min + min.mul_f64(chance)).min(Duration::from_secs(WATCH_SECONDS_MAX))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BookmarkMode {
    None,
    Periodic,
    /// Periodic, and one with the annotation `k8s.io/initial-events-end` after the initial events.
    AfterInitialEvents,
}

impl BookmarkMode {
    fn from_options(allowed: bool, initial_events: Option<bool>) -> Self {
        match (allowed, initial_events) {
            (true, Some(true)) => Self::AfterInitialEvents,
            (true, _) => Self::Periodic,
            (false, _) => Self::None,
        }
    }
}

/// True if the watch sends the current state first unless `sendInitialEvents` says otherwise.
fn starts_without_revision(version: RequestedVersion) -> bool {
    matches!(version, RequestedVersion::Unset | RequestedVersion::Any)
}

fn expired_status(expired: WatchExpired) -> Status {
    Status::expired(expired.to_string())
}

impl RequestContext<'_> {
    /// Waits for the cache to load its history. Before that every revision would be reported as expired.
    async fn wait_for_history(&self) -> Result<(), Status> {
        match self.server.registry.cache().wait_for_revision(Revision(0), CATCH_UP_TIMEOUT).await {
            Ok(true) => Ok(()),
            Ok(false) => Err(Status::service_unavailable("the watch cache is not initialized yet").with_retry_after(1)),
            Err(stopped) => Err(error_status::status_for_read_error(stopped.into())),
        }
    }

    /// Opens the snapshot that the watch sends as initial events.
    async fn open_initial_reader(&self, version: RequestedVersion) -> Result<SnapshotReader, Status> {
        let consistency = match version {
            RequestedVersion::Unset => ReadConsistency::Latest,
            RequestedVersion::Any => ReadConsistency::Any,
            RequestedVersion::NotOlderThan(revision)
            | RequestedVersion::Unmatched(revision)
            | RequestedVersion::Exact(revision) => ReadConsistency::NotOlderThan(revision),
        };
        let registry = &self.server.registry;
        registry
            .read_snapshot(&self.resource.cache, self.key_prefix(), consistency)
            .await
            .map_err(error_status::status_for_read_error)
    }

    /// The revision after which the watch starts: the requested one, or the current one.
    async fn start_revision(&self, version: RequestedVersion) -> Result<Revision, Status> {
        let registry = &self.server.registry;
        match version {
            RequestedVersion::NotOlderThan(revision)
            | RequestedVersion::Unmatched(revision)
            | RequestedVersion::Exact(revision) => Ok(revision),
            RequestedVersion::Any => Ok(registry.cache().applied_revision()),
            RequestedVersion::Unset => {
                if !registry.catch_up_with_store().await.map_err(error_status::status_for_read_error)? {
                    let behind = "the watch cache has not caught up with storage";
                    return Err(Status::service_unavailable(behind).with_retry_after(1));
                }
                Ok(registry.cache().applied_revision())
            }
        }
    }
}

/// The event stream of one watch. Events are encoded when the client reads them, so a slow watch holds positions in the
/// cache and no copies of objects.
struct WatchStream {
    /// The initial events that are not sent yet; `None` once all are.
    initial_reader: Option<SnapshotReader>,
    /// Initial events that were read and not yet sent.
    initial_items: VecDeque<Arc<CachedEntry>>,
    watcher: CacheWatcher,
    /// Changes received from the watcher and not yet sent.
    changes: std::vec::IntoIter<Arc<KeyChange>>,
    /// The remaining chunks of the current event.
    pending_chunks: VecDeque<Bytes>,
    object_selector: ObjectSelector,
    key_prefix: Key,
    resource: Arc<Resource>,
    representation: ObjectRepresentation,
    /// False before the first event, which carries the column definitions of a table watch.
    has_sent_object: bool,
    bookmark_mode: BookmarkMode,
    next_bookmark: Instant,
    deadline: Instant,
    is_ended: bool,
    /// Set once what the watch shows has ended: the watch ends after the changes up to this revision.
    view_ended_at: Option<Revision>,
    /// `None` for built-in resources.
    custom_view: Option<CustomView>,
    stop_token: CancellationToken,
}

/// What a watch of a custom resource shows, until an edit of the definition changes it.
struct CustomView {
    name: GroupVersionResource,
    definitions: LiveDefinitions,
    needs_details: bool,
    view: Arc<View>,
}

impl CustomView {
    /// The newest state of the resource that the watch still shows alike, as far as the watch cache knows the definition.
    async fn current_resource(&self) -> Option<Arc<Resource>> {
        if !self.definitions.catch_up_with_cache().await {
            return None;
        }
        let current = self.definitions.snapshot().resource(self.name.borrowed())?.clone();
        let is_same = current.view(self.needs_details).is_some_and(|view| Arc::ptr_eq(view, &self.view));
        is_same.then_some(current)
    }
}

impl WatchStream {
    /// The next event or part of one; `None` at the end of the watch.
    async fn next_chunk(&mut self) -> Option<Bytes> {
        loop {
            if let Some(line) = self.pending_chunks.pop_front() {
                return Some(line);
            }
            if self.is_ended || self.stop_token.is_cancelled() || Instant::now() >= self.deadline {
                return None;
            }
            // Yield to other connections on this thread, even if many events are ready or filtered out.
            tokio::task::coop::consume_budget().await;
            if let Some(item) = self.initial_items.pop_front() {
                self.queue_initial_event(&item);
            } else if self.initial_reader.is_some() {
                self.advance_initial_events().await;
            } else if let Some(change) = self.changes.next() {
                if change.key.starts_with(&self.key_prefix) {
                    self.queue_change(&change).await;
                }
            } else if let Some(ended_at) = self.view_ended_at {
                self.read_last_changes(ended_at);
            } else {
                self.wait_for_changes().await;
            }
        }
    }

    /// Continues by the newest state of the definition, or ends the watch with the changes up to the edit that ended what
    /// it shows.
    async fn follow_definition(&mut self) {
        let Some(custom) = &self.custom_view else { return };
        if let Some(current) = custom.current_resource().await {
            let current = current.with_conversions_of(&self.resource);
            self.object_selector.set_resource(&current);
            self.resource = current;
            return;
        }
        // Without the mark the definition has not been read in time: what follows it cannot be shown.
        let ended_at = custom.view.ended_at().unwrap_or_default();
        let changes = std::mem::take(&mut self.changes);
        self.changes = changes.filter(|change| change.revision <= ended_at).collect::<Vec<_>>().into_iter();
        self.view_ended_at = Some(ended_at);
    }

    /// Reads the next changes before the edit that ended what the watch shows, or ends the watch. All of them are in the
    /// history, which has changes in the order of revisions.
    fn read_last_changes(&mut self, ended_at: Revision) {
        match self.watcher.next_changes().now_or_never() {
            Some(Ok(mut changes)) => {
                changes.retain(|change| change.revision <= ended_at);
                (self.is_ended, self.changes) = (changes.is_empty(), changes.into_iter());
            }
            Some(Err(too_slow)) => self.end_expired(too_slow),
            None => self.is_ended = true,
        }
    }

    /// Waits for changes, the next bookmark, or one of the ends of the watch.
    async fn wait_for_changes(&mut self) {
        let view_end = async {
            match &self.custom_view {
                Some(custom) => custom.view.wait_until_ended().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            // Changes first: those before the end of the view are still sent.
            biased;
            changes = self.watcher.next_changes() => match changes {
                Ok(changes) => {
                    self.changes = changes.into_iter();
                    self.follow_definition().await;
                }
                Err(too_slow) => self.end_expired(too_slow),
            },
            () = view_end => self.is_ended = true,
            () = tokio::time::sleep_until(self.next_bookmark), if self.bookmark_mode != BookmarkMode::None => {
                self.next_bookmark = Instant::now() + BOOKMARK_INTERVAL;
                let revision = self.watcher.delivered_revision();
                self.queue_bookmark(revision, false);
            }
            () = tokio::time::sleep_until(self.deadline) => self.is_ended = true,
            () = self.stop_token.cancelled() => self.is_ended = true,
        }
    }

    /// Reads the next initial events, or queues the bookmark after the last one.
    async fn advance_initial_events(&mut self) {
        if self.resource.conversions().is_none() {
            self.read_initial_batch(1);
        } else if let Err(failure) = Box::pin(self.read_initial_items()).await {
            self.end_unconverted(&failure);
        }
        let is_read = self.initial_items.is_empty() && !self.is_ended;
        if let Some(reader) = self.initial_reader.take_if(|_| is_read) {
            if self.bookmark_mode == BookmarkMode::AfterInitialEvents {
                self.queue_bookmark(reader.revision(), true);
            }
            self.next_bookmark = Instant::now() + BOOKMARK_INTERVAL;
        }
    }

    fn queue_bookmark(&mut self, revision: Revision, ends_initial_events: bool) {
        let columns = column_definitions_for(!self.has_sent_object);
        let object = self.representation.encode_bookmark(revision, ends_initial_events, &self.resource, columns);
        self.has_sent_object = true;
        self.pending_chunks.extend(self.representation.encode_watch_event("BOOKMARK", object));
    }

    fn read_initial_batch(&mut self, items_max: usize) {
        let Some(reader) = &mut self.initial_reader else { return };
        while self.initial_items.len() < items_max {
            match reader.next_item() {
                Ok(Some(item)) => self.initial_items.push_back(item),
                Ok(None) => return,
                Err(too_slow) => return self.end_expired(too_slow),
            }
        }
    }

    /// Reads the next initial events and converts them together.
    async fn read_initial_items(&mut self) -> Result<(), Status> {
        if let Some(conversions) = self.resource.conversions() {
            conversions.clear();
        }
        self.read_initial_batch(INITIAL_BATCH_MAX);
        let objects = self.initial_items.iter().filter_map(|cached| as_stored_object(&cached.value));
        let converting = self.resource.convert_ahead(objects);
        tokio::select! {
            converted = converting => converted,
            () = tokio::time::sleep_until(self.deadline) => Err(Status::service_unavailable("the watch ends")),
            () = self.stop_token.cancelled() => Err(Status::service_unavailable("the server stops")),
        }
    }

    fn queue_initial_event(&mut self, item: &CachedEntry) {
        let Some(stored) = as_stored_object(&item.value).filter(|stored| self.object_selector.matches(stored)) else {
            if let Some(failure) = self.object_selector.take_failure() {
                self.end_unconverted(&failure);
            }
            return;
        };
        let columns = column_definitions_for(!self.has_sent_object);
        match self.representation.encode_object(stored, &self.resource, columns) {
            Ok(object) => {
                self.has_sent_object = true;
                self.pending_chunks.extend(self.representation.encode_watch_event("ADDED", object));
            }
            Err(failure) => self.end_unconverted(&failure),
        }
    }

    /// Queues the event of a change, after the conversions that it needs.
    async fn queue_change(&mut self, change: &KeyChange) {
        for _ in 0..ROUNDS_MAX {
            let failure = match self.encode_change(change) {
                Ok(()) => {
                    if let Some(conversions) = self.resource.conversions() {
                        conversions.clear();
                    }
                    return;
                }
                Err(failure) => failure,
            };
            let converting = self.resource.run_conversions();
            let is_converted = tokio::select! {
                converted = converting => converted,
                () = tokio::time::sleep_until(self.deadline) => Ok(false),
                () = self.stop_token.cancelled() => Ok(false),
            };
            match is_converted {
                Ok(true) => {}
                Ok(false) => return self.end_unconverted(&failure),
                Err(failure) => return self.end_unconverted(&failure),
            }
        }
        self.is_ended = true;
    }

    /// Ends the watch without an ERROR event, as kube-apiserver does when it cannot convert an object: the client lists
    /// again and sees why.
    fn end_unconverted(&mut self, failure: &Status) {
        tracing::debug!(reason = failure.message, "watch ended: an object cannot be converted");
        self.is_ended = true;
    }

    fn end_expired(&mut self, too_slow: WatchExpired) {
        self.pending_chunks.extend(self.representation.encode_error_event(&expired_status(too_slow)));
        self.is_ended = true;
    }

    /// Queues a change as this watch sees it; nothing if the selector excludes it. Fails like [`Resource::to_served`].
    fn encode_change(&mut self, change: &KeyChange) -> Result<(), Status> {
        let resource = &self.resource;
        let previous = change.previous.as_deref().and_then(|cached| as_stored_object(&cached.value));
        let current = change.current.as_deref().and_then(|cached| as_stored_object(&cached.value));
        let event = watch_event_for(previous, current, change.revision, |stored| self.object_selector.matches(stored));
        if let Some(failure) = self.object_selector.take_failure() {
            return Err(failure);
        }
        let Some((kind, object)) = event else { return Ok(()) };
        // Unfiltered watches of the stored version share the encoded frame.
        if self.representation == ObjectRepresentation::Full
            && self.object_selector.selects_all()
            && resource.is_stored_form(&object)
        {
            let frame = change.get_or_encode_frame(|| object_codec::encode_watch_event(kind, &object.body));
            self.pending_chunks.push_back(frame);
            return Ok(());
        }
        let column_definitions = column_definitions_for(!self.has_sent_object);
        let encoded = self.representation.encode_object(&object, resource, column_definitions)?;
        self.has_sent_object = true;
        self.pending_chunks.extend(self.representation.encode_watch_event(kind, encoded));
        Ok(())
    }
}

fn column_definitions_for(is_first: bool) -> ColumnDefinitions {
    if is_first { ColumnDefinitions::Included } else { ColumnDefinitions::Omitted }
}

/// Maps a change to an event: an object that starts to match is ADDED, one that stops matching is DELETED.
fn watch_event_for<'a>(
    previous: Option<&'a StoredObject>,
    current: Option<&'a StoredObject>,
    revision: Revision,
    matches: impl Fn(&StoredObject) -> bool,
) -> Option<(&'static str, std::borrow::Cow<'a, StoredObject>)> {
    use std::borrow::Cow;
    let matched_before = previous.filter(|stored| matches(stored));
    let matches_now = current.filter(|stored| matches(stored));
    match (matched_before, matches_now) {
        (None, Some(object)) => Some(("ADDED", Cow::Borrowed(object))),
        (Some(_), Some(object)) => Some(("MODIFIED", Cow::Borrowed(object))),
        // The last matching state, with the revision of the change.
        (Some(object), None) => Some(("DELETED", Cow::Owned(object.with_revision(revision.0)))),
        (None, None) => None,
    }
}

fn as_stored_object(item: &CachedValue) -> Option<&StoredObject> {
    match item {
        CachedValue::Object(stored) => Some(stored),
        CachedValue::Raw(_) | CachedValue::Undecodable(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watch_duration_is_as_requested_within_bounds() {
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

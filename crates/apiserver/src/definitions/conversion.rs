//! Conversion of custom objects by webhooks.
//!
//! Code that decides about objects is synchronous and may run several times. When it needs a conversion that is not known
//! yet, [`RequestConversions`] records it and the code fails; the handler then performs what was recorded, in batches,
//! and runs the code again. So a webhook is called again only if what it would be sent differs.
//!
//! Conversions of stored objects are shared by all requests, in a cache of bounded size.

mod cache;
mod metrics;

use std::collections::{BTreeSet, HashMap};
use std::hash::BuildHasher as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use api::json::JsonObject;
use api::{GroupVersionKind, Status};
use apiextensions::CustomResourceVersion;
use apiextensions::conversion::{ConversionCall, ConversionError, NO_REVIEW_VERSION, ReviewVersion};
use apiextensions::definition::DefinitionSpec;
use base64::Engine as _;
use bytes::Bytes;
use futures_util::stream::{self, TryStreamExt as _};
use object::StoredObject;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::time::Instant;
use webhook::{ClientConfig, Endpoint, WebhookClient, WebhookError};

use super::LiveDefinition;
use crate::rest::new_uid;
use cache::ResultCache;
use metrics::ConversionMetrics;

/// The limit of one call, as in kube-apiserver.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);
/// Objects of one call.
const BATCH_OBJECTS_MAX: usize = 100;
/// The size of the objects of one call as JSON; a single object may exceed it.
const BATCH_BYTES_MAX: usize = 2 << 20;
/// Concurrent calls of one request.
const BATCHES_CONCURRENT_MAX: usize = 4;
/// Requests for so few objects wait for each other instead of converting the same object twice: many watches
/// receive one change at the same moment.
const SHARED_FLIGHT_OBJECTS_MAX: usize = 4;
/// Locks of conversions in flight, per definition.
const FLIGHTS: usize = 32;
/// The size of all cached results of a server together.
const CACHE_BYTES_MAX: usize = 64 << 20;
/// How often a decision is run again because another conversion was missing.
pub(crate) const ROUNDS_MAX: usize = 16;

/// Calls the conversion webhooks of all definitions. One per server.
pub(crate) struct Converter {
    client: Arc<WebhookClient>,
    cache: Mutex<ResultCache>,
    metrics: ConversionMetrics,
}

/// What identifies a conversion.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ConversionKey {
    /// [`ConversionScope::id`]: the definition and its generation.
    scope: u64,
    direction: Direction,
    /// The index of the target in `LiveDefinition::versions`.
    target: usize,
    /// The object as JSON, without resourceVersion.
    content: Bytes,
}

/// Where the object comes from: a stored object is pruned and defaulted before it is converted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Direction {
    FromStorage,
    FromRequest,
}

/// A conversion to perform.
struct ConversionJob {
    key: ConversionKey,
    /// What the webhook is sent.
    input: JsonObject,
}

/// What all conversions of a definition have in common, as long as its spec stays.
#[derive(Debug)]
pub(super) struct ConversionScope {
    /// Unique among all definitions and their generations.
    id: u64,
    /// `None` for the strategy `None`.
    webhook: Option<Box<ConversionWebhook>>,
}

#[derive(Debug)]
struct ConversionWebhook {
    config: ClientConfig,
    review_version: Option<ReviewVersion>,
    flights: [tokio::sync::Mutex<()>; FLIGHTS],
}

/// The conversions of one request or watch: results, and what was found missing.
pub(crate) struct RequestConversions {
    converter: Arc<Converter>,
    /// The deadline of the request; `None` for watches.
    deadline: Option<Instant>,
    state: Mutex<ConversionState>,
}

#[derive(Default)]
struct ConversionState {
    results: HashMap<ConversionKey, Bytes>,
    /// What was found missing, with what the webhook is sent.
    pending: HashMap<ConversionKey, JsonObject>,
}

impl std::fmt::Debug for RequestConversions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RequestConversions").field("deadline", &self.deadline).finish_non_exhaustive()
    }
}

impl ConversionScope {
    pub(super) fn new(spec: &DefinitionSpec) -> Self {
        static NEXT_ID: AtomicU64 = AtomicU64::new(0);
        let conversion = spec.conversion.as_ref().filter(|conversion| conversion.strategy == "Webhook");
        let webhook = conversion.and_then(|conversion| conversion.webhook.as_ref()).map(|webhook| ConversionWebhook {
            config: client_config(&webhook.client_config),
            review_version: ReviewVersion::choose(&webhook.conversion_review_versions),
            flights: Default::default(),
        });
        Self { id: NEXT_ID.fetch_add(1, Ordering::Relaxed), webhook: webhook.map(Box::new) }
    }

    pub(super) fn has_webhook(&self) -> bool {
        self.webhook.is_some()
    }
}

impl ConversionWebhook {
    /// The locks of some conversions, in ascending order, so that two requests cannot wait for each other.
    fn flights_of(&self, jobs: &[ConversionJob]) -> BTreeSet<usize> {
        let hasher = std::hash::BuildHasherDefault::<std::hash::DefaultHasher>::default();
        let of_job = |job: &ConversionJob| usize::try_from(hasher.hash_one(&job.key)).unwrap_or(usize::MAX) % FLIGHTS;
        jobs.iter().map(of_job).collect()
    }
}

/// Reads a `WebhookClientConfig`.
fn client_config(config: &Value) -> ClientConfig {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let endpoint = match config.get("service").filter(|service| service.is_object()) {
        Some(service) => Endpoint::Service {
            namespace: text(&service["namespace"]),
            name: text(&service["name"]),
            port: service["port"].as_u64().and_then(|port| u16::try_from(port).ok()).unwrap_or(443),
            path: text(&service["path"]),
        },
        None => Endpoint::Url(text(&config["url"])),
    };
    let ca_bundle = base64::engine::general_purpose::STANDARD.decode(text(&config["caBundle"]));
    ClientConfig { endpoint, ca_bundle: ca_bundle.unwrap_or_default(), credentials: None }
}

impl RequestConversions {
    pub(crate) fn new(converter: &Arc<Converter>, deadline: Option<Instant>) -> Arc<Self> {
        Arc::new(Self { converter: converter.clone(), deadline, state: Mutex::default() })
    }

    /// The result of a conversion; if it is not known, the conversion is recorded as missing, of what `input` returns.
    fn result_or_request(&self, key: ConversionKey, input: impl FnOnce() -> JsonObject) -> Option<Bytes> {
        let mut state = self.state.lock();
        if let Some(known) = state.results.get(&key) {
            return Some(known.clone());
        }
        if let Some(cached) = self.converter.cache.lock().get(&key) {
            state.results.insert(key, cached.clone());
            return Some(cached);
        }
        state.pending.entry(key).or_insert_with(input);
        None
    }

    /// Forgets conversions that an earlier decision found missing.
    pub(crate) fn clear_pending(&self) {
        self.state.lock().pending.clear();
    }

    /// Forgets everything; a watch needs no conversion twice.
    pub(crate) fn clear(&self) {
        *self.state.lock() = ConversionState::default();
    }

    /// Performs the missing conversions; false if there are none.
    pub(crate) async fn run_pending(&self, live: &LiveDefinition) -> Result<bool, Status> {
        let pending = std::mem::take(&mut self.state.lock().pending);
        if pending.is_empty() {
            return Ok(false);
        }
        let jobs = pending.into_iter().map(|(key, input)| ConversionJob { key, input }).collect();
        let batches = stream::iter(into_batches(jobs).into_iter().map(Ok::<_, Status>));
        batches
            .try_for_each_concurrent(BATCHES_CONCURRENT_MAX, |batch| async {
                let results = self.converter.convert_batch(live, batch, self.deadline).await?;
                self.state.lock().results.extend(results);
                Ok(())
            })
            .await?;
        Ok(true)
    }
}

/// Splits jobs into calls: one target each, and bounded in number and size.
fn into_batches(jobs: Vec<ConversionJob>) -> Vec<Vec<ConversionJob>> {
    let mut batches: Vec<(usize, Vec<ConversionJob>)> = Vec::new();
    for job in jobs {
        let size = job.key.content.len();
        let fits = |(bytes, batch): &&mut (usize, Vec<ConversionJob>)| {
            batch.len() < BATCH_OBJECTS_MAX
                && *bytes + size <= BATCH_BYTES_MAX
                && batch.first().is_some_and(|first| first.key.target == job.key.target)
        };
        match batches.last_mut().filter(fits) {
            Some((bytes, batch)) => {
                *bytes += size;
                batch.push(job);
            }
            None => batches.push((size, vec![job])),
        }
    }
    batches.into_iter().map(|(_, batch)| batch).collect()
}

impl Converter {
    pub(crate) fn new(client: Arc<WebhookClient>, registry: &prometheus::Registry) -> Arc<Self> {
        let cache = Mutex::new(ResultCache::new(CACHE_BYTES_MAX));
        Arc::new(Self { client, cache, metrics: ConversionMetrics::new(registry) })
    }

    /// Converts objects to one version in one call.
    async fn convert_batch(
        &self,
        live: &LiveDefinition,
        jobs: Vec<ConversionJob>,
        deadline: Option<Instant>,
    ) -> Result<Vec<(ConversionKey, Bytes)>, Status> {
        let started = Instant::now();
        let end = deadline.unwrap_or(started + CALL_TIMEOUT).min(started + CALL_TIMEOUT);
        let Some(target) = jobs.first().and_then(|job| live.versions.get(job.key.target)) else {
            return Ok(Vec::new());
        };
        let Some(webhook) = &live.conversion.webhook else { return Ok(Vec::new()) };
        let mut flights = Vec::new();
        if jobs.len() <= SHARED_FLIGHT_OBJECTS_MAX {
            for flight in webhook.flights_of(&jobs) {
                // Without the lock the conversion is at most performed twice.
                flights.extend(tokio::time::timeout_at(end, webhook.flights[flight].lock()).await.ok());
            }
        }
        let (mut done, mut missing) = (Vec::new(), Vec::new());
        for job in jobs {
            match self.cache.lock().get(&job.key) {
                Some(cached) => done.push((job.key, cached)),
                None => missing.push(job),
            }
        }
        if !missing.is_empty() {
            done.extend(self.call(live, webhook, target, missing, end).await?);
        }
        Ok(done)
    }

    async fn call(
        &self,
        live: &LiveDefinition,
        webhook: &ConversionWebhook,
        target: &CustomResourceVersion,
        jobs: Vec<ConversionJob>,
        end: Instant,
    ) -> Result<Vec<(ConversionKey, Bytes)>, Status> {
        let objects: Vec<&JsonObject> = jobs.iter().map(|job| &job.input).collect();
        let Some(first) = objects.first() else { return Ok(Vec::new()) };
        let Some(review_version) = webhook.review_version else { return Err(failure_status(NO_REVIEW_VERSION)) };
        let kind = &live.definition.spec.names.kind;
        let from_version = super::objects::version_of(first).to_owned();
        let subject =
            GroupVersionKind { group: live.definition.spec.group.as_str(), version: from_version.as_str(), kind };
        let uid = new_uid();
        // The texts of a call for one object, also if it is sent with others: kube-apiserver converts one at a time.
        let call = ConversionCall {
            review_version,
            uid: &uid,
            desired: target.group_version(),
            subject,
            is_list: false,
            objects: &objects,
        };
        let body = Bytes::from(call.to_body());
        let started = Instant::now();
        let called = self.client.call(&webhook.config, body, end.saturating_duration_since(started)).await;
        let converted = match called {
            // Nothing was sent, and the webhook may have room a moment later.
            Err(error @ WebhookError::Busy { .. }) => return Err(Status::too_many_requests(error.to_string(), 1)),
            Err(error) => Err(call.call_error(error)),
            Ok(response) => call.converted_objects(&response),
        };
        let failure_type = converted.as_ref().err().map(ConversionError::failure_type);
        self.metrics.observe_call(started.elapsed(), failure_type);
        let (definition, to) = (&live.definition.metadata.name, &target.version().name);
        self.metrics.observe_conversion(definition, [&from_version, to], failure_type.is_none(), started.elapsed());
        let converted = converted.map_err(|error| {
            tracing::warn!(definition, version = to, %error, "conversion webhook failed");
            failure_status(error.to_string())
        })?;
        let pruned = jobs.into_iter().zip(converted).map(|(job, mut converted)| {
            live.prune(&mut converted, target);
            (job.key, Bytes::from(api::json::to_go_json(&converted)))
        });
        let results: Vec<(ConversionKey, Bytes)> = pruned.collect();
        let mut cache = self.cache.lock();
        for (key, result) in results.iter().filter(|(key, _)| key.direction == Direction::FromStorage) {
            cache.insert(key.clone(), result.clone());
        }
        Ok(results)
    }
}

impl LiveDefinition {
    pub(crate) fn has_webhook(&self) -> bool {
        self.conversion.has_webhook()
    }

    /// A stored object in another version, by the webhook. `decode` makes of it what the webhook is sent.
    pub(super) fn convert_stored(
        &self,
        stored: &StoredObject,
        target: &CustomResourceVersion,
        conversions: Option<&RequestConversions>,
        decode: impl FnOnce() -> JsonObject,
    ) -> Result<JsonObject, Status> {
        let key = ConversionKey {
            scope: self.conversion.id,
            direction: Direction::FromStorage,
            target: self.position(target),
            content: content_without_revision(stored),
        };
        let input = || {
            let mut object = decode();
            remove_resource_version(&mut object);
            object
        };
        let converted = conversions.and_then(|conversions| conversions.result_or_request(key, input));
        let revision = (stored.revision != 0).then(|| stored.revision.to_string().into());
        read_result(converted, revision)
    }

    /// An object of a request in another version, by the webhook.
    pub(super) fn convert_object(
        &self,
        object: &JsonObject,
        target: &CustomResourceVersion,
        conversions: Option<&RequestConversions>,
    ) -> Result<JsonObject, Status> {
        let mut input = object.clone();
        let revision = remove_resource_version(&mut input);
        let key = ConversionKey {
            scope: self.conversion.id,
            direction: Direction::FromRequest,
            target: self.position(target),
            content: api::json::to_go_json(&input).into(),
        };
        read_result(conversions.and_then(|conversions| conversions.result_or_request(key, || input)), revision)
    }

    fn position(&self, version: &CustomResourceVersion) -> usize {
        self.versions.iter().position(|known| std::ptr::eq(known, version)).unwrap_or(usize::MAX)
    }
}

/// The object of a result with its resourceVersion. Without a result the status only ends the decision that needs it: the
/// handler performs the conversion and decides again.
fn read_result(converted: Option<Bytes>, revision: Option<Value>) -> Result<JsonObject, Status> {
    let converted = converted.ok_or_else(|| Status::internal_error("a conversion of the object is missing"))?;
    let mut object: JsonObject = serde_json::from_slice(&converted).expect("results are JSON objects");
    if let (Some(metadata), Some(revision)) = (object.get_mut("metadata").and_then(Value::as_object_mut), revision) {
        metadata.insert("resourceVersion".to_owned(), revision);
    }
    Ok(object)
}

fn remove_resource_version(object: &mut JsonObject) -> Option<Value> {
    let metadata = object.get_mut("metadata").and_then(Value::as_object_mut)?;
    metadata.remove("selfLink");
    metadata.remove("resourceVersion")
}

/// The bytes of a stored object without its resourceVersion, which no webhook is sent: the last state of a deleted object
/// has another one than the object had.
fn content_without_revision(stored: &StoredObject) -> Bytes {
    let field = format!(r#""resourceVersion":"{}""#, stored.revision);
    let body = &stored.body;
    let Some(at) = body.windows(field.len()).position(|part| part == field.as_bytes()) else { return body.clone() };
    let (before, after) = (&body[..at], &body[at + field.len()..]);
    // With one of the commas beside it: the field is the first or the last of the metadata.
    match (after.strip_prefix(b","), before.strip_suffix(b",")) {
        (Some(after), _) => [before, after].concat().into(),
        (None, Some(before)) => [before, after].concat().into(),
        (None, None) => [before, after].concat().into(),
    }
}

/// A failed conversion. Like kube-apiserver's status it has no reason.
pub(super) fn failure_status(message: impl Into<String>) -> Status {
    Status { message: message.into(), code: 500, ..Status::default() }
}

#[cfg(test)]
mod tests;

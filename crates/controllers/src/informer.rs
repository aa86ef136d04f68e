//! Informers: list a resource, then watch it, until the receiver is dropped.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use api::wire::null_is_default;
use serde::{Deserialize, Deserializer};
use tasks::Backoff;
use tokio::sync::mpsc;

use crate::client::{ApiClient, ApiError, ApiWatchEvent, ApiWatchStream, METADATA_LIST_ONLY, METADATA_ONLY, PAGE_SIZE};

/// The backoff of failed lists and watches.
const RETRY_BACKOFF: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(5));

/// Unique to an object over all time.
pub(crate) type Uid = Arc<str>;

/// The decoded part of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub(crate) struct ObservedObject {
    #[serde(default)]
    pub(crate) metadata: ObservedMetadata,
    /// Only for ConfigMaps read with [`ObjectDetail::Full`].
    #[serde(default)]
    pub(crate) data: Option<HashMap<String, String>>,
    /// Only for quotas read with [`ObjectDetail::Full`].
    #[serde(default)]
    pub(crate) spec: Option<serde_json::Value>,
}

/// The decoded part of an object's metadata.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ObservedMetadata {
    pub(crate) name: Arc<str>,
    pub(crate) namespace: Arc<str>,
    pub(crate) uid: Uid,
    pub(crate) resource_version: Box<str>,
    #[serde(rename = "deletionTimestamp", deserialize_with = "is_present")]
    pub(crate) is_deleting: bool,
    #[serde(deserialize_with = "null_is_default")]
    pub(crate) owner_references: Vec<ObservedOwnerReference>,
    #[serde(deserialize_with = "null_is_default")]
    pub(crate) finalizers: Vec<Box<str>>,
}

/// An owner reference; equality covers all fields.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ObservedOwnerReference {
    pub(crate) api_version: Arc<str>,
    pub(crate) kind: Arc<str>,
    pub(crate) name: Arc<str>,
    pub(crate) uid: Uid,
    pub(crate) block_owner_deletion: Option<bool>,
}

impl ObservedMetadata {
    pub(crate) fn has_finalizer(&self, finalizer: &str) -> bool {
        self.finalizers.iter().any(|each| **each == *finalizer)
    }
}

fn is_present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    Ok(Option::<serde::de::IgnoredAny>::deserialize(deserializer)?.is_some())
}

/// A page of a list.
#[derive(Debug, Deserialize)]
pub(crate) struct ObjectList {
    #[serde(default)]
    pub(crate) metadata: api::metadata::ListMeta,
    /// kube-apiserver writes `null` for an empty list; without the field the body is no list.
    #[serde(deserialize_with = "null_is_default")]
    pub(crate) items: Vec<ObservedObject>,
}

/// The channel for the events of an informer, with the informer's id.
#[derive(Debug)]
pub(crate) struct EventSink<Id> {
    pub(crate) id: Id,
    pub(crate) events: mpsc::Sender<(Id, InformerEvent)>,
}

/// An event of an informer.
#[derive(Debug)]
pub(crate) enum InformerEvent {
    /// An object was created or changed, or is part of the list.
    Applied(Box<ObservedObject>),
    /// An object was deleted; this is its last state.
    Deleted(Box<ObservedObject>),
    /// The list is complete: other objects of the resource do not exist.
    Listed(HashSet<Uid>),
    /// The resource can be neither listed nor watched at present.
    Unavailable(ApiError),
}

/// The objects to follow.
#[derive(Clone, Debug)]
pub(crate) struct InformerScope {
    /// The path of the collection.
    pub(crate) path: String,
    /// A part of the query, such as `fieldSelector=…`, or empty.
    pub(crate) query: &'static str,
    pub(crate) detail: ObjectDetail,
}

/// Whether to request whole objects.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ObjectDetail {
    Metadata,
    Full,
}

/// Lists and watches a resource until the receiver is dropped.
pub(crate) async fn run_informer<Id: Copy>(client: ApiClient, scope: InformerScope, sink: EventSink<Id>) {
    let mut failures = 0;
    let mut version = None;
    loop {
        match list_and_watch_once(&client, &scope, &mut version, &sink, &mut failures).await {
            Ok(()) => {}
            Err(InformerExit::ReceiverDropped) => return,
            Err(InformerExit::Failed(error)) => {
                failures += 1;
                // A broken watch is resumed where it ended; only a second failure in a row makes the resource
                // unavailable.
                if failures > 1 || version.is_none() {
                    version = None;
                    if sink.send(InformerEvent::Unavailable(error)).await.is_err() {
                        return;
                    }
                }
                tokio::time::sleep(RETRY_BACKOFF.after(failures)).await;
            }
        }
    }
}

/// The reason for which an informer stopped.
enum InformerExit {
    ReceiverDropped,
    Failed(ApiError),
}

impl From<ApiError> for InformerExit {
    fn from(error: ApiError) -> Self {
        Self::Failed(error)
    }
}

impl<Id: Copy> EventSink<Id> {
    async fn send(&self, notice: InformerEvent) -> Result<(), InformerExit> {
        self.events.send((self.id, notice)).await.map_err(|_| InformerExit::ReceiverDropped)
    }
}

/// Lists the resource unless `version` is known, then watches until the watch ends.
async fn list_and_watch_once<Id: Copy>(
    client: &ApiClient,
    scope: &InformerScope,
    version: &mut Option<String>,
    sink: &EventSink<Id>,
    failures: &mut u32,
) -> Result<(), InformerExit> {
    let from = match version.take() {
        Some(from) => from,
        None => list_all(client, scope, sink).await?,
    };
    // kube-apiserver's range, randomized so that many watches do not end at once.
    let seconds = 1800 + fastrand::u64(..1800);
    let InformerScope { path, query, detail } = scope;
    let path =
        format!("{path}?{query}&watch=true&allowWatchBookmarks=true&resourceVersion={from}&timeoutSeconds={seconds}");
    let accept = match detail {
        ObjectDetail::Metadata => METADATA_ONLY,
        ObjectDetail::Full => "application/json",
    };
    *version = Some(from);
    let mut watching = match client.watch(&path, accept).await {
        Ok(watching) => watching,
        Err(error) if error.is_expired() => {
            *version = None;
            return Ok(());
        }
        Err(error) => return Err(error.into()),
    };
    *failures = 0;
    forward_events(&mut watching, version, sink).await
}

/// Forwards events until the watch ends. `version` is the last resourceVersion seen.
async fn forward_events<Id: Copy>(
    watch_stream: &mut ApiWatchStream,
    version: &mut Option<String>,
    sink: &EventSink<Id>,
) -> Result<(), InformerExit> {
    loop {
        let change = match watch_stream.next_event().await {
            Ok(Some(change)) => change,
            Ok(None) => return Ok(()),
            Err(error) if error.is_expired() => {
                *version = None;
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        };
        let (ApiWatchEvent::Applied(object) | ApiWatchEvent::Deleted(object) | ApiWatchEvent::Bookmark(object)) =
            &change;
        let seen: ObservedObject = serde_json::from_str(object.get())
            .map_err(|error| ApiError::InvalidResponse(format!("object of a watch event: {error}")))?;
        *version = Some(seen.metadata.resource_version.to_string());
        match change {
            ApiWatchEvent::Applied(_) => sink.send(InformerEvent::Applied(Box::new(seen))).await?,
            ApiWatchEvent::Deleted(_) => sink.send(InformerEvent::Deleted(Box::new(seen))).await?,
            ApiWatchEvent::Bookmark(_) => {}
        }
    }
}

/// Sends every object of the list, page by page, and returns the list's resourceVersion.
async fn list_all<Id: Copy>(
    client: &ApiClient,
    scope: &InformerScope,
    sink: &EventSink<Id>,
) -> Result<String, InformerExit> {
    let InformerScope { path, query, detail } = scope;
    let accept = match detail {
        ObjectDetail::Metadata => METADATA_LIST_ONLY,
        ObjectDetail::Full => "application/json",
    };
    let mut uids = HashSet::new();
    let mut token = String::new();
    loop {
        let page = format!("{path}?{query}&limit={PAGE_SIZE}&continue={token}");
        let page = parse_list(&client.get(&page, accept).await?.body)?;
        for seen in page.items {
            uids.insert(seen.metadata.uid.clone());
            sink.send(InformerEvent::Applied(Box::new(seen))).await?;
        }
        if page.metadata.continue_token.is_empty() {
            sink.send(InformerEvent::Listed(uids)).await?;
            return Ok(page.metadata.resource_version);
        }
        token =
            percent_encoding::utf8_percent_encode(&page.metadata.continue_token, percent_encoding::NON_ALPHANUMERIC)
                .to_string();
    }
}

pub(crate) fn parse_list(body: &[u8]) -> Result<ObjectList, ApiError> {
    serde_json::from_slice(body).map_err(|error| ApiError::InvalidResponse(format!("list: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn observed_object_reads_null_and_absent_fields_as_empty() {
        let seen = |text: &str| serde_json::from_str::<ObservedObject>(text).unwrap();
        assert_eq!(seen("{}"), ObservedObject::default());
        let nulls = r#"{"metadata":{"deletionTimestamp":null,"ownerReferences":null,"finalizers":null,"x":1}}"#;
        assert_eq!(seen(nulls), ObservedObject::default());
        let marked = seen(r#"{"metadata":{"deletionTimestamp":"2026-01-01T00:00:00Z","finalizers":["f"]}}"#);
        assert!(marked.metadata.is_deleting && marked.metadata.has_finalizer("f"));
    }

    #[test]
    fn object_list_accepts_null_items_and_requires_the_field() {
        let list = |text: &str| serde_json::from_str::<ObjectList>(text).map(|list| list.items.len()).ok();
        assert_eq!(list(r#"{"metadata":{"resourceVersion":"1"},"items":null}"#), Some(0));
        assert_eq!(list(r#"{"items":[{"metadata":{"name":"a"}}]}"#), Some(1));
        assert_eq!(list(r#"{"kind":"Status"}"#), None);
    }
}

//! A resource, listed and then watched for as long as it lasts.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use api::wire::null_is_default;
use serde::{Deserialize, Deserializer};
use tasks::Backoff;
use tokio::sync::mpsc;

use crate::client::{CallError, Change, Client, METADATA_LIST_ONLY, METADATA_ONLY, PAGE, Watching};

/// How long to wait before a list or a watch is tried again.
const AGAIN: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(5));

/// Unique to an object, for ever.
pub(crate) type Uid = Arc<str>;

/// What is read of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub(crate) struct Seen {
    #[serde(default)]
    pub(crate) metadata: Metadata,
    /// Of a ConfigMap that is read whole.
    #[serde(default)]
    pub(crate) data: Option<HashMap<String, String>>,
}

/// What is read of an object's metadata.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Metadata {
    pub(crate) name: Arc<str>,
    pub(crate) namespace: Arc<str>,
    pub(crate) uid: Uid,
    pub(crate) resource_version: Box<str>,
    #[serde(rename = "deletionTimestamp", deserialize_with = "is_set")]
    pub(crate) is_deleting: bool,
    #[serde(deserialize_with = "null_is_default")]
    pub(crate) owner_references: Vec<OwnerReference>,
    #[serde(deserialize_with = "null_is_default")]
    pub(crate) finalizers: Vec<Box<str>>,
}

/// One owner, as an object names it. Names compare by all fields.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct OwnerReference {
    pub(crate) api_version: Arc<str>,
    pub(crate) kind: Arc<str>,
    pub(crate) name: Arc<str>,
    pub(crate) uid: Uid,
    pub(crate) block_owner_deletion: Option<bool>,
}

impl Metadata {
    pub(crate) fn has_finalizer(&self, finalizer: &str) -> bool {
        self.finalizers.iter().any(|each| **each == *finalizer)
    }
}

fn is_set<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    Ok(Option::<serde::de::IgnoredAny>::deserialize(deserializer)?.is_some())
}

/// A page of a list.
#[derive(Debug, Deserialize)]
pub(crate) struct List {
    #[serde(default)]
    pub(crate) metadata: api::metadata::ListMeta,
    /// A real kube-apiserver writes `null` for none; without the field it is no list.
    #[serde(deserialize_with = "null_is_default")]
    pub(crate) items: Vec<Seen>,
}

/// Whom a follower tells, and under which number.
#[derive(Debug)]
pub(crate) struct Listener<Id> {
    pub(crate) id: Id,
    pub(crate) notices: mpsc::Sender<(Id, Notice)>,
}

/// What a follower tells.
#[derive(Debug)]
pub(crate) enum Notice {
    /// An object as it is now.
    Is(Box<Seen>),
    /// An object that is gone, as it was last.
    Gone(Box<Seen>),
    /// The list is complete: what is not in it does not exist.
    Listed(HashSet<Uid>),
    /// It can be neither listed nor watched, for now.
    Away(CallError),
}

/// Which objects, and how much of them.
#[derive(Clone, Debug)]
pub(crate) struct Selection {
    /// Of the collection.
    pub(crate) path: String,
    /// A part of the query, such as `fieldSelector=…`, or nothing.
    pub(crate) query: &'static str,
    pub(crate) depth: Depth,
}

/// How much of objects is wanted.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Depth {
    Metadata,
    Whole,
}

/// Lists and watches for ever, until nobody listens.
pub(crate) async fn follow<Id: Copy>(client: Client, selection: Selection, listener: Listener<Id>) {
    let mut failures = 0;
    let mut version = None;
    loop {
        match follow_once(&client, &selection, &mut version, &listener, &mut failures).await {
            Ok(()) => {}
            Err(Ended::Unheard) => return,
            Err(Ended::Failed(error)) => {
                failures += 1;
                // A stream that broke is taken up where it ended; only what cannot be begun again is away.
                if failures > 1 || version.is_none() {
                    version = None;
                    if listener.tell(Notice::Away(error)).await.is_err() {
                        return;
                    }
                }
                tokio::time::sleep(AGAIN.after(failures)).await;
            }
        }
    }
}

/// Why following stopped.
enum Ended {
    /// Nobody listens any more.
    Unheard,
    Failed(CallError),
}

impl From<CallError> for Ended {
    fn from(error: CallError) -> Self {
        Self::Failed(error)
    }
}

impl<Id: Copy> Listener<Id> {
    async fn tell(&self, notice: Notice) -> Result<(), Ended> {
        self.notices.send((self.id, notice)).await.map_err(|_| Ended::Unheard)
    }
}

/// One list if there is no version to begin with, and one watch to its end.
async fn follow_once<Id: Copy>(
    client: &Client,
    selection: &Selection,
    version: &mut Option<String>,
    listener: &Listener<Id>,
    failures: &mut u32,
) -> Result<(), Ended> {
    let from = match version.take() {
        Some(from) => from,
        None => list(client, selection, listener).await?,
    };
    // Not less than a server would choose, so that many watches do not end at once.
    let seconds = 1800 + fastrand::u64(..1800);
    let Selection { path, query, depth } = selection;
    let path =
        format!("{path}?{query}&watch=true&allowWatchBookmarks=true&resourceVersion={from}&timeoutSeconds={seconds}");
    let accept = match depth {
        Depth::Metadata => METADATA_ONLY,
        Depth::Whole => "application/json",
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
    pass_on(&mut watching, version, listener).await
}

/// Tells of every change until the watch ends. `version` is the last one told.
async fn pass_on<Id: Copy>(
    watching: &mut Watching,
    version: &mut Option<String>,
    listener: &Listener<Id>,
) -> Result<(), Ended> {
    loop {
        let change = match watching.next().await {
            Ok(Some(change)) => change,
            Ok(None) => return Ok(()),
            Err(error) if error.is_expired() => {
                *version = None;
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        };
        let (Change::Is(object) | Change::Gone(object) | Change::Bookmark(object)) = &change;
        let seen: Seen = serde_json::from_str(object.get())
            .map_err(|error| CallError::Unreadable(format!("an object in a watch: {error}")))?;
        *version = Some(seen.metadata.resource_version.to_string());
        match change {
            Change::Is(_) => listener.tell(Notice::Is(Box::new(seen))).await?,
            Change::Gone(_) => listener.tell(Notice::Gone(Box::new(seen))).await?,
            Change::Bookmark(_) => {}
        }
    }
}

/// Tells of every object there is, page by page; the version of the list.
async fn list<Id: Copy>(client: &Client, selection: &Selection, listener: &Listener<Id>) -> Result<String, Ended> {
    let Selection { path, query, depth } = selection;
    let accept = match depth {
        Depth::Metadata => METADATA_LIST_ONLY,
        Depth::Whole => "application/json",
    };
    let mut uids = HashSet::new();
    let mut token = String::new();
    loop {
        let page = format!("{path}?{query}&limit={PAGE}&continue={token}");
        let page = parse_list(&client.get(&page, accept).await?.body)?;
        for seen in page.items {
            uids.insert(seen.metadata.uid.clone());
            listener.tell(Notice::Is(Box::new(seen))).await?;
        }
        if page.metadata.continue_token.is_empty() {
            listener.tell(Notice::Listed(uids)).await?;
            return Ok(page.metadata.resource_version);
        }
        token =
            percent_encoding::utf8_percent_encode(&page.metadata.continue_token, percent_encoding::NON_ALPHANUMERIC)
                .to_string();
    }
}

/// Reads a page of a list.
pub(crate) fn parse_list(body: &[u8]) -> Result<List, CallError> {
    serde_json::from_slice(body).map_err(|error| CallError::Unreadable(format!("a list: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nulls_and_absent_fields_are_read_as_nothing() {
        let seen = |text: &str| serde_json::from_str::<Seen>(text).unwrap();
        assert_eq!(seen("{}"), Seen::default());
        let nulls = r#"{"metadata":{"deletionTimestamp":null,"ownerReferences":null,"finalizers":null,"x":1}}"#;
        assert_eq!(seen(nulls), Seen::default());
        let marked = seen(r#"{"metadata":{"deletionTimestamp":"2026-01-01T00:00:00Z","finalizers":["f"]}}"#);
        assert!(marked.metadata.is_deleting && marked.metadata.has_finalizer("f"));
    }

    #[test]
    fn a_list_without_objects_may_say_null_and_must_say_something() {
        let list = |text: &str| serde_json::from_str::<List>(text).map(|list| list.items.len()).ok();
        assert_eq!(list(r#"{"metadata":{"resourceVersion":"1"},"items":null}"#), Some(0));
        assert_eq!(list(r#"{"items":[{"metadata":{"name":"a"}}]}"#), Some(1));
        assert_eq!(list(r#"{"kind":"Status"}"#), None);
    }
}

//! The API: `gadgets` of the group `gadgets.example.com`, cluster-scoped, in two versions.
//!
//! A gadget of `v1alpha1` has its size beside the metadata, one of `v1` in its spec. Every replica reads both versions from storage and writes
//! the one that its flag names.

use std::sync::Arc;

use access::User;
use api::{GroupResource, Status, Target, Verb};
use bytes::Bytes;
use edge::response::{json_response, page_not_found};
use edge::{AuthorizedRequest, Error, LocalHandler, Request, Response};
use futures_util::future::BoxFuture;
use http::StatusCode;
use http_body_util::{BodyExt as _, Limited};
use object::StoredObject;
use registry::read::ReadConsistency;
use registry::{
    BarrierClosed, CachedEntry, CachedValue, ListSelection, Permit, PermitRequest, Registry, ResourceCache,
    WriteBarrier, WriteDecision, WriteError, WriteOutcome,
};
use serde_json::{Value, json};
use storageversion::{IntentAuthor, PublicationBarrier, Registration, Registrations, WriteIntent, WriteOperation};
use store::{Key, Revision, StoreEntry};

/// The prefix of all keys.
pub(crate) const KEY_PREFIX: &str = "/registry/gadgets.example.com/gadgets/";
const GROUP: &str = "gadgets.example.com";
const VERSIONS: [&str; 2] = ["v1", "v1alpha1"];
const GADGETS: GroupResource<&str> = GroupResource { group: GROUP, resource: "gadgets" };
/// The longest body of a request; Kubernetes' own limit is three times as long.
const BODY_BYTES_MAX: usize = 1 << 20;

/// What this server publishes: it stores gadgets in `storage_version` and reads all versions.
pub(crate) fn registrations(storage_version: &str) -> anyhow::Result<Registrations> {
    let all: Vec<String> = VERSIONS.map(|version| format!("{GROUP}/{version}")).into();
    let registration = Registration::new(GADGETS.owned(), format!("{GROUP}/{storage_version}"), all.clone(), all)?;
    Ok([(registration.name(), Arc::new(registration))].into())
}

/// Permits a write while the storage version is published and the identity lease is valid.
#[derive(Debug)]
pub(crate) struct PublishedBarrier(pub(crate) PublicationBarrier);

impl WriteBarrier for PublishedBarrier {
    /// The StorageVersion is in another store, so that the transaction cannot compare it.
    fn permit(&self, request: &PermitRequest<'_>) -> Result<Permit, BarrierClosed> {
        let intent = WriteIntent {
            resource: request.resource,
            path: std::str::from_utf8(request.path).unwrap_or_default(),
            author: IntentAuthor::Client,
            operation: if request.is_create { WriteOperation::Create } else { WriteOperation::UpdateOrDelete },
        };
        match self.0.permit(&intent) {
            Ok(_) => Ok(Permit::granted()),
            Err(closed) => Err(BarrierClosed { reason: closed.to_string() }),
        }
    }

    /// Unreachable: permits have no condition.
    fn handle_stale_permit(&self, _request: &PermitRequest<'_>, _current: Option<&StoreEntry>, _as_of: Revision) {}

    fn wait_until_permitted<'a>(&'a self, resource: GroupResource<&'a str>) -> BoxFuture<'a, ()> {
        Box::pin(self.0.wait_until_permitted(resource))
    }
}

/// Serves discovery and gadgets.
#[derive(Debug)]
pub(crate) struct GadgetHandler {
    registry: Registry,
    cache: Arc<ResourceCache>,
    storage_version: String,
}

impl GadgetHandler {
    pub(crate) fn new(registry: Registry, storage_version: String) -> Self {
        let cache = registry.cache().resource_cache(KEY_PREFIX.as_bytes()).expect("the cache has the prefix").clone();
        Self { registry, cache, storage_version }
    }

    async fn dispatch(&self, target: &Target<'_>, request: Request) -> Result<Response, Status> {
        let target = match target {
            Target::NonResource(page) => {
                return Ok(discovery_page(&page.path).map_or_else(page_not_found, |value| respond(&value)));
            }
            Target::Resource(target) => target,
        };
        let version = VERSIONS.into_iter().find(|version| *version == target.version);
        let is_gadget = target.group_resource() == GADGETS && target.subresource.is_empty();
        let (Some(version), true) = (version, is_gadget && target.namespace.is_empty()) else {
            return Ok(page_not_found());
        };
        let name = &*target.name;
        let served = match target.verb {
            Verb::Get => self.get(name, version).await?,
            Verb::List => self.list(version).await?,
            Verb::Create => {
                let created = self.put(None, read_body(request).await?, version).await?;
                let mut response = respond(&created);
                *response.status_mut() = StatusCode::CREATED;
                return Ok(response);
            }
            Verb::Update => self.put(Some(name), read_body(request).await?, version).await?,
            Verb::Delete => self.delete(name).await?,
            Verb::Watch | Verb::Patch | Verb::DeleteCollection | Verb::Proxy | Verb::Unknown => {
                return Err(Status::method_not_allowed());
            }
        };
        Ok(respond(&served))
    }

    async fn get(&self, name: &str, version: &str) -> Result<Value, Status> {
        let found = self.registry.get(&self.cache, &key(name), ReadConsistency::Latest).await;
        match found.map_err(|error| Status::storage_read_error(error.to_string()))? {
            Some(entry) => Ok(converted(&entry, version)),
            None => Err(Status::not_found(GADGETS, name)),
        }
    }

    async fn list(&self, version: &str) -> Result<Value, Status> {
        let prefix = Key::from(KEY_PREFIX.to_owned());
        let selection = ListSelection { start_key: Key::default(), prefix, limit: None, filter: &|_| true };
        let page = self.registry.list(&self.cache, &selection, ReadConsistency::Latest).await;
        let page = page.map_err(|error| Status::storage_read_error(error.to_string()))?;
        let items: Vec<Value> = page.entries.iter().map(|entry| converted(entry, version)).collect();
        let metadata = json!({"resourceVersion": page.revision.to_string()});
        Ok(json!({
            "kind": "GadgetList", "apiVersion": format!("{GROUP}/{version}"), "metadata": metadata, "items": items,
        }))
    }

    /// Creates a gadget, or updates the one of this name.
    async fn put(&self, name: Option<&str>, mut gadget: Value, version: &str) -> Result<Value, Status> {
        let named = gadget["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        if named.is_empty() || name.is_some_and(|name| name != named) {
            return Err(Status::bad_request("metadata.name: a name is required, the same as in the path"));
        }
        let expected = gadget["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
        if let Some(metadata) = gadget["metadata"].as_object_mut() {
            metadata.remove("resourceVersion");
        }
        gadget["kind"] = "Gadget".into();
        gadget["apiVersion"] = format!("{GROUP}/{version}").into();
        let uid = uuid::Uuid::from_u128(fastrand::u128(..)).to_string();
        let created_at = api::time::Time::from(jiff::Timestamp::now()).to_string();
        let decide = |current: Option<&StoredObject>| {
            let mut gadget = gadget.clone();
            match (current, name) {
                (Some(_), None) => return Err(Status::already_exists(GADGETS, &named)),
                (None, Some(_)) => return Err(Status::not_found(GADGETS, &named)),
                (None, None) => {
                    gadget["metadata"]["uid"] = uid.as_str().into();
                    gadget["metadata"]["creationTimestamp"] = created_at.as_str().into();
                }
                (Some(current), Some(_)) => {
                    if !expected.is_empty() && expected != current.revision.to_string() {
                        return Err(Status::conflict(GADGETS, &named, "the object has been modified"));
                    }
                    let before: Value = serde_json::from_slice(&current.body).unwrap_or_default();
                    for field in ["uid", "creationTimestamp"] {
                        gadget["metadata"][field] = before["metadata"][field].clone();
                    }
                }
            }
            let stored = convert(gadget, &self.storage_version);
            Ok(WriteDecision::Put { value: Bytes::from(stored.to_string()), ttl: None })
        };
        match self.registry.write(GADGETS, &self.cache, &key(&named), decide).await.map_err(write_status)? {
            WriteOutcome::Put(stored) => {
                let stored = serde_json::from_slice(&stored.body).map_err(Status::internal_error)?;
                Ok(convert(stored, version))
            }
            WriteOutcome::Deleted(_) | WriteOutcome::Unchanged => Err(Status::internal_error("nothing was written")),
        }
    }

    async fn delete(&self, name: &str) -> Result<Value, Status> {
        let decide = |current: Option<&StoredObject>| match current {
            Some(_) => Ok(WriteDecision::Delete),
            None => Err(Status::not_found(GADGETS, name)),
        };
        self.registry.write(GADGETS, &self.cache, &key(name), decide).await.map_err(write_status)?;
        Ok(json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}))
    }
}

impl LocalHandler<Arc<User>> for GadgetHandler {
    fn serve<'a>(
        &'a self,
        authorized: AuthorizedRequest<'a, Arc<User>>,
        request: Request,
    ) -> BoxFuture<'a, Result<Response, Error>> {
        Box::pin(async move { Ok(self.dispatch(authorized.target, request).await?) })
    }
}

fn key(name: &str) -> Key {
    Key::from(format!("{KEY_PREFIX}{name}"))
}

fn respond(value: &Value) -> Response {
    json_response(value.to_string())
}

async fn read_body(request: Request) -> Result<Value, Status> {
    let body = Limited::new(request.into_body(), BODY_BYTES_MAX).collect().await;
    let body = body.map_err(Status::request_entity_too_large)?.to_bytes();
    let value: Value = serde_json::from_slice(&body).map_err(|error| Status::bad_request(error.to_string()))?;
    if value["metadata"].is_object() { Ok(value) } else { Err(Status::bad_request("metadata is required")) }
}

fn write_status(error: WriteError<Status>) -> Status {
    match error {
        WriteError::Refused(status) => status,
        WriteError::BarrierClosed(closed) => Status::service_unavailable(closed.to_string()).with_retry_after(1),
        WriteError::Read(_)
        | WriteError::Store(_)
        | WriteError::ConditionChanged { .. }
        | WriteError::CompanionChanged { .. }
        | WriteError::ComputationRefused
        | WriteError::TooManyConflicts => Status::service_unavailable(error.to_string()),
    }
}

fn converted(entry: &CachedEntry, version: &str) -> Value {
    match &entry.value {
        CachedValue::Object(stored) => convert(serde_json::from_slice(&stored.body).unwrap_or_default(), version),
        CachedValue::Raw(_) | CachedValue::Undecodable(_) => Value::Null,
    }
}

/// Converts a gadget between its versions.
fn convert(mut gadget: Value, version: &str) -> Value {
    let from = gadget["apiVersion"].as_str().unwrap_or_default().rsplit('/').next().unwrap_or_default().to_owned();
    match (from.as_str(), version) {
        ("v1alpha1", "v1") => {
            let size = gadget.as_object_mut().and_then(|fields| fields.remove("size")).unwrap_or_default();
            gadget["spec"] = json!({"size": size});
        }
        ("v1", "v1alpha1") => {
            let spec = gadget.as_object_mut().and_then(|fields| fields.remove("spec")).unwrap_or_default();
            gadget["size"] = spec["size"].clone();
        }
        _ => {}
    }
    gadget["apiVersion"] = format!("{GROUP}/{version}").into();
    gadget
}

/// The discovery documents, in their legacy form.
fn discovery_page(path: &str) -> Option<Value> {
    let version = |name: &str| json!({"groupVersion": format!("{GROUP}/{name}"), "version": name});
    let group = || {
        json!({
            "kind": "APIGroup", "apiVersion": "v1", "name": GROUP,
            "versions": VERSIONS.map(version), "preferredVersion": version(VERSIONS[0]),
        })
    };
    let path = path.trim_end_matches('/');
    match path.strip_prefix("/apis")? {
        "" => Some(json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": [group()]})),
        below if below.strip_prefix('/') == Some(GROUP) => Some(group()),
        below => {
            let name = below.strip_prefix('/')?.strip_prefix(GROUP)?.strip_prefix('/')?;
            VERSIONS.contains(&name).then(|| {
                json!({
                    "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": format!("{GROUP}/{name}"),
                    "resources": [{
                        "name": "gadgets", "singularName": "gadget", "namespaced": false, "kind": "Gadget",
                        "verbs": ["create", "delete", "get", "list", "update"],
                    }],
                })
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gadget_is_converted_there_and_back() {
        let new = json!({"apiVersion": "gadgets.example.com/v1", "kind": "Gadget", "spec": {"size": 3}});
        let old = json!({"apiVersion": "gadgets.example.com/v1alpha1", "kind": "Gadget", "size": 3});
        assert_eq!(convert(new.clone(), "v1alpha1"), old);
        assert_eq!(convert(old.clone(), "v1"), new);
        assert_eq!(convert(old.clone(), "v1alpha1"), old);
    }

    #[test]
    fn unknown_storage_version_is_rejected() {
        assert!(registrations("v1").is_ok());
        assert!(registrations("v2").is_err());
    }

    #[test]
    fn discovery_lists_both_versions() {
        for path in ["/apis", "/apis/gadgets.example.com", "/apis/gadgets.example.com/v1alpha1/"] {
            assert!(discovery_page(path).is_some(), "{path}");
        }
        for path in ["/api", "/apis/other.example.com", "/apis/gadgets.example.com/v2"] {
            assert!(discovery_page(path).is_none(), "{path}");
        }
    }
}

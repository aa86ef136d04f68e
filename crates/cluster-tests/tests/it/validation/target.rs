//! A server that cases are sent to, with the objects that updates start from.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use cluster_tests::{Client, KeepAliveClient};
use futures_util::future::join_all;
use http::Method;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::manifests::{Kind, Manifest};
use super::mutation::Case;
use super::outcome::Outcome;

/// Connections per server: enough to keep its cores busy.
const CONNECTIONS: usize = 8;
/// A controller of the server may change a stored object between reading and updating it.
const CONFLICT_ATTEMPTS_MAX: usize = 5;
const DISCOVERY_ACCEPT: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// A running server, and what it serves.
pub(crate) struct Target {
    client: Client,
    resources: BTreeMap<(String, String), Resource>,
}

/// A resource as discovery lists it.
#[derive(Debug)]
struct Resource {
    /// Path of the API version.
    base: String,
    plural: String,
    is_namespaced: bool,
    can_create: bool,
    can_update: bool,
    has_status: bool,
}

impl Resource {
    fn collection(&self, namespace: &str) -> String {
        let namespace = if self.is_namespaced { format!("/namespaces/{namespace}") } else { String::new() };
        format!("{}{namespace}/{}", self.base, self.plural)
    }
}

impl Target {
    pub(crate) async fn discover(client: Client) -> Self {
        let mut resources = BTreeMap::new();
        for root in ["/api", "/apis"] {
            let request = client.request_builder(Method::GET, root).header("accept", DISCOVERY_ACCEPT);
            let document = client.send(request, Bytes::new()).await.json();
            for group in items(&document, "items") {
                let name = group["metadata"]["name"].as_str().unwrap_or_default();
                for version in items(group, "versions") {
                    let version_name = version["version"].as_str().unwrap_or_default();
                    let (api_version, base) = match name {
                        "" => (version_name.to_owned(), format!("/api/{version_name}")),
                        group => (format!("{group}/{version_name}"), format!("/apis/{group}/{version_name}")),
                    };
                    for listed in items(version, "resources") {
                        let kind = listed["responseKind"]["kind"].as_str().unwrap_or_default().to_owned();
                        resources.insert((api_version.clone(), kind), read_resource(&base, listed));
                    }
                }
            }
        }
        Self { client, resources }
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// True if objects of the kind can be created.
    pub(crate) fn serves(&self, kind: &Kind) -> bool {
        self.resource(kind).is_some_and(|resource| resource.can_create)
    }

    pub(crate) fn can_update(&self, kind: &Kind) -> bool {
        self.resource(kind).is_some_and(|resource| resource.can_update)
    }

    pub(crate) fn has_status(&self, kind: &Kind) -> bool {
        self.resource(kind).is_some_and(|resource| resource.has_status)
    }

    /// The path to create objects of a kind at, in the namespace `default`.
    pub(crate) fn collection(&self, kind: &Kind) -> Option<String> {
        self.resource(kind).map(|resource| resource.collection("default"))
    }

    fn resource(&self, kind: &Kind) -> Option<&Resource> {
        self.resources.get(&(kind.api_version.clone(), kind.kind.clone()))
    }

    /// Sends every case as a dry run; the outcomes in the order of the cases, and the errors of manifests that the server
    /// refuses to store. Creates come before anything is stored, so that no name is taken and no stored object has an effect.
    pub(crate) async fn run_all(&self, kinds: &[&Kind], cases: &[(&Kind, Case)]) -> (Vec<Outcome>, Vec<String>) {
        let is_create = |(_, case): &&(&Kind, Case)| case.operation == "create";
        let creates: Vec<_> = cases.iter().filter(is_create).cloned().collect();
        let others: Vec<_> = cases.iter().filter(|case| !is_create(case)).cloned().collect();
        let mut of_creates = self.run(&creates).await.into_iter();
        let errors = self.store_manifests(kinds).await;
        let mut of_others = self.run(&others).await.into_iter();
        let next = |case| if is_create(&case) { of_creates.next() } else { of_others.next() };
        (cases.iter().map_while(next).collect(), errors)
    }

    /// Stores the manifests that updates start from; the errors of those that the server refuses.
    async fn store_manifests(&self, kinds: &[&Kind]) -> Vec<String> {
        let mut errors = Vec::new();
        for kind in kinds {
            let Some(resource) = self.resource(kind).filter(|resource| resource.can_update) else { continue };
            let namespace = kind.namespace();
            if resource.is_namespaced {
                let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
                self.client.create("/api/v1/namespaces", &object).await;
            }
            for manifest in kind.manifests.iter().filter(|manifest| manifest.is_stored) {
                let created = self.client.create(&resource.collection(&namespace), &manifest.object).await;
                if !created.status.is_success() {
                    errors.push(format!("{} {:?}: {}", kind.file_stem(), manifest.name(), created.summary()));
                }
            }
        }
        errors
    }

    /// Sends the cases, several at a time; the outcomes in their order.
    pub(crate) async fn run(&self, cases: &[(&Kind, Case)]) -> Vec<Outcome> {
        let next = AtomicUsize::new(0);
        let outcomes: Mutex<Vec<(usize, Outcome)>> = Mutex::new(Vec::with_capacity(cases.len()));
        let worker = || async {
            let mut sender =
                CaseSender { target: self, connection: KeepAliveClient::new(&self.client), bases: BTreeMap::new() };
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                let Some((kind, case)) = cases.get(index) else { break };
                let outcome = sender.send(kind, case).await;
                outcomes.lock().push((index, outcome));
            }
        };
        join_all((0..CONNECTIONS).map(|_| worker())).await;
        let mut outcomes = outcomes.into_inner();
        outcomes.sort_by_key(|(index, _)| *index);
        outcomes.into_iter().map(|(_, outcome)| outcome).collect()
    }
}

fn read_resource(base: &str, listed: &Value) -> Resource {
    let has_verb = |of: &Value, verb: &str| items(of, "verbs").iter().any(|listed| listed == verb);
    let has_status =
        items(listed, "subresources").iter().any(|one| one["subresource"] == "status" && has_verb(one, "update"));
    Resource {
        base: base.to_owned(),
        plural: listed["resource"].as_str().unwrap_or_default().to_owned(),
        is_namespaced: listed["scope"] == "Namespaced",
        can_create: has_verb(listed, "create"),
        can_update: has_verb(listed, "update"),
        has_status,
    }
}

fn items<'a>(value: &'a Value, field: &str) -> &'a [Value] {
    value[field].as_array().map_or(&[], Vec::as_slice)
}

/// Sends cases over one connection.
struct CaseSender<'a> {
    target: &'a Target,
    connection: KeepAliveClient,
    /// Path → the object that updates to this path start from.
    bases: BTreeMap<String, Value>,
}

impl CaseSender<'_> {
    async fn send(&mut self, kind: &Kind, case: &Case) -> Outcome {
        let (target, manifest) = (self.target, &kind.manifests[case.manifest]);
        let Some(resource) = target.resource(kind) else { return no_response("the server does not serve the kind") };
        let strict = if case.is_strict() { "&fieldValidation=Strict" } else { "" };
        if case.operation == "create" {
            let path = format!("{}?dryRun=All{strict}", resource.collection("default"));
            return self.send_object(&Method::POST, &path, manifest.object.clone(), case).await;
        }
        let holder = if manifest.subresource.is_some() { &kind.manifests[0] } else { manifest };
        let item = format!("{}/{}", resource.collection(&kind.namespace()), holder.name().unwrap_or_default());
        let path = if case.operation == "update" { item } else { format!("{item}/{}", case.operation) };
        let query = format!("?dryRun=All{strict}");
        if manifest.subresource.as_ref().is_some_and(|subresource| !subresource.is_update) {
            return self.send_object(&Method::POST, &format!("{path}{query}"), manifest.object.clone(), case).await;
        }
        for _ in 1..CONFLICT_ATTEMPTS_MAX {
            let outcome = self.update(&path, &query, manifest, case).await;
            if !is_conflict(&outcome) {
                return outcome;
            }
            self.bases.remove(&path);
        }
        self.update(&path, &query, manifest, case).await
    }

    /// Updates the stored object with what the manifest has, and then with the changes.
    async fn update(&mut self, path: &str, query: &str, manifest: &Manifest, case: &Case) -> Outcome {
        if !self.bases.contains_key(path) {
            match self.read_base(path).await {
                Ok(base) => drop(self.bases.insert(path.to_owned(), base)),
                Err(error) => return no_response(&error),
            }
        }
        let mut object = self.bases[path].clone();
        let mut overlay = manifest.object.clone();
        if case.operation == "update" {
            overlay.as_object_mut().and_then(|fields| fields.remove("status"));
        }
        merge(&mut object, &overlay);
        self.send_object(&Method::PUT, &format!("{path}{query}"), object, case).await
    }

    /// What a subresource shows of the object, or the object itself where the subresource cannot be read.
    async fn read_base(&mut self, path: &str) -> Result<Value, String> {
        let holder = path.rsplit_once('/').map_or(path, |(holder, _)| holder);
        let mut error = String::new();
        for path in [path, holder] {
            match self.connection.send(&Method::GET, path, &Bytes::new()).await {
                Some(read) if read.status.is_success() => return Ok(read.json()),
                Some(read) => error = format!("GET {path}: {}", read.summary()),
                None => error = format!("GET {path}: connection closed"),
            }
        }
        Err(error)
    }

    async fn send_object(&mut self, method: &Method, path: &str, mut object: Value, case: &Case) -> Outcome {
        for change in &case.changes {
            if let Err(error) = change.apply(&mut object) {
                return no_response(&error);
            }
        }
        match self.connection.send(method, path, &Bytes::from(object.to_string())).await {
            Some(response) => Outcome::of_response(&object, &response),
            None => no_response("connection closed"),
        }
    }
}

/// Stands for a case that could not be sent or got no response.
fn no_response(why: &str) -> Outcome {
    Outcome::Refused { code: 0, reason: "NoResponse".to_owned(), causes: Vec::new(), message: why.to_owned() }
}

fn is_conflict(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Refused { code: 409, message, .. } if message.contains("the object has been modified"))
}

/// Merges objects field by field and lists item by item, so that what the server set beside the manifest stays.
fn merge(object: &mut Value, overlay: &Value) {
    match (object, overlay) {
        (Value::Object(fields), Value::Object(overlay)) => {
            for (key, value) in overlay {
                merge(fields.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (Value::Array(items), Value::Array(overlay)) => {
            for (index, value) in overlay.iter().enumerate() {
                match items.get_mut(index) {
                    Some(item) => merge(item, value),
                    None => items.push(value.clone()),
                }
            }
        }
        (object, overlay) => *object = overlay.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merge_keeps_what_the_server_set() {
        let mut object = json!({"a": [{"b": 1, "c": 2}], "d": "x"});
        merge(&mut object, &json!({"a": [{"b": 3}, {"b": 4}], "e": {}}));
        assert_eq!(object, json!({"a": [{"b": 3, "c": 2}, {"b": 4}], "d": "x", "e": {}}));
    }
}

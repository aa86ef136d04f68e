//! One resource of a cluster under migration: evidence, rewrites through a named server, storage.

use std::sync::Mutex;

use ::lab::client::{AdminClient, AdminRequest, AdminResponse};
use ::lab::cluster::ClusterAccess;
use api::objects::{Lease, StorageVersion};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use http::Method;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use preflight::encryption::EncryptionConfig;
use preflight::inventory::value_form;
use preflight::key_layout::KeyLayout;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use storageversion::migration::{
    AgreedWriters, DefinitionState, MigrationPort, Progress, RewriteOutcome, StoredForm, StoredRef, Survey, TargetForm,
    Writer, WriterEvidence, reported_writers,
};
use storageversion::names::storage_version_name;

use super::report_line;
use super::servers::{ApiServer, ServerList};
use crate::inventory::{ScanEvent, StorageReader};

const STORAGE_VERSIONS: &str = "/apis/internal.apiserver.k8s.io/v1alpha1/storageversions";
const IDENTITY_LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases\
                               ?labelSelector=apiserver.kubernetes.io%2Fidentity%3Dkube-apiserver";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const FIELD_MANAGER: &str = "unskew-migrate";
const DISCOVERY: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// A resource as it is served and stored.
pub(crate) struct MigratedResource {
    group: String,
    resource: String,
    /// `/apis/apps/v1`.
    root: String,
    is_namespaced: bool,
    is_custom: bool,
    /// What all its keys begin with.
    key_prefix: String,
}

impl MigratedResource {
    pub(crate) async fn find(
        access: &ClusterAccess,
        group: &str,
        resource: &str,
        prefix: &str,
    ) -> anyhow::Result<Self> {
        let document = if group.is_empty() { "/api" } else { "/apis" };
        let request = AdminRequest::get(document).with_header("accept", DISCOVERY);
        let response = access.client().request(request).await?;
        anyhow::ensure!(response.status.is_success(), "discovery: {}", response.status);
        let (version, is_namespaced) = find_served(&response.json(), group, resource)
            .ok_or_else(|| anyhow::anyhow!("no API server serves it with update and patch"))?;
        let definition = fetch_definition(access, group, resource).await.map_err(anyhow::Error::msg)?;
        let prefix = prefix.trim_end_matches('/');
        let built_in = KeyLayout::default().built_in_prefix(group, resource);
        let key_prefix = match (&definition, built_in) {
            (Some(_), _) => format!("{prefix}/{group}/{resource}/"),
            (None, Some(below)) => format!("{prefix}/{below}/"),
            (None, None) => anyhow::bail!(
                "it has no storage of its own in this cluster: it is stored as another resource, or by an extension API server"
            ),
        };
        let root = if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
        let (group, resource) = (group.to_owned(), resource.to_owned());
        Ok(Self { group, resource, root, is_namespaced, is_custom: definition.is_some(), key_prefix })
    }

    fn object_path(&self, object: &StoredRef) -> String {
        let escape = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
        let Self { root, resource, .. } = self;
        match self.is_namespaced {
            true => format!("{root}/namespaces/{}/{resource}/{}", escape(&object.namespace), escape(&object.name)),
            false => format!("{root}/{resource}/{}", escape(&object.name)),
        }
    }
}

/// The first version that lists the resource with update and patch, and whether it is namespaced.
fn find_served(document: &Value, group: &str, resource: &str) -> Option<(String, bool)> {
    let items = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let groups = items(&document["items"]);
    let found = groups.iter().find(|found| found["metadata"]["name"].as_str().unwrap_or_default() == group)?;
    items(&found["versions"]).iter().find_map(|version| {
        let resources = items(&version["resources"]);
        let listed = resources.iter().find(|listed| listed["resource"] == resource)?;
        let verbs = items(&listed["verbs"]);
        let is_writable = ["update", "patch"].iter().all(|wanted| verbs.iter().any(|verb| verb == wanted));
        let version = version["version"].as_str()?.to_owned();
        is_writable.then(|| (version, listed["scope"] == "Namespaced"))
    })
}

async fn fetch_definition(
    access: &ClusterAccess,
    group: &str,
    resource: &str,
) -> Result<Option<DefinitionState>, String> {
    let path = format!("{DEFINITIONS}/{resource}.{group}");
    let response = access.client().request(AdminRequest::get(&path)).await.map_err(|error| error.to_string())?;
    match response.status.as_u16() {
        200 => {}
        404 => return Ok(None),
        _ => return Err(refusal(&path, &response)),
    }
    let definition = response.json();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut versions = definition["spec"]["versions"].as_array().into_iter().flatten();
    let storage = versions.find(|version| version["storage"] == true);
    let stored = definition["status"]["storedVersions"].as_array().into_iter().flatten();
    Ok(Some(DefinitionState {
        uid: text(&definition["metadata"]["uid"]),
        generation: definition["metadata"]["generation"].as_i64().unwrap_or_default(),
        resource_version: text(&definition["metadata"]["resourceVersion"]),
        storage_version: format!("{group}/{}", storage.map(|storage| text(&storage["name"])).unwrap_or_default()),
        stored_versions: stored.map(text).collect(),
    }))
}

fn refusal(path: &str, response: &AdminResponse) -> String {
    format!("{path}: {} {}", response.status, response.json()["message"].as_str().unwrap_or_default())
}

/// The items of a list; none if the resource is not served.
async fn list<T: DeserializeOwned>(client: &AdminClient, path: &str) -> Result<Vec<T>, String> {
    let response = client.request(AdminRequest::get(path)).await.map_err(|error| error.to_string())?;
    match response.status.as_u16() {
        200 => {}
        404 => return Ok(Vec::new()),
        _ => return Err(refusal(path, &response)),
    }
    let items = response.json()["items"].as_array().cloned().unwrap_or_default();
    let parsed: Result<Vec<T>, _> = items.into_iter().map(serde_json::from_value).collect();
    parsed.map_err(|error| format!("{path}: {error}"))
}

/// One resource of a cluster under migration.
pub(crate) struct StockCluster<'a> {
    access: &'a ClusterAccess,
    servers: &'a ServerList,
    storage: &'a StorageReader,
    encryption: Option<&'a EncryptionConfig>,
    resource: MigratedResource,
    /// As of the last observation.
    definition: Mutex<Option<DefinitionState>>,
    /// What each server stored in the last probe, and the marker under which it was made.
    probes: tokio::sync::Mutex<(String, Vec<Option<String>>)>,
    last_report: Mutex<Progress>,
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

impl<'a> StockCluster<'a> {
    pub(crate) fn new(
        access: &'a ClusterAccess,
        servers: &'a ServerList,
        storage: &'a StorageReader,
        encryption: Option<&'a EncryptionConfig>,
        resource: MigratedResource,
    ) -> Self {
        let (definition, probes, last_report) = (Mutex::default(), tokio::sync::Mutex::default(), Mutex::default());
        Self { access, servers, storage, encryption, resource, definition, probes, last_report }
    }

    pub(crate) fn is_custom(&self) -> bool {
        self.resource.is_custom
    }

    pub(crate) fn last_report(&self) -> Progress {
        locked(&self.last_report).clone()
    }

    /// Evidence without a write: servers of custom resources that do not report are taken for undecided.
    pub(crate) async fn observe_without_probe(&self) -> Result<WriterEvidence, String> {
        self.fetch_evidence(false).await
    }

    async fn fetch_evidence(&self, may_probe: bool) -> Result<WriterEvidence, String> {
        let MigratedResource { group, resource, is_custom, .. } = &self.resource;
        let definition = match is_custom {
            true => {
                let found = fetch_definition(self.access, group, resource).await?;
                Some(found.ok_or_else(|| "the definition is gone".to_owned())?)
            }
            false => None,
        };
        let client = self.access.client();
        let leases: Vec<Lease> = list(client, IDENTITY_LEASES).await?;
        let name = storage_version_name(api::GroupResource { group, resource });
        let path = format!("{STORAGE_VERSIONS}?fieldSelector=metadata.name%3D{name}");
        let reported: Vec<StorageVersion> = list(client, &path).await?;
        let evidence = reported_writers(reported.first(), &leases, definition.as_ref(), jiff::Timestamp::now());
        locked(&self.definition).clone_from(&definition);
        let is_reported =
            !evidence.writers.is_empty() && evidence.writers.iter().all(|writer| writer.encoding_version.is_some());
        if is_reported {
            return Ok(evidence);
        }
        self.ask_servers(&evidence, &leases, definition.as_ref(), may_probe).await
    }

    /// Evidence from each server, asked directly. Servers that hold an identity lease beyond those that were asked stay
    /// unknown.
    async fn ask_servers(
        &self,
        reported: &WriterEvidence,
        leases: &[Lease],
        definition: Option<&DefinitionState>,
        may_probe: bool,
    ) -> Result<WriterEvidence, String> {
        if reported.writers.is_empty() && !self.servers.is_given {
            return Err("there are no identity leases: name every API server with --server".to_owned());
        }
        let servers = &self.servers.servers;
        if reported.writers.len() > servers.len() {
            let names: Vec<String> = reported.writers.iter().map(Writer::to_string).collect();
            let asked: Vec<&str> = servers.iter().map(|server| &*server.address).collect();
            return Err(format!(
                "{} API servers hold identity leases ({}) and {} can be asked ({}): name every one with --server",
                names.len(),
                names.join(", "),
                asked.len(),
                asked.join(", ")
            ));
        }
        let mut versions = Vec::new();
        for server in servers {
            versions.push(server.version().await?);
        }
        let mut holders: Vec<&str> = leases.iter().filter_map(|lease| lease.spec.holder_identity.as_deref()).collect();
        holders.sort_unstable();
        let defined = definition.map(|definition| format!("{}/{}", definition.uid, definition.generation));
        let marker = format!("{versions:?} {holders:?} {defined:?}");
        let encodings: Vec<Option<String>> = match (self.resource.is_custom, may_probe) {
            (false, _) => {
                let MigratedResource { group, resource, .. } = &self.resource;
                versions.iter().map(|version| version.encoding_version(group, resource)).collect()
            }
            (true, false) => vec![definition.map(|definition| definition.storage_version.clone()); servers.len()],
            (true, true) => self.probe_servers(&marker, definition).await?,
        };
        let writers = servers.iter().zip(encodings).map(|(server, encoding_version)| Writer {
            server: server.address.clone(),
            hostname: String::new(),
            encoding_version,
        });
        let defined_version = definition.map(|definition| definition.storage_version.clone());
        Ok(WriterEvidence { writers: writers.collect(), defined_version, marker })
    }

    /// Has each server write one object without changing it, and reads from storage which version it wrote. Repeated
    /// until all wrote the defined version, and whenever servers or definition changed.
    async fn probe_servers(
        &self,
        marker: &str,
        definition: Option<&DefinitionState>,
    ) -> Result<Vec<Option<String>>, String> {
        let defined = definition.map(|definition| definition.storage_version.clone());
        let mut probes = self.probes.lock().await;
        if probes.0 == marker && probes.1.iter().all(|version| *version == defined) {
            return Ok(probes.1.clone());
        }
        let mut written = Vec::new();
        for server in &self.servers.servers {
            written.push(self.probe_server(server).await?);
        }
        // Without objects there is nothing that could be stored in another version.
        if written.iter().all(Option::is_none) {
            written.fill(defined);
        }
        *probes = (marker.to_owned(), written.clone());
        Ok(written)
    }

    /// The version in which a server stores the first object; `None` if there is no object.
    async fn probe_server(&self, server: &ApiServer) -> Result<Option<String>, String> {
        let Some((object, _)) = self.first_object().await? else { return Ok(None) };
        match self.patch_unchanged(server, &object).await {
            RewriteOutcome::Answered => {}
            RewriteOutcome::Refused(reason) | RewriteOutcome::Unavailable(reason) => {
                return Err(format!("{}: probe of {}: {reason}", server.address, object.name));
            }
        }
        Ok(self.first_object().await?.map(|(_, version)| version))
    }

    /// The first stored object of the resource with its version.
    async fn first_object(&self) -> Result<Option<(StoredRef, String)>, String> {
        let mut first = None;
        let scanned = self.storage.scan(&self.resource.key_prefix, |event| match event {
            ScanEvent::Restarted => first = None,
            ScanEvent::Entry(entry) => {
                let MigratedResource { group, resource, key_prefix, .. } = &self.resource;
                if first.is_none()
                    && let Ok(form) = value_form(self.encryption, group, resource, &entry.key, &entry.value)
                {
                    first = Some((reference(key_prefix, &entry.key, entry.revision.0), form.api_version));
                }
            }
        });
        scanned.await.map_err(|error| format!("{error:#}"))?;
        Ok(first)
    }

    async fn patch_unchanged(&self, server: &ApiServer, object: &StoredRef) -> RewriteOutcome {
        let unchanged = json!({"metadata": {"resourceVersion": object.revision.to_string()}});
        let path = format!("{}?fieldManager={FIELD_MANAGER}", self.resource.object_path(object));
        let request = AdminRequest::with_json_body(Method::PATCH, path, &unchanged);
        match server.client.request(request).await {
            Ok(response) => {
                let message =
                    || format!("{}: {}", server.address, response.json()["message"].as_str().unwrap_or_default());
                match response.status.as_u16() {
                    200 | 404 | 409 | 410 => RewriteOutcome::Answered,
                    400 | 403 | 405 | 413 | 415 | 422 => RewriteOutcome::Refused(message()),
                    _ => RewriteOutcome::Unavailable(message()),
                }
            }
            Err(error) => RewriteOutcome::Unavailable(format!("{}: {error}", server.address)),
        }
    }

    /// Reduces `storedVersions` to the proven version if the definition is still the one of the proof. Returns what was
    /// done.
    pub(crate) async fn cut_stored_versions(&self, progress: &Progress) -> Result<Option<String>, String> {
        let Some(definition) = locked(&self.definition).clone() else { return Ok(None) };
        let version = progress.version.rsplit('/').next().unwrap_or_default();
        if definition.stored_versions == [version] {
            return Ok(None);
        }
        let patch = json!({
            "metadata": {"resourceVersion": definition.resource_version},
            "status": {"storedVersions": [version]},
        });
        let MigratedResource { group, resource, .. } = &self.resource;
        let path = format!("{DEFINITIONS}/{resource}.{group}/status?fieldManager={FIELD_MANAGER}");
        let request = AdminRequest::with_json_body(Method::PATCH, path.clone(), &patch);
        let response = self.access.client().request(request).await.map_err(|error| error.to_string())?;
        match response.status.is_success() {
            true => Ok(Some(format!("storedVersions is now [{version}], was {:?}", definition.stored_versions))),
            false => Err(refusal(&path, &response)),
        }
    }
}

fn reference(key_prefix: &str, key: &[u8], revision: u64) -> StoredRef {
    let key = String::from_utf8_lossy(key);
    let below = key.strip_prefix(key_prefix).unwrap_or(&key);
    let (namespace, name) = below.split_once('/').unwrap_or(("", below));
    StoredRef { namespace: namespace.to_owned(), name: name.to_owned(), revision }
}

impl MigrationPort for StockCluster<'_> {
    fn observe(&self) -> BoxFuture<'_, Result<WriterEvidence, String>> {
        self.fetch_evidence(true).boxed()
    }

    fn survey<'s>(&'s self, target: &'s TargetForm) -> BoxFuture<'s, Result<Survey, String>> {
        async move {
            let MigratedResource { group, resource, key_prefix, .. } = &self.resource;
            let mut survey = Survey::default();
            let scanned = self.storage.scan(key_prefix, |event| match event {
                ScanEvent::Restarted => survey = Survey::default(),
                ScanEvent::Entry(entry) => match value_form(self.encryption, group, resource, &entry.key, &entry.value)
                {
                    Ok(form) => {
                        let stored = StoredForm {
                            api_version: &form.api_version,
                            media_type: form.media_type,
                            encryption: &form.encryption,
                        };
                        let is_current = target.accepts(&stored);
                        survey.add(is_current, || reference(key_prefix, &entry.key, entry.revision.0));
                    }
                    Err(_) => survey.add_undecodable(&String::from_utf8_lossy(&entry.key)),
                },
            });
            let revision = scanned.await.map_err(|error| format!("{error:#}"))?;
            survey.revision = revision;
            Ok(survey)
        }
        .boxed()
    }

    fn rewrite<'s>(&'s self, object: &'s StoredRef, _: &'s AgreedWriters) -> BoxFuture<'s, RewriteOutcome> {
        async move {
            // All of them write the agreed version; the next one is asked if one is unreachable.
            let mut outcome = RewriteOutcome::Unavailable("there is no API server".to_owned());
            for server in &self.servers.servers {
                outcome = self.patch_unchanged(server, object).await;
                if !matches!(outcome, RewriteOutcome::Unavailable(_)) {
                    break;
                }
            }
            outcome
        }
        .boxed()
    }

    fn report<'s>(&'s self, progress: &'s Progress) -> BoxFuture<'s, ()> {
        let mut last = locked(&self.last_report);
        let is_news = last.waiting_for != progress.waiting_for && !progress.waiting_for.is_empty();
        last.clone_from(progress);
        drop(last);
        if is_news {
            let MigratedResource { group, resource, .. } = &self.resource;
            let label = api::GroupResource { group: &**group, resource: &**resource };
            report_line(&format!("{label}: waiting: {}", progress.waiting_for));
        }
        std::future::ready(()).boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resource_is_served_in_the_first_version_that_can_be_written() {
        let resource = |verbs: &[&str]| json!({"resource": "things", "scope": "Namespaced", "verbs": verbs});
        let document = json!({"items": [{"metadata": {"name": "g"}, "versions": [
            {"version": "v2", "resources": [resource(&["get", "list"])]},
            {"version": "v1", "resources": [resource(&["get", "update", "patch"])]},
        ]}]});
        assert_eq!(find_served(&document, "g", "things"), Some(("v1".to_owned(), true)));
        assert_eq!(find_served(&document, "g", "others"), None);
        assert_eq!(find_served(&document, "", "things"), None);
    }

    #[test]
    fn reference_is_the_part_of_the_key_after_the_prefix() {
        let found = reference("/registry/secrets/", b"/registry/secrets/ns/a", 7);
        assert_eq!((&*found.namespace, &*found.name, found.revision), ("ns", "a", 7));
        let found = reference("/registry/minions/", b"/registry/minions/n1", 7);
        assert_eq!((&*found.namespace, &*found.name), ("", "n1"));
    }
}

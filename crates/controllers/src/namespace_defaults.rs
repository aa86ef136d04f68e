//! Creates the default objects of every namespace: the service account `default`, and the ConfigMap with the root CA.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use serde_json::{Value, json};
use tasks::Backoff;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::client::{ApiClient, ApiError};
use crate::informer::{EventSink, InformerEvent, InformerScope, ObjectDetail, ObservedObject, Uid, run_informer};
use crate::work_queue::{WorkQueue, WorkResult};

/// Objects written at once.
const CONCURRENT_WRITES: usize = 8;
/// The backoff of failed writes.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(30));
/// Informer events that may be queued.
const EVENTS_MAX: usize = 256;

/// The service account of pods that name none.
const DEFAULT_SERVICE_ACCOUNT: &str = "default";
const ROOT_CA_CONFIG_MAP: &str = "kube-root-ca.crt";
/// Kubernetes' annotation on that ConfigMap.
const ROOT_CA_DESCRIPTION: &str = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes clusters.";

/// The configuration of this controller.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    /// Reads namespaces, service accounts and ConfigMaps.
    pub(crate) reader: ApiClient,
    /// Writes service accounts; `None` if that controller is disabled.
    pub(crate) service_account_client: Option<ApiClient>,
    /// Writes the ConfigMap, with the CA bundle in PEM; `None` if that controller is disabled.
    pub(crate) root_ca: Option<(ApiClient, Arc<str>)>,
}

/// A watched resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum DefaultsSource {
    Namespaces,
    ServiceAccounts,
    RootCaConfigMaps,
}

/// An object that every namespace should have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum NamespaceDefault {
    ServiceAccount,
    RootCa,
}

type NamespaceDefaultKey = (Arc<str>, NamespaceDefault);

/// The watched state of the cluster, from which the missing objects follow.
#[derive(Debug, Default)]
struct ClusterView {
    /// Namespaces that are not terminating.
    namespaces: HashSet<Arc<str>>,
    /// Namespaces with a service account `default`.
    with_service_account: HashSet<Arc<str>>,
    /// The CA bundle in each namespace's ConfigMap; `None` without the key.
    root_cas: HashMap<Arc<str>, Option<String>>,
    /// Sources whose initial list is complete.
    listed: HashSet<DefaultsSource>,
    /// The namespace of each object by uid, to detect deletions from a new list.
    object_namespaces: HashMap<(DefaultsSource, Uid), Arc<str>>,
}

impl ClusterView {
    /// Applies an event; returns the namespaces to check.
    fn apply(&mut self, source: DefaultsSource, event: InformerEvent) -> Vec<Arc<str>> {
        match event {
            InformerEvent::Applied(seen) => {
                let namespace = namespace_of(source, &seen);
                self.object_namespaces.insert((source, seen.metadata.uid.clone()), namespace.clone());
                match source {
                    DefaultsSource::Namespaces if seen.metadata.is_deleting => drop(self.namespaces.remove(&namespace)),
                    DefaultsSource::Namespaces => drop(self.namespaces.insert(namespace.clone())),
                    DefaultsSource::ServiceAccounts => drop(self.with_service_account.insert(namespace.clone())),
                    DefaultsSource::RootCaConfigMaps => {
                        let authority = seen.data.and_then(|mut data| data.remove("ca.crt"));
                        self.root_cas.insert(namespace.clone(), authority);
                    }
                }
                vec![namespace]
            }
            InformerEvent::Deleted(seen) => {
                self.object_namespaces.remove(&(source, seen.metadata.uid.clone()));
                vec![self.remove(source, namespace_of(source, &seen))]
            }
            InformerEvent::Listed(uids) => {
                self.listed.insert(source);
                let is_missing = |(from, uid): &(DefaultsSource, Uid)| *from == source && !uids.contains(uid);
                let missing: Vec<_> = self.object_namespaces.keys().filter(|key| is_missing(key)).cloned().collect();
                let places: Vec<_> = missing.iter().filter_map(|key| self.object_namespaces.remove(key)).collect();
                for namespace in places {
                    self.remove(source, namespace);
                }
                self.namespaces.iter().cloned().collect()
            }
            InformerEvent::Unavailable(error) => {
                tracing::info!(?source, %error, "failed to watch default objects, will retry");
                Vec::new()
            }
        }
    }

    fn remove(&mut self, source: DefaultsSource, namespace: Arc<str>) -> Arc<str> {
        match source {
            DefaultsSource::Namespaces => drop(self.namespaces.remove(&namespace)),
            DefaultsSource::ServiceAccounts => drop(self.with_service_account.remove(&namespace)),
            DefaultsSource::RootCaConfigMaps => drop(self.root_cas.remove(&namespace)),
        }
        namespace
    }

    /// The objects that a namespace lacks, considering only sources whose list is complete.
    fn missing_defaults(&self, namespace: &Arc<str>, root_ca: Option<&str>) -> Vec<NamespaceDefault> {
        let is_listed = |source| self.listed.contains(&source);
        let mut lacks = Vec::new();
        if !is_listed(DefaultsSource::Namespaces) || !self.namespaces.contains(namespace) {
            return lacks;
        }
        if is_listed(DefaultsSource::ServiceAccounts) && !self.with_service_account.contains(namespace) {
            lacks.push(NamespaceDefault::ServiceAccount);
        }
        let known = self.root_cas.get(namespace).and_then(Option::as_deref);
        if is_listed(DefaultsSource::RootCaConfigMaps) && root_ca.is_some() && known != root_ca {
            lacks.push(NamespaceDefault::RootCa);
        }
        lacks
    }
}

fn namespace_of(source: DefaultsSource, seen: &ObservedObject) -> Arc<str> {
    match source {
        DefaultsSource::Namespaces => seen.metadata.name.clone(),
        DefaultsSource::ServiceAccounts | DefaultsSource::RootCaConfigMaps => seen.metadata.namespace.clone(),
    }
}

/// Creates missing objects in every namespace, until the future is dropped.
pub(crate) async fn run(config: Config) {
    let (sender, mut notices) = mpsc::channel(EVENTS_MAX);
    let selection = |path: &str, query, depth| InformerScope { path: path.to_owned(), query, detail: depth };
    let mut sources = vec![(DefaultsSource::Namespaces, selection("/api/v1/namespaces", "", ObjectDetail::Metadata))];
    if config.service_account_client.is_some() {
        let accounts =
            selection("/api/v1/serviceaccounts", "fieldSelector=metadata.name%3Ddefault", ObjectDetail::Metadata);
        sources.push((DefaultsSource::ServiceAccounts, accounts));
    }
    if config.root_ca.is_some() {
        let maps =
            selection("/api/v1/configmaps", "fieldSelector=metadata.name%3Dkube-root-ca.crt", ObjectDetail::Full);
        sources.push((DefaultsSource::RootCaConfigMaps, maps));
    }
    let mut following: FuturesUnordered<_> = sources
        .into_iter()
        .map(|(id, selection)| run_informer(config.reader.clone(), selection, EventSink { id, events: sender.clone() }))
        .collect();
    let authority = config.root_ca.as_ref().map(|(_, authority)| authority.clone());
    let mut known = ClusterView::default();
    let mut queue: WorkQueue<NamespaceDefaultKey> = WorkQueue::new(BACKOFF);
    let mut running: FuturesUnordered<BoxFuture<'static, (NamespaceDefaultKey, WorkResult)>> = FuturesUnordered::new();
    loop {
        while running.len() < CONCURRENT_WRITES
            && let Some((namespace, item)) = queue.pop(Instant::now())
        {
            let lacks = known.missing_defaults(&namespace, authority.as_deref()).contains(&item);
            let replaces = item == NamespaceDefault::RootCa && known.root_cas.contains_key(&namespace);
            match lacks {
                true => running.push(Box::pin(write_default(config.clone(), namespace, item, replaces))),
                false => queue.finish(&(namespace, item), WorkResult::Done, Instant::now()),
            }
        }
        let due = queue.next_due().filter(|_| running.len() < CONCURRENT_WRITES);
        tokio::select! {
            _ = following.next() => return,
            Some((source, notice)) = notices.recv() => {
                for namespace in known.apply(source, notice) {
                    for item in known.missing_defaults(&namespace, authority.as_deref()) {
                        queue.add(&(namespace.clone(), item), Instant::now());
                    }
                }
            }
            Some((key, ended)) = running.next() => queue.finish(&key, ended, Instant::now()),
            () = tokio::time::sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {}
        }
    }
}

/// Writes one object. 403, 404 and 409 count as done: the namespace is terminating or the object exists, and the
/// informers report the change.
async fn write_default(
    config: Config,
    namespace: Arc<str>,
    item: NamespaceDefault,
    is_update: bool,
) -> (NamespaceDefaultKey, WorkResult) {
    let written = match (item, &config.service_account_client, &config.root_ca) {
        (NamespaceDefault::ServiceAccount, Some(client), _) => {
            let account =
                json!({"kind": "ServiceAccount", "apiVersion": "v1", "metadata": {"name": DEFAULT_SERVICE_ACCOUNT}});
            client.create(&format!("/api/v1/namespaces/{namespace}/serviceaccounts"), &account).await
        }
        (NamespaceDefault::RootCa, _, Some((client, authority))) => {
            let path = format!("/api/v1/namespaces/{namespace}/configmaps");
            match is_update {
                true => client.update(&format!("{path}/{ROOT_CA_CONFIG_MAP}"), &root_ca_config_map(authority)).await,
                false => client.create(&path, &root_ca_config_map(authority)).await,
            }
        }
        (NamespaceDefault::ServiceAccount, None, _) | (NamespaceDefault::RootCa, _, None) => {
            return ((namespace, item), WorkResult::Done);
        }
    };
    let ended = match written {
        Ok(_) => WorkResult::Done,
        Err(ApiError::Status(status)) if matches!(status.http_code(), 403 | 404 | 409) => WorkResult::Done,
        Err(error) => {
            tracing::debug!(%namespace, ?item, %error, "failed to write default object, will retry");
            WorkResult::Failed
        }
    };
    ((namespace, item), ended)
}

fn root_ca_config_map(root_ca: &str) -> Value {
    json!({
        "kind": "ConfigMap", "apiVersion": "v1",
        "metadata": {"name": ROOT_CA_CONFIG_MAP, "annotations": {"kubernetes.io/description": ROOT_CA_DESCRIPTION}},
        "data": {"ca.crt": root_ca},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn observed_object(namespace: &str, name: &str, data: Option<&str>) -> Box<ObservedObject> {
        let data = data.map(|text| format!(r#","data":{{"ca.crt":"{text}"}}"#)).unwrap_or_default();
        let text =
            format!(r#"{{"metadata":{{"name":"{name}","namespace":"{namespace}","uid":"{namespace}/{name}"}}{data}}}"#);
        Box::new(serde_json::from_str(&text).unwrap())
    }

    #[test]
    fn missing_defaults_lists_only_what_is_known_absent() {
        let mut known = ClusterView::default();
        let n: Arc<str> = "n".into();
        let lacks = |known: &ClusterView| known.missing_defaults(&n, Some("pem"));
        known.apply(DefaultsSource::Namespaces, InformerEvent::Applied(observed_object("", "n", None)));
        known.apply(DefaultsSource::Namespaces, InformerEvent::Listed(HashSet::from(["/n".into()])));
        assert!(lacks(&known).is_empty(), "nothing was listed yet, so nothing is known to be missing");
        known.apply(DefaultsSource::ServiceAccounts, InformerEvent::Listed(HashSet::new()));
        assert_eq!(lacks(&known), [NamespaceDefault::ServiceAccount]);
        known.apply(DefaultsSource::RootCaConfigMaps, InformerEvent::Listed(HashSet::new()));
        assert_eq!(lacks(&known), [NamespaceDefault::ServiceAccount, NamespaceDefault::RootCa]);
        assert_eq!(known.missing_defaults(&n, None), [NamespaceDefault::ServiceAccount], "there is no CA to publish");
        assert_eq!(
            known.apply(DefaultsSource::ServiceAccounts, InformerEvent::Applied(observed_object("n", "default", None))),
            std::slice::from_ref(&n)
        );
        known.apply(
            DefaultsSource::RootCaConfigMaps,
            InformerEvent::Applied(observed_object("n", ROOT_CA_CONFIG_MAP, Some("old"))),
        );
        assert_eq!(lacks(&known), [NamespaceDefault::RootCa]);
        known.apply(
            DefaultsSource::RootCaConfigMaps,
            InformerEvent::Applied(observed_object("n", ROOT_CA_CONFIG_MAP, Some("pem"))),
        );
        assert!(lacks(&known).is_empty());
        assert_eq!(
            known.apply(DefaultsSource::ServiceAccounts, InformerEvent::Deleted(observed_object("n", "default", None))),
            std::slice::from_ref(&n)
        );
        assert_eq!(lacks(&known), [NamespaceDefault::ServiceAccount]);
        known.apply(DefaultsSource::RootCaConfigMaps, InformerEvent::Listed(HashSet::new()));
        assert_eq!(
            lacks(&known),
            [NamespaceDefault::ServiceAccount, NamespaceDefault::RootCa],
            "a list without it shows that it was deleted"
        );
    }

    #[test]
    fn terminating_namespace_has_no_missing_defaults() {
        let mut known = ClusterView::default();
        let mut going = observed_object("", "n", None);
        going.metadata.is_deleting = true;
        for source in [DefaultsSource::Namespaces, DefaultsSource::ServiceAccounts, DefaultsSource::RootCaConfigMaps] {
            known.apply(source, InformerEvent::Listed(HashSet::new()));
        }
        known.apply(DefaultsSource::Namespaces, InformerEvent::Applied(observed_object("", "n", None)));
        assert!(!known.missing_defaults(&"n".into(), Some("pem")).is_empty());
        known.apply(DefaultsSource::Namespaces, InformerEvent::Applied(going));
        assert!(known.missing_defaults(&"n".into(), Some("pem")).is_empty());
    }
}

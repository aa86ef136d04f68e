//! What every namespace has: a service account `default`, and the certificate authority by which this server is known.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use serde_json::{Value, json};
use tasks::Backoff;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::client::{CallError, Client};
use crate::follow::{Depth, Listener, Notice, Seen, Selection, Uid, follow};
use crate::queue::{Ended, Queue};

/// How many objects are written at once.
const WRITERS: usize = 8;
/// A write that fails is tried again after so long.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(30));
/// How many notices may wait.
const NOTICES_MAX: usize = 256;

/// The service account of pods that name none.
const ACCOUNT: &str = "default";
/// The ConfigMap with the authority.
const ROOT_CA: &str = "kube-root-ca.crt";
/// Kubernetes' words on that ConfigMap.
const DESCRIPTION: &str = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes clusters.";

/// What the controller is told.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    /// Reads namespaces, accounts and ConfigMaps.
    pub(crate) reader: Client,
    /// Writes accounts; `None` if others do.
    pub(crate) accounts: Option<Client>,
    /// Writes the authority, and what it is, PEM; `None` if others do.
    pub(crate) authority: Option<(Client, Arc<str>)>,
}

/// What is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Source {
    Namespaces,
    Accounts,
    Authorities,
}

/// Something that a namespace should have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Item {
    Account,
    Authority,
}

/// Something that a namespace should have, in a namespace.
type Key = (Arc<str>, Item);

/// What is known of the cluster; what should be done follows from it.
#[derive(Debug, Default)]
struct Known {
    /// Namespaces that are not about to go.
    namespaces: HashSet<Arc<str>>,
    /// Namespaces that have an account.
    accounts: HashSet<Arc<str>>,
    /// What each namespace's ConfigMap says.
    authorities: HashMap<Arc<str>, Option<String>>,
    /// Which sources were listed.
    listed: HashSet<Source>,
    /// The namespace of each object of which there is one per namespace, for those that a list lacks.
    places: HashMap<(Source, Uid), Arc<str>>,
}

impl Known {
    /// Notes what changed; the namespaces that should be looked at.
    fn note(&mut self, source: Source, notice: Notice) -> Vec<Arc<str>> {
        match notice {
            Notice::Is(seen) => {
                let place = place_of(source, &seen);
                self.places.insert((source, seen.metadata.uid.clone()), place.clone());
                match source {
                    Source::Namespaces if seen.metadata.is_deleting => drop(self.namespaces.remove(&place)),
                    Source::Namespaces => drop(self.namespaces.insert(place.clone())),
                    Source::Accounts => drop(self.accounts.insert(place.clone())),
                    Source::Authorities => {
                        let authority = seen.data.and_then(|mut data| data.remove("ca.crt"));
                        self.authorities.insert(place.clone(), authority);
                    }
                }
                vec![place]
            }
            Notice::Gone(seen) => {
                self.places.remove(&(source, seen.metadata.uid.clone()));
                vec![self.forget(source, place_of(source, &seen))]
            }
            Notice::Listed(uids) => {
                self.listed.insert(source);
                let is_missing = |(from, uid): &(Source, Uid)| *from == source && !uids.contains(uid);
                let missing: Vec<_> = self.places.keys().filter(|key| is_missing(key)).cloned().collect();
                let places: Vec<_> = missing.iter().filter_map(|key| self.places.remove(key)).collect();
                for place in places {
                    self.forget(source, place);
                }
                self.namespaces.iter().cloned().collect()
            }
            Notice::Away(error) => {
                tracing::info!(?source, %error, "what namespaces should have cannot be followed; trying again");
                Vec::new()
            }
        }
    }

    fn forget(&mut self, source: Source, place: Arc<str>) -> Arc<str> {
        match source {
            Source::Namespaces => drop(self.namespaces.remove(&place)),
            Source::Accounts => drop(self.accounts.remove(&place)),
            Source::Authorities => drop(self.authorities.remove(&place)),
        }
        place
    }

    /// What a namespace lacks.
    fn lacks(&self, namespace: &Arc<str>, authority: Option<&str>) -> Vec<Item> {
        let is_listed = |source| self.listed.contains(&source);
        let mut lacks = Vec::new();
        if !is_listed(Source::Namespaces) || !self.namespaces.contains(namespace) {
            return lacks;
        }
        if is_listed(Source::Accounts) && !self.accounts.contains(namespace) {
            lacks.push(Item::Account);
        }
        let known = self.authorities.get(namespace).and_then(Option::as_deref);
        if is_listed(Source::Authorities) && authority.is_some() && known != authority {
            lacks.push(Item::Authority);
        }
        lacks
    }
}

fn place_of(source: Source, seen: &Seen) -> Arc<str> {
    match source {
        Source::Namespaces => seen.metadata.name.clone(),
        Source::Accounts | Source::Authorities => seen.metadata.namespace.clone(),
    }
}

/// Gives every namespace what it lacks, until it is dropped.
pub(crate) async fn run(config: Config) {
    let (sender, mut notices) = mpsc::channel(NOTICES_MAX);
    let selection = |path: &str, query, depth| Selection { path: path.to_owned(), query, depth };
    let mut sources = vec![(Source::Namespaces, selection("/api/v1/namespaces", "", Depth::Metadata))];
    if config.accounts.is_some() {
        let accounts = selection("/api/v1/serviceaccounts", "fieldSelector=metadata.name%3Ddefault", Depth::Metadata);
        sources.push((Source::Accounts, accounts));
    }
    if config.authority.is_some() {
        let maps = selection("/api/v1/configmaps", "fieldSelector=metadata.name%3Dkube-root-ca.crt", Depth::Whole);
        sources.push((Source::Authorities, maps));
    }
    let mut following: FuturesUnordered<_> = sources
        .into_iter()
        .map(|(id, selection)| follow(config.reader.clone(), selection, Listener { id, notices: sender.clone() }))
        .collect();
    let authority = config.authority.as_ref().map(|(_, authority)| authority.clone());
    let mut known = Known::default();
    let mut queue: Queue<Key> = Queue::new(BACKOFF);
    let mut running: FuturesUnordered<BoxFuture<'static, (Key, Ended)>> = FuturesUnordered::new();
    loop {
        while running.len() < WRITERS
            && let Some((namespace, item)) = queue.take(Instant::now())
        {
            let lacks = known.lacks(&namespace, authority.as_deref()).contains(&item);
            let replaces = item == Item::Authority && known.authorities.contains_key(&namespace);
            match lacks {
                true => running.push(Box::pin(furnish(config.clone(), namespace, item, replaces))),
                false => queue.end(&(namespace, item), Ended::Done, Instant::now()),
            }
        }
        let due = queue.next_due().filter(|_| running.len() < WRITERS);
        tokio::select! {
            _ = following.next() => return,
            Some((source, notice)) = notices.recv() => {
                for namespace in known.note(source, notice) {
                    for item in known.lacks(&namespace, authority.as_deref()) {
                        queue.add(&(namespace.clone(), item), Instant::now());
                    }
                }
            }
            Some((key, ended)) = running.next() => queue.end(&key, ended, Instant::now()),
            () = tokio::time::sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {}
        }
    }
}

/// Writes one object. What was refused because the namespace goes or the object is there is done: the watches tell of it.
async fn furnish(config: Config, namespace: Arc<str>, item: Item, replaces: bool) -> (Key, Ended) {
    let written = match (item, &config.accounts, &config.authority) {
        (Item::Account, Some(client), _) => {
            let account = json!({"kind": "ServiceAccount", "apiVersion": "v1", "metadata": {"name": ACCOUNT}});
            client.create(&format!("/api/v1/namespaces/{namespace}/serviceaccounts"), &account).await
        }
        (Item::Authority, _, Some((client, authority))) => {
            let path = format!("/api/v1/namespaces/{namespace}/configmaps");
            match replaces {
                true => client.update(&format!("{path}/{ROOT_CA}"), &root_ca(authority)).await,
                false => client.create(&path, &root_ca(authority)).await,
            }
        }
        (Item::Account, None, _) | (Item::Authority, _, None) => return ((namespace, item), Ended::Done),
    };
    let ended = match written {
        Ok(_) => Ended::Done,
        Err(CallError::Refused(status)) if matches!(status.http_code(), 403 | 404 | 409) => Ended::Done,
        Err(error) => {
            tracing::debug!(%namespace, ?item, %error, "a namespace does not get what it lacks; trying again");
            Ended::Failed
        }
    };
    ((namespace, item), ended)
}

fn root_ca(authority: &str) -> Value {
    json!({
        "kind": "ConfigMap", "apiVersion": "v1",
        "metadata": {"name": ROOT_CA, "annotations": {"kubernetes.io/description": DESCRIPTION}},
        "data": {"ca.crt": authority},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(namespace: &str, name: &str, data: Option<&str>) -> Box<Seen> {
        let data = data.map(|text| format!(r#","data":{{"ca.crt":"{text}"}}"#)).unwrap_or_default();
        let text =
            format!(r#"{{"metadata":{{"name":"{name}","namespace":"{namespace}","uid":"{namespace}/{name}"}}{data}}}"#);
        Box::new(serde_json::from_str(&text).unwrap())
    }

    #[test]
    fn a_namespace_lacks_what_is_known_not_to_be_there() {
        let mut known = Known::default();
        let n: Arc<str> = "n".into();
        let lacks = |known: &Known| known.lacks(&n, Some("pem"));
        known.note(Source::Namespaces, Notice::Is(object("", "n", None)));
        known.note(Source::Namespaces, Notice::Listed(HashSet::from(["/n".into()])));
        assert!(lacks(&known).is_empty(), "nothing was listed yet, so nothing is known to be missing");
        known.note(Source::Accounts, Notice::Listed(HashSet::new()));
        assert_eq!(lacks(&known), [Item::Account]);
        known.note(Source::Authorities, Notice::Listed(HashSet::new()));
        assert_eq!(lacks(&known), [Item::Account, Item::Authority]);
        assert_eq!(known.lacks(&n, None), [Item::Account], "there is no authority to publish");
        assert_eq!(known.note(Source::Accounts, Notice::Is(object("n", "default", None))), std::slice::from_ref(&n));
        known.note(Source::Authorities, Notice::Is(object("n", ROOT_CA, Some("old"))));
        assert_eq!(lacks(&known), [Item::Authority]);
        known.note(Source::Authorities, Notice::Is(object("n", ROOT_CA, Some("pem"))));
        assert!(lacks(&known).is_empty());
        assert_eq!(known.note(Source::Accounts, Notice::Gone(object("n", "default", None))), std::slice::from_ref(&n));
        assert_eq!(lacks(&known), [Item::Account]);
        known.note(Source::Authorities, Notice::Listed(HashSet::new()));
        assert_eq!(lacks(&known), [Item::Account, Item::Authority], "a list without it says that it is gone");
    }

    #[test]
    fn a_namespace_that_goes_lacks_nothing() {
        let mut known = Known::default();
        let mut going = object("", "n", None);
        going.metadata.is_deleting = true;
        for source in [Source::Namespaces, Source::Accounts, Source::Authorities] {
            known.note(source, Notice::Listed(HashSet::new()));
        }
        known.note(Source::Namespaces, Notice::Is(object("", "n", None)));
        assert!(!known.lacks(&"n".into(), Some("pem")).is_empty());
        known.note(Source::Namespaces, Notice::Is(going));
        assert!(known.lacks(&"n".into(), Some("pem")).is_empty());
    }
}

//! What one document lists, in the form that tables are made of. A function of the document alone, so that it is kept with it.

use std::collections::HashMap;
use std::sync::Arc;

use api::Scope;
use discovery::{Group, Groups, Name, Names, Version};
use foldhash::fast::RandomState;

use super::{Here, Key, Verbs, with_key};
use crate::documents::ServerDocument;
use crate::exclusion::Exclusion;

/// What a document lists of one version.
#[derive(Debug)]
pub(crate) struct VersionListing {
    group: Name,
    version: Name,
    /// Group and version.
    pub(super) key: Key,
    items: Items,
}

/// Things that are listed, each once, in the order of their names. In a `Vec`, since `Arc`s are compared by their addresses first
/// only if what they hold has a size.
pub(super) type Items = Arc<Vec<Item>>;

/// A resource or subresource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Item {
    /// Resource and subresource.
    pub(super) name: Key,
    resource: Name,
    /// What the server of the document has of it.
    pub(super) here: Here,
    /// The scope of the resource; `None` if the document does not say it in a word that we know.
    pub(super) scope: Option<Scope>,
}

impl VersionListing {
    /// What a document lists, each version once. A resource without verbs is there for its subresources only.
    pub(crate) fn all_of(document: &ServerDocument) -> Vec<Self> {
        let unbuilt = document.unbuilt_names();
        // Most resources share one of a few lists of verbs.
        let mut known: HashMap<*const Name, Verbs, RandomState> = HashMap::default();
        let mut verbs_of = |names: &Names| *known.entry(names.as_ptr()).or_insert_with(|| Verbs::from_names(names));
        let mut versions: HashMap<(&Name, &Name), Vec<Item>, RandomState> = HashMap::default();
        let documents: [&Groups; 2] = [document.core(), document.apis()];
        // Keys have slashes between names; a name with one is in no request.
        let is_plain = |(group, version): &(&Group, &Version)| !group.name.contains('/') && !version.name.contains('/');
        for (group, version) in documents.into_iter().flat_map(Groups::versions).filter(is_plain) {
            let items = versions.entry((&group.name, &version.name)).or_default();
            for resource in &version.resources {
                let mut add = |subresource: &str, verbs: &Option<Names>| {
                    let Some(verbs) = verbs else { return };
                    let is_unbuilt =
                        !unbuilt.is_empty() && unbuilt.contains(&(&group.name, &resource.name, subresource));
                    items.push(Item {
                        name: with_key([&resource.name, subresource], |key| key.into()),
                        resource: resource.name.clone(),
                        here: if is_unbuilt { Here::Unbuilt } else { Here::Serves(verbs_of(verbs)) },
                        scope: resource.scope.known(),
                    });
                };
                add("", &resource.verbs);
                resource.subresources.iter().for_each(|subresource| add(&subresource.name, &subresource.verbs));
            }
        }
        versions.into_iter().map(|((group, version), items)| Self::new(group, version, items)).collect()
    }

    fn new(group: &Name, version: &Name, mut items: Vec<Item>) -> Self {
        items.sort_by(|a, b| a.name.cmp(&b.name));
        // Listed twice by one server, as aggregated API servers are known to do.
        items.dedup_by(|again, first| {
            let is_same = again.name == first.name;
            if is_same {
                first.here = first.here.union(again.here);
                first.scope = first.scope.filter(|scope| again.scope == Some(*scope));
            }
            is_same
        });
        let key = with_key([group, version], |key| key.into());
        Self { group: group.clone(), version: version.clone(), key, items: Arc::new(items) }
    }

    /// All of it, as its own server sees it.
    pub(super) fn items(&self) -> &Items {
        &self.items
    }

    /// What counts of it for others.
    pub(super) fn without(&self, exclusion: &Exclusion) -> Items {
        if !exclusion.touches(&self.group, &self.version) {
            return self.items.clone();
        }
        let is_struck = |item: &&Item| exclusion.definition(&self.group, &self.version, &item.resource).is_some();
        Arc::new(self.items.iter().filter(|item| !is_struck(item)).cloned().collect())
    }
}

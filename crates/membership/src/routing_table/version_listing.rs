//! What one document lists, in the form that tables are built from. A function of the document alone, so it is cached there.

use std::collections::HashMap;
use std::sync::Arc;

use api::KindScope;
use discovery::{GroupDiscovery, GroupDiscoveryList, SharedStr, SharedStrList, VersionDiscovery};
use foldhash::fast::RandomState;

use super::{LocalSupport, RequestVerbs, TableKey, with_key};
use crate::documents::ServerDocument;
use crate::exclusion::Exclusion;

/// What a document lists of one version.
#[derive(Debug)]
pub(crate) struct VersionListing {
    group: SharedStr,
    version: SharedStr,
    /// Group and version, joined.
    pub(super) key: TableKey,
    items: DocumentResources,
}

/// The listed resources, each once, ordered by name. In a `Vec`, because `Arc` compares addresses first only for sized content.
pub(super) type DocumentResources = Arc<Vec<DocumentResource>>;

/// A resource or subresource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DocumentResource {
    /// Resource and subresource, joined.
    pub(super) name: TableKey,
    resource: SharedStr,
    /// What the server of the document serves of it.
    pub(super) local: LocalSupport,
    /// The scope of the resource; `None` if the document has none or an unknown one.
    pub(super) scope: Option<KindScope>,
}

impl VersionListing {
    /// The listings of a document, one per version. A resource without verbs is listed for its subresources only.
    pub(crate) fn from_document(document: &ServerDocument) -> Vec<Self> {
        let unimplemented = document.unimplemented_names();
        // Most resources share one of a few lists of verbs.
        let mut known: HashMap<*const SharedStr, RequestVerbs, RandomState> = HashMap::default();
        let mut verbs_of =
            |names: &SharedStrList| *known.entry(names.as_ptr()).or_insert_with(|| RequestVerbs::from_names(names));
        let mut versions: HashMap<(&SharedStr, &SharedStr), Vec<DocumentResource>, RandomState> = HashMap::default();
        let documents: [&GroupDiscoveryList; 2] = [document.core(), document.apis()];
        // Names with a slash are skipped: keys join names by slashes, and no request has such a name.
        let is_plain = |(group, version): &(&GroupDiscovery, &VersionDiscovery)| {
            !group.name.contains('/') && !version.name.contains('/')
        };
        for (group, version) in documents.into_iter().flat_map(GroupDiscoveryList::versions).filter(is_plain) {
            let items = versions.entry((&group.name, &version.name)).or_default();
            for resource in &version.resources {
                let mut add = |subresource: &str, verbs: &Option<SharedStrList>| {
                    let Some(verbs) = verbs else { return };
                    let is_unimplemented = !unimplemented.is_empty()
                        && unimplemented.contains(&(&group.name, &resource.name, subresource));
                    items.push(DocumentResource {
                        name: with_key([&resource.name, subresource], |key| key.into()),
                        resource: resource.name.clone(),
                        local: if is_unimplemented {
                            LocalSupport::NotImplemented
                        } else {
                            LocalSupport::Serves(verbs_of(verbs))
                        },
                        scope: resource.scope.as_kind_scope(),
                    });
                };
                add("", &resource.verbs);
                resource.subresources.iter().for_each(|subresource| add(&subresource.name, &subresource.verbs));
            }
        }
        versions.into_iter().map(|((group, version), items)| Self::new(group, version, items)).collect()
    }

    fn new(group: &SharedStr, version: &SharedStr, mut items: Vec<DocumentResource>) -> Self {
        items.sort_by(|a, b| a.name.cmp(&b.name));
        // Aggregated API servers list some resources twice.
        items.dedup_by(|again, first| {
            let is_same = again.name == first.name;
            if is_same {
                first.local = first.local.union(again.local);
                first.scope = first.scope.filter(|scope| again.scope == Some(*scope));
            }
            is_same
        });
        let key = with_key([group, version], |key| key.into());
        Self { group: group.clone(), version: version.clone(), key, items: Arc::new(items) }
    }

    /// All resources, as for the server of the document.
    pub(super) fn items(&self) -> &DocumentResources {
        &self.items
    }

    /// The resources that count for other servers.
    pub(super) fn excluding(&self, exclusion: &Exclusion) -> DocumentResources {
        if !exclusion.affects_version(&self.group, &self.version) {
            return self.items.clone();
        }
        let is_struck =
            |item: &&DocumentResource| exclusion.definition_state(&self.group, &self.version, &item.resource).is_some();
        Arc::new(self.items.iter().filter(|item| !is_struck(item)).cloned().collect())
    }
}

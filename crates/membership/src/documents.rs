//! The discovery documents of one server, and their form in storage.

mod previous_document;
mod stored_document;

use std::collections::HashSet;
use std::sync::{Arc, OnceLock};

use discovery::{GroupDiscoveryList, SharedStr};
use serde::{Deserialize, Serialize};

use crate::routing_table::VersionListing;

pub(crate) use previous_document::keep_previous_as_lingering;
pub use previous_document::lingering_document;
pub use stored_document::{DocumentSource, Etags, Retention, StoredDocument, StoredDocumentError};

/// What one server serves: its `/api` and its `/apis`, never one without the other. Immutable.
#[derive(Debug)]
pub struct ServerDocument {
    core: Arc<GroupDiscoveryList>,
    apis: Arc<GroupDiscoveryList>,
    unimplemented: Arc<[UnimplementedResource]>,
    /// Derived from the other fields for routing tables when first needed.
    listings: OnceLock<Vec<VersionListing>>,
}

/// A resource or subresource that a server lists because its release has it, but does not implement.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct UnimplementedResource {
    /// The group; empty for core.
    pub group: SharedStr,
    /// The resource name, plural.
    pub resource: SharedStr,
    /// The subresource; empty for the resource itself, without its subresources.
    pub subresource: SharedStr,
}

impl ServerDocument {
    /// The document of a server with this `/api` and this `/apis`.
    pub fn new(core: Arc<GroupDiscoveryList>, apis: Arc<GroupDiscoveryList>) -> Self {
        Self { core, apis, unimplemented: Arc::default(), listings: OnceLock::new() }
    }

    /// The document of a server from one list of all its groups, including the core group.
    pub fn from_all_groups(all_groups: &Arc<GroupDiscoveryList>) -> Self {
        let part = |is_core: bool| {
            let part = all_groups.filter_map_groups(|group| (group.name.is_empty() == is_core).then(|| group.clone()));
            // Keeps the allocation of an unchanged list, and with it its ETag.
            if part.items().len() == all_groups.items().len() { all_groups.clone() } else { Arc::new(part) }
        };
        Self::new(part(true), part(false))
    }

    /// The same document, in which these resources are listed but not implemented.
    pub fn with_unimplemented(self, mut unimplemented: Vec<UnimplementedResource>) -> Self {
        unimplemented.sort();
        unimplemented.dedup();
        Self { unimplemented: unimplemented.into(), listings: OnceLock::new(), ..self }
    }

    /// What `/api` lists.
    pub fn core(&self) -> &Arc<GroupDiscoveryList> {
        &self.core
    }

    /// What `/apis` lists.
    pub fn apis(&self) -> &Arc<GroupDiscoveryList> {
        &self.apis
    }

    /// The resources that are listed but not implemented, sorted.
    pub fn unimplemented(&self) -> &[UnimplementedResource] {
        &self.unimplemented
    }

    /// The resources of each version, as routing tables need them.
    pub(crate) fn listings(&self) -> &[VersionListing] {
        self.listings.get_or_init(|| VersionListing::from_document(self))
    }

    /// [`Self::unimplemented`] for lookups by group, resource and subresource.
    pub(crate) fn unimplemented_names(&self) -> HashSet<(&str, &str, &str)> {
        let names = self.unimplemented.iter();
        names
            .map(|UnimplementedResource { group, resource, subresource }| (&**group, &**resource, &**subresource))
            .collect()
    }

    /// Returns an equal known document if there is one, so that equal documents share one allocation.
    pub fn intern_among<'a>(self, known: impl IntoIterator<Item = &'a Arc<Self>>) -> Arc<Self> {
        let equal = known.into_iter().find(|known| ***known == self);
        equal.map_or_else(|| Arc::new(self), Arc::clone)
    }
}

/// Compares content, not the derived listings.
impl PartialEq for ServerDocument {
    fn eq(&self, other: &Self) -> bool {
        let said = |document: &Self| (document.core.clone(), document.apis.clone(), document.unimplemented.clone());
        said(self) == said(other)
    }
}

impl Eq for ServerDocument {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::groups_from_notation;

    #[test]
    fn from_all_groups_splits_core_from_other_groups() {
        let whole = groups_from_notation("v1 pods:get | apps/v1 deployments:get");
        let split = ServerDocument::from_all_groups(&whole);
        assert_eq!(**split.core(), *groups_from_notation("v1 pods:get"));
        assert_eq!(**split.apis(), *groups_from_notation("apps/v1 deployments:get"));
    }

    #[test]
    fn from_all_groups_without_core_reuses_the_list() {
        let whole = groups_from_notation("apps/v1 deployments:get");
        let split = ServerDocument::from_all_groups(&whole);
        assert!(Arc::ptr_eq(split.apis(), &whole));
        assert!(split.core().items().is_empty());
    }

    #[test]
    fn intern_among_reuses_only_equal_documents() {
        let make = |notation: &str| ServerDocument::from_all_groups(&groups_from_notation(notation));
        let known = [Arc::new(make("v1 pods:get")), Arc::new(make("v1 pods:get,list"))];
        assert!(Arc::ptr_eq(&make("v1 pods:get,list").intern_among(&known), &known[1]));
        assert!(!known.contains(&make("v1 pods:list").intern_among(&known)));
        let exec = UnimplementedResource { group: "".into(), resource: "pods".into(), subresource: "exec".into() };
        assert!(!known.contains(&make("v1 pods:get").with_unimplemented(vec![exec]).intern_among(&known)));
    }
}

//! What one server serves, as its own discovery documents say, and how that is kept in storage.

mod former;
mod stored;

use std::collections::HashSet;
use std::sync::{Arc, OnceLock};

use discovery::{Groups, Name};
use serde::{Deserialize, Serialize};

use crate::table::VersionListing;

pub use former::leave_behind;
pub use stored::{Etags, Source, StoredDocument, StoredError, Tenure};

/// What one server serves: its `/api` and its `/apis`, never one without the other. Immutable.
#[derive(Debug)]
pub struct ServerDocument {
    core: Arc<Groups>,
    apis: Arc<Groups>,
    unbuilt: Arc<[Unbuilt]>,
    /// What follows from the others for tables, made when first needed.
    listings: OnceLock<Vec<VersionListing>>,
}

/// A resource or subresource that a server lists, because its release has it, and cannot serve.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Unbuilt {
    /// The group; empty for core.
    pub group: Name,
    /// The resource.
    pub resource: Name,
    /// The subresource; empty if the resource itself is meant, and then its subresources are not.
    pub subresource: Name,
}

impl ServerDocument {
    /// What a server serves whose `/api` and `/apis` hold these.
    pub fn new(core: Arc<Groups>, apis: Arc<Groups>) -> Self {
        Self { core, apis, unbuilt: Arc::default(), listings: OnceLock::new() }
    }

    /// What a server serves that lists all its groups in one document, the core group among them.
    pub fn from_whole(whole: &Arc<Groups>) -> Self {
        let part = |is_core: bool| {
            let part = whole.map(|group| (group.name.is_empty() == is_core).then(|| group.clone()));
            // The same document keeps its memory, and with it its ETag.
            if part.items().len() == whole.items().len() { whole.clone() } else { Arc::new(part) }
        };
        Self::new(part(true), part(false))
    }

    /// The same, except for what is listed only.
    pub fn with_unbuilt(self, mut unbuilt: Vec<Unbuilt>) -> Self {
        unbuilt.sort();
        unbuilt.dedup();
        Self { unbuilt: unbuilt.into(), listings: OnceLock::new(), ..self }
    }

    /// What `/api` lists.
    pub fn core(&self) -> &Arc<Groups> {
        &self.core
    }

    /// What `/apis` lists.
    pub fn apis(&self) -> &Arc<Groups> {
        &self.apis
    }

    /// What is listed and not served, in order.
    pub fn unbuilt(&self) -> &[Unbuilt] {
        &self.unbuilt
    }

    /// What each version lists, as tables need it.
    pub(crate) fn listings(&self) -> &[VersionListing] {
        self.listings.get_or_init(|| VersionListing::all_of(self))
    }

    /// What is listed and not served, for lookups by group, resource and subresource.
    pub(crate) fn unbuilt_names(&self) -> HashSet<(&str, &str, &str)> {
        let names = self.unbuilt.iter();
        names.map(|Unbuilt { group, resource, subresource }| (&**group, &**resource, &**subresource)).collect()
    }

    /// This document in the memory of an equal one already known, so that equal documents are one value.
    pub fn sharing_with<'a>(self, known: impl IntoIterator<Item = &'a Arc<Self>>) -> Arc<Self> {
        let equal = known.into_iter().find(|known| ***known == self);
        equal.map_or_else(|| Arc::new(self), Arc::clone)
    }
}

/// By what the server says.
impl PartialEq for ServerDocument {
    fn eq(&self, other: &Self) -> bool {
        let said = |document: &Self| (document.core.clone(), document.apis.clone(), document.unbuilt.clone());
        said(self) == said(other)
    }
}

impl Eq for ServerDocument {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::document;

    #[test]
    fn a_whole_document_is_split_into_core_and_the_rest() {
        let whole = document("v1 pods:get | apps/v1 deployments:get");
        let split = ServerDocument::from_whole(&whole);
        assert_eq!(**split.core(), *document("v1 pods:get"));
        assert_eq!(**split.apis(), *document("apps/v1 deployments:get"));
    }

    #[test]
    fn a_document_without_core_is_taken_as_it_is() {
        let whole = document("apps/v1 deployments:get");
        let split = ServerDocument::from_whole(&whole);
        assert!(Arc::ptr_eq(split.apis(), &whole));
        assert!(split.core().items().is_empty());
    }

    #[test]
    fn equal_documents_share_memory_and_others_do_not() {
        let make = |notation: &str| ServerDocument::from_whole(&document(notation));
        let known = [Arc::new(make("v1 pods:get")), Arc::new(make("v1 pods:get,list"))];
        assert!(Arc::ptr_eq(&make("v1 pods:get,list").sharing_with(&known), &known[1]));
        assert!(!known.contains(&make("v1 pods:list").sharing_with(&known)));
        let exec = Unbuilt { group: "".into(), resource: "pods".into(), subresource: "exec".into() };
        assert!(!known.contains(&make("v1 pods:get").with_unbuilt(vec![exec]).sharing_with(&known)));
    }
}

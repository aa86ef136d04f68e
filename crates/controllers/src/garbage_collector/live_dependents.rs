//! Live lists of the objects that refer to an owner.
//!
//! The watches of two resources are not ordered among each other: the graph may show the deletion of an owner and not yet
//! its youngest dependents. They would be deleted as garbage if the owner were released.

use futures_util::stream::{self, StreamExt as _};

use super::actions::TaskContext;
use super::graph::ObjectNode;
use super::informers;
use crate::client::{ApiError, METADATA_LIST_ONLY, PAGE_SIZE};
use crate::informer::{ObservedObject, Uid, parse_list};
use crate::resources::{DiscoveredResource, ResourceScope};

/// Lists at once.
const CONCURRENT_LISTS: usize = 8;

impl TaskContext {
    /// True if any object refers to the owner. Lists every resource that can have dependents of it.
    pub(super) async fn has_dependents(&self, uid: &Uid, owner: &ObjectNode) -> Result<bool, ApiError> {
        let may_depend = |resource: &DiscoveredResource| {
            informers::is_followed(resource)
                && (owner.namespace.is_empty() || resource.scope == ResourceScope::Namespace)
        };
        let mut lists = Vec::new();
        for resource in self.resources.deletable() {
            if may_depend(resource) {
                lists.push(self.lists_dependent(resource, &owner.namespace, uid));
            }
        }
        let mut outcomes = stream::iter(lists).buffer_unordered(CONCURRENT_LISTS);
        while let Some(found) = outcomes.next().await {
            if found? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// True if an object of one resource refers to the owner.
    async fn lists_dependent(
        &self,
        resource: &DiscoveredResource,
        namespace: &str,
        uid: &Uid,
    ) -> Result<bool, ApiError> {
        let path = resource.path(namespace);
        let refers = |object: &ObservedObject| object.metadata.owner_references.iter().any(|owner| owner.uid == *uid);
        let mut token = String::new();
        loop {
            let page = format!("{path}?limit={PAGE_SIZE}&continue={token}");
            let page = parse_list(&self.client.get(&page, METADATA_LIST_ONLY).await?.body)?;
            if page.items.iter().any(refers) || page.metadata.continue_token.is_empty() {
                return Ok(page.items.iter().any(refers));
            }
            let next = &page.metadata.continue_token;
            token = percent_encoding::utf8_percent_encode(next, percent_encoding::NON_ALPHANUMERIC).to_string();
        }
    }
}

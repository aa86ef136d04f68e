//! Merges the discovery documents of a cluster's servers into one.
//!
//! The result depends only on the set of documents and on which of them have a live server, not on the order of
//! arrival or on server names, so every server computes the same bytes. The result contains everything that any input
//! lists, and merging it again with any of its inputs does not change it.
//!
//! [`MergedDiscovery::merge_incrementally`] reuses groups whose inputs have not changed since the previous merge.

mod conflict;
mod group_by_name;
mod levels;
mod order;

use std::collections::HashMap;
use std::sync::Arc;

pub use conflict::{Conflict, ConflictField, ConflictingValue};

use self::levels::MergedGroup;
use crate::groups::{DiscoveryEtag, GroupDiscoveryList, SharedStr};

/// One server's document.
#[derive(Clone, Debug)]
pub struct MergeInput {
    /// The server's identity; used only to report conflicts.
    pub server: SharedStr,
    /// Whether the server is reachable.
    pub liveness: ServerLiveness,
    /// What the server serves.
    pub groups: Arc<GroupDiscoveryList>,
}

/// Whether a document has a reachable server, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ServerLiveness {
    /// The server is live.
    Live,
    /// The server is suspect or has left; versions that only it serves are listed as `Stale`.
    NotLive,
}

/// A merged document and its conflicts.
#[derive(Clone, Debug)]
pub struct MergedDiscovery {
    /// The merged document; the input itself if all inputs are equal and one is live.
    pub groups: Arc<GroupDiscoveryList>,
    /// Fields that cannot be united and differ between inputs.
    pub conflicts: Vec<Conflict>,
    /// The merged groups with their inputs, by name, for incremental merging.
    merged_groups: HashMap<SharedStr, Arc<MergedGroup>>,
}

/// An empty document.
impl Default for MergedDiscovery {
    fn default() -> Self {
        Self::from_single(Arc::new(GroupDiscoveryList::new(Vec::new())))
    }
}

/// Merges the documents of several servers.
///
/// * Groups, versions, resources, subresources, verbs, short names and categories are united.
/// * An order that the inputs agree on is kept. Where they do not determine it or contradict each other, versions are
///   in Kubernetes' version order and everything else is alphabetical; differing verbs, short names and categories
///   are sorted.
/// * A version is `Stale` only if no live server serves it; otherwise the best freshness wins.
/// * For kind, scope and singular name the value of a live server wins, then the smallest; differences are reported.
pub fn merge(inputs: &[MergeInput]) -> MergedDiscovery {
    MergedDiscovery::default().merge_incrementally(inputs)
}

impl MergedDiscovery {
    /// Merges a new set of documents. The result equals that of [`merge`]; only groups with changed inputs cost time.
    pub fn merge_incrementally(&self, inputs: &[MergeInput]) -> Self {
        let sources = distinct_documents(inputs);
        match &sources[..] {
            [] => Self::default(),
            [only] if only.liveness == ServerLiveness::Live => Self::from_single(only.groups.clone()),
            sources => levels::merge_documents(sources, &self.merged_groups),
        }
    }

    /// Returns a single document unmerged.
    fn from_single(groups: Arc<GroupDiscoveryList>) -> Self {
        Self { groups, conflicts: Vec::new(), merged_groups: HashMap::new() }
    }
}

/// A distinct document and the servers that publish it.
struct DistinctDocument {
    groups: Arc<GroupDiscoveryList>,
    liveness: ServerLiveness,
    /// The smallest identity among its servers.
    first_server: SharedStr,
    server_count: usize,
}

/// Deduplicates the documents, ordered by ETag. A document is live if any of its servers is.
fn distinct_documents(inputs: &[MergeInput]) -> Vec<DistinctDocument> {
    let mut by_address: HashMap<*const GroupDiscoveryList, DiscoveryEtag> = HashMap::new();
    let mut by_content: HashMap<DiscoveryEtag, DistinctDocument> = HashMap::new();
    for MergeInput { server, liveness, groups } in inputs {
        let etag = *by_address.entry(Arc::as_ptr(groups)).or_insert_with(|| groups.merged_etag());
        let source = by_content.entry(etag).or_insert_with(|| DistinctDocument {
            groups: groups.clone(),
            liveness: *liveness,
            first_server: server.clone(),
            server_count: 0,
        });
        source.server_count += 1;
        source.liveness = source.liveness.min(*liveness);
        if *server < source.first_server {
            source.first_server = server.clone();
        }
    }
    let mut sources: Vec<_> = by_content.into_iter().collect();
    sources.sort_unstable_by_key(|(etag, _)| *etag);
    sources.into_iter().map(|(_, source)| source).collect()
}

#[cfg(test)]
mod tests;

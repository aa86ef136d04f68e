//! One document from many: what the servers of a cluster serve between them.
//!
//! The result is a function of the set of documents and of which of them somebody live stands behind. Neither the order of
//! arrival nor the servers' names have a say, so every server of a cluster computes the same bytes. Nothing that an input lists
//! is missing from it. Merging the result again with any of its inputs changes nothing.
//!
//! A merge after another takes over the groups whose inputs are the same ([`MergedDiscovery::merge_incrementally`]); the first one is a merge after
//! nothing.

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
    /// The identity of the server; it only names the server in conflicts.
    pub server: SharedStr,
    /// Whether the server can be reached.
    pub liveness: ServerLiveness,
    /// What it serves.
    pub groups: Arc<GroupDiscoveryList>,
}

/// Whether somebody can be reached who serves a document, the better first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ServerLiveness {
    /// The server is live.
    Live,
    /// The server is suspect or has left; what only it serves is listed as `Stale`.
    NotLive,
}

/// The merged document, and what its inputs could not agree on.
#[derive(Clone, Debug)]
pub struct MergedDiscovery {
    /// The document; the very input if all inputs are equal and one is live.
    pub groups: Arc<GroupDiscoveryList>,
    /// Fields of which no union exists and for which inputs had different values.
    pub conflicts: Vec<Conflict>,
    /// What the groups were made from, by their names.
    merged_groups: HashMap<SharedStr, Arc<MergedGroup>>,
}

/// Nothing, merged.
impl Default for MergedDiscovery {
    fn default() -> Self {
        Self::from_single(Arc::new(GroupDiscoveryList::new(Vec::new())))
    }
}

/// Merges the documents of several servers.
///
/// * Groups, versions, resources, subresources, verbs, short names and categories are unions.
/// * An order that the inputs agree on is kept. Where they leave it open or contradict each other, versions follow
///   Kubernetes' own order and all else the alphabet; verbs, short names and categories that differ are sorted.
/// * A version is `Stale` only if no live server serves any of it; otherwise the best freshness wins.
/// * Of kind, scope and singular name the value of a live server wins, then the smallest; the others are reported.
pub fn merge(inputs: &[MergeInput]) -> MergedDiscovery {
    MergedDiscovery::default().merge_incrementally(inputs)
}

impl MergedDiscovery {
    /// Merges other documents, or the same in other hands. The result is that of [`merge`]; its cost is that of the groups
    /// whose inputs are not those of this one.
    pub fn merge_incrementally(&self, inputs: &[MergeInput]) -> Self {
        let sources = distinct_documents(inputs);
        match &sources[..] {
            [] => Self::default(),
            [only] if only.liveness == ServerLiveness::Live => Self::from_single(only.groups.clone()),
            sources => levels::merge_documents(sources, &self.merged_groups),
        }
    }

    /// One document as it is.
    fn from_single(groups: Arc<GroupDiscoveryList>) -> Self {
        Self { groups, conflicts: Vec::new(), merged_groups: HashMap::new() }
    }
}

/// One of the different documents, and who has it.
struct DistinctDocument {
    groups: Arc<GroupDiscoveryList>,
    liveness: ServerLiveness,
    /// The lowest of the servers that have it.
    first_server: SharedStr,
    server_count: usize,
}

/// The different documents in the order of their tags. Each is as live as the liveliest server that has it.
fn distinct_documents(inputs: &[MergeInput]) -> Vec<DistinctDocument> {
    let mut by_address: HashMap<*const GroupDiscoveryList, DiscoveryEtag> = HashMap::new();
    let mut by_content: HashMap<DiscoveryEtag, DistinctDocument> = HashMap::new();
    for MergeInput { server, liveness: standing, groups } in inputs {
        let etag = *by_address.entry(Arc::as_ptr(groups)).or_insert_with(|| groups.merged_etag());
        let source = by_content.entry(etag).or_insert_with(|| DistinctDocument {
            groups: groups.clone(),
            liveness: *standing,
            first_server: server.clone(),
            server_count: 0,
        });
        source.server_count += 1;
        source.liveness = source.liveness.min(*standing);
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

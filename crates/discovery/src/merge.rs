//! One document from many: what the servers of a cluster serve between them.
//!
//! The result is a function of the set of documents and of which of them somebody live stands behind. Neither the order of
//! arrival nor the servers' names have a say, so every server of a cluster computes the same bytes. Nothing that an input lists
//! is missing from it. Merging the result again with any of its inputs changes nothing.
//!
//! A merge after another takes over the groups whose inputs are the same ([`Merged::next`]); the first one is a merge after
//! nothing.

mod conflict;
mod levels;
mod order;
mod unite;

use std::collections::HashMap;
use std::sync::Arc;

pub use conflict::{Claim, Conflict, ConflictField};

use self::levels::Union;
use crate::groups::{Etag, Groups, Name};

/// One server's document.
#[derive(Clone, Debug)]
pub struct Input {
    /// The identity of the server; it only names the server in conflicts.
    pub server: Name,
    /// Whether the server can be reached.
    pub standing: Standing,
    /// What it serves.
    pub groups: Arc<Groups>,
}

/// Whether somebody can be reached who serves a document, the better first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    /// The server is live.
    Current,
    /// The server is suspect or has left; what only it serves is listed as `Stale`.
    Stale,
}

/// The merged document, and what its inputs could not agree on.
#[derive(Clone, Debug)]
pub struct Merged {
    /// The document; the very input if all inputs are equal and one is live.
    pub groups: Arc<Groups>,
    /// Fields of which no union exists and for which inputs had different values.
    pub conflicts: Vec<Conflict>,
    /// What the groups were made from, by their names.
    unions: HashMap<Name, Arc<Union>>,
}

/// Nothing, merged.
impl Default for Merged {
    fn default() -> Self {
        Self::of(Arc::new(Groups::new(Vec::new())))
    }
}

/// Merges the documents of several servers.
///
/// * Groups, versions, resources, subresources, verbs, short names and categories are unions.
/// * An order that the inputs agree on is kept. Where they leave it open or contradict each other, versions follow
///   Kubernetes' own order and all else the alphabet; verbs, short names and categories that differ are sorted.
/// * A version is `Stale` only if no live server serves any of it; otherwise the best freshness wins.
/// * Of kind, scope and singular name the value of a live server wins, then the smallest; the others are reported.
pub fn merge(inputs: &[Input]) -> Merged {
    Merged::default().next(inputs)
}

impl Merged {
    /// Merges other documents, or the same in other hands. The result is that of [`merge`]; its cost is that of the groups
    /// whose inputs are not those of this one.
    pub fn next(&self, inputs: &[Input]) -> Self {
        let sources = distinct(inputs);
        match &sources[..] {
            [] => Self::default(),
            [only] if only.standing == Standing::Current => Self::of(only.groups.clone()),
            sources => levels::merge(sources, &self.unions),
        }
    }

    /// One document as it is.
    fn of(groups: Arc<Groups>) -> Self {
        Self { groups, conflicts: Vec::new(), unions: HashMap::new() }
    }
}

/// One of the different documents, and who has it.
struct SourceDocument {
    groups: Arc<Groups>,
    standing: Standing,
    /// The lowest of the servers that have it.
    server: Name,
    servers: usize,
}

/// The different documents in the order of their tags. Each is as live as the liveliest server that has it.
fn distinct(inputs: &[Input]) -> Vec<SourceDocument> {
    let mut by_address: HashMap<*const Groups, Etag> = HashMap::new();
    let mut by_content: HashMap<Etag, SourceDocument> = HashMap::new();
    for Input { server, standing, groups } in inputs {
        let etag = *by_address.entry(Arc::as_ptr(groups)).or_insert_with(|| groups.merged_etag());
        let source = by_content.entry(etag).or_insert_with(|| SourceDocument {
            groups: groups.clone(),
            standing: *standing,
            server: server.clone(),
            servers: 0,
        });
        source.servers += 1;
        source.standing = source.standing.min(*standing);
        if *server < source.server {
            source.server = server.clone();
        }
    }
    let mut sources: Vec<_> = by_content.into_iter().collect();
    sources.sort_unstable_by_key(|(etag, _)| *etag);
    sources.into_iter().map(|(_, source)| source).collect()
}

#[cfg(test)]
mod tests;

//! The merge, level by level: groups, versions, resources, subresources.
//!
//! Items that are equal in all documents are shared, not copied.

use std::collections::HashMap;
use std::sync::Arc;

use api::{GroupVersion, GroupVersionKind, compare_kube_aware_versions};

use super::conflict::{ConflictField, ConflictResolver, FieldLocation};
use super::group_by_name::{ItemSource, SourcedItem, group_by_name};
use super::{DistinctDocument, MergedDiscovery, ServerLiveness};
use crate::groups::{
    CreationTimestamp, DiscoveryFreshness, GroupDigest, GroupDiscovery, GroupDiscoveryList, HashedGroup,
    ResourceDiscovery, SharedStr, SharedStrList, SubresourceDiscovery, VersionDiscovery,
};

/// A merged group and its inputs.
#[derive(Debug)]
pub(super) struct MergedGroup {
    /// The distinct input digests and whether a live server publishes them, sorted so that they compare as a set.
    inputs: Vec<(GroupDigest, bool)>,
    hashed_group: HashedGroup,
    /// Groups with conflicts are not reused: conflicts name servers, which `inputs` does not contain.
    has_conflicts: bool,
}

/// Merges the documents, reusing groups of the previous merge that have the same inputs.
pub(super) fn merge_documents(
    sources: &[DistinctDocument],
    last: &HashMap<SharedStr, Arc<MergedGroup>>,
) -> MergedDiscovery {
    let mut resolver = ConflictResolver { sources, conflicts: Vec::new() };
    let hashed: Vec<Vec<HashedGroup>> = sources.iter().map(|source| source.groups.hashed_groups().collect()).collect();
    let listed = sources.iter().zip(&hashed).enumerate().map(|(document, (source, groups))| SourcedItem {
        source: ItemSource { document, is_live: source.liveness == ServerLiveness::Live },
        value: &groups[..],
    });
    let lists: Vec<_> = listed.collect();
    let united = group_by_name(&lists, |hashed| &hashed.group.name, str::cmp);
    let unions: Vec<Arc<MergedGroup>> =
        united.iter().map(|items| merge_or_reuse_group(&mut resolver, items, last)).collect();
    let groups = GroupDiscoveryList::from_hashed(unions.iter().map(|union| union.hashed_group.clone()));
    let unions = unions.into_iter().map(|union| (union.hashed_group.group.name.clone(), union)).collect();
    MergedDiscovery { groups: Arc::new(groups), conflicts: resolver.conflicts, merged_groups: unions }
}

/// Reuses the group of the last merge if its inputs are unchanged and it has no conflicts.
fn merge_or_reuse_group(
    resolver: &mut ConflictResolver<'_>,
    items: &[SourcedItem<'_, HashedGroup>],
    last: &HashMap<SharedStr, Arc<MergedGroup>>,
) -> Arc<MergedGroup> {
    let mut claims: Vec<_> = items.iter().map(|item| (item.value.digest, item.source.is_live)).collect();
    claims.sort_unstable();
    claims.dedup();
    if let Some(known) = last.get(&items[0].value.group.name)
        && known.inputs == claims
        && !known.has_conflicts
    {
        return known.clone();
    }
    let conflicts = resolver.conflicts.len();
    let merged = merge_group(resolver, items);
    Arc::new(MergedGroup { inputs: claims, hashed_group: merged, has_conflicts: resolver.conflicts.len() > conflicts })
}

fn merge_group(resolver: &mut ConflictResolver<'_>, items: &[SourcedItem<'_, HashedGroup>]) -> HashedGroup {
    let first = items[0].value;
    let is_live = items.iter().any(|item| item.source.is_live);
    if is_live && items.iter().all(|item| item.value.digest == first.digest) {
        return first.clone();
    }
    let lists: Vec<_> = items.iter().map(|item| item.with_value(&item.value.group.versions[..])).collect();
    let versions = group_by_name(&lists, |version| &version.name, compare_kube_aware_versions);
    let says_null =
        |item: &SourcedItem<'_, HashedGroup>| item.value.group.creation_timestamp == CreationTimestamp::Null;
    let name = &first.group.name;
    HashedGroup::new(Arc::new(GroupDiscovery {
        name: name.clone(),
        // `null` only if all inputs have it.
        creation_timestamp: if items.iter().all(says_null) {
            CreationTimestamp::Null
        } else {
            CreationTimestamp::Absent
        },
        versions: versions.iter().map(|sources| merge_version(resolver, name, sources)).collect(),
    }))
}

fn merge_version(
    resolver: &mut ConflictResolver<'_>,
    group: &SharedStr,
    items: &[SourcedItem<'_, VersionDiscovery>],
) -> VersionDiscovery {
    let sources: Vec<_> = items.iter().copied().map(demote_stale_version).collect();
    let name = &sources[0].value.name;
    let lists: Vec<_> = sources.iter().map(|item| item.with_value(&item.value.resources[..])).collect();
    let resources = group_by_name(&lists, |resource| &resource.name, str::cmp);
    let resources = resources.iter().map(|sources| {
        let place = FieldLocation { group, version: name, resource: &sources[0].value.name, subresource: None };
        merge_resource(resolver, place, sources)
    });
    VersionDiscovery { name: name.clone(), resources: resources.collect(), freshness: merge_freshness(&sources) }
}

/// Treats a version that its own server lists as `Stale` as not live.
fn demote_stale_version(item: SourcedItem<'_, VersionDiscovery>) -> SourcedItem<'_, VersionDiscovery> {
    let live = item.source.is_live && item.value.freshness != DiscoveryFreshness::Stale;
    SourcedItem { source: ItemSource { is_live: live, ..item.source }, ..item }
}

/// Returns the best freshness among live inputs that list resources, or among all live ones if none lists any.
fn merge_freshness(items: &[SourcedItem<'_, VersionDiscovery>]) -> DiscoveryFreshness {
    let is_empty = items.iter().all(|item| item.value.resources.is_empty());
    let serving = items.iter().filter(|item| is_empty || !item.value.resources.is_empty());
    let live = serving.filter(|item| item.source.is_live).map(|item| &item.value.freshness);
    live.min().cloned().unwrap_or(DiscoveryFreshness::Stale)
}

fn merge_resource(
    resolver: &mut ConflictResolver<'_>,
    location: FieldLocation<'_>,
    items: &[SourcedItem<'_, Arc<ResourceDiscovery>>],
) -> Arc<ResourceDiscovery> {
    let first = items[0].value;
    if all_equal(items) {
        return first.clone();
    }
    let values = || items.iter().map(|item| item.value);
    let scopes = items.iter().map(|item| (item.source, &item.value.scope));
    let scope =
        resolver.resolve(location, ConflictField::Scope, scopes.filter(|(_, scope)| !scope.as_str().is_empty()));
    let singulars = items.iter().map(|item| (item.source, &item.value.singular));
    let singular = resolver.resolve(location, ConflictField::Singular, singulars.filter(|(_, name)| !name.is_empty()));
    let kinds: Vec<_> = items.iter().map(|item| (item.source, item.value.response_kind.as_ref())).collect();
    let lists: Vec<_> = items.iter().map(|item| item.with_value(&item.value.subresources[..])).collect();
    let subresources = group_by_name(&lists, |subresource| &subresource.name, str::cmp);
    Arc::new(ResourceDiscovery {
        name: first.name.clone(),
        response_kind: merge_response_kind(resolver, location, &kinds),
        scope: scope.unwrap_or(&first.scope).clone(),
        singular: singular.unwrap_or(&first.singular).clone(),
        verbs: union_of_present(values().map(|value| value.verbs.as_ref())),
        short_names: union_of_names(values().map(|value| &value.short_names)),
        categories: union_of_names(values().map(|value| &value.categories)),
        subresources: subresources.iter().map(|sources| merge_subresource(resolver, location, sources)).collect(),
    })
}

fn merge_subresource(
    resolver: &mut ConflictResolver<'_>,
    parent: FieldLocation<'_>,
    items: &[SourcedItem<'_, SubresourceDiscovery>],
) -> SubresourceDiscovery {
    let first = items[0].value;
    if all_equal(items) {
        return first.clone();
    }
    let place = FieldLocation { subresource: Some(&first.name), ..parent };
    let kinds: Vec<_> = items.iter().map(|item| (item.source, item.value.response_kind.as_ref())).collect();
    SubresourceDiscovery {
        name: first.name.clone(),
        response_kind: merge_response_kind(resolver, place, &kinds),
        accepted_types: sorted_union(items.iter().map(|item| &item.value.accepted_types[..])),
        verbs: union_of_present(items.iter().map(|item| item.value.verbs.as_ref())),
    }
}

/// Resolves the response kind. A kind without a name, as implied parents have, is ignored. Empty group and version
/// mean those of the document, so that a built-in and a custom resource that write them differently do not conflict.
fn merge_response_kind(
    resolver: &mut ConflictResolver<'_>,
    location: FieldLocation<'_>,
    kinds: &[(ItemSource, Option<&GroupVersionKind>)],
) -> Option<GroupVersionKind> {
    let stated = || kinds.iter().filter_map(|(origin, kind)| kind.map(|kind| (*origin, kind)));
    let named = stated().filter(|(_, kind)| !kind.kind.is_empty());
    let full = named.map(|(origin, kind)| (origin, resolve_kind(location, kind)));
    let winner = resolver.resolve(location, ConflictField::Kind, full);
    let spellings = stated()
        .map(|(_, kind)| kind)
        .filter(|kind| winner.is_none_or(|winner| resolve_kind(location, kind) == winner));
    spellings.min().cloned()
}

/// Fills in the group and version of the document if the kind has neither.
fn resolve_kind<'a>(location: FieldLocation<'a>, kind: &'a GroupVersionKind) -> GroupVersionKind<&'a str> {
    match kind.borrowed() {
        GroupVersionKind { group: "", version: "", kind } => {
            GroupVersion { group: &**location.group, version: &**location.version }.with_kind(kind)
        }
        full => full,
    }
}

/// Returns the union of the lists that are present; `None` if none is.
fn union_of_present<'a>(lists: impl Iterator<Item = Option<&'a SharedStrList>>) -> Option<SharedStrList> {
    let mut stated = lists.flatten().peekable();
    stated.peek()?;
    Some(union_of_names(stated))
}

/// Returns the list itself if all non-empty lists are equal, else the sorted union.
fn union_of_names<'a>(lists: impl Iterator<Item = &'a SharedStrList>) -> SharedStrList {
    let mut filled = lists.filter(|list| !list.is_empty());
    let Some(first) = filled.next() else { return SharedStrList::default() };
    let others: Vec<_> = filled.filter(|list| *list != first).collect();
    if others.is_empty() {
        return first.clone();
    }
    sorted_union(others.into_iter().chain([first]).map(|list| &list[..])).into()
}

/// Like [`union_of_names`], for slices.
fn sorted_union<'a, T: Ord + Clone + 'a>(lists: impl Iterator<Item = &'a [T]>) -> Vec<T> {
    let filled: Vec<_> = lists.filter(|list| !list.is_empty()).collect();
    if filled.windows(2).all(|pair| pair[0] == pair[1]) {
        return filled.first().map_or_else(Vec::new, |list| list.to_vec());
    }
    let mut all: Vec<T> = filled.concat();
    all.sort_unstable();
    all.dedup();
    all
}

fn all_equal<T: PartialEq>(items: &[SourcedItem<'_, T>]) -> bool {
    items.windows(2).all(|pair| pair[0].value == pair[1].value)
}

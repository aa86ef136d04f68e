//! The merge, level by level: groups, versions, resources, subresources.
//!
//! At every level, things that are equal in all documents are taken as they are, memory included.

use std::collections::HashMap;
use std::sync::Arc;

use api::{GroupVersion, GroupVersionKind, version_order};

use super::conflict::{ConflictField, Judge, Place};
use super::unite::{Listed, Origin, unite};
use super::{Merged, SourceDocument, Standing};
use crate::groups::{
    CreationTimestamp, Digest, Freshness, Group, Groups, Hashed, Name, Names, Resource, Subresource, Version,
};

/// A merged group and what it was made from.
#[derive(Debug)]
pub(super) struct Union {
    /// What the documents say of it, each once, and whether somebody live stands behind that. In order, since the union is
    /// that of a set.
    claims: Vec<(Digest, bool)>,
    merged: Hashed,
    /// Whether there were conflicts: those name servers, which the claims do not.
    is_disputed: bool,
}

/// Merges the documents, and takes over what the last merge made from the same claims.
pub(super) fn merge(sources: &[SourceDocument], last: &HashMap<Name, Arc<Union>>) -> Merged {
    let mut judge = Judge { sources, conflicts: Vec::new() };
    let hashed: Vec<Vec<Hashed>> = sources.iter().map(|source| source.groups.hashed().collect()).collect();
    let listed = sources.iter().zip(&hashed).enumerate().map(|(document, (source, groups))| Listed {
        origin: Origin { document, live: source.standing == Standing::Current },
        value: &groups[..],
    });
    let lists: Vec<_> = listed.collect();
    let united = unite(&lists, |hashed| &hashed.group.name, str::cmp);
    let unions: Vec<Arc<Union>> = united.iter().map(|bearers| union_of_groups(&mut judge, bearers, last)).collect();
    let groups = Groups::from_hashed(unions.iter().map(|union| union.merged.clone()));
    let unions = unions.into_iter().map(|union| (union.merged.group.name.clone(), union)).collect();
    Merged { groups: Arc::new(groups), conflicts: judge.conflicts, unions }
}

fn union_of_groups(
    judge: &mut Judge<'_>,
    bearers: &[Listed<'_, Hashed>],
    last: &HashMap<Name, Arc<Union>>,
) -> Arc<Union> {
    let mut claims: Vec<_> = bearers.iter().map(|bearer| (bearer.value.digest, bearer.origin.live)).collect();
    claims.sort_unstable();
    claims.dedup();
    if let Some(known) = last.get(&bearers[0].value.group.name)
        && known.claims == claims
        && !known.is_disputed
    {
        return known.clone();
    }
    let conflicts = judge.conflicts.len();
    let merged = group(judge, bearers);
    Arc::new(Union { claims, merged, is_disputed: judge.conflicts.len() > conflicts })
}

fn group(judge: &mut Judge<'_>, bearers: &[Listed<'_, Hashed>]) -> Hashed {
    let first = bearers[0].value;
    let is_live = bearers.iter().any(|bearer| bearer.origin.live);
    if is_live && bearers.iter().all(|bearer| bearer.value.digest == first.digest) {
        return first.clone();
    }
    let lists: Vec<_> = bearers.iter().map(|bearer| bearer.with(&bearer.value.group.versions[..])).collect();
    let versions = unite(&lists, |version| &version.name, version_order);
    let says_null = |bearer: &Listed<'_, Hashed>| bearer.value.group.creation_timestamp == CreationTimestamp::Null;
    let name = &first.group.name;
    Hashed::new(Arc::new(Group {
        name: name.clone(),
        // What all say; the newer form otherwise.
        creation_timestamp: if bearers.iter().all(says_null) {
            CreationTimestamp::Null
        } else {
            CreationTimestamp::Absent
        },
        versions: versions.iter().map(|bearers| version(judge, name, bearers)).collect(),
    }))
}

fn version(judge: &mut Judge<'_>, group: &Name, bearers: &[Listed<'_, Version>]) -> Version {
    let bearers: Vec<_> = bearers.iter().copied().map(alive).collect();
    let name = &bearers[0].value.name;
    let lists: Vec<_> = bearers.iter().map(|bearer| bearer.with(&bearer.value.resources[..])).collect();
    let resources = unite(&lists, |resource| &resource.name, str::cmp);
    let resources = resources.iter().map(|bearers| {
        let place = Place { group, version: name, resource: &bearers[0].value.name, subresource: None };
        resource(judge, place, bearers)
    });
    Version { name: name.clone(), resources: resources.collect(), freshness: freshness(&bearers) }
}

/// A version that its own server calls `Stale` has nobody live behind it either.
fn alive(bearer: Listed<'_, Version>) -> Listed<'_, Version> {
    let live = bearer.origin.live && bearer.value.freshness != Freshness::Stale;
    Listed { origin: Origin { live, ..bearer.origin }, ..bearer }
}

/// The best freshness of those who serve some resource; of all, if nobody has any.
fn freshness(bearers: &[Listed<'_, Version>]) -> Freshness {
    let is_empty = bearers.iter().all(|bearer| bearer.value.resources.is_empty());
    let serving = bearers.iter().filter(|bearer| is_empty || !bearer.value.resources.is_empty());
    let live = serving.filter(|bearer| bearer.origin.live).map(|bearer| &bearer.value.freshness);
    live.min().cloned().unwrap_or(Freshness::Stale)
}

fn resource(judge: &mut Judge<'_>, place: Place<'_>, bearers: &[Listed<'_, Arc<Resource>>]) -> Arc<Resource> {
    let first = bearers[0].value;
    if are_equal(bearers) {
        return first.clone();
    }
    let values = || bearers.iter().map(|bearer| bearer.value);
    let scopes = bearers.iter().map(|bearer| (bearer.origin, &bearer.value.scope));
    let scope = judge.settle(place, ConflictField::Scope, scopes.filter(|(_, scope)| !scope.as_str().is_empty()));
    let singulars = bearers.iter().map(|bearer| (bearer.origin, &bearer.value.singular));
    let singular = judge.settle(place, ConflictField::Singular, singulars.filter(|(_, name)| !name.is_empty()));
    let kinds: Vec<_> = bearers.iter().map(|bearer| (bearer.origin, bearer.value.response_kind.as_ref())).collect();
    let lists: Vec<_> = bearers.iter().map(|bearer| bearer.with(&bearer.value.subresources[..])).collect();
    let subresources = unite(&lists, |subresource| &subresource.name, str::cmp);
    Arc::new(Resource {
        name: first.name.clone(),
        response_kind: response_kind(judge, place, &kinds),
        scope: scope.unwrap_or(&first.scope).clone(),
        singular: singular.unwrap_or(&first.singular).clone(),
        verbs: union_of_stated(values().map(|value| value.verbs.as_ref())),
        short_names: union(values().map(|value| &value.short_names)),
        categories: union(values().map(|value| &value.categories)),
        subresources: subresources.iter().map(|bearers| subresource(judge, place, bearers)).collect(),
    })
}

fn subresource(judge: &mut Judge<'_>, parent: Place<'_>, bearers: &[Listed<'_, Subresource>]) -> Subresource {
    let first = bearers[0].value;
    if are_equal(bearers) {
        return first.clone();
    }
    let place = Place { subresource: Some(&first.name), ..parent };
    let kinds: Vec<_> = bearers.iter().map(|bearer| (bearer.origin, bearer.value.response_kind.as_ref())).collect();
    Subresource {
        name: first.name.clone(),
        response_kind: response_kind(judge, place, &kinds),
        accepted_types: union_of_lists(bearers.iter().map(|bearer| &bearer.value.accepted_types[..])),
        verbs: union_of_stated(bearers.iter().map(|bearer| bearer.value.verbs.as_ref())),
    }
}

/// The kind that stands. One without a name, as an implied parent has, is no claim; group and version left empty are those of
/// the list, so that a built-in and a custom resource that say the same in two ways do not conflict.
fn response_kind(
    judge: &mut Judge<'_>,
    place: Place<'_>,
    kinds: &[(Origin, Option<&GroupVersionKind>)],
) -> Option<GroupVersionKind> {
    let stated = || kinds.iter().filter_map(|(origin, kind)| kind.map(|kind| (*origin, kind)));
    let named = stated().filter(|(_, kind)| !kind.kind.is_empty());
    let full = named.map(|(origin, kind)| (origin, in_full(place, kind)));
    let winner = judge.settle(place, ConflictField::Kind, full);
    let spellings =
        stated().map(|(_, kind)| kind).filter(|kind| winner.is_none_or(|winner| in_full(place, kind) == winner));
    spellings.min().cloned()
}

fn in_full<'a>(place: Place<'a>, kind: &'a GroupVersionKind) -> GroupVersionKind<&'a str> {
    match kind.borrowed() {
        GroupVersionKind { group: "", version: "", kind } => {
            GroupVersion { group: &**place.group, version: &**place.version }.with_kind(kind)
        }
        full => full,
    }
}

/// The union of what is stated; `None` if nothing is.
fn union_of_stated<'a>(lists: impl Iterator<Item = Option<&'a Names>>) -> Option<Names> {
    let mut stated = lists.flatten().peekable();
    stated.peek()?;
    Some(union(stated))
}

/// The list itself if all that hold anything are equal, else the sorted union.
fn union<'a>(lists: impl Iterator<Item = &'a Names>) -> Names {
    let mut filled = lists.filter(|list| !list.is_empty());
    let Some(first) = filled.next() else { return Names::default() };
    let others: Vec<_> = filled.filter(|list| *list != first).collect();
    if others.is_empty() {
        return first.clone();
    }
    union_of_lists(others.into_iter().chain([first]).map(|list| &list[..])).into()
}

/// The same for lists that are not shared.
fn union_of_lists<'a, T: Ord + Clone + 'a>(lists: impl Iterator<Item = &'a [T]>) -> Vec<T> {
    let filled: Vec<_> = lists.filter(|list| !list.is_empty()).collect();
    if filled.windows(2).all(|pair| pair[0] == pair[1]) {
        return filled.first().map_or_else(Vec::new, |list| list.to_vec());
    }
    let mut all: Vec<T> = filled.concat();
    all.sort_unstable();
    all.dedup();
    all
}

fn are_equal<T: PartialEq>(bearers: &[Listed<'_, T>]) -> bool {
    bearers.windows(2).all(|pair| pair[0].value == pair[1].value)
}

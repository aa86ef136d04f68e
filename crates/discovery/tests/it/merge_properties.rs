//! Properties of the merge for arbitrary documents.

use std::collections::BTreeSet;
use std::sync::Arc;

use api::GroupVersionKind;
use api::media::AggregatedVersion;
use discovery::aggregated::{self, MergedJson};
use discovery::parse::parse_aggregated;
use discovery::{
    CreationTimestamp, DiscoveryFreshness, DiscoveryScope, GroupDiscovery, GroupDiscoveryList, MergeInput,
    MergedDiscovery, ResourceDiscovery, ServerLiveness, SharedStr, SharedStrList, SubresourceDiscovery,
    VersionDiscovery, merge,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn merge_ignores_input_order_and_server_names(inputs in inputs(), seed in any::<u64>()) {
        let mut others = inputs.clone();
        others.rotate_left((seed % inputs.len() as u64) as usize);
        if seed % 2 == 0 {
            others.reverse();
        }
        for (at, input) in others.iter_mut().enumerate() {
            input.server = format!("other-{at}").into();
        }
        prop_assert_eq!(json_text(&merge(&inputs).groups), json_text(&merge(&others).groups));
    }

    #[test]
    fn merge_is_idempotent(inputs in inputs(), chosen in vec(any::<bool>(), 5)) {
        let merged = merge(&inputs).groups;
        let result = MergeInput { server: "result".into(), liveness: ServerLiveness::Live, groups: merged.clone() };
        let mut again = inputs.clone();
        again.push(result.clone());
        prop_assert_eq!(json_text(&merge(&again).groups), json_text(&merged));
        let mut some: Vec<_> = inputs.iter().zip(chosen).filter(|(_, chosen)| *chosen).map(|(input, _)| input.clone()).collect();
        some.push(result);
        prop_assert_eq!(json_text(&merge(&some).groups), json_text(&merged));
    }

    #[test]
    fn incremental_merge_equals_full_merge(pool in vec(document(), 1..5), steps in vec(vec(server_document_and_liveness(), 0..5), 1..8)) {
        let mut merged = MergedDiscovery::default();
        let mut written: Option<MergedJson> = None;
        for step in steps {
            let input = |(server, document, liveness): (usize, usize, ServerLiveness)| {
                let groups = pool[document % pool.len()].clone();
                MergeInput { server: format!("s{server}").into(), liveness, groups }
            };
            let inputs: Vec<_> = step.into_iter().map(input).collect();
            let (at_once, before) = (merge(&inputs), merged);
            merged = before.merge_incrementally(&inputs);
            prop_assert_eq!(json_text(&merged.groups), json_text(&at_once.groups));
            prop_assert_eq!(&merged.conflicts, &at_once.conflicts);
            prop_assert_eq!(merged.groups.merged_etag(), at_once.groups.merged_etag());
            let next = MergedJson::new(&merged.groups, AggregatedVersion::V2, written.as_ref());
            let identity = next.document().identity.to_vec();
            prop_assert_eq!(String::from_utf8(identity).unwrap(), json_text(&at_once.groups));
            written = Some(next);
        }
    }

    #[test]
    fn etags_are_equal_exactly_for_equal_documents(a in document(), b in document()) {
        prop_assert_eq!(a.merged_etag() == b.merged_etag(), json_text(&a) == json_text(&b));
        prop_assert_eq!(a == b, a.etag() == b.etag());
    }

    #[test]
    fn merge_with_itself_is_identity(groups in document()) {
        let copy = parse_aggregated(json_text(&groups).as_bytes()).unwrap();
        let inputs = [groups.clone(), Arc::new(copy), groups.clone()].map(|groups| live_input("a", groups));
        prop_assert_eq!(json_text(&merge(&inputs).groups), json_text(&groups));
    }

    #[test]
    fn merge_contains_every_input_entry(inputs in inputs()) {
        let merged = entries(&merge(&inputs).groups);
        for input in &inputs {
            let missing: Vec<_> = entries(&input.groups).difference(&merged).cloned().collect();
            prop_assert!(missing.is_empty(), "{missing:?}");
        }
        let all: BTreeSet<_> = inputs.iter().flat_map(|input| entries(&input.groups)).collect();
        prop_assert_eq!(merged, all);
    }

    #[test]
    fn merge_lists_each_group_once(inputs in inputs()) {
        let mut inputs = inputs;
        // At least two distinct documents: a single one is returned unchanged.
        inputs.extend(["first", "second"].map(|name| live_input(name, only_group(name))));
        let merged = merge(&inputs).groups;
        let names: BTreeSet<_> = merged.items().iter().map(|group| &group.name).collect();
        prop_assert_eq!(names.len(), merged.items().len());
    }

    #[test]
    fn one_crash_among_equal_servers_marks_nothing_stale(groups in document(), others in inputs(), crashed in 0..3_usize) {
        let mut inputs: Vec<_> = (0..3).map(|server| live_input(&format!("equal-{server}"), groups.clone())).collect();
        inputs.extend(others);
        let before = merge(&inputs);
        inputs[crashed].liveness = ServerLiveness::NotLive;
        prop_assert_eq!(json_text(&merge(&inputs).groups), json_text(&before.groups));
    }

    #[test]
    fn version_is_stale_exactly_if_no_live_server_serves_it(inputs in inputs().prop_map(without_duplicates)) {
        for (group, version) in merge(&inputs).groups.versions() {
            let serves = |input: &MergeInput, candidate: &VersionDiscovery| {
                input.liveness == ServerLiveness::Live
                    && candidate.freshness != DiscoveryFreshness::Stale
                    && (version.resources.is_empty() || !candidate.resources.is_empty())
            };
            let is_served = inputs.iter().any(|input| {
                let versions = input.groups.versions().filter(|(g, v)| g.name == group.name && v.name == version.name);
                versions.into_iter().any(|(_, candidate)| serves(input, candidate))
            });
            prop_assert_eq!(version.freshness == DiscoveryFreshness::Stale, !is_served, "{}/{}", group.name, version.name);
        }
    }

    #[test]
    fn liveness_changes_only_freshness(inputs in inputs()) {
        let with_liveness = |liveness| inputs.iter().cloned().map(|input| MergeInput { liveness, ..input }).collect::<Vec<_>>();
        let [live, stale] = [ServerLiveness::Live, ServerLiveness::NotLive].map(|all| merge(&with_liveness(all)).groups);
        prop_assert_eq!(entries(&live), entries(&stale));
        prop_assert!(stale.versions().all(|(_, version)| version.freshness == DiscoveryFreshness::Stale));
    }

    #[test]
    fn conflict_lists_each_value_once(inputs in inputs()) {
        for conflict in merge(&inputs).conflicts {
            let values: BTreeSet<_> = conflict.values.iter().map(|claim| &claim.value).collect();
            prop_assert!(values.len() >= 2 && values.len() == conflict.values.len(), "{conflict}");
        }
    }

    #[test]
    fn aggregated_json_round_trips(groups in document(), version in select(vec![AggregatedVersion::V2, AggregatedVersion::V2Beta1])) {
        let written = aggregated::encode_json(&groups, version);
        let read = parse_aggregated(&written.identity).unwrap();
        prop_assert_eq!(read.items(), groups.items());
        prop_assert_eq!(aggregated::encode_json(&read, version).identity, written.identity);
    }
}

/// Removes duplicates: with them a server may contradict itself, and a single document is returned unchanged.
fn without_duplicates(inputs: Vec<MergeInput>) -> Vec<MergeInput> {
    let tidy = |input: MergeInput| {
        let mut names = BTreeSet::new();
        let mut groups = input.groups.items().to_vec();
        groups.retain(|group| names.insert(group.name.clone()));
        for group in &mut groups {
            let mut names = BTreeSet::new();
            Arc::make_mut(group).versions.retain(|version| names.insert(version.name.clone()));
        }
        MergeInput { groups: Arc::new(GroupDiscoveryList::new(groups)), ..input }
    };
    inputs.into_iter().map(tidy).collect()
}

fn json_text(groups: &GroupDiscoveryList) -> String {
    String::from_utf8(aggregated::encode_json(groups, AggregatedVersion::V2).identity.to_vec()).unwrap()
}

fn live_input(server: &str, groups: Arc<GroupDiscoveryList>) -> MergeInput {
    MergeInput { server: server.into(), liveness: ServerLiveness::Live, groups }
}

fn only_group(name: &str) -> Arc<GroupDiscoveryList> {
    let group =
        GroupDiscovery { name: name.into(), creation_timestamp: CreationTimestamp::Absent, versions: Vec::new() };
    Arc::new(GroupDiscoveryList::new(vec![Arc::new(group)]))
}

/// Lists everything in a document as paths, down to the verbs.
fn entries(groups: &GroupDiscoveryList) -> BTreeSet<String> {
    let mut entries: BTreeSet<String> = groups.items().iter().map(|group| group.name.to_string()).collect();
    for (group, version) in groups.versions() {
        let place = format!("{}/{}", group.name, version.name);
        entries.insert(place.clone());
        for resource in &version.resources {
            let place = format!("{place} {}", resource.name);
            entries.extend(verbs(&place, resource.verbs.as_ref()));
            entries.extend(resource.short_names.iter().map(|name| format!("{place} short {name}")));
            for subresource in &resource.subresources {
                entries.extend(verbs(&format!("{place}/{}", subresource.name), subresource.verbs.as_ref()));
            }
        }
    }
    entries
}

fn verbs(place: &str, verbs: Option<&SharedStrList>) -> Vec<String> {
    let verbs = verbs.iter().flat_map(|verbs| verbs.iter()).map(|verb| format!("{place} {verb}"));
    verbs.chain([place.to_owned()]).collect()
}

/// A server, the index of its document, and its liveness.
fn server_document_and_liveness() -> impl Strategy<Value = (usize, usize, ServerLiveness)> {
    (0..4_usize, any::<usize>(), select(vec![ServerLiveness::Live, ServerLiveness::NotLive]))
}

fn inputs() -> impl Strategy<Value = Vec<MergeInput>> {
    let liveness = select(vec![ServerLiveness::Live, ServerLiveness::Live, ServerLiveness::NotLive]);
    vec((liveness, document()), 1..5).prop_map(|inputs| {
        let servers = inputs.into_iter().enumerate();
        servers
            .map(|(at, (liveness, groups))| MergeInput { server: format!("s{at}").into(), liveness, groups })
            .collect()
    })
}

/// Few names, so that documents overlap; occasionally a duplicate.
fn document() -> impl Strategy<Value = Arc<GroupDiscoveryList>> {
    vec(group(), 0..5).prop_map(|groups| Arc::new(GroupDiscoveryList::new(groups.into_iter().map(Arc::new).collect())))
}

fn group() -> impl Strategy<Value = GroupDiscovery> {
    let timestamp = select(vec![CreationTimestamp::Absent, CreationTimestamp::Null]);
    (name(&["", "apps", "batch", "z.io", "a<b>&"]), timestamp, vec(version(), 0..4))
        .prop_map(|(name, creation_timestamp, versions)| GroupDiscovery { name, creation_timestamp, versions })
}

fn version() -> impl Strategy<Value = VersionDiscovery> {
    let other = DiscoveryFreshness::Other("Ripe".into());
    let freshness = select(vec![
        DiscoveryFreshness::Current,
        DiscoveryFreshness::Current,
        DiscoveryFreshness::Stale,
        DiscoveryFreshness::Unstated,
        other,
    ]);
    (name(&["v1", "v2", "v1beta1", "v1alpha1", "odd"]), vec(resource().prop_map(Arc::new), 0..4), freshness)
        .prop_map(|(name, resources, freshness)| VersionDiscovery { name, resources, freshness })
}

fn resource() -> impl Strategy<Value = ResourceDiscovery> {
    let scope = select(vec![
        DiscoveryScope::Cluster,
        DiscoveryScope::Namespaced,
        DiscoveryScope::Other("".into()),
        DiscoveryScope::Other("Galaxy".into()),
    ]);
    let names = (name(&["pods", "jobs", "things", "wörter"]), name(&["", "pod", "job"]));
    let lists = (option::of(names_of(&["get", "list", "watch"])), names_of(&["po", "jo"]), names_of(&["all", "x"]));
    (names, option::of(kind()), scope, lists, vec(subresource(), 0..3)).prop_map(
        |((name, singular), response_kind, scope, (verbs, short_names, categories), subresources)| ResourceDiscovery {
            name,
            response_kind,
            scope,
            singular,
            verbs,
            short_names,
            categories,
            subresources,
        },
    )
}

fn subresource() -> impl Strategy<Value = SubresourceDiscovery> {
    (name(&["status", "scale", "log"]), option::of(kind()), vec(kind(), 0..3), option::of(names_of(&["get", "patch"])))
        .prop_map(|(name, response_kind, accepted_types, verbs)| SubresourceDiscovery {
            name,
            response_kind,
            accepted_types,
            verbs,
        })
}

fn kind() -> impl Strategy<Value = GroupVersionKind> {
    (name(&["", "apps"]), name(&["", "v1"]), name(&["", "Pod", "Job"]))
        .prop_map(|(group, version, kind)| GroupVersionKind { group, version, kind })
}

fn names_of(texts: &'static [&'static str]) -> impl Strategy<Value = SharedStrList> {
    vec(name(texts), 0..4).prop_map(SharedStrList::from)
}

fn name(texts: &'static [&'static str]) -> impl Strategy<Value = SharedStr> {
    select(texts).prop_map(SharedStr::from)
}

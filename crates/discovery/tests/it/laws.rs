//! The laws of the merge, for any documents.

use std::collections::BTreeSet;
use std::sync::Arc;

use api::GroupVersionKind;
use api::media::AggregatedVersion;
use discovery::aggregated::{self, MergedJson};
use discovery::parse::parse_aggregated;
use discovery::{
    CreationTimestamp, Freshness, Group, Groups, Input, Merged, Name, Names, Resource, Scope, Standing, Subresource,
    Version, merge,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn neither_arrival_nor_names_have_a_say(inputs in inputs(), seed in any::<u64>()) {
        let mut others = inputs.clone();
        others.rotate_left((seed % inputs.len() as u64) as usize);
        if seed % 2 == 0 {
            others.reverse();
        }
        for (at, input) in others.iter_mut().enumerate() {
            input.server = format!("other-{at}").into();
        }
        prop_assert_eq!(text(&merge(&inputs).groups), text(&merge(&others).groups));
    }

    #[test]
    fn merging_again_changes_nothing(inputs in inputs(), chosen in vec(any::<bool>(), 5)) {
        let merged = merge(&inputs).groups;
        let result = Input { server: "result".into(), standing: Standing::Current, groups: merged.clone() };
        let mut again = inputs.clone();
        again.push(result.clone());
        prop_assert_eq!(text(&merge(&again).groups), text(&merged));
        let mut some: Vec<_> = inputs.iter().zip(chosen).filter(|(_, chosen)| *chosen).map(|(input, _)| input.clone()).collect();
        some.push(result);
        prop_assert_eq!(text(&merge(&some).groups), text(&merged));
    }

    #[test]
    fn a_merge_after_others_is_the_merge_of_its_inputs(pool in vec(document(), 1..5), steps in vec(vec(place(), 0..5), 1..8)) {
        let mut merged = Merged::default();
        let mut written: Option<MergedJson> = None;
        for step in steps {
            let input = |(server, document, standing): (usize, usize, Standing)| {
                let groups = pool[document % pool.len()].clone();
                Input { server: format!("s{server}").into(), standing, groups }
            };
            let inputs: Vec<_> = step.into_iter().map(input).collect();
            let (at_once, before) = (merge(&inputs), merged);
            merged = before.next(&inputs);
            prop_assert_eq!(text(&merged.groups), text(&at_once.groups));
            prop_assert_eq!(&merged.conflicts, &at_once.conflicts);
            prop_assert_eq!(merged.groups.merged_etag(), at_once.groups.merged_etag());
            let next = MergedJson::new(&merged.groups, AggregatedVersion::V2, written.as_ref());
            let identity = next.document().identity.to_vec();
            prop_assert_eq!(String::from_utf8(identity).unwrap(), text(&at_once.groups));
            written = Some(next);
        }
    }

    #[test]
    fn documents_have_one_tag_exactly_if_they_say_the_same(a in document(), b in document()) {
        prop_assert_eq!(a.merged_etag() == b.merged_etag(), text(&a) == text(&b));
        prop_assert_eq!(a == b, a.etag() == b.etag());
    }

    #[test]
    fn a_document_merged_with_itself_is_itself(groups in document()) {
        let copy = parse_aggregated(text(&groups).as_bytes()).unwrap();
        let inputs = [groups.clone(), Arc::new(copy), groups.clone()].map(|groups| live("a", groups));
        prop_assert_eq!(text(&merge(&inputs).groups), text(&groups));
    }

    #[test]
    fn nothing_that_an_input_lists_is_missing(inputs in inputs()) {
        let merged = entries(&merge(&inputs).groups);
        for input in &inputs {
            let missing: Vec<_> = entries(&input.groups).difference(&merged).cloned().collect();
            prop_assert!(missing.is_empty(), "{missing:?}");
        }
        let all: BTreeSet<_> = inputs.iter().flat_map(|input| entries(&input.groups)).collect();
        prop_assert_eq!(merged, all);
    }

    #[test]
    fn no_group_is_listed_twice(inputs in inputs()) {
        let mut inputs = inputs;
        // Two different documents at least: a lone one is quoted as it is.
        inputs.extend(["first", "second"].map(|name| live(name, only_group(name))));
        let merged = merge(&inputs).groups;
        let names: BTreeSet<_> = merged.items().iter().map(|group| &group.name).collect();
        prop_assert_eq!(names.len(), merged.items().len());
    }

    #[test]
    fn a_crashed_server_among_equals_stales_nothing(groups in document(), others in inputs(), crashed in 0..3_usize) {
        let mut inputs: Vec<_> = (0..3).map(|server| live(&format!("equal-{server}"), groups.clone())).collect();
        inputs.extend(others);
        let before = merge(&inputs);
        inputs[crashed].standing = Standing::Stale;
        prop_assert_eq!(text(&merge(&inputs).groups), text(&before.groups));
    }

    #[test]
    fn a_version_is_stale_exactly_if_no_live_server_serves_any_of_it(inputs in inputs().prop_map(tidied)) {
        for (group, version) in merge(&inputs).groups.versions() {
            let serves = |input: &Input, candidate: &Version| {
                input.standing == Standing::Current
                    && candidate.freshness != Freshness::Stale
                    && (version.resources.is_empty() || !candidate.resources.is_empty())
            };
            let is_served = inputs.iter().any(|input| {
                let versions = input.groups.versions().filter(|(g, v)| g.name == group.name && v.name == version.name);
                versions.into_iter().any(|(_, candidate)| serves(input, candidate))
            });
            prop_assert_eq!(version.freshness == Freshness::Stale, !is_served, "{}/{}", group.name, version.name);
        }
    }

    #[test]
    fn who_crashes_changes_freshness_and_nothing_else_but_conflicts(inputs in inputs()) {
        let standing = |standing| inputs.iter().cloned().map(|input| Input { standing, ..input }).collect::<Vec<_>>();
        let [live, stale] = [Standing::Current, Standing::Stale].map(|all| merge(&standing(all)).groups);
        prop_assert_eq!(entries(&live), entries(&stale));
        prop_assert!(stale.versions().all(|(_, version)| version.freshness == Freshness::Stale));
    }

    #[test]
    fn conflicts_name_every_value_once(inputs in inputs()) {
        for conflict in merge(&inputs).conflicts {
            let values: BTreeSet<_> = conflict.claims.iter().map(|claim| &claim.value).collect();
            prop_assert!(values.len() >= 2 && values.len() == conflict.claims.len(), "{conflict}");
        }
    }

    #[test]
    fn what_is_written_is_read_back(groups in document(), version in select(vec![AggregatedVersion::V2, AggregatedVersion::V2Beta1])) {
        let written = aggregated::json(&groups, version);
        let read = parse_aggregated(&written.identity).unwrap();
        prop_assert_eq!(read.items(), groups.items());
        prop_assert_eq!(aggregated::json(&read, version).identity, written.identity);
    }
}

/// Without what is listed twice: a server may then contradict itself, and is quoted as it is if nobody else speaks.
fn tidied(inputs: Vec<Input>) -> Vec<Input> {
    let tidy = |input: Input| {
        let mut names = BTreeSet::new();
        let mut groups = input.groups.items().to_vec();
        groups.retain(|group| names.insert(group.name.clone()));
        for group in &mut groups {
            let mut names = BTreeSet::new();
            Arc::make_mut(group).versions.retain(|version| names.insert(version.name.clone()));
        }
        Input { groups: Arc::new(Groups::new(groups)), ..input }
    };
    inputs.into_iter().map(tidy).collect()
}

fn text(groups: &Groups) -> String {
    String::from_utf8(aggregated::json(groups, AggregatedVersion::V2).identity.to_vec()).unwrap()
}

fn live(server: &str, groups: Arc<Groups>) -> Input {
    Input { server: server.into(), standing: Standing::Current, groups }
}

fn only_group(name: &str) -> Arc<Groups> {
    let group = Group { name: name.into(), creation_timestamp: CreationTimestamp::Absent, versions: Vec::new() };
    Arc::new(Groups::new(vec![Arc::new(group)]))
}

/// Everything that a document lists, one path each, down to the verbs.
fn entries(groups: &Groups) -> BTreeSet<String> {
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

fn verbs(place: &str, verbs: Option<&Names>) -> Vec<String> {
    let verbs = verbs.iter().flat_map(|verbs| verbs.iter()).map(|verb| format!("{place} {verb}"));
    verbs.chain([place.to_owned()]).collect()
}

/// A server, one of a pool of documents, and how the server stands.
fn place() -> impl Strategy<Value = (usize, usize, Standing)> {
    (0..4_usize, any::<usize>(), select(vec![Standing::Current, Standing::Stale]))
}

fn inputs() -> impl Strategy<Value = Vec<Input>> {
    let standing = select(vec![Standing::Current, Standing::Current, Standing::Stale]);
    vec((standing, document()), 1..5).prop_map(|inputs| {
        let servers = inputs.into_iter().enumerate();
        servers.map(|(at, (standing, groups))| Input { server: format!("s{at}").into(), standing, groups }).collect()
    })
}

/// Few names, so that documents meet; now and then one listed twice.
fn document() -> impl Strategy<Value = Arc<Groups>> {
    vec(group(), 0..5).prop_map(|groups| Arc::new(Groups::new(groups.into_iter().map(Arc::new).collect())))
}

fn group() -> impl Strategy<Value = Group> {
    let timestamp = select(vec![CreationTimestamp::Absent, CreationTimestamp::Null]);
    (name(&["", "apps", "batch", "z.io", "a<b>&"]), timestamp, vec(version(), 0..4))
        .prop_map(|(name, creation_timestamp, versions)| Group { name, creation_timestamp, versions })
}

fn version() -> impl Strategy<Value = Version> {
    let other = Freshness::Other("Ripe".into());
    let freshness = select(vec![Freshness::Current, Freshness::Current, Freshness::Stale, Freshness::Unstated, other]);
    (name(&["v1", "v2", "v1beta1", "v1alpha1", "odd"]), vec(resource().prop_map(Arc::new), 0..4), freshness)
        .prop_map(|(name, resources, freshness)| Version { name, resources, freshness })
}

fn resource() -> impl Strategy<Value = Resource> {
    let scope = select(vec![Scope::Cluster, Scope::Namespaced, Scope::Other("".into()), Scope::Other("Galaxy".into())]);
    let names = (name(&["pods", "jobs", "things", "wörter"]), name(&["", "pod", "job"]));
    let lists = (option::of(names_of(&["get", "list", "watch"])), names_of(&["po", "jo"]), names_of(&["all", "x"]));
    (names, option::of(kind()), scope, lists, vec(subresource(), 0..3)).prop_map(
        |((name, singular), response_kind, scope, (verbs, short_names, categories), subresources)| Resource {
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

fn subresource() -> impl Strategy<Value = Subresource> {
    (name(&["status", "scale", "log"]), option::of(kind()), vec(kind(), 0..3), option::of(names_of(&["get", "patch"])))
        .prop_map(|(name, response_kind, accepted_types, verbs)| Subresource {
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

fn names_of(texts: &'static [&'static str]) -> impl Strategy<Value = Names> {
    vec(name(texts), 0..4).prop_map(Names::from)
}

fn name(texts: &'static [&'static str]) -> impl Strategy<Value = Name> {
    select(texts).prop_map(Name::from)
}

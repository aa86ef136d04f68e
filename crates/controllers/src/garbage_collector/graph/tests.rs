use expect_test::{Expect, expect};
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

use super::*;
use crate::resources::tests::parse_resources;

/// A graph that is driven by text.
struct GraphFixture {
    graph: OwnerGraph,
    config_maps: Arc<DiscoveredResource>,
    nodes: Arc<DiscoveredResource>,
}

/// Parses `name@namespace` or `name`, followed by words: `<owner` for an owner, `<!owner` for a blocking one;
/// `deleting`, `orphan`, `foreground`.
fn parse_metadata(text: &str) -> ObservedMetadata {
    let mut words = text.split(' ');
    let (name, namespace) = words.next().unwrap().split_once('@').unwrap_or((text.split(' ').next().unwrap(), ""));
    let mut metadata = ObservedMetadata {
        name: name.into(),
        namespace: namespace.into(),
        uid: name.into(),
        ..ObservedMetadata::default()
    };
    for word in words {
        match word.strip_prefix('<') {
            Some(owner) => metadata.owner_references.push(ObservedOwnerReference {
                api_version: "v1".into(),
                kind: "ConfigMap".into(),
                name: owner.trim_start_matches('!').into(),
                uid: owner.trim_start_matches('!').into(),
                block_owner_deletion: owner.starts_with('!').then_some(true),
            }),
            None => {
                metadata.is_deleting = true;
                match word {
                    "orphan" => metadata.finalizers.push(FINALIZER_ORPHAN.into()),
                    "foreground" => metadata.finalizers.push(FINALIZER_FOREGROUND.into()),
                    _ => {}
                }
            }
        }
    }
    metadata
}

impl GraphFixture {
    fn new() -> Self {
        let all = parse_resources(&["v1 configmaps ConfigMap ns list,delete", "v1 nodes Node cluster list,delete"]);
        Self { graph: OwnerGraph::default(), config_maps: all.all()[0].clone(), nodes: all.all()[1].clone() }
    }

    #[track_caller]
    fn apply(&mut self, text: &str, expected: &Expect) {
        let tasks = match text.strip_prefix("- ") {
            Some(uid) => self.graph.remove(&uid.into()),
            None => {
                let metadata = parse_metadata(text);
                let resource = if metadata.namespace.is_empty() { &self.nodes } else { &self.config_maps };
                self.graph.observe(&resource.clone(), &metadata)
            }
        };
        let told: Vec<String> = tasks
            .iter()
            .map(|task| match task {
                GarbageTask::Examine(uid) => format!("examine {uid}"),
                GarbageTask::Orphan(uid) => format!("orphan {uid}"),
                GarbageTask::ReportMisplacedOwner { dependent, owner } => {
                    format!("report {dependent} of {}", owner.uid)
                }
            })
            .collect();
        expected.assert_eq(&told.join(", "));
    }
}

#[test]
fn deleted_owner_enqueues_its_dependents() {
    let mut world = GraphFixture::new();
    world.apply("owner@n", &expect![""]);
    world.apply("a@n <owner", &expect![""]);
    world.apply("b@n <owner", &expect![""]);
    world.apply("owner@n deleting", &expect![""]);
    world.apply("- owner", &expect!["examine a, examine b"]);
    world.apply("- a", &expect![""]);
    world.apply("late@n <owner", &expect!["examine late"]);
    world.apply("- b", &expect![""]);
    world.apply("- late", &expect![""]);
    assert_eq!(world.graph.len(), 0, "unreferenced deleted objects are removed");
}

#[test]
fn referenced_unseen_owner_is_examined() {
    let mut world = GraphFixture::new();
    world.apply("a@n <owner", &expect!["examine owner"]);
    world.apply("b@n <owner", &expect![""]);
    world.apply("owner@n", &expect![""]);
    world.apply("a@n", &expect![""]);
    world.apply("b@n", &expect![""]);
    world.apply("c@n <missing", &expect!["examine missing"]);
    world.apply("- missing", &expect!["examine c"]);
    world.apply("c@n", &expect![""]);
    assert_eq!(world.graph.len(), 4, "the unreferenced owner is removed");
}

#[test]
fn foreground_deletion_enqueues_dependents_then_owner() {
    let mut world = GraphFixture::new();
    world.apply("owner@n", &expect![""]);
    world.apply("a@n <!owner", &expect![""]);
    world.apply("b@n <owner", &expect![""]);
    world.apply("owner@n foreground", &expect!["examine a, examine b, examine owner"]);
    let blocking = |world: &GraphFixture| {
        world.graph.blocking_dependents(&"owner".into()).map(|(uid, _)| uid.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(blocking(&world), ["a"]);
    world.apply("owner@n foreground", &expect![""]);
    world.apply("late@n <!owner", &expect!["examine late"]);
    world.apply("late@n <owner", &expect!["examine owner, examine late"]);
    world.apply("- a", &expect!["examine owner"]);
    assert!(blocking(&world).is_empty());
}

#[test]
fn orphan_deletion_enqueues_orphan_task_once() {
    let mut world = GraphFixture::new();
    world.apply("owner@n", &expect![""]);
    world.apply("a@n <owner", &expect![""]);
    world.apply("owner@n orphan", &expect!["orphan owner"]);
    world.apply("owner@n orphan", &expect![""]);
    world.apply("a@n", &expect![""]);
    world.apply("- owner", &expect![""]);
}

#[test]
fn initial_list_resumes_pending_deletions() {
    let mut world = GraphFixture::new();
    world.apply("a@n <!owner", &expect!["examine owner"]);
    world.apply("owner@n foreground", &expect!["examine a, examine owner"]);
    world.apply("other@n orphan", &expect!["orphan other"]);
}

#[test]
fn cross_namespace_owner_reference_is_reported() {
    let mut world = GraphFixture::new();
    world.apply("owner@n", &expect![""]);
    world.apply("a@elsewhere <owner", &expect!["report a of owner, examine a"]);
    world.apply("b@elsewhere <later", &expect!["examine later"]);
    world.apply("later@n", &expect!["report b of later, examine b"]);
    world.apply("node <owner", &expect!["report node of owner, examine node"]);
    world.apply("node2", &expect![""]);
    world.apply("wrong-kind@n <node2", &expect!["examine wrong-kind"]);
}

#[test]
fn owner_cycles_are_handled() {
    let mut world = GraphFixture::new();
    world.apply("a@n <b", &expect!["examine b"]);
    world.apply("b@n <a", &expect![""]);
    world.apply("self@n <self", &expect![""]);
    world.apply("a@n <b foreground", &expect!["examine b, examine a"]);
    world.apply("- a", &expect!["examine b"]);
    world.apply("- self", &expect!["examine self"]);
}

#[test]
fn unlisted_objects_returns_objects_missing_from_list() {
    let mut world = GraphFixture::new();
    world.apply("a@n", &expect![""]);
    world.apply("b@n <named", &expect!["examine named"]);
    world.apply("node", &expect![""]);
    let missing = world.graph.unlisted_objects(&world.config_maps, &HashSet::from(["a".into()]));
    assert_eq!(missing, ["b".into()]);
}

/// A deletion, or one of six objects with owners among them.
fn any_object() -> impl Strategy<Value = Option<(usize, Vec<usize>, bool)>> {
    proptest::option::weighted(0.7, (0..6_usize, proptest::collection::vec(0..6_usize, 0..4), proptest::bool::ANY))
}

proptest! {
    #[test]
    fn owner_and_dependent_links_stay_symmetric(changes in proptest::collection::vec((0..6_usize, any_object()), 1..60)) {
        let mut world = GraphFixture::new();
        let mut live: HashMap<Uid, Vec<Uid>> = HashMap::new();
        for (at, change) in changes {
            match change {
                Some((name, owners, is_foreground)) => {
                    let words: String = owners.iter().map(|owner| format!(" <!o{owner}")).collect();
                    let mut metadata = parse_metadata(&format!("o{name}@n{words}"));
                    metadata.is_deleting = is_foreground;
                    metadata.finalizers = vec![FINALIZER_FOREGROUND.into()];
                    world.graph.observe(&world.config_maps.clone(), &metadata);
                    live.insert(metadata.uid, owners.iter().map(|owner| format!("o{owner}").into()).collect());
                }
                None => {
                    let uid: Uid = format!("o{at}").into();
                    world.graph.remove(&uid);
                    live.remove(&uid);
                }
            }
            check_links(&world.graph, &live)?;
        }
        for uid in live.keys() {
            world.graph.remove(uid);
        }
        prop_assert_eq!(world.graph.len(), 0, "deleted objects leave no nodes");
    }
}

fn check_links(graph: &OwnerGraph, live: &HashMap<Uid, Vec<Uid>>) -> Result<(), TestCaseError> {
    for (uid, owners) in live {
        let is_seen = matches!(graph.nodes[uid].state, NodeState::Observed { .. });
        prop_assert!(is_seen, "{} is not observed", uid);
        for owner in owners {
            prop_assert!(graph.nodes[owner].dependents.contains(uid), "{} lacks its dependent {}", owner, uid);
        }
    }
    for (uid, node) in &graph.nodes {
        let is_seen = matches!(node.state, NodeState::Observed { .. });
        prop_assert_eq!(is_seen, live.contains_key(uid), "{}", uid);
        prop_assert!(is_seen || !node.dependents.is_empty(), "{} has no dependents", uid);
        for dependent in &node.dependents {
            prop_assert!(
                live.get(dependent).is_some_and(|owners| owners.contains(uid)),
                "{} does not refer to {}",
                dependent,
                uid
            );
        }
    }
    Ok(())
}

use expect_test::{Expect, expect};
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

use super::*;
use crate::resources::tests::resources;

/// A graph that is told things in words.
struct World {
    graph: Graph,
    maps: Arc<Resource>,
    nodes: Arc<Resource>,
}

/// `name@namespace` or `name`, then words: `<owner` is owned by, `<!owner` blocking; `deleting`, `orphan`, `foreground`.
fn metadata(text: &str) -> Metadata {
    let mut words = text.split(' ');
    let (name, namespace) = words.next().unwrap().split_once('@').unwrap_or((text.split(' ').next().unwrap(), ""));
    let mut metadata =
        Metadata { name: name.into(), namespace: namespace.into(), uid: name.into(), ..Metadata::default() };
    for word in words {
        match word.strip_prefix('<') {
            Some(owner) => metadata.owner_references.push(OwnerReference {
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

impl World {
    fn new() -> Self {
        let all = resources(&["v1 configmaps ConfigMap ns list,delete", "v1 nodes Node cluster list,delete"]);
        Self { graph: Graph::default(), maps: all.all()[0].clone(), nodes: all.all()[1].clone() }
    }

    #[track_caller]
    fn tell(&mut self, text: &str, expected: &Expect) {
        let tasks = match text.strip_prefix("- ") {
            Some(uid) => self.graph.forget(&uid.into()),
            None => {
                let metadata = metadata(text);
                let resource = if metadata.namespace.is_empty() { &self.nodes } else { &self.maps };
                self.graph.observe(&resource.clone(), &metadata)
            }
        };
        let told: Vec<String> = tasks
            .iter()
            .map(|task| match task {
                Task::Examine(uid) => format!("examine {uid}"),
                Task::Orphan(uid) => format!("orphan {uid}"),
                Task::Report { dependent, owner } => format!("report {dependent} of {}", owner.uid),
            })
            .collect();
        expected.assert_eq(&told.join(", "));
    }
}

#[test]
fn when_an_owner_goes_its_dependents_are_examined() {
    let mut world = World::new();
    world.tell("owner@n", &expect![""]);
    world.tell("a@n <owner", &expect![""]);
    world.tell("b@n <owner", &expect![""]);
    world.tell("owner@n deleting", &expect![""]);
    world.tell("- owner", &expect!["examine a, examine b"]);
    world.tell("- a", &expect![""]);
    world.tell("late@n <owner", &expect!["examine late"]);
    world.tell("- b", &expect![""]);
    world.tell("- late", &expect![""]);
    assert_eq!(world.graph.len(), 0, "what nobody names is forgotten");
}

#[test]
fn an_owner_that_is_only_named_is_looked_for() {
    let mut world = World::new();
    world.tell("a@n <owner", &expect!["examine owner"]);
    world.tell("b@n <owner", &expect![""]);
    world.tell("owner@n", &expect![""]);
    world.tell("a@n", &expect![""]);
    world.tell("b@n", &expect![""]);
    world.tell("c@n <nobody", &expect!["examine nobody"]);
    world.tell("- nobody", &expect!["examine c"]);
    world.tell("c@n", &expect![""]);
    assert_eq!(world.graph.len(), 4, "nobody is no longer there");
}

#[test]
fn foreground_deletion_wakes_dependents_and_each_of_them_wakes_the_owner() {
    let mut world = World::new();
    world.tell("owner@n", &expect![""]);
    world.tell("a@n <!owner", &expect![""]);
    world.tell("b@n <owner", &expect![""]);
    world.tell("owner@n foreground", &expect!["examine a, examine b, examine owner"]);
    let blocking =
        |world: &World| world.graph.blocking(&"owner".into()).map(|(uid, _)| uid.to_string()).collect::<Vec<_>>();
    assert_eq!(blocking(&world), ["a"]);
    world.tell("owner@n foreground", &expect![""]);
    world.tell("late@n <!owner", &expect!["examine late"]);
    world.tell("late@n <owner", &expect!["examine owner, examine late"]);
    world.tell("- a", &expect!["examine owner"]);
    assert!(blocking(&world).is_empty());
}

#[test]
fn orphaning_begins_once() {
    let mut world = World::new();
    world.tell("owner@n", &expect![""]);
    world.tell("a@n <owner", &expect![""]);
    world.tell("owner@n orphan", &expect!["orphan owner"]);
    world.tell("owner@n orphan", &expect![""]);
    world.tell("a@n", &expect![""]);
    world.tell("- owner", &expect![""]);
}

#[test]
fn after_a_restart_deletions_under_way_are_taken_up() {
    let mut world = World::new();
    world.tell("a@n <!owner", &expect!["examine owner"]);
    world.tell("owner@n foreground", &expect!["examine a, examine owner"]);
    world.tell("other@n orphan", &expect!["orphan other"]);
}

#[test]
fn a_reference_into_another_namespace_is_reported() {
    let mut world = World::new();
    world.tell("owner@n", &expect![""]);
    world.tell("a@elsewhere <owner", &expect!["report a of owner, examine a"]);
    world.tell("b@elsewhere <later", &expect!["examine later"]);
    world.tell("later@n", &expect!["report b of later, examine b"]);
    world.tell("node <owner", &expect!["report node of owner, examine node"]);
    world.tell("node2", &expect![""]);
    world.tell("wrong-kind@n <node2", &expect!["examine wrong-kind"]);
}

#[test]
fn circles_are_no_trouble() {
    let mut world = World::new();
    world.tell("a@n <b", &expect!["examine b"]);
    world.tell("b@n <a", &expect![""]);
    world.tell("self@n <self", &expect![""]);
    world.tell("a@n <b foreground", &expect!["examine b, examine a"]);
    world.tell("- a", &expect!["examine b"]);
    world.tell("- self", &expect!["examine self"]);
}

#[test]
fn a_list_tells_what_is_missing_from_it() {
    let mut world = World::new();
    world.tell("a@n", &expect![""]);
    world.tell("b@n <named", &expect!["examine named"]);
    world.tell("node", &expect![""]);
    let missing = world.graph.missing(&world.maps, &HashSet::from(["a".into()]));
    assert_eq!(missing, ["b".into()]);
}

/// An object of a few, with owners among them.
fn any_object() -> impl Strategy<Value = Option<(usize, Vec<usize>, bool)>> {
    proptest::option::weighted(0.7, (0..6_usize, proptest::collection::vec(0..6_usize, 0..4), proptest::bool::ANY))
}

proptest! {
    #[test]
    fn owners_and_dependents_always_name_each_other(changes in proptest::collection::vec((0..6_usize, any_object()), 1..60)) {
        let mut world = World::new();
        let mut live: HashMap<Uid, Vec<Uid>> = HashMap::new();
        for (at, change) in changes {
            match change {
                Some((name, owners, is_foreground)) => {
                    let words: String = owners.iter().map(|owner| format!(" <!o{owner}")).collect();
                    let mut metadata = metadata(&format!("o{name}@n{words}"));
                    metadata.is_deleting = is_foreground;
                    metadata.finalizers = vec![FINALIZER_FOREGROUND.into()];
                    world.graph.observe(&world.maps.clone(), &metadata);
                    live.insert(metadata.uid, owners.iter().map(|owner| format!("o{owner}").into()).collect());
                }
                None => {
                    let uid: Uid = format!("o{at}").into();
                    world.graph.forget(&uid);
                    live.remove(&uid);
                }
            }
            check_links(&world.graph, &live)?;
        }
        for uid in live.keys() {
            world.graph.forget(uid);
        }
        prop_assert_eq!(world.graph.len(), 0, "nothing is left of objects that are gone");
    }
}

fn check_links(graph: &Graph, live: &HashMap<Uid, Vec<Uid>>) -> Result<(), TestCaseError> {
    for (uid, owners) in live {
        let is_seen = matches!(graph.nodes[uid].sight, Sight::Seen { .. });
        prop_assert!(is_seen, "{} is there", uid);
        for owner in owners {
            prop_assert!(graph.nodes[owner].dependents.contains(uid), "{} does not know of {}", owner, uid);
        }
    }
    for (uid, node) in &graph.nodes {
        let is_seen = matches!(node.sight, Sight::Seen { .. });
        prop_assert_eq!(is_seen, live.contains_key(uid), "{}", uid);
        prop_assert!(is_seen || !node.dependents.is_empty(), "nobody names {}", uid);
        for dependent in &node.dependents {
            prop_assert!(live.get(dependent).is_some_and(|owners| owners.contains(uid)), "{} names {}", dependent, uid);
        }
    }
    Ok(())
}

use std::collections::BTreeMap;

use api::media::AggregatedVersion;
use discovery::{DiscoveryScope, GroupDiscoveryList, ResourceDiscovery};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::*;
use crate::exclusion::{DELETED_GRACE_PERIOD, ExclusionManager};
use crate::routing_table::tests::describe;
use crate::testing::{
    defined_resources_from_notation, server_document_from_notation, server_id, view_inputs_from_notation,
};

/// An event in a cluster. Numbers select from pools, modulo their size.
#[derive(Clone, Debug)]
enum ClusterEvent {
    /// A server joins, or changes its document or state.
    Member {
        server: usize,
        state: MemberState,
        document: usize,
    },
    Gone {
        server: usize,
    },
    /// This server serves something else.
    Local {
        document: usize,
    },
    Definitions {
        exclusion: usize,
    },
    /// A client requests the merged document.
    MergedRequested,
}

fn any_event() -> impl Strategy<Value = ClusterEvent> {
    let state = select(vec![
        MemberState::Live,
        MemberState::Live,
        MemberState::Suspect,
        MemberState::Left,
        MemberState::Unknown,
    ]);
    prop_oneof![
        6 => (0..5_usize, state, any::<usize>()).prop_map(|(server, state, document)| ClusterEvent::Member { server, state, document }),
        2 => (0..5_usize).prop_map(|server| ClusterEvent::Gone { server }),
        1 => any::<usize>().prop_map(|document| ClusterEvent::Local { document }),
        1 => any::<usize>().prop_map(|exclusion| ClusterEvent::Definitions { exclusion }),
        2 => Just(ClusterEvent::MergedRequested),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn incrementally_built_view_equals_view_built_from_scratch(events in vec(any_event(), 1..20)) {
        let (documents, exclusions) = (documents(), exclusions());
        let template = view_inputs_from_notation("b live: a/v1 xs:get");
        let mut members: BTreeMap<usize, Member> = BTreeMap::new();
        let mut now = ViewInputs { members: Arc::default(), ..template.clone() };
        let mut view = View::new(now.clone(), None);
        for event in events {
            match event {
                ClusterEvent::Member { server: number, state, document } => {
                    let mut member = Member { server: server_id(&number.to_string()), state, ..template.members[0].clone() };
                    if let Some(known) = &mut member.document {
                        known.stored.document = documents[document % documents.len()].clone();
                    }
                    members.insert(number, member);
                }
                ClusterEvent::Gone { server } => drop(members.remove(&server)),
                ClusterEvent::Local { document } => now.local_document = documents[document % documents.len()].clone(),
                ClusterEvent::Definitions { exclusion } => now.exclusion = exclusions[exclusion % exclusions.len()].clone(),
                ClusterEvent::MergedRequested => {
                    let [next, at_once] = [&view, &View::new(now.clone(), None)]
                        .map(|view| view.merged_documents().json(AggregatedVersion::V2).identity.clone());
                    prop_assert_eq!(next, at_once);
                }
            }
            now.members = members.values().cloned().collect();
            view = View::new(now.clone(), Some(&view));
            prop_assert_eq!(describe_view(&view), describe_view(&View::new(now.clone(), None)));
        }
    }
}

/// Everything that is derived from the inputs of a view. Does not encode a merged document that was not requested.
fn describe_view(view: &View) -> String {
    let merged = view.merged_documents();
    let conflicts: Vec<_> = merged.conflicts().iter().map(ToString::to_string).collect();
    let beta = merged.json(AggregatedVersion::V2Beta1);
    let table = describe(view.routing_table());
    format!("{table}{}\n{:?}\n{}", conflicts.join("\n"), beta.etag, String::from_utf8_lossy(&beta.identity))
}

/// Documents that relate in every way: equal in other memory, parts of each other, in other orders, in conflict.
fn documents() -> Vec<Arc<ServerDocument>> {
    let notations = [
        "v1 pods:get,list ?pods/exec:create | a/v1 xs:get ys:get | b/v1 zs:get",
        "v1 pods:get,list ?pods/exec:create | a/v1 xs:get ys:get | b/v1 zs:get",
        "v1 pods:get pods/exec:create | a/v1 ys:get,list xs:get | a/v2 xs:get",
        "b/v1 zs:get | a/v1 xs:list xs:get | c/v1!",
        "c/v1 ws:get ws/status:get,patch",
        "",
    ];
    let mut documents: Vec<_> = notations.map(|notation| Arc::new(server_document_from_notation(notation))).into();
    let of_cluster = documents[0].apis().filter_map_groups(|group| {
        let mut group = (**group).clone();
        for resource in group.versions.iter_mut().flat_map(|version| &mut version.resources) {
            *resource = Arc::new(ResourceDiscovery { scope: DiscoveryScope::Cluster, ..(**resource).clone() });
        }
        Some(Arc::new(group))
    });
    documents.push(Arc::new(ServerDocument::new(Arc::new(GroupDiscoveryList::new(Vec::new())), Arc::new(of_cluster))));
    documents
}

fn exclusions() -> Vec<Arc<Exclusion>> {
    let struck = |names: &str| {
        ExclusionManager::new(DELETED_GRACE_PERIOD)
            .observe(&Arc::new(defined_resources_from_notation(names)), tokio::time::Instant::now())
    };
    vec![Exclusion::empty(), struck("a/v1/xs"), struck("a/v1/xs c/v1"), struck("b/v1/zs")]
}

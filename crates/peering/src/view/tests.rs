use std::collections::BTreeMap;

use api::media::AggregatedVersion;
use discovery::{Groups, Resource, Scope};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::*;
use crate::exclusion::{Definitions, GRACE};
use crate::table::tests::show;
use crate::testing::{inputs, server, server_document, shared_names};

/// What happens in a cluster. Numbers are taken from pools, whatever their size.
#[derive(Clone, Debug)]
enum Event {
    /// A server joins, changes its document, or stands otherwise than before.
    Member {
        server: usize,
        state: State,
        document: usize,
    },
    Gone {
        server: usize,
    },
    /// We ourselves serve something else.
    Local {
        document: usize,
    },
    Definitions {
        exclusion: usize,
    },
    /// A client wants the merged document.
    Asked,
}

fn event() -> impl Strategy<Value = Event> {
    let state = select(vec![State::Live, State::Live, State::Suspect, State::Left, State::Unknown]);
    prop_oneof![
        6 => (0..5_usize, state, any::<usize>()).prop_map(|(server, state, document)| Event::Member { server, state, document }),
        2 => (0..5_usize).prop_map(|server| Event::Gone { server }),
        1 => any::<usize>().prop_map(|document| Event::Local { document }),
        1 => any::<usize>().prop_map(|exclusion| Event::Definitions { exclusion }),
        2 => Just(Event::Asked),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn a_view_after_others_is_the_view_of_its_inputs(events in vec(event(), 1..20)) {
        let (documents, exclusions) = (documents(), exclusions());
        let template = inputs("b live: a/v1 xs:get");
        let mut members: BTreeMap<usize, Member> = BTreeMap::new();
        let mut now = Inputs { members: Arc::default(), ..template.clone() };
        let mut view = View::new(now.clone(), None);
        for event in events {
            match event {
                Event::Member { server: number, state, document } => {
                    let mut member = Member { server: server(&number.to_string()), state, ..template.members[0].clone() };
                    if let Some(known) = &mut member.document {
                        known.stored.document = documents[document % documents.len()].clone();
                    }
                    members.insert(number, member);
                }
                Event::Gone { server } => drop(members.remove(&server)),
                Event::Local { document } => now.local = documents[document % documents.len()].clone(),
                Event::Definitions { exclusion } => now.exclusion = exclusions[exclusion % exclusions.len()].clone(),
                Event::Asked => {
                    let [next, at_once] = [&view, &View::new(now.clone(), None)]
                        .map(|view| view.merged().json(AggregatedVersion::V2).identity.clone());
                    prop_assert_eq!(next, at_once);
                }
            }
            now.members = members.values().cloned().collect();
            view = View::new(now.clone(), Some(&view));
            prop_assert_eq!(text(&view), text(&View::new(now.clone(), None)));
        }
    }
}

/// All that follows from the inputs of a view. Leaves the merged document in JSON unmade where nobody asked for it.
fn text(view: &View) -> String {
    let merged = view.merged();
    let conflicts: Vec<_> = merged.conflicts().iter().map(ToString::to_string).collect();
    let beta = merged.json(AggregatedVersion::V2Beta1);
    let table = show(view.table());
    format!("{table}{}\n{:?}\n{}", conflicts.join("\n"), beta.etag, String::from_utf8_lossy(&beta.identity))
}

/// Documents that meet in every way: equal in other memory, parts of each other, in other orders, in conflict.
fn documents() -> Vec<Arc<ServerDocument>> {
    let notations = [
        "v1 pods:get,list ?pods/exec:create | a/v1 xs:get ys:get | b/v1 zs:get",
        "v1 pods:get,list ?pods/exec:create | a/v1 xs:get ys:get | b/v1 zs:get",
        "v1 pods:get pods/exec:create | a/v1 ys:get,list xs:get | a/v2 xs:get",
        "b/v1 zs:get | a/v1 xs:list xs:get | c/v1!",
        "c/v1 ws:get ws/status:get,patch",
        "",
    ];
    let mut documents: Vec<_> = notations.map(|notation| Arc::new(server_document(notation))).into();
    let of_cluster = documents[0].apis().map(|group| {
        let mut group = (**group).clone();
        for resource in group.versions.iter_mut().flat_map(|version| &mut version.resources) {
            *resource = Arc::new(Resource { scope: Scope::Cluster, ..(**resource).clone() });
        }
        Some(Arc::new(group))
    });
    documents.push(Arc::new(ServerDocument::new(Arc::new(Groups::new(Vec::new())), Arc::new(of_cluster))));
    documents
}

fn exclusions() -> Vec<Arc<Exclusion>> {
    let struck = |names: &str| Definitions::new(GRACE).see(&Arc::new(shared_names(names)), tokio::time::Instant::now());
    vec![Exclusion::none(), struck("a/v1/xs"), struck("a/v1/xs c/v1"), struck("b/v1/zs")]
}

use proptest::prelude::*;

use super::*;
use crate::testing::{view_from_notation, view_inputs_from_notation};
use crate::view::Peering;

/// A request such as `GET /apis/batch/v1/jobs`, with ` (forwarded)` or ` (proven)` behind it.
fn route_request(request: &str, view: &View) -> String {
    let (line, mark) = request.split_once(" (").unwrap_or((request, ""));
    let (method, path) = line.split_once(' ').unwrap();
    let target = Target::parse(method, path).unwrap();
    let hop = if mark == "forwarded)" { Hop::FromPeer } else { Hop::FromClient };
    let proof = if mark == "proven)" { AbsenceProof::CaughtUp } else { AbsenceProof::NotRequested };
    match route(&target, hop, view, proof) {
        Route::Peers(peers) => {
            let names = peers.iter().map(|peer| view.member(*peer).server.as_str().trim_start_matches("apiserver-"));
            format!("peers {}", names.collect::<Vec<_>>().join(" "))
        }
        Route::Local(why) => format!("here {why:?}"),
        Route::RouteMismatch(PeerRouteMismatch { mismatch, may_be_built_in, live }) => {
            let peers = live.iter().flat_map(|live| live.iter());
            let names = peers.map(|peer| view.member(*peer).server.as_str().trim_start_matches("apiserver-"));
            let refused = if may_be_built_in { "refused" } else { "doubted" };
            [&format!("{refused} {mismatch:?}")]
                .into_iter()
                .map(String::as_str)
                .chain(names)
                .collect::<Vec<_>>()
                .join(" ")
        }
        Route::Unavailable(why) => format!("503 {why:?}"),
        Route::ProveAbsence => "prove".to_owned(),
    }
}

#[track_caller]
fn check(request: &str, cluster: &str, expected: &str) {
    assert_eq!(route_request(request, &view_from_notation(cluster)), expected, "{request} in {cluster}");
}

#[test]
fn rule_1_non_resource_request_is_local() {
    let cluster = "here: v1 pods:get; b live: batch/v1 jobs:get; c unknown; pending";
    for path in ["/", "/api", "/apis", "/apis/batch", "/apis/batch/v1", "/healthz", "/openapi/v3", "/nonsense"] {
        check(&format!("GET {path}"), cluster, "here NotAResource");
        check(&format!("GET {path} (forwarded)"), cluster, "here NotAResource");
    }
}

#[test]
fn rule_2_forwarded_request_is_local_or_503() {
    let cluster = "here: v1 pods:get,list; b live: batch/v1 jobs:get,list | v1 pods:get,patch; c unknown";
    check("GET /api/v1/namespaces/x/pods (forwarded)", cluster, "here ServedHere");
    check("GET /apis/batch/v1/jobs (forwarded)", cluster, "503 ForwardedButNotServed");
    check("GET /apis/example.com/v1/xs (forwarded)", cluster, "503 ForwardedButNotServed");
    check("GET /api/v1/namespaces/x/pods/y/exec (forwarded)", cluster, "503 ForwardedButNotServed");
    // Another member has the verb, but there is no second hop; if no member has it, this server answers.
    check("PATCH /api/v1/namespaces/x/pods/y (forwarded)", cluster, "503 ForwardedButNotServed");
    check("DELETE /api/v1/namespaces/x/pods/y (forwarded)", cluster, "here VerbServedNowhere");
}

#[test]
fn rule_3_locally_served_request_is_local() {
    let cluster = "here: v1 pods:get,list,watch,create; b live: v1 pods:get,list,watch,create; c unknown; pending";
    for request in [
        "GET /api/v1/pods",
        "GET /api/v1/pods?watch=true",
        "GET /api/v1/watch/pods",
        "GET /api/v1/namespaces/x/pods/y",
        "POST /api/v1/namespaces/x/pods",
    ] {
        check(request, cluster, "here ServedHere");
    }
}

#[test]
fn rule_3_missing_verb_goes_to_peers_that_have_it() {
    let here = "here: v1 pods:get,list";
    let patch = "PATCH /api/v1/namespaces/x/pods/y";
    check(patch, here, "here VerbServedNowhere");
    check(patch, &format!("{here}; b live: v1 pods:get"), "here VerbServedNowhere");
    check(patch, &format!("{here}; b live: v1 pods:get,patch; c live: v1 pods:get"), "peers b");
    check(patch, &format!("{here}; b suspect: v1 pods:patch; c live: v1 pods:get"), "503 OnlyUnreachableMembers");
    check(patch, &format!("{here}; c unknown"), "here VerbServedNowhere");
    check("DELETE /api/v1/namespaces/x/pods", &format!("{here}; b live: v1 pods:deletecollection"), "peers b");
    check(
        "DELETE /api/v1/namespaces/x/pods/y",
        &format!("{here}; b live: v1 pods:deletecollection"),
        "here VerbServedNowhere",
    );
    check("GET /api/v1/pods?watch=1", &format!("{here}; b live: v1 pods:watch"), "peers b");
    check("OPTIONS /api/v1/pods", here, "here RouteMismatch");
}

#[test]
fn rule_3_connect_subresource_matches_any_method() {
    for method in ["GET", "POST", "PUT"] {
        for subresource in ["exec", "attach", "portforward", "proxy"] {
            let request = format!("{method} /api/v1/namespaces/x/pods/y/{subresource}");
            check(&request, &format!("here: v1 pods/{subresource}:get"), "here ServedHere");
            check(&request, &format!("b live: v1 pods/{subresource}:create"), "peers b");
        }
        let log = format!("{method} /api/v1/namespaces/x/pods/y/log");
        let expected = if method == "GET" { "here ServedHere" } else { "here VerbServedNowhere" };
        check(&log, "here: v1 pods/log:get", expected);
    }
}

#[test]
fn route_mismatch_of_local_resource_is_local() {
    let cluster = "here: v1 pods:get,list,create nodes@Cluster:get,list; b live: v1 pods:get,list; c unknown; pending";
    for request in [
        "GET /api/v1/namespaces/x/nodes",
        "GET /api/v1/watch/namespaces/x/nodes",
        "GET /api/v1/pods/y",
        "POST /api/v1/pods",
        "HEAD /api/v1/namespaces/x/pods/y",
        "GET /api/v1/proxy/namespaces/x/pods/y",
    ] {
        check(request, cluster, "here RouteMismatch");
        check(&format!("{request} (forwarded)"), cluster, "here RouteMismatch");
    }
    check("GET /api/v1/nodes", cluster, "here ServedHere");
    check("GET /api/v1/namespaces/x/pods/y/exec", "here: v1 ?pods/exec:get", "here NotImplemented");
    check("GET /api/v1/pods/y/exec", "here: v1 ?pods/exec:get", "here RouteMismatch");
}

#[test]
fn route_mismatch_of_peer_resource_is_not_forwarded() {
    let things = "things:get,list,create zones@Cluster:get,list,create reviews:create";
    for state in ["live", "suspect"] {
        let live = if state == "live" { " b" } else { "" };
        let cluster = format!("here: v1 pods:get; b {state}: batch/v1 {things}; c unknown");
        for (request, expected) in [
            ("GET /apis/batch/v1/namespaces/x/zones", "NotFound"),
            ("DELETE /apis/batch/v1/namespaces/x/zones/y", "NotFound"),
            ("GET /apis/batch/v1/things/y", "NotFound"),
            ("POST /apis/batch/v1/things", "MethodNotAllowed"),
            ("HEAD /apis/batch/v1/zones", "MethodNotAllowed"),
            ("POST /apis/batch/v1/reviews", "NotFound"),
        ] {
            check(request, &cluster, &format!("refused {expected}{live}"));
            check(&format!("{request} (forwarded)"), &cluster, "503 ForwardedButNotServed");
        }
    }
}

#[test]
fn route_mismatch_of_custom_resource_is_left_to_its_server() {
    let cluster = "here: v1 pods:get; b live: example.com/v1 xs:get,list; c suspect: example.com/v1 ys:get,list";
    check("GET /apis/example.com/v1/xs/y", cluster, "doubted NotFound b");
    check("HEAD /apis/example.com/v1/namespaces/n/xs/y", cluster, "doubted MethodNotAllowed b");
    check("GET /apis/example.com/v1/ys/y", cluster, "503 OnlyUnreachableMembers");
}

#[test]
fn conflicting_scope_is_no_route_mismatch() {
    let cluster = "b live: batch/v1 xs:get,list; c live: batch/v1 xs@Cluster:get,list";
    check("GET /apis/batch/v1/xs/y", cluster, "peers b c");
    check("GET /apis/batch/v1/namespaces/n/xs/y", cluster, "peers b c");
}

#[test]
fn rule_3_unimplemented_resource_is_not_served_locally() {
    let exec = "POST /api/v1/namespaces/x/pods/y/exec";
    let here = "here: v1 pods:get ?pods/exec:create";
    check(exec, here, "here NotImplemented");
    check(exec, &format!("{here}; b live: v1 pods/exec:create"), "peers b");
    check(exec, &format!("{here}; b live: v1 ?pods/exec:create"), "here NotImplemented");
    check(exec, &format!("{here}; b suspect: v1 pods/exec:create"), "503 OnlyUnreachableMembers");
    check(exec, &format!("{here}; b unknown"), "503 ViewIncomplete(MemberUnknown)");
    check(&format!("{exec} (forwarded)"), here, "503 ForwardedButNotServed");
}

#[test]
fn rule_4_defined_resource_is_local_whatever_peers_list() {
    let list = "GET /apis/example.com/v1/xs";
    let peers = "b live: example.com/v1 xs:list; c suspect: example.com/v1 xs:list";
    check(list, &format!("shared: example.com/v1/xs; {peers}"), "here SharedState");
    check(list, &format!("shared: example.com/v1; {peers}"), "here SharedState");
    check(list, &format!("here: example.com/v1 xs:list; shared: example.com/v1/xs; {peers}"), "here ServedHere");
    // As long as this server cannot serve it, it is not local.
    check(list, peers, "peers b");
    // Another version or resource is not excluded.
    check("GET /apis/example.com/v1/ys", "shared: example.com/v1/xs; b live: example.com/v1 ys:list", "peers b");
}

#[test]
fn rule_4_deleted_definition_is_not_routed_to_peers() {
    let list = "GET /apis/example.com/v1/xs";
    let cluster = "deleted: example.com/v1/xs; b live: example.com/v1 xs:list; c left: example.com/v1 xs:list";
    check(list, cluster, "prove");
    check(&format!("{list} (proven)"), cluster, "here ServedNowhere");
}

#[test]
fn rule_5_request_goes_to_live_members() {
    let jobs = "batch/v1 jobs:get,list";
    let cluster =
        format!("here: v1 pods:get; b live: {jobs}; c live: {jobs}; d suspect: {jobs}; e left: {jobs}; f unknown");
    check("GET /apis/batch/v1/jobs", &cluster, "peers b c");
    check("GET /apis/batch/v1/namespaces/x/jobs/y", &cluster, "peers b c");
    check("GET /apis/batch/v1/namespaces/x/jobs/y", "b live: batch/v1 jobs:get; c live: batch/v1 jobs:list", "peers b");
}

#[test]
fn rule_5_only_unreachable_members_is_503() {
    for state in ["suspect", "left"] {
        let cluster = format!("here: v1 pods:get; b {state}: batch/v1 jobs:get,list; c live: v1 pods:get");
        check("GET /apis/batch/v1/jobs", &cluster, "503 OnlyUnreachableMembers");
        check("GET /apis/batch/v1/jobs (proven)", &cluster, "503 OnlyUnreachableMembers");
    }
}

#[test]
fn rule_5_verb_offered_by_none_goes_to_members_with_resource() {
    let patch = "PATCH /apis/batch/v1/namespaces/x/jobs/y";
    check(patch, "b live: batch/v1 jobs:get; c suspect: batch/v1 jobs:get", "peers b");
    check(patch, "b suspect: batch/v1 jobs:get", "503 OnlyUnreachableMembers");
    check(patch, "b suspect: batch/v1 jobs:patch; c live: batch/v1 jobs:get", "503 OnlyUnreachableMembers");
}

#[test]
fn rule_5_subresource_of_peer_goes_to_that_peer() {
    let cluster = "here: v1 pods:get,patch pods/status:get,patch; b live: v1 pods:get,patch pods/resize:get,patch";
    check("PATCH /api/v1/namespaces/x/pods/y/resize", cluster, "peers b");
    check("PATCH /api/v1/namespaces/x/pods/y/status", cluster, "here ServedHere");
    check("PATCH /api/v1/namespaces/x/pods/y/nonsense", cluster, "prove");
}

#[test]
fn rule_6_possible_built_in_is_503_while_view_is_incomplete() {
    for (member, why) in [
        ("b unknown", "MemberUnknown"),
        ("b mute", "MemberMute"),
        ("b mute; c unknown", "MemberUnknown"),
        ("b live former: v1 pods:get", "MemberUnknown"),
        ("b suspect former: v1 pods:get", "MemberUnknown"),
        ("pending", "NotSynced"),
        ("b mute; pending", "NotSynced"),
    ] {
        let cluster = format!("here: v1 pods:get; {member}");
        for path in ["/apis/batch/v9/jobs", "/apis/new.k8s.io/v1/xs", "/api/v1/xs", "/api/v1/namespaces/x/pods/y/new"] {
            check(&format!("GET {path} (proven)"), &cluster, &format!("503 ViewIncomplete({why})"));
        }
        check("GET /apis/example.com/v1/xs", &cluster, "prove");
        check("GET /apis/example.com/v1/xs (proven)", &cluster, "here ServedNowhere");
    }
}

#[test]
fn rule_6_members_with_known_documents_do_not_block_404() {
    for member in ["", "b live: v1 pods:get", "b suspect: v1 pods:get", "b left: v1 pods:get"] {
        check("GET /apis/batch/v1/jobs", &format!("here: v1 pods:get; {member}"), "prove");
    }
}

#[test]
fn rule_7_404_requires_absence_proof() {
    let cluster = "here: v1 pods:get; b live: apps/v1 deployments:get";
    check("GET /apis/batch/v1/jobs", cluster, "prove");
    check("GET /apis/batch/v1/jobs (proven)", cluster, "here ServedNowhere");
}

#[test]
fn disabled_peering_makes_other_members_mute() {
    let mut inputs =
        view_inputs_from_notation("here: v1 pods:get; b live: batch/v1 jobs:list; c left: apps/v1 xs:list");
    inputs.peering = Peering::Disabled;
    let view = View::new(inputs, None);
    assert_eq!(route_request("GET /apis/batch/v1/jobs", &view), "503 ViewIncomplete(MemberMute)");
    assert_eq!(route_request("GET /api/v1/namespaces/x/pods/y", &view), "here ServedHere");
    assert_eq!(route_request("GET /apis/example.com/v1/xs", &view), "prove");
    assert_eq!(view.members().len(), 1);
    assert!(Arc::ptr_eq(view.merged_documents().apis(), view.local_document().apis()));
}

#[test]
fn every_reason_has_its_rule_number() {
    use IncompleteViewReason::{MemberMute, MemberUnknown, NotSynced};
    for (why, rule) in [
        (UnavailableReason::ForwardedButNotServed, 2),
        (UnavailableReason::DefinedButNotServed, 4),
        (UnavailableReason::OnlyUnreachableMembers, 5),
        (UnavailableReason::ViewIncomplete(NotSynced), 6),
        (UnavailableReason::ViewIncomplete(MemberUnknown), 6),
        (UnavailableReason::ViewIncomplete(MemberMute), 6),
        (UnavailableReason::AbsenceNotProven, 7),
    ] {
        assert_eq!(why.routing_rule(), rule);
    }
    for (why, rule) in [
        (LocalReason::NotAResource, 1),
        (LocalReason::ServedHere, 3),
        (LocalReason::VerbServedNowhere, 3),
        (LocalReason::RouteMismatch, 3),
        (LocalReason::SharedState, 4),
        (LocalReason::NotImplemented, 7),
        (LocalReason::ServedNowhere, 7),
    ] {
        assert_eq!(why.routing_rule(), rule);
    }
}

/// One of a few documents over the same few names.
fn documents() -> impl Strategy<Value = String> {
    let verbs = prop::sample::subsequence(vec!["get", "list", "patch"], 1..=3);
    let resource = (prop::sample::select(vec!["xs", "ys", "ys/status"]), verbs);
    let version = (prop::sample::select(vec!["v1", "a/v1", "e.com/v1"]), prop::collection::vec(resource, 0..3));
    prop::collection::vec(version, 0..3).prop_map(|versions| {
        let versions = versions.into_iter().map(|(version, resources)| {
            let resources = resources.into_iter().map(|(name, verbs)| format!(" {name}:{}", verbs.join(",")));
            format!("{version}{}", resources.collect::<String>())
        });
        versions.collect::<Vec<_>>().join("|")
    })
}

fn clusters() -> impl Strategy<Value = String> {
    let states = prop::sample::select(vec!["live", "suspect", "left", "unknown", "mute"]);
    let members = prop::collection::vec((states, documents()), 0..4);
    (documents(), members).prop_map(|(here, members)| {
        let members = members.into_iter().enumerate().map(|(at, (state, document))| match state {
            "unknown" | "mute" => format!("; m{at} {state}"),
            _ => format!("; m{at} {state}: v2 z:get|{document}"),
        });
        format!("here: {here}{}", members.collect::<String>())
    })
}

const REQUESTS: [&str; 8] = [
    "GET /api/v1/xs",
    "PATCH /apis/a/v1/namespaces/n/ys/y",
    "GET /apis/e.com/v1/namespaces/n/ys/y/status",
    "DELETE /apis/a/v1/namespaces/n/xs/x",
    "DELETE /apis/a/v1/xs/x",
    "GET /apis/e.com/v1/ys/y/status",
    "GET /apis/e.com/v1/xs",
    "GET /apis/b/v1/zs",
];

proptest! {
    #[test]
    fn forwarded_request_is_never_forwarded_again(cluster in clusters()) {
        let view = view_from_notation(&cluster);
        for request in REQUESTS {
            let outcome = route_request(&format!("{request} (forwarded)"), &view);
            prop_assert!(!outcome.starts_with("peers") && outcome != "prove", "{request}: {outcome}");
        }
    }

    #[test]
    fn routed_peers_are_live_and_list_the_resource(cluster in clusters()) {
        let view = view_from_notation(&cluster);
        for request in REQUESTS {
            let (method, path) = request.split_once(' ').unwrap();
            let target = Target::parse(method, path).unwrap();
            let Route::Peers(peers) = route(&target, Hop::FromClient, &view, AbsenceProof::NotRequested) else { continue };
            let Target::Resource(resource) = &target else { unreachable!() };
            prop_assert!(!peers.is_empty());
            for peer in peers.iter() {
                let member = view.member(*peer);
                prop_assert_eq!(member.state, crate::members::MemberState::Live);
                prop_assert!(view.address(*peer).is_some());
                let document = member.server_document().unwrap();
                let part = if resource.group.is_empty() { document.core() } else { document.apis() };
                let versions = part.versions().filter(|(group, version)| {
                    *group.name == *resource.group && *version.name == *resource.version
                });
                let mut resources = versions.flat_map(|(_, version)| &version.resources);
                prop_assert!(resources.any(|listed| *listed.name == *resource.resource));
            }
        }
    }

    #[test]
    fn absence_proof_only_turns_prove_into_404(cluster in clusters()) {
        let view = view_from_notation(&cluster);
        for request in REQUESTS {
            let (asked, proven) = (route_request(request, &view), route_request(&format!("{request} (proven)"), &view));
            let expected = if asked == "prove" { "here ServedNowhere" } else { &*asked };
            prop_assert_eq!(&*proven, expected);
        }
    }
}

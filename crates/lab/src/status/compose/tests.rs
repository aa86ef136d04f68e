use serde_json::json;

use super::*;
use crate::data_dir::state::tests::test_lab_state;

/// Builds a snapshot from text such as `a ready: v1 pods nodes | batch/v1 jobs; b stopped: v1 pods`.
pub(crate) fn test_snapshot(cluster: &str) -> LabSnapshot {
    let now = Instant::now();
    let parts: Vec<(&str, &str)> = cluster.split(';').map(|part| part.trim().split_once(':').unwrap()).collect();
    let names: Vec<String> =
        parts.iter().map(|(head, _)| format!("{}=1.3{}:7001", &head[..1], head.len() % 7)).collect();
    let mut process_table = ProcessTable::new(&test_lab_state(&names.join(" ")), now);
    let mut learned = Vec::new();
    for (process, (head, served)) in process_table.servers.iter_mut().zip(&parts) {
        process.phase = match head.split_once(' ').unwrap().1 {
            "ready" => Phase::Ready,
            "stopped" => Phase::Stopped,
            other => panic!("no phase {other}"),
        };
        let mut resources = ResourcesByGroupVersion::new();
        for group in served.split('|').map(str::trim).filter(|group| !group.is_empty()) {
            let mut words = group.split_whitespace().map(str::to_owned);
            resources.insert(words.next().unwrap(), words.collect());
        }
        let peers = PeersPage { server: format!("apiserver-{}", &head[..1]), ..PeersPage::default() };
        learned.push(ServerReport { peers: Some(peers), resources: Some(resources), ..ServerReport::default() });
    }
    compose_snapshot(&LabInfo::default(), &process_table, &learned, &[], None, now)
}

#[track_caller]
fn check_if_stopped(cluster: &str, server: &str, expected: Option<&str>) {
    let found = unavailable_if_stopped(&test_snapshot(cluster), server).map(|found| found.join(" "));
    assert_eq!(found.as_deref(), expected, "{server} in {cluster}");
}

#[test]
fn stopped_server_makes_only_its_own_resources_unavailable() {
    let cluster = "a ready: v1 pods nodes | batch/v1 jobs; b ready: v1 pods pods/resize; c stopped: batch/v1 jobs";
    check_if_stopped(cluster, "a", Some("v1/nodes batch/v1/jobs"));
    check_if_stopped(cluster, "apiserver-b", Some("v1/pods/resize"));
    check_if_stopped(cluster, "c", Some(""));
    check_if_stopped(cluster, "z", None);
}

#[test]
fn snapshot_lists_group_versions_with_serving_servers() {
    let snapshot = test_snapshot("a ready: v1 pods | apps/v1 deployments; b ready: v1 nodes");
    let rows: Vec<_> = snapshot
        .groups
        .iter()
        .map(|row| format!("{} {:?} {:?}", row.name, row.resources, row.served_by_server))
        .collect();
    assert_eq!(rows, [r#"v1 ["nodes", "pods"] [[1], [0]]"#, r#"apps/v1 ["deployments"] [[0], []]"#]);
    assert_eq!(snapshot.servers[0].resources, 2);
}

#[test]
fn member_state_of_a_server_comes_from_its_peers() {
    let now = Instant::now();
    let process_table = ProcessTable::new(&test_lab_state("a=1.33:7001 b=1.36:7002"), now);
    let page = |server: &str, members: &[(&str, &str)]| PeersPage {
        server: server.to_owned(),
        peering: String::new(),
        members: members
            .iter()
            .map(|(server, state)| PeersPageMember {
                server: (*server).to_owned(),
                state: (*state).to_owned(),
                state_seconds: 4,
            })
            .collect(),
    };
    let mut learned = [ServerReport::default(), ServerReport::default()];
    learned[0].peers = Some(page("apiserver-x", &[("apiserver-y", "suspect")]));
    learned[1].peers = Some(page("apiserver-y", &[("apiserver-x", "live")]));
    learned[0].forwards = BTreeMap::from([("apiserver-y".to_owned(), 3), ("apiserver-gone".to_owned(), 1)]);
    let versions = parse_storage_versions(&json!({"items": [{"metadata": {"name": "apps.deployments"}, "status": {
        "commonEncodingVersion": "apps/v1",
        "storageVersions": [{"apiServerID": "apiserver-x", "encodingVersion": "apps/v1"}],
    }}]}));
    let snapshot = compose_snapshot(&LabInfo::default(), &process_table, &learned, &versions, None, now);
    let states: Vec<_> = snapshot.servers.iter().map(|server| &*server.member_state).collect();
    assert_eq!(states, ["live", "suspect"]);
    let forwards: Vec<_> = snapshot.forwards.iter().map(|f| format!("{}>{} {}", f.from, f.to, f.requests)).collect();
    assert_eq!(forwards, ["a>apiserver-gone 1", "a>b 3"]);
    assert_eq!(snapshot.storage_versions[0].encoding_versions, [("a".to_owned(), "apps/v1".to_owned())]);
    assert_eq!(snapshot.storage_versions[0].common_encoding_version, "apps/v1");
}

#[test]
fn forward_counts_are_parsed_from_metrics() {
    let page = "# HELP x\nunskew_peer_forward_duration_seconds_count{peer=\"apiserver-x\"} 12\n\
                unskew_peer_forward_duration_seconds_sum{peer=\"apiserver-x\"} 0.5\nother 3\n";
    assert_eq!(parse_forward_counts(page), BTreeMap::from([("apiserver-x".to_owned(), 12)]));
}

#[test]
fn collect_resources_includes_subresources() {
    let document = json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "items": [
        {"metadata": {"name": "apps"}, "versions": [{"version": "v1", "resources": [
            {"resource": "deployments", "scope": "Namespaced", "singularResource": "deployment", "verbs": ["get"],
             "responseKind": {"group": "apps", "version": "v1", "kind": "Deployment"},
             "subresources": [{"subresource": "scale", "verbs": ["get"]}]},
        ]}]},
    ]});
    let mut resources = ResourcesByGroupVersion::new();
    collect_resources(&discovery::parse::parse_aggregated(document.to_string().as_bytes()).unwrap(), &mut resources);
    assert_eq!(format!("{resources:?}"), r#"{"apps/v1": {"deployments", "deployments/scale"}}"#);
}

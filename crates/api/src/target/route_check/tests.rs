use std::collections::HashMap;

use super::*;
use crate::target::Target;

const ALL: &[Verb] = &[
    Verb::Get,
    Verb::List,
    Verb::Watch,
    Verb::Create,
    Verb::Update,
    Verb::Patch,
    Verb::Delete,
    Verb::DeleteCollection,
];

fn check_request(request: &str, scope: KindScope, verbs: &[Verb]) -> Result<(), RouteMismatch> {
    let (method, path) = request.split_once(' ').unwrap();
    let Target::Resource(resource) = Target::parse(method, path).unwrap() else { panic!("{path} names no resource") };
    resource.check_route(scope, |verb| verbs.contains(&verb))
}

/// Checks one kind of request against a namespaced and a cluster-scoped resource with these verbs.
#[track_caller]
fn check(verbs: &[Verb], rows: &[(&str, &str, &str)]) {
    for &(request, namespaced, cluster) in rows {
        for (scope, expected) in [(KindScope::Namespaced, namespaced), (KindScope::Cluster, cluster)] {
            let found = match check_request(request, scope, verbs) {
                Ok(()) => "fits",
                Err(RouteMismatch::NotFound) => "404",
                Err(RouteMismatch::MethodNotAllowed) => "405",
                Err(RouteMismatch::NameRequired) => "name",
                Err(RouteMismatch::NamespaceRequired) => "namespace",
            };
            assert_eq!(found, expected, "{request} of a resource with scope {scope:?}");
        }
    }
}

#[test]
fn namespace_in_path_fits_only_namespaced_resources() {
    check(
        ALL,
        &[
            ("GET /api/v1/namespaces/a/things", "fits", "404"),
            ("GET /api/v1/namespaces/a/things?watch=true", "fits", "404"),
            ("POST /api/v1/namespaces/a/things", "fits", "404"),
            ("DELETE /api/v1/namespaces/a/things", "fits", "404"),
            ("GET /api/v1/namespaces/a/things/x", "fits", "404"),
            ("PUT /api/v1/namespaces/a/things/x", "fits", "404"),
            ("PATCH /api/v1/namespaces/a/things/x", "fits", "404"),
            ("DELETE /api/v1/namespaces/a/things/x", "fits", "404"),
            ("PUT /api/v1/namespaces/a/things/x/status", "fits", "404"),
            ("GET /api/v1/watch/namespaces/a/things", "fits", "404"),
            ("GET /api/v1/watch/namespaces/a/things/x", "fits", "404"),
            ("DELETE /api/v1/namespaces/a/namespaces/victim", "fits", "404"),
            ("GET /api/v1/namespaces%2Fa%2Fthings%2Fx", "fits", "404"),
        ],
    );
}

#[test]
fn path_without_namespace_of_namespaced_resource_is_list_and_watch() {
    check(
        ALL,
        &[
            ("GET /api/v1/things", "fits", "fits"),
            ("GET /api/v1/things/", "fits", "fits"),
            ("GET /api/v1/things?watch=true", "fits", "fits"),
            ("GET /api/v1/things?fieldSelector=metadata.name%3Dx", "fits", "fits"),
            ("GET /api/v1/watch/things", "fits", "fits"),
            ("POST /api/v1/things", "405", "fits"),
            ("DELETE /api/v1/things", "405", "fits"),
            ("PUT /api/v1/things", "405", "405"),
            ("GET /api/v1/things/x", "404", "fits"),
            ("PUT /api/v1/things/x", "404", "fits"),
            ("GET /api/v1/things%2Fx", "404", "fits"),
            ("PATCH /api/v1/things/x/status", "404", "fits"),
            ("GET /api/v1/watch/things/x", "404", "fits"),
        ],
    );
}

#[test]
fn paths_of_namespace_objects_are_cluster_scoped() {
    for request in [
        "GET /api/v1/namespaces",
        "GET /api/v1/namespaces/x",
        "PUT /api/v1/namespaces/x/status",
        "PUT /api/v1/namespaces/x/finalize",
        "GET /api/v1/watch/namespaces/x",
    ] {
        assert_eq!(check_request(request, KindScope::Cluster, ALL), Ok(()), "{request}");
    }
}

#[test]
fn offered_verbs_decide_between_404_and_405() {
    let create = "POST /apis/authorization.k8s.io/v1/localsubjectaccessreviews";
    let in_namespace = "POST /apis/authorization.k8s.io/v1/namespaces/a/localsubjectaccessreviews";
    check(&[Verb::Create], &[(create, "404", "fits"), (in_namespace, "fits", "404")]);
    check(&[Verb::Create], &[("GET /api/v1/namespaces/a/things", "405", "404")]);
    check(&[Verb::Create], &[("GET /api/v1/namespaces/a/things/x", "404", "404")]);
    check(&[Verb::Get], &[("PUT /api/v1/namespaces/a/things/x/log", "405", "404")]);
    check(&[], &[("GET /api/v1/namespaces/a/things/x/nosuch", "404", "404")]);
}

#[test]
fn methods_without_a_route_are_405_where_the_path_has_routes() {
    for method in ["HEAD", "OPTIONS", "TRACE", "FOO", "get"] {
        let request = |path: &str| format!("{method} {path}");
        check(
            ALL,
            &[
                (&request("/api/v1/things"), "405", "405"),
                (&request("/api/v1/namespaces/a/things"), "405", "404"),
                (&request("/api/v1/things/x"), "404", "405"),
                (&request("/api/v1/watch/things"), "405", "405"),
                (&request("/api/v1/namespaces/a/things/x/exec"), "405", "404"),
            ],
        );
    }
    check(ALL, &[("POST /api/v1/watch/things", "405", "405"), ("POST /api/v1/things/x", "404", "405")]);
}

#[test]
fn only_proxy_subresource_has_subpaths_and_more_methods() {
    check(
        ALL,
        &[
            ("GET /api/v1/namespaces/a/things/x/status/more", "404", "404"),
            ("GET /api/v1/namespaces/a/things/x/proxy/more/and/more", "fits", "404"),
            ("HEAD /api/v1/things/x/proxy/", "404", "fits"),
            ("OPTIONS /api/v1/namespaces/a/things/x/proxy", "fits", "404"),
            ("TRACE /api/v1/namespaces/a/things/x/proxy", "405", "404"),
            ("GET /api/v1/proxy/things/x", "404", "404"),
            ("GET /api/v1/proxy/namespaces/a/things/x", "404", "404"),
            ("GET /api/v1/watch/things/x/status/more", "404", "404"),
        ],
    );
}

#[test]
fn empty_path_segments_count_as_segments() {
    check(
        ALL,
        &[
            ("GET /api/v1/namespaces//things", "fits", "404"),
            ("GET /api/v1/watch/namespaces//things", "fits", "404"),
            ("POST /api/v1/namespaces//things", "fits", "404"),
            ("GET /api/v1/namespaces//things/x", "namespace", "404"),
            ("PUT /api/v1/namespaces//things/x", "namespace", "404"),
            ("DELETE /api/v1/namespaces//things", "namespace", "404"),
            ("POST /api/v1/namespaces//things/x/eviction", "namespace", "404"),
            ("GET /api/v1/namespaces/a/things//status", "name", "404"),
            ("PUT /api/v1/things//status", "404", "name"),
            ("HEAD /api/v1/things//status", "404", "405"),
            ("GET /api/v1/namespaces/a/things/x//status", "404", "404"),
            ("GET //api/v1/things", "404", "404"),
            ("GET //api/v1/namespaces/a/things/x", "404", "404"),
        ],
    );
}

/// Compares with the responses of a real server to every path form and method, recorded in the file.
#[test]
fn routes_match_recorded_kube_apiserver() {
    let mut methods = Vec::new();
    let mut scope = KindScope::Cluster;
    let mut verbs: HashMap<&str, Vec<Verb>> = HashMap::new();
    let mut compared = 0;
    let read_verbs = |names: &str| names.split(',').filter_map(Verb::from_name).collect::<Vec<_>>();
    for line in include_str!("real_routes.txt").lines().filter(|line| !line.starts_with('#')) {
        match *line.split(' ').collect::<Vec<_>>() {
            ["methods", ref names @ ..] => methods = names.to_vec(),
            ["resource", _, _, word, names] => {
                scope = if word == "Cluster" { KindScope::Cluster } else { KindScope::Namespaced };
                verbs = HashMap::from([("", read_verbs(names))]);
            }
            ["subresource", name, names] => {
                verbs.insert(name, read_verbs(names));
            }
            [path, answers] => {
                for (&method, answer) in methods.iter().zip(answers.chars()).filter(|(_, answer)| *answer != '-') {
                    let line = if method == "WATCH" { format!("{path}?watch=true") } else { path.to_owned() };
                    let method = if method == "WATCH" { "GET" } else { method };
                    let Target::Resource(resource) = Target::parse(method, &line).unwrap() else { panic!("{line}") };
                    let offered = verbs.get(&*resource.subresource).map(Vec::as_slice).unwrap_or_default();
                    let found = match resource.check_route(scope, |verb| offered.contains(&verb)) {
                        Err(RouteMismatch::NotFound) => 'N',
                        Err(RouteMismatch::MethodNotAllowed) => 'M',
                        Ok(()) | Err(RouteMismatch::NameRequired | RouteMismatch::NamespaceRequired) => '.',
                    };
                    assert_eq!(found, answer, "{method} {line}");
                    compared += 1;
                }
            }
            _ => panic!("{line}"),
        }
    }
    assert!(compared > 3000, "only {compared} answers were compared");
}

#[test]
fn offering_more_verbs_never_rejects_more_requests() {
    let sets: Vec<Vec<Verb>> = (0..1_u16 << ALL.len())
        .map(|bits| ALL.iter().enumerate().filter(|(bit, _)| bits & 1 << bit != 0).map(|(_, verb)| *verb).collect())
        .collect();
    let paths = ["/api/v1/things", "/api/v1/namespaces/a/things", "/api/v1/things/x/status", "/api/v1/watch/things"];
    for path in paths {
        for method in ["GET", "HEAD", "POST", "PUT", "DELETE"] {
            for scope in [KindScope::Cluster, KindScope::Namespaced] {
                let request = format!("{method} {path}");
                let whole = check_request(&request, scope, ALL);
                let fits = sets.iter().any(|verbs| check_request(&request, scope, verbs).is_ok());
                assert_eq!(fits, whole.is_ok(), "{request} {scope:?}");
            }
        }
    }
}

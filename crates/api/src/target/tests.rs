use proptest::prelude::*;

use super::*;

/// Formats as `verb group/version ns=.. resource/name/subresource ...rest`, without absent parts.
fn print(target: &Target<'_>) -> String {
    let resource = match target {
        Target::NonResource(target) => return format!("non-resource {} {}", target.verb, target.path),
        Target::Resource(resource) => resource,
    };
    let ResourceTarget { verb, namespace, name, subresource, subpath: rest, field_selector, label_selector, .. } =
        resource;
    let mut text = format!("{verb} {}/{} {}", resource.group, resource.version, resource.resource);
    for (label, value) in [
        ("name", name),
        ("sub", subresource),
        ("ns", namespace),
        ("rest", rest),
        ("fields", field_selector),
        ("labels", label_selector),
    ] {
        if !value.is_empty() {
            text += &format!(" {label}={value}");
        }
    }
    text
}

#[track_caller]
fn check(line: &str, expected: &str) {
    let (method, path_and_query) = line.split_once(' ').unwrap();
    let target = Target::parse(method, path_and_query).unwrap();
    assert_eq!(print(&target), expected, "{line}");
    assert_eq!(target.path_and_query(), path_and_query);
    assert_eq!(target.clone().into_owned(), target);
}

#[track_caller]
fn check_error(line: &str, expected: &str) {
    let (method, path_and_query) = line.split_once(' ').unwrap();
    assert_eq!(Target::parse(method, path_and_query).unwrap_err().to_string(), expected, "{line}");
}

#[test]
fn parse_resource_paths() {
    check("GET /api/v1/namespaces", "list /v1 namespaces");
    check("GET /api/v1/namespaces/other", "get /v1 namespaces name=other ns=other");
    check("GET /api/v1/namespaces/other/pods", "list /v1 pods ns=other");
    check("GET /api/v1/namespaces/other/pods/foo", "get /v1 pods name=foo ns=other");
    check("HEAD /api/v1/namespaces/other/pods/foo", "get /v1 pods name=foo ns=other");
    check("GET /api/v1/pods", "list /v1 pods");
    check("HEAD /api/v1/pods", "list /v1 pods");
    check("GET /api/version/resource", "list /version resource");
    check("GET /apis/batch/v1/job", "list batch/v1 job");
    check("GET /apis/batch/v1/job/foo", "get batch/v1 job name=foo");
    check("GET /apis/batch/v1/job/foo/scale", "get batch/v1 job name=foo sub=scale");
    check("GET /apis/group/version/resource/name/subresource", "get group/version resource name=name sub=subresource");
}

#[test]
fn parse_watch_and_proxy_path_prefixes() {
    check("GET /api/v1/proxy/namespaces/other/pods/foo", "proxy /v1 pods name=foo ns=other");
    check(
        "GET /api/v1/proxy/namespaces/other/pods/foo/subpath/not/a/subresource",
        "proxy /v1 pods name=foo ns=other rest=subpath/not/a/subresource",
    );
    check("GET /api/v1/watch/pods", "watch /v1 pods");
    check("POST /api/v1/watch/pods", "watch /v1 pods");
    check("GET /api/v1/watch/namespaces/other/pods", "watch /v1 pods ns=other");
    check("GET /api/v1/watch/namespaces/other/pods/foo", "watch /v1 pods name=foo ns=other");
    check("GET /api/v1/watch/namespaces/other", "watch /v1 namespaces name=other ns=other");
    check("GET /apis/g/v/watch/r?fieldSelector=metadata.name=foo&labelSelector=foo=bar", "watch g/v r");
    check("GET /apis/g/v/watch/r/n?fieldSelector=metadata.name=foo", "watch g/v r name=n");
}

#[test]
fn parse_rejects_verb_prefix_without_resource() {
    check_error("GET /api/v1/watch", "unable to determine kind and namespace from url, /api/v1/watch");
    check_error("GET /api/v1/proxy/?a=b", "unable to determine kind and namespace from url, /api/v1/proxy/?a=b");
    check_error("GET /apis/g/v/watch", "unable to determine kind and namespace from url, /apis/g/v/watch");
}

#[test]
fn parse_watch_query_parameter() {
    check("GET /api/v1/pods?watch=true", "watch /v1 pods");
    check("GET /api/v1/pods?watch=false", "list /v1 pods");
    check("GET /api/v1/pods?watch=False", "list /v1 pods");
    check("GET /api/v1/namespaces/other/pods?watch=1", "watch /v1 pods ns=other");
    check("GET /api/v1/namespaces/other/pods?watch=0", "list /v1 pods ns=other");
    check("GET /api/v1/pods?watch", "watch /v1 pods");
    check("GET /api/v1/pods?watch=", "watch /v1 pods");
    check("GET /api/v1/pods?watch=no", "watch /v1 pods");
    check("GET /api/v1/pods?limit=500&watch=1&watch=0", "watch /v1 pods");
    check("GET /api/v1/pods?watch=%zz&watch=1", "watch /v1 pods");
    check("GET /api/v1/pods?watch=1;x=2", "list /v1 pods");
    check("GET /api/v1/pods?Watch=1", "list /v1 pods");
    check("GET /api/v1/pods/foo?watch=1", "get /v1 pods name=foo");
    check("POST /api/v1/pods?watch=1", "create /v1 pods");
}

#[test]
fn parse_subresources() {
    check("GET /api/v1/namespaces/other/pods/foo/status", "get /v1 pods name=foo sub=status ns=other");
    check("GET /api/v1/namespaces/o/pods/foo/proxy/sub/path", "get /v1 pods name=foo sub=proxy ns=o rest=sub/path");
    check("PUT /api/v1/namespaces/other/finalize", "update /v1 namespaces name=other sub=finalize ns=other");
    check("PUT /api/v1/namespaces/other/status", "update /v1 namespaces name=other sub=status ns=other");
    check("GET /api/v1/namespaces/other/status/x", "get /v1 namespaces name=other sub=status ns=other rest=x");
    check("GET /apis/g/v1/namespaces/other/finalize", "get g/v1 namespaces name=other sub=finalize ns=other");
}

#[test]
fn parse_maps_methods_to_verbs() {
    check("PATCH /api/v1/namespaces/other/pods/foo", "patch /v1 pods name=foo ns=other");
    check("DELETE /api/v1/namespaces/other/pods/foo", "delete /v1 pods name=foo ns=other");
    check("POST /api/v1/namespaces/other/pods", "create /v1 pods ns=other");
    check("PUT /api/v1/pods", "update /v1 pods");
    check("DELETE /api/v1/nodes", "deletecollection /v1 nodes");
    check("DELETE /api/v1/namespaces", "deletecollection /v1 namespaces");
    check("DELETE /api/v1/namespaces/other/pods", "deletecollection /v1 pods ns=other");
    check("DELETE /apis/extensions/v1/namespaces/other/pods", "deletecollection extensions/v1 pods ns=other");
    check("POST /apis/extensions/v1/namespaces/other/pods", "create extensions/v1 pods ns=other");
    check("POST /apis/extensions/v1beta3/namespaces/other/pods", "create extensions/v1beta3 pods ns=other");
    check("OPTIONS /api/v1/pods", " /v1 pods");
    check("get /api/v1/pods", " /v1 pods");
}

#[test]
fn parse_non_resource_paths() {
    for path in [
        "",
        "/",
        "//",
        "/api",
        "/api/version",
        "/api/version/",
        "/apis",
        "/apis/group",
        "/apis/group/version",
        "/apis/group/version/",
        "/apis/version/resource",
        "/badprefix/version/resource",
        "/not-api/version/resource",
        "/apis/extensions/v1beta1",
        "/apis/extensions/v1beta1/",
        "/healthz",
        "/API/v1/pods",
        "*",
    ] {
        check(&format!("GET {path}"), &format!("non-resource get {path}"));
    }
    check("PATCH /version?timeout=32s", "non-resource patch /version");
    check("Brew /a%20b", "non-resource brew /a b");
    check("GET /a+b", "non-resource get /a+b");
}

#[test]
fn parse_keeps_empty_path_segments() {
    check("GET //api/v1/pods//", "list /v1 pods");
    check("GET /api//pods", "list / pods");
    check("GET /api/v1//pods", "get /v1  name=pods");
    check("GET /apis//v1/pods", "list /v1 pods");
    check("GET /api/v1/pods//log", "list /v1 pods sub=log");
    check("GET /api/v1/namespaces//pods", "list /v1 pods");
}

#[test]
fn parse_list_selectors() {
    check("GET /apis/g/v/r", "list g/v r");
    check("GET /apis/g/v/r?fieldSelector=metadata.name=n", "list g/v r name=n fields=metadata.name=n");
    check("GET /apis/g/v/r?fieldSelector=metadata.name%3Dn", "list g/v r name=n fields=metadata.name=n");
    check("GET /apis/g/v/r?watch=true&fieldSelector=metadata.name=n", "watch g/v r name=n fields=metadata.name=n");
    check("GET /apis/g/v/r?fieldSelector=foo=bar&labelSelector=baz=qux", "list g/v r fields=foo=bar labels=baz=qux");
    check("DELETE /apis/g/v/r?fieldSelector=a=b&labelSelector=c=d", "deletecollection g/v r fields=a=b labels=c=d");
    check("DELETE /apis/g/v/r?fieldSelector=metadata.name=n", "deletecollection g/v r fields=metadata.name=n");
    check(
        "GET /apis/g/v/r?fieldSelector=metadata.name=a&fieldSelector=metadata.name=b&labelSelector=x=1&labelSelector=x=2",
        "list g/v r name=a fields=metadata.name=a labels=x=1",
    );
    check("GET /apis/g/v/r/n?fieldSelector=a=b&labelSelector=c=d", "get g/v r name=n");
    check("POST /apis/g/v/r?fieldSelector=a=b", "create g/v r");
    check("GET /apis/g/v/r?labelSelector=a+in+%28b%2Cc%29", "list g/v r labels=a in (b,c)");
}

#[test]
fn malformed_list_option_drops_name_but_keeps_watch() {
    for (query, expected) in [
        ("fieldSelector=metadata.name=n,foo", "list g/v r fields=metadata.name=n,foo"),
        ("fieldSelector=metadata.name=n,foo&watch=true", "watch g/v r fields=metadata.name=n,foo"),
        ("fieldSelector=metadata.name=n,foo&watch=false", "list g/v r fields=metadata.name=n,foo"),
        ("fieldSelector=metadata.name=n&limit=x", "list g/v r fields=metadata.name=n"),
        ("fieldSelector=metadata.name=n&limit=", "list g/v r fields=metadata.name=n"),
        ("fieldSelector=metadata.name=n&limit=5&timeoutSeconds=5", "list g/v r name=n fields=metadata.name=n"),
        ("fieldSelector=metadata.name=n&timeoutSeconds=1s&watch=1", "watch g/v r fields=metadata.name=n"),
        ("fieldSelector=metadata.name=n&labelSelector=!!", "list g/v r fields=metadata.name=n labels=!!"),
        ("fieldSelector=metadata.name==n", "list g/v r name=n fields=metadata.name==n"),
        (r"fieldSelector=metadata.name=n\,m", r"list g/v r name=n,m fields=metadata.name=n\,m"),
        (r"fieldSelector=metadata.name=n\m", r"list g/v r fields=metadata.name=n\m"),
        ("fieldSelector=a=b,metadata.name=n", "list g/v r name=n fields=a=b,metadata.name=n"),
        ("fieldSelector=metadata.name!=n", "list g/v r fields=metadata.name!=n"),
        ("fieldSelector=metadata.name=..", "list g/v r fields=metadata.name=.."),
        ("fieldSelector=metadata.name=a%2Fb", "list g/v r fields=metadata.name=a/b"),
        ("fieldSelector=metadata.name=", "list g/v r fields=metadata.name="),
        ("fieldSelector=x.metadata.name=n", "list g/v r fields=x.metadata.name=n"),
    ] {
        check(&format!("GET /apis/g/v/r?{query}"), expected);
    }
}

#[test]
fn parse_decodes_escapes_before_splitting_path() {
    check("GET /api/v1/namespaces/n/pods/a%20b", "get /v1 pods name=a b ns=n");
    check("GET /%61pi/v1/pods", "list /v1 pods");
    check("GET /api/v1/pods/a%2Fb", "get /v1 pods name=a sub=b");
    check("GET /api/v1/pods%2F", "list /v1 pods");
    check("GET /api/v1/pods/%C3%A9+", "get /v1 pods name=é+");
    check("GET /api/v1/pods/a%3Fb?watch=1", "get /v1 pods name=a?b");
    check_error("GET /api/v1/pods/%zz", r#"invalid URL escape "%zz""#);
    check_error("GET /api/v1/pods/%4", r#"invalid URL escape "%4""#);
    check_error("GET /api/v1/pods/%é/x", r#"invalid URL escape "%é/""#);
    check_error("GET /healthz/%ff", r#"the path "/healthz/%ff" is not UTF-8 when decoded"#);
}

#[test]
fn parse_borrows_when_nothing_is_escaped() {
    let line = "/apis/apps/v1/namespaces/n/deployments?labelSelector=a=b&fieldSelector=c=d&limit=500";
    let Target::Resource(target) = Target::parse("GET", line).unwrap() else { panic!("a resource") };
    for text in [&target.group, &target.namespace, &target.resource, &target.label_selector, &target.field_selector] {
        assert!(matches!(text, Cow::Borrowed(_)), "{text}");
    }
    assert_eq!(target.group_version_resource().to_string(), "apps/v1, Resource=deployments");
    assert_eq!(target.group_resource().to_string(), "deployments.apps");
    assert_eq!(target.group_version().to_string(), "apps/v1");
}

#[test]
fn is_long_running_and_is_connect_by_path() {
    for (line, is_long_running, is_connect, reaches_backend) in [
        ("GET /api/v1/pods?watch=1", true, false, false),
        ("GET /api/v1/watch/pods", true, false, false),
        ("GET /api/v1/proxy/nodes/n", true, false, true),
        ("GET /api/v1/namespaces/n/pods/p/log", true, false, true),
        ("POST /api/v1/namespaces/n/pods/p/exec", true, true, true),
        ("GET /api/v1/namespaces/n/pods/p/attach", true, true, true),
        ("POST /api/v1/namespaces/n/pods/p/portforward", true, true, true),
        ("DELETE /api/v1/namespaces/n/services/s/proxy/x", true, true, true),
        ("OPTIONS /api/v1/nodes/n/proxy/x", true, true, true),
        ("GET /api/v1/namespaces/n/pods/p/status", false, false, false),
        ("GET /api/v1/pods", false, false, false),
        ("GET /debug/pprof/heap", true, false, false),
        ("GET /debug/pprof", false, false, false),
        ("GET /healthz", false, false, false),
    ] {
        let (method, path) = line.split_once(' ').unwrap();
        let target = Target::parse(method, path).unwrap();
        assert_eq!(target.is_long_running(), is_long_running, "{line}");
        let connects = matches!(&target, Target::Resource(resource) if resource.is_connect());
        assert_eq!(connects, is_connect, "{line}");
        let reaches = matches!(&target, Target::Resource(resource) if resource.reaches_backend());
        assert_eq!(reaches, reaches_backend, "{line}");
    }
}

#[test]
fn verb_names_round_trip() {
    for verb in Verb::NAMED {
        assert_eq!(Verb::from_name(verb.as_str()), Some(verb));
    }
    assert_eq!(Verb::from_name(""), None);
    assert!(Verb::Watch.is_read() && !Verb::Proxy.is_read());
}

proptest! {
    #[test]
    fn parse_never_panics(method in any::<String>(), line in any::<String>()) {
        if let Ok(target) = Target::parse(&method, &line) {
            prop_assert_eq!(target.path_and_query(), line.as_str());
            let _ = (target.is_long_running(), target.verb().len());
        }
    }

    #[test]
    fn parse_of_api_like_paths_never_panics(line in "(/|api|apis|v1|watch|proxy|namespaces|pods|status|%2F|%|\\?|&|watch=|fieldSelector=metadata.name=|,|;|\\+|é){0,14}") {
        let _ = Target::parse("GET", &line);
    }

    #[test]
    fn parse_returns_path_parts(
        group in "[a-z]{1,6}(\\.[a-z]{1,4})?", namespace in "[a-z]{1,8}", resource in "[a-z]{3,8}", name in "[^/%?]{1,8}",
    ) {
        let escaped: String = name.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let line = format!("/apis/{group}/v1/namespaces/{namespace}/{resource}/{escaped}");
        let Target::Resource(target) = Target::parse("PUT", &line).unwrap() else { panic!("a resource") };
        if resource != "status" && resource != "finalize" {
            prop_assert_eq!((&*target.group, &*target.namespace, &*target.name), (&*group, &*namespace, &*name));
            prop_assert_eq!((&*target.resource, target.verb), (&*resource, Verb::Update));
        }
    }
}

use expect_test::{Expect, expect};

use super::*;
use crate::groups::{CreationTimestamp, DiscoveryFreshness, DiscoveryScope};
use crate::testing::to_notation;

fn list(items: &str) -> String {
    format!(
        r#"{{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","metadata":{{}},
"items":{items}}}"#
    )
}

#[track_caller]
fn check(items: &str, expected: &Expect) {
    match parse_aggregated(list(items).as_bytes()) {
        Ok(groups) => expected.assert_eq(&to_notation(&groups)),
        Err(error) => expected.assert_eq(&format!("error: {error}")),
    }
}

#[track_caller]
fn check_error<T>(parse: impl Fn(&[u8]) -> Result<T, ParseError>, text: &str, expected: &Expect) {
    match parse(text.as_bytes()) {
        Ok(_) => panic!("{text} was read"),
        Err(error) => expected.assert_eq(&error.to_string()),
    }
}

#[test]
fn parse_reads_null_as_absent_and_skips_unknown_fields() {
    check("null", &expect![""]);
    check("[]", &expect![""]);
    check(
        r#"[{"metadata":{"name":"apps","uid":"7","labels":{"a":[{}]}},"new":[[1e999]],"versions":[{"version":"v1","resources":[
            {"resource":"deployments","responseKind":{"group":"","version":"","kind":"Deployment"},"scope":"Namespaced",
             "singularResource":"deployment","verbs":["get","list"],"shortNames":null,"categories":null,"later":true,
             "subresources":[{"subresource":"scale","responseKind":{"group":"autoscaling","version":"v1","kind":"Scale"},
             "acceptedTypes":null,"verbs":["get"]}]}],"freshness":"Stale"}]}]"#,
        &expect!["apps/v1! deployments:get,list deployments/scale=Scale:get"],
    );
    check(r#"[{"versions":[{"version":"v1","resources":[{"resource":"pods","verbs":null}]}]}]"#, &expect!["v1 pods@="]);
    check(r#"[{"metadata":null,"versions":null}]"#, &expect![""]);
}

#[test]
fn parse_accepts_v2_and_v2beta1() {
    let v2beta1 = list("[]").replace("/v2\"", "/v2beta1\"");
    assert_eq!(parse_aggregated(v2beta1.as_bytes()).unwrap().items(), []);
}

#[test]
fn parse_keeps_unknown_freshness_and_scope() {
    let text = list(
        r#"[{"metadata":{"name":"a","creationTimestamp":null},"versions":[{"version":"v1","freshness":"Ripe",
            "resources":[{"resource":"xs","scope":"Galaxy"}]}]},{"metadata":{"creationTimestamp":"2026-01-01T00:00:00Z"}}]"#,
    );
    let groups = parse_aggregated(text.as_bytes()).unwrap();
    let [first, second] = groups.items() else { panic!("two groups were written") };
    assert_eq!(first.creation_timestamp, CreationTimestamp::Null);
    assert_eq!(first.versions[0].freshness, DiscoveryFreshness::Other("Ripe".into()));
    assert_eq!(first.versions[0].resources[0].scope, DiscoveryScope::Other("Galaxy".into()));
    assert_eq!(second.creation_timestamp, CreationTimestamp::Absent);
}

#[test]
fn parse_interns_strings_and_lists() {
    let resource = |name: &str| format!(r#"{{"resource":"{name}","scope":"Cluster","verbs":["get","l\u0069st"]}}"#);
    let text =
        list(&format!(r#"[{{"versions":[{{"version":"v1","resources":[{},{}]}}]}}]"#, resource("a"), resource("b")));
    let groups = parse_aggregated(text.as_bytes()).unwrap();
    let resources = &groups.items()[0].versions[0].resources;
    let verbs = |at: usize| resources[at].verbs.clone().unwrap();
    assert_eq!(verbs(0).join(","), "get,list");
    assert!(std::sync::Arc::ptr_eq(&verbs(0), &verbs(1)));
}

#[test]
fn parse_rejects_missing_name_with_path() {
    check(
        r#"[{},{"versions":[{}]}]"#,
        &expect!["error: the discovery document lacks a name at items[1].versions[0].version"],
    );
    check(
        r#"[{"versions":[{"version":"v1"},{"version":"v2","resources":[{"resource":"a"},{}]}]}]"#,
        &expect!["error: the discovery document lacks a name at items[0].versions[1].resources[1].resource"],
    );
    check(
        r#"[{"versions":[{"version":"v1","resources":[{"resource":"a","subresources":[{"subresource":""}]}]}]}]"#,
        &expect![
            "error: the discovery document lacks a name at items[0].versions[0].resources[0].subresources[0].subresource"
        ],
    );
}

#[track_caller]
fn check_malformed(text: &str, expected: &Expect) {
    match parse_aggregated(text.as_bytes()) {
        Err(ParseError::Malformed { source }) => expected.assert_eq(&source.to_string()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn parse_rejects_wrong_json_types_with_position() {
    check_malformed(&list("{}"), &expect!["invalid type: map, expected a sequence at line 2 column 8"]);
    check_malformed(&list("[null]"), &expect!["invalid type: null, expected an object at line 2 column 13"]);
    let number = r#"[{"metadata":{"name":7}}]"#;
    check_malformed(&list(number), &expect!["invalid type: integer `7`, expected a string at line 2 column 30"]);
    let twice = r#"[{"metadata":{"name":"a","name":"b"}}]"#;
    check_malformed(&list(twice), &expect!["duplicate field `name` at line 2 column 39"]);
    check_malformed("{\n \"kind\": ", &expect!["EOF while parsing a value at line 2 column 9"]);
    check_malformed(&(list("[]") + "x"), &expect!["trailing characters at line 2 column 12"]);
    check_malformed("", &expect!["EOF while parsing a value at line 1 column 0"]);
    let error = parse_aggregated(b"").unwrap_err().to_string();
    assert_eq!(error, "the discovery document cannot be read: EOF while parsing a value at line 1 column 0");
}

#[test]
fn parse_rejects_other_kind_and_names_it() {
    check_error(
        parse_aggregated,
        r#"{"kind":"Status","apiVersion":"v1","code":403}"#,
        &expect![[r#"expected a document of kind APIGroupDiscoveryList, found "Status""#]],
    );
    check_error(
        parse_aggregated,
        r#"{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v3"}"#,
        &expect![[r#"expected a document of kind apidiscovery.k8s.io/v2, found "apidiscovery.k8s.io/v3""#]],
    );
    check_error(parse_group, "{}", &expect![[r#"expected a document of kind APIGroup, found """#]]);
    let long = format!(r#"{{"kind":"{}"}}"#, "ö".repeat(100));
    let error = parse_group_list(long.as_bytes()).unwrap_err().to_string();
    assert!(error.ends_with("öö…\"") && error.chars().count() < 150, "{error}");
}

#[test]
fn parse_legacy_rejects_missing_name_with_path() {
    let unnamed = |place: &str| format!("the discovery document lacks a name at {place}");
    let refused = |error: ParseError| error.to_string();
    let error = parse_api_versions(br#"{"kind":"APIVersions","versions":["v1",""]}"#).map_err(refused);
    assert_eq!(error.unwrap_err(), unnamed("versions[1]"));
    let error = parse_group_list(br#"{"kind":"APIGroupList","groups":[{"name":"a"},{}]}"#).map_err(refused);
    assert_eq!(error.unwrap_err(), unnamed("groups[1].name"));
    let error = parse_group(br#"{"kind":"APIGroup","name":"a","versions":[{"groupVersion":"a/v1"}]}"#).map_err(refused);
    assert_eq!(error.unwrap_err(), unnamed("versions[0].version"));
    for name in ["", "/", "/status", "pods/"] {
        let text = format!(r#"{{"kind":"APIResourceList","groupVersion":"v1","resources":[{{"name":"{name}"}}]}}"#);
        assert_eq!(parse_resource_list(text.as_bytes()).map_err(refused).unwrap_err(), unnamed("resources[0].name"));
    }
}

#[test]
fn parse_legacy_rejects_malformed_group_version() {
    check_error(
        parse_resource_list,
        r#"{"kind":"APIResourceList","groupVersion":"a/b/c","resources":[]}"#,
        &expect![[r#""a/b/c" at groupVersion is not a group and version"#]],
    );
    check_error(
        parse_group_list,
        r#"{"kind":"APIGroupList","groups":[{"name":"a","versions":[{"version":"v1","groupVersion":"a/"}]}]}"#,
        &expect![[r#""a/" at groups[0].versions[0].groupVersion is not a group and version"#]],
    );
}

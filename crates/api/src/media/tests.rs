use expect_test::{Expect, expect};
use proptest::prelude::*;

use super::*;

const V2: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
const V2BETA1: &str = "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList";
const APIS: DiscoveryOffer =
    DiscoveryOffer { aggregated: Encodings::ALL, legacy: Encodings::ALL, oldest_version: AggregatedVersion::V2 };

fn print(result: Result<NegotiatedMediaType, NotAcceptable>) -> String {
    match result {
        Ok(NegotiatedMediaType { encoding, transform, pretty }) => {
            let transform = transform.map_or(String::new(), |to| format!(" {:?} {:?}", to.kind, to.version));
            format!("{encoding:?}{transform}{}", if pretty { " pretty" } else { "" })
        }
        Err(error) => error.to_string(),
    }
}

#[track_caller]
fn check(accept: &str, expected: &str) {
    assert_eq!(print(negotiate(accept, ObjectOffer::BUILT_IN)), expected, "{accept}");
}

#[track_caller]
fn check_discovery(accept: &str, offer: DiscoveryOffer, expected: &str) {
    let found = match negotiate_discovery(accept, offer) {
        Ok(DiscoveryFormat::Aggregated { version, encoding, profile, pretty }) => {
            format!("{version:?} {encoding:?} {profile:?}{}", if pretty { " pretty" } else { "" })
        }
        Ok(DiscoveryFormat::Legacy { encoding, pretty }) => {
            format!("legacy {encoding:?}{}", if pretty { " pretty" } else { "" })
        }
        Err(_) => "406".to_owned(),
    };
    assert_eq!(found, expected, "{accept}");
}

const NOT_ACCEPTABLE: &str = "only the following media types are accepted: application/json, application/yaml, \
     application/vnd.kubernetes.protobuf";

#[test]
fn negotiate_matches_concrete_types_and_wildcards() {
    check("", "Json");
    check("application/json", "Json");
    check("application/yaml", "Yaml");
    check("application/vnd.kubernetes.protobuf", "Protobuf");
    check("application/*", "Json");
    check("*/*", "Json");
    check("*", "Json");
    check("*/", "Json");
    check("text/html,application/xhtml+xml,application/xml;q=0.9,image/webp,*/*;q=0.8", "Json");
    check("text/html", NOT_ACCEPTABLE);
    check("*/json", NOT_ACCEPTABLE);
    check("application", NOT_ACCEPTABLE);
    check("application/", NOT_ACCEPTABLE);
    check("application/json/x", NOT_ACCEPTABLE);
    check("Application/JSON", NOT_ACCEPTABLE);
    check(",", NOT_ACCEPTABLE);
    check(" ", NOT_ACCEPTABLE);
    check("application/json/", "Json");
    check("  application / json  ", "Json");
    check("\tapplication/json", NOT_ACCEPTABLE);
}

#[test]
fn negotiate_orders_clauses_by_quality_then_position() {
    check("application/yaml,application/json", "Yaml");
    check("application/yaml;q=0.5,application/json", "Json");
    check("application/json;q=0.1,application/yaml;q=0.3,application/vnd.kubernetes.protobuf;q=0.2", "Yaml");
    check("*/*,application/yaml", "Yaml");
    check("application/*,application/yaml", "Yaml");
    check("application/json;q=x,application/yaml;q=0.1", "Yaml");
    check("application/json;q= 1,application/yaml;q=0.1", "Yaml");
    check("application/json;q=inf,application/yaml", "Json");
    // q=0 does not exclude an encoding; it only sorts last.
    check("application/yaml;q=0", "Yaml");
}

#[test]
fn concrete_type_after_higher_quality_wildcard_wins() {
    check("*/*;q=1,application/yaml;q=0.5", "Yaml");
    check("application/yaml;q=0.5,*/*;q=1", "Json");
}

#[test]
fn negotiate_table_and_partial_object_metadata() {
    check("application/json;as=Table;g=meta.k8s.io;v=v1", "Json Table V1");
    check("application/json;v=v1beta1;g=meta.k8s.io;as=Table", "Json Table V1Beta1");
    check("application/yaml;as=Table;v=v1;g=meta.k8s.io", "Yaml Table V1");
    check("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1", "Json PartialObjectMetadata V1");
    check(
        "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
        "Protobuf PartialObjectMetadataList V1",
    );
    check("application/*;as=PartialObjectMetadata;g=meta.k8s.io;v=v1", "Json PartialObjectMetadata V1");
    // Tables have no protobuf encoding.
    check("application/vnd.kubernetes.protobuf;as=Table;g=meta.k8s.io;v=v1", NOT_ACCEPTABLE);
    check("application/vnd.kubernetes.protobuf;as=Table;g=meta.k8s.io;v=v1,application/json", "Json");
    // As sent by kubectl.
    check(
        "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json",
        "Json Table V1",
    );
}

#[test]
fn negotiate_skips_clauses_for_kinds_not_offered() {
    check("application/json;as=Table", NOT_ACCEPTABLE);
    check("application/json;as=Table;g=meta.k8s.io", NOT_ACCEPTABLE);
    check("application/json;as=Table;g=meta.k8s.io;v=v2", NOT_ACCEPTABLE);
    check("application/json;as=Chair;g=meta.k8s.io;v=v1", NOT_ACCEPTABLE);
    check("application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/yaml", "Yaml");
    check("application/json;v=v1", NOT_ACCEPTABLE);
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    assert_eq!(print(negotiate(table, ObjectOffer::OBJECT_ONLY)), NOT_ACCEPTABLE);
    assert_eq!(print(negotiate("application/vnd.kubernetes.protobuf", ObjectOffer::CUSTOM)), NOT_ACCEPTABLE);
    assert_eq!(print(negotiate("application/vnd.kubernetes.protobuf,application/json", ObjectOffer::CUSTOM)), "Json");
    let metadata = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
    assert_eq!(print(negotiate(metadata, ObjectOffer::CUSTOM)), "Protobuf PartialObjectMetadata V1");
    assert_eq!(
        print(negotiate("application/yaml", ObjectOffer::JSON)),
        "only the following media types are accepted: application/json"
    );
}

#[test]
fn negotiate_honours_media_type_parameters() {
    check("application/json;pretty=1", "Json pretty");
    check("application/json;pretty=true", "Json");
    check("application/json; pretty = 1 ", "Json pretty");
    check("application/json;pretty=1;pretty=0", "Json");
    check("application/json;pretty", "Json");
    check("application/json;pretty=1=2", "Json");
    check("application/json;pretty=1=", "Json pretty");
    check("application/json;charset=utf-8;x=y;export=1;=;;", "Json");
    check("application/json;stream=watch", "Json");
    check("application/json;stream=", "Json");
    check("application/json;stream=other", NOT_ACCEPTABLE);
    check("application/yaml;stream=watch", NOT_ACCEPTABLE);
    check("*/*;stream=watch", "Json");
    check("application/json;sv=v1", "Json");
    check("application/json;sv=v2", NOT_ACCEPTABLE);
    check("application/json;as=;g=;v=", "Json");
}

#[test]
fn negotiate_stream_requires_watch_encoding() {
    let check = |accept: &str, expected: &str| {
        assert_eq!(print(negotiate_stream(accept, ObjectOffer::BUILT_IN)), expected, "{accept}");
    };
    check("", "Json");
    check("application/vnd.kubernetes.protobuf;stream=watch", "Protobuf");
    check(
        "application/yaml,application/json",
        "only the following media types are accepted: application/json;stream=watch, \
         application/vnd.kubernetes.protobuf;stream=watch",
    );
    assert_eq!(Encoding::Json.watch_media_type(), Some("application/json"));
}

#[test]
fn negotiate_discovery_selects_aggregated_format() {
    check_discovery(V2, APIS, "V2 Json Merged");
    check_discovery(&format!("{V2};profile=nopeer"), APIS, "V2 Json Local");
    check_discovery(&format!("{V2};profile=local"), APIS, "V2 Json Local");
    check_discovery(&format!("{V2};profile=other;pretty=1"), APIS, "V2 Json Merged pretty");
    check_discovery(&V2.replace("json", "yaml"), APIS, "V2 Yaml Merged");
    check_discovery(&V2.replace("json", "vnd.kubernetes.protobuf"), APIS, "V2 Protobuf Merged");
    check_discovery(
        "application/json;as=APIGroupDiscoveryList;profile=nopeer;v=v2;g=apidiscovery.k8s.io",
        APIS,
        "V2 Json Local",
    );
    check_discovery("*/*;as=APIGroupDiscoveryList;v=v2;g=apidiscovery.k8s.io", APIS, "V2 Json Merged");
    // At any position and quality.
    check_discovery(&format!("application/json,{V2};q=0.1"), APIS, "V2 Json Merged");
    // As sent by client-go, with and without peers.
    check_discovery(&format!("{V2},{V2BETA1},application/json"), APIS, "V2 Json Merged");
    check_discovery(&format!("{V2};profile=nopeer,{V2},{V2BETA1},application/json"), APIS, "V2 Json Local");
}

#[test]
fn negotiate_discovery_selects_legacy_format() {
    check_discovery("", APIS, "legacy Json");
    check_discovery("application/json", APIS, "legacy Json");
    check_discovery("application/yaml", APIS, "legacy Yaml");
    check_discovery("*/*", APIS, "legacy Json");
    check_discovery("application/json;pretty=1", APIS, "legacy Json pretty");
    check_discovery("application/json;profile=nopeer", APIS, "legacy Json");
    check_discovery("application/json;sv=v1", APIS, "406");
    check_discovery("application/json;stream=watch", APIS, "legacy Json");
    check_discovery("text/html", APIS, "406");
}

#[test]
fn v2beta1_is_selected_only_where_offered() {
    let older = DiscoveryOffer { oldest_version: AggregatedVersion::V2Beta1, ..APIS };
    check_discovery(V2BETA1, older, "V2Beta1 Json Merged");
    check_discovery(&format!("{V2BETA1},{V2}"), older, "V2Beta1 Json Merged");
    check_discovery(V2BETA1, APIS, "406");
    check_discovery(&format!("{V2BETA1},application/json"), APIS, "legacy Json");
}

#[test]
fn legacy_only_endpoint_falls_back_to_legacy_format() {
    let group = DiscoveryOffer { aggregated: Encodings::NONE, ..APIS };
    check_discovery(&format!("{V2},{V2BETA1},application/json"), group, "legacy Json");
    check_discovery(V2, group, "406");
    let error = negotiate_discovery(V2, group).unwrap_err();
    expect![[r#"
        {"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"only the following media types are accepted: application/json, application/yaml, application/vnd.kubernetes.protobuf","reason":"NotAcceptable","code":406}
    "#]]
    .assert_eq(&String::from_utf8(Status::from(error).to_json()).unwrap());
}

#[test]
fn discovery_format_and_body_content_types() {
    fn check(form: DiscoveryFormat, expected: &Expect) {
        expected.assert_eq(form.media_type());
    }
    let aggregated =
        |version, encoding| DiscoveryFormat::Aggregated { version, encoding, profile: Profile::Local, pretty: true };
    check(
        aggregated(AggregatedVersion::V2, Encoding::Json),
        &expect!["application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"],
    );
    check(
        aggregated(AggregatedVersion::V2Beta1, Encoding::Protobuf),
        &expect!["application/vnd.kubernetes.protobuf;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList"],
    );
    check(DiscoveryFormat::Legacy { encoding: Encoding::Yaml, pretty: false }, &expect!["application/yaml"]);
    assert_eq!(Encoding::from_content_type(""), Some(Encoding::Json));
    assert_eq!(Encoding::from_content_type("Application/YAML ; charset=utf-8"), Some(Encoding::Yaml));
    assert_eq!(Encoding::from_content_type("application/merge-patch+json"), None);
}

#[test]
fn is_pretty_print_follows_query_then_user_agent() {
    for (query, user_agent, expected) in [
        ("", "kubectl/v1.36.0", false),
        ("", "curl/8.0", true),
        ("", "Wget/1.2", true),
        ("", "Mozilla/5.0 (X11)", true),
        ("", "Mozilla/4.0", false),
        ("pretty=true", "kubectl", true),
        ("a=1&pretty=1", "", true),
        ("pretty=T", "", true),
        ("pretty=0", "curl/8.0", false),
        ("pretty=yes", "curl/8.0", false),
        ("pretty=", "curl/8.0", true),
        ("prettyplease=1", "", false),
        ("pretty=false&pretty=true", "", false),
    ] {
        assert_eq!(is_pretty_print(query, user_agent), expected, "{query} {user_agent}");
    }
}

#[test]
fn accept_header_is_read_up_to_clause_limit() {
    let noise = "text/html,".repeat(ACCEPT_CLAUSES_MAX - 1);
    check(&format!("{noise}application/yaml"), "Yaml");
    check(&format!("{noise}text/html,application/yaml"), NOT_ACCEPTABLE);
}

proptest! {
    #[test]
    fn negotiation_never_panics(accept in any::<String>()) {
        let _ = (negotiate(&accept, ObjectOffer::BUILT_IN), negotiate_stream(&accept, ObjectOffer::CUSTOM));
        let _ = (negotiate_discovery(&accept, APIS), is_pretty_print(&accept, &accept), Encoding::from_content_type(&accept));
    }

    #[test]
    fn negotiated_encoding_was_requested(accept in "((application|\\*|text)/(json|yaml|\\*|vnd.kubernetes.protobuf)(;q=0\\.[0-9]|;as=Table|;g=meta.k8s.io|;v=v1|;pretty=1){0,4},? ?){0,14}") {
        match negotiate(&accept, ObjectOffer::BUILT_IN) {
            Ok(accepted) => {
                let name = accepted.encoding.media_type();
                prop_assert!(accept.is_empty() || accept.contains(name) || accept.contains('*'));
                prop_assert_eq!(accepted.pretty && !accept.contains("pretty=1"), false);
                prop_assert!(accepted.transform.is_none() || accept.contains("as=Table"));
            }
            Err(_) => prop_assert!(!accept.split(',').any(|clause| clause.trim() == "application/json")),
        }
    }
}

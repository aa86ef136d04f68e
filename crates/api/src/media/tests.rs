use expect_test::{Expect, expect};
use proptest::prelude::*;

use super::*;

const V2: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
const V2BETA1: &str = "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList";
const APIS: DiscoveryOffer =
    DiscoveryOffer { aggregated: Encodings::ALL, legacy: Encodings::ALL, oldest: AggregatedVersion::V2 };

fn print(result: Result<Accepted, NotAcceptable>) -> String {
    match result {
        Ok(Accepted { encoding, transform, pretty }) => {
            let transform = transform.map_or(String::new(), |to| format!(" {:?} {:?}", to.kind, to.version));
            format!("{encoding:?}{transform}{}", if pretty { " pretty" } else { "" })
        }
        Err(error) => error.to_string(),
    }
}

#[track_caller]
fn check(accept: &str, expected: &str) {
    assert_eq!(print(negotiate(accept, Offer::BUILT_IN)), expected, "{accept}");
}

#[track_caller]
fn check_discovery(accept: &str, offer: DiscoveryOffer, expected: &str) {
    let found = match negotiate_discovery(accept, offer) {
        Ok(DiscoveryForm::Aggregated { version, encoding, profile, pretty }) => {
            format!("{version:?} {encoding:?} {profile:?}{}", if pretty { " pretty" } else { "" })
        }
        Ok(DiscoveryForm::Legacy { encoding, pretty }) => {
            format!("legacy {encoding:?}{}", if pretty { " pretty" } else { "" })
        }
        Err(_) => "406".to_owned(),
    };
    assert_eq!(found, expected, "{accept}");
}

const REFUSED: &str = "only the following media types are accepted: application/json, application/yaml, \
     application/vnd.kubernetes.protobuf";

#[test]
fn concrete_types_and_wildcards() {
    check("", "Json");
    check("application/json", "Json");
    check("application/yaml", "Yaml");
    check("application/vnd.kubernetes.protobuf", "Protobuf");
    check("application/*", "Json");
    check("*/*", "Json");
    check("*", "Json");
    check("*/", "Json");
    check("text/html,application/xhtml+xml,application/xml;q=0.9,image/webp,*/*;q=0.8", "Json");
    check("text/html", REFUSED);
    check("*/json", REFUSED);
    check("application", REFUSED);
    check("application/", REFUSED);
    check("application/json/x", REFUSED);
    check("Application/JSON", REFUSED);
    check(",", REFUSED);
    check(" ", REFUSED);
    check("application/json/", "Json");
    check("  application / json  ", "Json");
    check("\tapplication/json", REFUSED);
}

#[test]
fn quality_decides_and_equal_clauses_keep_their_order() {
    check("application/yaml,application/json", "Yaml");
    check("application/yaml;q=0.5,application/json", "Json");
    check("application/json;q=0.1,application/yaml;q=0.3,application/vnd.kubernetes.protobuf;q=0.2", "Yaml");
    check("*/*,application/yaml", "Yaml");
    check("application/*,application/yaml", "Yaml");
    check("application/json;q=x,application/yaml;q=0.1", "Yaml");
    check("application/json;q= 1,application/yaml;q=0.1", "Yaml");
    check("application/json;q=inf,application/yaml", "Json");
    // A refusal by q=0 is not one: it only comes last.
    check("application/yaml;q=0", "Yaml");
}

#[test]
fn a_concrete_type_behind_a_better_wildcard_still_wins_as_in_go() {
    check("*/*;q=1,application/yaml;q=0.5", "Yaml");
    check("application/yaml;q=0.5,*/*;q=1", "Json");
}

#[test]
fn tables_and_metadata() {
    check("application/json;as=Table;g=meta.k8s.io;v=v1", "Json Table V1");
    check("application/json;v=v1beta1;g=meta.k8s.io;as=Table", "Json Table V1Beta1");
    check("application/yaml;as=Table;v=v1;g=meta.k8s.io", "Yaml Table V1");
    check("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1", "Json PartialObjectMetadata V1");
    check(
        "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
        "Protobuf PartialObjectMetadataList V1",
    );
    check("application/*;as=PartialObjectMetadata;g=meta.k8s.io;v=v1", "Json PartialObjectMetadata V1");
    // There is no protobuf form of a table.
    check("application/vnd.kubernetes.protobuf;as=Table;g=meta.k8s.io;v=v1", REFUSED);
    check("application/vnd.kubernetes.protobuf;as=Table;g=meta.k8s.io;v=v1,application/json", "Json");
    // What kubectl sends.
    check(
        "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json",
        "Json Table V1",
    );
}

#[test]
fn kinds_that_are_not_offered_are_passed_over() {
    check("application/json;as=Table", REFUSED);
    check("application/json;as=Table;g=meta.k8s.io", REFUSED);
    check("application/json;as=Table;g=meta.k8s.io;v=v2", REFUSED);
    check("application/json;as=Chair;g=meta.k8s.io;v=v1", REFUSED);
    check("application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/yaml", "Yaml");
    check("application/json;v=v1", REFUSED);
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    assert_eq!(print(negotiate(table, Offer::PLAIN)), REFUSED);
    assert_eq!(print(negotiate("application/vnd.kubernetes.protobuf", Offer::CUSTOM)), REFUSED);
    assert_eq!(print(negotiate("application/vnd.kubernetes.protobuf,application/json", Offer::CUSTOM)), "Json");
    let metadata = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
    assert_eq!(print(negotiate(metadata, Offer::CUSTOM)), "Protobuf PartialObjectMetadata V1");
    assert_eq!(
        print(negotiate("application/yaml", Offer::JSON)),
        "only the following media types are accepted: application/json"
    );
}

#[test]
fn parameters() {
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
    check("application/json;stream=other", REFUSED);
    check("application/yaml;stream=watch", REFUSED);
    check("*/*;stream=watch", "Json");
    check("application/json;sv=v1", "Json");
    check("application/json;sv=v2", REFUSED);
    check("application/json;as=;g=;v=", "Json");
}

#[test]
fn watches_need_an_encoding_that_streams() {
    let check = |accept: &str, expected: &str| {
        assert_eq!(print(negotiate_stream(accept, Offer::BUILT_IN)), expected, "{accept}");
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
fn aggregated_discovery() {
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
    // Wherever it stands and whatever its quality.
    check_discovery(&format!("application/json,{V2};q=0.1"), APIS, "V2 Json Merged");
    // What client-go sends, with and without peers.
    check_discovery(&format!("{V2},{V2BETA1},application/json"), APIS, "V2 Json Merged");
    check_discovery(&format!("{V2};profile=nopeer,{V2},{V2BETA1},application/json"), APIS, "V2 Json Local");
}

#[test]
fn legacy_discovery() {
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
fn the_beta_version_only_where_it_is_offered() {
    let older = DiscoveryOffer { oldest: AggregatedVersion::V2Beta1, ..APIS };
    check_discovery(V2BETA1, older, "V2Beta1 Json Merged");
    check_discovery(&format!("{V2BETA1},{V2}"), older, "V2Beta1 Json Merged");
    check_discovery(V2BETA1, APIS, "406");
    check_discovery(&format!("{V2BETA1},application/json"), APIS, "legacy Json");
}

#[test]
fn an_endpoint_without_an_aggregated_form_falls_back() {
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
fn content_types() {
    fn check(form: DiscoveryForm, expected: &Expect) {
        expected.assert_eq(form.media_type());
    }
    let aggregated =
        |version, encoding| DiscoveryForm::Aggregated { version, encoding, profile: Profile::Local, pretty: true };
    check(
        aggregated(AggregatedVersion::V2, Encoding::Json),
        &expect!["application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"],
    );
    check(
        aggregated(AggregatedVersion::V2Beta1, Encoding::Protobuf),
        &expect!["application/vnd.kubernetes.protobuf;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList"],
    );
    check(DiscoveryForm::Legacy { encoding: Encoding::Yaml, pretty: false }, &expect!["application/yaml"]);
    assert_eq!(Encoding::of_body(""), Some(Encoding::Json));
    assert_eq!(Encoding::of_body("Application/YAML ; charset=utf-8"), Some(Encoding::Yaml));
    assert_eq!(Encoding::of_body("application/merge-patch+json"), None);
}

#[test]
fn people_get_indentation() {
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
        assert_eq!(is_pretty(query, user_agent), expected, "{query} {user_agent}");
    }
}

#[test]
fn a_long_header_is_read_up_to_the_limit() {
    let noise = "text/html,".repeat(CLAUSES_MAX - 1);
    check(&format!("{noise}application/yaml"), "Yaml");
    check(&format!("{noise}text/html,application/yaml"), REFUSED);
}

proptest! {
    #[test]
    fn nothing_panics(accept in any::<String>()) {
        let _ = (negotiate(&accept, Offer::BUILT_IN), negotiate_stream(&accept, Offer::CUSTOM));
        let _ = (negotiate_discovery(&accept, APIS), is_pretty(&accept, &accept), Encoding::of_body(&accept));
    }

    #[test]
    fn an_accepted_encoding_was_asked_for(accept in "((application|\\*|text)/(json|yaml|\\*|vnd.kubernetes.protobuf)(;q=0\\.[0-9]|;as=Table|;g=meta.k8s.io|;v=v1|;pretty=1){0,4},? ?){0,14}") {
        match negotiate(&accept, Offer::BUILT_IN) {
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

//! Malformed input results in an error, never in a panic, stack overflow or endless loop.

use discovery::ParseError;
use discovery::parse::{
    DOCUMENT_BYTES_MAX, DOCUMENT_ELEMENTS_MAX, DOCUMENT_OBJECTS_MAX, parse_aggregated, parse_api_versions, parse_group,
    parse_group_list, parse_resource_list,
};
use proptest::collection::vec;
use proptest::prelude::*;

/// Runs every parser; `None` if the bytes were accepted.
fn parse_with_all_parsers(bytes: &[u8]) -> [Option<ParseError>; 5] {
    [
        parse_aggregated(bytes).err(),
        parse_api_versions(bytes).err(),
        parse_group_list(bytes).err(),
        parse_group(bytes).err(),
        parse_resource_list(bytes).err(),
    ]
}

#[track_caller]
fn check_rejected(bytes: &[u8]) {
    let is_refused = parse_with_all_parsers(bytes).iter().all(Option::is_some);
    assert!(is_refused, "{:?} was read", String::from_utf8_lossy(&bytes[..bytes.len().min(200)]));
}

const LIST_HEAD: &str = r#"{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","#;

#[test]
fn parse_rejects_deep_nesting() {
    for (open, close) in [("[", "]"), (r#"{"items":["#, "]}"), (r#"{"a":"#, "}")] {
        let text = open.repeat(100_000);
        check_rejected(text.as_bytes());
        check_rejected((LIST_HEAD.to_owned() + r#""items":"# + &text).as_bytes());
        check_rejected((LIST_HEAD.to_owned() + r#""unknown":"# + &text).as_bytes());
        let closed = format!("{text}1{}", close.repeat(100_000));
        check_rejected(closed.as_bytes());
        check_rejected(format!("{LIST_HEAD}\"items\":{closed}}}").as_bytes());
        // Ignored fields may nest deeply without harm.
        parse_with_all_parsers(format!("{LIST_HEAD}\"unknown\":{closed}}}").as_bytes());
    }
}

#[test]
fn parse_rejects_oversized_document() {
    let garbage = vec![b'x'; 64 * 1024 * 1024];
    for error in parse_with_all_parsers(&garbage) {
        assert!(matches!(error, Some(ParseError::TooLong { bytes }) if bytes == garbage.len()));
    }
    assert!(matches!(parse_aggregated(&garbage[..DOCUMENT_BYTES_MAX]), Err(ParseError::Malformed { .. })));
}

#[test]
fn parse_rejects_too_many_objects_or_elements() {
    let items =
        |item: &str, count: usize| format!("{LIST_HEAD}\"items\":[{}{item}]}}", format!("{item},").repeat(count));
    let objects = items("{}", DOCUMENT_OBJECTS_MAX);
    assert!(matches!(parse_aggregated(objects.as_bytes()), Err(ParseError::TooMany { of: "objects", .. })));
    let elements = items(r#""""#, DOCUMENT_ELEMENTS_MAX);
    assert!(matches!(parse_aggregated(elements.as_bytes()), Err(ParseError::TooMany { of: "elements", .. })));
    let allowed = items("{}", DOCUMENT_OBJECTS_MAX - 2);
    assert_eq!(parse_aggregated(allowed.as_bytes()).unwrap().items().len(), DOCUMENT_OBJECTS_MAX - 1);
}

#[test]
fn parse_rejects_wrong_types_and_numbers() {
    let huge = "9".repeat(100_000);
    for value in ["0", "-1", "1e999999", &huge, "true", "\"x\"", "{}", "[0]", "[[]]", "[\"\\ud800\"]", "\u{0}"] {
        check_rejected(format!("{LIST_HEAD}\"items\":{value}}}").as_bytes());
        check_rejected(value.as_bytes());
    }
    check_rejected(br#"{"kind":7}"#);
    check_rejected(br#"["APIGroupDiscoveryList","apidiscovery.k8s.io/v2",[]]"#);
    check_rejected(br#"["APIVersions"]"#);
    check_rejected(br#"{"kind":"APIGroupList","groups":[["a"]]}"#);
    check_rejected(br#"{"kind":"APIGroup","name":"a","preferredVersion":[]}"#);
    check_rejected(b"\xff\xfe");
    check_rejected(b"{\"kind\":\"\xff\"}");
    check_rejected("\u{feff}{}".as_bytes());
}

#[test]
fn parse_rejects_duplicate_keys() {
    check_rejected(format!("{LIST_HEAD}\"kind\":\"x\"}}").as_bytes());
    check_rejected(format!("{LIST_HEAD}\"items\":[],\"items\":[]}}").as_bytes());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn parse_never_panics_on_random_bytes(bytes in vec(any::<u8>(), 0..200)) {
        parse_with_all_parsers(&bytes);
    }

    #[test]
    fn parse_never_panics_on_damaged_document(at in any::<usize>(), byte in any::<u8>(), cut in any::<usize>()) {
        let mut text = format!(
            "{LIST_HEAD}{}}}",
            r#""metadata":{},"items":[{"metadata":{"name":"g"},"versions":[{"version":"v1","resources":[{"resource":"xs",
               "responseKind":{"group":"","version":"","kind":"X"},"scope":"Namespaced","singularResource":"x","verbs":["get"],
               "subresources":[{"subresource":"s","verbs":null}]}],"freshness":"Current"}]}]"#
        )
        .into_bytes();
        prop_assert!(parse_aggregated(&text).is_ok());
        let length = text.len();
        text[at % length] = byte;
        parse_with_all_parsers(&text);
        text.truncate(cut % length);
        parse_with_all_parsers(&text);
    }
}

//! Bytes that nobody means well with give an error, not a panic, not an exhausted stack, not an endless run.

use discovery::ParseError;
use discovery::parse::{
    BYTES_MAX, ELEMENTS_MAX, OBJECTS_MAX, parse_aggregated, parse_api_versions, parse_group, parse_group_list,
    parse_resource_list,
};
use proptest::collection::vec;
use proptest::prelude::*;

/// The outcome of each way of reading; `None` if the bytes were read.
fn read_as_all(bytes: &[u8]) -> [Option<ParseError>; 5] {
    [
        parse_aggregated(bytes).err(),
        parse_api_versions(bytes).err(),
        parse_group_list(bytes).err(),
        parse_group(bytes).err(),
        parse_resource_list(bytes).err(),
    ]
}

#[track_caller]
fn check_refused(bytes: &[u8]) {
    let is_refused = read_as_all(bytes).iter().all(Option::is_some);
    assert!(is_refused, "{:?} was read", String::from_utf8_lossy(&bytes[..bytes.len().min(200)]));
}

const HEAD: &str = r#"{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","#;

#[test]
fn deep_nesting_is_refused() {
    for (open, close) in [("[", "]"), (r#"{"items":["#, "]}"), (r#"{"a":"#, "}")] {
        let text = open.repeat(100_000);
        check_refused(text.as_bytes());
        check_refused((HEAD.to_owned() + r#""items":"# + &text).as_bytes());
        check_refused((HEAD.to_owned() + r#""unknown":"# + &text).as_bytes());
        let closed = format!("{text}1{}", close.repeat(100_000));
        check_refused(closed.as_bytes());
        check_refused(format!("{HEAD}\"items\":{closed}}}").as_bytes());
        // In a field that is passed over, depth does no harm; it must not do any.
        read_as_all(format!("{HEAD}\"unknown\":{closed}}}").as_bytes());
    }
}

#[test]
fn too_long_a_document_is_refused_unread() {
    let garbage = vec![b'x'; 64 * 1024 * 1024];
    for error in read_as_all(&garbage) {
        assert!(matches!(error, Some(ParseError::TooLong { bytes }) if bytes == garbage.len()));
    }
    assert!(matches!(parse_aggregated(&garbage[..BYTES_MAX]), Err(ParseError::Malformed { .. })));
}

#[test]
fn too_many_objects_or_elements_are_refused_unread() {
    let items = |item: &str, count: usize| format!("{HEAD}\"items\":[{}{item}]}}", format!("{item},").repeat(count));
    let objects = items("{}", OBJECTS_MAX);
    assert!(matches!(parse_aggregated(objects.as_bytes()), Err(ParseError::TooMany { of: "objects", .. })));
    let elements = items(r#""""#, ELEMENTS_MAX);
    assert!(matches!(parse_aggregated(elements.as_bytes()), Err(ParseError::TooMany { of: "elements", .. })));
    let allowed = items("{}", OBJECTS_MAX - 2);
    assert_eq!(parse_aggregated(allowed.as_bytes()).unwrap().items().len(), OBJECTS_MAX - 1);
}

#[test]
fn wrong_types_and_numbers_are_refused() {
    let huge = "9".repeat(100_000);
    for value in ["0", "-1", "1e999999", &huge, "true", "\"x\"", "{}", "[0]", "[[]]", "[\"\\ud800\"]", "\u{0}"] {
        check_refused(format!("{HEAD}\"items\":{value}}}").as_bytes());
        check_refused(value.as_bytes());
    }
    check_refused(br#"{"kind":7}"#);
    check_refused(br#"["APIGroupDiscoveryList","apidiscovery.k8s.io/v2",[]]"#);
    check_refused(br#"["APIVersions"]"#);
    check_refused(br#"{"kind":"APIGroupList","groups":[["a"]]}"#);
    check_refused(br#"{"kind":"APIGroup","name":"a","preferredVersion":[]}"#);
    check_refused(b"\xff\xfe");
    check_refused(b"{\"kind\":\"\xff\"}");
    check_refused("\u{feff}{}".as_bytes());
}

#[test]
fn a_key_given_twice_is_refused() {
    check_refused(format!("{HEAD}\"kind\":\"x\"}}").as_bytes());
    check_refused(format!("{HEAD}\"items\":[],\"items\":[]}}").as_bytes());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_read_or_refused(bytes in vec(any::<u8>(), 0..200)) {
        read_as_all(&bytes);
    }

    #[test]
    fn a_damaged_document_is_read_or_refused(at in any::<usize>(), byte in any::<u8>(), cut in any::<usize>()) {
        let mut text = format!(
            "{HEAD}{}}}",
            r#""metadata":{},"items":[{"metadata":{"name":"g"},"versions":[{"version":"v1","resources":[{"resource":"xs",
               "responseKind":{"group":"","version":"","kind":"X"},"scope":"Namespaced","singularResource":"x","verbs":["get"],
               "subresources":[{"subresource":"s","verbs":null}]}],"freshness":"Current"}]}]"#
        )
        .into_bytes();
        prop_assert!(parse_aggregated(&text).is_ok());
        let length = text.len();
        text[at % length] = byte;
        read_as_all(&text);
        text.truncate(cut % length);
        read_as_all(&text);
    }
}

//! Parsing and validation of query options.

use expect_test::{Expect, expect};

use super::*;

#[track_caller]
fn check(query: &str, expected: &Expect) {
    check_for(ReadVerb::List, query, expected);
}

#[track_caller]
fn check_for(verb: ReadVerb, query: &str, expected: &Expect) {
    let shown = match ListOptions::parse(query, verb) {
        Ok(options) => format!("limit {:?} {:?}", options.limit, options.list_consistency()),
        Err(status) => format!("{} {}", status.http_code(), status.message),
    };
    expected.assert_eq(&shown);
}

#[test]
fn resource_version_match_selects_read_consistency() {
    check("", &expect!["limit None Latest"]);
    check("resourceVersion=0", &expect!["limit None Any"]);
    check("resourceVersion=7", &expect!["limit None NotOlderThan(Revision(7))"]);
    check("resourceVersion=7&limit=2", &expect!["limit Some(2) Exact(Revision(7))"]);
    check("resourceVersion=7&resourceVersionMatch=Exact", &expect!["limit None Exact(Revision(7))"]);
    check(
        "resourceVersion=7&resourceVersionMatch=NotOlderThan&limit=2",
        &expect!["limit Some(2) NotOlderThan(Revision(7))"],
    );
}

#[test]
fn unparsable_list_options_are_bad_requests() {
    check(
        "resourceVersion=x",
        &expect![[
            r#"400 invalid resource version: resourceVersion: Invalid value: "x": strconv.ParseUint: parsing "x": invalid syntax"#
        ]],
    );
    check(
        "resourceVersion=5&continue=abc",
        &expect!["400 specifying resource version is not allowed when using continue"],
    );
    check("limit=many", &expect![[r#"400 strconv.ParseInt: parsing "many": invalid syntax"#]]);
}

#[test]
fn contradicting_list_options_are_invalid() {
    check(
        "resourceVersionMatch=Exact",
        &expect![[
            r#"422 ListOptions.meta.k8s.io "" is invalid: resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided"#
        ]],
    );
    check(
        "resourceVersion=0&resourceVersionMatch=Exact",
        &expect![[
            r#"422 ListOptions.meta.k8s.io "" is invalid: resourceVersionMatch: Forbidden: resourceVersionMatch "exact" is forbidden for resourceVersion "0""#
        ]],
    );
    check(
        "resourceVersion=5&resourceVersionMatch=Newest",
        &expect![[
            r#"422 ListOptions.meta.k8s.io "" is invalid: resourceVersionMatch: Unsupported value: "Newest": supported values: "Exact", "NotOlderThan", """#
        ]],
    );
    check(
        "sendInitialEvents=true",
        &expect![[
            r#"422 ListOptions.meta.k8s.io "" is invalid: sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list"#
        ]],
    );
}

#[test]
fn contradicting_watch_options_are_invalid() {
    let check = |query, expected| check_for(ReadVerb::Watch, query, &expected);
    check("sendInitialEvents=true&resourceVersionMatch=NotOlderThan", expect!["limit None Latest"]);
    check(
        "sendInitialEvents=false",
        expect![[
            r#"422 ListOptions.meta.k8s.io "" is invalid: resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"#
        ]],
    );
    check(
        "resourceVersion=5&resourceVersionMatch=NotOlderThan",
        expect![[
            r#"422 ListOptions.meta.k8s.io "" is invalid: resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"#
        ]],
    );
    check(
        "resourceVersion=5&resourceVersionMatch=Exact",
        expect![[
            r#"422 ListOptions.meta.k8s.io "" is invalid: [resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided, resourceVersionMatch: Unsupported value: "Exact": supported values: "NotOlderThan"]"#
        ]],
    );
}

#[test]
fn get_ignores_resource_version_match() {
    check_for(ReadVerb::Get, "resourceVersionMatch=Exact", &expect!["limit None Latest"]);
    check_for(
        ReadVerb::Get,
        "resourceVersion=5&resourceVersionMatch=Exact",
        &expect!["limit None NotOlderThan(Revision(5))"],
    );
}

#[test]
fn dry_run_accepts_only_all() {
    let check = |query: &str, expected: Expect| {
        let shown = match WriteOptions::parse(query, "", WriteVerb::Update) {
            Ok(options) => format!("dry run: {}", options.is_dry_run),
            Err(errors) => FieldError::aggregate(&errors).unwrap_or_default(),
        };
        expected.assert_eq(&shown);
    };
    check("dryRun=All", expect!["dry run: true"]);
    check("", expect!["dry run: false"]);
    check("dryRun=Some", expect![[r#"dryRun: Unsupported value: ["Some"]: supported values: "All""#]]);
}

#[test]
fn options_of_apply_and_patch_have_rules_of_their_own() {
    let check = |verb: WriteVerb, query: &str, expected: Expect| {
        let shown = match WriteOptions::parse(query, "agent/1", verb) {
            Ok(options) => format!("{} forced: {}", options.field_manager, options.is_forced),
            Err(errors) => FieldError::aggregate(&errors).unwrap_or_default(),
        };
        expected.assert_eq(&shown);
    };
    check(WriteVerb::Apply, "fieldManager=me&force=true", expect!["me forced: true"]);
    check(WriteVerb::Apply, "fieldManager=me&force=false", expect!["me forced: false"]);
    check(WriteVerb::Apply, "", expect!["fieldManager: Required value: is required for apply patch"]);
    check(WriteVerb::Patch, "", expect!["agent forced: false"]);
    check(
        WriteVerb::Patch,
        "force=false&fieldManager=a%0Ab&fieldValidation=Other",
        expect![[
            r#"[force: Forbidden: may not be specified for non-apply patch, fieldManager: Invalid value: "a\nb": invalid character U+000A (at position 1), fieldValidation: Unsupported value: "Other": supported values: "", "Ignore", "Strict", "Warn"]"#
        ]],
    );
}

#[test]
fn continue_token_round_trips() {
    let token = ContinueToken::new(Revision(42), "default/web\0");
    let decoded = ContinueToken::decode(&token.encode()).unwrap();
    assert_eq!(decoded, token);
    assert_eq!((decoded.revision(), decoded.start()), (Some(Revision(42)), "default/web\0"));
    assert_eq!(ContinueToken::decode(&token.without_revision().encode()).unwrap().revision(), None);
}

#[test]
fn continue_token_outside_prefix_is_bad_request() {
    for start in ["../secrets/a", "a//b", "", "/a"] {
        let token = ContinueToken::new(Revision(1), start).encode();
        assert_eq!(ContinueToken::decode(&token).unwrap_err().http_code(), 400, "{start}");
    }
    for text in ["%%%", "e30", "bm90IGpzb24"] {
        assert_eq!(ContinueToken::decode(text).unwrap_err().http_code(), 400, "{text}");
    }
}

//! Queries, one by one.

use expect_test::{Expect, expect};

use super::*;

#[track_caller]
fn check(query: &str, expected: &Expect) {
    check_for(Purpose::List, query, expected);
}

#[track_caller]
fn check_for(purpose: Purpose, query: &str, expected: &Expect) {
    let shown = match ListOptions::parse(query, purpose) {
        Ok(options) => format!("limit {:?} {:?}", options.limit, options.list_freshness()),
        Err(status) => format!("{} {}", status.http_code(), status.message),
    };
    expected.assert_eq(&shown);
}

#[test]
fn a_resource_version_means_what_its_match_says() {
    check("", &expect!["limit None Latest"]);
    check("resourceVersion=0", &expect!["limit None Any"]);
    check("resourceVersion=7", &expect!["limit None AtLeast(Revision(7))"]);
    check("resourceVersion=7&limit=2", &expect!["limit Some(2) Exactly(Revision(7))"]);
    check("resourceVersion=7&resourceVersionMatch=Exact", &expect!["limit None Exactly(Revision(7))"]);
    check(
        "resourceVersion=7&resourceVersionMatch=NotOlderThan&limit=2",
        &expect!["limit Some(2) AtLeast(Revision(7))"],
    );
}

#[test]
fn nonsense_is_a_bad_request_that_names_it() {
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
fn options_of_a_list_that_contradict_each_other_are_invalid() {
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
fn options_of_a_watch_that_contradict_each_other_are_invalid() {
    let check = |query, expected| check_for(Purpose::Watch, query, &expected);
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
fn a_get_does_not_look_at_how_to_match() {
    check_for(Purpose::Get, "resourceVersionMatch=Exact", &expect!["limit None Latest"]);
    check_for(
        Purpose::Get,
        "resourceVersion=5&resourceVersionMatch=Exact",
        &expect!["limit None AtLeast(Revision(5))"],
    );
}

#[test]
fn a_dry_run_is_for_all_or_not_at_all() {
    let check = |query: &str, expected: Expect| {
        let shown = match WriteOptions::parse(query, "") {
            Ok(options) => format!("dry run: {}", options.dry_run),
            Err(errors) => FieldError::aggregate(&errors).unwrap_or_default(),
        };
        expected.assert_eq(&shown);
    };
    check("dryRun=All", expect!["dry run: true"]);
    check("", expect!["dry run: false"]);
    check("dryRun=Some", expect![[r#"dryRun: Unsupported value: "Some": supported values: "All""#]]);
}

#[test]
fn a_token_comes_back_as_it_was() {
    let token = ContinueToken::new(Revision(42), "default/web\0");
    let decoded = ContinueToken::decode(&token.encode()).unwrap();
    assert_eq!(decoded, token);
    assert_eq!((decoded.revision(), decoded.start()), (Some(Revision(42)), "default/web\0"));
    assert_eq!(ContinueToken::decode(&token.inconsistent().encode()).unwrap().revision(), None);
}

#[test]
fn a_token_that_leads_elsewhere_is_refused() {
    for start in ["../secrets/a", "a//b", "", "/a"] {
        let token = ContinueToken::new(Revision(1), start).encode();
        assert_eq!(ContinueToken::decode(&token).unwrap_err().http_code(), 400, "{start}");
    }
    for text in ["%%%", "e30", "bm90IGpzb24"] {
        assert_eq!(ContinueToken::decode(text).unwrap_err().http_code(), 400, "{text}");
    }
}

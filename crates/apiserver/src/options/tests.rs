//! Queries, one by one.

use expect_test::{Expect, expect};

use super::*;

#[track_caller]
fn check(query: &str, expected: &Expect) {
    let shown = match ListOptions::parse(query) {
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
        "resourceVersionMatch=Exact",
        &expect!["400 resourceVersionMatch is forbidden unless resourceVersion is provided"],
    );
    check("resourceVersion=x", &expect![[r#"400 invalid resource version "x": strconv.ParseUint: invalid syntax"#]]);
    check(
        "resourceVersion=5&continue=abc",
        &expect!["400 specifying resource version is not allowed when using continue"],
    );
    check("limit=many", &expect![[r#"400 strconv.ParseInt: parsing "many": invalid syntax"#]]);
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

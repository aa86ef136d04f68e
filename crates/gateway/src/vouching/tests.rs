use expect_test::{Expect, expect};

use super::*;

/// Parses `user / uid / group / extra prefix`, each a list of words.
fn headers_from_notation(text: &str) -> FrontProxyHeaderNames {
    let mut lists = text.split('/').map(|list| list.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
    let mut next = || lists.next().unwrap_or_default();
    FrontProxyHeaderNames { user: next(), uid: next(), group: next(), extra_prefix: next() }
}

const STANDARD: &str = "X-Remote-User / X-Remote-Uid / X-Remote-Group / X-Remote-Extra-";

#[track_caller]
fn check_compare(removed_headers: &str, upstream_headers: &str, expected: &Expect) {
    expected.assert_eq(
        &compare_headers(&headers_from_notation(removed_headers), &headers_from_notation(upstream_headers))
            .err()
            .unwrap_or_else(|| "same".to_owned()),
    );
}

#[test]
fn settings_without_unknown_headers_are_accepted() {
    for theirs in [
        STANDARD,
        "x-remote-user / / x-remote-group /",
        "X-Remote-User // X-Remote-Group / X-Remote-Extra-",
        "X-Remote-User X-Person / X-Remote-Uid / X-Remote-Group X-Team / X-Remote-Extra- X-Person-Extra-",
    ] {
        check_compare("X-Person / / X-Team / X-Person-Extra-", theirs, &expect!["same"]);
    }
    // A removed prefix covers every header below it, of any kind.
    check_compare("/// X-P", "X-Remote-User X-Person / / X-Remote-Group / X-P-E-", &expect!["same"]);
}

#[test]
fn upstream_that_reads_another_header_is_refused() {
    check_compare(
        STANDARD,
        "X-Remote-User / / X-Remote-Group X-Other-Group /",
        &expect![
            "its --requestheader-group-headers has X-Other-Group, which the gateway does not remove from clients' requests: give the gateway the same --requestheader-group-headers"
        ],
    );
    check_compare(
        STANDARD,
        "X-Other-User X-Remote-User / / X-Remote-Group /",
        &expect![
            "its --requestheader-username-headers has X-Other-User, which the gateway does not remove from clients' requests: give the gateway the same --requestheader-username-headers"
        ],
    );
    check_compare(
        "X-Person / / /",
        "X-Remote-User / / X-Remote-Group / X-Per",
        &expect![
            "its --requestheader-extra-headers-prefix has X-Per, which the gateway does not remove from clients' requests: give the gateway the same --requestheader-extra-headers-prefix"
        ],
    );
    check_compare(
        STANDARD,
        "X-Remote-User / / X-Remote-Group / X-",
        &expect![
            "its --requestheader-extra-headers-prefix has X-, which the gateway does not remove from clients' requests: give the gateway the same --requestheader-extra-headers-prefix"
        ],
    );
}

#[test]
fn upstream_that_does_not_read_what_is_written_is_refused() {
    check_compare(
        STANDARD,
        "X-Other-User / / X-Remote-Group /",
        &expect![
            "its --requestheader-username-headers lacks X-Remote-User, which the gateway writes: add it to the upstream's flag"
        ],
    );
    check_compare(
        STANDARD,
        "X-Remote-User / / /",
        &expect![
            "its --requestheader-group-headers lacks X-Remote-Group, which the gateway writes: add it to the upstream's flag"
        ],
    );
    check_compare(
        STANDARD,
        "X-Remote-User / / X-Remote-Group X-Remote-User /",
        &expect![
            "its --requestheader-group-headers has X-Remote-User, in which the gateway may write something else: remove it from the upstream's flag"
        ],
    );
}

#[track_caller]
fn check_parse(data: &str, expected: &Expect) {
    expected.assert_eq(&match parse_header_names(format!(r#"{{"data":{data}}}"#).as_bytes()) {
        Ok(names) => format!("{:?}", HeaderKind::ALL.map(|kind| kind.names_in(&names).to_vec())),
        Err(reason) => reason,
    });
}

#[test]
fn config_map_lists_are_read_and_odd_ones_refused() {
    check_parse(
        r#"{"requestheader-username-headers":"[\"X-Remote-User\",\"X-A\"]","requestheader-group-headers":"[\"X-Remote-Group\"]",
            "client-ca-file":"..."}"#,
        &expect![[r#"[["X-Remote-User", "X-A"], [], ["X-Remote-Group"], []]"#]],
    );
    check_parse(
        r#"{"requestheader-uid-headers":"X-Remote-Uid"}"#,
        &expect!["requestheader-uid-headers is no list of strings"],
    );
    check_parse(
        r#"{"requestheader-extra-headers-prefix":"[\"\"]"}"#,
        &expect!["requestheader-extra-headers-prefix has blank entries or more than 64"],
    );
    check_parse("7", &expect!["it is no ConfigMap"]);
}

#[test]
fn decision_fails_closed_and_survives_missing_response() {
    let odd = "X-Remote-User X-Other / / X-Remote-Group /";
    let reason = |decision: VouchingDecision| match decision {
        VouchingDecision::Allowed => "allowed",
        VouchingDecision::NotCompared => "not compared",
        VouchingDecision::Refused(refusal) => refusal.reason,
    };
    let published = |text: &str| PublishedSettings::Headers(headers_from_notation(text));
    let good = Some(Ok(headers_from_notation(STANDARD)));
    let bad = Some(Ok(headers_from_notation(odd)));
    let unreadable = PublishedSettings::Unreadable(String::new());
    for (published, manifest, last, expected) in [
        (published(STANDARD), None, VouchingDecision::NotCompared, "allowed"),
        (published(odd), None, VouchingDecision::Allowed, "headers_differ"),
        (PublishedSettings::Forbidden, None, VouchingDecision::Allowed, "forbidden"),
        (PublishedSettings::Missing, None, VouchingDecision::Allowed, "not_found"),
        (unreadable, None, VouchingDecision::Allowed, "unreadable"),
        (PublishedSettings::NoResponse, None, VouchingDecision::NotCompared, "not compared"),
        (PublishedSettings::NoResponse, None, VouchingDecision::Allowed, "allowed"),
        // A manifest replaces settings that cannot be read, but does not excuse a difference.
        (PublishedSettings::Forbidden, good.clone(), VouchingDecision::NotCompared, "allowed"),
        (PublishedSettings::NoResponse, good.clone(), VouchingDecision::NotCompared, "allowed"),
        (published(odd), good, VouchingDecision::Allowed, "headers_differ"),
        (published(STANDARD), bad, VouchingDecision::Allowed, "headers_differ"),
        (PublishedSettings::Forbidden, Some(Err("gone".to_owned())), VouchingDecision::NotCompared, "forbidden"),
    ] {
        let decided = decide_vouching(&FrontProxyHeaderNames::standard(), &published, manifest.as_ref(), last.clone());
        assert_eq!(reason(decided), expected, "{published:?} {manifest:?} after {last:?}");
    }
}

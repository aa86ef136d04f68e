use expect_test::{Expect, expect};

use super::*;

#[track_caller]
fn check(rule: fn(&str) -> ValidationErrors, valid: &[&str], invalid: &[&str]) {
    for value in valid {
        assert_eq!(rule(value), ValidationErrors::new(), "{value:?}");
    }
    for value in invalid {
        assert_ne!(rule(value), ValidationErrors::new(), "{value:?}");
    }
}

#[track_caller]
fn check_errors(errors: &ValidationErrors, expected: &Expect) {
    expected.assert_eq(&errors.join("\n"));
}

#[test]
fn validate_dns1123_label_rules() {
    let longest = "a".repeat(63);
    check(
        validate_dns1123_label,
        &["a", "1", "a-b", "0-9", &longest],
        &["", "-", "a-", "-a", "A", "a_b", "a.b", ".", "a b", "ä", "a\n", &"a".repeat(64)],
    );
    check_errors(&validate_dns1123_label("a.b"), &expect!["must not contain dots"]);
    check_errors(
        &validate_dns1123_label(&"-".repeat(64)),
        &expect![[r#"
            must be no more than 63 characters
            a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"#]],
    );
}

#[test]
fn validate_dns1123_subdomain_rules() {
    let longest = "a".repeat(253);
    check(
        validate_dns1123_subdomain,
        &["a", "a.b", "0.1-2.c", "example.com", &longest],
        &["", ".", "a.", ".a", "a..b", "a.-b", "A.b", "a_b.c", "a b.c", &"a".repeat(254)],
    );
    check_errors(
        &validate_dns1123_subdomain(&".".repeat(254)),
        &expect![[r#"
            must be no more than 253 characters
            a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"#]],
    );
}

#[test]
fn validate_dns1035_label_rules() {
    check(validate_dns1035_label, &["a", "a1", "a-1"], &["", "1", "1a", "-a", "a-", "A", "a.b", &"a".repeat(64)]);
    check_errors(
        &validate_dns1035_label("1"),
        &expect![
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"
        ],
    );
}

#[test]
fn validate_path_segment_rules() {
    check(validate_path_segment_name, &["", "a", "system:node", "...", "a b", "ä"], &[".", "..", "a/b", "a%b", "/"]);
    check(validate_path_segment_prefix, &["", ".", ".."], &["/", "%"]);
    check_errors(&validate_path_segment_name(".."), &expect!["may not be '..'"]);
    check_errors(
        &validate_path_segment_name("%/"),
        &expect![[r#"
        may not contain '/'
        may not contain '%'"#]],
    );
}

#[test]
fn validate_label_key_rules() {
    let longest = format!("{}/{}", "a".repeat(253), "b".repeat(63));
    check(
        validate_label_key,
        &[
            "simple",
            "now-with-dashes",
            "1-num.2-num",
            "1234/5678",
            "1.2.3.4/5678",
            "Uppercase_Is_OK_123",
            "e.com/X",
            &longest,
        ],
        &[
            "",
            "a/",
            "/a",
            "a/b/c",
            "-a",
            "a-",
            "a b",
            "Ex.com/x",
            "a@b",
            &"a".repeat(64),
            &format!("{}/b", "a".repeat(254)),
        ],
    );
    check_errors(
        &validate_label_key("a/b/c"),
        &expect![
            "a valid label key must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        ],
    );
    check_errors(
        &validate_label_key("/"),
        &expect![[r#"
            prefix part must be non-empty
            name part must be non-empty
            name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"#]],
    );
    check_errors(
        &validate_label_key(&format!("{}/{}", "A".repeat(254), "b".repeat(64))),
        &expect![[r#"
            prefix part must be no more than 253 bytes
            prefix part a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')
            name part must be no more than 63 bytes"#]],
    );
}

#[test]
fn validate_label_value_rules() {
    check(
        validate_label_value,
        &["", "a", "A_b-c.9", &"a".repeat(63)],
        &["-", "a-", "_a", "a/b", "a b", "ä", &"a".repeat(64)],
    );
    check_errors(
        &validate_label_value(&"-".repeat(64)),
        &expect![[r#"
            must be no more than 63 bytes
            a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"#]],
    );
}

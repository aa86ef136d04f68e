//! pflag's rules, one by one.

use expect_test::{Expect, expect};

use super::*;

static TABLE: &[Flag] = &[
    Flag { name: "secure-port", kind: Kind::Text, default: "6443", help: "the port" },
    Flag { name: "etcd-servers", kind: Kind::List, default: "", help: "the servers" },
    Flag { name: "anonymous-auth", kind: Kind::Bool, default: "true", help: "let anybody in" },
    Flag { name: "kubelet-client-key", kind: Kind::NoMeaning, default: "", help: "" },
    Flag { name: "allow-privileged", kind: Kind::NoMeaningBool, default: "", help: "" },
    Flag { name: "v", kind: Kind::Text, default: "0", help: "how much is logged" },
];

#[track_caller]
fn check(line: &str, expected: &Expect) {
    let shown = match Values::parse(TABLE, line.split_whitespace().map(str::to_owned)) {
        Ok(values) => show(&values),
        Err(error) => format!("error: {error}"),
    };
    expected.assert_eq(&shown);
}

fn show(values: &Values) -> String {
    format!(
        "port {} servers {:?} anonymous {} v {} ignored {:?}",
        values.text("secure-port"),
        values.list("etcd-servers"),
        values.is("anonymous-auth"),
        values.text("v"),
        values.without_meaning()
    )
}

#[test]
fn defaults_hold_where_nothing_is_given() {
    check("", &expect!["port 6443 servers [] anonymous true v 0 ignored []"]);
}

#[test]
fn values_follow_after_a_blank_or_an_equals_sign() {
    check(
        "--secure-port 1 --etcd-servers=a,b --etcd-servers c --anonymous-auth=false -v=3",
        &expect![[r#"port 1 servers ["a", "b", "c"] anonymous false v 3 ignored []"#]],
    );
    check("--secure_port=2", &expect!["port 2 servers [] anonymous true v 0 ignored []"]);
}

#[test]
fn blank_entries_of_a_list_are_seen_where_they_matter() {
    let entries = |line: &str| {
        let values = Values::parse(TABLE, line.split_whitespace().map(str::to_owned)).unwrap();
        values.entries("etcd-servers").join("|")
    };
    assert_eq!(entries(""), "");
    assert_eq!(entries("--etcd-servers="), "");
    assert_eq!(entries("--etcd-servers=a,,b --etcd-servers=c"), "a||b|c");
}

#[test]
fn flags_without_a_meaning_are_taken_and_named() {
    check(
        "--allow-privileged --kubelet-client-key /k",
        &expect![[r#"port 6443 servers [] anonymous true v 0 ignored ["allow-privileged", "kubelet-client-key"]"#]],
    );
}

#[test]
fn mistakes_are_named() {
    check("--frobnicate=1", &expect!["error: unknown flag: --frobnicate"]);
    check("--secure-prot=1", &expect!["error: unknown flag: --secure-prot (is --secure-port meant?)"]);
    check("--secure-port", &expect!["error: flag needs an argument: --secure-port"]);
    check("up", &expect![[r#"error: unexpected argument "up": flags begin with --"#]]);
    check(
        "--anonymous-auth=maybe",
        &expect![[
            r#"error: invalid argument "maybe" for "--anonymous-auth" flag: strconv.ParseBool: parsing "maybe": invalid syntax"#
        ]],
    );
}

#[test]
fn a_file_gives_what_the_command_line_does_not() {
    let values = Values::parse(TABLE, ["--secure-port=1".to_owned()]).unwrap();
    let file = r#"{"secure-port": 2, "etcd-servers": ["x", "y"], "anonymous-auth": false}"#;
    expect![[r#"port 1 servers ["x", "y"] anonymous false v 0 ignored []"#]]
        .assert_eq(&show(&values.with_file(file).unwrap()));
    let unknown = Values::parse(TABLE, []).unwrap().with_file(r#"{"nope": 1}"#);
    assert_eq!(unknown.unwrap_err(), FlagError::Unknown("nope".to_owned(), None));
}

//! pflag's rules, one by one.

use expect_test::{Expect, expect};

use super::*;

static TABLE: &[Flag] = &[
    Flag { name: "secure-port", kind: FlagKind::Text, default: "6443", help: "the port" },
    Flag { name: "etcd-servers", kind: FlagKind::List, default: "", help: "the servers" },
    Flag { name: "anonymous-auth", kind: FlagKind::Bool, default: "true", help: "let anybody in" },
    Flag { name: "kubelet-client-key", kind: FlagKind::Ignored, default: "", help: "" },
    Flag { name: "allow-privileged", kind: FlagKind::IgnoredBool, default: "", help: "" },
    Flag { name: "encryption-provider-config", kind: FlagKind::Unsupported, default: "", help: "" },
    Flag {
        name: "encryption-provider-config-automatic-reload",
        kind: FlagKind::UnsupportedBool,
        default: "",
        help: "",
    },
    Flag { name: "oidc-issuer-url", kind: FlagKind::Unsupported, default: "", help: "" },
    Flag { name: "ignore-unsupported", kind: FlagKind::List, default: "", help: "flags to ignore" },
    Flag { name: "v", kind: FlagKind::Text, default: "0", help: "how much is logged" },
];

#[track_caller]
fn check(line: &str, expected: &Expect) {
    let shown = match FlagValues::parse(TABLE, line.split_whitespace().map(str::to_owned)) {
        Ok(values) => show(&values),
        Err(error) => format!("error: {error}"),
    };
    expected.assert_eq(&shown);
}

fn show(values: &FlagValues) -> String {
    format!(
        "port {} servers {:?} anonymous {} v {} ignored {:?}",
        values.value_or_default("secure-port"),
        values.list_values("etcd-servers"),
        values.is_true("anonymous-auth"),
        values.value_or_default("v"),
        values.ignored_flags()
    )
}

#[test]
fn flags_not_given_have_their_default() {
    check("", &expect!["port 6443 servers [] anonymous true v 0 ignored []"]);
}

#[test]
fn flag_values_follow_a_space_or_equals_sign() {
    check(
        "--secure-port 1 --etcd-servers=a,b --etcd-servers c --anonymous-auth=false -v=3",
        &expect![[r#"port 1 servers ["a", "b", "c"] anonymous false v 3 ignored []"#]],
    );
    check("--secure_port=2", &expect!["port 2 servers [] anonymous true v 0 ignored []"]);
}

#[test]
fn list_entries_with_blanks_keeps_blank_entries() {
    let entries = |line: &str| {
        let values = FlagValues::parse(TABLE, line.split_whitespace().map(str::to_owned)).unwrap();
        values.list_entries_with_blanks("etcd-servers").join("|")
    };
    assert_eq!(entries(""), "");
    assert_eq!(entries("--etcd-servers="), "");
    assert_eq!(entries("--etcd-servers=a,,b --etcd-servers=c"), "a||b|c");
}

#[test]
fn ignored_flags_are_accepted_and_listed() {
    check(
        "--allow-privileged --kubelet-client-key /k",
        &expect![[r#"port 6443 servers [] anonymous true v 0 ignored ["allow-privileged", "kubelet-client-key"]"#]],
    );
}

#[test]
fn unsupported_flags_are_refused_unless_named() {
    let refuse = |line: &str| {
        let values = FlagValues::parse(TABLE, line.split_whitespace().map(str::to_owned)).unwrap();
        values.refuse_unsupported("ignore-unsupported").map_err(|error| error.to_string())
    };
    let error = refuse("--encryption-provider-config=/e --oidc-issuer-url=u").unwrap_err();
    assert!(error.starts_with("--encryption-provider-config is not supported"), "{error}");
    let error =
        refuse("--encryption-provider-config=/e --oidc-issuer-url=u --ignore-unsupported=encryption-provider-config");
    assert!(error.unwrap_err().starts_with("--oidc-issuer-url is not supported"));
    let both = "--ignore-unsupported=encryption_provider_config,oidc-issuer-url";
    assert_eq!(refuse(&format!("--encryption-provider-config=/e --oidc-issuer-url=u {both}")), Ok(()));
    let unset = "--oidc-issuer-url= --encryption-provider-config-automatic-reload=false --allow-privileged";
    assert_eq!(refuse(unset), Ok(()), "nothing is asked for");
    let error = refuse("--ignore-unsupported=allow-privileged").unwrap_err();
    assert!(error.contains("--allow-privileged is not among the unsupported flags"), "{error}");
}

#[test]
fn parse_names_wrong_flags_and_values() {
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
fn config_file_fills_flags_not_on_the_command_line() {
    let values = FlagValues::parse(TABLE, ["--secure-port=1".to_owned()]).unwrap();
    let file = r#"{"secure-port": 2, "etcd-servers": ["x", "y"], "anonymous-auth": false}"#;
    expect![[r#"port 1 servers ["x", "y"] anonymous false v 0 ignored []"#]]
        .assert_eq(&show(&values.with_config_file(file).unwrap()));
    let unknown = FlagValues::parse(TABLE, []).unwrap().with_config_file(r#"{"nope": 1}"#);
    assert_eq!(unknown.unwrap_err(), FlagError::Unknown("nope".to_owned(), None));
}

use api::objects::from_json;
use expect_test::{Expect, expect};

use super::*;

fn describe(errors: &[FieldError]) -> String {
    errors.iter().map(FieldError::to_string).collect::<Vec<_>>().join("\n")
}

#[track_caller]
fn check_name(text: &str, expected: &Expect) {
    expected.assert_eq(&describe(&validate_name("metadata.name", text)));
}

#[track_caller]
fn check(json: &str, expected: &Expect) {
    let parsed: StorageVersionStatus = from_json(json.as_bytes()).unwrap();
    expected.assert_eq(&describe(&validate_status(&parsed)));
}

#[test]
fn validate_name_requires_group_and_resource() {
    for fine in ["core.pods", "apps.deployments", "rbac.authorization.k8s.io.roles"] {
        assert_eq!(validate_name("metadata.name", fine), [], "{fine}");
    }
    check_name(
        "pods",
        &expect![[r#"metadata.name: Invalid value: "pods": name must be in the form of <group>.<resource>"#]],
    );
    check_name(
        "Apps.deployments",
        &expect![[
            r#"metadata.name: Invalid value: "Apps.deployments": the group segment a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"#
        ]],
    );
    check_name(
        "apps.1deployments",
        &expect![[
            r#"metadata.name: Invalid value: "apps.1deployments": the resource segment a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"#
        ]],
    );
}

#[test]
fn validate_status_accepts_status_written_by_servers() {
    check(
        r#"{"storageVersions":[
            {"apiServerID":"a","encodingVersion":"v1","decodableVersions":["v1","v1alpha1"],"servedVersions":["v1"]},
            {"apiServerID":"b","encodingVersion":"v1","decodableVersions":["v1"]}],
            "commonEncodingVersion":"v1",
            "conditions":[{"type":"AllEncodingVersionsEqual","status":"True","reason":"r","message":"m"}]}"#,
        &expect![[""]],
    );
    check("{}", &expect![[""]]);
}

#[test]
fn validate_status_rejects_duplicate_or_invalid_server_ids() {
    check(
        r#"{"storageVersions":[
            {"apiServerID":"a","encodingVersion":"v1","decodableVersions":["v1"]},
            {"apiServerID":"a","encodingVersion":"v1","decodableVersions":["v1"]},
            {"apiServerID":"A","encodingVersion":"v1","decodableVersions":["v1"]}],
            "commonEncodingVersion":"v1"}"#,
        &expect![[r#"
            status.storageVersions[1].apiServerID: Duplicate value: "a"
            status.storageVersions[2].apiServerID: Invalid value: "A": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"#]],
    );
}

#[test]
fn version_messages_accept_version_with_optional_group() {
    for (version, faults) in [
        ("v1", ""),
        ("apps/v1", ""),
        ("", "version part: must be non-empty"),
        ("/v1", "group part: must be non-empty"),
        ("apps/", "version part: must be non-empty"),
        ("/", "group part: must be non-empty,version part: must be non-empty"),
    ] {
        assert_eq!(version_messages(version).join(","), faults, "{version:?}");
    }
    expect![[r#"an apiVersion is a DNS-1035 label, which must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?') with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyVersion')"#]]
    .assert_eq(&version_messages("a/b/c").join(","));
    assert!(version_messages("Apps/1")[0].starts_with("group part: a lowercase RFC 1123 subdomain"));
    assert!(version_messages("Apps/1")[1].starts_with("version part: a DNS-1035 label"));
}

#[test]
fn validate_status_requires_decodable_versions() {
    check(
        r#"{"storageVersions":[{"apiServerID":"a","encodingVersion":"v2","decodableVersions":["v1","v1beta1"],"servedVersions":["v1","v3"]}],
            "commonEncodingVersion":"v2"}"#,
        &expect![[r#"
            status.storageVersions[0].decodableVersions: Invalid value: ["v1","v1beta1"]: decodableVersions must include encodingVersion v2
            status.storageVersions[0].servedVersions[1]: Invalid value: "v3": individual served version : v3 must be included in decodableVersions : [v1 v1beta1]"#]],
    );
}

#[test]
fn validate_status_rejects_wrong_common_encoding_version() {
    let entry = |server: &str, version: &str| {
        format!(r#"{{"apiServerID":"{server}","encodingVersion":"{version}","decodableVersions":["{version}"]}}"#)
    };
    let (a, b) = (entry("a", "v1"), entry("b", "v2"));
    check(
        &format!(r#"{{"storageVersions":[{a},{b}],"commonEncodingVersion":"v1"}}"#),
        &expect![[
            r#"status.commonEncodingVersion: Invalid value: "v1": should be nil if servers do not agree on the same encoding version, or if there is no server reporting the supported versions yet"#
        ]],
    );
    check(
        &format!(r#"{{"storageVersions":[{a}]}}"#),
        &expect![[r#"status.commonEncodingVersion: Invalid value: null: the common encoding version is v1"#]],
    );
    check(
        &format!(r#"{{"storageVersions":[{a}],"commonEncodingVersion":"v2"}}"#),
        &expect![[r#"status.commonEncodingVersion: Invalid value: "v2": the actual common encoding version is v1"#]],
    );
}

#[test]
fn validate_status_rejects_duplicate_or_incomplete_conditions() {
    check(
        r#"{"conditions":[{"type":"A","status":"True","reason":"r","message":"m"},{"type":"A","status":"","reason":"","message":""}]}"#,
        &expect![[r#"
            status[1].type: Invalid value: "A": the type of the condition is not unique, it also appears in conditions[0]
            status[1].status: Invalid value: "": name part must be non-empty
            status[1].status: Invalid value: "": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')
            status[1].reason: Required value
            status[1].message: Required value"#]],
    );
}

use expect_test::{Expect, expect};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::*;

/// Decodes an object, encodes it, and decodes the result again.
#[track_caller]
fn check<Object>(read: &str, written: &Expect)
where
    Object: DeserializeOwned + Serialize + PartialEq + std::fmt::Debug,
{
    let object: Object = from_json(read.as_bytes()).unwrap();
    let bytes = to_stored_json(&object);
    assert_eq!(from_json::<Object>(&bytes).unwrap(), object);
    written.assert_eq(std::str::from_utf8(&bytes).unwrap());
}

#[track_caller]
fn check_error<Object: DeserializeOwned + std::fmt::Debug>(read: &str, error: &Expect) {
    error.assert_eq(&from_json::<Object>(read.as_bytes()).unwrap_err().to_string());
}

#[test]
fn identity_lease_round_trips() {
    check::<Lease>(
        r#"{"apiVersion":"coordination.k8s.io/v1","kind":"Lease",
            "metadata":{"name":"apiserver-x","namespace":"kube-system","labels":{"apiserver.kubernetes.io/identity":"kube-apiserver"}},
            "spec":{"renewTime":"2026-11-15T10:00:00.000001Z","leaseDurationSeconds":3600,"holderIdentity":"apiserver-x_1","future":true}}"#,
        &expect![[r#"
            {"kind":"Lease","apiVersion":"coordination.k8s.io/v1","metadata":{"name":"apiserver-x","namespace":"kube-system","labels":{"apiserver.kubernetes.io/identity":"kube-apiserver"}},"spec":{"holderIdentity":"apiserver-x_1","leaseDurationSeconds":3600,"renewTime":"2026-11-15T10:00:00.000001Z","future":true}}
        "#]],
    );
}

#[test]
fn list_item_without_type_meta_gets_kind_and_api_version() {
    check::<Lease>(
        "{}",
        &expect![[r#"
            {"kind":"Lease","apiVersion":"coordination.k8s.io/v1","metadata":{},"spec":{}}
        "#]],
    );
}

#[test]
fn storage_version_round_trips_in_go_field_order() {
    check::<StorageVersion>(
        r#"{"kind":"StorageVersion","apiVersion":"internal.apiserver.k8s.io/v1alpha1","metadata":{"name":"apps.deployments","generation":1},
            "spec":{},"status":{"commonEncodingVersion":"apps/v1",
              "conditions":[{"type":"AllEncodingVersionsEqual","status":"True","observedGeneration":1,"lastTransitionTime":null,
                "reason":"CommonEncodingVersionSet","message":"Common encoding version set"}],
              "storageVersions":[{"apiServerID":"a","decodableVersions":["apps/v1"],"encodingVersion":"apps/v1","servedVersions":["apps/v1"],"x":{"y":[]}}]}}"#,
        &expect![[r#"
            {"kind":"StorageVersion","apiVersion":"internal.apiserver.k8s.io/v1alpha1","metadata":{"name":"apps.deployments","generation":1},"spec":{},"status":{"storageVersions":[{"apiServerID":"a","encodingVersion":"apps/v1","decodableVersions":["apps/v1"],"servedVersions":["apps/v1"],"x":{"y":[]}}],"commonEncodingVersion":"apps/v1","conditions":[{"type":"AllEncodingVersionsEqual","status":"True","observedGeneration":1,"lastTransitionTime":null,"reason":"CommonEncodingVersionSet","message":"Common encoding version set"}]}}
        "#]],
    );
}

#[test]
fn endpoint_record_bytes_match_kube_apiserver() {
    let mut record = Endpoints::default();
    record.metadata.generation = 7;
    record.metadata.labels.insert("apiserverIdentity".to_owned(), "apiserver-x".to_owned());
    record.subsets.push(EndpointSubset {
        addresses: vec![EndpointAddress { ip: "10.0.0.1".to_owned(), ..Default::default() }],
        ports: vec![EndpointPort {
            name: "https".to_owned(),
            port: 6443,
            protocol: "TCP".to_owned(),
            ..Default::default()
        }],
        ..Default::default()
    });
    let bytes = to_stored_json(&record);
    expect![[r#"
        {"kind":"Endpoints","apiVersion":"v1","metadata":{"generation":7,"labels":{"apiserverIdentity":"apiserver-x"}},"subsets":[{"addresses":[{"ip":"10.0.0.1"}],"ports":[{"name":"https","port":6443,"protocol":"TCP"}]}]}
    "#]]
    .assert_eq(std::str::from_utf8(&bytes).unwrap());
    assert_eq!(from_json::<Endpoints>(&bytes).unwrap(), record);
}

#[test]
fn from_json_error_names_offending_field() {
    check_error::<Lease>(
        r#"{"kind":"Pod"}"#,
        &expect![[r#"the object cannot be read: invalid value: string "Pod", expected "Lease" at line 1 column 14"#]],
    );
    check_error::<Lease>(
        r#"{"spec":{"renewTime":"soon"}}"#,
        &expect![[
            r#"the object cannot be read: "soon" is not a time such as "2006-01-02T15:04:05Z" at line 1 column 28"#
        ]],
    );
    let deep = "[".repeat(1_000_000);
    check_error::<Endpoints>(
        &format!(r#"{{"x":{deep}"#),
        &expect!["the object cannot be read: recursion limit exceeded at line 1 column 132"],
    );
}

use expect_test::{Expect, expect};
use proptest::prelude::*;
use serde_json::json;

use super::*;

const POD: GroupVersionKind<&str> = GroupVersionKind { group: "", version: "v1", kind: "Pod" };
const DEPLOYMENT: GroupVersionKind<&str> = GroupVersionKind { group: "apps", version: "v1", kind: "Deployment" };

#[track_caller]
fn check_as(expected_kind: GroupVersionKind<&str>, encoding: BodyEncoding, body: &str, expected: &Expect) {
    let shown = match decode_object(body.as_bytes(), encoding, expected_kind) {
        Ok(Decoded { value, duplicate_fields }) if duplicate_fields.is_empty() => Value::Object(value).to_string(),
        Ok(Decoded { value, duplicate_fields }) => format!("{} {duplicate_fields:?}", Value::Object(value)),
        Err(rejection) => format!("{rejection:?}"),
    };
    expected.assert_eq(&shown);
}

#[track_caller]
fn check_json(body: &str, expected: &Expect) {
    check_as(POD, BodyEncoding::Json, body, expected);
}

#[track_caller]
fn check_yaml(body: &str, expected: &Expect) {
    let shown = match decode_value(body.as_bytes(), BodyEncoding::Yaml) {
        Ok(Decoded { value, duplicate_fields }) if duplicate_fields.is_empty() => value.to_string(),
        Ok(Decoded { value, duplicate_fields }) => format!("{value} {duplicate_fields:?}"),
        Err(error) => format!("error: {error}"),
    };
    expected.assert_eq(&shown);
}

#[test]
fn decode_object_fills_in_kind_and_api_version() {
    check_json(
        r#"{"metadata":{"name":"a"}}"#,
        &expect![[r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"}}"#]],
    );
    check_as(
        DEPLOYMENT,
        BodyEncoding::Json,
        r#"{"apiVersion":"apps/"}"#,
        &expect![[r#"{"apiVersion":"apps/v1","kind":"Deployment"}"#]],
    );
}

#[test]
fn decode_object_rejects_other_kind_or_version() {
    check_json(
        r#"{"apiVersion":"v1","kind":"Secret"}"#,
        &expect![[
            r#"BadRequest("Secret in version \"v1\" cannot be handled as a Pod: no kind \"Secret\" is registered for version \"v1\"")"#
        ]],
    );
    check_as(
        DEPLOYMENT,
        BodyEncoding::Json,
        r#"{"apiVersion":"apps/v1beta1","kind":"Deployment"}"#,
        &expect![[
            r#"BadRequest("the API version in the data (apps/v1beta1) does not match the expected API version (apps/v1)")"#
        ]],
    );
    check_json(
        r#"{"apiVersion":"a/b/c"}"#,
        &expect![[
            r#"BadRequest("the object provided is unrecognized (must be of type Pod): unexpected GroupVersion string: a/b/c ({\"apiVersion\":\"a/b/c\"})")"#
        ]],
    );
    check_json(
        r#"{"kind":7}"#,
        &expect![[
            r#"BadRequest("the object provided is unrecognized (must be of type Pod): couldn't get version/kind; json parse error: json: cannot unmarshal number into Go struct field .kind of type string ({\"kind\":7})")"#
        ]],
    );
}

#[test]
fn decode_object_rejects_non_objects_with_excerpt() {
    check_json(
        "",
        &expect![[
            r#"BadRequest("the object provided is unrecognized (must be of type Pod): couldn't get version/kind; json parse error: unexpected end of JSON input (<empty>)")"#
        ]],
    );
    check_json(
        "[1,2,3,4,5,6,7,8,9,10,11,12,13,14]",
        &expect![[
            r#"BadRequest("the object provided is unrecognized (must be of type Pod): couldn't get version/kind; json parse error: json: cannot unmarshal array into Go value of type struct { APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" } (5b312c322c332c342c352c362c372c382c392c31302c31312c31322c3133 ...)")"#
        ]],
    );
    check_json(
        r#"{"a":1} trailing"#,
        &expect![[
            r#"BadRequest("the object provided is unrecognized (must be of type Pod): couldn't get version/kind; json parse error: invalid character 't' after top-level value ({\"a\":1} trailing)")"#
        ]],
    );
    check_as(
        POD,
        BodyEncoding::Yaml,
        "a: [",
        &expect![[
            r#"BadRequest("the object provided is unrecognized (must be of type Pod): yaml: line 1: unclosed bracket '[' (613a205b)")"#
        ]],
    );
}

#[test]
fn duplicate_fields_keep_last_value_and_are_reported() {
    check_json(
        r#"{"a":{"b":[0,{"c":1,"c":2}]},"a":{"d":1,"d":1}}"#,
        &expect![[
            r#"{"a":{"d":1},"apiVersion":"v1","kind":"Pod"} ["duplicate field \"a.b[1].c\"", "duplicate field \"a.d\"", "duplicate field \"a\""]"#
        ]],
    );
    let many = format!("{{{}\"a\":0}}", "\"a\":0,".repeat(1000));
    assert_eq!(
        decode_value(many.as_bytes(), BodyEncoding::Json).unwrap().duplicate_fields.len(),
        REPORTED_DUPLICATES_MAX
    );
}

#[test]
fn decode_value_reads_numbers_like_go() {
    assert_eq!(
        decode_value(b"[9223372036854775807,-9223372036854775808,9223372036854775808,1.0,1e2]", BodyEncoding::Json)
            .unwrap()
            .value,
        json!([i64::MAX, i64::MIN, 9_223_372_036_854_775_808_f64, 1.0, 100.0])
    );
}

#[test]
fn decode_value_limits_nesting_depth() {
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    assert!(decode_value(nested(DEPTH_MAX).as_bytes(), BodyEncoding::Json).is_ok());
    assert!(decode_value(nested(DEPTH_MAX).as_bytes(), BodyEncoding::Yaml).is_ok());
    for depth in [DEPTH_MAX + 1, 127, 128, 100_000] {
        for encoding in [BodyEncoding::Json, BodyEncoding::Yaml] {
            assert!(decode_value(nested(depth).as_bytes(), encoding).is_err(), "{depth} {encoding:?}");
        }
    }
    assert!(decode_value("- ".repeat(50_000).as_bytes(), BodyEncoding::Yaml).is_err());
}

#[test]
fn decode_object_rejects_metadata_of_wrong_type() {
    check_json(
        r#"{"metadata":{"name":null,"labels":{"a":null},"managedFields":null,"ownerReferences":[{"uid":null}]}}"#,
        &expect![[r#"{"apiVersion":"v1","kind":"Pod","metadata":{"labels":{"a":""},"ownerReferences":[{}]}}"#]],
    );
    check_json(r#"{"metadata":null}"#, &expect![[r#"{"apiVersion":"v1","kind":"Pod"}"#]]);
    check_json(
        r#"{"metadata":{"finalizers":[null],"generation":-0,"creationTimestamp":"2010-10-10T0:00:00Z"}}"#,
        &expect![[
            r#"{"apiVersion":"v1","kind":"Pod","metadata":{"creationTimestamp":"2010-10-10T00:00:00Z","finalizers":[""],"generation":0}}"#
        ]],
    );
    for (metadata, error) in [
        (json!(1), "json: cannot unmarshal number into Go struct field Pod.metadata of type v1.ObjectMeta"),
        (
            json!({"name": 1}),
            "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.name of type string",
        ),
        (
            json!({"labels": {"a": true}}),
            "json: cannot unmarshal bool into Go struct field ObjectMeta.metadata.labels of type string",
        ),
        (
            json!({"labels": []}),
            "json: cannot unmarshal array into Go struct field ObjectMeta.metadata.labels of type map[string]string",
        ),
        (
            json!({"finalizers": ["a", {}]}),
            "json: cannot unmarshal object into Go struct field ObjectMeta.metadata.finalizers of type string",
        ),
        (
            json!({"generation": 1.5}),
            "json: cannot unmarshal number 1.5 into Go struct field ObjectMeta.metadata.generation of type int64",
        ),
        (
            json!({"creationTimestamp": "soon"}),
            "parsing time \"soon\" as \"2006-01-02T15:04:05Z07:00\": cannot parse \"soon\" as \"2006\"",
        ),
        (
            json!({"ownerReferences": [{"uid": 1}]}),
            "json: cannot unmarshal number into Go struct field OwnerReference.metadata.ownerReferences.uid of type types.UID",
        ),
        (
            json!({"ownerReferences": [{"controller": "x"}]}),
            "json: cannot unmarshal string into Go struct field OwnerReference.metadata.ownerReferences.controller of type bool",
        ),
        (
            json!({"managedFields": [1]}),
            "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.managedFields of type v1.ManagedFieldsEntry",
        ),
        (
            json!({"managedFields": {}}),
            "json: cannot unmarshal object into Go struct field ObjectMeta.metadata.managedFields of type []v1.ManagedFieldsEntry",
        ),
    ] {
        let body = json!({ "metadata": metadata }).to_string();
        let rejection = decode_object(body.as_bytes(), BodyEncoding::Json, POD).unwrap_err();
        assert_eq!(rejection.to_string(), format!("Pod in version \"v1\" cannot be handled as a Pod: {error}"));
    }
}

#[test]
fn decode_value_reads_yaml_1_1_scalars() {
    check_yaml(
        "[~, null, yes, Off, 12, -0x1F, 0o17, 017, 0b11, 1_000, 1.5, .5, 1e3, 08, 2026-01-01, 10.0.0.1, '12', \"no\", v1, 18446744073709551615]",
        &expect![[
            r#"[null,null,true,false,12,-31,15,15,3,1000,1.5,0.5,1000,8,"2026-01-01","10.0.0.1","12","no","v1",1.8446744073709552e+19]"#
        ]],
    );
    check_yaml("a: .inf", &expect!["error: yaml: line 1: json: unsupported value: .inf"]);
    check_yaml("a: !!str 12\nb: !!int 12\nc: !!float 1", &expect![[r#"{"a":"12","b":12,"c":1}"#]]);
    check_yaml("a: !!int x", &expect!["error: yaml: line 1: cannot decode `x` as a !!int"]);
    check_yaml("a: !secret x", &expect!["error: yaml: line 1: unsupported tag !secret"]);
}

#[test]
fn decode_value_reads_yaml_maps_as_json_objects() {
    check_yaml("1: a\ntrue: b\nx: |\n  two\n  lines\n", &expect![[r#"{"1":"a","true":"b","x":"two\nlines\n"}"#]]);
    check_yaml("? [a]\n: b", &expect![[r#"error: yaml: line 1: unsupported map key: ["a"]"#]]);
    check_yaml("a: 1\nb: 2\na: 3\n", &expect![[r#"{"a":3,"b":2} ["line 3: key \"a\" already set in map"]"#]]);
    check_yaml("# only a comment", &expect!["null"]);
    check_yaml("---\na: 1\n---\n", &expect![[r#"{"a":1}"#]]);
    check_yaml(
        "a: 1\n---\nb: 2\n",
        &expect!["error: yaml: line 4: more than one document; send one object per request"],
    );
}

#[test]
fn decode_value_follows_yaml_aliases_within_limits() {
    check_yaml(
        "base: &base {image: x, port: 80}\nweb:\n  <<: *base\n  port: 81\nall: [*base]\nmany: {<<: [{a: 1}, {a: 2, b: 3}]}",
        &expect![[
            r#"{"all":[{"image":"x","port":80}],"base":{"image":"x","port":80},"many":{"a":1,"b":3},"web":{"image":"x","port":81}}"#
        ]],
    );
    check_yaml("a: *x", &expect!["error: yaml: line 1: while parsing node, found unknown anchor"]);
    check_yaml("a: &a [*a]", &expect!["error: yaml: line 1: an anchor contains itself"]);
    check_yaml("a: {<<: 1}", &expect!["error: yaml: line 1: map merge requires map or sequence of maps as the value"]);

    let mut bomb = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n".to_owned();
    for level in 1..20 {
        let alias = format!("*a{},", level - 1).repeat(10);
        bomb.push_str(&format!("a{level}: &a{level} [{alias}]\n"));
    }
    assert!(
        decode_value(bomb.as_bytes(), BodyEncoding::Yaml)
            .unwrap_err()
            .ends_with("document contains excessive aliasing")
    );
    let long_text = format!("a: &a {}\nb: [{}]", "x".repeat(100_000), "*a,".repeat(10_000));
    assert!(
        decode_value(long_text.as_bytes(), BodyEncoding::Yaml)
            .unwrap_err()
            .ends_with("document contains excessive aliasing")
    );
}

#[test]
fn yaml_alias_cannot_exceed_depth_limit() {
    let deep = format!("a: &a {}1{}\nb: {}*a{}", "[".repeat(60), "]".repeat(60), "[".repeat(60), "]".repeat(60));
    assert!(decode_value(deep.as_bytes(), BodyEncoding::Yaml).unwrap_err().ends_with("exceeded max depth"));
}

#[test]
fn ensure_namespace_matches_sets_or_rejects_namespace() {
    for (body, namespace, expected) in [
        (json!({}), "n", Ok(json!({"metadata": {"namespace": "n"}}))),
        (json!({"metadata": {"namespace": "n"}}), "n", Ok(json!({"metadata": {"namespace": "n"}}))),
        (json!({"metadata": {"namespace": "n"}}), "", Ok(json!({"metadata": {}}))),
        (
            json!({"metadata": {"namespace": "m"}}),
            "n",
            Err("the namespace of the provided object does not match the namespace sent on the request".to_owned()),
        ),
    ] {
        let mut object = body.as_object().unwrap().clone();
        let result = ensure_namespace_matches(&mut object, namespace).map(|()| Value::Object(object));
        assert_eq!(result.map_err(|rejection| rejection.to_string()), expected);
    }
}

#[test]
fn ensure_name_matches_rejects_other_or_missing_name() {
    for (name, expected) in [
        ("a", Ok(())),
        ("b", Err("the name of the object (b) does not match the name on the URL (a)")),
        ("", Err("the name of the object (a based on URL) was undeterminable: name must be provided")),
    ] {
        let object = json!({"metadata": {"name": name}}).as_object().unwrap().clone();
        assert_eq!(
            ensure_name_matches(&object, "a").map_err(|rejection| rejection.to_string()),
            expected.map_err(str::to_owned)
        );
    }
}

proptest! {
    #[test]
    fn decode_object_never_panics(bytes in any::<Vec<u8>>(), text in "[-:\\[\\]{}&*a<>!|'\"\\n ,#?0-9.]{0,60}") {
        for encoding in [BodyEncoding::Json, BodyEncoding::Yaml] {
            let _ = decode_object(&bytes, encoding, POD);
            let _ = decode_object(text.as_bytes(), encoding, POD);
        }
    }

    #[test]
    fn json_decodes_equally_as_yaml(value in crate::arbitrary::value()) {
        let text = value.to_string();
        let from_json = super::decode_value(text.as_bytes(), BodyEncoding::Json).unwrap().value;
        prop_assert_eq!(&from_json, &value);
        prop_assert_eq!(super::decode_value(text.as_bytes(), BodyEncoding::Yaml).unwrap().value, value);
    }
}

mod round_trip;
mod test_message;

use expect_test::{Expect, expect};
use proptest::prelude::*;

use super::*;
use crate::built_in_types;
use test_message::{TestMessage, encode_envelope};

const NO_KIND: GroupVersionKind<&str> = GroupVersionKind { group: "", version: "v1", kind: "Nothing" };

/// Decodes a body of a kind with the newest release.
#[track_caller]
fn check(api_version: &str, kind: &str, message: TestMessage, expected: &Expect) {
    let TestMessage(message) = message;
    let body = encode_envelope(api_version, kind, &message);
    let shown = match decode(&body, built_in_types(37), NO_KIND) {
        Ok(mut object) => {
            object.remove("kind");
            object.remove("apiVersion");
            Value::from(object).to_string()
        }
        Err(error) => error.to_string(),
    };
    expected.assert_eq(&shown);
}

#[track_caller]
fn check_pod(spec: TestMessage, expected: &Expect) {
    check("v1", "Pod", TestMessage::new().with(2, spec), expected);
}

/// The kind in the envelope of a body.
#[track_caller]
fn check_envelope(body: &[u8], expected: &Expect) {
    let expected_kind = GroupVersionKind { group: "apps", version: "v1", kind: "Deployment" };
    expected.assert_eq(&match decode(body, built_in_types(36), expected_kind) {
        Ok(object) => Value::from(object).to_string(),
        Err(error) => format!("{error} ({:?})", error.kind().map(|kind| kind.kind)),
    });
}

#[test]
fn decode_takes_kind_from_envelope() {
    let named = |name: &str| TestMessage::new().with(1, TestMessage::new().text(1, name)).0;
    check_envelope(
        &encode_envelope("v1", "ConfigMap", &named("a")),
        &expect![[r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}"#]],
    );
    check_envelope(
        &encode_envelope("", "", &named("a")),
        &expect![[r#"{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"a"}}"#]],
    );
    check_envelope(
        &encode_envelope("apps/v1", "ConfigMap", &named("a")),
        &expect![[r#"no kind "ConfigMap" is registered for version "apps/v1" (Some("ConfigMap"))"#]],
    );
    check_envelope(
        &encode_envelope("a/b/c", "ConfigMap", b""),
        &expect![[r#"no kind "ConfigMap" is registered for version "a/b/c" (Some("ConfigMap"))"#]],
    );
    check_envelope(&encode_envelope("", "", b""), &expect![[r#"{"apiVersion":"apps/v1","kind":"Deployment"}"#]]);
}

#[test]
fn decode_rejects_malformed_envelope() {
    check_envelope(b"", &expect!["empty body (None)"]);
    check_envelope(b"k8s\0", &expect!["empty body (None)"]);
    let no_prefix =
        expect!["provided data does not appear to be a protobuf message, expected prefix [107 56 115 0] (None)"];
    check_envelope(b"{}", &no_prefix);
    check_envelope(b"k8s", &no_prefix);
    check_envelope(
        b"k8s\0\x0a\x7f",
        &expect!["the protobuf envelope cannot be read: unexpected end of the message (None)"],
    );
    let not_utf8 = [PROTOBUF_PREFIX, b"\x0a\x03\x0a\x01\xff"].concat();
    check_envelope(&not_utf8, &expect!["the protobuf envelope cannot be read: the text is not UTF-8 (None)"]);
}

#[test]
fn decode_rejects_kind_of_other_release() {
    let body = encode_envelope("lifecycle.k8s.io/v1alpha1", "Eviction", b"");
    assert!(decode(&body, built_in_types(37), NO_KIND).is_ok());
    assert!(matches!(decode(&body, built_in_types(36), NO_KIND), Err(ProtobufError::UnknownKind(_))));
}

#[test]
fn decode_accepts_delete_options_of_any_group() {
    let options =
        || TestMessage::new().varint(1, 0).with(2, TestMessage::new().text(1, "u")).text(4, "Orphan").text(5, "All");
    for api_version in ["v1", "apps/v1", "meta.k8s.io/v1", "example.com/v7"] {
        let shown = expect![[
            r#"{"dryRun":["All"],"gracePeriodSeconds":0,"preconditions":{"uid":"u"},"propagationPolicy":"Orphan"}"#
        ]];
        check(api_version, "DeleteOptions", options(), &shown);
    }
}

#[test]
fn decode_reads_scalars() {
    let metadata = || TestMessage::new().text(1, "a").text(3, "n").varint(7, 1 << 40).varint(10, 30);
    check(
        "v1",
        "ConfigMap",
        TestMessage::new().with(1, metadata()).varint(4, 1),
        &expect![[
            r#"{"immutable":true,"metadata":{"deletionGracePeriodSeconds":30,"generation":1099511627776,"name":"a","namespace":"n"}}"#
        ]],
    );
    // int32: negative values are encoded with 64 bits, and Go drops the upper half.
    let priority = |value: u64| TestMessage::new().varint(25, value);
    check_pod(priority(u64::MAX), &expect![[r#"{"spec":{"priority":-1}}"#]]);
    check_pod(priority(0x8000_0000), &expect![[r#"{"spec":{"priority":-2147483648}}"#]]);
    check_pod(priority((1 << 32) | 5), &expect![[r#"{"spec":{"priority":5}}"#]]);
}

#[test]
fn decode_omits_default_zeros() {
    // minReadySeconds, paused and name are not pointers in Go; replicas is.
    let spec = TestMessage::new().varint(1, 0).varint(5, 0).varint(7, 0);
    let deployment = TestMessage::new().with(1, TestMessage::new().text(1, "").varint(7, 0)).with(2, spec);
    check("apps/v1", "Deployment", deployment, &expect![[r#"{"metadata":{},"spec":{"replicas":0}}"#]]);
    // A required field is present even if zero.
    let port = TestMessage::new().text(1, "").varint(2, 0).varint(3, 0);
    check_pod(
        TestMessage::new().with(2, TestMessage::new().text(1, "").with(6, port)),
        &expect![[r#"{"spec":{"containers":[{"name":"","ports":[{"containerPort":0}]}]}}"#]],
    );
    // An empty class is not the default class.
    check(
        "v1",
        "PersistentVolumeClaim",
        TestMessage::new().with(2, TestMessage::new().text(5, "").text(3, "")),
        &expect![[r#"{"spec":{"storageClassName":""}}"#]],
    );
}

#[test]
fn decode_replaces_repeated_scalars_and_merges_objects() {
    let metadata = |metadata: TestMessage| TestMessage::new().with(1, metadata);
    let twice = metadata(TestMessage::new().text(1, "a").text(3, "n"))
        .and(metadata(TestMessage::new().text(1, "b").text(3, "")));
    check("v1", "ConfigMap", twice, &expect![[r#"{"metadata":{"name":"b"}}"#]]);
}

#[test]
fn decode_reads_lists_and_maps() {
    let entry = |key: &str, value: &[u8]| TestMessage::new().text(1, key).bytes(2, value);
    check(
        "v1",
        "Secret",
        TestMessage::new()
            .with(2, entry("a", b"\xff\0"))
            .with(2, entry("b", b""))
            .with(2, TestMessage::new().text(1, "c"))
            .with(2, TestMessage::new().bytes(2, b"x"))
            .with(2, entry("a", b"hello"))
            .text(3, "Opaque"),
        &expect![[r#"{"data":{"":"eA==","a":"aGVsbG8=","b":"","c":""},"type":"Opaque"}"#]],
    );
    let groups = |groups: TestMessage| TestMessage::new().with(14, groups);
    check_pod(
        groups(TestMessage::new().varint(4, 1).varint(4, 300)),
        &expect![[r#"{"spec":{"securityContext":{"supplementalGroups":[1,300]}}}"#]],
    );
    check_pod(
        groups(TestMessage::new().varint(4, 1).bytes(4, b"\xac\x02\x00")),
        &expect![[r#"{"spec":{"securityContext":{"supplementalGroups":[1,300,0]}}}"#]],
    );
    check_pod(groups(TestMessage::new().bytes(4, b"")), &expect![[r#"{"spec":{"securityContext":{}}}"#]]);
    check_pod(
        TestMessage::new().with(2, TestMessage::new().text(1, "c").text(3, "sh").text(3, "").text(3, "-c")),
        &expect![[r#"{"spec":{"containers":[{"command":["sh","","-c"],"name":"c"}]}}"#]],
    );
}

#[test]
fn decode_reads_lists_in_maps() {
    let scopes = TestMessage::new().text(1, "scopes").with(2, TestMessage::new().text(1, "a").text(1, "b"));
    let spec = TestMessage::new().text(3, "u").with(5, scopes).with(5, TestMessage::new().text(1, "none"));
    check(
        "authorization.k8s.io/v1",
        "SubjectAccessReview",
        TestMessage::new().with(2, spec),
        &expect![[r#"{"spec":{"extra":{"none":[],"scopes":["a","b"]},"user":"u"}}"#]],
    );
}

#[test]
fn decode_flattens_inline_messages() {
    // A volume has its source inline; a policy rule has two nested inline messages.
    let source = TestMessage::new().with(6, TestMessage::new().text(1, "s").varint(3, 0));
    check_pod(
        TestMessage::new().with(1, TestMessage::new().text(1, "v").with(2, source)),
        &expect![[r#"{"spec":{"volumes":[{"name":"v","secret":{"defaultMode":0,"secretName":"s"}}]}}"#]],
    );
    let rule = TestMessage::new().text(1, "apps").text(2, "*").text(3, "deployments").text(4, "Namespaced");
    let named = TestMessage::new().text(1, "x").with(2, TestMessage::new().text(1, "CREATE").with(2, rule));
    let policy = TestMessage::new().with(2, TestMessage::new().with(2, TestMessage::new().with(3, named)));
    check(
        "admissionregistration.k8s.io/v1",
        "ValidatingAdmissionPolicy",
        policy,
        &expect![[
            r#"{"spec":{"matchConstraints":{"resourceRules":[{"apiGroups":["apps"],"apiVersions":["*"],"operations":["CREATE"],"resourceNames":["x"],"resources":["deployments"],"scope":"Namespaced"}]}}}"#
        ]],
    );
}

#[test]
fn decode_reads_times() {
    let lease = |acquire: TestMessage, created: TestMessage| {
        TestMessage::new().with(1, TestMessage::new().with(8, created)).with(2, TestMessage::new().with(3, acquire))
    };
    let time =
        |seconds: i64, nanoseconds: u64| TestMessage::new().varint(1, seconds.cast_unsigned()).varint(2, nanoseconds);
    let check =
        |acquire, created, expected| check("coordination.k8s.io/v1", "Lease", lease(acquire, created), expected);
    check(
        time(1_136_214_245, 999_999_999),
        time(1_136_214_245, 999_999_999),
        &expect![[
            r#"{"metadata":{"creationTimestamp":"2006-01-02T15:04:05Z"},"spec":{"acquireTime":"2006-01-02T15:04:05.999999Z"}}"#
        ]],
    );
    check(
        time(0, 0),
        time(-1, 0),
        &expect![[
            r#"{"metadata":{"creationTimestamp":"1969-12-31T23:59:59Z"},"spec":{"acquireTime":"1970-01-01T00:00:00.000000Z"}}"#
        ]],
    );
    check(TestMessage::new(), TestMessage::new(), &expect![[r#"{"metadata":{},"spec":{}}"#]]);
    check(
        time(i64::MAX, 0),
        TestMessage::new(),
        &expect!["spec.acquireTime: 9223372036854775807 seconds from 1970 are outside of the years 0 to 9999"],
    );
    check(
        TestMessage::new(),
        time(-62_167_219_201, 0),
        &expect!["metadata.creationTimestamp: -62167219201 seconds from 1970 are outside of the years 0 to 9999"],
    );
}

#[test]
fn decode_reads_quantities_and_int_or_string() {
    let limits = |quantity: TestMessage| {
        let resources = TestMessage::new().with(1, TestMessage::new().text(1, "cpu").with(2, quantity));
        TestMessage::new().with(2, TestMessage::new().text(1, "c").with(8, resources))
    };
    check_pod(
        limits(TestMessage::new().text(1, "100m")),
        &expect![[r#"{"spec":{"containers":[{"name":"c","resources":{"limits":{"cpu":"100m"}}}]}}"#]],
    );
    check_pod(
        limits(TestMessage::new()),
        &expect![[r#"{"spec":{"containers":[{"name":"c","resources":{"limits":{"cpu":"0"}}}]}}"#]],
    );
    let service = |target: TestMessage| {
        TestMessage::new().with(2, TestMessage::new().with(1, TestMessage::new().varint(3, 80).with(4, target)))
    };
    let check = |target, expected| check("v1", "Service", service(target), expected);
    let target = |kind, number| TestMessage::new().varint(1, kind).varint(2, number).text(3, "web");
    check(target(0, 8080), &expect![[r#"{"spec":{"ports":[{"port":80,"targetPort":8080}]}}"#]]);
    check(target(1, 8080), &expect![[r#"{"spec":{"ports":[{"port":80,"targetPort":"web"}]}}"#]]);
    check(TestMessage::new(), &expect![[r#"{"spec":{"ports":[{"port":80,"targetPort":0}]}}"#]]);
    check(target(2, 0), &expect!["spec.ports.targetPort: impossible IntOrString.Type 2"]);
}

#[test]
fn decode_reads_embedded_json() {
    let managed = |fields: &[u8]| {
        let entry = TestMessage::new().text(1, "m").with(7, TestMessage::new().bytes(1, fields));
        TestMessage::new().with(1, TestMessage::new().with(17, entry))
    };
    let check = |fields, expected| check("v1", "ConfigMap", managed(fields), expected);
    check(
        br#"{"f:data":{".":{}}}"#,
        &expect![[r#"{"metadata":{"managedFields":[{"fieldsV1":{"f:data":{".":{}}},"manager":"m"}]}}"#]],
    );
    check(b"", &expect![[r#"{"metadata":{"managedFields":[{"manager":"m"}]}}"#]]);
    check(b"{", &expect!["metadata.managedFields.fieldsV1: not JSON: EOF while parsing an object at line 1 column 1"]);
    // Managed fields are four levels down: object, metadata, list, entry.
    let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
    let body = |depth: usize| encode_envelope("v1", "ConfigMap", &managed(nested(depth).as_bytes()).0);
    assert!(decode(&body(DEPTH_MAX - 4), built_in_types(36), NO_KIND).is_ok());
    check(nested(DEPTH_MAX - 3).as_bytes(), &expect!["metadata.managedFields.fieldsV1: objects nest too deeply"]);
}

fn definition(schema: TestMessage) -> TestMessage {
    let validation = TestMessage::new().with(1, schema);
    TestMessage::new().with(2, TestMessage::new().with(7, TestMessage::new().text(1, "v1").with(4, validation)))
}

#[test]
fn decode_reads_json_schema_alternatives() {
    let named = |name: &str| TestMessage::new().text(5, name);
    let property = |name: &str, schema| TestMessage::new().with(29, TestMessage::new().text(1, name).with(2, schema));
    let check = |schema, expected: &Expect| {
        let body = encode_envelope("apiextensions.k8s.io/v1", "CustomResourceDefinition", &definition(schema).0);
        let object = Value::from(decode(&body, built_in_types(36), NO_KIND).unwrap());
        expected.assert_eq(&object["spec"]["versions"][0]["schema"]["openAPIV3Schema"].to_string());
    };
    let items = |items| TestMessage::new().with(26, items);
    check(items(TestMessage::new().with(1, named("object"))), &expect![[r#"{"oneOf":[{"id":"*\u0006object"}]}"#]]);
    check(
        items(TestMessage::new().with(2, named("string")).with(2, named("integer"))),
        &expect![[r#"{"oneOf":[{"$schema":"*\u0007integer"}]}"#]],
    );
    let additional = |schema_or_bool| TestMessage::new().with(30, schema_or_bool);
    check(additional(TestMessage::new().varint(1, 1)), &expect![[r#"{"additionalProperties":true}"#]]);
    check(additional(TestMessage::new().varint(1, 0)), &expect![[r#"{"additionalProperties":false}"#]]);
    check(
        additional(TestMessage::new().varint(1, 1).with(2, named("string"))),
        &expect![[r#"{"additionalProperties":{"type":"string"}}"#]],
    );
    let number = |value: f64| TestMessage::new().fixed64(9, value.to_bits());
    check(
        number(1.0).and(property("p", number(0.5))),
        &expect![[r#"{"maximum":1,"properties":{"p":{"maximum":0.5}}}"#]],
    );
    check(number(0.0), &expect![[r#"{"maximum":0}"#]]);
}

#[test]
fn decode_limits_schema_nesting() {
    let nested = |depth: usize| {
        let not = |schema, _| TestMessage::new().with(28, schema);
        definition((1..depth).fold(TestMessage::new(), not))
    };
    let read_nested = |depth| {
        let body = encode_envelope("apiextensions.k8s.io/v1", "CustomResourceDefinition", &nested(depth).0);
        decode(&body, built_in_types(36), NO_KIND).map(drop)
    };
    // Above the schema: object, spec, list, version, validation.
    assert_eq!(read_nested(DEPTH_MAX - 5), Ok(()));
    let error = read_nested(DEPTH_MAX - 4).unwrap_err();
    assert!(matches!(error, ProtobufError::Message { error: WireError::TooDeep, .. }), "{error}");
    let error = read_nested(10_000).unwrap_err();
    assert!(matches!(error, ProtobufError::Message { error: WireError::TooDeep, .. }), "{error}");
}

#[test]
fn decode_limits_object_count() {
    // The object itself and its spec are two.
    let pod = |containers: usize| {
        let body = encode_envelope(
            "v1",
            "Pod",
            &TestMessage::new().with(2, TestMessage::new().raw(&b"\x12\0".repeat(containers))).0,
        );
        decode(&body, built_in_types(36), NO_KIND).map(|object| object["spec"]["containers"].as_array().unwrap().len())
    };
    assert_eq!(pod(OBJECTS_MAX - 2), Ok(OBJECTS_MAX - 2));
    let error = pod(OBJECTS_MAX - 1).unwrap_err();
    assert_eq!(error.to_string(), "spec.containers: too many objects");
}

#[test]
fn decode_skips_unknown_field_numbers() {
    let unknown = TestMessage::new()
        .text(1, "a")
        .varint(9000, 5)
        .text(9001, "x")
        .fixed64(9002, 1)
        .raw(b"\x83\xb5\x04\x84\xb5\x04");
    check("v1", "ConfigMap", TestMessage::new().with(1, unknown), &expect![[r#"{"metadata":{"name":"a"}}"#]]);
}

#[test]
fn decode_error_names_field() {
    let container = |container: TestMessage| TestMessage::new().with(2, container);
    check_pod(container(TestMessage::new().bytes(1, b"\xff")), &expect!["spec.containers.name: the text is not UTF-8"]);
    check_pod(
        container(TestMessage::new().varint(1, 1)),
        &expect!["spec.containers.name: the payload has another form than the field"],
    );
    check_pod(
        container(TestMessage::new().raw(b"\x0a\x05a")),
        &expect!["spec.containers: unexpected end of the message"],
    );
    check_pod(container(TestMessage::new().raw(b"\x0a")), &expect!["spec.containers: unexpected end of the message"]);
    check_pod(TestMessage::new().raw(b"\x14"), &expect!["spec: a group ends that did not begin"]);
    check_pod(TestMessage::new().raw(b"\x06"), &expect!["spec: illegal tag 6"]);
    check_pod(
        TestMessage::new().raw(b"\xc8\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"),
        &expect!["spec: an integer has more than 64 bits"],
    );
    check("v1", "Pod", TestMessage::new().raw(b"\x0a\x7f"), &expect!["unexpected end of the message"]);
    let body = encode_envelope(
        "apiextensions.k8s.io/v1",
        "CustomResourceDefinition",
        &definition(TestMessage::new().fixed64(9, f64::NAN.to_bits())).0,
    );
    let error = decode(&body, built_in_types(36), NO_KIND).unwrap_err();
    assert_eq!(error.to_string(), "spec.versions.schema.openAPIV3Schema.maximum: NaN is no number of JSON");
}

/// Mutated valid bodies reach deeper code than random bytes.
#[test]
fn decode_never_panics_on_damaged_body() {
    let port = TestMessage::new().text(1, "p").varint(3, 80);
    let container = TestMessage::new().text(1, "c").with(6, port).with(8, TestMessage::new());
    let managed = TestMessage::new()
        .text(1, "m")
        .with(4, TestMessage::new().varint(1, 9))
        .with(7, TestMessage::new().text(1, "{}"));
    let metadata =
        TestMessage::new().text(1, "a").with(11, TestMessage::new().text(1, "k").text(2, "v")).with(17, managed);
    let body = encode_envelope(
        "v1",
        "Pod",
        &TestMessage::new().with(1, metadata).with(2, TestMessage::new().with(2, container)).0,
    );
    assert!(decode(&body, built_in_types(37), NO_KIND).is_ok());
    for position in 0..body.len() {
        let _ = decode(&body[..position], built_in_types(37), NO_KIND);
        for byte in 0..=u8::MAX {
            let mut damaged = body.clone();
            damaged[position] = byte;
            let _ = decode(&damaged, built_in_types(37), NO_KIND);
        }
    }
}

proptest! {
    #[test]
    fn decode_never_panics_on_random_bytes(message in proptest::collection::vec(any::<u8>(), 0..200)) {
        for (api_version, kind) in [("v1", "Pod"), ("apiextensions.k8s.io/v1", "CustomResourceDefinition")] {
            let _ = decode(&encode_envelope(api_version, kind, &message), built_in_types(37), NO_KIND);
        }
        let _ = decode(&[PROTOBUF_PREFIX, &message].concat(), built_in_types(37), NO_KIND);
    }
}

use super::*;

/// A ConfigMap as kube-apiserver 1.36 stores it: `k8s\0`, type meta `v1` `ConfigMap`, payload, two empty strings.
const CONFIG_MAP: &[u8] = b"k8s\0\x0a\x0f\x0a\x02v1\x12\x09ConfigMap\x12\x04\x0a\x02\x0a\x00\x1a\x00\x22\x00";

#[track_caller]
fn check(value: &[u8], expected: &str) {
    let shown = match Envelope::parse(value) {
        Envelope::Object { media_type, api_version, kind } => format!("{media_type:?} {api_version} {kind}"),
        Envelope::Encrypted(EncryptedValue { provider, scheme, key, after_scheme }) => {
            format!("encrypted {provider} {scheme} {key} + {}", after_scheme.escape_ascii())
        }
        Envelope::Undecodable(reason) => format!("{reason:?}"),
    };
    assert_eq!(shown, expected, "{}", value.escape_ascii());
}

#[test]
fn protobuf_envelope_names_version_and_kind() {
    check(CONFIG_MAP, "Protobuf v1 ConfigMap");
    check(b"k8s\0\x0a\x12\x0a\x07apps/v1\x12\x07Example", "Protobuf apps/v1 Example");
}

#[test]
fn malformed_protobuf_is_undecodable() {
    check(b"k8s\0", "MalformedProtobuf");
    check(&CONFIG_MAP[..12], "MalformedProtobuf");
    check(&CONFIG_MAP[..CONFIG_MAP.len() - 6], "MalformedProtobuf");
    check(b"k8s\0\x0a\x04\x0a\x02v1", "MalformedProtobuf");
    check(b"k8s\0\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", "MalformedProtobuf");
}

#[test]
fn json_envelope_names_version_and_kind() {
    check(br#"{"kind":"Pod","apiVersion":"v1","spec":{"a":[1,{"kind":"x"}]}}"#, "Json v1 Pod");
    check(b" \n{\"apiVersion\":\"apps\\/v1\",\"kind\":\"Deployment\"}\n", "Json apps/v1 Deployment");
}

#[test]
fn malformed_json_is_undecodable() {
    check(br#"{"kind":"Pod"}"#, "MalformedJson");
    check(br#"{"kind":"Pod","apiVersion":""}"#, "MalformedJson");
    check(br#"{"kind":"Pod","apiVersion":7}"#, "MalformedJson");
    check(br#"{"kind":"Pod","apiVersion":"v1""#, "MalformedJson");
}

/// As kube-apiserver 1.36 stores a custom object: names are byte strings, the order of members is of no meaning.
const WIDGET: &[u8] = b"\xd9\xd9\xf7\xa4DkindFWidgetHmetadata\xa2DnameAwJgeneration\x01Dspec\xa5Aa\xf6Ab\xfb\x3f\xf0\0\0\0\0\0\0Ac\x83\x18\xff\x20\xf5Ad\xc1\x1a\0\0\0\0Ae\x9f\x01\xffJapiVersionNexample.com/v1";

#[test]
fn cbor_envelope_names_version_and_kind() {
    check(WIDGET, "Cbor example.com/v1 Widget");
    check(b"\xd9\xd9\xf7\xbfJapiVersionBv1\x64kind\x63Pod\xff", "Cbor v1 Pod");
}

#[test]
fn malformed_cbor_is_undecodable() {
    for length in 3..WIDGET.len() {
        check(&WIDGET[..length], "MalformedCbor");
    }
    check(&[WIDGET, b"\0"].concat(), "MalformedCbor");
    check(b"\xd9\xd9\xf7\xa1DkindCPod", "MalformedCbor");
    check(b"\xd9\xd9\xf7\xa1Aa\xff", "MalformedCbor");
    check(b"\xd9\xd9\xf7\xa1Aa\xbb\xff\xff\xff\xff\xff\xff\xff\xff", "MalformedCbor");
    let nested = [b"\xd9\xd9\xf7\xa1Aa".as_slice(), &[0x81; 1 << 20], b"\0"].concat();
    check(&nested, "MalformedCbor");
}

#[test]
fn encryption_prefix_names_provider_scheme_and_key() {
    check(b"k8s:enc:aescbc:v1:key1:\x00\xff", "encrypted aescbc v1 key1 + key1:\\x00\\xff");
    check(b"k8s:enc:kms:v2:plugin:x:y", "encrypted kms v2 plugin + plugin:x:y");
}

#[test]
fn malformed_encryption_prefix_is_undecodable() {
    check(b"k8s:enc:", "MalformedEncryptionPrefix");
    check(b"k8s:enc:aescbc:v1:key1", "MalformedEncryptionPrefix");
    check(b"k8s:enc:aescbc::key1:", "MalformedEncryptionPrefix");
    check(b"k8s:enc:\xff\xff:v1:key1:", "MalformedEncryptionPrefix");
}

#[test]
fn other_values_are_named_or_undecodable() {
    check(b"", "Empty");
    check(b" \n", "Empty");
    check(b"hello", "UnknownEncoding");
    check(b"k8s:other", "UnknownEncoding");
}

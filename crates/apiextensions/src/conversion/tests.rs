use serde_json::json;

use super::*;

fn object(value: &Value) -> JsonObject {
    value.as_object().expect("test value is an object").clone()
}

fn original() -> JsonObject {
    object(&json!({"apiVersion": "ex.io/v1", "kind": "Foo", "a": 1,
        "metadata": {"name": "n", "namespace": "s", "uid": "u", "labels": {"a": "b"}, "annotations": {"c": "d"}, "generation": 4}}))
}

fn call<'a>(objects: &'a [&'a JsonObject], review_version: ReviewVersion, is_list: bool) -> ConversionCall<'a> {
    ConversionCall {
        review_version,
        uid: "r",
        desired: GroupVersion { group: "ex.io", version: "v2" },
        subject: GroupVersionKind { group: "ex.io", version: "v1", kind: if is_list { "FooList" } else { "Foo" } },
        is_list,
        objects,
    }
}

#[test]
fn request_has_the_form_of_kubernetes() {
    assert_eq!(
        String::from_utf8(call(&[&original()], ReviewVersion::V1Beta1, false).to_body()).unwrap(),
        "{\"kind\":\"ConversionReview\",\"apiVersion\":\"apiextensions.k8s.io/v1beta1\",\"request\":{\"uid\":\"r\",\
         \"desiredAPIVersion\":\"ex.io/v2\",\"objects\":[{\"a\":1,\"apiVersion\":\"ex.io/v1\",\"kind\":\"Foo\",\
         \"metadata\":{\"annotations\":{\"c\":\"d\"},\"generation\":4,\"labels\":{\"a\":\"b\"},\"name\":\"n\",\
         \"namespace\":\"s\",\"uid\":\"u\"}}]},\"response\":{\"uid\":\"\",\"convertedObjects\":null,\
         \"result\":{\"metadata\":{}}}}\n"
    );
    let choose =
        |versions: &[&str]| ReviewVersion::choose(&versions.iter().map(|v| (*v).to_owned()).collect::<Vec<_>>());
    assert_eq!(choose(&["v2", "v1beta1", "v1"]), Some(ReviewVersion::V1Beta1));
    assert_eq!(choose(&["v2"]), None);
}

#[test]
fn strategy_none_sets_the_api_version() {
    let mut list = object(&json!({"kind": "FooList", "items": [{"a": 1}, {"apiVersion": "x", "b": 2}, 3]}));
    set_api_version(&mut list, "ex.io/v2");
    assert_eq!(
        Value::Object(list),
        json!({"apiVersion": "ex.io/v2", "kind": "FooList",
            "items": [{"apiVersion": "ex.io/v2", "a": 1}, {"apiVersion": "ex.io/v2", "b": 2}, 3]})
    );
    assert!(is_empty_object(&object(&json!({"apiVersion": "a", "kind": "b"}))) && !is_empty_object(&original()));
}

/// A response with one converted object, which is changed by a JSON merge of its metadata.
fn response(metadata: &Value, changed: &Value) -> Value {
    let mut converted = json!({"apiVersion": "ex.io/v2", "kind": "Foo", "b": 2, "metadata": {"name": "n", "namespace": "s", "uid": "u"}});
    for (name, value) in metadata.as_object().unwrap() {
        converted["metadata"][name] = value.clone();
    }
    let converted = converted.as_object_mut().unwrap();
    converted.extend(object(changed));
    converted.retain(|_, value| !value.is_null());
    json!({"kind": "ConversionReview", "apiVersion": "apiextensions.k8s.io/v1",
        "response": {"uid": "r", "result": {"status": "Success"}, "convertedObjects": [converted]}})
}

#[test]
fn converted_object_keeps_the_original_metadata() {
    let original = original();
    let converted = |metadata: Value| {
        let body = response(&metadata, &json!({})).to_string();
        call(&[&original], ReviewVersion::V1, false).converted_objects(body.as_bytes()).unwrap().remove(0)
    };
    assert_eq!(
        Value::Object(converted(json!({"labels": {"x": "y"}, "generation": 9, "finalizers": ["f"]}))),
        json!({"apiVersion": "ex.io/v2", "kind": "Foo", "b": 2,
            "metadata": {"name": "n", "namespace": "s", "uid": "u", "labels": {"x": "y"}, "generation": 4}})
    );
}

/// The error of a response to a request for one object, without its beginning.
fn refused(review_version: ReviewVersion, is_list: bool, body: &Value) -> (String, &'static str) {
    let original = original();
    let objects = [&original];
    let call = call(&objects, review_version, is_list);
    let error = call.converted_objects(body.to_string().as_bytes()).unwrap_err();
    let text = error.to_string();
    let shown = text.strip_prefix(&format!("conversion webhook for {} ", call.subject)).unwrap_or(&text);
    (shown.to_owned(), error.failure_type())
}

#[test]
fn response_that_is_none_to_the_request_is_refused() {
    let with = |pointer: &str, value: Value| {
        let mut body = response(&json!({}), &json!({}));
        *body.pointer_mut(pointer).expect("the response has it") = value;
        body
    };
    for (body, expected) in [
        (
            with("/apiVersion", json!("apiextensions.k8s.io/v1beta1")),
            "failed: expected webhook response of apiextensions.k8s.io/v1, Kind=ConversionReview, \
             got apiextensions.k8s.io/v1beta1, Kind=ConversionReview",
        ),
        (with("/response", json!(null)), "failed: no response provided"),
        (with("/response/uid", json!("x")), "failed: expected response.uid=\"r\", got \"x\""),
        (with("/response/result", json!({"status": "Failure", "message": "no"})), "failed: no"),
        (with("/response/result", json!({})), "failed: response.result.status was '', not 'Success'"),
    ] {
        let malformed = "conversion_webhook_malformed_response_failure";
        assert_eq!(refused(ReviewVersion::V1, false, &body), (expected.to_owned(), malformed));
    }
    assert_eq!(
        refused(ReviewVersion::V1, false, &with("/response/convertedObjects", json!([]))),
        ("returned 0 objects, expected 1".to_owned(), "conversion_webhook_partial_response_failure")
    );
    let other_uid = with("/response/uid", json!("x")).to_string();
    assert!(call(&[&original()], ReviewVersion::V1Beta1, false).converted_objects(other_uid.as_bytes()).is_ok());
}

#[test]
fn object_that_is_no_conversion_is_refused() {
    let changed = |value: Value| response(&json!({}), &value);
    let metadata = |value: Value| response(&value, &json!({}));
    let label = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must \
                 start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used \
                 for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
    for (is_list, body, expected) in [
        (
            false,
            changed(json!({"apiVersion": "ex.io/v3"})),
            "returned invalid object at index 0: invalid groupVersion (expected ex.io/v2, received ex.io/v3)",
        ),
        (
            true,
            changed(json!({"apiVersion": "ex.io/v3"})),
            "returned invalid converted object at index 0: invalid groupVersion (expected ex.io/v2, received ex.io/v3)",
        ),
        (
            false,
            changed(json!({"kind": "Bar"})),
            "returned invalid object at index 0: invalid kind (expected Foo, received Bar)",
        ),
        (false, metadata(json!({"name": "m"})), "returned invalid object: must have the same name: n != m"),
        (
            true,
            metadata(json!({"uid": "v"})),
            "returned invalid converted object at index 0: must have the same UID: u != v",
        ),
        (
            false,
            metadata(json!({"labels": [1]})),
            "returned invalid metadata: invalid metadata.labels of type []interface {} in converted object",
        ),
        (
            false,
            metadata(json!({"annotations": {"a": 1}})),
            "returned invalid metadata: metadata.annotations[a] must be a string, but is int64 in converted object",
        ),
        (
            true,
            metadata(json!({"labels": {"a": "-"}})),
            &format!("returned invalid metadata in object at index 0: metadata.labels: Invalid value: \"-\": {label}"),
        ),
        (
            false,
            changed(json!({"kind": null, "metadata": {}, "b": null})),
            "Object 'Kind' is missing in '{\"apiVersion\":\"ex.io/v2\",\"metadata\":{}}'",
        ),
    ] {
        let failure_type = "conversion_webhook_invalid_converted_object_failure";
        assert_eq!(refused(ReviewVersion::V1, is_list, &body), (expected.to_owned(), failure_type));
    }
}

use std::sync::Arc;

use schema::openapi::descriptions;
use serde_json::Value;

use super::*;
use crate::definition::Definition;

/// One definition a line, with the documents that kube-apiserver 1.36 builds for its first version, without built-in
/// types and without Kubernetes' own descriptions.
const DOCUMENTS: &str = include_str!("documents.jsonl");

fn version(definition: &Value) -> CustomResourceVersion {
    let mut object = definition.as_object().expect("a definition is an object").clone();
    object.insert("status".to_owned(), json!({"acceptedNames": definition["spec"]["names"]}));
    let definition = Arc::new(Definition::from_object(&object).expect("test value is a definition"));
    let name = definition.spec.versions[0].name.clone();
    CustomResourceVersion::new(&definition, &name).expect("the definition has the version")
}

/// Removes the descriptions of fields that every kind has: the recorded documents have none.
fn without_common_descriptions(value: &mut Value) {
    const COMMON: [&str; 4] =
        [descriptions::API_VERSION, descriptions::KIND, descriptions::METADATA, descriptions::LIST_METADATA];
    if value.get("description").and_then(Value::as_str).is_some_and(|text| COMMON.contains(&text)) {
        let members = value.as_object_mut().expect("a value with members is an object");
        members.remove("description");
        if let Some(reference) = members.remove("allOf") {
            *value = reference[0].clone();
        }
        return;
    }
    match value {
        Value::Object(members) => members.values_mut().for_each(without_common_descriptions),
        Value::Array(items) => items.iter_mut().for_each(without_common_descriptions),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[test]
fn paths_and_models_are_those_of_a_kube_apiserver() {
    let of_1_36 = ReleaseParameters { has_shard_selector: true, has_ignore_store_read_error: true };
    let mut cases = 0;
    for line in DOCUMENTS.lines() {
        let case: Value = serde_json::from_str(line).expect("each line is JSON");
        let version = version(&case["definition"]);
        for (dialect, expected) in [(Dialect::V3, &case["v3"]), (Dialect::V2, &case["v2"])] {
            let part = describe(&version, case["structural"] == true, dialect, of_1_36);
            let name = &case["definition"]["metadata"]["name"];
            let mut models = Value::Object(part.models);
            without_common_descriptions(&mut models);
            assert_eq!(models, expected["models"], "{name} {dialect:?}");
            if let Some(paths) = expected.get("paths") {
                assert_eq!(Value::Object(part.paths), *paths, "{name} {dialect:?}");
            }
        }
        cases += 1;
    }
    assert!(cases >= 10, "{cases}");
}

#[test]
fn operation_ids_and_tags_have_words_of_group_with_dashes() {
    let version = version(&json!({
        "metadata": {"name": "notes.my-shop.example.com"},
        "spec": {
            "group": "my-shop.example.com", "scope": "Cluster", "names": {"plural": "notes", "kind": "Note"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {}}],
        },
    }));
    let parameters = ReleaseParameters { has_shard_selector: true, has_ignore_store_read_error: true };
    let part = describe(&version, true, Dialect::V3, parameters);
    let get = &part.paths["/apis/my-shop.example.com/v1/notes/{name}"]["get"];
    assert_eq!(
        (&get["operationId"], &get["tags"]),
        (&json!("readMyShopExampleComV1Note"), &json!(["myShopExampleCom_v1"]))
    );
}

use std::sync::Arc;

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

#[test]
fn paths_and_models_are_those_of_a_kube_apiserver() {
    let mut cases = 0;
    for line in DOCUMENTS.lines() {
        let case: Value = serde_json::from_str(line).expect("each line is JSON");
        let version = version(&case["definition"]);
        for (dialect, expected) in [(Dialect::V3, &case["v3"]), (Dialect::V2, &case["v2"])] {
            let part = describe(&version, case["structural"] == true, dialect);
            let name = &case["definition"]["metadata"]["name"];
            assert_eq!(Value::Object(part.models), expected["models"], "{name} {dialect:?}");
            if let Some(paths) = expected.get("paths") {
                assert_eq!(Value::Object(part.paths), *paths, "{name} {dialect:?}");
            }
        }
        cases += 1;
    }
    assert!(cases >= 10, "{cases}");
}

use api::json::to_go_json;
use expect_test::expect;
use serde_json::json;

use super::*;

const NOW: &str = "2026-11-18T00:00:00Z";

/// Cells that kube-apiserver 1.36 computes, one JSON array a line: path, type of the column, object, cell; no cell if the
/// path cannot be parsed.
const CELLS: &str = include_str!("cells.jsonl");

fn version(columns: &Value) -> DefinitionVersion {
    let version = json!({"name": "v1", "additionalPrinterColumns": columns});
    serde_json::from_value(version).expect("test value is a version")
}

#[test]
fn cells_are_those_of_a_kube_apiserver() {
    let mut differences = Vec::new();
    let mut cases = 0;
    for line in CELLS.lines() {
        let case: Vec<Value> = serde_json::from_str(line).expect("each line is an array");
        let version = version(&json!([{"name": "c", "type": case[1], "jsonPath": case[0]}]));
        let columns = columns_of_version(&version);
        let object = case[2].as_object().expect("the third item is an object");
        let cell = columns.get(1).map(|column| column.cell(object, NOW.parse().unwrap()));
        if cell.as_ref().map(to_go_json) != case.get(3).map(to_go_json) {
            differences.push(format!("{line} is {cell:?}"));
        }
        cases += 1;
    }
    assert!(cases > 100, "{cases}");
    assert!(differences.is_empty(), "{} of {cases}:\n{}", differences.len(), differences.join("\n"));
}

#[test]
fn columns_have_names_types_and_descriptions() {
    let show = |columns: &[CustomColumn]| {
        let definitions: Vec<_> = columns.iter().map(TableColumn::definition).collect();
        definitions
            .iter()
            .map(|definition| String::from_utf8(to_go_json(definition)).unwrap() + "\n")
            .collect::<String>()
    };
    expect![[r#"
        {"name":"Name","type":"string","format":"name","description":"The name of the object.","priority":0}
        {"name":"Age","type":"date","format":"","description":"How long ago it was created.","priority":0}
    "#]]
    .assert_eq(&show(&columns_of_version(&version(&json!([])))));
    expect![[r#"
        {"name":"Name","type":"string","format":"name","description":"The name of the object.","priority":0}
        {"name":"A","type":"integer","format":"int32","description":"Custom resource definition column (in JSONPath format): .spec.a","priority":1}
        {"name":"B","type":"string","format":"","description":"the b","priority":0}
    "#]]
    .assert_eq(&show(&columns_of_version(&version(&json!([
        {"name": "A", "type": "integer", "format": "int32", "priority": 1, "jsonPath": ".spec.a"},
        {"name": "B", "type": "string", "description": "the b", "jsonPath": ".spec.b"},
        {"name": "C", "type": "string", "jsonPath": ".spec["},
        {"name": "D", "type": "string", "jsonPath": ".spec.d"},
    ])))));
    expect![[r#"
        {"name":"Name","type":"string","format":"name","description":"The name of the object.","priority":0}
        {"name":"Desired","type":"integer","format":"","description":"Number of desired replicas","priority":0}
        {"name":"Available","type":"integer","format":"","description":"Number of actual replicas","priority":0}
        {"name":"Age","type":"date","format":"","description":"How long ago it was created.","priority":0}
    "#]]
    .assert_eq(&show(&columns_of_scale()));
}

#[test]
fn date_cells_are_ages() {
    let columns = columns_of_version(&version(&json!([])));
    for (time, expected) in [
        (json!("2026-11-17T23:58:00Z"), json!("2m")),
        (json!("2026-11-18T00:00:05Z"), json!("<invalid>")),
        (json!("yesterday"), json!("<invalid>")),
        (json!(""), json!("<unknown>")),
        (json!(null), json!(null)),
        (json!(7), json!(null)),
    ] {
        let object = json!({"metadata": {"creationTimestamp": time}});
        assert_eq!(columns[1].cell(object.as_object().unwrap(), NOW.parse().unwrap()), expected, "{time}");
    }
}

#[test]
fn a_path_that_multiplies_values_yields_null() {
    let items: Vec<Value> = (0..200).map(|number| json!({ "a": [number] })).collect();
    let object = json!({ "items": items });
    let columns =
        columns_of_version(&version(&json!([{"name": "c", "type": "string", "jsonPath": "...*".repeat(12)}])));
    assert_eq!(columns[1].cell(object.as_object().unwrap(), NOW.parse().unwrap()), Value::Null);
    let nested = format!(".a{}", "[?(@'x".repeat(10_000));
    assert!(JsonPath::parse(&nested).is_err());
}

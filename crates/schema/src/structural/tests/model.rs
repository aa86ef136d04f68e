//! Reading schemas, and how much memory they take.

use expect_test::{Expect, expect};
use serde_json::{Value, json};

use super::super::node::{Keyword, Pattern, Property, SchemaNode};
use super::super::{AdditionalProperties, ListType, MapType, RuleReason, SchemaType, StructuralSchema};

#[test]
fn every_keyword_is_readable() {
    let schema = StructuralSchema::from_json(&json!({
        "type": "object", "description": "dropped", "futureKeyword": {"x": 1},
        "properties": {
            "b": {"type": "string", "format": "uri", "pattern": "^a$", "minLength": 1, "maxLength": 2.0, "default": "a",
                  "enum": ["a", 1, null]},
            "a": {"type": "array", "items": {"type": "integer", "minimum": 1, "maximum": 2.5, "exclusiveMaximum": true,
                  "multipleOf": 0.5}, "minItems": 0, "maxItems": 3, "uniqueItems": true,
                  "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]},
            "c": {"x-kubernetes-int-or-string": true, "nullable": true, "default": null},
            "d": {"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-map-type": "atomic",
                  "x-kubernetes-preserve-unknown-fields": true, "additionalProperties": true, "minProperties": 1,
                  "maxProperties": 2, "required": ["x"]},
            "e": {"type": "object", "additionalProperties": {"type": "boolean"}, "allOf": [{}], "anyOf": [{}, {}],
                  "oneOf": [], "not": {"required": ["y"]}},
        },
        "x-kubernetes-validations": [{"rule": "self.a", "message": "m", "reason": "FieldValueForbidden",
            "messageExpression": "'x'", "fieldPath": ".a", "optionalOldSelf": true}, {"rule": "true"}],
    }))
    .unwrap();
    let root = schema.root();
    let property = |name| root.property(name).unwrap();
    let names: Vec<_> = root.properties().iter().map(Property::name).collect();
    assert_eq!(names, ["a", "b", "c", "d", "e"]);
    assert!(root.property("f").is_none() && root.field("f").is_none());

    let (list, text) = (property("a"), property("b"));
    assert_eq!((list.list_type(), list.max_items(), list.min_items()), (Some(ListType::Map), Some(3), Some(0)));
    assert!(list.has_unique_items() && list.list_map_keys() == ["k".into()]);
    let number = list.items().unwrap();
    assert_eq!((number.minimum(), number.maximum(), number.multiple_of()), (Some(1.0), Some(2.5), Some(0.5)));
    assert!(number.is_maximum_exclusive() && !number.is_minimum_exclusive());
    assert_eq!((text.min_length(), text.max_length(), text.format()), (Some(1), Some(2), Some("uri")));
    assert_eq!(text.pattern().unwrap().is_match("a"), Ok(true));
    assert_eq!((text.default(), text.enum_values()), (Some(&json!("a")), &[json!("a"), json!(1), Value::Null][..]));
    assert!(property("c").is_int_or_string() && property("c").is_nullable() && property("c").default().is_none());

    let (embedded, map) = (property("d"), property("e"));
    assert!(embedded.is_embedded_resource() && embedded.preserves_unknown_fields());
    assert_eq!((embedded.map_type(), embedded.schema_type()), (Some(MapType::Atomic), Some(SchemaType::Object)));
    assert_eq!((embedded.min_properties(), embedded.max_properties()), (Some(1), Some(2)));
    assert!(embedded.required() == ["x".into()]);
    assert!(matches!(embedded.additional_properties(), AdditionalProperties::Allowed(true)));
    assert!(matches!(map.additional_properties(), AdditionalProperties::Schema(_)));
    assert!(matches!(text.additional_properties(), AdditionalProperties::Absent));
    assert_eq!((map.all_of().len(), map.any_of().len(), map.one_of().len()), (1, 2, 0));
    assert_eq!(map.not().unwrap().required().len(), 1);

    let [first, second] = root.validation_rules() else { panic!("two rules") };
    assert_eq!((&*first.rule, &*first.message, &*first.message_expression), ("self.a", "m", "'x'"));
    assert_eq!((first.reason, &*first.field_path, first.optional_old_self), (RuleReason::Forbidden, ".a", Some(true)));
    assert_eq!((second.reason, &*second.message, second.optional_old_self), (RuleReason::Invalid, "", None));
}

#[track_caller]
fn check_error(schema: &Value, expected: &Expect) {
    let error = StructuralSchema::from_json(schema).map(|_| ()).unwrap_err();
    expected.assert_eq(&error.to_string());
}

#[test]
fn malformed_schemas_are_errors() {
    check_error(&json!([]), &expect!["openAPIV3Schema: must be an object"]);
    check_error(
        &json!({"properties": {"a": {"items": {"maxLength": "1"}}}}),
        &expect!["openAPIV3Schema.properties[a].items: 'maxLength' must be a number"],
    );
    check_error(&json!({"maxLength": 1.5}), &expect!["openAPIV3Schema: 'maxLength' must be an integer"]);
    check_error(&json!({"items": [{}]}), &expect!["openAPIV3Schema: 'items' must be a schema, but is an array"]);
    check_error(&json!({"allOf": [{}, {"$ref": "x"}]}), &expect!["openAPIV3Schema.allOf[1]: '$ref' is not supported"]);
    check_error(&json!({"type": "null"}), &expect![[r#"openAPIV3Schema: unknown type "null""#]]);
    check_error(&json!({"required": [1]}), &expect!["openAPIV3Schema: entries of 'required' must be strings"]);
    check_error(
        &json!({"x-kubernetes-preserve-unknown-fields": false}),
        &expect!["openAPIV3Schema: 'x-kubernetes-preserve-unknown-fields' must be true or undefined"],
    );
    let mut deep = json!({});
    for _ in 0..200 {
        deep = json!({"items": deep});
    }
    let error = StructuralSchema::from_json(&deep).map(|_| ()).unwrap_err();
    assert_eq!(error.problem, "nests more than 128 schemas");
}

/// Bytes on the heap of a node, without the overhead of the allocator.
fn heap_size(node: &SchemaNode) -> usize {
    let properties = node.properties.iter().map(|property| property.name.len() + heap_size(&property.schema));
    let keywords = node.keywords.iter().map(|keyword| {
        #[allow(clippy::wildcard_enum_match_arm)]
        match keyword {
            Keyword::Items(node) | Keyword::AdditionalSchema(node) => size_of::<SchemaNode>() + heap_size(node),
            Keyword::Default(_) => size_of::<Value>(),
            Keyword::Enum(values) => size_of_val(&**values) + values.len() * 8,
            Keyword::Format(format) => format.len(),
            Keyword::Pattern(pattern) => size_of::<Pattern>() + pattern.as_str().len(),
            _ => 0,
        }
    });
    size_of_val(&*node.properties) + size_of_val(&*node.keywords) + properties.sum::<usize>() + keywords.sum::<usize>()
}

#[test]
fn five_versions_of_fifty_properties_take_little_memory() {
    let property = |index: usize| match index % 5 {
        0 => json!({"type": "string", "description": "long ".repeat(50), "minLength": 1, "pattern": "^[a-z]+$"}),
        1 => json!({"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"}),
        2 => json!({"type": "integer", "format": "int32", "minimum": 0, "default": 3}),
        3 => json!({"type": "string", "enum": ["Always", "Never"]}),
        _ => json!({"type": "boolean"}),
    };
    let properties: serde_json::Map<_, _> =
        (0..50).map(|index| (format!("propertyNumber{index}"), property(index))).collect();
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": properties}}});
    let compiled = StructuralSchema::from_json(&schema).unwrap();
    let bytes = 5 * heap_size(compiled.root());
    assert!(bytes < 37 << 10, "{bytes} bytes");
    assert_eq!((size_of::<SchemaNode>(), size_of::<Keyword>()), (40, 24));
}

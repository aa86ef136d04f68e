//! Parts of a table line: the definition of a field, and sets of releases.

use std::fmt;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::MINOR_VERSIONS;

/// A set of releases, one bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ReleaseSet(u8);

impl ReleaseSet {
    pub(crate) fn insert(&mut self, position: usize) {
        self.0 |= 1 << position;
    }

    fn contains(self, position: usize) -> bool {
        self.0 & (1 << position) != 0
    }
}

/// Formats ranges, oldest first: `31-33`, `34`, and `36+` for a range that includes the newest release.
impl fmt::Display for ReleaseSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut spans = Vec::new();
        let mut position = 0;
        while position < MINOR_VERSIONS.len() {
            let start = position;
            while position < MINOR_VERSIONS.len() && self.contains(position) {
                position += 1;
            }
            match position - start {
                0 => position += 1,
                _ if position == MINOR_VERSIONS.len() => spans.push(format!("{}+", MINOR_VERSIONS[start])),
                1 => spans.push(MINOR_VERSIONS[start].to_string()),
                _ => spans.push(format!("{}-{}", MINOR_VERSIONS[start], MINOR_VERSIONS[position - 1])),
            }
        }
        f.write_str(&spans.join(","))
    }
}

/// A field as the definitions describe it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FieldDefinition {
    pub(crate) name: String,
    pub(crate) is_required: bool,
    pub(crate) shape: String,
    /// List type, map type and patch strategy, one word each.
    pub(crate) merge_rules: Vec<String>,
}

impl FieldDefinition {
    /// Parses a property; `package` is that of its type.
    pub(crate) fn parse(package: &str, name: &str, property: &Value, is_required: bool) -> Result<FieldDefinition> {
        let shape = parse_shape(package, property)?;
        let mut marks = Vec::new();
        marks.extend(list_rule(property, &shape)?);
        marks.extend(patch_rule(property));
        Ok(FieldDefinition { name: name.to_owned(), is_required, shape, merge_rules: marks })
    }
}

/// Types that the table shows as one word instead of a list of fields.
const SCALAR_TYPES: [(&str, &str); 11] = [
    ("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSON", "json"),
    ("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrArray", "schema-or-array"),
    ("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrBool", "schema-or-bool"),
    ("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrStringArray", "schema-or-strings"),
    ("io.k8s.apimachinery.pkg.api.resource.Quantity", "quantity"),
    ("io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1", "fields"),
    ("io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime", "micro-time"),
    ("io.k8s.apimachinery.pkg.apis.meta.v1.Patch", "patch"),
    ("io.k8s.apimachinery.pkg.apis.meta.v1.Time", "time"),
    ("io.k8s.apimachinery.pkg.runtime.RawExtension", "raw"),
    ("io.k8s.apimachinery.pkg.util.intstr.IntOrString", "int-or-string"),
];

/// True if the table shows the type as one word.
pub(crate) fn is_scalar(definition: &str) -> bool {
    SCALAR_TYPES.iter().any(|(name, _)| *name == definition)
}

fn parse_shape(package: &str, schema: &Value) -> Result<String> {
    if let Some(reference) = schema["$ref"].as_str() {
        let definition = reference.rsplit('/').next().unwrap_or_default();
        return Ok(reference_name(package, definition));
    }
    Ok(match (schema_type(schema)?, schema["format"].as_str()) {
        ("string", None) => "string".to_owned(),
        ("string", Some("byte")) => "bytes".to_owned(),
        ("integer", Some(format @ ("int32" | "int64"))) => format.to_owned(),
        ("number", Some("double")) => "double".to_owned(),
        ("boolean", None) => "bool".to_owned(),
        ("array", None) => format!("[{}]", parse_shape(package, &schema["items"])?),
        ("object", None) => format!("{{{}}}", parse_shape(package, &schema["additionalProperties"])?),
        (other, format) => bail!("a field of type {other} and format {format:?}"),
    })
}

/// The type of a schema; optional fields have `["string", "null"]`.
fn schema_type(schema: &Value) -> Result<&str> {
    let text = schema["type"].as_str().or_else(|| schema["type"][0].as_str());
    text.with_context(|| format!("a schema without a type: {schema}"))
}

/// Types of the same package by name, others prefixed with the last two parts of their package.
fn reference_name(package: &str, definition: &str) -> String {
    if let Some((_, word)) = SCALAR_TYPES.iter().find(|(name, _)| *name == definition) {
        return (*word).to_owned();
    }
    let (home, name) = definition.rsplit_once('.').unwrap_or(("", definition));
    if home == package {
        return name.to_owned();
    }
    let parts: Vec<&str> = home.rsplitn(3, '.').collect();
    format!("{}.{}.{name}", parts.get(1).unwrap_or(&""), parts[0])
}

fn list_rule(property: &Value, shape: &str) -> Result<Option<String>> {
    if let Some(kind) = property["x-kubernetes-map-type"].as_str() {
        return Ok(Some(kind.to_owned()));
    }
    // A list type is meaningful only on lists, among which Go counts bytes.
    if !shape.starts_with('[') && shape != "bytes" {
        return Ok(None);
    }
    let Some(kind) = property["x-kubernetes-list-type"].as_str() else { return Ok(None) };
    if kind != "map" {
        return Ok(Some(kind.to_owned()));
    }
    let keys = property["x-kubernetes-list-map-keys"].as_array().context("a list of type map without keys")?;
    let keys: Vec<&str> = keys.iter().filter_map(Value::as_str).collect();
    Ok(Some(format!("map({})", keys.join(","))))
}

fn patch_rule(property: &Value) -> Option<String> {
    let strategy = property["x-kubernetes-patch-strategy"].as_str()?;
    Some(match property["x-kubernetes-patch-merge-key"].as_str() {
        Some(key) => format!("patch({strategy}:{key})"),
        None => format!("patch({strategy})"),
    })
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    #[track_caller]
    fn check(property: &str, expected: &Expect) {
        let property = serde_json::from_str(property).unwrap();
        let shown = match FieldDefinition::parse("io.k8s.api.core.v1", "f", &property, false) {
            Ok(field) => [vec![field.shape], field.merge_rules].concat().join(" "),
            Err(error) => error.to_string(),
        };
        expected.assert_eq(&shown);
    }

    #[test]
    fn shapes_are_parsed_from_schemas() {
        check(r#"{"type": ["string", "null"]}"#, &expect!["string"]);
        check(r#"{"type": "integer", "format": "int64"}"#, &expect!["int64"]);
        check(r##"{"$ref": "#/$defs/io.k8s.api.core.v1.Pod"}"##, &expect!["Pod"]);
        check(
            r##"{"$ref": "#/$defs/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}"##,
            &expect!["meta.v1.ObjectMeta"],
        );
        check(
            r##"{"type": "object", "additionalProperties": {"$ref": "#/$defs/io.k8s.apimachinery.pkg.api.resource.Quantity"}}"##,
            &expect!["{quantity}"],
        );
        check(
            r#"{"type": "object", "additionalProperties": {"type": "array", "items": {"type": "string"}}}"#,
            &expect!["{[string]}"],
        );
    }

    #[test]
    fn merge_rules_follow_the_shape() {
        check(
            r#"{"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["a", "b"], "x-kubernetes-patch-strategy": "merge,retainKeys",
                "x-kubernetes-patch-merge-key": "a"}"#,
            &expect!["[string] map(a,b) patch(merge,retainKeys:a)"],
        );
        check(r#"{"type": "string", "format": "byte", "x-kubernetes-list-type": "atomic"}"#, &expect!["bytes atomic"]);
    }

    #[test]
    fn unknown_schema_forms_are_rejected() {
        check(r#"{"type": "integer"}"#, &expect!["a field of type integer and format None"]);
        check(r#"{"enum": ["a"]}"#, &expect![[r#"a schema without a type: {"enum":["a"]}"#]]);
    }

    #[test]
    fn release_sets_are_shown_as_ranges() {
        let shown = |positions: &[usize]| {
            let mut releases = ReleaseSet::default();
            positions.iter().for_each(|position| releases.insert(*position));
            releases.to_string()
        };
        assert_eq!(shown(&[0, 1, 2, 3, 4, 5, 6]), "31+");
        assert_eq!(shown(&[0, 2, 3, 6]), "31,33-34,37+");
        assert_eq!(shown(&[5]), "36");
    }
}

//! Values as Kubernetes' messages show them: the fields of Go's internal types in their order, with the zero value of those
//! that are absent.

use std::sync::LazyLock;

use api::json::{JsonObject, to_go_json};
use schema::{StructType, TypeForm, ValueType};
use serde_json::Value;

/// One line per type: its name, and its fields as Go names them. After a name may follow `=` and the name in JSON where it
/// differs in more than case, and a mark for the zero value: `*` and `[` null, `#` and `%` 0, `?` false, `~` a quantity, `&` a
/// struct; without a mark it is text. `+` stands for the metadata, and a dot for a field that is left out if it is absent.
static GO_STRUCTS: LazyLock<Vec<(&str, &str)>> =
    LazyLock::new(|| include_str!("go_structs.txt").lines().filter_map(|line| line.split_once(' ')).collect());

const METADATA_FIELDS: [&str; 6] = ["name", "generateName", "namespace", "labels", "annotations", "finalizers"];
/// Fields of a pod's spec that belong to the security context in Go's internal type.
const HOST_FIELDS: [&str; 5] = ["hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace", "hostUsers"];

/// How a value is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GoLayout {
    /// Without spaces, as values in messages.
    Compact,
    /// A line per field, indented by one space, as in diffs.
    Indented,
}

/// The form of a value; `None` if it is not a struct whose fields are known.
pub(crate) fn go_form(value: &Value, shape: ValueType<'_>, layout: GoLayout) -> Option<String> {
    let TypeForm::Struct(kind) = shape.form() else { return None };
    go_struct_form(value.as_object()?, kind, kind.name(), layout)
}

/// The form of an object with the fields of a type or of a part of it.
pub(crate) fn go_struct_form(
    object: &JsonObject,
    kind: StructType<'_>,
    fields: &str,
    layout: GoLayout,
) -> Option<String> {
    let mut writer = GoWriter { text: String::new(), layout, depth: 0 };
    writer.write_struct(object, kind, fields_of(fields)?);
    Some(writer.text)
}

fn fields_of(name: &str) -> Option<&'static str> {
    let found = GO_STRUCTS.binary_search_by(|(known, _)| (*known).cmp(name)).ok()?;
    Some(GO_STRUCTS[found].1)
}

struct GoWriter {
    text: String,
    layout: GoLayout,
    depth: usize,
}

impl GoWriter {
    fn write_value(&mut self, value: &Value, shape: ValueType<'_>) {
        match (shape.form(), value) {
            (TypeForm::Struct(kind), Value::Object(object)) => match fields_of(kind.name()) {
                Some(fields) => self.write_struct(object, kind, fields),
                None => self.write_plain(value),
            },
            (TypeForm::List(items), Value::Array(list)) => {
                self.write_entries(['[', ']'], list.iter().map(|item| (None, item)), |writer, item| {
                    writer.write_value(item, items);
                });
            }
            (TypeForm::Map(values), Value::Object(map)) => {
                let entries = map.iter().map(|(key, value)| (Some(key.as_str()), value));
                self.write_entries(['{', '}'], entries, |writer, value| writer.write_value(value, values));
            }
            _ => self.write_plain(value),
        }
    }

    fn write_struct(&mut self, object: &JsonObject, kind: StructType<'_>, fields: &str) {
        let entries: Vec<(Option<&str>, GoField<'_>)> =
            fields.split(' ').flat_map(|field| read_field(object, kind, field)).collect();
        self.write_entries(['{', '}'], entries.into_iter(), |writer, field| match field {
            GoField::Value(value, Some(shape)) => writer.write_value(value, shape),
            GoField::Value(value, None) => writer.write_plain(value),
            GoField::SecurityContext(value, kind) => {
                writer.write_struct(&value, kind, fields_of(kind.name()).unwrap_or_default());
            }
            GoField::Zero(zero) => writer.text += zero,
            GoField::EmptyStruct(kind) => match fields_of(kind.name()) {
                Some(fields) => writer.write_struct(&JsonObject::new(), kind, fields),
                None => writer.text += "{}",
            },
        });
    }

    fn write_entries<'a, T>(
        &mut self,
        [open, close]: [char; 2],
        entries: impl Iterator<Item = (Option<&'a str>, T)>,
        write: impl Fn(&mut Self, T),
    ) {
        self.text.push(open);
        self.depth += 1;
        let mut is_first = true;
        for (key, entry) in entries {
            if !is_first {
                self.text.push(',');
            }
            is_first = false;
            self.start_line();
            if let Some(key) = key {
                self.write_plain(&key.into());
                self.text += if self.layout == GoLayout::Compact { ":" } else { ": " };
            }
            write(self, entry);
        }
        self.depth -= 1;
        if !is_first {
            self.start_line();
        }
        self.text.push(close);
    }

    fn start_line(&mut self) {
        if self.layout == GoLayout::Indented {
            self.text.push('\n');
            self.text.extend(std::iter::repeat_n(' ', self.depth));
        }
    }

    fn write_plain(&mut self, value: &Value) {
        match value {
            Value::Object(map) => {
                let entries = map.iter().map(|(key, value)| (Some(key.as_str()), value));
                self.write_entries(['{', '}'], entries, Self::write_plain);
            }
            Value::Array(list) => {
                self.write_entries(['[', ']'], list.iter().map(|item| (None, item)), Self::write_plain);
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
                self.text += &String::from_utf8_lossy(&to_go_json(value));
            }
        }
    }
}

/// What is written for a field.
enum GoField<'a> {
    Value(&'a Value, Option<ValueType<'a>>),
    SecurityContext(JsonObject, StructType<'a>),
    Zero(&'static str),
    EmptyStruct(StructType<'a>),
}

/// The entries that a field of a line stands for.
fn read_field<'a>(object: &'a JsonObject, kind: StructType<'a>, field: &'a str) -> Vec<(Option<&'a str>, GoField<'a>)> {
    if field == "+metadata" {
        let metadata = object.get("metadata").and_then(Value::as_object);
        let entries = METADATA_FIELDS.into_iter().filter_map(|name| Some((name, metadata?.get(name)?)));
        return entries.map(|(name, value)| (Some(name), GoField::Value(value, None))).collect();
    }
    let (field, is_optional) = field.strip_prefix('.').map_or((field, false), |field| (field, true));
    let marks = ['*', '[', '#', '%', '?', '~', '&'];
    let (name, mark) = match field.strip_suffix(marks) {
        Some(name) => (name, &field[name.len()..]),
        None => (field, ""),
    };
    let (name, json) = name.split_once('=').unwrap_or((name, name));
    let is_named = |known: &&str| known.eq_ignore_ascii_case(json);
    let declared = kind.fields().find(|known| is_named(&known.name()));
    let found = object.iter().find(|(known, value)| is_named(&known.as_str()) && !value.is_null());
    let shape = declared.map(|declared| declared.value_type());
    let inner = shape.and_then(|shape| if let TypeForm::Struct(inner) = shape.form() { Some(inner) } else { None });
    let entry = match (found, mark) {
        (Some((_, Value::Object(context))), _) if kind.name() == "PodSpec" && name == "SecurityContext" => {
            let mut context = context.clone();
            let host = HOST_FIELDS.into_iter().filter_map(|name| Some((name.to_owned(), object.get(name)?.clone())));
            context.extend(host);
            inner.map_or(GoField::Zero("null"), |inner| GoField::SecurityContext(context, inner))
        }
        (Some((_, value)), _) => GoField::Value(value, shape),
        (None, _) if is_optional => return Vec::new(),
        (None, "*" | "[") => GoField::Zero("null"),
        (None, "#" | "%") => GoField::Zero("0"),
        (None, "?") => GoField::Zero("false"),
        (None, "~") => GoField::Zero("\"0\""),
        (None, "&") => inner.map_or(GoField::Zero("{}"), GoField::EmptyStruct),
        (None, _) => GoField::Zero("\"\""),
    };
    vec![(Some(name), entry)]
}

#[cfg(test)]
mod tests {
    use api::GroupVersionKind;
    use serde_json::json;

    use super::*;
    use crate::release::Release;
    use crate::types::types_of;

    fn spec_of(group: &str, kind: &str) -> ValueType<'static> {
        let kind = GroupVersionKind { group, version: "v1", kind };
        types_of(Release::R36).for_kind(kind).unwrap().field("spec").unwrap().value_type()
    }

    #[test]
    fn absent_fields_have_their_zero_value() {
        let attachment = json!({"attacher": "a<b", "nodeName": "n", "source": {}});
        assert_eq!(
            go_form(&attachment, spec_of("storage.k8s.io", "VolumeAttachment"), GoLayout::Compact).unwrap(),
            r#"{"Attacher":"a\u003cb","Source":{"PersistentVolumeName":null,"InlineVolumeSpec":null},"NodeName":"n"}"#
        );
        let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"devices": {}}});
        assert_eq!(
            go_form(&template, spec_of("resource.k8s.io", "ResourceClaimTemplate"), GoLayout::Compact).unwrap(),
            r#"{"labels":{"a":"b"},"Spec":{"Devices":{"Requests":null,"Constraints":null,"Config":null}}}"#
        );
    }

    #[test]
    fn indented_form_has_a_line_per_field() {
        let claim = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
        let form = go_form(&claim, spec_of("", "PersistentVolumeClaim"), GoLayout::Indented).unwrap();
        let first: Vec<&str> = form.lines().take(9).collect();
        let expected = [
            "{",
            " \"AccessModes\": [",
            "  \"ReadWriteOnce\"",
            " ],",
            " \"Selector\": null,",
            " \"Resources\": {",
            "  \"Limits\": null,",
            "  \"Requests\": {",
            "   \"storage\": \"1Gi\"",
        ];
        assert_eq!(first, expected);
    }

    #[test]
    fn lines_are_sorted() {
        assert!(GO_STRUCTS.is_sorted(), "the search needs order");
    }
}

//! Replays sequences of writes whose results on Kubernetes' field manager are known.

use std::sync::LazyLock;

use api::GroupVersionKind;
use api::json::JsonObject;
use managedfields::{
    ApplyError, ConversionUnavailable, FieldManager, FieldSet, ObjectType, VersionedTypes, apply, record_update,
};
use schema::structural::StructuralSchema;
use schema::{SpecialType, StructType, TypeForm, TypeTable, ValueType, ZeroEncoding};
use serde_json::{Map, Value};

static TABLE: LazyLock<TypeTable> =
    LazyLock::new(|| TypeTable::parse(include_str!("../../../kinds/src/types/schemas.txt")));
static WIDGET: &str = include_str!("widget.json");
static SCHEMAS: LazyLock<[StructuralSchema; 2]> = LazyLock::new(|| {
    [WIDGET.to_owned(), WIDGET.replacen("\"replicas\":", "\"count\":", 1)].map(|text| {
        StructuralSchema::from_json(&serde_json::from_str(&text).expect("schema is JSON"))
            .expect("schema is structural")
    })
});

/// The release whose behaviour was recorded.
const RELEASE: u8 = 36;

/// The kind of a sequence, and the endpoint of a step.
pub(crate) struct Endpoint {
    api_version: String,
    kind: String,
    is_custom: bool,
    is_deduced: bool,
    reset: FieldSet,
}

impl Endpoint {
    /// The main endpoint of a custom resource with a schema.
    #[allow(dead_code)]
    pub(crate) fn widget() -> Self {
        Self {
            api_version: "example.com/v1".to_owned(),
            kind: "Widget".to_owned(),
            is_custom: true,
            is_deduced: false,
            reset: FieldSet::of_names(&[["status"]]),
        }
    }

    fn struct_type(&self) -> Option<StructType<'static>> {
        let (group, version) = self.api_version.split_once('/').unwrap_or(("", &self.api_version));
        let kind = GroupVersionKind { group, version, kind: self.kind.as_str() };
        if self.is_custom { None } else { TABLE.in_release(RELEASE).for_kind(kind) }
    }
}

impl VersionedTypes for Endpoint {
    fn kind(&self) -> &str {
        &self.kind
    }

    fn object_type(&self, api_version: &str) -> Option<ObjectType<'_>> {
        if !self.is_custom {
            return self.struct_type().filter(|_| api_version == self.api_version).map(ObjectType::BuiltIn);
        }
        let position = ["example.com/v1", "example.com/v2"].iter().position(|known| *known == api_version)?;
        if self.is_deduced {
            return Some(ObjectType::Deduced);
        }
        let definition = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
        let object_meta = TABLE.in_release(RELEASE).for_definition(definition)?;
        Some(ObjectType::Custom { schema: &SCHEMAS[position], object_meta })
    }

    fn convert(&self, object: &JsonObject, api_version: &str) -> Result<JsonObject, ConversionUnavailable> {
        Ok(convert_widget(object, api_version))
    }

    fn reset_fields(&self, _: &str) -> &FieldSet {
        &self.reset
    }
}

fn convert_widget(object: &JsonObject, api_version: &str) -> JsonObject {
    let mut object = object.clone();
    if object.get("apiVersion").and_then(Value::as_str) == Some(api_version) {
        return object;
    }
    object.insert("apiVersion".to_owned(), api_version.into());
    let (from, to) = if api_version.ends_with("v1") { ("count", "replicas") } else { ("replicas", "count") };
    if let Some(Value::Object(spec)) = object.get_mut("spec")
        && let Some(value) = spec.remove(from)
    {
        spec.insert(to.to_owned(), value);
    }
    object
}

/// The object of a custom resource in its stored version.
#[allow(dead_code)]
pub(crate) fn stored_form(object: &Value, api_version: &str) -> Value {
    match (object, api_version.starts_with("example.com/")) {
        (Value::Object(fields), true) => Value::Object(convert_widget(fields, api_version)),
        _ => object.clone(),
    }
}

/// A difference to Kubernetes, or the name of a decided deviation.
pub(crate) enum Finding {
    Difference(String),
    Decided(&'static str),
}

/// Replays a sequence; stops at the first difference.
pub(crate) fn replay(sequence: &Value) -> Vec<Finding> {
    let text = |name: &str| sequence[name].as_str().unwrap_or_default().to_owned();
    let mut endpoint = Endpoint {
        api_version: text("apiVersion"),
        kind: text("kind"),
        is_custom: sequence["custom"] == true,
        is_deduced: sequence["deduced"] == true,
        reset: FieldSet::EMPTY,
    };
    let drops_empty = sequence["seed"].as_i64().unwrap_or_default() % 2 == 0;
    let mut findings = Vec::new();
    let mut live: Option<JsonObject> = None;
    for (index, step) in sequence["steps"].as_array().into_iter().flatten().enumerate() {
        endpoint.reset = match step["sub"].as_str() {
            Some("status") => FieldSet::of_names(&[&["spec"][..], &["metadata", "labels"]]),
            _ => FieldSet::of_names(&[["status"]]),
        };
        let outcome = run_step(&endpoint, step, index + 1, live.as_ref(), drops_empty);
        let known_error = step["error"].as_str().unwrap_or_default();
        match (outcome, known_error) {
            (Ok(object), "") => {
                let expected = minimal(&endpoint, step["result"].as_object().expect("a step has a result"));
                let found = minimal(&endpoint, &object);
                if let Some(difference) = difference(&Value::Object(expected), &Value::Object(found), "") {
                    if step["op"] == "apply" && is_emptied(&difference) {
                        // What follows differs, too.
                        findings.push(Finding::Decided("emptied-container-is-empty"));
                        return findings;
                    }
                    findings.push(Finding::Difference(format!("step {index}: {difference}")));
                    return findings;
                }
                let raw = step["raw"].as_array().into_iter().flatten().filter_map(Value::as_str);
                // Entries of custom resources pass through Go maps, whose keys are in the order of bytes.
                for bytes in raw.filter(|_| !endpoint.is_custom) {
                    let set = serde_json::from_str(bytes).map(|set: Value| FieldSet::from_value(&set));
                    let encoded = set.expect("a set is JSON").expect("a set is valid").to_json();
                    if encoded != bytes {
                        findings.push(Finding::Difference(format!("set\n  known {bytes}\n  found {encoded}")));
                    }
                }
                live = Some(object);
            }
            (_, known) if LENIENT.iter().any(|error| known.starts_with(error)) || is_duplicate(known) => {
                findings.push(Finding::Decided("live-object-is-read-leniently"));
            }
            (Ok(_), known) if known.starts_with("failed to convert new object") => {
                findings.push(Finding::Decided("values-are-checked-after-the-merge"));
            }
            (Err((message, _)), known) if is_multiple(&message) && is_multiple(known) => {
                // Kubernetes visits the fields of a map in random order and stops at the first unknown one.
                findings.push(Finding::Decided("errors-are-sorted"));
            }
            (Err((message, causes)), known) => {
                let known_causes: Vec<&str> =
                    step["causes"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
                if message != known || causes != known_causes {
                    findings.push(Finding::Difference(format!(
                        "step {index}: error\n  known {known:?} {known_causes:?}\n  found {message:?} {causes:?}"
                    )));
                    return findings;
                }
            }
            (Ok(_), known) if step["op"] == "update" => {
                // Kubernetes then stores the object without entries.
                findings.push(Finding::Decided("update-never-fails"));
                let _ = known;
            }
            (Ok(_), known) => {
                findings.push(Finding::Difference(format!("step {index}: no error, known {known}")));
                return findings;
            }
        }
    }
    findings
}

/// Errors of Kubernetes about the live object, which this crate reads leniently.
const LENIENT: [&str; 2] = ["failed to create typed live object", "failed to create manager for existing fields"];

/// True if Kubernetes refuses duplicates in the live object because an entry has another version.
fn is_duplicate(known: &str) -> bool {
    known.trim_start_matches("errors:\n  ").starts_with('.') && known.contains("duplicate entries for key")
}

/// True if Kubernetes has null or nothing where the configuration has an empty object or list.
fn is_emptied(difference: &str) -> bool {
    let found = difference.rsplit_once("\n  found ").and_then(|(_, found)| serde_json::from_str(found).ok());
    let is_known_empty = difference.contains("\n  known null\n") || difference.contains("\n  known nothing\n");
    is_known_empty && found.is_some_and(|found: Value| has_only_empty(&found))
}

fn has_only_empty(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.values().all(has_only_empty),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// True for the error of a configuration with several faults, or with an unknown field.
fn is_multiple(message: &str) -> bool {
    message.starts_with("failed to create typed patch object")
        && (message.contains(": errors:") || message.contains("field not declared in schema"))
}

type StepError = (String, Vec<String>);

fn run_step(
    endpoint: &Endpoint,
    step: &Value,
    number: usize,
    live: Option<&JsonObject>,
    drops_empty: bool,
) -> Result<JsonObject, StepError> {
    let api_version = match endpoint.is_custom {
        true => format!("example.com/{}", step["version"].as_str().unwrap_or_default()),
        false => endpoint.api_version.clone(),
    };
    let mut live = live.map(|live| if endpoint.is_custom { convert_widget(live, &api_version) } else { live.clone() });
    let mut object = step["object"].as_object().expect("a step has an object").clone();
    if let (true, Some(live)) = (drops_empty, &mut live) {
        *live = minimal(endpoint, live);
    }
    let writer = FieldManager {
        name: step["manager"].as_str().unwrap_or_default(),
        api_version: &api_version,
        subresource: step["sub"].as_str().unwrap_or_default(),
        now: format!("2020-01-01T00:{number:02}:00Z").parse().expect("a time"),
    };
    let mut result = if step["op"] == "apply" {
        match apply(live.as_ref(), &object, step["force"] == true, &writer, endpoint) {
            Ok(Some(result)) => result,
            Ok(None) => live.expect("only an existing object can be unchanged"),
            Err(error) => return Err(shown_error(&error)),
        }
    } else {
        object = minimal_if(drops_empty, endpoint, &object);
        let sent = match step["sends"].as_str() {
            Some("live") => live.as_ref().and_then(|live| live["metadata"].get("managedFields").cloned()),
            Some("reset") => Some(Value::Array(Vec::new())),
            _ => None,
        };
        if let (Some(sent), Some(metadata)) = (sent, object.get_mut("metadata").and_then(Value::as_object_mut)) {
            metadata.insert("managedFields".to_owned(), sent);
        }
        record_update(live.as_ref(), &mut object, &writer, endpoint)
            .map_err(|error| (error.to_string(), Vec::new()))?;
        object
    };
    if endpoint.is_custom {
        result = convert_widget(&result, &endpoint.api_version);
    } else if let Some(kind) = endpoint.struct_type() {
        result = minimal_struct(&result, kind, drops_empty);
    }
    result["metadata"]["uid"] = "u".into();
    Ok(result)
}

fn shown_error(error: &ApplyError) -> StepError {
    let mut causes: Vec<String> = Vec::new();
    if let ApplyError::Conflicts(conflicts) = error {
        causes.extend(conflicts.causes().map(|(message, field)| format!("{message} | {field}")));
    }
    causes.sort();
    (error.to_string(), causes)
}

fn minimal_if(drops_empty: bool, endpoint: &Endpoint, object: &JsonObject) -> JsonObject {
    if drops_empty { minimal(endpoint, object) } else { object.clone() }
}

/// The object without what Go encodes though it is not set.
fn minimal(endpoint: &Endpoint, object: &JsonObject) -> JsonObject {
    match endpoint.struct_type() {
        Some(kind) => minimal_struct(object, kind, true),
        None => object.clone(),
    }
}

/// Without `drops_empty`, fields that Go always encodes stay as they are.
fn minimal_struct(object: &JsonObject, kind: StructType<'_>, drops_empty: bool) -> JsonObject {
    let mut result = Map::new();
    for (name, value) in object {
        let Some(field) = kind.field(name) else { continue };
        let value = if value.is_null() { Value::Null } else { minimal_value(value, field.value_type(), drops_empty) };
        let is_zero = match (&value, field.value_type().form()) {
            (Value::Null, _) => true,
            (Value::Object(object), TypeForm::Struct(_)) => {
                object.is_empty() && field.zero_encoding() == ZeroEncoding::Zero
            }
            (Value::Object(object), TypeForm::Map(_)) => {
                object.is_empty() && field.zero_encoding() == ZeroEncoding::Omitted
            }
            (Value::Array(items), TypeForm::List(_)) => {
                items.is_empty() && field.zero_encoding() == ZeroEncoding::Omitted
            }
            (Value::String(text), TypeForm::Text) => {
                let is_pointer = field.is_pointer() && field.zero_encoding() != ZeroEncoding::Zero;
                text.is_empty() && !is_pointer && field.zero_encoding() != ZeroEncoding::Null
            }
            (Value::Bool(false), TypeForm::Bool) => field.zero_encoding() == ZeroEncoding::Zero || !field.is_pointer(),
            (Value::Number(number), TypeForm::Int32 | TypeForm::Int64 | TypeForm::Double) => {
                let is_pointer = field.is_pointer() && field.zero_encoding() != ZeroEncoding::Zero;
                number.as_f64() == Some(0.0) && !is_pointer && field.zero_encoding() != ZeroEncoding::Null
            }
            (Value::String(text), TypeForm::Special(SpecialType::Quantity)) => {
                text == "0" && field.zero_encoding() == ZeroEncoding::Zero
            }
            (Value::Number(number), TypeForm::Special(SpecialType::IntOrString)) => {
                number.as_i64() == Some(0) && field.zero_encoding() == ZeroEncoding::Zero
            }
            _ => false,
        };
        let is_kept = !drops_empty && !value.is_null() && field.zero_encoding() != ZeroEncoding::Omitted;
        if !is_zero || is_kept {
            result.insert(name.clone(), value);
        }
    }
    result
}

fn minimal_value(value: &Value, value_type: ValueType<'_>, drops_empty: bool) -> Value {
    match (value_type.form(), value) {
        (TypeForm::Struct(inner), Value::Object(object)) => Value::Object(minimal_struct(object, inner, drops_empty)),
        (TypeForm::List(items), Value::Array(list)) => {
            list.iter().map(|item| minimal_value(item, items, drops_empty)).collect()
        }
        (TypeForm::Map(values), Value::Object(map)) => Value::Object(
            map.iter().map(|(name, value)| (name.clone(), minimal_value(value, values, drops_empty))).collect(),
        ),
        // An item cannot be absent.
        (TypeForm::Text, Value::Null) => "".into(),
        (TypeForm::Special(SpecialType::Quantity), Value::Null) => "0".into(),
        (TypeForm::Special(SpecialType::Quantity), Value::Number(number)) => number.to_string().into(),
        (TypeForm::Struct(_), Value::Null) => Value::Object(Map::new()),
        _ => value.clone(),
    }
}

/// The first difference of two values.
fn difference(known: &Value, found: &Value, path: &str) -> Option<String> {
    match (known, found) {
        (Value::Object(one), Value::Object(other)) => {
            let names: std::collections::BTreeSet<&String> = one.keys().chain(other.keys()).collect();
            names.into_iter().find_map(|name| {
                let path = format!("{path}.{name}");
                match (one.get(name), other.get(name)) {
                    (Some(one), Some(other)) => difference(one, other, &path),
                    (one, other) => Some(format!("{path}\n  known {}\n  found {}", show(one), show(other))),
                }
            })
        }
        (Value::Array(one), Value::Array(other)) if one.len() == other.len() => {
            let pairs = one.iter().zip(other).enumerate();
            pairs
                .map(|(index, (one, other))| difference(one, other, &format!("{path}[{index}]")))
                .find_map(|found| found)
        }
        _ if known == found => None,
        _ => Some(format!("{path}\n  known {known}\n  found {found}")),
    }
}

fn show(value: Option<&Value>) -> String {
    value.map_or_else(|| "nothing".to_owned(), Value::to_string)
}

//! JSON patch (RFC 6902), with the deviations of the library that Kubernetes uses: negative indices count from the end,
//! `replace` may add a field, and a missing field equals null in `test`.

use serde_json::{Map, Value};

use crate::decode::{self, BodyEncoding, DEPTH_MAX, Decoded};
use crate::rejection::Rejection;

/// Limit of operations in a patch, as in Kubernetes.
const OPERATIONS_MAX: usize = 10_000;
/// Limit of bytes added by all `copy` operations: the size limit of a request body, as in kube-apiserver.
const COPIED_BYTES_MAX: usize = 3 * 1024 * 1024;
/// Limit of values visited or shifted by all operations; bounds 10,000 insertions at the front of a long list.
const WORK_MAX: usize = 50_000_000;

/// A list of operations that apply atomically.
#[derive(Clone, Debug, PartialEq)]
pub struct JsonPatch(Vec<PatchOperation>);

/// How the text of an unequal value in a `test` ends.
const TEST_FAILED: &str = ": test failed";

/// True if a patch was not applied because the value of a `test` operation differs.
pub fn is_failed_test(rejection: &Rejection) -> bool {
    matches!(rejection, Rejection::Unprocessable(text) if text.ends_with(TEST_FAILED))
}

#[derive(Clone, Debug, PartialEq)]
struct PatchOperation {
    op: String,
    path: Option<String>,
    from: Option<String>,
    value: Option<Value>,
}

impl JsonPatch {
    /// Parses a patch; unknown operations and missing paths fail in [`JsonPatch::apply`].
    pub fn parse(body: &[u8]) -> Result<Decoded<Self>, Rejection> {
        let refuse = |reason: String| Rejection::BadRequest(format!("error decoding patch: {reason}"));
        let Decoded { value, duplicate_fields: duplicates } =
            decode::decode_value(body, BodyEncoding::Json).map_err(refuse)?;
        let mismatch = |value: &Value, of: &str| {
            refuse(format!("json: cannot unmarshal {} into Go value of type {of}", decode::go_json_type_name(value)))
        };
        let value = if value.is_null() { Vec::<Value>::new().into() } else { value };
        let Value::Array(items) = value else { return Err(mismatch(&value, "[]handlers.jsonPatchOp")) };
        if items.len() > OPERATIONS_MAX {
            return Err(Rejection::TooLarge(format!(
                "The allowed maximum operations in a JSON patch is {OPERATIONS_MAX}, got {}",
                items.len()
            )));
        }
        let operations = items.into_iter().map(|item| match item {
            Value::Object(fields) => parse_operation(fields).map_err(refuse),
            other @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_)) => {
                Err(mismatch(&other, "handlers.jsonPatchOp"))
            }
        });
        let value = Self(operations.collect::<Result<_, _>>()?);
        let duplicates = duplicates.into_iter().map(|duplicate| format!("json patch {duplicate}")).collect();
        Ok(Decoded { value, duplicate_fields: duplicates })
    }

    /// Applies the operations in order to a copy of the object. The result may be any JSON value; check it with
    /// [`super::expect_kind`].
    pub fn apply(&self, object: &Map<String, Value>) -> Result<Value, Rejection> {
        let mut document = PatchTarget { root: Value::Object(object.clone()), work: 0, copied_bytes: 0 };
        for operation in &self.0 {
            document.apply(operation).map_err(Rejection::Unprocessable)?;
        }
        Ok(document.root)
    }
}

fn parse_operation(mut fields: Map<String, Value>) -> Result<PatchOperation, String> {
    let mut text = |name: &str| match fields.remove(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(other) => Err(format!(
            "json: cannot unmarshal {} into Go struct field jsonPatchOp.{name} of type string",
            decode::go_json_type_name(&other)
        )),
    };
    let op = text("op")?.unwrap_or_else(|| "unknown".to_owned());
    Ok(PatchOperation { op, path: text("path")?, from: text("from")?, value: fields.remove("value") })
}

struct PatchTarget {
    root: Value,
    work: usize,
    copied_bytes: usize,
}

impl PatchTarget {
    fn apply(&mut self, operation: &PatchOperation) -> Result<(), String> {
        let op = operation.op.as_str();
        let path = || operation.path.as_deref().ok_or(format!("{op} operation failed to decode path: missing value"));
        let from = || operation.from.as_deref().ok_or(format!("{op} operation failed to decode from: missing value"));
        let value = || operation.value.clone().unwrap_or_default();
        match op {
            "add" => self.add("add", path()?, value()),
            "remove" => self.remove("remove", path()?).map(|_| ()),
            "replace" => self.replace(path()?, value()),
            "move" => {
                let moved = self.remove("move", from()?)?;
                self.add("move", path()?, moved)
            }
            "copy" => {
                let copied = self.get("copy", from()?)?.clone();
                self.copied_bytes += copied.to_string().len();
                if self.copied_bytes > COPIED_BYTES_MAX {
                    return Err(format!(
                        "Unable to complete the copy, the accumulated size increase of copy is {}, exceeding the limit \
                         {COPIED_BYTES_MAX}",
                        self.copied_bytes
                    ));
                }
                self.add("copy", path()?, copied)
            }
            "test" => {
                let path = path()?;
                let found = if path.is_empty() { &self.root } else { self.get("test", path)? };
                let is_equal = found == operation.value.as_ref().unwrap_or(&Value::Null);
                if is_equal { Ok(()) } else { Err(format!("testing value {path} failed{TEST_FAILED}")) }
            }
            other => Err(format!("Unexpected kind: {other}")),
        }
    }

    fn add(&mut self, op: &str, path: &str, value: Value) -> Result<(), String> {
        self.check_depth(path, &value)?;
        let shifted = match self.parent(op, path)? {
            (Value::Object(fields), name) => {
                fields.insert(name, value);
                0
            }
            (Value::Array(items), name) => {
                let at = if name == "-" { items.len() } else { parse_index(&name, items.len() + 1, op, path)? };
                items.insert(at, value);
                items.len() - at
            }
            (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_), _) => {
                return Err(missing_path_error(op, path));
            }
        };
        self.charge_work(shifted)
    }

    fn replace(&mut self, path: &str, value: Value) -> Result<(), String> {
        self.check_depth(path, &value)?;
        if path.is_empty() {
            self.root = value;
            return Ok(());
        }
        match self.parent("replace", path)? {
            (Value::Object(fields), name) => {
                fields.insert(name, value);
            }
            (Value::Array(items), name) => {
                let at = parse_index(&name, items.len(), "replace", path)?;
                items[at] = value;
            }
            (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_), _) => {
                return Err(missing_path_error("replace", path));
            }
        }
        Ok(())
    }

    fn remove(&mut self, op: &str, path: &str) -> Result<Value, String> {
        let (removed, shifted) = match self.parent(op, path)? {
            (Value::Object(fields), name) => {
                let none = || {
                    format!("error in {op} for path: '{path}': Unable to remove nonexistent key: {name}: missing value")
                };
                (fields.remove(&name).ok_or_else(none)?, 0)
            }
            (Value::Array(items), name) => {
                let at = parse_index(&name, items.len(), op, path)?;
                (items.remove(at), items.len() - at)
            }
            (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_), _) => {
                return Err(missing_path_error(op, path));
            }
        };
        self.charge_work(shifted)?;
        Ok(removed)
    }

    /// The value at a path; a missing field of an object reads as null.
    fn get(&mut self, op: &str, path: &str) -> Result<&Value, String> {
        match self.parent(op, path)? {
            (Value::Object(fields), name) => Ok(fields.get(&name).unwrap_or(&Value::Null)),
            (Value::Array(items), name) => Ok(&items[parse_index(&name, items.len(), op, path)?]),
            (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_), _) => {
                Err(missing_path_error(op, path))
            }
        }
    }

    /// The container of the value at a path, and the last token of the path.
    fn parent(&mut self, op: &str, path: &str) -> Result<(&mut Value, String), String> {
        let (parents, last) = path.rsplit_once('/').ok_or_else(|| missing_path_error(op, path))?;
        let mut value = &mut self.root;
        for token in parents.split('/').skip(1) {
            let name = unescape(token);
            let next = match value {
                Value::Object(fields) => fields.get_mut(&name),
                Value::Array(items) => {
                    let at = parse_index(&name, items.len(), op, path).map_err(|_| missing_path_error(op, path))?;
                    items.get_mut(at)
                }
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
            };
            value = next.ok_or_else(|| missing_path_error(op, path))?;
        }
        Ok((value, unescape(last)))
    }

    /// Rejects a value that would exceed [`DEPTH_MAX`] at `path`, and charges its size as work.
    fn check_depth(&mut self, path: &str, value: &Value) -> Result<(), String> {
        let (depth, values) = depth_and_size(value);
        self.charge_work(values)?;
        if path.matches('/').count() + depth > DEPTH_MAX {
            return Err("exceeded max depth".to_owned());
        }
        Ok(())
    }

    fn charge_work(&mut self, values: usize) -> Result<(), String> {
        self.work = self.work.saturating_add(values);
        if self.work > WORK_MAX { Err("the patch is too much work".to_owned()) } else { Ok(()) }
    }
}

fn missing_path_error(op: &str, path: &str) -> String {
    format!("{op} operation does not apply: doc is missing path: \"{path}\": missing value")
}

fn unescape(token: &str) -> String {
    token.replace("~1", "/").replace("~0", "~")
}

/// Index that a path token means in a list of `length` items; negative tokens count from the end.
fn parse_index(token: &str, length: usize, op: &str, path: &str) -> Result<usize, String> {
    let number: i64 = token
        .parse()
        .map_err(|_| format!("error in {op} for path: '{path}': value was not a proper array index: '{token}'"))?;
    let places = i64::try_from(length).unwrap_or(i64::MAX);
    let from_start = if number < 0 { number.saturating_add(places) } else { number };
    usize::try_from(from_start).ok().filter(|_| from_start < places).ok_or_else(|| {
        format!("error in {op} for path: '{path}': Unable to access invalid index: {number}: invalid index referenced")
    })
}

/// Nesting depth of a value, and the number of values in it, itself included.
fn depth_and_size(value: &Value) -> (usize, usize) {
    let inside = |parts: &mut dyn Iterator<Item = &Value>| {
        let (depth, values) = parts
            .map(depth_and_size)
            .fold((0, 1), |(depth, values), (deeper, more)| (depth.max(deeper), values + more));
        (depth + 1, values)
    };
    match value {
        Value::Array(items) => inside(&mut items.iter()),
        Value::Object(fields) => inside(&mut fields.values()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => (0, 1),
    }
}

//! A value at a path, and the report that collects errors.

use std::cell::RefCell;
use std::collections::HashSet;
use std::fmt::Write as _;

use api::FieldError;
use api::json::{JsonObject, to_go_json};
use serde_json::Value;

use crate::feature_gates::FeatureGates;

/// Errors of one object beyond this number are dropped: a body can contain half a million.
const ERRORS_MAX: usize = 1000;

#[cfg(test)]
thread_local! {
    /// Paths that rules looked at, so that tests see how work and memory grow with the length of lists.
    pub(crate) static PATHS_RECORDED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Collects the errors of one object.
pub(crate) struct Report<'a> {
    gates: &'a FeatureGates,
    errors: RefCell<Vec<FieldError>>,
    /// Paths as a tree: each node has its parent's index. The first node is the root.
    paths: RefCell<Vec<(u32, Segment<'a>)>>,
}

#[derive(Clone, Copy, Debug)]
enum Segment<'a> {
    Root(&'a str),
    Name(&'a str),
    Key(&'a str),
    Index(usize),
}

/// A value, present or not, at the path where Kubernetes' messages name it.
#[derive(Clone, Copy)]
pub(crate) struct Field<'a> {
    node: u32,
    value: Option<&'a Value>,
    /// The fields of an object.
    fields: Option<&'a JsonObject>,
    report: &'a Report<'a>,
}

impl<'a> Report<'a> {
    pub(crate) fn new(gates: &'a FeatureGates) -> Self {
        Self { gates, errors: RefCell::default(), paths: RefCell::new(vec![(0, Segment::Root(""))]) }
    }

    /// The whole object, whose path is empty.
    pub(crate) fn root(&'a self, object: &'a JsonObject) -> Field<'a> {
        Field { node: 0, value: None, fields: Some(object), report: self }
    }

    pub(crate) fn take_errors(&self) -> Vec<FieldError> {
        std::mem::take(&mut *self.errors.borrow_mut())
    }

    fn add_node(&self, parent: u32, segment: Segment<'a>) -> u32 {
        #[cfg(test)]
        PATHS_RECORDED.set(PATHS_RECORDED.get() + 1);
        let mut paths = self.paths.borrow_mut();
        paths.push((parent, segment));
        u32::try_from(paths.len() - 1).unwrap_or_default()
    }

    fn write_path(&self, node: u32, path: &mut String) {
        let Some((parent, segment)) = self.paths.borrow().get(node as usize).copied() else { return };
        if node != parent {
            self.write_path(parent, path);
        }
        // Writing to a string does not fail.
        let _ = match segment {
            Segment::Root(text) => write!(path, "{text}"),
            Segment::Name(name) if path.is_empty() => write!(path, "{name}"),
            Segment::Name(name) => write!(path, ".{name}"),
            Segment::Key(key) => write!(path, "[{key}]"),
            Segment::Index(index) => write!(path, "[{index}]"),
        };
    }
}

/// Reading.
impl<'a> Field<'a> {
    /// The field of an object.
    pub(crate) fn at(self, name: &'a str) -> Field<'a> {
        let value = self.fields.and_then(|fields| fields.get(name));
        self.child(Segment::Name(name), value)
    }

    /// A field of a field: `template.spec`.
    pub(crate) fn path(self, names: &'a str) -> Field<'a> {
        names.split('.').fold(self, Field::at)
    }

    fn child(self, segment: Segment<'a>, value: Option<&'a Value>) -> Field<'a> {
        let value = value.filter(|value| !value.is_null());
        let node = self.report.add_node(self.node, segment);
        Field { node, value, fields: value.and_then(Value::as_object), report: self.report }
    }

    /// Checks another value at this path; its errors show that value.
    pub(crate) fn check_other(self, value: &Value, check: impl FnOnce(Field<'_>)) {
        let report = Report::new(self.report.gates);
        let errors = {
            let path = self.path_text();
            let node = report.add_node(0, Segment::Name(&path));
            check(Field { node, value: Some(value), fields: value.as_object(), report: &report });
            report.take_errors()
        };
        errors.into_iter().for_each(|error| self.add_error(error));
    }

    /// The index of an item in its list; 0 for other fields.
    pub(crate) fn position(self) -> usize {
        match self.report.paths.borrow().get(self.node as usize) {
            Some((_, Segment::Index(index))) => *index,
            _ => 0,
        }
    }

    /// The same value at a path of its own, where Kubernetes' rules lose the path.
    pub(crate) fn rooted_at(self, path: &'a str) -> Field<'a> {
        Field { node: self.report.add_node(0, Segment::Name(path)), ..self }
    }

    /// The same value, reported without the item's index or key.
    pub(crate) fn reported_at(self, other: Field<'a>) -> Field<'a> {
        Field { node: other.node, ..self }
    }

    /// An item of a map, by its key.
    pub(crate) fn key(self, key: &'a str) -> Field<'a> {
        let value = self.fields.and_then(|fields| fields.get(key));
        self.child(Segment::Key(key), value)
    }

    /// An item of a list.
    pub(crate) fn index(self, index: usize) -> Field<'a> {
        let value = self.list().get(index);
        self.child(Segment::Index(index), value)
    }

    pub(crate) fn list(self) -> &'a [Value] {
        self.value.and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }

    /// The texts of a field of all items; absent ones are empty. Unlike [`Self::at`] it records no paths, so that looking up
    /// the items of one list in another costs neither time nor memory for every pair.
    pub(crate) fn texts_of_items(self, name: &str) -> HashSet<&'a str> {
        self.list().iter().map(|item| item.get(name).and_then(Value::as_str).unwrap_or_default()).collect()
    }

    pub(crate) fn len(self) -> usize {
        self.fields.map_or(self.list().len(), JsonObject::len)
    }

    /// The items of a list, with their paths.
    pub(crate) fn items(self) -> impl Iterator<Item = Field<'a>> {
        (0..self.list().len()).map(move |index| self.index(index))
    }

    /// The items of a map with their keys, in the order of the keys.
    pub(crate) fn entries(self) -> impl Iterator<Item = (&'a str, Field<'a>)> {
        let mut keys: Vec<&'a str> = self.fields.into_iter().flatten().map(|(key, _)| key.as_str()).collect();
        keys.sort_unstable();
        keys.into_iter().map(move |key| (key, self.key(key)))
    }

    /// Checks the items of a list one by one. Fields must not leave the closure.
    pub(crate) fn each(self, check: impl Fn(Field<'a>)) {
        for index in 0..self.list().len() {
            let paths = self.report.paths.borrow().len();
            check(self.index(index));
            self.report.paths.borrow_mut().truncate(paths);
        }
    }

    pub(crate) fn value(self) -> Option<&'a Value> {
        self.value
    }

    pub(crate) fn object(self) -> Option<&'a JsonObject> {
        self.fields
    }

    pub(crate) fn is_present(self) -> bool {
        self.value.is_some() || self.fields.is_some()
    }

    /// True for absent fields and for the zero value of a type: empty text, 0, false, an empty list or object.
    pub(crate) fn is_zero(self) -> bool {
        self.value.is_none_or(is_zero)
    }

    pub(crate) fn text(self) -> &'a str {
        self.value.and_then(Value::as_str).unwrap_or_default()
    }

    pub(crate) fn is_text(self) -> bool {
        self.value.is_some_and(Value::is_string)
    }

    pub(crate) fn texts(self) -> impl Iterator<Item = &'a str> {
        self.list().iter().filter_map(Value::as_str)
    }

    pub(crate) fn integer(self) -> Option<i64> {
        self.value.and_then(Value::as_i64)
    }

    pub(crate) fn integer_or_zero(self) -> i64 {
        self.integer().unwrap_or_default()
    }

    pub(crate) fn flag(self) -> bool {
        self.value.and_then(Value::as_bool).unwrap_or_default()
    }

    pub(crate) fn is_enabled(self, gate: &str) -> bool {
        self.report.gates.enabled(gate)
    }

    pub(crate) fn gates(self) -> &'a FeatureGates {
        self.report.gates
    }

    pub(crate) fn release_minor(self) -> u8 {
        self.report.gates.release().minor()
    }

    /// The number of errors so far, to learn whether a rule found one.
    pub(crate) fn error_count(self) -> usize {
        self.report.errors.borrow().len()
    }

    /// The path in messages.
    pub(crate) fn path_text(self) -> String {
        let mut path = String::new();
        self.report.write_path(self.node, &mut path);
        path
    }
}

/// An object as Go prints it: its fields in the order of their declaration.
pub(crate) fn go_object(fields: &[(&str, Value)]) -> String {
    let one = |(name, value): &(&str, Value)| format!("\"{name}\":{}", String::from_utf8_lossy(&to_go_json(value)));
    format!("{{{}}}", fields.iter().map(one).collect::<Vec<_>>().join(","))
}

/// A label selector as Go prints it.
pub(crate) fn go_label_selector(selector: Option<&Value>) -> String {
    let Some(selector) = selector else { return "null".to_owned() };
    let requirement = |term: &Value| {
        let text = |name: &str| term.get(name).cloned().unwrap_or_else(|| "".into());
        let values = term.get("values").cloned().map(|values| ("values", values));
        let fields = [("key", text("key")), ("operator", text("operator"))];
        go_object(&fields.into_iter().chain(values).collect::<Vec<_>>())
    };
    let labels = selector.get("matchLabels").map(|labels| go_object(&[("matchLabels", labels.clone())]));
    let terms = selector
        .get("matchExpressions")
        .and_then(Value::as_array)
        .map(|terms| format!("\"matchExpressions\":[{}]", terms.iter().map(requirement).collect::<Vec<_>>().join(",")));
    let labels = labels.map(|labels| labels.trim_start_matches('{').strip_suffix('}').unwrap_or_default().to_owned());
    format!("{{{}}}", labels.into_iter().chain(terms).collect::<Vec<_>>().join(","))
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.values().all(is_zero),
    }
}

/// Reporting.
impl<'a> Field<'a> {
    fn push(self, error: impl FnOnce(String) -> FieldError) {
        let mut errors = self.report.errors.borrow_mut();
        if errors.len() < ERRORS_MAX {
            let mut path = String::new();
            self.report.write_path(self.node, &mut path);
            errors.push(error(path));
        }
    }

    pub(crate) fn add_error(self, error: FieldError) {
        self.push(|_| error);
    }

    /// Invalid with a value in the order of Go's fields.
    pub(crate) fn invalid_showing(self, shown: String, detail: impl Into<String>) {
        self.push(|path| FieldError::invalid_without_value(path, detail).showing(shown));
    }

    /// Unsupported with a value in the order of Go's fields.
    pub(crate) fn unsupported_showing(self, shown: String, supported: &[&str]) {
        self.push(|path| FieldError::not_supported(path, "", supported).showing(shown));
    }

    /// Repeated with a value in the order of Go's fields.
    pub(crate) fn duplicate_showing(self, shown: String) {
        self.push(|path| FieldError::duplicate(path, "").showing(shown));
    }

    pub(crate) fn required(self, detail: impl Into<String>) {
        self.push(|path| FieldError::required(path, detail));
    }

    pub(crate) fn invalid(self, detail: impl Into<String>) {
        let value = self.value.cloned().or_else(|| self.fields.cloned().map(Value::Object)).unwrap_or_default();
        self.push(|path| FieldError::invalid(path, value, detail));
    }

    /// Invalid text, which is empty if absent.
    pub(crate) fn invalid_text(self, detail: impl Into<String>) {
        self.invalid_as(self.text(), detail);
    }

    /// Invalid with a value that is not the field's own.
    pub(crate) fn invalid_as(self, value: impl Into<Value>, detail: impl Into<String>) {
        self.push(|path| FieldError::invalid(path, value, detail));
    }

    /// Invalid where Kubernetes does not show the value.
    pub(crate) fn invalid_unshown(self, detail: impl Into<String>) {
        self.push(|path| FieldError::invalid_without_value(path, detail));
    }

    pub(crate) fn forbidden(self, detail: impl Into<String>) {
        self.push(|path| FieldError::forbidden(path, detail));
    }

    pub(crate) fn duplicate(self) {
        let value = self.value.cloned().unwrap_or_default();
        self.push(|path| FieldError::duplicate(path, value));
    }

    pub(crate) fn duplicate_of(self, value: impl Into<Value>) {
        self.push(|path| FieldError::duplicate(path, value));
    }

    pub(crate) fn not_found(self) {
        self.push(|path| FieldError::not_found(path, self.text()));
    }

    pub(crate) fn unsupported(self, supported: &[&str]) {
        self.push(|path| FieldError::not_supported(path, self.text(), supported));
    }

    /// Unsupported with a value that is not the field's own.
    pub(crate) fn unsupported_as(self, value: impl Into<Value>, supported: &[&str]) {
        self.push(|path| FieldError::not_supported(path, value, supported));
    }

    pub(crate) fn too_long(self, bytes_max: usize) {
        self.push(|path| FieldError::too_long(path, bytes_max));
    }

    pub(crate) fn too_many(self, max: usize) {
        self.push(|path| FieldError::too_many(path, self.len(), max));
    }
}

/// Rules of presence and enumerations.
impl<'a> Field<'a> {
    /// Text that must not be empty. True if it is there.
    pub(crate) fn require_text(self) -> bool {
        if self.text().is_empty() {
            self.required("");
        }
        !self.text().is_empty()
    }

    /// One of a set; empty text is not in it.
    pub(crate) fn one_of(self, supported: &[&str]) {
        if !supported.contains(&self.text()) {
            self.unsupported(supported);
        }
    }

    /// One of a set, if present.
    pub(crate) fn one_of_if_present(self, supported: &[&str]) {
        if self.is_present() {
            self.one_of(supported);
        }
    }

    /// One of a set, unless empty.
    pub(crate) fn one_of_if_set(self, supported: &[&str]) {
        if !self.text().is_empty() {
            self.one_of(supported);
        }
    }

    /// Required, and one of a set.
    pub(crate) fn require_one_of(self, supported: &[&str]) {
        if self.require_text() {
            self.one_of(supported);
        }
    }

    /// Forbids these fields of an object.
    pub(crate) fn forbid(self, names: &[&'a str], detail: &str) {
        for field in names.iter().map(|name| self.at(name)).filter(|field| field.is_present()) {
            field.forbidden(detail);
        }
    }

    /// Requires these fields of an object: text that is not empty.
    pub(crate) fn require(self, names: &[&'a str]) {
        names.iter().for_each(|name| {
            self.at(name).require_text();
        });
    }

    /// Reports the items of a list that occurred before.
    pub(crate) fn unique_items(self) {
        let mut seen = std::collections::HashSet::new();
        for item in self.items().filter(|item| !seen.insert(item.text())) {
            item.duplicate();
        }
    }

    /// Reports the items of a list whose key occurred before.
    pub(crate) fn unique_by(self, key: impl Fn(Field<'a>) -> &'a str) {
        let mut seen = std::collections::HashSet::new();
        for item in self.items().filter(|item| !seen.insert(key(*item))) {
            item.duplicate_of(key(item));
        }
    }

    /// At most this many items. True if so.
    pub(crate) fn at_most(self, max: usize) -> bool {
        if self.len() > max {
            self.too_many(max);
        }
        self.len() <= max
    }
}

//! JSONPath in the dialect of client-go, as the columns of custom resources use it.
//!
//! The dialect has fields, indexes, slices, filters, unions, wildcards and recursive descent. Missing fields yield no
//! value; an index out of range, or a filter of something that is not a list, fails the whole path.
//!
//! Two things differ from client-go. Wildcards visit the fields of an object in the order of their names, where
//! client-go has no order. `range` never yields a value: it changes client-go's parsed path while it is evaluated, so
//! that the result depends on the objects before.

mod parse;

use std::cmp::Ordering;

use api::json::{JsonObject, to_go_json};
use api::quote::GoFloat;
use serde_json::Value;

pub use parse::JsonPathError;

/// Values that one evaluation may visit; a path that visits more yields nothing. Each recursive descent or union may
/// multiply the number of values.
const VISITED_MAX: usize = 1 << 17;

/// A parsed path.
#[derive(Clone, Debug)]
pub struct JsonPath {
    template: Template,
}

#[derive(Clone, Debug)]
enum Template {
    /// Field names only: almost all paths.
    Fields(Vec<String>),
    /// The first block gives the value; all others must not fail.
    Blocks(Vec<Vec<Step>>),
    /// The path contains `range`.
    Range,
}

/// One step of a path. Values come in, values go out.
#[derive(Clone, Debug)]
enum Step {
    Field(String),
    /// A literal string, which replaces the values.
    Text(String),
    /// A literal number or bool, which replaces each value.
    Literal(Literal),
    Slice(Slice),
    Filter(Box<Filter>),
    Union(Vec<Vec<Self>>),
    Wildcard,
    Descend,
    /// The keyword `end` outside of a range.
    End,
    UnknownIdentifier,
}

#[derive(Clone, Copy, Debug)]
enum Literal {
    Int(i64),
    Float(f64),
    Bool(bool),
}

/// `[start:end:step]`; an index is a slice of one item.
#[derive(Clone, Copy, Debug)]
struct Slice {
    start: Option<i64>,
    end: SliceEnd,
    step: Option<i64>,
}

#[derive(Clone, Copy, Debug)]
enum SliceEnd {
    /// The end of the list.
    Open,
    At(i64),
    /// One after the start: the text has no colon.
    Derived(i64),
}

#[derive(Clone, Debug)]
struct Filter {
    left: Vec<Step>,
    /// `None` keeps the items for which `left` yields a value.
    comparison: Option<(Comparison, Vec<Step>)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    /// Such as `=`: accepted by the parser, an error once two values are compared.
    Unknown,
}

/// A value that a path yields.
#[derive(Clone, Copy, Debug)]
pub enum PathValue<'a> {
    /// A value of the object.
    Json(&'a Value),
    /// The object itself.
    Root(&'a JsonObject),
    /// A string of the path.
    Text(&'a str),
    /// An integer of the path, which is of another Go type than the integers of objects.
    Int(i64),
    /// A float of the path.
    Float(f64),
    /// A bool of the path.
    Bool(bool),
    /// A byte of a string: what a wildcard yields there.
    Byte(u8),
}

impl JsonPath {
    /// Parses a path without the enclosing braces, such as `.spec.replicas`.
    pub fn parse(text: &str) -> Result<Self, JsonPathError> {
        parse::parse(text).map(|template| Self { template })
    }

    /// The first value of the path in an object; `None` if there is no value or the path fails.
    pub fn first<'a>(&'a self, object: &'a JsonObject) -> Option<PathValue<'a>> {
        match &self.template {
            Template::Range => None,
            Template::Fields(names) => {
                let Some((last, parents)) = names.split_last() else { return Some(PathValue::Root(object)) };
                let parent = parents.iter().try_fold(object, |parent, name| parent.get(name)?.as_object())?;
                parent.get(last).map(PathValue::Json)
            }
            Template::Blocks(blocks) => {
                let mut evaluation = Evaluation { visited: 0 };
                let mut results = Vec::new();
                for block in blocks {
                    results.push(evaluation.steps(vec![PathValue::Root(object)], block).ok()?);
                }
                if evaluation.visited > VISITED_MAX {
                    return None;
                }
                results.first()?.first().copied()
            }
        }
    }
}

/// The values after a step. An error has the values that an existence filter then counts.
type Values<'a> = Result<Vec<PathValue<'a>>, Vec<PathValue<'a>>>;

struct Evaluation {
    visited: usize,
}

impl Evaluation {
    fn steps<'a>(&mut self, input: Vec<PathValue<'a>>, steps: &'a [Step]) -> Values<'a> {
        steps.iter().try_fold(input, |values, step| {
            let values = self.step(values, step)?;
            self.visited += values.len();
            if self.visited > VISITED_MAX { Err(Vec::new()) } else { Ok(values) }
        })
    }

    fn step<'a>(&mut self, input: Vec<PathValue<'a>>, step: &'a Step) -> Values<'a> {
        match step {
            Step::Field(name) => Ok(input.into_iter().filter_map(|value| value.field(name)).collect()),
            Step::Text(text) => Ok(vec![PathValue::Text(text)]),
            Step::Literal(literal) => {
                let value = match *literal {
                    Literal::Int(value) => PathValue::Int(value),
                    Literal::Float(value) => PathValue::Float(value),
                    Literal::Bool(value) => PathValue::Bool(value),
                };
                Ok(vec![value; input.len()])
            }
            Step::Slice(slice) => slice.select(input),
            Step::Filter(filter) => self.filter(input, filter),
            Step::Union(parts) => {
                let mut result = Vec::new();
                for part in parts {
                    match self.steps(input.clone(), part) {
                        Ok(values) => result.extend(values),
                        Err(_) => return Err(input),
                    }
                }
                Ok(result)
            }
            Step::Wildcard => {
                let mut result = Vec::new();
                input.iter().for_each(|value| value.for_each_child(|child| result.push(child)));
                Ok(result)
            }
            Step::Descend => {
                let mut result = Vec::new();
                input.iter().for_each(|value| self.descend(*value, &mut result));
                Ok(result)
            }
            Step::End => Err(Vec::new()),
            Step::UnknownIdentifier => Err(input),
        }
    }

    /// Appends a value and everything below, parents first; values without content are left out.
    fn descend<'a>(&mut self, value: PathValue<'a>, result: &mut Vec<PathValue<'a>>) {
        let at = result.len();
        let mut is_empty = true;
        value.for_each_child(|child| {
            if is_empty {
                result.push(value);
                is_empty = false;
            }
            if result.len() <= VISITED_MAX {
                self.descend(child, result);
            }
        });
        debug_assert!(is_empty == (result.len() == at), "a value is appended iff it has children");
    }

    fn filter<'a>(&mut self, input: Vec<PathValue<'a>>, filter: &'a Filter) -> Values<'a> {
        let mut kept = Vec::new();
        for value in &input {
            let Some(items) = value.as_list() else { return Err(input) };
            for item in items {
                let item = PathValue::Json(item);
                self.visited += 1;
                let left = self.steps(vec![item], &filter.left);
                let Some((comparison, right)) = &filter.comparison else {
                    if left.map_or_else(|values| !values.is_empty(), |values| !values.is_empty()) {
                        kept.push(item);
                    }
                    continue;
                };
                let left = match left.as_deref() {
                    Ok([]) => continue,
                    Ok([left]) => *left,
                    Ok(_) | Err(_) => return Err(input),
                };
                let right = match self.steps(vec![item], right).as_deref() {
                    Ok([]) => continue,
                    Ok([right]) => *right,
                    Ok(_) | Err(_) => return Err(input),
                };
                match left.compare(*comparison, right) {
                    Some(true) => kept.push(item),
                    Some(false) => {}
                    None => return Err(kept),
                }
            }
        }
        Ok(kept)
    }
}

impl Slice {
    fn select(self, input: Vec<PathValue<'_>>) -> Values<'_> {
        let mut selected = Vec::new();
        for value in &input {
            if value.is_null() {
                continue;
            }
            let Some(items) = value.as_list() else { return Err(input) };
            let length = i64::try_from(items.len()).unwrap_or(i64::MAX);
            let from_end = |index: i64| if index < 0 { index.wrapping_add(length) } else { index };
            let start = from_end(self.start.unwrap_or(0));
            let end = match self.end {
                SliceEnd::Open => length,
                SliceEnd::Derived(0) => length,
                SliceEnd::At(end) | SliceEnd::Derived(end) => from_end(end),
            };
            if start == end {
                return Ok(selected);
            }
            let step = self.step.unwrap_or(1);
            if !(0..length).contains(&start) || !(0..=length).contains(&end) || start > end || step <= 0 {
                return Err(input);
            }
            let [start, end, step] = [start, end, step].map(|index| usize::try_from(index).unwrap_or(usize::MAX));
            selected.extend(items[start..end].iter().step_by(step).map(PathValue::Json));
        }
        Ok(selected)
    }
}

impl<'a> PathValue<'a> {
    /// The integer of an object.
    pub fn as_integer(self) -> Option<i64> {
        match self {
            Self::Json(value) => value.as_i64(),
            Self::Root(_) | Self::Text(_) | Self::Int(_) | Self::Float(_) | Self::Bool(_) | Self::Byte(_) => None,
        }
    }

    /// A number that is not an integer of an object.
    pub fn as_float(self) -> Option<f64> {
        match self {
            Self::Json(Value::Number(number)) if number.as_i64().is_none() => number.as_f64(),
            Self::Float(value) => Some(value),
            Self::Json(_) | Self::Root(_) | Self::Text(_) | Self::Int(_) | Self::Bool(_) | Self::Byte(_) => None,
        }
    }

    /// A bool of the object or of the path.
    pub fn as_bool(self) -> Option<bool> {
        match self {
            Self::Json(value) => value.as_bool(),
            Self::Bool(value) => Some(value),
            Self::Root(_) | Self::Text(_) | Self::Int(_) | Self::Float(_) | Self::Byte(_) => None,
        }
    }

    /// A string of the object or of the path.
    pub fn as_text(self) -> Option<&'a str> {
        match self {
            Self::Json(value) => value.as_str(),
            Self::Text(text) => Some(text),
            Self::Root(_) | Self::Int(_) | Self::Float(_) | Self::Bool(_) | Self::Byte(_) => None,
        }
    }

    /// The value as client-go prints it: objects and lists as JSON, null as `<no value>`.
    pub fn print(self) -> String {
        match self {
            Self::Json(Value::Null) => "<no value>".to_owned(),
            Self::Json(Value::String(text)) => text.clone(),
            Self::Json(Value::Number(number)) => go_number(number),
            Self::Json(value) => String::from_utf8_lossy(&to_go_json(value)).into_owned(),
            Self::Root(object) => String::from_utf8_lossy(&to_go_json(object)).into_owned(),
            Self::Text(text) => text.to_owned(),
            Self::Int(value) => value.to_string(),
            Self::Float(value) => GoFloat(value).to_string(),
            Self::Bool(value) => value.to_string(),
            Self::Byte(byte) => byte.to_string(),
        }
    }

    fn is_null(self) -> bool {
        matches!(self, Self::Json(Value::Null))
    }

    fn as_list(self) -> Option<&'a [Value]> {
        if let Self::Json(Value::Array(items)) = self { Some(items) } else { None }
    }

    fn field(self, name: &str) -> Option<Self> {
        let object = match self {
            Self::Root(object) => object,
            Self::Json(value) => value.as_object()?,
            Self::Text(_) | Self::Int(_) | Self::Float(_) | Self::Bool(_) | Self::Byte(_) => return None,
        };
        object.get(name).map(Self::Json)
    }

    fn for_each_child(self, mut visit: impl FnMut(Self)) {
        match self {
            Self::Root(object) | Self::Json(Value::Object(object)) => object.values().map(Self::Json).for_each(visit),
            Self::Json(Value::Array(items)) => items.iter().map(Self::Json).for_each(visit),
            Self::Json(Value::String(text)) => text.bytes().take(VISITED_MAX).map(Self::Byte).for_each(visit),
            Self::Text(text) => text.bytes().map(Self::Byte).for_each(&mut visit),
            Self::Json(Value::Null | Value::Bool(_) | Value::Number(_))
            | Self::Int(_)
            | Self::Float(_)
            | Self::Bool(_)
            | Self::Byte(_) => {}
        }
    }

    /// Compares two scalars of the same type; `None` for other values and for bools that are to be ordered.
    fn compare(self, comparison: Comparison, other: Self) -> Option<bool> {
        let (left, right) = (self.scalar()?, other.scalar()?);
        let ordering = left.compare(right)?;
        let is_bool = matches!(left, Scalar::Bool(_));
        match comparison {
            Comparison::Equal => Some(ordering == Some(Ordering::Equal)),
            Comparison::NotEqual => Some(ordering != Some(Ordering::Equal)),
            Comparison::Unknown => None,
            _ if is_bool => None,
            Comparison::Less => Some(ordering == Some(Ordering::Less)),
            Comparison::LessOrEqual => Some(matches!(ordering, Some(Ordering::Less | Ordering::Equal))),
            Comparison::Greater => Some(!matches!(ordering, Some(Ordering::Less | Ordering::Equal))),
            Comparison::GreaterOrEqual => Some(ordering != Some(Ordering::Less)),
        }
    }

    fn scalar(self) -> Option<Scalar<'a>> {
        match self {
            Self::Json(Value::Bool(value)) => Some(Scalar::Bool(*value)),
            Self::Json(Value::String(text)) => Some(Scalar::Text(text)),
            Self::Json(Value::Number(number)) => match number.as_i64() {
                Some(value) => Some(Scalar::Int(value)),
                None => number.as_f64().map(Scalar::Float),
            },
            Self::Json(Value::Null | Value::Array(_) | Value::Object(_)) | Self::Root(_) => None,
            Self::Text(text) => Some(Scalar::Text(text)),
            Self::Int(value) => Some(Scalar::Int(value)),
            Self::Float(value) => Some(Scalar::Float(value)),
            Self::Bool(value) => Some(Scalar::Bool(value)),
            Self::Byte(byte) => Some(Scalar::Int(byte.into())),
        }
    }
}

#[derive(Clone, Copy)]
enum Scalar<'a> {
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(&'a str),
}

impl Scalar<'_> {
    /// `None` if the types differ; the inner `None` for numbers without order.
    fn compare(self, other: Self) -> Option<Option<Ordering>> {
        match (self, other) {
            (Self::Bool(left), Self::Bool(right)) => Some(Some(left.cmp(&right))),
            (Self::Int(left), Self::Int(right)) => Some(Some(left.cmp(&right))),
            (Self::Float(left), Self::Float(right)) => Some(left.partial_cmp(&right)),
            (Self::Text(left), Self::Text(right)) => Some(Some(left.cmp(right))),
            (Self::Bool(_) | Self::Int(_) | Self::Float(_) | Self::Text(_), _) => None,
        }
    }
}

/// A number as Go's `%v` prints it: integers that fit 64 bits in decimal, all others as floats.
pub(crate) fn go_number(number: &serde_json::Number) -> String {
    match number.as_i64() {
        Some(value) => value.to_string(),
        None => number.as_f64().map_or_else(|| number.to_string(), |float| GoFloat(float).to_string()),
    }
}

/// A JSON value as Go's `%v` prints it.
pub(crate) fn go_value(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Number(number) => go_number(number),
        Value::String(text) => text.clone(),
        Value::Array(items) => format!("[{}]", items.iter().map(go_value).collect::<Vec<_>>().join(" ")),
        Value::Object(fields) => {
            let fields = fields.iter().map(|(name, value)| format!("{name}:{}", go_value(value)));
            format!("map[{}]", fields.collect::<Vec<_>>().join(" "))
        }
    }
}

/// The Go type of a JSON value as `%T` prints it.
pub(crate) fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_i64() => "int64",
        Value::Number(_) => "float64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

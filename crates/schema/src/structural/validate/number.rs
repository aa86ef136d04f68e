//! Checks of numbers, with the conversions of Go between integers and floating-point numbers.

use api::FieldError;
use serde_json::{Number, Value};

use super::super::formats;
use super::super::node::{SchemaNode, SchemaType};
use super::{Outcome, Validator};

/// A number as Kubernetes decodes it: integers of 64 bits, and all others as floating-point numbers.
#[derive(Clone, Copy)]
pub(super) enum Num {
    Int(i64),
    Float(f64),
}

impl From<&Number> for Num {
    fn from(number: &Number) -> Self {
        number.as_i64().map_or_else(|| Self::Float(number.as_f64().unwrap_or_default()), Self::Int)
    }
}

/// What a number must fit into.
#[derive(Clone, Copy)]
struct Range<'s> {
    type_name: &'static str,
    format: Option<&'s str>,
}

impl Validator {
    pub(super) fn check_number(&self, number: Num, schema: &SchemaNode, outcome: &mut Outcome) {
        let range = self.range(schema);
        let mut numeric = Outcome::default();
        self.check_range(number, range, "Checked", &mut numeric);
        if let Some(factor) = schema.multiple_of() {
            let mut part = Outcome::default();
            self.check_range(Num::Float(factor), range, "MultipleOf", &mut part);
            self.check_multiple(number, factor, &mut part);
            numeric.merge(part);
        }
        for (bound, is_exclusive, prefix, is_maximum) in [
            (schema.minimum(), schema.is_minimum_exclusive(), "Minimum boundary", false),
            (schema.maximum(), schema.is_maximum_exclusive(), "Maximum boundary", true),
        ] {
            let Some(bound) = bound else { continue };
            let mut part = Outcome::default();
            self.check_range(Num::Float(bound), range, prefix, &mut part);
            self.check_bound(number, bound, is_exclusive, is_maximum, &mut part);
            numeric.merge(part);
        }
        numeric.count();
        outcome.merge(numeric);
    }

    fn range<'s>(&self, schema: &'s SchemaNode) -> Range<'s> {
        let none = Range { type_name: "", format: None };
        if self.release < formats::NUMBER_RANGES_SINCE || schema.is_int_or_string() {
            return none;
        }
        let format = formats::enforced(schema, self.release);
        match schema.schema_type() {
            Some(SchemaType::Integer) => Range { type_name: "integer", format },
            Some(SchemaType::Number) => Range { type_name: "number", format },
            Some(SchemaType::Object | SchemaType::Array | SchemaType::String | SchemaType::Boolean) | None => none,
        }
    }

    /// Checks that a number, or the limit of one, fits into its type and format.
    fn check_range(&self, number: Num, range: Range<'_>, prefix: &str, outcome: &mut Outcome) {
        #[allow(clippy::cast_possible_truncation)]
        let fits = match (range.type_name, range.format, number) {
            ("integer", Some("int32"), Num::Int(integer)) => i32::try_from(integer).is_ok(),
            ("integer", Some("int32"), Num::Float(float)) => {
                float.fract() == 0.0 && (-2_147_483_648.0..=2_147_483_647.0).contains(&float)
            }
            ("integer", _, Num::Float(float)) => float.fract() == 0.0 && (-TWO_63..TWO_63).contains(&float),
            ("number", Some("float"), Num::Float(float)) => (float as f32).is_finite(),
            _ => true,
        };
        if fits {
            return;
        }
        let format = match range.format {
            Some(format) => format!("with format {format}"),
            None => "(default format)".to_owned(),
        };
        let text = format!("{prefix} value must be of type {} {format} in {}", range.type_name, self.path);
        self.without_field(outcome, text);
    }

    fn check_multiple(&self, number: Num, factor: f64, outcome: &mut Outcome) {
        let is_native = outcome.is_valid();
        match number {
            Num::Int(integer) if is_native => {
                let factor = go_int64(factor);
                if factor <= 0 {
                    self.not_positive(outcome, factor.into(), &factor.to_string());
                } else if integer % factor != 0 {
                    self.invalid(outcome, integer, &format!("should be a multiple of {factor}"));
                }
            }
            Num::Int(_) | Num::Float(_) => {
                let float = number.as_f64();
                let quotient = if factor < 1.0 { 1.0 / factor * float } else { float / factor };
                if factor <= 0.0 {
                    self.not_positive(outcome, factor.into(), &go_float(factor));
                } else if !is_json_integer(quotient) {
                    self.invalid(outcome, float, &format!("should be a multiple of {}", go_float(factor)));
                }
            }
        }
    }

    fn not_positive(&self, outcome: &mut Outcome, factor: Value, shown: &str) {
        let text = format!("factor MultipleOf declared for {} must be positive: {shown}", self.path);
        outcome.add(&text.clone(), || FieldError::invalid(self.field(), factor, text));
    }

    fn check_bound(&self, number: Num, bound: f64, is_exclusive: bool, is_maximum: bool, outcome: &mut Outcome) {
        let is_native = outcome.is_valid();
        let relation = match (is_maximum, is_exclusive) {
            (true, false) => "less than or equal to",
            (true, true) => "less than",
            (false, false) => "greater than or equal to",
            (false, true) => "greater than",
        };
        let is_broken = |order: Option<std::cmp::Ordering>| match order {
            Some(std::cmp::Ordering::Equal) => is_exclusive,
            Some(std::cmp::Ordering::Greater) => is_maximum,
            Some(std::cmp::Ordering::Less) => !is_maximum,
            None => false,
        };
        match number {
            Num::Int(integer) if is_native => {
                let bound = go_int64(bound);
                if is_broken(Some(integer.cmp(&bound))) {
                    self.invalid(outcome, integer, &format!("should be {relation} {bound}"));
                }
            }
            Num::Int(_) | Num::Float(_) => {
                let float = number.as_f64();
                if is_broken(float.partial_cmp(&bound)) {
                    self.invalid(outcome, float, &format!("should be {relation} {}", go_float(bound)));
                }
            }
        }
    }
}

impl Num {
    #[allow(clippy::cast_precision_loss)]
    fn as_f64(self) -> f64 {
        match self {
            Self::Int(integer) => integer as f64,
            Self::Float(float) => float,
        }
    }
}

const TWO_63: f64 = 9_223_372_036_854_775_808.0;

/// Go's conversion on amd64: what does not fit becomes the least integer.
#[allow(clippy::cast_possible_truncation)]
fn go_int64(float: f64) -> i64 {
    if (-TWO_63..TWO_63).contains(&float) { float as i64 } else { i64::MIN }
}

/// Whether a number counts as an integer: up to 2^53, and up to a relative error.
#[allow(clippy::cast_possible_truncation, clippy::cast_precision_loss, clippy::cast_sign_loss, clippy::float_cmp)]
pub(super) fn is_json_integer(float: f64) -> bool {
    const MAX: f64 = 9_007_199_254_740_991.0;
    const EPSILON: f64 = 1e-9;
    if !(-MAX..=MAX).contains(&float) {
        return false;
    }
    if float.fract() == 0.0 {
        return true;
    }
    // Go converts a negative number to an unsigned one by wrapping around.
    let truncated = (float as i64 as u64) as f64;
    let difference = (float - truncated).abs();
    if truncated == 0.0 {
        return false;
    }
    difference / (float.abs() + truncated.abs()).min(f64::MAX) < EPSILON
}

/// Whether a value is one of an enumeration, with the conversions of Go's reflection.
#[allow(clippy::cast_precision_loss, clippy::float_cmp)]
pub(super) fn is_enum_match(value: &Value, allowed: &Value) -> bool {
    match (value, allowed) {
        (Value::Null, _) | (_, Value::Null) => false,
        (Value::Number(value), Value::Number(allowed)) => match (Num::from(value), Num::from(allowed)) {
            (Num::Int(value), Num::Int(allowed)) => value == allowed,
            (Num::Int(value), Num::Float(allowed)) => value as f64 == allowed,
            (Num::Float(value), Num::Int(allowed)) => go_int64(value) == allowed,
            (Num::Float(value), Num::Float(allowed)) => value == allowed,
        },
        // Go converts an integer to the text of that one character.
        (Value::Number(value), Value::String(allowed)) => match Num::from(value) {
            Num::Int(value) => {
                let character = u32::try_from(value).ok().and_then(char::from_u32).unwrap_or('\u{fffd}');
                allowed.chars().eq([character])
            }
            Num::Float(_) => false,
        },
        (value, allowed) => value == allowed,
    }
}

/// A number as Go's `%v` prints it.
pub(super) fn go_float(float: f64) -> String {
    let scientific = format!("{float:e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if (-4..21).contains(&exponent) || float == 0.0 {
        return float.to_string();
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.abs())
}

//! Values as text by the language's specification, which Kubernetes' releases do not follow: no thousands separators, no
//! quotes within lists and maps.

use super::{Clause, TOO_LONG};
use crate::number::format_g;
use crate::value::{List, Map, Value};

/// Prints what is printed otherwise than in Kubernetes; false means that there is no difference.
pub(super) fn print(clause: Clause, value: &Value<'_>, out: &mut String, limit: &mut u64) -> Result<bool, String> {
    match (clause, value) {
        (Clause::Text, _) => text(value, out, limit)?,
        (Clause::Decimal, Value::Double(number)) => match special(*number) {
            Some(special) => out.push_str(special),
            None => return Ok(false),
        },
        (Clause::Fixed(precision), _) => match number(value) {
            Some(number) => {
                out.push_str(&special(number).map_or_else(|| format!("{number:.precision$}"), str::to_owned))
            }
            None => return Ok(false),
        },
        (Clause::Scientific(precision), _) => match number(value) {
            Some(number) => out.push_str(&special(number).map_or_else(|| scientific(number, precision), str::to_owned)),
            None => return Ok(false),
        },
        _ => return Ok(false),
    }
    Ok(true)
}

fn number(value: &Value<'_>) -> Option<f64> {
    match value {
        Value::Double(number) => Some(*number),
        Value::Int(number) => Some(*number as f64),
        Value::Uint(number) => Some(*number as f64),
        _ => None,
    }
}

fn special(number: f64) -> Option<&'static str> {
    match number {
        _ if number.is_nan() => Some("NaN"),
        f64::INFINITY => Some("Infinity"),
        f64::NEG_INFINITY => Some("-Infinity"),
        _ => None,
    }
}

/// `1.052033e+03`.
fn scientific(number: f64, precision: usize) -> String {
    let text = format!("{number:.precision$e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let (sign, digits) = exponent.strip_prefix('-').map_or(('+', exponent), |digits| ('-', digits));
    format!("{mantissa}e{sign}{digits:0>2}")
}

fn text(value: &Value<'_>, out: &mut String, limit: &mut u64) -> Result<(), String> {
    *limit = limit.saturating_sub(1);
    if *limit == 0 {
        return Err(TOO_LONG.to_owned());
    }
    match value {
        Value::List(list) => list_text(list, out, limit),
        Value::Map(map) if map.message_type().is_some() => Err(Clause::Text.wrong_type(&value.type_name())),
        Value::Map(map) => map_text(map, out, limit),
        Value::Double(number) => {
            out.push_str(&special(*number).map_or_else(|| format_g(*number), str::to_owned));
            Ok(())
        }
        _ => super::text(value, out, limit),
    }
}

fn list_text(list: &List<'_>, out: &mut String, limit: &mut u64) -> Result<(), String> {
    out.push('[');
    for (at, item) in list.iter().enumerate() {
        if at > 0 {
            out.push_str(", ");
        }
        text(&item.map_err(|error| error.to_string())?, out, limit)?;
    }
    out.push(']');
    Ok(())
}

/// Entries by the text of their keys.
fn map_text(map: &Map<'_>, out: &mut String, limit: &mut u64) -> Result<(), String> {
    let mut entries = Vec::new();
    for key in map.keys() {
        let (mut entry, mut shown) = (String::new(), String::new());
        text(&key, &mut entry, limit)?;
        let value = map.find(&key).map_err(|error| error.to_string())?.unwrap_or(Value::Null);
        text(&value, &mut shown, limit)?;
        entries.push(format!("{entry}: {shown}"));
    }
    entries.sort();
    out.push('{');
    out.push_str(&entries.join(", "));
    out.push('}');
    Ok(())
}

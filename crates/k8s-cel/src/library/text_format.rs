//! `'%s is %d'.format([a, b])`: clauses, and values as text. The compiler checks constant formats with the same parser.

mod specified;

use crate::error::EvalError;
use crate::eval::{Context, Evaluated, Invocation};
use crate::number::{format_g, parse_float};
use crate::value::{List, Map, Value, type_name};

/// One formatting clause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clause {
    Text,
    Decimal,
    Fixed(usize),
    Scientific(usize),
    Binary,
    Hex { upper: bool },
    Octal,
}

/// Marks that the limit of printed parts is reached; the caller reports the cost limit.
const TOO_LONG: &str = "too long";
const DEFAULT_PRECISION: usize = 6;
/// Longer fractions than this are of no use and would cost memory.
const MAX_PRECISION: usize = 1000;

impl Clause {
    /// The error for a value or static type that the clause cannot print.
    pub(crate) fn wrong_type(self, given: &str) -> String {
        let what = match self {
            Clause::Text => {
                "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, \
                 and timestamps"
            }
            Clause::Decimal => "decimal clause can only be used on integers",
            Clause::Fixed(_) => "fixed-point clause can only be used on doubles",
            Clause::Scientific(_) => "scientific clause can only be used on doubles",
            Clause::Binary => "only integers and bools can be formatted as binary",
            Clause::Hex { .. } => "only integers, byte buffers, and strings can be formatted as hex",
            Clause::Octal => "octal clause can only be used on integers",
        };
        format!("{what}, was given {given}")
    }
}

/// Splits a format into text and clauses; `clause` prints the argument at an index.
pub(crate) fn interpolate(
    format: &str,
    arguments: usize,
    mut clause: impl FnMut(Clause, usize, &mut String) -> Result<(), EvalError>,
) -> Result<(String, usize), EvalError> {
    let mut out = String::with_capacity(format.len());
    let mut rest = format;
    let mut used = 0;
    while let Some(at) = rest.find('%') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('%') {
            out.push('%');
            rest = after;
            continue;
        }
        if rest.is_empty() {
            return Err(EvalError::new("unexpected end of string"));
        }
        if used >= arguments {
            return Err(EvalError::new(format!("index {used} out of range")));
        }
        let (parsed, length) = parse_clause(rest)
            .map_err(|error| EvalError::new(format!("could not parse formatting clause: {error}")))?;
        clause(parsed, used, &mut out)?;
        used += 1;
        rest = &rest[length..];
    }
    out.push_str(rest);
    Ok((out, used))
}

fn parse_clause(text: &str) -> Result<(Clause, usize), String> {
    let (precision, start) = match text.strip_prefix('.') {
        None => (DEFAULT_PRECISION, 0),
        Some(after) => {
            let digits = after.bytes().take_while(u8::is_ascii_digit).count();
            if digits == after.len() {
                return Err("error while parsing precision: could not find end of precision specifier".into());
            }
            let Ok(precision) = after[..digits].parse::<usize>() else {
                let reason = format!("strconv.Atoi: parsing {:?}: invalid syntax", &after[..digits]);
                return Err(format!(
                    "error while parsing precision: error while converting precision to integer: {reason}"
                ));
            };
            (precision.min(MAX_PRECISION), 1 + digits)
        }
    };
    let letter = text[start..].chars().next().unwrap_or('\u{0}');
    let clause = match letter {
        's' => Clause::Text,
        'd' => Clause::Decimal,
        'f' => Clause::Fixed(precision),
        'e' => Clause::Scientific(precision),
        'b' => Clause::Binary,
        'x' => Clause::Hex { upper: false },
        'X' => Clause::Hex { upper: true },
        'o' => Clause::Octal,
        _ => return Err(format!("unrecognized formatting clause \"{letter}\"")),
    };
    Ok((clause, start + 1))
}

pub(crate) fn call<'a>(context: &mut Context<'a>, call: &Invocation<'_, 'a>) -> Evaluated<'a> {
    let (format, list) = (call.text(0)?, call.list(1)?);
    let (text, _) = interpolate(format, list.len(), |clause, at, out| {
        let before = out.len();
        let value = list.get(at)?;
        let mut limit = context.fuel();
        let fail = |error: String| match error.as_str() {
            TOO_LONG => EvalError::cost_limit(),
            _ => EvalError::new(format!("error during formatting: {error}")),
        };
        let done = context.is_language() && specified::print(clause, &value, out, &mut limit).map_err(fail)?;
        if !done {
            print(clause, &value, out, &mut limit).map_err(fail)?;
        }
        let parts = usize::try_from(context.fuel() - limit).unwrap_or(usize::MAX);
        context.burn(1 + parts + (out.len() - before) / 8)
    })?;
    Ok(Value::from(text))
}

fn print(clause: Clause, value: &Value<'_>, out: &mut String, limit: &mut u64) -> Result<(), String> {
    let wrong = || clause.wrong_type(&value.type_name());
    match (clause, value) {
        (Clause::Text, _) => return text(value, out, limit),
        (Clause::Decimal, Value::Int(number)) => out.push_str(&number.to_string()),
        (Clause::Decimal, Value::Uint(number)) => out.push_str(&number.to_string()),
        (Clause::Fixed(precision), _) => out.push_str(&fixed(double(value).ok_or_else(wrong)?, precision)),
        (Clause::Scientific(width), _) => out.push_str(&scientific(double(value).ok_or_else(wrong)?, width)),
        (Clause::Binary, Value::Bool(value)) => out.push(if *value { '1' } else { '0' }),
        (Clause::Binary | Clause::Octal | Clause::Hex { .. }, Value::Int(number)) => {
            if *number < 0 {
                out.push('-');
            }
            radix(clause, number.unsigned_abs(), out);
        }
        (Clause::Binary | Clause::Octal | Clause::Hex { .. }, Value::Uint(number)) => radix(clause, *number, out),
        (Clause::Hex { upper }, Value::String(text)) => hex(text.as_bytes(), upper, out),
        (Clause::Hex { upper }, Value::Bytes(bytes)) => hex(bytes, upper, out),
        _ => return Err(wrong()),
    }
    Ok(())
}

fn radix(clause: Clause, number: u64, out: &mut String) {
    out.push_str(&match clause {
        Clause::Binary => format!("{number:b}"),
        Clause::Octal => format!("{number:o}"),
        Clause::Hex { upper: true } => format!("{number:X}"),
        _ => format!("{number:x}"),
    });
}

fn hex(bytes: &[u8], upper: bool, out: &mut String) {
    for b in bytes {
        out.push_str(&if upper { format!("{b:02X}") } else { format!("{b:02x}") });
    }
}

/// The number of a double, or of the texts that stand for what is no number.
fn double(value: &Value<'_>) -> Option<f64> {
    match value {
        Value::Double(number) => Some(*number),
        Value::String(text) if matches!(&**text, "NaN" | "Infinity" | "-Infinity") => parse_float(text),
        _ => None,
    }
}

fn special(number: f64) -> Option<&'static str> {
    if number.is_nan() {
        Some("NaN")
    } else if number.is_infinite() {
        Some(if number > 0.0 { "∞" } else { "-∞" })
    } else {
        None
    }
}

/// Decimals with thousands separated, as the American locale does.
fn fixed(number: f64, precision: usize) -> String {
    if let Some(special) = special(number) {
        return special.to_owned();
    }
    let text = format!("{number:.precision$}");
    let (sign, digits) = text.strip_prefix('-').map_or(("", text.as_str()), |digits| ("-", digits));
    let (whole, fraction) = digits.split_once('.').map_or((digits, None), |(whole, fraction)| (whole, Some(fraction)));
    let mut out = sign.to_owned();
    for (at, c) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at) % 3 == 0 {
            out.push(',');
        }
        out.push(c);
    }
    if let Some(fraction) = fraction {
        out.push('.');
        out.push_str(fraction);
    }
    out
}

/// `1.234568×10⁰⁶`. The precision is the width here; there are always six decimals.
fn scientific(number: f64, width: usize) -> String {
    let text = match special(number) {
        Some(special) => special.to_owned(),
        None => {
            let text = format!("{number:.6e}");
            let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
            let (sign, digits) = exponent.strip_prefix('-').map_or(("", exponent), |digits| ("⁻", digits));
            let mut out = format!("{mantissa}×10{sign}");
            let superscript = ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'];
            for b in format!("{digits:0>2}").bytes() {
                out.push(superscript[usize::from(b - b'0')]);
            }
            out
        }
    };
    format!("{text:>width$}")
}

fn text(value: &Value<'_>, out: &mut String, limit: &mut u64) -> Result<(), String> {
    match value {
        Value::String(text) => out.push_str(text),
        Value::List(list) => return list_text(list, out, limit),
        Value::Map(map) => return map_text(map, out, limit),
        Value::Null => out.push_str("null"),
        Value::Type(value) => out.push_str(&type_name(value)),
        Value::Double(number) => out.push_str(&format_g(*number)),
        Value::Bytes(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => out.push_str(text),
            Err(_) => {
                let reason = "invalid UTF-8 in bytes, cannot convert to string";
                return Err(format!("could not convert argument \"{reason}\" to string"));
            }
        },
        Value::Optional(_) | Value::Opaque(_) => return Err(Clause::Text.wrong_type(&value.type_name())),
        _ => out.push_str(&value.to_string()),
    }
    Ok(())
}

/// A value inside a list or map, as a literal. `limit` is how many of them there may be.
fn literal(value: &Value<'_>, out: &mut String, limit: &mut u64) -> Result<(), String> {
    *limit = limit.saturating_sub(1);
    if *limit == 0 {
        return Err(TOO_LONG.to_owned());
    }
    match value {
        Value::String(text) => out.push_str(&quoted(text)),
        Value::Bytes(bytes) => out.push_str(&format!("b{}", quoted(&String::from_utf8_lossy(bytes)))),
        Value::Double(number) => match crate::number::special(*number) {
            Some(special) => out.push_str(&format!("{special:?}")),
            None => out.push_str(&format!("{number:.6}")),
        },
        Value::Timestamp(_) => out.push_str(&format!("timestamp(\"{value}\")")),
        Value::Duration(_) => out.push_str(&format!("duration(\"{value}\")")),
        Value::Type(value) => out.push_str(&format!("type({})", type_name(value))),
        Value::Optional(_) | Value::Opaque(_) => {
            return Err(format!("no formatting function for {}", value.type_name()));
        }
        _ => return text(value, out, limit),
    }
    Ok(())
}

/// Go's `%q`.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\x07' => out.push_str("\\a"),
            '\x08' => out.push_str("\\b"),
            '\x0C' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\x0B' => out.push_str("\\v"),
            c if c.is_control() => out.push_str(&format!("\\x{:02x}", c as u32)),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

fn list_text(list: &List<'_>, out: &mut String, limit: &mut u64) -> Result<(), String> {
    out.push('[');
    for (at, item) in list.iter().enumerate() {
        if at > 0 {
            out.push_str(", ");
        }
        literal(&item.map_err(|error| error.to_string())?, out, limit)?;
    }
    out.push(']');
    Ok(())
}

fn map_text(map: &Map<'_>, out: &mut String, limit: &mut u64) -> Result<(), String> {
    let mut entries = Vec::new();
    for key in map.keys() {
        let mut name = String::new();
        match &key {
            Value::String(_) | Value::Bool(_) | Value::Int(_) | Value::Uint(_) => literal(&key, &mut name, limit)?,
            _ => return Err(format!("no formatting function for map key of type {}", key.type_name())),
        }
        let value = map.find(&key).map_err(|error| error.to_string())?.unwrap_or(Value::Null);
        let mut text = String::new();
        literal(&value, &mut text, limit)?;
        entries.push((name, text));
    }
    entries.sort();
    let joined: Vec<String> = entries.into_iter().map(|(key, value)| format!("{key}:{value}")).collect();
    out.push_str(&format!("{{{}}}", joined.join(", ")));
    Ok(())
}

//! Quantities: `100m`, `1.5Gi`, `2e3`.

use std::cmp::Ordering;

use crate::error::EvalError;
use crate::eval::{Evaluated, Invocation};
use crate::function::Function;
use crate::library::Opaque;
use crate::value::Value;

/// A decimal number as Kubernetes keeps it: small ones as mantissa and scale, others in nanos.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quantity {
    mantissa: i128,
    /// Decimal exponent.
    scale: i32,
    /// Kept as 64-bit mantissa, which decides whether it converts to an integer.
    small: bool,
}

const FORMAT: &str = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
/// Digits that fit into 128 bits.
const LARGE_DIGITS: usize = 38;
const NANO: i32 = -9;
const MAX_DIGITS: usize = 18;

pub(crate) fn call<'a>(call: &Invocation<'_, 'a>) -> Evaluated<'a> {
    match call.function {
        Function::IsQuantity => return Ok(Value::Bool(Quantity::parse(call.text(0)?).is_ok())),
        Function::Quantity => {
            let quantity = Quantity::parse(call.text(0)?).map_err(EvalError::new)?;
            return Ok(Value::opaque(Opaque::Quantity(quantity)));
        }
        _ => {}
    }
    let quantity = operand(call, 0)?;
    Ok(match call.function {
        Function::Sign => Value::Int(quantity.mantissa.signum() as i64),
        Function::IsInteger => Value::Bool(quantity.as_integer().is_some()),
        Function::AsInteger => {
            let value = quantity.as_integer();
            Value::Int(value.ok_or_else(|| EvalError::new("cannot convert value to integer"))?)
        }
        Function::AsApproximateFloat => Value::Double(quantity.approximate()),
        Function::CompareTo => Value::Int(quantity.compare(&operand(call, 1)?) as i64),
        Function::IsGreaterThan => Value::Bool(quantity.compare(&operand(call, 1)?).is_gt()),
        Function::IsLessThan => Value::Bool(quantity.compare(&operand(call, 1)?).is_lt()),
        Function::QuantityAdd => Value::opaque(Opaque::Quantity(quantity.add(&operand(call, 1)?))),
        _ => {
            let other = operand(call, 1)?;
            let negated = Quantity { mantissa: -other.mantissa, ..other };
            Value::opaque(Opaque::Quantity(quantity.add(&negated)))
        }
    })
}

fn operand(call: &Invocation<'_, '_>, at: usize) -> Result<Quantity, EvalError> {
    let is_arithmetic = matches!(call.function, Function::QuantityAdd | Function::QuantitySub);
    match call.args.get(at) {
        Some(Value::Opaque(opaque)) => match &**opaque {
            Opaque::Quantity(quantity) => Ok(*quantity),
            _ => Err(call.no_overload()),
        },
        Some(Value::Int(value)) if at > 0 && is_arithmetic => {
            Ok(Quantity { mantissa: i128::from(*value), scale: 0, small: true })
        }
        _ => Err(call.no_overload()),
    }
}

fn power(exponent: u32) -> Option<i128> {
    10i128.checked_pow(exponent)
}

/// Decimal exponent or binary shift of a suffix.
fn suffix(text: &str) -> Option<(bool, i32)> {
    let decimal = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
    if let Some(at) = decimal.iter().position(|known| *known == text) {
        return Some((false, 3 * (i32::try_from(at).ok()? - 3)));
    }
    let binary = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    if let Some(at) = binary.iter().position(|known| *known == text) {
        return Some((true, 10 * (i32::try_from(at).ok()? + 1)));
    }
    let exponent = text.strip_prefix(['e', 'E'])?;
    let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
    let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    plain.then(|| exponent.parse::<i64>().ok()).flatten().map(|value| (false, value.clamp(-1000, 1000) as i32))
}

impl Quantity {
    /// Reads a quantity; the error is Kubernetes' text.
    pub fn parse(text: &str) -> Result<Quantity, &'static str> {
        let (negative, body) = match text.as_bytes().first() {
            None => return Err(FORMAT),
            Some(b'-') => (true, &text[1..]),
            Some(b'+') => (false, &text[1..]),
            Some(_) => (false, text),
        };
        let whole_end = body.find(|c: char| !c.is_ascii_digit()).unwrap_or(body.len());
        let (whole, rest) = body.split_at(whole_end);
        let (fraction, rest) = match rest.strip_prefix('.') {
            Some(after) => after.split_at(after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len())),
            None => ("", rest),
        };
        let letters = rest.find(|c: char| !"eEinumkKMGTP".contains(c)).unwrap_or(rest.len());
        let exponent = rest[letters..].strip_prefix(['+', '-']).unwrap_or(&rest[letters..]);
        if !exponent.bytes().all(|b| b.is_ascii_digit()) {
            return Err(FORMAT);
        }
        let (binary, exponent) = suffix(rest).ok_or("unable to parse quantity's suffix")?;
        // Without digits the fast path reads zero, the slow one nothing.
        if whole.is_empty() && fraction.is_empty() && (exponent < NANO || (binary && exponent > 40)) {
            return Err("unable to parse numeric part of quantity");
        }
        Ok(Self::assemble(whole.trim_start_matches('0'), fraction, negative, binary, exponent))
    }

    fn assemble(whole: &str, fraction: &str, negative: bool, binary: bool, exponent: i32) -> Quantity {
        let sign = if negative { -1 } else { 1 };
        let digits = whole.len().max(1) + fraction.len();
        let decimals = i32::try_from(fraction.len()).unwrap_or(i32::MAX);
        let shown: i128 = format!("0{whole}{fraction}").parse().unwrap_or(i128::MAX);
        if !binary && digits <= MAX_DIGITS && exponent - decimals >= NANO {
            return Quantity { mantissa: sign * shown, scale: exponent - decimals, small: true };
        }
        let precision = 15 - i32::try_from(digits).unwrap_or(i32::MAX) - (exponent as f32 * 3.0 / 10.0) as i32 - 1;
        if binary && fraction.is_empty() && precision >= 0 {
            return Quantity { mantissa: sign * (shown << exponent), scale: 0, small: true };
        }
        // In nanos, rounded up; with a binary suffix no more than 64 bits of whole units.
        let limit = i128::from(i64::MAX) * 1_000_000_000;
        let scaled = if binary { shown.checked_mul(1i128 << exponent) } else { Some(shown) };
        let shift = (if binary { 0 } else { exponent }) - decimals - NANO;
        let nanos = scaled.filter(|value| *value < i128::MAX).and_then(|value| match u32::try_from(shift) {
            Ok(up) => value.checked_mul(power(up)?),
            Err(_) => {
                let divisor = power(shift.unsigned_abs());
                Some(divisor.map_or(i128::from(value > 0), |divisor| {
                    value.div_euclid(divisor) + i128::from(value % divisor > 0)
                }))
            }
        });
        match nanos {
            Some(nanos) if !binary => Quantity { mantissa: sign * nanos, scale: NANO, small: false },
            None if !binary => Self::large(whole, fraction, sign, exponent - decimals),
            _ => Quantity { mantissa: sign * nanos.unwrap_or(limit).min(limit), scale: NANO, small: false },
        }
    }

    /// More nanos than 128 bits hold: the first 38 digits.
    fn large(whole: &str, fraction: &str, sign: i128, scale: i32) -> Quantity {
        let digits = format!("{whole}{fraction}");
        let digits = digits.trim_start_matches('0');
        let kept = &digits[..digits.len().min(LARGE_DIGITS)];
        let dropped = i32::try_from(digits.len() - kept.len()).unwrap_or(i32::MAX);
        Quantity { mantissa: sign * kept.parse().unwrap_or(0), scale: scale.saturating_add(dropped), small: false }
    }

    fn as_integer(&self) -> Option<i64> {
        let up = u32::try_from(self.scale).ok().filter(|_| self.small)?;
        i64::try_from(self.mantissa.checked_mul(power(up)?)?).ok()
    }

    fn approximate(&self) -> f64 {
        let power = || format!("1e{}", self.scale).parse().unwrap_or(f64::INFINITY);
        if self.scale == 0 { self.mantissa as f64 } else { self.mantissa as f64 * power() }
    }

    /// The order of the numbers, whatever their form.
    pub fn compare(&self, other: &Quantity) -> Ordering {
        match aligned(self, other) {
            Some((a, b, _)) => a.cmp(&b),
            None => self.approximate().partial_cmp(&other.approximate()).unwrap_or(Ordering::Equal),
        }
    }

    fn add(&self, other: &Quantity) -> Quantity {
        let Some((a, b, scale)) = aligned(self, other) else {
            return if self.approximate().abs() > other.approximate().abs() { *self } else { *other };
        };
        let mantissa = a.saturating_add(b);
        let small = self.small && other.small && i64::try_from(mantissa).is_ok();
        Quantity { mantissa, scale, small }
    }

    pub(crate) fn text(&self) -> String {
        match self.as_integer() {
            Some(value) => value.to_string(),
            None => format!("{}e{}", self.mantissa, self.scale),
        }
    }
}

/// Both mantissas at the smaller scale.
fn aligned(a: &Quantity, b: &Quantity) -> Option<(i128, i128, i32)> {
    let scale = a.scale.min(b.scale);
    let at = |q: &Quantity| {
        if q.mantissa == 0 { Some(0) } else { q.mantissa.checked_mul(power((q.scale - scale).unsigned_abs())?) }
    };
    Some((at(a)?, at(b)?, scale))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_compare_by_value() {
        let parse = |text| Quantity::parse(text).unwrap();
        for (a, b, order) in [
            ("1Gi", "1024Mi", Ordering::Equal),
            ("1000m", "1", Ordering::Equal),
            ("1.5", "1500m", Ordering::Equal),
            ("1k", "1Ki", Ordering::Less),
            ("-1", "1n", Ordering::Less),
            ("1e3", "1k", Ordering::Equal),
            ("0.1n", "1n", Ordering::Equal),
            ("Ki", "0", Ordering::Equal),
            ("-", ".", Ordering::Equal),
            ("99999999999999999999", "9223372036854775807", Ordering::Greater),
            ("99999999999999999999Ki", "9223372036854775807", Ordering::Equal),
            ("1e40", "1e39", Ordering::Greater),
        ] {
            assert_eq!(parse(a).compare(&parse(b)), order, "{a} {b}");
        }
        for text in ["", "e", "Ei", "1.2.3", "1x", "a", "1Kii", "1e", "--1", "1 "] {
            assert!(Quantity::parse(text).is_err(), "{text}");
        }
    }
}

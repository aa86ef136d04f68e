//! Quantities such as `100m` and `1Gi`: parsing and canonical form as in Kubernetes.
//!
//! Kubernetes keeps text that its fast path considers canonical and rewrites any other: `0.5` as `500m`, `1024Mi` as
//! `1Gi`, the number 2 as `"2"`, but `1.500` unchanged.

use std::cmp::Ordering;

use serde_json::Value;

/// A parsed quantity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Quantity(String);

/// Why a value is not a quantity, with Kubernetes' message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum QuantityError {
    #[error("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")]
    Format,
    #[error("unable to parse numeric part of quantity")]
    Numeric,
    #[error("unable to parse quantity's suffix")]
    Suffix,
}

/// Decimal digits that always fit into 64 bits.
const DIGITS_MAX: usize = 18;
/// The smallest unit is a billionth; less is rounded up to it.
const NANO: i64 = -9;
/// Upper limit of a quantity with a binary unit; larger values are capped.
const BINARY_MAX: u128 = i64::MAX as u128;

#[derive(Clone, Copy, PartialEq, Eq)]
enum QuantityUnit {
    /// `k`, `m`: a power of ten.
    Decimal(i64),
    /// `e3`: a power of ten as exponent.
    Exponent(i64),
    /// `Ki`: a power of two.
    Binary(u32),
}

/// Parts of a text: `-1.50Ki` is negative, `1`, `50`, 2^10.
struct QuantityParts<'a> {
    is_negative: bool,
    whole: &'a str,
    fraction: &'a str,
    unit: QuantityUnit,
}

/// Compares two values as amounts; `None` if one is not a quantity.
pub fn compare_quantities(left: &Value, right: &Value) -> Option<Ordering> {
    let [left, right] = [left, right].map(|value| Quantity::from_value(value).ok()?.to_nano_units());
    Some(left?.cmp(&right?))
}

/// The amount in billionths, capped at 128 bits; `None` if the value is not a quantity.
pub fn quantity_in_billionths(value: &Value) -> Option<i128> {
    Quantity::from_value(value).ok()?.to_nano_units()
}

/// A canonical quantity rounded up to a thousandth; `None` if it has no finer part.
pub fn quantity_in_thousandths(text: &str) -> Option<String> {
    const BILLIONTHS: i128 = 1_000_000;
    if !text.ends_with(['n', 'u']) && !text.contains("e-") {
        return None;
    }
    let amount = Quantity::parse(text).ok()?.to_nano_units()?;
    if amount % BILLIONTHS == 0 {
        return None;
    }
    // Away from zero.
    let rounded = amount / BILLIONTHS + amount.signum();
    let unit = if text.contains("e-") { "e-3" } else { "m" };
    Quantity::parse(&format!("{rounded}{unit}")).ok().map(Quantity::into_string)
}

impl Quantity {
    /// Parses a string or a number; null is zero. Other values are errors.
    pub(crate) fn from_value(value: &Value) -> Result<Self, QuantityError> {
        match value {
            Value::Null => Ok(Self("0".to_owned())),
            Value::String(text) => Self::parse(text.trim()),
            Value::Number(number) => Self::parse(&number.to_string()),
            Value::Bool(_) | Value::Array(_) | Value::Object(_) => Err(QuantityError::Format),
        }
    }

    /// The canonical text.
    pub(crate) fn into_string(self) -> String {
        self.0
    }

    /// The amount in billionths, capped at 128 bits.
    fn to_nano_units(&self) -> Option<i128> {
        let parts = QuantityParts::parse(&self.0).ok()?;
        let digits = format!("{}{}", parts.whole, parts.fraction);
        let amount = match parts.unit {
            QuantityUnit::Binary(exponent) => match scale_binary(&digits, parts.fraction.len(), exponent) {
                Amount::Whole(amount) => amount.saturating_mul(1_000_000_000),
                Amount::Billionths(amount) => amount,
            },
            QuantityUnit::Decimal(exponent) | QuantityUnit::Exponent(exponent) => {
                let decimal = Decimal::round_up_to_nano(&digits, exponent - parts.fraction.len() as i64);
                let power = u32::try_from(decimal.scale - NANO).ok()?;
                let factor = 10u128.checked_pow(power).unwrap_or(u128::MAX);
                match &*decimal.digits {
                    "" => 0,
                    digits => digits.parse::<u128>().unwrap_or(u128::MAX).saturating_mul(factor),
                }
            }
        };
        let amount = i128::try_from(amount).unwrap_or(i128::MAX);
        Some(if parts.is_negative { -amount } else { amount })
    }

    fn parse(text: &str) -> Result<Self, QuantityError> {
        if text.is_empty() {
            return Err(QuantityError::Format);
        }
        let parts = QuantityParts::parse(text)?;
        if parts.is_trivially_canonical() {
            return Ok(Self(text.to_owned()));
        }
        Ok(Self(parts.canonical_text()?.unwrap_or_else(|| text.to_owned())))
    }
}

impl<'a> QuantityParts<'a> {
    fn parse(text: &'a str) -> Result<Self, QuantityError> {
        let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
        let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
        let (whole, rest) = unsigned.split_at(digits(unsigned));
        let (fraction, suffix) = match rest.strip_prefix('.') {
            Some(rest) => rest.split_at(digits(rest)),
            None => ("", rest),
        };
        if !is_valid_suffix(suffix) {
            return Err(QuantityError::Format);
        }
        let unit = QuantityUnit::from_suffix(suffix).ok_or(QuantityError::Suffix)?;
        let whole = whole.trim_start_matches('0');
        Ok(Self { is_negative: text.starts_with('-'), whole, fraction, unit })
    }

    /// Kubernetes keeps the text of what it can hold in 64 bits without a carry, if nothing about it can be shortened.
    fn is_trivially_canonical(&self) -> bool {
        let whole = if self.whole.is_empty() { "0" } else { self.whole };
        let shifted = format!("{whole}{}", self.fraction);
        match self.unit {
            QuantityUnit::Binary(exponent) => {
                let spare = 14 - whole.len() as i64 - i64::from(exponent * 3 / 10);
                let value = shifted.parse::<i64>().unwrap_or_default();
                self.fraction.is_empty() && spare >= 0 && value & 7 != 0
            }
            QuantityUnit::Decimal(exponent) | QuantityUnit::Exponent(exponent) => {
                let scale = exponent - self.fraction.len() as i64;
                shifted.len() <= DIGITS_MAX
                    && scale >= NANO
                    && scale % 3 == 0
                    && !shifted.ends_with("000")
                    && !shifted.starts_with('0')
            }
        }
    }

    /// `None` for what Kubernetes itself has no text for: a decimal beyond all units.
    fn canonical_text(&self) -> Result<Option<String>, QuantityError> {
        let digits = format!("{}{}", self.whole, self.fraction);
        let digits = digits.trim_start_matches('0');
        if digits.is_empty() {
            return Ok(Some("0".to_owned()));
        }
        let scale = -(self.fraction.len() as i64);
        match self.unit {
            QuantityUnit::Decimal(exponent) | QuantityUnit::Exponent(exponent) => {
                let scale = scale.checked_add(exponent).ok_or(QuantityError::Numeric)?;
                Ok(Decimal::round_up_to_nano(digits, scale).to_text(self))
            }
            QuantityUnit::Binary(exponent) => {
                let amount = scale_binary(digits, self.fraction.len(), exponent);
                match amount {
                    Amount::Whole(amount) if amount >= 1024 => Ok(Some(self.with_sign(&format_binary(amount)))),
                    Amount::Whole(amount) => Ok(Decimal::round_up_to_nano(&amount.to_string(), 0).to_text(self)),
                    Amount::Billionths(amount) => {
                        Ok(Decimal::round_up_to_nano(&amount.to_string(), NANO).to_text(self))
                    }
                }
            }
        }
    }

    fn with_sign(&self, text: &str) -> String {
        if self.is_negative { format!("-{text}") } else { text.to_owned() }
    }
}

/// `^[eEinumkKMGTP]*[-+]?[0-9]*$`
fn is_valid_suffix(suffix: &str) -> bool {
    let rest = suffix.trim_start_matches(|letter| "eEinumkKMGTP".contains(letter));
    let rest = rest.strip_prefix(['+', '-']).unwrap_or(rest);
    rest.bytes().all(|byte| byte.is_ascii_digit())
}

const DECIMAL_UNITS: [(i64, &str); 10] =
    [(-9, "n"), (-6, "u"), (-3, "m"), (0, ""), (3, "k"), (6, "M"), (9, "G"), (12, "T"), (15, "P"), (18, "E")];
const BINARY_UNITS: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

impl QuantityUnit {
    fn from_suffix(suffix: &str) -> Option<Self> {
        if let Some((exponent, _)) = DECIMAL_UNITS.iter().find(|(_, unit)| *unit == suffix) {
            return Some(Self::Decimal(*exponent));
        }
        if let Some(power) = BINARY_UNITS.iter().position(|unit| *unit == suffix) {
            return u32::try_from(power).ok().map(|power| Self::Binary(10 * power));
        }
        let exponent = suffix.strip_prefix(['e', 'E'])?.parse::<i64>().ok()?;
        // Kubernetes keeps the lower 32 bits.
        Some(Self::Exponent(i64::from(exponent as i32)))
    }
}

/// Digits without zeros around them, times a power of ten.
struct Decimal {
    digits: String,
    scale: i64,
}

impl Decimal {
    /// What is smaller than a billionth counts as one.
    fn round_up_to_nano(digits: &str, scale: i64) -> Self {
        let (mut digits, mut scale) = (digits.to_owned(), scale);
        if scale < NANO {
            let dropped = usize::try_from(NANO - scale).unwrap_or(usize::MAX).min(digits.len());
            let is_exact = digits.ends_with(&"0".repeat(dropped));
            digits.truncate(digits.len() - dropped);
            scale = NANO;
            if !is_exact {
                increment(&mut digits);
            }
        }
        let length = digits.trim_end_matches('0').len();
        scale += (digits.len() - length) as i64;
        digits.truncate(length);
        Self { digits, scale }
    }

    /// With an exponent that is a multiple of three, as the units are.
    fn to_text(&self, parts: &QuantityParts<'_>) -> Option<String> {
        let zeros = self.scale.rem_euclid(3);
        let exponent = self.scale - zeros;
        let number = format!("{}{}", self.digits, "0".repeat(usize::try_from(zeros).ok()?));
        let suffix = match parts.unit {
            QuantityUnit::Exponent(_) if exponent == 0 => String::new(),
            QuantityUnit::Exponent(_) => format!("e{exponent}"),
            QuantityUnit::Decimal(_) | QuantityUnit::Binary(_) => {
                DECIMAL_UNITS.iter().find(|(known, _)| *known == exponent).map(|(_, unit)| (*unit).to_owned())?
            }
        };
        Some(parts.with_sign(&format!("{number}{suffix}")))
    }
}

/// Adds one to a decimal number; nothing plus one is `1`.
fn increment(digits: &mut String) {
    let kept = digits.trim_end_matches('9').len();
    let zeros = "0".repeat(digits.len() - kept);
    digits.truncate(kept);
    let next = digits.pop().and_then(|digit| digit.to_digit(10)).unwrap_or_default() + 1;
    *digits = format!("{digits}{next}{zeros}");
}

enum Amount {
    Whole(u128),
    Billionths(u128),
}

/// `digits` with a point before the last `places`, times a power of two, rounded up to a billionth and cut off at the
/// limit.
fn scale_binary(digits: &str, places: usize, exponent: u32) -> Amount {
    let limit = Amount::Whole(BINARY_MAX);
    // Further digits do not affect the billionths of the product.
    let places_kept = places.min(DIGITS_MAX);
    let dropped = places - places_kept;
    let kept = &digits[..digits.len().saturating_sub(dropped)];
    let is_exact = digits[kept.len()..].bytes().all(|digit| digit == b'0');
    let Ok(number) = (if kept.is_empty() { "0" } else { kept }).parse::<u128>() else { return limit };
    let Some(number) = number.checked_add(u128::from(!is_exact)) else { return limit };
    let divisor = 10u128.pow(places_kept as u32);
    let Some(product) = number.checked_mul(1 << exponent) else { return limit };
    let (whole, rest) = (product / divisor, product % divisor);
    if whole >= BINARY_MAX {
        return limit;
    }
    if rest == 0 {
        return Amount::Whole(whole);
    }
    Amount::Billionths(whole * 1_000_000_000 + (rest * 1_000_000_000).div_ceil(divisor))
}

fn format_binary(mut amount: u128) -> String {
    let mut power = 0;
    while amount.is_multiple_of(1024) && power + 1 < BINARY_UNITS.len() {
        amount /= 1024;
        power += 1;
    }
    format!("{amount}{}", BINARY_UNITS[power])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finer_parts_than_thousandths_are_rounded_up() {
        for (text, expected) in [
            ("500u", Some("1m")),
            ("1500u", Some("2m")),
            ("1000001u", Some("1001m")),
            ("100n", Some("1m")),
            ("-100n", Some("-1m")),
            ("999500u", Some("1")),
            ("1e-6", Some("1e-3")),
            ("5000u", None),
            ("1m", None),
            ("1Gi", None),
        ] {
            assert_eq!(quantity_in_thousandths(text).as_deref(), expected, "{text}");
        }
    }

    fn shown(text: &str) -> String {
        Quantity::parse(text).map_or_else(|error| format!("{error:?}"), Quantity::into_string)
    }

    #[test]
    fn quantity_parse_returns_canonical_text() {
        for (text, canonical) in [
            ("0", "0"),
            ("0.0", "0"),
            ("0m", "0"),
            ("0Ki", "0"),
            ("1", "1"),
            ("100m", "100m"),
            ("1000m", "1"),
            ("1500m", "1500m"),
            ("0.5", "500m"),
            (".5", "500m"),
            ("1.5", "1500m"),
            ("1.500", "1.500"),
            ("1.", "1."),
            ("+5", "+5"),
            ("-5", "-5"),
            ("-0.25", "-250m"),
            ("007", "007"),
            ("1000", "1k"),
            ("1000000", "1M"),
            ("12000k", "12M"),
            ("1024", "1024"),
            ("1Ki", "1Ki"),
            ("8Ki", "8Ki"),
            ("1024Mi", "1Gi"),
            ("1000Mi", "1000Mi"),
            ("1536Mi", "1536Mi"),
            ("0.5Gi", "512Mi"),
            ("1.5Gi", "1536Mi"),
            ("0.5Ki", "512"),
            ("0.1Ki", "102400m"),
            ("340282366920938463463.3746074317682114551Ki", "9223372036854775807"),
            ("0.0001Ki", "102400u"),
            ("1.0001Ki", "1024102400u"),
            ("8Ei", "9223372036854775807"),
            ("-8Ei", "-9223372036854775807"),
            ("1e3", "1e3"),
            ("1e4", "10e3"),
            ("10e-3", "10e-3"),
            ("100e-2", "1"),
            ("1E", "1E"),
            ("1E3", "1E3"),
            ("1n", "1n"),
            ("0.1n", "1n"),
            ("1.0000000001", "1000000001n"),
            ("9999999999999999999", "9999999999999999999"),
            ("10000000000000000000", "10E"),
        ] {
            assert_eq!(shown(text), canonical, "{text}");
        }
    }

    #[test]
    fn compare_quantities_compares_amounts() {
        use Ordering::{Equal, Greater, Less};
        for (left, right, expected) in [
            ("1", "1000m", Equal),
            ("1Gi", "1024Mi", Equal),
            ("1Gi", "1G", Greater),
            ("0.5", "501m", Less),
            ("-1", "0", Less),
            ("-1", "-2", Greater),
            ("1n", "0", Greater),
            ("1e3", "1k", Equal),
            ("0", "0Ki", Equal),
            ("8Ei", "7E", Greater),
        ] {
            assert_eq!(compare_quantities(&left.into(), &right.into()), Some(expected), "{left} and {right}");
        }
        assert_eq!(compare_quantities(&"x".into(), &"1".into()), None);
        assert_eq!(compare_quantities(&Value::from(2), &"2".into()), Some(Equal));
    }

    #[test]
    fn quantity_parse_errors_match_kubernetes() {
        for text in ["", "abc", "1 Gi", "1G i", "1..2", "1Gi!", "1x", "ten", "1GB", "1gi"] {
            assert_eq!(shown(text), "Format", "{text}");
        }
        for text in ["1ki", "1KiKi", "1e", "1e+", "1mm", "Ki1", "--1"] {
            assert_eq!(shown(text), "Suffix", "{text}");
        }
    }

    #[test]
    fn quantity_from_value_accepts_only_text_and_numbers() {
        let of = |value: Value| Quantity::from_value(&value).map(Quantity::into_string);
        assert_eq!(of(2.into()), Ok("2".to_owned()));
        assert_eq!(of(0.5.into()), Ok("500m".to_owned()));
        assert_eq!(of(" 1Gi ".into()), Ok("1Gi".to_owned()));
        assert_eq!(of(true.into()), Err(QuantityError::Format));
        assert_eq!(of(serde_json::json!({})), Err(QuantityError::Format));
    }
}

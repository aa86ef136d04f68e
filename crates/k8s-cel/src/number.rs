//! Numbers: conversions with range checks, Go's printing of floats, comparison across kinds.

use std::cmp::Ordering;

/// From this decimal exponent on `%g` writes one.
const MAX_PLAIN_EXPONENT: i32 = 6;

/// Go's `%g` with the shortest digits that round-trip.
pub(crate) fn format_g(value: f64) -> String {
    if let Some(special) = special(value) {
        return special.to_owned();
    }
    if value == 0.0 {
        return if value.is_sign_negative() { "-0" } else { "0" }.to_owned();
    }
    let (digits, exponent) = shortest(value);
    if (-4..MAX_PLAIN_EXPONENT).contains(&exponent) {
        return format!("{value}");
    }
    let sign = if value < 0.0 { "-" } else { "" };
    let (first, rest) = digits.split_at(1);
    let point = if rest.is_empty() { "" } else { "." };
    let exponent_sign = if exponent < 0 { '-' } else { '+' };
    format!("{sign}{first}{point}{rest}e{exponent_sign}{:02}", exponent.abs())
}

/// `NaN` and infinities as Go prints them.
pub(crate) fn special(value: f64) -> Option<&'static str> {
    if value.is_nan() {
        Some("NaN")
    } else if value == f64::INFINITY {
        Some("+Inf")
    } else if value == f64::NEG_INFINITY {
        Some("-Inf")
    } else {
        None
    }
}

/// The shortest digits and the decimal exponent of the first.
fn shortest(value: f64) -> (String, i32) {
    let text = format!("{:e}", value.abs());
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    (mantissa.replace('.', ""), exponent.parse().unwrap_or(0))
}

/// Reads a float as Go's `strconv.ParseFloat` does, without hexadecimal forms.
pub(crate) fn parse_float(text: &str) -> Option<f64> {
    let body = text.strip_prefix(['+', '-']).unwrap_or(text);
    let negative = text.starts_with('-');
    let lower = body.to_ascii_lowercase();
    let value = match lower.as_str() {
        "inf" | "infinity" => f64::INFINITY,
        "nan" if body == text => return Some(f64::NAN),
        _ if body.is_empty()
            || !body.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'e' | b'E' | b'+' | b'-')) =>
        {
            return None;
        }
        _ => {
            let value: f64 = body.parse().ok()?;
            if value.is_infinite() {
                return None;
            }
            value
        }
    };
    Some(if negative { -value } else { value })
}

/// Reads a decimal integer as Go's `strconv.ParseInt` does.
pub(crate) fn parse_int(text: &str) -> Option<i64> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    (!digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit())).then(|| text.parse().ok()).flatten()
}

pub(crate) fn parse_uint(text: &str) -> Option<u64> {
    (!text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())).then(|| text.parse().ok()).flatten()
}

pub(crate) fn double_to_int(value: f64) -> Option<i64> {
    let in_range = value > -9_223_372_036_854_775_808.0 && value < 9_223_372_036_854_775_808.0;
    in_range.then_some(value as i64)
}

pub(crate) fn double_to_uint(value: f64) -> Option<u64> {
    (0.0..18_446_744_073_709_551_616.0).contains(&value).then_some(value as u64)
}

pub(crate) fn compare_double_int(a: f64, b: i64) -> Ordering {
    if a < i64::MIN as f64 {
        return Ordering::Less;
    }
    if a > i64::MAX as f64 {
        return Ordering::Greater;
    }
    a.partial_cmp(&(b as f64)).unwrap_or(Ordering::Equal)
}

pub(crate) fn compare_double_uint(a: f64, b: u64) -> Ordering {
    if a < 0.0 {
        return Ordering::Less;
    }
    if a > u64::MAX as f64 {
        return Ordering::Greater;
    }
    a.partial_cmp(&(b as f64)).unwrap_or(Ordering::Equal)
}

pub(crate) fn compare_int_uint(a: i64, b: u64) -> Ordering {
    i128::from(a).cmp(&i128::from(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_print_as_in_go() {
        for (value, text) in [
            (0.0, "0"),
            (1.0, "1"),
            (1.5, "1.5"),
            (-2.25, "-2.25"),
            (100_000.0, "100000"),
            (1_000_000.0, "1e+06"),
            (123_456_789.0, "1.23456789e+08"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (1e100, "1e+100"),
            (f64::NAN, "NaN"),
            (f64::NEG_INFINITY, "-Inf"),
        ] {
            assert_eq!(format_g(value), text);
        }
    }

    #[test]
    fn numbers_are_read_strictly() {
        assert_eq!(parse_int("+5"), Some(5));
        assert_eq!(parse_int(" 5"), None);
        assert_eq!(parse_uint("-5"), None);
        assert_eq!(parse_float("1e3"), Some(1000.0));
        assert_eq!(parse_float("1e400"), None);
        assert_eq!(parse_float("-inf"), Some(f64::NEG_INFINITY));
        assert_eq!(double_to_int(9.3e18), None);
        assert_eq!(double_to_uint(-1.0), None);
    }
}

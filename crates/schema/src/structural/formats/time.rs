//! Dates, times and durations.

use super::{matches, pattern};

/// `2006-01-02`.
pub(super) fn is_date(text: &str) -> bool {
    let bytes = text.as_bytes();
    let number = |range: std::ops::Range<usize>| {
        let digits = bytes.get(range)?;
        digits.iter().all(u8::is_ascii_digit).then(|| digits.iter().fold(0, |n, b| n * 10 + u32::from(b - b'0')))
    };
    let (Some(year), Some(month), Some(day)) = (number(0..4), number(5..7), number(8..10)) else { return false };
    let is_leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let days = match month {
        2 if is_leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return false,
    };
    bytes.len() == 10 && bytes[4] == b'-' && bytes[7] == b'-' && (1..=days).contains(&day)
}

/// A date and a time with a zone, with a `t` between them; what follows a second `t` does not count.
pub(super) fn is_date_time(text: &str) -> bool {
    let text = text.to_lowercase();
    let mut parts = text.split('t');
    let (Some(date), Some(time)) = (parts.next(), parts.next()) else { return false };
    let form = pattern!("^([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|([+-][0-9]{2}:[0-9]{2}))$");
    text.len() >= 4
        && is_date(date)
        && matches(form, time)
        && time.get(0..2).is_some_and(|hour| hour <= "23")
        && time.get(3..5).is_some_and(|minute| minute <= "59")
        && time.get(6..8).is_some_and(|second| second <= "59")
}

/// A duration of Go, or a text that contains a count with a unit.
pub(super) fn is_duration(text: &str) -> bool {
    is_go_duration(text) || contains_counted_unit(text)
}

/// Names of units; a unit may also begin with the last name of a line.
const UNITS: [&[&str]; 8] = [
    &["ns", "nano"],
    &["us", "µs", "micro"],
    &["ms", "milli"],
    &["s", "sec"],
    &["m", "min"],
    &["h", "hr", "hour"],
    &["d", "day"],
    &["w", "wk", "week"],
];

fn contains_counted_unit(text: &str) -> bool {
    let Some(pattern) = pattern!(r"(\d+)\s*([A-Za-zµ]+)") else { return false };
    let mut found = false;
    for captures in pattern.captures_iter(text) {
        if captures[1].parse::<i64>().is_err() {
            return false;
        }
        let unit = captures[2].to_lowercase();
        let is_unit =
            |names: &&[&str]| names.contains(&unit.as_str()) || names.last().is_some_and(|last| unit.starts_with(last));
        found |= UNITS.iter().any(|names| is_unit(names));
    }
    found
}

/// Go's syntax: signed decimal numbers with units, at most some 292 years in all.
fn is_go_duration(text: &str) -> bool {
    let mut rest = text.strip_prefix(['+', '-']).unwrap_or(text);
    if rest == "0" {
        return true;
    }
    if rest.is_empty() {
        return false;
    }
    let max = 1_u64 << 63;
    let mut total = 0_u64;
    while !rest.is_empty() {
        let whole_length = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (whole, after) = rest.split_at(whole_length);
        let (fraction, after) = match after.strip_prefix('.') {
            Some(after) => after.split_at(after.bytes().take_while(u8::is_ascii_digit).count()),
            None => ("", after),
        };
        let unit_length = after.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(after.len());
        let (unit, after) = after.split_at(unit_length);
        let nanoseconds: u64 = match unit {
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return false,
        };
        if whole.is_empty() && fraction.is_empty() {
            return false;
        }
        let count = if whole.is_empty() { Ok(0) } else { whole.parse::<u64>() };
        let Some(product) = count.ok().and_then(|count| count.checked_mul(nanoseconds)) else { return false };
        let part = format!("0.{fraction}0").parse::<f64>().unwrap_or_default();
        #[allow(clippy::cast_possible_truncation, clippy::cast_precision_loss, clippy::cast_sign_loss)]
        let product = product.saturating_add((part * nanoseconds as f64) as u64);
        total = total.saturating_add(product);
        if product > max || total > max {
            return false;
        }
        rest = after;
    }
    total < max || text.starts_with('-')
}

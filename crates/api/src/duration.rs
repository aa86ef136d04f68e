//! Go durations: `1m0s`, `1.5h`, `300ms`.

use std::time::Duration;

/// A malformed duration; displays as Go's error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("time: invalid duration {0:?}")]
pub struct DurationError(Box<str>);

/// Units in seconds. `ms` precedes `m`, because the first matching prefix wins.
const UNITS: [(&str, f64); 8] =
    [("ns", 1e-9), ("us", 1e-6), ("µs", 1e-6), ("μs", 1e-6), ("ms", 1e-3), ("s", 1.0), ("m", 60.0), ("h", 3600.0)];

/// Go counts nanoseconds in an int64: about 292 years.
const GO_DURATION_MAX: Duration = Duration::from_nanos(i64::MAX as u64);

/// Parses a non-negative duration: `0`, or numbers each followed by a unit.
pub fn parse(text: &str) -> Result<Duration, DurationError> {
    let invalid = || DurationError(text.into());
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    if rest.is_empty() {
        return Err(invalid());
    }
    let mut seconds = 0.0;
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b'.').count();
        let (number, after) = rest.split_at(digits);
        let number: f64 = number.parse().map_err(|_| invalid())?;
        let (unit, factor) = UNITS.iter().find(|(unit, _)| after.starts_with(unit)).ok_or_else(invalid)?;
        rest = &after[unit.len()..];
        seconds += number * factor;
    }
    Duration::try_from_secs_f64(seconds).ok().filter(|duration| *duration <= GO_DURATION_MAX).ok_or_else(invalid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse_accepts_go_durations() {
        for (text, millis) in [
            ("0", 0),
            ("1m0s", 60_000),
            ("1.5h", 5_400_000),
            ("300ms", 300),
            ("2h45m", 9_900_000),
            ("2562047h", 9_223_369_200_000),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn parse_rejects_malformed_durations() {
        for text in ["", "5", "-1s", "1x", "s", "1s garbage", "99999999999999999999h", "2562048h", "."] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}

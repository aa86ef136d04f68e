//! Go durations: `1m0s`, `1.5h`, `300ms`.

use std::time::Duration;

/// A malformed duration; displays as Go's error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    /// No duration, or one that Go cannot represent.
    #[error("time: invalid duration {0:?}")]
    Invalid(Box<str>),
    /// A number without a unit.
    #[error("time: missing unit in duration {0:?}")]
    MissingUnit(Box<str>),
    /// A number with another unit.
    #[error("time: unknown unit {unit:?} in duration {text:?}")]
    UnknownUnit {
        /// What follows the number.
        unit: Box<str>,
        /// The whole text.
        text: Box<str>,
    },
}

/// Units in seconds.
const UNITS: [(&str, f64); 8] =
    [("ns", 1e-9), ("us", 1e-6), ("µs", 1e-6), ("μs", 1e-6), ("ms", 1e-3), ("s", 1.0), ("m", 60.0), ("h", 3600.0)];

/// Go counts nanoseconds in an int64: about 292 years.
const GO_DURATION_MAX: Duration = Duration::from_nanos(i64::MAX as u64);

/// Parses a non-negative duration: `0`, or numbers each followed by a unit.
pub fn parse(text: &str) -> Result<Duration, DurationError> {
    let magnitude = parse_magnitude(text)?;
    match text.starts_with('-') && !magnitude.is_zero() {
        true => Err(DurationError::Invalid(text.into())),
        false => Ok(magnitude),
    }
}

/// Parses a duration without its sign.
pub fn parse_magnitude(text: &str) -> Result<Duration, DurationError> {
    let invalid = || DurationError::Invalid(text.into());
    let mut rest = text.strip_prefix(['+', '-']).unwrap_or(text);
    if rest == "0" {
        return Ok(Duration::ZERO);
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    let mut seconds = 0.0;
    while !rest.is_empty() {
        let is_of_number = |c: char| c.is_ascii_digit() || c == '.';
        let integer = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let fraction = rest[integer..]
            .strip_prefix('.')
            .map_or(0, |fraction| 1 + fraction.find(|c: char| !c.is_ascii_digit()).unwrap_or(fraction.len()));
        let (number, after) = rest.split_at(integer + fraction);
        let number: f64 = number.parse().map_err(|_| invalid())?;
        let (unit, next) = after.split_at(after.find(is_of_number).unwrap_or(after.len()));
        if unit.is_empty() {
            return Err(DurationError::MissingUnit(text.into()));
        }
        let unknown = || DurationError::UnknownUnit { unit: unit.into(), text: text.into() };
        let (_, factor) = UNITS.iter().find(|(known, _)| *known == unit).ok_or_else(unknown)?;
        rest = next;
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
            ("+0", 0),
            ("-0s", 0),
            (".5s1.s", 1_500),
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
    fn errors_are_those_of_go() {
        for (text, expected) in [
            ("", r#"time: invalid duration """#),
            ("5", r#"time: missing unit in duration "5""#),
            ("1.2.3s", r#"time: missing unit in duration "1.2.3s""#),
            ("-1s", r#"time: invalid duration "-1s""#),
            ("1x", r#"time: unknown unit "x" in duration "1x""#),
            ("s", r#"time: invalid duration "s""#),
            ("1s garbage", r#"time: unknown unit "s garbage" in duration "1s garbage""#),
            ("99999999999999999999h", r#"time: invalid duration "99999999999999999999h""#),
            ("2562048h", r#"time: invalid duration "2562048h""#),
            (".", r#"time: invalid duration ".""#),
        ] {
            assert_eq!(parse(text).map_err(|error| error.to_string()), Err(expected.to_owned()), "{text}");
        }
    }

    #[test]
    fn magnitude_has_no_sign() {
        assert_eq!(parse_magnitude("-1h"), Ok(Duration::from_secs(3600)));
    }
}

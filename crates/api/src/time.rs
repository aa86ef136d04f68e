//! The API's timestamps: [`Time`] in seconds, [`MicroTime`] in microseconds, both RFC 3339 in UTC.
//!
//! This module never reads the clock. Both types round down, as Go's formatting does.

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;
use serde::de::{self, Deserialize, Deserializer};
use serde::{Serialize, Serializer};

/// A time with a precision of seconds, such as `creationTimestamp`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(Timestamp);

/// A time with a precision of microseconds, such as a lease's `renewTime`.
///
/// Accepts up to nine fraction digits, while Kubernetes requires six; writes six.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MicroTime(Timestamp);

/// Not an RFC 3339 date and time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a time such as \"2006-01-02T15:04:05Z\"")]
pub struct TimeError {
    text: Box<str>,
}

impl Time {
    /// Returns the value for arithmetic.
    pub fn timestamp(self) -> Timestamp {
        self.0
    }
}

impl MicroTime {
    /// Returns the value for arithmetic.
    pub fn timestamp(self) -> Timestamp {
        self.0
    }
}

impl From<Timestamp> for Time {
    fn from(instant: Timestamp) -> Self {
        Self(round_down(instant, 1_000_000_000))
    }
}

impl From<Timestamp> for MicroTime {
    fn from(instant: Timestamp) -> Self {
        Self(round_down(instant, 1000))
    }
}

impl FromStr for Time {
    type Err = TimeError;

    fn from_str(text: &str) -> Result<Self, TimeError> {
        parse(text).map(Self::from)
    }
}

impl FromStr for MicroTime {
    type Err = TimeError;

    fn from_str(text: &str) -> Result<Self, TimeError> {
        parse(text).map(Self::from)
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.0}", self.0)
    }
}

impl fmt::Display for MicroTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.6}", self.0)
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Serialize for MicroTime {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

impl<'de> Deserialize<'de> for MicroTime {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

fn round_down(instant: Timestamp, nanoseconds: i128) -> Timestamp {
    let rounded = instant.as_nanosecond().div_euclid(nanoseconds) * nanoseconds;
    // The minimum cannot be rounded down and stays unchanged.
    Timestamp::from_nanosecond(rounded).unwrap_or(instant)
}

/// Parses RFC 3339. jiff accepts more formats (weeks, zone names, blanks), so the shape is checked first.
fn parse(text: &str) -> Result<Timestamp, TimeError> {
    let error = || TimeError { text: text.chars().take(64).collect() };
    if !is_rfc3339(text.as_bytes()) {
        return Err(error());
    }
    text.parse().map_err(|_| error())
}

fn is_rfc3339(text: &[u8]) -> bool {
    let Some((date_and_time, rest)) = text.split_at_checked(19) else { return false };
    let rest = match rest.strip_prefix(b".") {
        None => rest,
        Some(fraction) => match fraction.iter().take_while(|byte| byte.is_ascii_digit()).count() {
            0 => return false,
            digits => &fraction[digits..],
        },
    };
    // RFC 3339 allows a 60th second, Go does not.
    let is_leap_second = date_and_time.ends_with(b"60");
    has_shape(date_and_time, b"0000-00-00T00:00:00")
        && !is_leap_second
        && (rest == b"Z" || has_shape(rest, b"+00:00") || has_shape(rest, b"-00:00"))
}

/// Compares with a pattern in which `0` matches any digit.
fn has_shape(text: &[u8], shape: &[u8]) -> bool {
    text.len() == shape.len()
        && text
            .iter()
            .zip(shape)
            .all(|(byte, shape)| if *shape == b'0' { byte.is_ascii_digit() } else { byte == shape })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn times_parse_any_offset_and_print_utc() {
        for (text, seconds, micros) in [
            ("2006-01-02T15:04:05Z", "2006-01-02T15:04:05Z", "2006-01-02T15:04:05.000000Z"),
            ("2006-01-02T15:04:05.999999999Z", "2006-01-02T15:04:05Z", "2006-01-02T15:04:05.999999Z"),
            ("2006-01-02T15:04:05.5+02:00", "2006-01-02T13:04:05Z", "2006-01-02T13:04:05.500000Z"),
            ("1969-12-31T23:59:59.5Z", "1969-12-31T23:59:59Z", "1969-12-31T23:59:59.500000Z"),
        ] {
            assert_eq!(text.parse::<Time>().unwrap().to_string(), seconds);
            assert_eq!(text.parse::<MicroTime>().unwrap().to_string(), micros);
        }
    }

    #[test]
    fn parse_rejects_non_rfc_3339_times() {
        for text in [
            "",
            "2006-01-02",
            "2006-01-02 15:04:05Z",
            "2006-01-02T15:04:05",
            "2006-01-02T15:04:60Z",
            "2006-13-02T15:04:05Z",
            "2006-02-30T15:04:05Z",
            "2006-01-02T15:04:05.Z",
            "2006-01-02T15:04:05Z[UTC]",
            "+002006-01-02T15:04:05Z",
            "2006-01-02T15:04:05+0200",
        ] {
            assert!(text.parse::<Time>().is_err(), "{text}");
        }
        assert_eq!(
            "soon".parse::<MicroTime>().unwrap_err().to_string(),
            r#""soon" is not a time such as "2006-01-02T15:04:05Z""#
        );
    }

    proptest! {
        #[test]
        fn times_round_trip_through_display(nanoseconds in -62_000_000_000_000_000_000_i128..253_000_000_000_000_000_000) {
            let instant = Timestamp::from_nanosecond(nanoseconds).unwrap();
            let (seconds, micros) = (Time::from(instant), MicroTime::from(instant));
            prop_assert_eq!(seconds.to_string().parse::<Time>().unwrap(), seconds);
            prop_assert_eq!(micros.to_string().parse::<MicroTime>().unwrap(), micros);
            prop_assert!(seconds.timestamp() <= micros.timestamp() && micros.timestamp() <= instant);
        }

        #[test]
        fn time_parsing_never_panics(text in any::<String>(), near in "[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(Z|\\.[0-9]{1,12}Z|[+-][0-9]{2}:[0-9]{2})") {
            let _ = (text.parse::<Time>(), near.parse::<MicroTime>());
        }
    }
}

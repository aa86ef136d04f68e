//! Timestamps as parsed by Go with a layout, with its error messages.

/// Go's layout of `metav1.Time`; a fraction of a second may follow the seconds all the same.
pub(super) const SECONDS: &str = "2006-01-02T15:04:05Z07:00";
/// Go's layout of `metav1.MicroTime`: six digits of a fraction, no more and no less.
pub(super) const MICROSECONDS: &str = "2006-01-02T15:04:05.000000Z07:00";

/// The time with all digits, which the parsers of Rust want; the error is Go's.
pub fn canonical_time(text: &str) -> Result<String, String> {
    check(text, SECONDS)?;
    Ok(pad_hour(text))
}

/// `2026-01-02T3:04:05Z` → `2026-01-02T03:04:05Z`; the text must have passed [`check`].
pub(crate) fn pad_hour(text: &str) -> String {
    match text.split_once('T') {
        Some((day, time)) if time.as_bytes().get(1) == Some(&b':') => format!("{day}T0{time}"),
        _ => text.to_owned(),
    }
}

/// Rejects a text that is not a time in this layout.
pub(super) fn check(text: &str, layout: &'static str) -> Result<(), String> {
    let fault = match (TimeReader { rest: text }).read(layout) {
        Ok(()) => return Ok(()),
        Err(fault) => fault,
    };
    Err(match fault {
        TimeParseError::Mismatch { rest, element } => {
            format!("parsing time {text:?} as {layout:?}: cannot parse {rest:?} as {element:?}")
        }
        TimeParseError::Range(part) => format!("parsing time {text:?}: {part} out of range"),
        TimeParseError::Extra(rest) => format!("parsing time {text:?}: extra text: {rest:?}"),
    })
}

enum TimeParseError<'a> {
    /// What is left of the text does not begin with this element of the layout.
    Mismatch {
        rest: &'a str,
        element: &'static str,
    },
    Range(&'static str),
    Extra(&'a str),
}

struct TimeReader<'a> {
    rest: &'a str,
}

impl<'a> TimeReader<'a> {
    fn read(mut self, layout: &'static str) -> Result<(), TimeParseError<'a>> {
        let year = self.read_number(4, "2006")?;
        self.read_literal("-")?;
        let month = self.read_number(2, "01")?;
        expect_range(month, 1, 12, "month")?;
        self.read_literal("-")?;
        let day = self.read_number(2, "02")?;
        self.read_literal("T")?;
        let hour = self.read_hour()?;
        expect_range(hour, 0, 23, "hour")?;
        self.read_literal(":")?;
        let minute = self.read_number(2, "04")?;
        expect_range(minute, 0, 59, "minute")?;
        self.read_literal(":")?;
        let second = self.read_number(2, "05")?;
        expect_range(second, 0, 59, "second")?;
        self.read_fraction(layout)?;
        self.read_zone()?;
        if !self.rest.is_empty() {
            return Err(TimeParseError::Extra(self.rest));
        }
        expect_range(day, 1, days_in(year, month), "day")
    }

    fn read_literal(&mut self, literal: &'static str) -> Result<(), TimeParseError<'a>> {
        match self.rest.strip_prefix(literal) {
            Some(rest) => self.rest = rest,
            None => return Err(TimeParseError::Mismatch { rest: self.rest, element: literal }),
        }
        Ok(())
    }

    fn read_number(&mut self, digits: usize, element: &'static str) -> Result<u32, TimeParseError<'a>> {
        let mismatch = TimeParseError::Mismatch { rest: self.rest, element };
        let Some((number, rest)) = self.rest.split_at_checked(digits) else { return Err(mismatch) };
        if !number.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(mismatch);
        }
        self.rest = rest;
        number.parse().map_err(|_| mismatch)
    }

    /// One digit is enough for Go.
    fn read_hour(&mut self) -> Result<u32, TimeParseError<'a>> {
        let digits = self.rest.bytes().take(2).take_while(u8::is_ascii_digit).count();
        self.read_number(digits.max(1), "15")
    }

    fn read_fraction(&mut self, layout: &'static str) -> Result<(), TimeParseError<'a>> {
        let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
        let found = self.rest.strip_prefix(['.', ',']).map(|rest| (digits(rest), rest));
        match (layout == MICROSECONDS, found) {
            (false, Some((length, rest))) if length > 0 => self.rest = &rest[length..],
            (false, _) => {}
            (true, Some((length, rest))) if length >= 6 => self.rest = &rest[6..],
            (true, _) => return Err(TimeParseError::Mismatch { rest: self.rest, element: ".000000" }),
        }
        Ok(())
    }

    fn read_zone(&mut self) -> Result<(), TimeParseError<'a>> {
        if let Some(rest) = self.rest.strip_prefix('Z') {
            self.rest = rest;
            return Ok(());
        }
        let mismatch = |rest| TimeParseError::Mismatch { rest, element: "Z07:00" };
        let whole = self.rest;
        let Some(offset) = whole.strip_prefix(['+', '-']) else { return Err(mismatch(whole)) };
        let mut inner = TimeReader { rest: offset };
        let (hours, minutes) = match (inner.read_number(2, ""), inner.read_literal(":"), inner.read_number(2, "")) {
            (Ok(hours), Ok(()), Ok(minutes)) => (hours, minutes),
            _ => return Err(mismatch(whole)),
        };
        self.rest = inner.rest;
        expect_range(hours, 0, 24, "time zone offset hour")?;
        expect_range(minutes, 0, 60, "time zone offset minute")
    }
}

fn expect_range<'a>(number: u32, least: u32, greatest: u32, part: &'static str) -> Result<(), TimeParseError<'a>> {
    if (least..=greatest).contains(&number) { Ok(()) } else { Err(TimeParseError::Range(part)) }
}

fn days_in(year: u32, month: u32) -> u32 {
    let is_leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    match month {
        2 if is_leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    #[track_caller]
    fn check_seconds(text: &str, expected: &Expect) {
        expected.assert_eq(&check(text, SECONDS).err().unwrap_or_default());
    }

    #[test]
    fn check_accepts_rfc_3339_times() {
        for text in [
            "2024-02-29T23:59:59Z",
            "2024-01-01T00:00:00.123456789+02:00",
            "0000-01-01T00:00:00-23:59",
            "2024-01-01T7:00:00Z",
        ] {
            check_seconds(text, &expect![""]);
        }
        assert_eq!(check("2024-01-01T00:00:00.123456Z", MICROSECONDS), Ok(()));
    }

    #[test]
    fn canonical_time_has_two_digits_of_the_hour() {
        assert_eq!(canonical_time("2010-10-10T0:00:00Z").as_deref(), Ok("2010-10-10T00:00:00Z"));
        assert_eq!(canonical_time("2010-10-10T10:00:00Z").as_deref(), Ok("2010-10-10T10:00:00Z"));
    }

    #[test]
    fn time_errors_match_go() {
        check_seconds("", &expect![[r#"parsing time "" as "2006-01-02T15:04:05Z07:00": cannot parse "" as "2006""#]]);
        check_seconds(
            "yesterday",
            &expect![[
                r#"parsing time "yesterday" as "2006-01-02T15:04:05Z07:00": cannot parse "yesterday" as "2006""#
            ]],
        );
        check_seconds(
            "2024-01-01",
            &expect![[r#"parsing time "2024-01-01" as "2006-01-02T15:04:05Z07:00": cannot parse "" as "T""#]],
        );
        check_seconds("2024-13-01T00:00:00Z", &expect![[r#"parsing time "2024-13-01T00:00:00Z": month out of range"#]]);
        check_seconds("2023-02-29T00:00:00Z", &expect![[r#"parsing time "2023-02-29T00:00:00Z": day out of range"#]]);
        check_seconds(
            "2024-01-01T00:00:00",
            &expect![[
                r#"parsing time "2024-01-01T00:00:00" as "2006-01-02T15:04:05Z07:00": cannot parse "" as "Z07:00""#
            ]],
        );
        check_seconds("2024-01-01T00:00:00Z!", &expect![[r#"parsing time "2024-01-01T00:00:00Z!": extra text: "!""#]]);
    }

    #[test]
    fn micro_time_requires_six_fraction_digits() {
        let shown = |text| check(text, MICROSECONDS).err().unwrap_or_default();
        expect![[
            r#"parsing time "2024-01-01T00:00:00Z" as "2006-01-02T15:04:05.000000Z07:00": cannot parse "Z" as ".000000""#
        ]]
        .assert_eq(&shown("2024-01-01T00:00:00Z"));
        expect![[r#"parsing time "2024-01-01T00:00:00.1234567Z" as "2006-01-02T15:04:05.000000Z07:00": cannot parse "7Z" as "Z07:00""#]]
        .assert_eq(&shown("2024-01-01T00:00:00.1234567Z"));
    }
}

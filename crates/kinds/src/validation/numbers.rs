//! Numbers, percentages, durations and ports.

use serde_json::Value;

use super::Field;

pub(crate) const NOT_NEGATIVE: &str = "must be greater than or equal to 0";
pub(crate) const POSITIVE: &str = "must be greater than 0";
const PERCENT: &str = "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex \
     used for validation is '[0-9]+%')";
const FILE_MODE: &str = "must be a number between 0 and 0777 (octal), both inclusive";

impl Field<'_> {
    pub(crate) fn not_negative(self) {
        if self.integer_or_zero() < 0 {
            self.invalid(NOT_NEGATIVE);
        }
    }

    /// Greater than 0; an absent number counts as 0.
    pub(crate) fn positive(self) {
        if self.integer_or_zero() <= 0 {
            self.invalid_as(self.integer_or_zero(), POSITIVE);
        }
    }

    pub(crate) fn positive_if_present(self) {
        if self.is_present() {
            self.positive();
        }
    }

    /// Between two bounds, both inclusive, if present.
    pub(crate) fn in_range(self, min: i64, max: i64) {
        if self.integer().is_some_and(|number| !(min..=max).contains(&number)) {
            self.invalid(format!("must be between {min} and {max}, inclusive"));
        }
    }

    /// The number of a user or a group.
    pub(crate) fn user_or_group_id(self) {
        self.in_range(0, i64::from(i32::MAX));
    }

    pub(crate) fn file_mode(self) {
        if self.integer().is_some_and(|mode| !(0..=0o777).contains(&mode)) {
            self.invalid(FILE_MODE);
        }
    }

    /// The number of a port; an absent one counts as 0.
    pub(crate) fn port_number(self) {
        if !(1..=65535).contains(&self.integer_or_zero()) {
            self.invalid_as(self.integer_or_zero(), "must be between 1 and 65535, inclusive");
        }
    }

    /// A port by number or by name.
    pub(crate) fn port_number_or_name(self) {
        if self.is_text() {
            self.port_name();
        } else {
            self.port_number();
        }
    }

    /// A number that is not negative, or a percentage.
    pub(crate) fn number_or_percentage(self) {
        if self.is_text() {
            if parse_percentage(self.text()).is_none() {
                self.invalid(PERCENT);
            }
        } else {
            self.not_negative();
        }
    }

    pub(crate) fn at_most_100_percent(self) {
        if parse_percentage(self.text()).is_some_and(|percentage| percentage > 100) {
            self.invalid("must not be greater than 100%");
        }
    }

    /// True if the number, or the percentage, is 0.
    pub(crate) fn is_zero_or_0_percent(self) -> bool {
        match self.value() {
            Some(Value::String(text)) => parse_percentage(text) == Some(0),
            _ => self.integer_or_zero() == 0,
        }
    }
}

/// The number of `30%`; `None` for any other text. Large ones are capped.
pub(crate) fn parse_percentage(text: &str) -> Option<i64> {
    let digits = text.strip_suffix('%')?;
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| digits.parse().unwrap_or(i64::MAX))
}

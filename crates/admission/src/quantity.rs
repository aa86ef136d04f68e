//! Amounts of resources: sums, comparisons and their text as Kubernetes' quantities have them.

use std::borrow::Cow;

use schema::quantity_in_billionths;
use serde_json::Value;

const BILLION: i128 = 1_000_000_000;
const MILLION: i128 = 1_000_000;
/// The largest whole amount that Kubernetes compares in thousandths.
const MILLI_COMPARED_MAX: i128 = i64::MAX as i128 / 1000;

/// How a quantity is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Notation {
    Decimal,
    Binary,
    Exponent,
}

/// An amount of a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Amount {
    billionths: i128,
    notation: Notation,
    /// As written; `None` after a calculation.
    text: Option<String>,
}

impl Amount {
    /// Reads a quantity; `None` if the value is none.
    pub(crate) fn read(value: &Value) -> Option<Self> {
        let billionths = quantity_in_billionths(value)?;
        let text: Cow<'_, str> = match value {
            Value::String(text) => text.trim().into(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
                value.to_string().into()
            }
        };
        let suffix = text.trim_start_matches(|character: char| character.is_ascii_digit() || "+-.".contains(character));
        let notation = match suffix {
            suffix if suffix.ends_with('i') => Notation::Binary,
            suffix if suffix.len() > 1 && suffix.starts_with(['e', 'E']) => Notation::Exponent,
            _ => Notation::Decimal,
        };
        Some(Self { billionths, notation, text: Some(text.into_owned()) })
    }

    pub(crate) fn add(&mut self, other: &Self) {
        if self.billionths == 0 {
            self.notation = other.notation;
        }
        self.billionths = self.billionths.saturating_add(other.billionths);
        self.text = None;
    }

    pub(crate) fn subtract(&mut self, other: &Self) {
        if self.billionths == 0 {
            self.notation = other.notation;
        }
        self.billionths = self.billionths.saturating_sub(other.billionths);
        self.text = None;
    }

    /// A whole number in decimal notation.
    pub(crate) fn of(count: usize) -> Self {
        let billionths = i128::try_from(count).unwrap_or(i128::MAX).saturating_mul(BILLION);
        Self { billionths, notation: Notation::Decimal, text: None }
    }

    /// The next whole amount, as claims are charged.
    pub(crate) fn rounded_up(self) -> Self {
        if self.billionths % BILLION == 0 {
            return self;
        }
        Self { billionths: self.whole().saturating_mul(BILLION), text: None, ..self }
    }

    pub(crate) fn billionths(&self) -> i128 {
        self.billionths
    }

    /// Rounded up.
    pub(crate) fn whole(&self) -> i128 {
        divide_up(self.billionths, BILLION)
    }

    /// In thousandths, rounded up.
    pub(crate) fn thousandths(&self) -> i128 {
        divide_up(self.billionths, MILLION)
    }

    /// True if Kubernetes compares the amount in thousandths rather than in whole units.
    pub(crate) fn is_compared_in_thousandths(&self) -> bool {
        self.whole() <= MILLI_COMPARED_MAX
    }
}

fn divide_up(amount: i128, unit: i128) -> i128 {
    amount.div_euclid(unit) + i128::from(amount.rem_euclid(unit) != 0)
}

impl std::fmt::Display for Amount {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(text) = &self.text {
            return f.write_str(text);
        }
        // Small amounts and fractions are not written in powers of two.
        let is_decimal = self.billionths.abs() < 1024 * BILLION || self.billionths % BILLION != 0;
        match self.notation {
            Notation::Binary if !is_decimal => {
                let mut amount = self.whole();
                let mut suffixes = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"].iter();
                let mut suffix = suffixes.next().copied().unwrap_or_default();
                while amount % 1024 == 0 {
                    let Some(next) = suffixes.next() else { break };
                    (amount, suffix) = (amount / 1024, next);
                }
                write!(f, "{amount}{suffix}")
            }
            Notation::Binary | Notation::Decimal | Notation::Exponent => {
                if self.billionths == 0 {
                    return f.write_str("0");
                }
                let mut amount = self.billionths;
                let mut exponent = -9;
                while amount % 1000 == 0 && exponent < 18 {
                    (amount, exponent) = (amount / 1000, exponent + 3);
                }
                let suffix = match exponent {
                    -9 => "n",
                    -6 => "u",
                    -3 => "m",
                    0 => "",
                    3 => "k",
                    6 => "M",
                    9 => "G",
                    12 => "T",
                    15 => "P",
                    _ => "E",
                };
                match (self.notation, exponent) {
                    (Notation::Exponent, 0) => write!(f, "{amount}"),
                    (Notation::Exponent, exponent) => write!(f, "{amount}e{exponent}"),
                    (Notation::Binary | Notation::Decimal, _) => write!(f, "{amount}{suffix}"),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sum_is_written_in_notation_of_first_term() {
        for (terms, expected) in [
            (&["500m", "500m"][..], "1"),
            (&["100m", "50m"], "150m"),
            (&["1Gi", "512Mi"], "1536Mi"),
            (&["1Gi", "1"], "1073741825"),
            (&["1k", "1Ki"], "2024"),
            (&["1Ki", "1500m"], "1025500m"),
            (&["512Ki", "512Ki"], "1Mi"),
            (&["0", "1Ki"], "1Ki"),
            (&["1e3", "1e3"], "2e3"),
            (&["1n", "1u"], "1001n"),
        ] {
            let mut sum = Amount::read(&terms[0].into()).unwrap();
            for term in &terms[1..] {
                sum.add(&Amount::read(&(*term).into()).unwrap());
            }
            assert_eq!(sum.to_string(), expected, "{terms:?}");
        }
    }
}

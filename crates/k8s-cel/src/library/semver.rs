//! Semantic versions.

use std::cmp::Ordering;

use crate::error::EvalError;
use crate::eval::{Evaluated, Invocation};
use crate::function::Function;
use crate::library::Opaque;
use crate::value::Value;

/// `major.minor.patch-prerelease+build`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Semver {
    numbers: [u64; 3],
    prerelease: Vec<String>,
    build: Vec<String>,
}

pub(crate) fn is_semver(value: &Value<'_>) -> bool {
    matches!(value, Value::Opaque(opaque) if matches!(&**opaque, Opaque::Semver(_)))
}

pub(crate) fn call<'a>(call: &Invocation<'_, 'a>) -> Evaluated<'a> {
    if matches!(call.function, Function::Semver | Function::IsSemver) {
        let text = call.text(0)?;
        let normalize = match call.args.get(1) {
            None => false,
            Some(Value::Bool(value)) => *value,
            Some(_) => return Err(call.no_overload()),
        };
        let parsed = if normalize { parse_normalized(text) } else { Semver::parse(text) };
        return match call.function {
            Function::IsSemver => Ok(Value::Bool(parsed.is_ok())),
            _ => parsed.map(|semver| Value::opaque(Opaque::Semver(semver))).map_err(EvalError::new),
        };
    }
    let version = operand(call, 0)?;
    let number = |at: usize| Value::Int(version.numbers[at] as i64);
    Ok(match call.function {
        Function::Major => number(0),
        Function::Minor => number(1),
        Function::Patch => number(2),
        Function::CompareTo => Value::Int(version.compare(operand(call, 1)?) as i64),
        Function::IsGreaterThan => Value::Bool(version.compare(operand(call, 1)?).is_gt()),
        _ => Value::Bool(version.compare(operand(call, 1)?).is_lt()),
    })
}

fn operand<'c>(call: &'c Invocation<'_, '_>, at: usize) -> Result<&'c Semver, EvalError> {
    match call.args.get(at) {
        Some(Value::Opaque(opaque)) => match &**opaque {
            Opaque::Semver(semver) => Ok(semver),
            _ => Err(call.no_overload()),
        },
        _ => Err(call.no_overload()),
    }
}

/// Accepts a `v`, leading zeros and missing parts.
fn parse_normalized(text: &str) -> Result<Semver, String> {
    let text = text.strip_prefix('v').unwrap_or(text);
    let mut parts: Vec<String> = text.splitn(3, '.').map(without_zeros).collect();
    if parts.len() < 3 {
        if parts.last().is_some_and(|last| last.contains(['+', '-'])) {
            return Err("short version cannot contain PreRelease/Build meta data".into());
        }
        parts.resize(3, "0".into());
    }
    Semver::parse(&parts.join("."))
}

fn without_zeros(part: &str) -> String {
    if part.len() < 2 {
        return part.to_owned();
    }
    let trimmed = part.trim_start_matches('0');
    if trimmed.starts_with(|c: char| c.is_ascii_digit()) { trimmed.to_owned() } else { format!("0{trimmed}") }
}

fn number(text: &str, name: &str) -> Result<u64, String> {
    if !text.bytes().all(|b| b.is_ascii_digit()) {
        return Err(format!("Invalid character(s) found in {} number {text:?}", name.to_lowercase()));
    }
    if text.len() > 1 && text.starts_with('0') {
        return Err(format!("{name} number must not contain leading zeroes {text:?}"));
    }
    match text.parse() {
        Ok(value) => Ok(value),
        Err(_) if text.is_empty() => Err("strconv.ParseUint: parsing \"\": invalid syntax".into()),
        Err(_) => Err(format!("strconv.ParseUint: parsing {text:?}: value out of range")),
    }
}

fn is_identifier(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
}

fn is_number(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_digit())
}

impl Semver {
    fn parse(text: &str) -> Result<Semver, String> {
        if text.is_empty() {
            return Err("Version string empty".into());
        }
        let parts: Vec<&str> = text.splitn(3, '.').collect();
        let [major, minor, patch] = parts.as_slice() else {
            return Err("No Major.Minor.Patch elements found".into());
        };
        let (major, minor) = (number(major, "Major")?, number(minor, "Minor")?);
        let (rest, build) = patch.split_once('+').map_or((*patch, None), |(rest, build)| (rest, Some(build)));
        let (patch, prerelease) = rest.split_once('-').map_or((rest, None), |(patch, pre)| (patch, Some(pre)));
        let numbers = [major, minor, number(patch, "Patch")?];
        let mut version = Semver { numbers, prerelease: Vec::new(), build: Vec::new() };
        for part in prerelease.into_iter().flat_map(|pre| pre.split('.')) {
            if part.is_empty() {
                return Err("Prerelease is empty".into());
            }
            if is_number(part) && part.len() > 1 && part.starts_with('0') {
                return Err(format!("Numeric PreRelease version must not contain leading zeroes {part:?}"));
            }
            if !is_identifier(part) {
                return Err(format!("Invalid character(s) found in prerelease {part:?}"));
            }
            version.prerelease.push(part.to_owned());
        }
        for part in build.into_iter().flat_map(|build| build.split('.')) {
            if part.is_empty() {
                return Err("Build meta data is empty".into());
            }
            if !is_identifier(part) {
                return Err(format!("Invalid character(s) found in build meta data {part:?}"));
            }
            version.build.push(part.to_owned());
        }
        Ok(version)
    }

    /// Precedence; build metadata does not count.
    pub(crate) fn compare(&self, other: &Semver) -> Ordering {
        let numbers = self.numbers.cmp(&other.numbers);
        if numbers.is_ne() {
            return numbers;
        }
        match (self.prerelease.is_empty(), other.prerelease.is_empty()) {
            (true, true) => return Ordering::Equal,
            (true, false) => return Ordering::Greater,
            (false, true) => return Ordering::Less,
            (false, false) => {}
        }
        let parts = self.prerelease.iter().zip(&other.prerelease).map(|(a, b)| compare_part(a, b));
        let first = parts.into_iter().find(|order| order.is_ne());
        first.unwrap_or_else(|| self.prerelease.len().cmp(&other.prerelease.len()))
    }

    pub(crate) fn text(&self) -> String {
        let [major, minor, patch] = self.numbers;
        let mut text = format!("{major}.{minor}.{patch}");
        for (mark, parts) in [('-', &self.prerelease), ('+', &self.build)] {
            if !parts.is_empty() {
                text.push(mark);
                text.push_str(&parts.join("."));
            }
        }
        text
    }
}

fn compare_part(a: &str, b: &str) -> Ordering {
    match (is_number(a), is_number(b)) {
        (true, true) => a.len().cmp(&b.len()).then_with(|| a.cmp(b)),
        (true, false) => Ordering::Less,
        (false, true) => Ordering::Greater,
        (false, false) => a.cmp(b),
    }
}

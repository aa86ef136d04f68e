//! Command-line flags by pflag's rules, from one table per command.
//!
//! `--name=value` and `--name value`; a boolean needs no value and takes one only after `=`; `_` in a name is read as `-`; a
//! list may be given at once, separated by commas, or in several flags. A file of the same keys gives values that the
//! command line overrides.

pub(crate) mod common;

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// One row of a table of flags.
#[derive(Debug)]
pub(crate) struct Flag {
    pub(crate) name: &'static str,
    pub(crate) kind: FlagKind,
    /// The default as typed; empty: none.
    pub(crate) default: &'static str,
    pub(crate) help: &'static str,
}

/// Makes a row of a table.
pub(crate) const fn flag(name: &'static str, kind: FlagKind, default: &'static str, help: &'static str) -> Flag {
    Flag { name, kind, default, help }
}

/// The values that a flag takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FlagKind {
    /// One value; the last counts.
    Text,
    /// Several values.
    List,
    /// true or false.
    Bool,
    /// A flag of kube-apiserver without effect; takes a value.
    Ignored,
    /// The same, a boolean.
    IgnoredBool,
    /// A flag of kube-apiserver that must not be ignored unnoticed; takes a value.
    Unsupported,
    /// The same, a boolean.
    UnsupportedBool,
}

impl FlagKind {
    fn is_bool(self) -> bool {
        matches!(self, Self::Bool | Self::IgnoredBool | Self::UnsupportedBool)
    }

    fn is_used(self) -> bool {
        matches!(self, Self::Text | Self::List | Self::Bool)
    }
}

/// The given values, by flag name. Other flags have their default.
#[derive(Debug)]
pub(crate) struct FlagValues {
    table: &'static [Flag],
    given: BTreeMap<&'static str, Vec<String>>,
}

/// An invalid command line, in pflag's words.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FlagError {
    #[error("unknown flag: --{0}{hint}", hint = suggestion_text(.1.as_deref()))]
    Unknown(String, Option<String>),
    #[error("flag needs an argument: --{0}")]
    NoValue(&'static str),
    #[error("invalid argument \"{value}\" for \"--{flag}\" flag: {reason}")]
    Invalid { flag: &'static str, value: String, reason: String },
    #[error("unexpected argument \"{0}\": flags begin with --")]
    UnexpectedArgument(String),
    #[error("--config: {0}")]
    ConfigFile(String),
    /// Flags that do not go together, or with the files that they name.
    #[error("{0}")]
    Rejected(String),
    /// `--help`: not an error of the user.
    #[error("help")]
    Help,
}

fn suggestion_text(near: Option<&str>) -> String {
    near.map(|name| format!(" (is --{name} meant?)")).unwrap_or_default()
}

impl FlagValues {
    /// Parses a command line.
    pub(crate) fn parse(table: &'static [Flag], args: impl IntoIterator<Item = String>) -> Result<Self, FlagError> {
        let mut values = Self { table, given: BTreeMap::new() };
        let mut args = args.into_iter();
        while let Some(arg) = args.next() {
            if matches!(&*arg, "--help" | "-h" | "help") {
                return Err(FlagError::Help);
            }
            let typed = match arg.strip_prefix("-v=") {
                Some(level) => format!("v={level}"),
                None => arg.strip_prefix("--").ok_or_else(|| FlagError::UnexpectedArgument(arg.clone()))?.to_owned(),
            };
            let (name, inline) = match typed.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (&*typed, None),
            };
            let flag = find_flag(table, name)?;
            let value = match inline {
                Some(value) => value,
                None if flag.kind.is_bool() => "true".to_owned(),
                None => args.next().ok_or(FlagError::NoValue(flag.name))?,
            };
            values.add_value(flag, value)?;
        }
        Ok(values)
    }

    /// Adds the values of a config file for flags that are not on the command line.
    pub(crate) fn with_config_file(mut self, content: &str) -> Result<Self, FlagError> {
        let file: serde_json::Map<String, serde_json::Value> = serde_json::from_str(content)
            .map_err(|error| FlagError::ConfigFile(format!("not a JSON object: {error}")))?;
        let typed: Vec<&'static str> = self.given.keys().copied().collect();
        for (key, value) in file {
            let flag = find_flag(self.table, &key)?;
            if typed.contains(&flag.name) {
                continue;
            }
            for text in json_to_flag_values(&key, &value)? {
                self.add_value(flag, text)?;
            }
        }
        Ok(self)
    }

    /// The value, or the default; empty if there is neither.
    pub(crate) fn value_or_default(&self, name: &str) -> &str {
        let flag = self.flag(name);
        self.given.get(name).and_then(|values| values.last()).map_or(flag.default, String::as_str)
    }

    /// The value, if it was given and is not empty.
    pub(crate) fn given_value(&self, name: &str) -> Option<&str> {
        Some(self.value_or_default(name)).filter(|text| !text.is_empty())
    }

    /// True if the flag was given, even with an empty value.
    pub(crate) fn is_given(&self, name: &str) -> bool {
        self.given.contains_key(name)
    }

    /// All given values, as typed.
    pub(crate) fn joined_values(&self, name: &str) -> String {
        self.given.get(name).map(|values| values.join(",")).unwrap_or_default()
    }

    /// All values of a list.
    pub(crate) fn list_values(&self, name: &str) -> Vec<String> {
        let flag = self.flag(name);
        let split = |text: &str| -> Vec<String> {
            text.split(',').map(str::trim).filter(|part| !part.is_empty()).map(str::to_owned).collect()
        };
        match self.given.get(name) {
            Some(values) => values.iter().flat_map(|text| split(text)).collect(),
            None => split(flag.default),
        }
    }

    /// All values of a list, including blank ones, for flags that reject them.
    pub(crate) fn list_entries_with_blanks(&self, name: &str) -> Vec<String> {
        let flag = self.flag(name);
        let given = self.given.get(name).into_iter().flatten().map(String::as_str);
        let texts: Vec<&str> = if self.given.contains_key(name) { given.collect() } else { vec![flag.default] };
        let texts = texts.into_iter().filter(|text| !text.is_empty());
        texts.flat_map(|text| text.split(',')).map(|entry| entry.trim().to_owned()).collect()
    }

    /// A boolean.
    pub(crate) fn is_true(&self, name: &str) -> bool {
        matches!(self.value_or_default(name), "true" | "1" | "t" | "T" | "TRUE" | "True")
    }

    /// A value that must parse.
    pub(crate) fn parse_value<T, E: std::fmt::Display>(
        &self,
        name: &str,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Result<T, FlagError> {
        let (flag, text) = (self.flag(name), self.value_or_default(name));
        parse(text).map_err(|error| FlagError::Invalid {
            flag: flag.name,
            value: text.to_owned(),
            reason: error.to_string(),
        })
    }

    /// A value that must parse if it is given.
    pub(crate) fn parse_given<T, E: std::fmt::Display>(
        &self,
        name: &str,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Result<Option<T>, FlagError> {
        self.given_value(name).map(|_| self.parse_value(name, parse)).transpose()
    }

    /// The given flags that have no effect.
    pub(crate) fn ignored_flags(&self) -> Vec<&'static str> {
        self.given.keys().copied().filter(|name| !self.flag(name).kind.is_used()).collect()
    }

    /// Rejects flags that this server does not support, unless the list flag `allowed_by` names them. A value that
    /// kube-apiserver takes as "not set" asks for nothing.
    pub(crate) fn refuse_unsupported(&self, allowed_by: &'static str) -> Result<(), FlagError> {
        let is_unsupported = |flag: &Flag| matches!(flag.kind, FlagKind::Unsupported | FlagKind::UnsupportedBool);
        let allowed: Vec<String> =
            self.list_values(allowed_by).iter().map(|name| name.trim_start_matches("--").replace('_', "-")).collect();
        if let Some(unknown) =
            allowed.iter().find(|name| !self.table.iter().any(|flag| flag.name == **name && is_unsupported(flag)))
        {
            let reason = format!("--{unknown} is not among the unsupported flags");
            return Err(FlagError::Invalid { flag: allowed_by, value: unknown.clone(), reason });
        }
        let asks = |flag: &Flag| match flag.kind.is_bool() {
            true => self.is_true(flag.name),
            false => !self.joined_values(flag.name).is_empty(),
        };
        let refused = self
            .table
            .iter()
            .find(|flag| is_unsupported(flag) && asks(flag) && !allowed.iter().any(|name| name == flag.name));
        match refused {
            None => Ok(()),
            Some(flag) => Err(FlagError::Rejected(format!(
                "--{name} is not supported: this server would run without what it configures; remove the flag, or start with --{allowed_by}={name}",
                name = flag.name
            ))),
        }
    }

    fn add_value(&mut self, flag: &'static Flag, value: String) -> Result<(), FlagError> {
        const BOOLEANS: [&str; 11] = ["1", "t", "T", "true", "TRUE", "True", "0", "f", "F", "false", "FALSE"];
        if flag.kind.is_bool() && !BOOLEANS.contains(&&*value) && value != "False" {
            let reason = format!("strconv.ParseBool: parsing \"{value}\": invalid syntax");
            return Err(FlagError::Invalid { flag: flag.name, value, reason });
        }
        self.given.entry(flag.name).or_default().push(value);
        Ok(())
    }

    fn flag(&self, name: &str) -> &'static Flag {
        self.table.iter().find(|flag| flag.name == name).expect("the program asks for flags of its own table")
    }
}

/// The page of `--help`: every flag with an effect, and its default.
pub(crate) fn render_help(table: &[Flag]) -> String {
    let mut page = String::new();
    for flag in table.iter().filter(|flag| flag.kind.is_used()) {
        let value = match flag.kind {
            FlagKind::Bool | FlagKind::IgnoredBool | FlagKind::UnsupportedBool => "",
            FlagKind::List => " strings",
            FlagKind::Text | FlagKind::Ignored | FlagKind::Unsupported => " string",
        };
        let default = match flag.default {
            "" => String::new(),
            text => format!(" (default {text})"),
        };
        let _ = writeln!(page, "      --{}{value}\n            {}{default}", flag.name, flag.help);
    }
    page
}

fn find_flag(table: &'static [Flag], typed: &str) -> Result<&'static Flag, FlagError> {
    let name = typed.replace('_', "-");
    table.iter().find(|flag| flag.name == name).ok_or_else(|| {
        let near = table
            .iter()
            .min_by_key(|flag| edit_distance(flag.name, &name))
            .filter(|f| edit_distance(f.name, &name) <= 2);
        FlagError::Unknown(typed.to_owned(), near.map(|flag| flag.name.to_owned()))
    })
}

/// The edit distance of two names.
fn edit_distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.bytes().enumerate() {
            let changed = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

fn json_to_flag_values(key: &str, value: &serde_json::Value) -> Result<Vec<String>, FlagError> {
    use serde_json::Value;
    let text = |value: &Value| match value {
        Value::String(text) => Ok(text.clone()),
        Value::Bool(_) | Value::Number(_) => Ok(value.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => {
            Err(FlagError::ConfigFile(format!("{key}: a string, a number, a boolean or a list of them is expected")))
        }
    };
    match value {
        Value::Array(values) => values.iter().map(text).collect(),
        // Maps, such as feature gates, are written as `name=value`.
        Value::Object(map) => map.iter().map(|(name, value)| Ok(format!("{name}={}", text(value)?))).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(vec![text(value)?]),
    }
}

#[cfg(test)]
mod tests;

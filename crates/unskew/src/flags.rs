//! Flags as kube-apiserver's users know them: one table says which there are, and pflag's rules say how they are typed.
//!
//! `--name=value` and `--name value`; a boolean needs no value and takes one only after `=`; `_` in a name is read as `-`; a
//! list may be given at once, separated by commas, or in several flags. A file of the same keys gives values that the
//! command line overrides.

pub(crate) mod common;

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// One flag.
#[derive(Debug)]
pub(crate) struct Flag {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    /// As it would be typed; empty: none.
    pub(crate) default: &'static str,
    pub(crate) help: &'static str,
}

/// A row of a table.
pub(crate) const fn flag(name: &'static str, kind: Kind, default: &'static str, help: &'static str) -> Flag {
    Flag { name, kind, default, help }
}

/// What a flag takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// One value; the last counts.
    Text,
    /// Several values.
    List,
    /// true or false.
    Bool,
    /// Accepted because kube-apiserver has it, without a meaning here; takes a value.
    NoMeaning,
    /// The same, a boolean.
    NoMeaningBool,
}

impl Kind {
    fn is_bool(self) -> bool {
        matches!(self, Self::Bool | Self::NoMeaningBool)
    }

    fn has_meaning(self) -> bool {
        !matches!(self, Self::NoMeaning | Self::NoMeaningBool)
    }
}

/// What was given, by flag name. Flags that were not given have their default.
#[derive(Debug)]
pub(crate) struct Values {
    table: &'static [Flag],
    given: BTreeMap<&'static str, Vec<String>>,
}

/// What is wrong with what was typed, in pflag's words.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FlagError {
    #[error("unknown flag: --{0}{hint}", hint = suggestion(.1.as_deref()))]
    Unknown(String, Option<String>),
    #[error("flag needs an argument: --{0}")]
    NoValue(&'static str),
    #[error("invalid argument \"{value}\" for \"--{flag}\" flag: {reason}")]
    Invalid { flag: &'static str, value: String, reason: String },
    #[error("unexpected argument \"{0}\": flags begin with --")]
    Stray(String),
    #[error("--config: {0}")]
    File(String),
    /// Flags that do not go together, or with the files that they name.
    #[error("{0}")]
    Refused(String),
    /// Not a mistake: the user asks what there is.
    #[error("help")]
    Help,
}

fn suggestion(near: Option<&str>) -> String {
    near.map(|name| format!(" (is --{name} meant?)")).unwrap_or_default()
}

impl Values {
    /// Reads a command line.
    pub(crate) fn parse(table: &'static [Flag], args: impl IntoIterator<Item = String>) -> Result<Self, FlagError> {
        let mut values = Self { table, given: BTreeMap::new() };
        let mut args = args.into_iter();
        while let Some(arg) = args.next() {
            if matches!(&*arg, "--help" | "-h" | "help") {
                return Err(FlagError::Help);
            }
            let typed = match arg.strip_prefix("-v=") {
                Some(level) => format!("v={level}"),
                None => arg.strip_prefix("--").ok_or_else(|| FlagError::Stray(arg.clone()))?.to_owned(),
            };
            let (name, inline) = match typed.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (&*typed, None),
            };
            let flag = find(table, name)?;
            let value = match inline {
                Some(value) => value,
                None if flag.kind.is_bool() => "true".to_owned(),
                None => args.next().ok_or(FlagError::NoValue(flag.name))?,
            };
            values.add(flag, value)?;
        }
        Ok(values)
    }

    /// Takes values from a file of the same keys, where the command line says nothing.
    pub(crate) fn with_file(mut self, content: &str) -> Result<Self, FlagError> {
        let file: serde_json::Map<String, serde_json::Value> =
            serde_json::from_str(content).map_err(|error| FlagError::File(format!("not a JSON object: {error}")))?;
        let typed: Vec<&'static str> = self.given.keys().copied().collect();
        for (key, value) in file {
            let flag = find(self.table, &key)?;
            if typed.contains(&flag.name) {
                continue;
            }
            for text in texts(&key, &value)? {
                self.add(flag, text)?;
            }
        }
        Ok(self)
    }

    /// The value, or the default. Empty if there is neither.
    pub(crate) fn text(&self, name: &str) -> &str {
        let flag = self.known(name);
        self.given.get(name).and_then(|values| values.last()).map_or(flag.default, String::as_str)
    }

    /// The value, if it was given and is not empty.
    pub(crate) fn given(&self, name: &str) -> Option<&str> {
        Some(self.text(name)).filter(|text| !text.is_empty())
    }

    /// Whether it was given, be it empty.
    pub(crate) fn is_given(&self, name: &str) -> bool {
        self.given.contains_key(name)
    }

    /// Everything that was given, as it would be typed.
    pub(crate) fn all(&self, name: &str) -> String {
        self.given.get(name).map(|values| values.join(",")).unwrap_or_default()
    }

    /// All values of a list.
    pub(crate) fn list(&self, name: &str) -> Vec<String> {
        let flag = self.known(name);
        let split = |text: &str| -> Vec<String> {
            text.split(',').map(str::trim).filter(|part| !part.is_empty()).map(str::to_owned).collect()
        };
        match self.given.get(name) {
            Some(values) => values.iter().flat_map(|text| split(text)).collect(),
            None => split(flag.default),
        }
    }

    /// All values of a list, blank ones too, where those are mistakes.
    pub(crate) fn entries(&self, name: &str) -> Vec<String> {
        let flag = self.known(name);
        let given = self.given.get(name).into_iter().flatten().map(String::as_str);
        let texts: Vec<&str> = if self.given.contains_key(name) { given.collect() } else { vec![flag.default] };
        let texts = texts.into_iter().filter(|text| !text.is_empty());
        texts.flat_map(|text| text.split(',')).map(|entry| entry.trim().to_owned()).collect()
    }

    /// A boolean.
    pub(crate) fn is(&self, name: &str) -> bool {
        matches!(self.text(name), "true" | "1" | "t" | "T" | "TRUE" | "True")
    }

    /// A value that must parse.
    pub(crate) fn parsed<T, E: std::fmt::Display>(
        &self,
        name: &str,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Result<T, FlagError> {
        let (flag, text) = (self.known(name), self.text(name));
        parse(text).map_err(|error| FlagError::Invalid {
            flag: flag.name,
            value: text.to_owned(),
            reason: error.to_string(),
        })
    }

    /// The flags given that have no meaning here.
    pub(crate) fn without_meaning(&self) -> Vec<&'static str> {
        self.given.keys().copied().filter(|name| !self.known(name).kind.has_meaning()).collect()
    }

    fn add(&mut self, flag: &'static Flag, value: String) -> Result<(), FlagError> {
        const BOOLEANS: [&str; 11] = ["1", "t", "T", "true", "TRUE", "True", "0", "f", "F", "false", "FALSE"];
        if flag.kind.is_bool() && !BOOLEANS.contains(&&*value) && value != "False" {
            let reason = format!("strconv.ParseBool: parsing \"{value}\": invalid syntax");
            return Err(FlagError::Invalid { flag: flag.name, value, reason });
        }
        self.given.entry(flag.name).or_default().push(value);
        Ok(())
    }

    fn known(&self, name: &str) -> &'static Flag {
        self.table.iter().find(|flag| flag.name == name).expect("the program asks for flags of its own table")
    }
}

/// The page that `--help` prints: every flag with a meaning, and its default.
pub(crate) fn help(table: &[Flag]) -> String {
    let mut page = String::new();
    for flag in table.iter().filter(|flag| flag.kind.has_meaning()) {
        let value = match flag.kind {
            Kind::Bool => "",
            Kind::List => " strings",
            Kind::Text | Kind::NoMeaning | Kind::NoMeaningBool => " string",
        };
        let default = match flag.default {
            "" => String::new(),
            text => format!(" (default {text})"),
        };
        let _ = writeln!(page, "      --{}{value}\n            {}{default}", flag.name, flag.help);
    }
    page
}

fn find(table: &'static [Flag], typed: &str) -> Result<&'static Flag, FlagError> {
    let name = typed.replace('_', "-");
    table.iter().find(|flag| flag.name == name).ok_or_else(|| {
        let near = table.iter().min_by_key(|flag| distance(flag.name, &name)).filter(|f| distance(f.name, &name) <= 2);
        FlagError::Unknown(typed.to_owned(), near.map(|flag| flag.name.to_owned()))
    })
}

/// How many letters must be added, removed or changed to get from one name to the other.
fn distance(a: &str, b: &str) -> usize {
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

fn texts(key: &str, value: &serde_json::Value) -> Result<Vec<String>, FlagError> {
    use serde_json::Value;
    let text = |value: &Value| match value {
        Value::String(text) => Ok(text.clone()),
        Value::Bool(_) | Value::Number(_) => Ok(value.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => {
            Err(FlagError::File(format!("{key}: a string, a number, a boolean or a list of them is expected")))
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

//! The shape of a value, as a word of the table.

use super::super::Special;

#[derive(Debug)]
pub(crate) struct Shape {
    pub(crate) word: Word,
    /// Go's name for the type, if it has one of its own.
    pub(crate) name: Option<&'static str>,
    /// Go's name for the keys of a map, if they have one of their own.
    pub(crate) key: Option<&'static str>,
}

#[derive(Debug)]
pub(crate) enum Word {
    Text,
    Int32,
    Int64,
    Double,
    Bool,
    Bytes,
    Special(Special),
    List(Box<Shape>),
    Map(Box<Shape>),
    /// The position of a type in the table.
    Struct(usize),
}

impl Shape {
    pub(super) fn plain(word: Word) -> Self {
        Self { word, name: None, key: None }
    }

    /// `{ResourceName=quantity}:ResourceList`. What is no word of its own is left to `resolve`.
    pub(super) fn read(text: &'static str, resolve: &dyn Fn(&'static str) -> Word) -> Self {
        let bracketed = |open: char, close: char| {
            let inner = text.strip_prefix(open)?;
            let end = inner.rfind(close).unwrap_or_else(|| panic!("{text} has no end"));
            Some((&inner[..end], inner[end + 1..].strip_prefix(':')))
        };
        if let Some((items, name)) = bracketed('[', ']') {
            let word = Word::List(Box::new(Self::read(items, resolve)));
            return Self { word, name, key: None };
        }
        if let Some((values, name)) = bracketed('{', '}') {
            let (key, values) = values.split_once('=').map_or((None, values), |(key, values)| (Some(key), values));
            let word = Word::Map(Box::new(Self::read(values, resolve)));
            return Self { word, name, key };
        }
        let (word, name) = text.split_once(':').map_or((text, None), |(word, name)| (word, Some(name)));
        Self { word: Word::read(word).unwrap_or_else(|| resolve(word)), name, key: None }
    }
}

impl Word {
    fn read(word: &str) -> Option<Self> {
        Some(match word {
            "string" => Self::Text,
            "int32" => Self::Int32,
            "int64" => Self::Int64,
            "double" => Self::Double,
            "bool" => Self::Bool,
            "bytes" => Self::Bytes,
            "quantity" => Self::Special(Special::Quantity),
            "int-or-string" => Self::Special(Special::IntOrString),
            "time" => Self::Special(Special::Time),
            "micro-time" => Self::Special(Special::MicroTime),
            "raw" => Self::Special(Special::Raw),
            "fields" => Self::Special(Special::Fields),
            "json" => Self::Special(Special::Json),
            "patch" => Self::Special(Special::Patch),
            "schema-or-array" => Self::Special(Special::SchemaOrArray),
            "schema-or-bool" => Self::Special(Special::SchemaOrBool),
            "schema-or-strings" => Self::Special(Special::SchemaOrStrings),
            _ => return None,
        })
    }
}

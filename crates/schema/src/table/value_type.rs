//! Parsing of a value type, a word of the table.

use crate::types::SpecialType;

#[derive(Debug)]
pub(crate) struct ValueTypeRow {
    pub(crate) word: TypeWord,
    /// Go's name for the type, if it has one of its own.
    pub(crate) name: Option<&'static str>,
    /// Go's name for the keys of a map, if they have one of their own.
    pub(crate) key: Option<&'static str>,
}

#[derive(Debug)]
pub(crate) enum TypeWord {
    Text,
    Int32,
    Int64,
    Double,
    Bool,
    Bytes,
    Special(SpecialType),
    List(Box<ValueTypeRow>),
    Map(Box<ValueTypeRow>),
    /// The position of a type in the table.
    Struct(usize),
}

impl ValueTypeRow {
    pub(super) fn unnamed(word: TypeWord) -> Self {
        Self { word, name: None, key: None }
    }

    /// `{ResourceName=quantity}:ResourceList`. What is no word of its own is left to `resolve`.
    pub(super) fn parse(text: &'static str, resolve: &dyn Fn(&'static str) -> TypeWord) -> Self {
        let bracketed = |open: char, close: char| {
            let inner = text.strip_prefix(open)?;
            let end = inner.rfind(close).unwrap_or_else(|| panic!("{text} has no end"));
            Some((&inner[..end], inner[end + 1..].strip_prefix(':')))
        };
        if let Some((items, name)) = bracketed('[', ']') {
            let word = TypeWord::List(Box::new(Self::parse(items, resolve)));
            return Self { word, name, key: None };
        }
        if let Some((values, name)) = bracketed('{', '}') {
            let (key, values) = values.split_once('=').map_or((None, values), |(key, values)| (Some(key), values));
            let word = TypeWord::Map(Box::new(Self::parse(values, resolve)));
            return Self { word, name, key };
        }
        let (word, name) = text.split_once(':').map_or((text, None), |(word, name)| (word, Some(name)));
        Self { word: TypeWord::parse(word).unwrap_or_else(|| resolve(word)), name, key: None }
    }
}

impl TypeWord {
    fn parse(word: &str) -> Option<Self> {
        Some(match word {
            "string" => Self::Text,
            "int32" => Self::Int32,
            "int64" => Self::Int64,
            "double" => Self::Double,
            "bool" => Self::Bool,
            "bytes" => Self::Bytes,
            "quantity" => Self::Special(SpecialType::Quantity),
            "int-or-string" => Self::Special(SpecialType::IntOrString),
            "time" => Self::Special(SpecialType::Time),
            "micro-time" => Self::Special(SpecialType::MicroTime),
            "raw" => Self::Special(SpecialType::Raw),
            "fields" => Self::Special(SpecialType::Fields),
            "json" => Self::Special(SpecialType::Json),
            "patch" => Self::Special(SpecialType::Patch),
            "schema-or-array" => Self::Special(SpecialType::SchemaOrArray),
            "schema-or-bool" => Self::Special(SpecialType::SchemaOrBool),
            "schema-or-strings" => Self::Special(SpecialType::SchemaOrStrings),
            _ => return None,
        })
    }
}

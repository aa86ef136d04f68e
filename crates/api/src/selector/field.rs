//! Field selectors: `metadata.name=web,status.phase!=Running`.

use std::fmt;

/// A conjunction of terms; empty matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSelector {
    /// Sorted by text.
    terms: Vec<FieldTerm>,
}

/// A condition on one field.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FieldTerm {
    /// The path, such as `metadata.name`.
    pub field: String,
    /// The comparison.
    pub operator: FieldOperator,
    /// Unescaped.
    pub value: String,
}

/// The comparison of a field term.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FieldOperator {
    /// `=` or `==`.
    Equals,
    /// `!=`.
    NotEquals,
}

/// A malformed field selector; displays as in Kubernetes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FieldSelectorError {
    /// A term without an operator.
    #[error("invalid selector: '{selector}'; can't understand '{term}'")]
    NoOperator {
        /// The whole selector.
        selector: Box<str>,
        /// The malformed term.
        term: Box<str>,
    },
    /// A backslash before anything but a backslash, comma or equals sign.
    #[error("invalid field selector: invalid escape sequence: {sequence}")]
    InvalidEscape {
        /// The backslash and the next character.
        sequence: Box<str>,
    },
    /// An unescaped equals sign in a value. Kubernetes prints its code point.
    #[error("invalid field selector: unescaped character in value: {}", u32::from(*character))]
    UnescapedCharacter {
        /// The unescaped character.
        character: char,
    },
}

impl FieldSelector {
    /// Parses a selector; empty text matches everything.
    pub fn parse(text: &str) -> Result<Self, FieldSelectorError> {
        let mut term_texts = split_terms(text);
        term_texts.sort_unstable();
        let mut terms = Vec::with_capacity(term_texts.len());
        for part in term_texts.into_iter().filter(|part| !part.is_empty()) {
            let (field, operator, value) = split_term(part)
                .ok_or_else(|| FieldSelectorError::NoOperator { selector: text.into(), term: part.into() })?;
            let term = FieldTerm { field: field.to_owned(), operator, value: unescape(value)? };
            // A term without field and value has no effect.
            if !(term.field.is_empty() && term.value.is_empty()) {
                terms.push(term);
            }
        }
        Ok(Self { terms })
    }

    /// Reports whether an object matches; `field` returns a field's value, and an absent field is empty.
    pub fn matches<'a>(&self, field: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.terms.iter().all(|term| {
            let is_equal = field(&term.field).unwrap_or("") == term.value;
            match term.operator {
                FieldOperator::Equals => is_equal,
                FieldOperator::NotEquals => !is_equal,
            }
        })
    }

    /// Reports whether the selector matches everything.
    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    /// Returns the terms, all of which must match.
    pub fn terms(&self) -> &[FieldTerm] {
        &self.terms
    }

    /// Returns the value that the first equality term requires of a field.
    pub fn requires_exact_match(&self, field: &str) -> Option<&str> {
        let requires = |term: &&FieldTerm| term.operator == FieldOperator::Equals && term.field == field;
        self.terms.iter().find(requires).map(|term| term.value.as_str())
    }
}

impl fmt::Display for FieldSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, term) in self.terms.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{term}")?;
        }
        Ok(())
    }
}

impl fmt::Display for FieldTerm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.field)?;
        f.write_str(match self.operator {
            FieldOperator::Equals => "=",
            FieldOperator::NotEquals => "!=",
        })?;
        for character in self.value.chars() {
            if needs_escape(character) {
                f.write_str("\\")?;
            }
            write!(f, "{character}")?;
        }
        Ok(())
    }
}

fn needs_escape(character: char) -> bool {
    matches!(character, '\\' | ',' | '=')
}

/// Splits at unescaped commas.
fn split_terms(text: &str) -> Vec<&str> {
    let mut is_escaped = false;
    text.split(|character| {
        let separates = character == ',' && !is_escaped;
        is_escaped = character == '\\' && !is_escaped;
        separates
    })
    .collect()
}

/// Splits at the first operator; field names cannot contain one.
fn split_term(term: &str) -> Option<(&str, FieldOperator, &str)> {
    let equals = term.find('=')?;
    let (before, from_equals) = term.split_at(equals);
    if let Some(field) = before.strip_suffix('!') {
        return Some((field, FieldOperator::NotEquals, &from_equals[1..]));
    }
    let value = from_equals.strip_prefix("==").unwrap_or(&from_equals[1..]);
    Some((before, FieldOperator::Equals, value))
}

fn unescape(value: &str) -> Result<String, FieldSelectorError> {
    let mut unescaped = String::with_capacity(value.len());
    let mut characters = value.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => match characters.next() {
                Some(special) if needs_escape(special) => unescaped.push(special),
                next => {
                    let sequence = std::iter::once('\\').chain(next).collect::<String>().into();
                    return Err(FieldSelectorError::InvalidEscape { sequence });
                }
            },
            ',' | '=' => return Err(FieldSelectorError::UnescapedCharacter { character }),
            _ => unescaped.push(character),
        }
    }
    Ok(unescaped)
}

#[cfg(test)]
mod tests;

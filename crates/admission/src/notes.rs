//! What admission tells besides its verdict: warnings for the client, annotations for the audit log.

use std::collections::BTreeMap;

/// Warnings and audit annotations of one run of the sequence.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Notes {
    warnings: Vec<String>,
    annotations: BTreeMap<String, String>,
}

impl Notes {
    /// Adds a warning; one that was given before is dropped.
    pub fn warn(&mut self, text: impl Into<String>) {
        let text = text.into();
        if !text.is_empty() && !self.warnings.contains(&text) {
            self.warnings.push(text);
        }
    }

    /// Adds an audit annotation. As in Kubernetes, a key must be a qualified name and keeps its first value.
    pub fn annotate(&mut self, key: impl Into<String>, value: impl Into<String>) {
        let key = key.into();
        if api::validation::validate_label_key(&key).is_empty() {
            self.annotations.entry(key).or_insert_with(|| value.into());
        }
    }

    /// In the order in which they were given, each once.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// By key.
    pub fn annotations(&self) -> &BTreeMap<String, String> {
        &self.annotations
    }

    /// Adds the notes of another phase.
    pub fn append(&mut self, other: Self) {
        for warning in other.warnings {
            self.warn(warning);
        }
        for (key, value) in other.annotations {
            self.annotations.entry(key).or_insert(value);
        }
    }
}

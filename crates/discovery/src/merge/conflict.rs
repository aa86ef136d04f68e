//! Resolves fields that can have only one value, and reports differing values as conflicts.

use std::fmt;

use super::DistinctDocument;
use super::group_by_name::ItemSource;
use crate::groups::SharedStr;

/// A field with different values in the inputs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// Empty for the core group.
    pub group: SharedStr,
    /// Such as `v1`.
    pub version: SharedStr,
    /// The plural name.
    pub resource: SharedStr,
    /// Set if the field belongs to a subresource.
    pub subresource: Option<SharedStr>,
    /// The field that differs.
    pub field: ConflictField,
    /// The differing values, at least two; the first is the one in the merged document.
    pub values: Vec<ConflictingValue>,
}

/// The fields that cannot be united.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ConflictField {
    /// `responseKind`.
    Kind,
    /// `scope`.
    Scope,
    /// `singularResource`.
    Singular,
}

/// One of the values and its servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConflictingValue {
    /// Formatted as text.
    pub value: String,
    /// The smallest identity of the servers with this value.
    pub first_server: SharedStr,
    /// The number of servers with this value.
    pub server_count: usize,
}

impl ConflictField {
    /// Returns the name for log lines and metric labels.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Kind => "kind",
            Self::Scope => "scope",
            Self::Singular => "singular",
        }
    }
}

/// Formats one line for the log, such as `scope of widgets in example.com/v1: Cluster (a), Namespaced (b and 2 more)`.
impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.field.as_str(), self.resource)?;
        if let Some(subresource) = &self.subresource {
            write!(f, "/{subresource}")?;
        }
        let list = api::GroupVersion { group: &*self.group, version: &*self.version };
        write!(f, " in {list}: ")?;
        for (at, ConflictingValue { value, first_server: server, server_count: servers }) in
            self.values.iter().enumerate()
        {
            let comma = if at == 0 { "" } else { ", " };
            write!(f, "{comma}{value} ({server}")?;
            match servers {
                0 | 1 => f.write_str(")")?,
                more => write!(f, " and {} more)", more - 1)?,
            }
        }
        Ok(())
    }
}

/// The position of a field in the merged document.
#[derive(Clone, Copy)]
pub(super) struct FieldLocation<'a> {
    pub(super) group: &'a SharedStr,
    pub(super) version: &'a SharedStr,
    pub(super) resource: &'a SharedStr,
    pub(super) subresource: Option<&'a SharedStr>,
}

/// Resolves fields and collects the conflicts.
pub(super) struct ConflictResolver<'a> {
    pub(super) sources: &'a [DistinctDocument],
    pub(super) conflicts: Vec<Conflict>,
}

impl ConflictResolver<'_> {
    /// Returns the smallest value of a live server, else the smallest of all; `None` if no input has a value.
    pub(super) fn resolve<V: Ord + fmt::Display>(
        &mut self,
        location: FieldLocation<'_>,
        field: ConflictField,
        values: impl Iterator<Item = (ItemSource, V)>,
    ) -> Option<V> {
        let mut values: Vec<(ItemSource, V)> = values.collect();
        values.sort_by(|(_, a), (_, b)| a.cmp(b));
        let winner = values.iter().position(|(origin, _)| origin.is_live).unwrap_or(0);
        if values.first()?.1 != values.last()?.1 {
            self.report_conflict(location, field, winner, &values);
        }
        Some(values.swap_remove(winner).1)
    }

    fn report_conflict<V: Ord + fmt::Display>(
        &mut self,
        location: FieldLocation<'_>,
        field: ConflictField,
        winner: usize,
        values: &[(ItemSource, V)],
    ) {
        let equal = values.chunk_by(|(_, a), (_, b)| a == b);
        let mut claims: Vec<(bool, ConflictingValue)> =
            equal.map(|run| (run[0].1 == values[winner].1, self.conflicting_value(run))).collect();
        claims.sort_by_key(|(wins, _)| !wins);
        self.conflicts.push(Conflict {
            group: location.group.clone(),
            version: location.version.clone(),
            resource: location.resource.clone(),
            subresource: location.subresource.cloned(),
            field,
            values: claims.into_iter().map(|(_, claim)| claim).collect(),
        });
    }

    fn conflicting_value<V: fmt::Display>(&self, holders: &[(ItemSource, V)]) -> ConflictingValue {
        let mut documents: Vec<usize> = holders.iter().map(|(origin, _)| origin.document).collect();
        documents.dedup();
        let documents: Vec<_> = documents.into_iter().map(|document| &self.sources[document]).collect();
        ConflictingValue {
            value: holders[0].1.to_string(),
            first_server: documents.iter().map(|document| &document.first_server).min().cloned().unwrap_or_default(),
            server_count: documents.iter().map(|document| document.server_count).sum(),
        }
    }
}

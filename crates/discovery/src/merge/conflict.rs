//! Fields of which only one value can stand: which one does, and what the others were.

use std::fmt;

use super::SourceDocument;
use super::unite::Origin;
use crate::groups::Name;

/// A field for which the inputs had different values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The group; empty for core.
    pub group: Name,
    /// The version.
    pub version: Name,
    /// The resource.
    pub resource: Name,
    /// The subresource, if the field is one of a subresource.
    pub subresource: Option<Name>,
    /// The field.
    pub field: ConflictField,
    /// The different values, at least two; the first is the one in the merged document.
    pub claims: Vec<Claim>,
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

/// One of the values, and who holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The value as text.
    pub value: String,
    /// The server with the lowest identity of those that hold it.
    pub server: Name,
    /// How many servers hold it.
    pub servers: usize,
}

impl ConflictField {
    /// A word for log lines and metric labels.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Kind => "kind",
            Self::Scope => "scope",
            Self::Singular => "singular",
        }
    }
}

/// One line for the log, such as `scope of widgets in example.com/v1: Cluster (a), Namespaced (b and 2 more)`.
impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.field.as_str(), self.resource)?;
        if let Some(subresource) = &self.subresource {
            write!(f, "/{subresource}")?;
        }
        let list = api::GroupVersion { group: &*self.group, version: &*self.version };
        write!(f, " in {list}: ")?;
        for (at, Claim { value, server, servers }) in self.claims.iter().enumerate() {
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

/// Where in the merged document a field stands.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) group: &'a Name,
    pub(super) version: &'a Name,
    pub(super) resource: &'a Name,
    pub(super) subresource: Option<&'a Name>,
}

/// Settles fields and remembers what was in conflict.
pub(super) struct Judge<'a> {
    pub(super) sources: &'a [SourceDocument],
    pub(super) conflicts: Vec<Conflict>,
}

impl Judge<'_> {
    /// The value that stands: one of a live server if there is any, of those the smallest. `None` if nobody has a value.
    pub(super) fn settle<V: Ord + fmt::Display>(
        &mut self,
        place: Place<'_>,
        field: ConflictField,
        values: impl Iterator<Item = (Origin, V)>,
    ) -> Option<V> {
        let mut values: Vec<(Origin, V)> = values.collect();
        values.sort_by(|(_, a), (_, b)| a.cmp(b));
        let winner = values.iter().position(|(origin, _)| origin.live).unwrap_or(0);
        if values.first()?.1 != values.last()?.1 {
            self.report(place, field, winner, &values);
        }
        Some(values.swap_remove(winner).1)
    }

    fn report<V: Ord + fmt::Display>(
        &mut self,
        place: Place<'_>,
        field: ConflictField,
        winner: usize,
        values: &[(Origin, V)],
    ) {
        let equal = values.chunk_by(|(_, a), (_, b)| a == b);
        let mut claims: Vec<(bool, Claim)> = equal.map(|run| (run[0].1 == values[winner].1, self.claim(run))).collect();
        claims.sort_by_key(|(wins, _)| !wins);
        self.conflicts.push(Conflict {
            group: place.group.clone(),
            version: place.version.clone(),
            resource: place.resource.clone(),
            subresource: place.subresource.cloned(),
            field,
            claims: claims.into_iter().map(|(_, claim)| claim).collect(),
        });
    }

    fn claim<V: fmt::Display>(&self, holders: &[(Origin, V)]) -> Claim {
        let mut documents: Vec<usize> = holders.iter().map(|(origin, _)| origin.document).collect();
        documents.dedup();
        let documents: Vec<_> = documents.into_iter().map(|document| &self.sources[document]).collect();
        Claim {
            value: holders[0].1.to_string(),
            server: documents.iter().map(|document| &document.server).min().cloned().unwrap_or_default(),
            servers: documents.iter().map(|document| document.servers).sum(),
        }
    }
}

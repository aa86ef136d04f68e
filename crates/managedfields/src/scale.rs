//! Managed fields of the subresource `scale`: entries of the object seen in the coordinates of `autoscaling/v1` Scale,
//! and back.

use serde_json::Value;

/// The paths of the replicas in the object, by version, as field names: `["spec", "replicas"]`. `None`: the version is
/// served but has no scale.
pub trait ScalePaths {
    /// `None` if the version is unknown: its entries are dropped.
    fn replicas_path(&self, api_version: &str) -> Option<Option<Vec<String>>>;
}

/// The entries of an object that has the subresource `scale`.
pub struct ScaleEntries<'a> {
    parent: Option<&'a Value>,
    api_version: &'a str,
    paths: &'a dyn ScalePaths,
}

impl<'a> ScaleEntries<'a> {
    /// `parent` is the `managedFields` of the object, `api_version` the version of the request.
    pub fn new(parent: Option<&'a Value>, api_version: &'a str, paths: &'a dyn ScalePaths) -> Self {
        Self { parent, api_version, paths }
    }

    /// The `managedFields` of the Scale; `None` if no entry owns the replicas.
    pub fn to_scale(&self) -> Result<Option<Value>, String> {
        let _ = (self.parent, self.api_version, self.paths);
        Ok(None)
    }

    /// The `managedFields` of the object after a write of the Scale, whose entries are `scale`.
    pub fn to_parent(&self, scale: Option<&Value>) -> Result<Option<Value>, String> {
        let _ = scale;
        Ok(None)
    }
}

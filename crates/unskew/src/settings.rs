//! What server and gateway read and decide alike.

use edge::merged::Merge;

/// `--merge-discovery`.
pub(crate) fn merge_of(word: &str) -> Result<Merge, &'static str> {
    match word {
        "aggregated" => Ok(Merge::Aggregated),
        "all" => Ok(Merge::All),
        _ => Err("allowed values: aggregated, all"),
    }
}

/// `--logging-format`: whether it is JSON.
pub(crate) fn is_json(format: &str) -> Result<bool, &'static str> {
    match format {
        "text" => Ok(false),
        "json" => Ok(true),
        _ => Err("allowed values: text, json"),
    }
}

/// Some release has it, or a release that is newer than the catalogue may.
pub(crate) fn may_be_built_in(name: api::GroupVersionResource<&str>) -> bool {
    catalogue::may_be_built_in(name.group, name.version, name.resource) || catalogue::looks_built_in(name.group)
}

//! What server and gateway read and decide alike.

use edge::merged_discovery::MergeDiscovery;

/// `--merge-discovery`.
pub(crate) fn parse_merge_discovery(word: &str) -> Result<MergeDiscovery, &'static str> {
    match word {
        "aggregated" => Ok(MergeDiscovery::Aggregated),
        "all" => Ok(MergeDiscovery::All),
        _ => Err("allowed values: aggregated, all"),
    }
}

/// `--logging-format`: whether it is JSON.
pub(crate) fn parse_logging_format(format: &str) -> Result<bool, &'static str> {
    match format {
        "text" => Ok(false),
        "json" => Ok(true),
        _ => Err("allowed values: text, json"),
    }
}

/// Some release has it, or a release newer than those known may.
pub(crate) fn may_be_built_in(name: api::GroupVersionResource<&str>) -> bool {
    kinds::may_be_built_in(name.group, name.version, name.resource) || kinds::has_built_in_group_name(name.group)
}

//! Values of flags that `serve` and `gateway` share.

use edge::merged_discovery::MergeDiscovery;

/// `--merge-discovery`.
pub(crate) fn parse_merge_discovery(word: &str) -> Result<MergeDiscovery, &'static str> {
    match word {
        "aggregated" => Ok(MergeDiscovery::Aggregated),
        "all" => Ok(MergeDiscovery::All),
        _ => Err("allowed values: aggregated, all"),
    }
}

/// `--logging-format`: true for JSON.
pub(crate) fn parse_logging_format(format: &str) -> Result<bool, &'static str> {
    match format {
        "text" => Ok(false),
        "json" => Ok(true),
        _ => Err("allowed values: text, json"),
    }
}

//! Values of flags that `serve` and `gateway` share.

use access::authentication::FrontProxyHeaderNames;
use edge::merged_discovery::MergeDiscovery;

use transport::{TlsPolicy, TlsPolicyError};

use crate::flags::{FlagError, FlagValues};

/// `--merge-discovery`.
pub(crate) fn parse_merge_discovery(word: &str) -> Result<MergeDiscovery, &'static str> {
    match word {
        "aggregated" => Ok(MergeDiscovery::Aggregated),
        "all" => Ok(MergeDiscovery::All),
        _ => Err("allowed values: aggregated, all"),
    }
}

/// `--logging-format` and `--v`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoggingConfig {
    pub(crate) json: bool,
    pub(crate) verbosity: u8,
}

pub(crate) fn parse_logging(flags: &FlagValues) -> Result<LoggingConfig, FlagError> {
    let is_json = |format: &str| match format {
        "text" => Ok(false),
        "json" => Ok(true),
        _ => Err("allowed values: text, json"),
    };
    Ok(LoggingConfig {
        json: flags.parse_value("logging-format", is_json)?,
        verbosity: flags.parse_value("v", str::parse)?,
    })
}

/// `--tls-min-version` and `--tls-cipher-suites`.
pub(crate) fn parse_tls_policy(flags: &FlagValues) -> Result<TlsPolicy, FlagError> {
    let (min_version, suites) = (flags.value_or_default("tls-min-version"), flags.list_values("tls-cipher-suites"));
    TlsPolicy::parse(min_version, &suites).map_err(|error| {
        let (flag, value) = match &error {
            TlsPolicyError::UnknownVersion(_) => ("tls-min-version", min_version.to_owned()),
            TlsPolicyError::UnknownCipherSuite(_) | TlsPolicyError::NoCipherSuite => {
                ("tls-cipher-suites", suites.join(","))
            }
        };
        FlagError::Invalid { flag, value, reason: error.to_string() }
    })
}

/// `--requestheader-*-headers` and `--requestheader-extra-headers-prefix`.
pub(crate) fn header_names(flags: &FlagValues) -> FrontProxyHeaderNames {
    FrontProxyHeaderNames {
        user: flags.list_entries_with_blanks("requestheader-username-headers"),
        uid: flags.list_entries_with_blanks("requestheader-uid-headers"),
        group: flags.list_entries_with_blanks("requestheader-group-headers"),
        extra_prefix: flags.list_entries_with_blanks("requestheader-extra-headers-prefix"),
    }
}

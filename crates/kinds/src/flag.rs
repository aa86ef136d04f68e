//! Boolean parsing shared by `--feature-gates` and `--runtime-config`.

/// Parses the boolean texts that Go's flags accept.
pub(crate) fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

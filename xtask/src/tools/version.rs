//! Version numbers of tools.

use std::fmt;

/// Major, minor and patch, ordered numerically.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ToolVersion(pub(crate) u32, pub(crate) u32, pub(crate) u32);

impl ToolVersion {
    /// Finds the first version in a text, such as `etcd Version: 3.5.16` or `Client Version: v1.37.1`.
    pub(crate) fn find_in(text: &str) -> Option<ToolVersion> {
        text.split(|c: char| !(c.is_ascii_digit() || c == '.')).find_map(ToolVersion::parse)
    }

    fn parse(text: &str) -> Option<ToolVersion> {
        let mut numbers = text.split('.').map(|number| number.parse().ok());
        Some(ToolVersion(numbers.next()??, numbers.next()??, numbers.next().unwrap_or(Some(0))?))
    }
}

impl fmt::Display for ToolVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ToolVersion(major, minor, patch) = self;
        write!(f, "{major}.{minor}.{patch}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_is_found_in_tool_output() {
        assert_eq!(ToolVersion::find_in("etcd Version: 3.4.23\nGit SHA: Not provided"), Some(ToolVersion(3, 4, 23)));
        assert_eq!(ToolVersion::find_in("Client Version: v1.32.4-dispatcher"), Some(ToolVersion(1, 32, 4)));
        assert_eq!(ToolVersion::find_in("Python 3.11.7"), Some(ToolVersion(3, 11, 7)));
        assert_eq!(ToolVersion::find_in("Chromium 150.0.7871.100 built on Debian"), Some(ToolVersion(150, 0, 7871)));
        assert_eq!(ToolVersion::find_in("1.36"), Some(ToolVersion(1, 36, 0)));
        assert_eq!(ToolVersion::find_in("no number. here"), None);
    }

    #[test]
    fn versions_are_ordered_by_number() {
        assert!(ToolVersion(3, 5, 13) > ToolVersion(3, 5, 9));
        assert!(ToolVersion(3, 4, 31) < ToolVersion(3, 5, 0));
    }
}

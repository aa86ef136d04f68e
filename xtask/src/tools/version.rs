//! Version numbers of tools.

use std::fmt;

/// Three numbers, ordered as versions are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Version(pub(crate) u32, pub(crate) u32, pub(crate) u32);

impl Version {
    /// The first thing in the text that looks like a version: `etcd Version: 3.5.16`, `Client Version: v1.37.1`.
    pub(crate) fn find(text: &str) -> Option<Version> {
        text.split(|c: char| !(c.is_ascii_digit() || c == '.')).find_map(Version::parse)
    }

    fn parse(text: &str) -> Option<Version> {
        let mut numbers = text.split('.').map(|number| number.parse().ok());
        Some(Version(numbers.next()??, numbers.next()??, numbers.next().unwrap_or(Some(0))?))
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Version(major, minor, patch) = self;
        write!(f, "{major}.{minor}.{patch}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_found_in_what_tools_say() {
        assert_eq!(Version::find("etcd Version: 3.4.23\nGit SHA: Not provided"), Some(Version(3, 4, 23)));
        assert_eq!(Version::find("Client Version: v1.32.4-dispatcher"), Some(Version(1, 32, 4)));
        assert_eq!(Version::find("Python 3.11.7"), Some(Version(3, 11, 7)));
        assert_eq!(Version::find("Chromium 150.0.7871.100 built on Debian"), Some(Version(150, 0, 7871)));
        assert_eq!(Version::find("1.36"), Some(Version(1, 36, 0)));
        assert_eq!(Version::find("no number. here"), None);
    }

    #[test]
    fn versions_order_by_number() {
        assert!(Version(3, 5, 13) > Version(3, 5, 9));
        assert!(Version(3, 4, 31) < Version(3, 5, 0));
    }
}

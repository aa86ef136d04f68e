//! etcd versions and the features that depend on them.

use std::fmt;

/// The version of a member, such as `3.5.30`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct EtcdVersion {
    major: u32,
    minor: u32,
    patch: u32,
}

impl EtcdVersion {
    /// Parses the first three numbers and ignores suffixes (`-rc.1`, `+git`).
    pub(super) fn parse(text: &str) -> Option<Self> {
        let core = text.split(['-', '+']).next()?;
        let mut numbers = core.split('.').map(|number| number.parse().ok());
        let (major, minor, patch) = (numbers.next()??, numbers.next()??, numbers.next()??);
        Some(Self { major, minor, patch })
    }

    /// True if etcd answers progress requests in order with the events. Before 3.4.25 and 3.5.8 the response could
    /// overtake events, and before 3.4.31 and 3.5.13 it could be missing.
    pub(super) fn supports_progress_requests(self) -> bool {
        match (self.major, self.minor) {
            (3, ..4) => false,
            (3, 4) => self.patch >= 31,
            (3, 5) => self.patch >= 13,
            (major, _) => major >= 3,
        }
    }
}

impl fmt::Display for EtcdVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Option<bool>) {
        assert_eq!(EtcdVersion::parse(text).map(EtcdVersion::supports_progress_requests), expected, "{text}");
    }

    #[test]
    fn progress_support_depends_on_etcd_version() {
        check("3.3.27", Some(false));
        check("3.4.23", Some(false));
        check("3.4.30", Some(false));
        check("3.4.31", Some(true));
        check("3.5.12", Some(false));
        check("3.5.13", Some(true));
        check("3.5.30+git", Some(true));
        check("3.6.0-rc.1", Some(true));
        check("4.0.0", Some(true));
        check("2.3.8", Some(false));
        check("", None);
        check("3.5", None);
        check("not a version", None);
    }
}

//! The Kubernetes releases this server can act as.

use std::fmt;
use std::str::FromStr;

/// A minor release of Kubernetes; later releases compare greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Release {
    /// Kubernetes 1.31.
    R31,
    /// Kubernetes 1.32.
    R32,
    /// Kubernetes 1.33.
    R33,
    /// Kubernetes 1.34.
    R34,
    /// Kubernetes 1.35.
    R35,
    /// Kubernetes 1.36.
    R36,
    /// Kubernetes 1.37.
    R37,
}

/// Text that is not a known release.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a Kubernetes release this server knows: give one of {oldest} to {newest}", oldest = Release::OLDEST, newest = Release::NEWEST)]
pub struct ReleaseError(Box<str>);

impl Release {
    /// Every release, the oldest first.
    pub const ALL: [Self; 7] = [Self::R31, Self::R32, Self::R33, Self::R34, Self::R35, Self::R36, Self::R37];
    /// The oldest known release.
    pub const OLDEST: Self = Self::R31;
    /// The newest known release.
    pub const NEWEST: Self = Self::R37;

    /// The second number of the version: 34 of 1.34.
    pub const fn minor(self) -> u8 {
        31 + self as u8
    }

    /// For tables with one column per release.
    pub(crate) const fn index(self) -> usize {
        self as usize
    }
}

/// `1.34`, also as `v1.34`, and as `kube=1.34`, which is how `--emulated-version` names the component.
impl FromStr for Release {
    type Err = ReleaseError;

    fn from_str(text: &str) -> Result<Self, ReleaseError> {
        let version = text.strip_prefix("kube=").unwrap_or(text);
        let version = version.strip_prefix('v').unwrap_or(version);
        let known = Self::ALL.into_iter().find(|release| release.to_string() == version);
        known.ok_or_else(|| ReleaseError(text.into()))
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "1.{}", self.minor())
    }
}

/// A half-open range of releases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReleaseRange {
    pub(crate) since: Release,
    /// The first release without it; `None` if even the newest has it.
    pub(crate) removed: Option<Release>,
}

impl ReleaseRange {
    pub(crate) const ALL: Self = Self { since: Release::OLDEST, removed: None };

    pub(crate) fn contains(self, release: Release) -> bool {
        self.since <= release && self.removed.is_none_or(|removed| release < removed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn release_round_trips_through_display() {
        for release in Release::ALL {
            assert_eq!(release.to_string().parse(), Ok(release));
            assert_eq!(format!("kube=v{release}").parse(), Ok(release));
        }
        assert_eq!(Release::R34.to_string(), "1.34");
        assert_eq!(Release::ALL[Release::R36.index()], Release::R36);
    }

    #[test]
    fn release_parse_rejects_unknown_releases() {
        for text in ["", "1.30", "1.38", "1.34.1", "34", "wardle=1.34"] {
            let error = text.parse::<Release>().unwrap_err().to_string();
            let expected = format!("{text:?} is not a Kubernetes release this server knows: give one of 1.31 to 1.37");
            assert_eq!(error, expected);
        }
    }

    #[test]
    fn release_range_excludes_removal_release() {
        let span = ReleaseRange { since: Release::R32, removed: Some(Release::R34) };
        let within: Vec<_> = Release::ALL.into_iter().filter(|release| span.contains(*release)).collect();
        assert_eq!(within, [Release::R32, Release::R33]);
        assert!(Release::ALL.into_iter().all(|release| ReleaseRange::ALL.contains(release)));
    }
}

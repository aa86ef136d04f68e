//! Names and releases of the servers of a lab.

use serde::{Deserialize, Serialize};

/// Servers are named by one letter each.
pub const SERVERS_MAX: usize = 26;

/// Name and release of one server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedServer {
    /// One letter, in the order of `--servers`.
    pub name: String,
    /// Kubernetes release, such as `1.33`.
    pub release: String,
}

/// Why a list of releases is not valid.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// The list is empty.
    #[error("no server: give releases, such as 1.33,1.36,1.36")]
    Empty,
    /// More than `SERVERS_MAX` servers.
    #[error("{0} servers: a lab has at most {SERVERS_MAX}")]
    TooMany(usize),
    /// The number of releases is neither one nor the number of servers.
    #[error("{given} releases for {servers} servers: give one for all, or one for each")]
    ReleaseCountMismatch {
        /// Number of releases in the list.
        given: usize,
        /// Number of servers in the lab.
        servers: usize,
    },
}

/// Assigns the names `a`, `b`, `c`, ... to servers of these releases.
pub fn name_servers(releases: &[String]) -> Result<Vec<PlannedServer>, PlanError> {
    match releases.len() {
        0 => Err(PlanError::Empty),
        number if number > SERVERS_MAX => Err(PlanError::TooMany(number)),
        _ => Ok(('a'..='z')
            .zip(releases)
            .map(|(name, release)| PlannedServer { name: name.to_string(), release: release.clone() })
            .collect()),
    }
}

/// Returns one release per server: `releases` holds one for all, or one for each.
pub fn expand_releases(releases: &[String], servers: usize) -> Result<Vec<String>, PlanError> {
    match releases {
        [] => Err(PlanError::Empty),
        [one] => Ok(vec![one.clone(); servers]),
        each if each.len() == servers => Ok(each.to_vec()),
        uneven => Err(PlanError::ReleaseCountMismatch { given: uneven.len(), servers }),
    }
}

/// Minor version of a release: 33 for `1.33`, 0 if it has none.
pub fn minor_version(release: &str) -> u32 {
    release.split('.').nth(1).and_then(|minor| minor.parse().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn releases(text: &str) -> Vec<String> {
        text.split(',').filter(|part| !part.is_empty()).map(str::to_owned).collect()
    }

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let shown = match name_servers(&releases(text)) {
            Ok(servers) => {
                servers.iter().map(|server| format!("{}={}", server.name, server.release)).collect::<Vec<_>>().join(" ")
            }
            Err(error) => error.to_string(),
        };
        assert_eq!(shown, expected);
    }

    #[test]
    fn servers_are_named_by_letters_in_order() {
        check("1.33,1.36,1.36", "a=1.33 b=1.36 c=1.36");
        check("", "no server: give releases, such as 1.33,1.36,1.36");
        check(&["1.33"; 27].join(","), "27 servers: a lab has at most 26");
    }

    #[test]
    fn expand_releases_takes_one_release_or_one_per_server() {
        assert_eq!(expand_releases(&releases("1.37"), 3).unwrap(), releases("1.37,1.37,1.37"));
        assert_eq!(expand_releases(&releases("1.33,1.34"), 2).unwrap(), releases("1.33,1.34"));
        assert_eq!(
            expand_releases(&releases("1.33,1.34"), 3),
            Err(PlanError::ReleaseCountMismatch { given: 2, servers: 3 })
        );
        assert_eq!(expand_releases(&[], 3), Err(PlanError::Empty));
    }

    #[test]
    fn minor_version_is_the_number_after_the_dot() {
        assert_eq!([minor_version("1.33"), minor_version("1"), minor_version("x.y")], [33, 0, 0]);
    }
}

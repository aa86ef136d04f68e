//! Which servers a lab has: their names and releases.

use serde::{Deserialize, Serialize};

/// One machine has a use for as many, and each has a letter for a name.
pub const SERVERS_MAX: usize = 26;

/// One server of a lab.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Planned {
    /// A letter, by the order on the command line.
    pub name: String,
    /// The Kubernetes release it is, such as `1.33`.
    pub release: String,
}

/// Why there can be no such lab.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// None was named.
    #[error("no server: give releases, such as 1.33,1.36,1.36")]
    Empty,
    /// Too many were.
    #[error("{0} servers: a lab has at most {SERVERS_MAX}")]
    TooMany(usize),
    /// A rollout names neither one release nor one for each server.
    #[error("{given} releases for {servers} servers: give one for all, or one for each")]
    Uneven {
        /// How many releases there are.
        given: usize,
        /// How many servers there are.
        servers: usize,
    },
}

/// Servers of these releases, named in their order.
pub fn servers(releases: &[String]) -> Result<Vec<Planned>, PlanError> {
    match releases.len() {
        0 => Err(PlanError::Empty),
        number if number > SERVERS_MAX => Err(PlanError::TooMany(number)),
        _ => Ok(('a'..='z')
            .zip(releases)
            .map(|(name, release)| Planned { name: name.to_string(), release: release.clone() })
            .collect()),
    }
}

/// The release that each of `servers` servers gets: one for all, or one for each.
pub fn targets(releases: &[String], servers: usize) -> Result<Vec<String>, PlanError> {
    match releases {
        [] => Err(PlanError::Empty),
        [one] => Ok(vec![one.clone(); servers]),
        each if each.len() == servers => Ok(each.to_vec()),
        uneven => Err(PlanError::Uneven { given: uneven.len(), servers }),
    }
}

/// The number after the dot, for what differs between releases on the command line. Zero for what is none.
pub fn minor(release: &str) -> u32 {
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
        let shown = match servers(&releases(text)) {
            Ok(servers) => {
                servers.iter().map(|server| format!("{}={}", server.name, server.release)).collect::<Vec<_>>().join(" ")
            }
            Err(error) => error.to_string(),
        };
        assert_eq!(shown, expected);
    }

    #[test]
    fn servers_are_named_in_their_order() {
        check("1.33,1.36,1.36", "a=1.33 b=1.36 c=1.36");
        check("", "no server: give releases, such as 1.33,1.36,1.36");
        check(&["1.33"; 27].join(","), "27 servers: a lab has at most 26");
    }

    #[test]
    fn a_rollout_goes_to_one_release_or_to_one_for_each() {
        assert_eq!(targets(&releases("1.37"), 3).unwrap(), releases("1.37,1.37,1.37"));
        assert_eq!(targets(&releases("1.33,1.34"), 2).unwrap(), releases("1.33,1.34"));
        assert_eq!(targets(&releases("1.33,1.34"), 3), Err(PlanError::Uneven { given: 2, servers: 3 }));
        assert_eq!(targets(&[], 3), Err(PlanError::Empty));
    }

    #[test]
    fn releases_have_a_minor_number() {
        assert_eq!([minor("1.33"), minor("1"), minor("x.y")], [33, 0, 0]);
    }
}

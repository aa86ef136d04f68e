//! Who writes a resource, in which version, and whether that is enough to rely on.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use super::NAMED_MAX;

/// One server that may write the resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Writer {
    /// Its identity, `apiserver-…`.
    pub server: String,
    /// A name that operators know, such as its hostname; empty if unknown.
    pub hostname: String,
    /// The version in which it stores the resource; `None` if nothing tells.
    pub encoding_version: Option<String>,
}

/// What is known about the servers that may write a resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WriterEvidence {
    /// The holders of identity leases, and servers with an entry whose lease is gone.
    pub writers: Vec<Writer>,
    /// The storage version of the definition of a custom resource, `example.com/v1`; `None` for built-in resources.
    pub defined_version: Option<String>,
    /// Differs between two observations if any server could have begun to write another version in between.
    pub marker: String,
}

/// Servers that all write one version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgreedWriters {
    /// The version, `apps/v1`.
    pub version: String,
    /// The servers, in order of names.
    pub servers: Vec<String>,
    /// [`WriterEvidence::marker`] of the observation.
    pub marker: String,
}

/// Why nothing may be rewritten now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HoldReason {
    /// No server is known to write the resource.
    NoWriters,
    /// Servers whose encoding version nothing tells.
    NotReporting(Vec<String>),
    /// Servers by the version that they write.
    Disagreement(BTreeMap<String, Vec<String>>),
    /// The servers agree on another version than the definition's: they have not seen its change.
    DefinitionAhead {
        /// The storage version of the definition.
        defined: String,
        /// What the servers write.
        written: String,
    },
    /// A server left a short time ago and may still finish writes.
    Lingering {
        /// The time until its writes have ended.
        remaining: Duration,
    },
    /// The evidence could not be read.
    Unreadable(String),
}

impl WriterEvidence {
    /// The identities of all writers.
    pub fn servers(&self) -> impl Iterator<Item = &str> {
        self.writers.iter().map(|writer| &*writer.server)
    }

    /// The version that all servers write. A server without evidence may write any version.
    pub fn judge(&self) -> Result<AgreedWriters, HoldReason> {
        let silent: Vec<String> =
            self.writers.iter().filter(|writer| writer.encoding_version.is_none()).map(Writer::to_string).collect();
        if !silent.is_empty() {
            return Err(HoldReason::NotReporting(silent));
        }
        let mut by_version: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for writer in &self.writers {
            let version = writer.encoding_version.clone().unwrap_or_default();
            by_version.entry(version).or_default().push(writer.to_string());
        }
        if by_version.len() > 1 {
            return Err(HoldReason::Disagreement(by_version));
        }
        let (version, _) = by_version.pop_first().ok_or(HoldReason::NoWriters)?;
        if let Some(defined) = self.defined_version.as_ref().filter(|defined| **defined != version) {
            return Err(HoldReason::DefinitionAhead { defined: defined.clone(), written: version });
        }
        let mut servers: Vec<String> = self.servers().map(str::to_owned).collect();
        servers.sort();
        Ok(AgreedWriters { version, servers, marker: self.marker.clone() })
    }
}

impl AgreedWriters {
    /// True if version and servers are the same. The marker may differ: it also changes for harmless reasons.
    pub fn is_same_agreement(&self, other: &Self) -> bool {
        self.version == other.version && self.servers == other.servers
    }
}

impl fmt::Display for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.hostname.is_empty() {
            true => f.write_str(&self.server),
            false => write!(f, "{} ({})", self.hostname, self.server),
        }
    }
}

impl fmt::Display for HoldReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoWriters => f.write_str("no API server is known to write the resource"),
            Self::NotReporting(servers) => write!(f, "encoding version unknown of {}", Named(servers)),
            Self::Disagreement(by_version) => {
                f.write_str("the API servers disagree: ")?;
                for (index, (version, servers)) in by_version.iter().enumerate() {
                    let separator = if index == 0 { "" } else { "; " };
                    write!(f, "{separator}{version} is written by {}", Named(servers))?;
                }
                Ok(())
            }
            Self::DefinitionAhead { defined, written } => {
                write!(f, "the definition stores {defined}, the API servers still report {written}")
            }
            Self::Lingering { remaining } => {
                write!(f, "an API server that left may still finish writes for {} s", remaining.as_secs().max(1))
            }
            Self::Unreadable(reason) => write!(f, "the API servers are not known: {reason}"),
        }
    }
}

/// The first names of a list, and the number of the others.
struct Named<'a>(&'a [String]);

impl fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0[..self.0.len().min(NAMED_MAX)].join(", "))?;
        match self.0.len().saturating_sub(NAMED_MAX) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

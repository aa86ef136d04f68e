//! Storage migration: rewrites the objects of a resource until all are stored in the version that every server writes.
//!
//! The rules are pure: [`writers`] decides from evidence about the servers whether they agree, and [`AgreementTracker`]
//! whether an agreement is still the one that work was planned under. [`run::migrate`] executes a migration over a
//! [`run::MigrationPort`]. It plans from a survey, a scan of all stored objects at one revision; the plan is void as soon
//! as the agreement changes. A survey that finds nothing to do, between two equal observations of the writers, is the
//! proof that a migration is done; responses to rewrites prove nothing.

pub mod evidence;
pub mod run;
pub mod writers;

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

pub use evidence::{DefinitionState, reported_writers};
pub use run::{MigrationOutcome, MigrationPort, MigrationSettings, Progress, RewriteOutcome, migrate};
pub use writers::{AgreedWriters, HoldReason, Writer, WriterEvidence};

/// How an object is stored, as far as its envelope tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredForm<'a> {
    /// `apps/v1`; empty if it is encrypted and cannot be decrypted.
    pub api_version: &'a str,
    /// `application/json`; empty if it is encrypted and cannot be decrypted.
    pub media_type: &'a str,
    /// Provider and key, `aescbc:v1:key1`; empty for a plain value.
    pub encryption: &'a str,
}

/// The form in which all objects of a resource shall be stored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TargetForm {
    /// The encoding version, `apps/v1`.
    pub api_version: String,
    /// The media type; `None`: any.
    pub media_type: Option<String>,
    /// Provider and key as in [`StoredForm::encryption`], empty for plain values; `None`: any.
    pub encryption: Option<String>,
}

impl TargetForm {
    /// True if an object in this form needs no rewrite. A version that encryption hides is never accepted.
    pub fn accepts(&self, stored: &StoredForm<'_>) -> bool {
        stored.api_version == self.api_version
            && self.media_type.as_ref().is_none_or(|wanted| wanted == stored.media_type)
            && self.encryption.as_ref().is_none_or(|wanted| wanted == stored.encryption)
    }
}

/// An object that is stored in another form than the target.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StoredRef {
    /// Empty for cluster-scoped objects.
    pub namespace: String,
    /// The name of the object.
    pub name: String,
    /// The revision of its last write, which is its resourceVersion.
    pub revision: u64,
}

/// All stored objects of a resource at one revision, compared with a target form.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// The revision of the store at which everything was read.
    pub revision: u64,
    /// The number of objects.
    pub objects: u64,
    /// The number of objects in another form, including undecodable ones.
    pub outdated: u64,
    /// The first of them that are decodable, in the order of keys; at most [`WORK_MAX`].
    pub work: Vec<StoredRef>,
    /// Keys of values that cannot be decoded, at most [`NAMED_MAX`].
    pub undecodable: Vec<String>,
}

/// Objects that one survey plans to rewrite: the memory of a plan, and how often all keys are scanned again.
pub const WORK_MAX: usize = 5_000;
/// Objects that are named in messages; the rest is counted.
pub const NAMED_MAX: usize = 10;

impl Survey {
    /// Adds one object; `reference` is evaluated only if the object is outdated and there is room in the plan.
    pub fn add(&mut self, is_current: bool, reference: impl FnOnce() -> StoredRef) {
        self.objects += 1;
        if is_current {
            return;
        }
        self.outdated += 1;
        if self.work.len() < WORK_MAX {
            self.work.push(reference());
        }
    }

    /// Adds a value that no server can decode.
    pub fn add_undecodable(&mut self, key: &str) {
        (self.objects, self.outdated) = (self.objects + 1, self.outdated + 1);
        if self.undecodable.len() < NAMED_MAX {
            self.undecodable.push(key.to_owned());
        }
    }
}

/// The longest time between two migrations in which no server can join, write and leave unnoticed: less than a kube-apiserver
/// takes from its start to the removal of its identity lease.
const UNOBSERVED_MAX: Duration = Duration::from_secs(5);

/// The writers as the migrations of one process observed them last: what one of them has waited for, the next one need not
/// wait for again.
#[derive(Clone, Debug, Default)]
pub struct WriterHistory(Arc<Mutex<Option<ObservedWriters>>>);

#[derive(Clone, Debug)]
struct ObservedWriters {
    servers: BTreeSet<String>,
    last_departure: Instant,
    at: Instant,
}

/// Whether the writers agree now, and whether they did without interruption since the last observation.
#[derive(Debug)]
pub struct AgreementTracker {
    linger: Duration,
    agreed: Option<AgreedWriters>,
    /// `None` before the first observation.
    observed: Option<ObservedWriters>,
    history: WriterHistory,
}

/// An agreement compared with the one that was observed before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Continuity {
    /// The same version and the same writers.
    Unbroken,
    /// There was no agreement, or its version or its writers changed: plans made before are void.
    New,
}

impl AgreementTracker {
    /// Without an observation in `history` a server may have left just before the first one, so that an agreement counts only
    /// after `linger`: how long a stock kube-apiserver still writes after it removed its identity lease.
    pub fn new(linger: Duration, history: WriterHistory) -> Self {
        Self { linger, agreed: None, observed: None, history }
    }

    /// Judges an observation of the writers. On `Err` nothing may be written.
    pub fn observe(
        &mut self,
        evidence: &WriterEvidence,
        now: Instant,
    ) -> Result<(&AgreedWriters, Continuity), HoldReason> {
        let until = self.last_departure(evidence, now) + self.linger;
        let judged = evidence.judge().and_then(|agreed| match until > now {
            true => Err(HoldReason::Lingering { remaining: until - now }),
            false => Ok(agreed),
        });
        let agreed = match judged {
            Ok(agreed) => agreed,
            Err(reason) => {
                self.agreed = None;
                return Err(reason);
            }
        };
        let is_same = self.agreed.as_ref().is_some_and(|known| known.is_same_agreement(&agreed));
        let continuity = if is_same { Continuity::Unbroken } else { Continuity::New };
        Ok((self.agreed.insert(agreed), continuity))
    }

    /// The last time at which a server may have left.
    fn last_departure(&mut self, evidence: &WriterEvidence, now: Instant) -> Instant {
        let servers: BTreeSet<String> = evidence.servers().map(str::to_owned).collect();
        let mut history = self.history.0.lock();
        let recent = history.take().filter(|observed| now - observed.at <= UNOBSERVED_MAX);
        let departure_of_others = recent.as_ref().map(|observed| observed.last_departure);
        let before = self.observed.take().or(recent);
        let unbroken = before.filter(|before| before.servers.is_subset(&servers));
        let last_departure = unbroken.map_or(now, |before| before.last_departure);
        let observed = ObservedWriters { servers, last_departure, at: now };
        let latest = departure_of_others.map_or(last_departure, |departure| departure.max(last_departure));
        *history = Some(ObservedWriters { last_departure: latest, ..observed.clone() });
        self.observed = Some(observed);
        last_departure
    }
}

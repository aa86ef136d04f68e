//! Executes one migration: survey, rewrite in batches, survey again, until a survey proves that nothing is left.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::time::Instant;

use super::{
    AgreedWriters, AgreementTracker, Continuity, NAMED_MAX, StoredRef, Survey, TargetForm, WriterEvidence,
    WriterHistory,
};

/// Objects that are rewritten between two observations of the writers.
const BATCH: usize = 50;
/// After a batch the migration pauses this many times as long as the batch took: it uses a fifth of one connection.
const PAUSE_FACTOR: u32 = 4;
/// The longest pause after a batch.
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// How often objects that were refused are tried before the migration fails.
const REFUSED_ATTEMPTS: u32 = 3;
/// The backoff of an unavailable API or storage, and of refused objects.
const BACKOFF: tasks::Backoff = tasks::Backoff::new(Duration::from_millis(200), Duration::from_secs(30));

/// A cluster, seen by the migration of one resource. Implementations bound every call by a deadline.
pub trait MigrationPort: Send + Sync {
    /// Reads who writes the resource, not from a cache that may be behind.
    fn observe(&self) -> BoxFuture<'_, Result<WriterEvidence, String>>;

    /// Compares all stored objects with the target, at one revision that is not older than the call.
    fn survey<'a>(&'a self, target: &'a TargetForm) -> BoxFuture<'a, Result<Survey, String>>;

    /// Writes an object without changing it, through a server among the agreed writers, if it is still at its revision.
    fn rewrite<'a>(&'a self, object: &'a StoredRef, writers: &'a AgreedWriters) -> BoxFuture<'a, RewriteOutcome>;

    /// Shows how far the migration is.
    fn report<'a>(&'a self, progress: &'a Progress) -> BoxFuture<'a, ()>;
}

/// The response to a rewrite. Only a survey tells whether the object is stored in the target form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RewriteOutcome {
    /// The server accepted the write, or the object was changed or deleted meanwhile: look again.
    Answered,
    /// Admission, validation or authorization refused the write.
    Refused(String),
    /// No server executed the write, or none answered.
    Unavailable(String),
}

/// Settings of a migration.
#[derive(Clone, Debug, Default)]
pub struct MigrationSettings {
    /// How long a server may still write after it left.
    pub linger: Duration,
    /// The interval of observations while the migration is held.
    pub poll_interval: Duration,
    /// The media type and the encryption that are wanted besides the agreed version.
    pub form: TargetForm,
    /// Shared by the migrations of a process.
    pub history: WriterHistory,
}

/// How far a migration is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// The version that is written; empty before the first agreement.
    pub version: String,
    /// Objects of the resource at the last survey.
    pub objects: u64,
    /// Objects in another form, at most.
    pub outdated: u64,
    /// Writes that were accepted.
    pub rewritten: u64,
    /// The revision of the last survey; zero before it.
    pub surveyed_at: u64,
    /// Why nothing is written now; empty while the migration advances.
    pub waiting_for: String,
}

/// How a migration ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MigrationOutcome {
    /// At [`Progress::surveyed_at`] every object was in the target form, and no server writes another one.
    Proven(Progress),
    /// Objects that the servers refuse to write, or that cannot be decoded.
    Refused {
        /// Counts at the end.
        progress: Progress,
        /// The first of them, each with the reason.
        objects: Vec<String>,
    },
}

struct Migration<'a> {
    port: &'a dyn MigrationPort,
    settings: &'a MigrationSettings,
    tracker: AgreementTracker,
    progress: Progress,
    /// Refused objects of this attempt, with their reasons.
    refused: BTreeMap<StoredRef, String>,
    refused_attempts: u32,
    /// Outdated objects of the previous survey, if objects were rewritten since.
    outdated_before: Option<u64>,
    /// Failures in a row.
    failures: u32,
}

/// Rewrites the objects of one resource until a survey proves that all are in the target form. Waits for as long as the
/// servers disagree or are unavailable.
pub async fn migrate(port: &dyn MigrationPort, settings: &MigrationSettings) -> MigrationOutcome {
    let mut migration = Migration {
        port,
        settings,
        tracker: AgreementTracker::new(settings.linger, settings.history.clone()),
        progress: Progress::default(),
        refused: BTreeMap::new(),
        refused_attempts: 0,
        outdated_before: None,
        failures: 0,
    };
    loop {
        if let Some(outcome) = migration.run_plan().await {
            return outcome;
        }
    }
}

impl Migration<'_> {
    /// Plans from a new survey and executes the plan. `None`: a new plan is needed.
    async fn run_plan(&mut self) -> Option<MigrationOutcome> {
        let (agreed, _) = self.observe().await?;
        let target = TargetForm { api_version: agreed.version.clone(), ..self.settings.form.clone() };
        self.progress.version.clone_from(&agreed.version);
        let survey = match self.port.survey(&target).await {
            Ok(survey) => survey,
            Err(reason) => return self.back_off(reason).await,
        };
        (self.progress.objects, self.progress.outdated) = (survey.objects, survey.outdated);
        self.progress.surveyed_at = survey.revision;
        if survey.outdated == 0 {
            return self.confirm(&agreed).await;
        }
        if self.outdated_before.take().is_some_and(|before| survey.outdated >= before) {
            let returning = format!("{} objects are not stored as {}", survey.outdated, agreed.version);
            self.back_off::<()>(format!("{returning} although they were rewritten: is there another writer?")).await;
        }
        let work: Vec<StoredRef> =
            survey.work.iter().filter(|object| !self.refused.contains_key(object)).cloned().collect();
        if work.is_empty() {
            return self.end_attempt(&survey).await;
        }
        if self.rewrite_all(&work, &agreed).await {
            self.outdated_before = Some(survey.outdated);
        }
        None
    }

    /// A survey without outdated objects is the proof only if no server joined, left or changed its version since before it.
    async fn confirm(&mut self, before: &AgreedWriters) -> Option<MigrationOutcome> {
        let (after, continuity) = self.observe().await?;
        let is_proof = continuity == Continuity::Unbroken && after.marker == before.marker;
        is_proof.then(|| MigrationOutcome::Proven(self.progress.clone()))
    }

    /// Rewrites what was planned, while the agreement that it was planned under lasts. True if every write
    /// was accepted.
    async fn rewrite_all(&mut self, work: &[StoredRef], planned_under: &AgreedWriters) -> bool {
        let mut has_refusals = false;
        for (index, batch) in work.chunks(BATCH).enumerate() {
            if index > 0 {
                let Some((agreed, continuity)) = self.observe().await else { return false };
                if continuity == Continuity::New || !agreed.is_same_agreement(planned_under) {
                    return false;
                }
            }
            let started = Instant::now();
            for object in batch {
                match self.port.rewrite(object, planned_under).await {
                    RewriteOutcome::Answered => {
                        self.progress.rewritten += 1;
                        self.progress.outdated = self.progress.outdated.saturating_sub(1);
                        self.failures = 0;
                    }
                    RewriteOutcome::Refused(reason) => {
                        has_refusals = true;
                        self.refused.insert(object.clone(), reason);
                    }
                    RewriteOutcome::Unavailable(reason) => {
                        self.back_off::<()>(reason).await;
                        return false;
                    }
                }
            }
            self.progress.waiting_for.clear();
            self.port.report(&self.progress).await;
            if batch.len() == BATCH {
                tokio::time::sleep((started.elapsed() * PAUSE_FACTOR).min(PAUSE_MAX)).await;
            }
        }
        !has_refusals
    }

    /// Everything that is left was refused or cannot be decoded: tries the refused objects again, a few times.
    async fn end_attempt(&mut self, survey: &Survey) -> Option<MigrationOutcome> {
        self.refused_attempts += 1;
        let refused = std::mem::take(&mut self.refused);
        let describe = |object: &StoredRef, reason: &String| match object.namespace.is_empty() {
            true => format!("{}: {reason}", object.name),
            false => format!("{}/{}: {reason}", object.namespace, object.name),
        };
        let undecodable = survey.undecodable.iter().map(|key| format!("{key}: cannot be decoded"));
        let objects: Vec<String> = refused
            .iter()
            .map(|(object, reason)| describe(object, reason))
            .chain(undecodable)
            .take(NAMED_MAX)
            .collect();
        if self.refused_attempts >= REFUSED_ATTEMPTS {
            return Some(MigrationOutcome::Refused { progress: self.progress.clone(), objects });
        }
        self.failures = self.refused_attempts;
        self.back_off(format!("refused: {}", objects.join("; "))).await
    }

    /// The agreement, or `None` after a wait.
    async fn observe(&mut self) -> Option<(AgreedWriters, Continuity)> {
        let observed = match self.port.observe().await {
            Ok(evidence) => self.tracker.observe(&evidence, Instant::now()),
            Err(reason) => Err(super::HoldReason::Unreadable(reason)),
        };
        match observed {
            Ok((agreed, continuity)) => Some((agreed.clone(), continuity)),
            Err(reason) => {
                self.progress.waiting_for = reason.to_string();
                self.port.report(&self.progress).await;
                tokio::time::sleep(self.settings.poll_interval).await;
                None
            }
        }
    }

    async fn back_off<T>(&mut self, reason: String) -> Option<T> {
        self.progress.waiting_for = reason;
        self.port.report(&self.progress).await;
        self.failures += 1;
        tokio::time::sleep(BACKOFF.after(self.failures)).await;
        None
    }
}

//! The only path by which handlers write to storage. It records whether the request has written anything: after a
//! write, a failure of the same request must carry no retry hints.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use api::{GroupResource, Status};
use object::StoredObject;
use parking_lot::Mutex;
use registry::{DecidedWrite, WriteConditions, WriteDecision, WriteError, WriteOutcome};
use store::{Compare, Key, Op, Revision};

use super::RequestContext;
use super::companions::{COMPANION_ROUNDS_MAX, Companions, FoundCompanion};
use crate::error_status;
use crate::resource::Resource;

/// How often a write is decided again because of admission: once per webhook that is called, and for each conflict that
/// changes what webhooks are sent.
pub(super) const ADMISSION_ROUNDS_MAX: usize = 1000;

/// How long a write waits for the cache to reach the state of a companion that its commit found.
const COMPANION_WAIT_MAX: Duration = Duration::from_secs(1);

/// How long a write waits for the cache to reach the admission configurations that its commit found changed.
const CONFIGURATION_WAIT_MAX: Duration = Duration::from_secs(3);

/// The part of a request's time that is left for the response after a wait.
const RESPONSE_TIME: Duration = Duration::from_millis(500);

/// Whether a request has written to storage, or may have, and what it found on the way. One value per request, shared by
/// all its steps.
#[derive(Debug, Default)]
pub(super) struct ExecutionTracker {
    is_executed: AtomicBool,
    /// The revision of the store at which the definition of the resource was found changed; 0 if it was not.
    definition_changed_at: AtomicU64,
    warnings: Mutex<Vec<String>>,
    /// Warnings about the body that a refusal shows too; successful responses get them from the handler.
    body_warnings: Mutex<Vec<String>>,
    pub(super) companions: Companions,
    pub(super) quota: super::quota::QuotaCharges,
    pub(super) allocation: super::allocation::AllocationProgress,
}

impl ExecutionTracker {
    fn record_outcome<E>(&self, written: &Result<WriteOutcome, WriteError<E>>) {
        let is_executed = match written {
            Ok(WriteOutcome::Put(_) | WriteOutcome::Deleted(_))
            | Err(WriteError::Store(store::Error::OutcomeUnknown { .. })) => true,
            Ok(WriteOutcome::Unchanged) => false,
            Err(
                WriteError::Refused(_)
                | WriteError::BarrierClosed(_)
                | WriteError::Read(_)
                | WriteError::Store(_)
                | WriteError::ConditionChanged { .. }
                | WriteError::CompanionChanged { .. }
                | WriteError::ComputationRefused
                | WriteError::TooManyConflicts,
            ) => false,
        };
        if is_executed {
            self.is_executed.store(true, Ordering::Relaxed);
        }
    }

    /// Records that a write failed because the fence of its definition changed.
    fn record_changed_fence<E>(&self, written: &Result<WriteOutcome, WriteError<E>>, fence: Option<&Compare>) {
        if let (Err(WriteError::ConditionChanged { key, as_of }), Some(fence)) = (written, fence)
            && *key == fence.key
        {
            self.definition_changed_at.store(as_of.0, Ordering::Relaxed);
        }
    }

    pub(super) fn is_executed(&self) -> bool {
        self.is_executed.load(Ordering::Relaxed)
    }

    /// True if a write failed because the definition of its resource changed in the meantime.
    pub(super) fn is_definition_changed(&self) -> bool {
        self.definition_changed_at() != Revision(0)
    }

    /// The revision that the definitions must reach before the request is tried again; 0 if none changed.
    pub(super) fn definition_changed_at(&self) -> Revision {
        Revision(self.definition_changed_at.load(Ordering::Relaxed))
    }

    /// Drops the warnings of an earlier attempt.
    pub(super) fn clear_warnings(&self) {
        self.warnings.lock().clear();
    }

    pub(super) fn add_warnings(&self, warnings: impl IntoIterator<Item = String>) {
        self.warnings.lock().extend(warnings);
    }

    pub(super) fn take_warnings(&self) -> Vec<String> {
        std::mem::take(&mut self.warnings.lock())
    }

    /// Replaces the warnings about the body, which a patch has once per attempt.
    pub(super) fn set_body_warnings(&self, warnings: &[String]) {
        warnings.clone_into(&mut self.body_warnings.lock());
    }

    /// The final Status of a failed request, with the warnings so far. After a write it carries no hints that make the
    /// client or a forwarding server retry the request.
    pub(super) fn failure_status(&self, status: Status) -> Status {
        let mut status = if self.is_executed() { status.without_retry_hints() } else { status };
        status.warnings.append(&mut self.body_warnings.lock());
        status.warnings.append(&mut self.warnings.lock());
        status
    }
}

impl RequestContext<'_> {
    /// Waits for the turn that a decision needs, or performs the conversions, calls of admission webhooks or reads of
    /// companions that it found missing. False if the refusal counts.
    pub(super) async fn resolve_refusal(self, resource: &Resource) -> Result<bool, Status> {
        if self.resolve_allocation().await? {
            return Ok(true);
        }
        // Webhooks may take long.
        self.execution.allocation.end_turn(None);
        if resource.run_conversions().await? || self.admission.resolve(self.server).await? {
            return Ok(true);
        }
        let read = self.execution.companions.read_requested(&self.server.registry).await;
        read.map_err(error_status::status_for_read_error)
    }

    /// Calls `decide` with the current object of a key and writes the decision, provided that `conditions` hold. A write
    /// of a custom object waits, within the deadline of the request, until its storage version is published.
    pub(super) async fn persist(
        self,
        resource: &Resource,
        key: &Key,
        conditions: &[Compare],
        mut decide: impl FnMut(Option<&StoredObject>) -> Result<WriteDecision, Status>,
    ) -> Result<WriteOutcome, WriteError<Status>> {
        let registry = &self.server.registry;
        let fence = resource.as_custom().map(|(live, _)| &live.fence);
        let guard = self.server.admission.guard();
        let ops: Vec<Op> = match (guard, resource.strategy().admission) {
            (Some(guard), Some(_)) => vec![guard.change()],
            (None, _) | (_, None) => Vec::new(),
        };
        let companions = &self.execution.companions;
        let mut decide = |current: Option<&StoredObject>| {
            self.admission.begin_decision();
            companions.begin_decision();
            self.execution.quota.begin_decision();
            self.execution.allocation.begin_decision();
            resource.conversions().inspect(|conversions| conversions.clear_pending());
            let decision = decide(current)?;
            let computed = self.computed_charge(&decision);
            Ok(DecidedWrite { decision, companions: companions.take_writes(), computed })
        };
        let (mut rounds, mut companion_rounds) = (0, 0);
        let name = resource.storage_name();
        self.take_allocation_turn_for_create().await.map_err(WriteError::Refused)?;
        let written = loop {
            let guarded = self.guard_condition().await.map_err(WriteError::Refused)?;
            let compares: Vec<Compare> = conditions.iter().chain(fence).cloned().chain(guarded).collect();
            let conditions = WriteConditions { compares: &compares, ops: &ops };
            let (cache, is_attempt) = (&resource.cache, || self.admission.has_pending_calls());
            let written = registry.write_in_attempts(name, cache, key, conditions, &mut decide, is_attempt).await;
            let is_tried_again = match &written {
                // Webhooks or policies changed: the decision is made again under the new ones.
                Err(WriteError::ConditionChanged { key, as_of }) if guard.is_some_and(|guard| guard.key() == key) => {
                    rounds += 1;
                    self.wait_for_configurations(*as_of).await.map_err(WriteError::Refused)?;
                    true
                }
                Err(WriteError::CompanionChanged { key, current, as_of }) => {
                    companion_rounds += 1;
                    companions.record(key.clone(), FoundCompanion { entry: current.clone(), as_of: *as_of });
                    // The next decision may read the companion from the cache.
                    let remaining = self.deadline.saturating_duration_since(tokio::time::Instant::now());
                    let _ = registry.cache().wait_for_revision(*as_of, COMPANION_WAIT_MAX.min(remaining)).await;
                    !remaining.is_zero()
                }
                Err(WriteError::ComputationRefused) => {
                    companion_rounds += 1;
                    match self.resolve_uncharged().await {
                        Ok(()) => self.deadline > tokio::time::Instant::now(),
                        Err(status) => break Err(WriteError::Refused(status)),
                    }
                }
                // A decision that a conversion or the answer of a webhook was missing for is made again with it.
                Err(WriteError::Refused(_)) => {
                    rounds += 1;
                    Box::pin(self.resolve_refusal(resource)).await.map_err(WriteError::Refused)?
                }
                // The storage version of a custom resource is about to be published.
                Err(WriteError::BarrierClosed(_)) if fence.is_some() => self.wait_until_permitted(name).await,
                Ok(_) | Err(_) => false,
            };
            if !is_tried_again {
                break written;
            }
            if rounds == ADMISSION_ROUNDS_MAX || companion_rounds == COMPANION_ROUNDS_MAX {
                break Err(WriteError::TooManyConflicts);
            }
        };
        self.execution.record_changed_fence(&written, fence);
        self.admission.observe_checks(self.server);
        self.end_turns(&written);
        self.execution.record_outcome(&written);
        written
    }

    /// Ends the turns of the request. After a commit the next request decides on what this one wrote.
    fn end_turns(self, written: &Result<WriteOutcome, WriteError<Status>>) {
        let (put_at, changed_at) = match written {
            Ok(WriteOutcome::Put(stored)) => (Some(Revision(stored.revision)), Some(Revision(stored.revision))),
            Ok(WriteOutcome::Deleted(revision)) => (None, Some(*revision)),
            Ok(WriteOutcome::Unchanged) | Err(_) => (None, None),
        };
        self.end_charges(put_at.is_some());
        self.execution.allocation.end_turn(changed_at);
    }

    /// The condition that the webhooks and policies of the cache are those in force.
    async fn guard_condition(self) -> Result<Option<Compare>, Status> {
        let Some(guard) = self.server.admission.guard() else { return Ok(None) };
        let (condition, revision) = guard.condition();
        // The key may be in the cache a moment before the configuration that was written with it.
        if self.server.registry.cache().applied_revision() < revision {
            self.wait_for_configurations(revision).await?;
        }
        Ok(Some(condition))
    }

    async fn wait_for_configurations(self, revision: Revision) -> Result<(), Status> {
        match self.server.registry.cache().wait_for_revision(revision, CONFIGURATION_WAIT_MAX).await {
            Ok(true) => Ok(()),
            Ok(false) | Err(_) => {
                let behind = "admission configurations changed, and the cache has not caught up with storage";
                Err(Status::service_unavailable(behind).with_retry_after(1))
            }
        }
    }

    /// False if writes of the resource are not permitted shortly before the deadline of the request: then there is still
    /// time to respond with the reason.
    async fn wait_until_permitted(self, resource: GroupResource<&str>) -> bool {
        let Some(limit) = self.deadline.checked_sub(RESPONSE_TIME) else { return false };
        tokio::time::timeout_at(limit, self.server.registry.wait_until_permitted(resource)).await.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use registry::BarrierClosed;

    use super::*;
    use crate::error_status::status_for_write_error;

    #[test]
    fn failure_after_write_has_no_retry_after() {
        let held = || WriteError::BarrierClosed(BarrierClosed { reason: "held".to_owned() });
        let unavailable = || WriteError::Store(store::Error::Unavailable { reason: "gone".to_owned() });
        let failures: [fn() -> WriteError<Status>; 2] = [held, unavailable];
        for failure in failures {
            let executed = ExecutionTracker::default();
            executed.record_outcome(&Ok::<_, WriteError<()>>(WriteOutcome::Unchanged));
            executed.record_outcome(&Err::<WriteOutcome, _>(failure()));
            let untouched = executed.failure_status(status_for_write_error(failure()));
            assert_eq!(untouched, status_for_write_error(failure()), "nothing was executed");
            assert_eq!(untouched.retry_after(), Some(1));
            executed.record_outcome(&Ok::<_, WriteError<()>>(WriteOutcome::Deleted(store::Revision(7))));
            let status = executed.failure_status(status_for_write_error(failure()));
            assert_eq!((status.retry_after(), status.has_cause("PeerNotReady")), (None, false), "{status:?}");
            assert!(!status.to_json().windows(10).any(|part| part == b"retryAfter"), "{status:?}");
        }
        let executed = ExecutionTracker::default();
        let unresolved = store::Error::OutcomeUnknown { reason: "cut".to_owned() };
        executed.record_outcome(&Err::<WriteOutcome, WriteError<()>>(WriteError::Store(unresolved)));
        assert_eq!(executed.failure_status(status_for_write_error(held())).retry_after(), None, "it may have happened");
    }
}

//! The only path by which handlers write to storage. It records whether the request has written anything: after a
//! write, a failure of the same request must carry no retry hints.

use std::sync::atomic::{AtomicBool, Ordering};

use api::Status;
use object::StoredObject;
use registry::{WriteConditions, WriteDecision, WriteError, WriteOutcome};
use store::{Compare, Key};

use super::RequestContext;
use crate::resource::Resource;

/// Whether a request has written to storage, or may have. One value per request, shared by all its steps.
#[derive(Debug, Default)]
pub(super) struct ExecutionTracker(AtomicBool);

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
                | WriteError::TooManyConflicts,
            ) => false,
        };
        if is_executed {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    /// The final Status of a failed request. After a write it carries no hints that make the client or a forwarding
    /// server retry the request.
    pub(super) fn failure_status(&self, status: Status) -> Status {
        if self.0.load(Ordering::Relaxed) { status.without_retry_hints() } else { status }
    }
}

impl RequestContext<'_> {
    /// Calls `decide` with the current object of a key and writes the decision, provided that `conditions` hold.
    pub(super) async fn persist(
        self,
        resource: &Resource,
        key: &Key,
        conditions: &[Compare],
        decide: impl FnMut(Option<&StoredObject>) -> Result<WriteDecision, Status>,
    ) -> Result<WriteOutcome, WriteError<Status>> {
        let conditions = WriteConditions::unchanged(conditions);
        let registry = &self.server.registry;
        let written = registry.write_if(resource.storage_name(), &resource.cache, key, conditions, decide).await;
        self.execution.record_outcome(&written);
        written
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

//! The one way of a handler into storage. It records whether the request has written anything, because that decides what a
//! later failure of the same request may say.

use std::sync::atomic::{AtomicBool, Ordering};

use api::{GroupResource, Status};
use object::Stored;
use registry::{Decision, WriteError, Written};
use store::{Compare, Key};

use super::Context;
use crate::Resource;

/// Whether a request has written to storage, or may have. One value per request, shared by all its steps.
#[derive(Debug, Default)]
pub(super) struct Executed(AtomicBool);

impl Executed {
    fn note<E>(&self, written: &Result<Written, WriteError<E>>) {
        let is_executed = match written {
            Ok(Written::Put(_) | Written::Deleted(_)) | Err(WriteError::Store(store::Error::Unresolved { .. })) => true,
            Ok(Written::Kept) => false,
            Err(
                WriteError::Refused(_)
                | WriteError::Held(_)
                | WriteError::Read(_)
                | WriteError::Store(_)
                | WriteError::Moved
                | WriteError::Busy,
            ) => false,
        };
        if is_executed {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    /// The Status with which a failed request ends: after a write it asks neither the client nor a forwarding server to
    /// repeat the request.
    pub(super) fn failure(&self, status: Status) -> Status {
        if self.0.load(Ordering::Relaxed) { peering::status::executed_in_part(status) } else { status }
    }
}

impl Context<'_> {
    /// Decides on what a key of a resource holds and writes the decision, while `beside` is as it was seen.
    pub(super) async fn persist(
        self,
        resource: Resource<'_>,
        key: &Key,
        beside: Option<&Compare>,
        decide: impl FnMut(Option<&Stored>) -> Result<Decision, Status>,
    ) -> Result<Written, WriteError<Status>> {
        let persisted = resource.served.persisted.as_ref().expect("a bound resource is persisted");
        let name = GroupResource { group: persisted.encoding.group, resource: persisted.resource };
        let written = self.server.registry.write_beside(name, resource.shelf, key, beside, decide).await;
        self.executed.note(&written);
        written
    }
}

#[cfg(test)]
mod tests {
    use registry::Held;

    use super::*;
    use crate::faults::unwritten;

    #[test]
    fn failure_after_a_write_asks_for_no_repetition() {
        let held = || WriteError::Held(Held { reason: "held".to_owned() });
        let unavailable = || WriteError::Store(store::Error::Unavailable { reason: "gone".to_owned() });
        let failures: [fn() -> WriteError<Status>; 2] = [held, unavailable];
        for failure in failures {
            let executed = Executed::default();
            executed.note(&Ok::<_, WriteError<()>>(Written::Kept));
            executed.note(&Err::<Written, _>(failure()));
            let untouched = executed.failure(unwritten(failure()));
            assert_eq!(untouched, unwritten(failure()), "nothing was executed");
            assert_eq!(untouched.retry_after(), Some(1));
            executed.note(&Ok::<_, WriteError<()>>(Written::Deleted(store::Revision(7))));
            let status = executed.failure(unwritten(failure()));
            assert_eq!((status.retry_after(), status.has_cause("PeerNotReady")), (None, false), "{status:?}");
            assert!(!status.to_json().windows(10).any(|part| part == b"retryAfter"), "{status:?}");
        }
        let executed = Executed::default();
        let unresolved = store::Error::Unresolved { reason: "cut".to_owned() };
        executed.note(&Err::<Written, WriteError<()>>(WriteError::Store(unresolved)));
        assert_eq!(executed.failure(unwritten(held())).retry_after(), None, "it may have happened");
    }
}

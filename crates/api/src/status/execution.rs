//! The causes by which a server tells a peer that it executed nothing of a forwarded request.

use super::Status;

/// Cause of a server that is still starting and refuses a forwarded write.
pub const CAUSE_PEER_NOT_READY: &str = "PeerNotReady";
/// Cause of a server that does not serve what was forwarded to it.
pub const CAUSE_NOT_SERVED_BY_PEER: &str = "NotServedByPeer";

const NOT_EXECUTED_CAUSES: [&str; 2] = [CAUSE_PEER_NOT_READY, CAUSE_NOT_SERVED_BY_PEER];

impl Status {
    /// True if the server that sent this status executed nothing: the forwarder may try the next peer, whatever the verb.
    pub fn was_not_executed(&self) -> bool {
        self.http_code() == 503 && NOT_EXECUTED_CAUSES.iter().any(|cause| self.has_cause(cause))
    }

    /// The failure of a request some of which was executed: without `Retry-After`, on which clients repeat any verb, and without
    /// the causes on which the forwarder tries the next peer.
    #[must_use]
    pub fn without_retry_hints(mut self) -> Self {
        let has_retry_hint = self.retry_after().is_some() || self.was_not_executed();
        if let Some(details) = self.details.as_mut().filter(|_| has_retry_hint) {
            details.retry_after_seconds = 0;
            details.causes.retain(|cause| !NOT_EXECUTED_CAUSES.contains(&&*cause.reason));
            self.message.push_str("; the request was executed in part");
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_of_partly_executed_request_has_no_retry_hints() {
        for cause in ["None", CAUSE_PEER_NOT_READY, CAUSE_NOT_SERVED_BY_PEER] {
            let status = Status::service_unavailable("no").with_retry_after(1).with_cause(cause, "");
            let partial = status.with_cause("Other", "").without_retry_hints();
            assert!(partial.retry_after().is_none() && !partial.was_not_executed() && partial.has_cause("Other"));
            assert!(partial.message.ends_with("; the request was executed in part"), "{}", partial.message);
        }
        let conflict = Status::bad_request("no").with_cause("Other", "");
        assert_eq!(conflict.clone().without_retry_hints(), conflict, "a status without hints stays as it is");
    }

    #[test]
    fn not_executed_causes_are_recognised() {
        let read_back = |status: Status| Status::from_json(&status.to_json()).unwrap();
        for cause in NOT_EXECUTED_CAUSES {
            assert!(read_back(Status::service_unavailable("no").with_cause(cause, "")).was_not_executed());
            assert!(!read_back(Status::bad_request("no").with_cause(cause, "")).was_not_executed());
        }
        assert!(!read_back(Status::service_unavailable("no").with_cause("Other", "")).was_not_executed());
    }
}

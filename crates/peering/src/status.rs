//! What clients are told when a request cannot be served now.
//!
//! Every text is a 503 `Status` that says which rule fired and leaks no address. `Retry-After` goes with it only if nothing was
//! executed, because clients repeat any verb on it.

use api::Status;

use crate::route::{IncompleteViewReason, UnavailableReason};

/// A peer that is still starting refuses a forwarded write with this cause: nothing was executed, the next one may be tried.
pub const CAUSE_PEER_NOT_READY: &str = "PeerNotReady";
/// A peer that does not serve what was forwarded to it refuses with this cause; nothing was executed either.
pub const CAUSE_NOT_SERVED_BY_PEER: &str = "NotServedByPeer";

/// The causes by which a peer says that it executed nothing.
const NOT_EXECUTED_CAUSES: [&str; 2] = [CAUSE_PEER_NOT_READY, CAUSE_NOT_SERVED_BY_PEER];

/// KEP-4020, "Aggregation Layer" 5.
const PROXY_FAILED: &str = "Error while proxying request to destination apiserver";
/// Soon: members come back within seconds, and views catch up within milliseconds.
const RETRY_AFTER_SECONDS: u32 = 1;

/// Whether a request that failed on the way to a peer was executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Execution {
    /// Certainly not: it was never sent, or was handed back.
    None,
    /// It was sent, and it only reads.
    Harmless,
    /// It was sent, and nobody knows what became of it.
    Unknown,
}

/// The answer to a request that no rule could place.
pub fn unavailable_status(reason: UnavailableReason) -> Status {
    let text = match reason {
        UnavailableReason::ForwardedButNotServed => {
            "this API server was asked by another one for a resource that it does not serve"
        }
        UnavailableReason::DefinedButNotServed => {
            "the resource is defined, and no API server that can be reached serves it yet"
        }
        UnavailableReason::OnlyUnreachableMembers => {
            "the resource is served only by API servers that cannot be reached now"
        }
        UnavailableReason::ViewIncomplete(IncompleteViewReason::NotSynced) => {
            "this API server has started and does not know yet what the others serve"
        }
        UnavailableReason::ViewIncomplete(IncompleteViewReason::MemberUnknown) => {
            "the resource may be served by an API server that has not said yet what it serves"
        }
        UnavailableReason::ViewIncomplete(IncompleteViewReason::MemberMute) => {
            "the resource may be served by an API server that does not say what it serves"
        }
        UnavailableReason::AbsenceNotProven => "storage cannot be asked whether any API server serves the resource",
    };
    let status = Status::service_unavailable(format!("{text} (routing rule {})", reason.rule()));
    let status = status.with_retry_after(RETRY_AFTER_SECONDS);
    match reason {
        UnavailableReason::ForwardedButNotServed => status.with_cause(CAUSE_NOT_SERVED_BY_PEER, text),
        UnavailableReason::DefinedButNotServed
        | UnavailableReason::OnlyUnreachableMembers
        | UnavailableReason::ViewIncomplete(_)
        | UnavailableReason::AbsenceNotProven => status,
    }
}

/// The answer to a forwarded write while this server is still joining.
pub fn peer_not_ready_status() -> Status {
    let text = "this API server is starting and takes no writes from others yet";
    Status::service_unavailable(text).with_retry_after(RETRY_AFTER_SECONDS).with_cause(CAUSE_PEER_NOT_READY, text)
}

/// The answer to a request that no peer has answered.
pub fn proxy_failed_status(execution: Execution) -> Status {
    match execution {
        Execution::None | Execution::Harmless => {
            Status::service_unavailable(PROXY_FAILED).with_retry_after(RETRY_AFTER_SECONDS)
        }
        Execution::Unknown => Status::service_unavailable(format!(
            "{PROXY_FAILED}: the request was sent, and it is not known whether it was executed"
        )),
    }
}

/// The answer to a user of a client certificate if no API server that can serve the request is known to read such users from
/// the same headers as we write.
pub fn not_vouched_status() -> Status {
    let text = "the API servers that can serve the request cannot be asked for a user of a client certificate: their \
                --requestheader-* settings differ from this proxy's or were not compared yet; a bearer token works";
    Status::service_unavailable(text).with_retry_after(RETRY_AFTER_SECONDS)
}

/// The failure of a request some of which was executed: it carries neither `Retry-After`, on which clients repeat any verb, nor
/// a cause on which the forwarding server tries the next peer.
pub fn without_retry_hints(mut status: Status) -> Status {
    let has_retry_hint = status.retry_after().is_some() || was_not_executed(&status);
    if let Some(details) = status.details.as_mut().filter(|_| has_retry_hint) {
        details.retry_after_seconds = 0;
        details.causes.retain(|cause| !NOT_EXECUTED_CAUSES.contains(&&*cause.reason));
        status.message.push_str("; the request was executed in part");
    }
    status
}

/// Whether a peer's answer says that it executed nothing, so that the next one may be tried whatever the verb.
pub fn was_not_executed(status: &Status) -> bool {
    status.http_code() == 503 && NOT_EXECUTED_CAUSES.iter().any(|cause| status.has_cause(cause))
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    #[track_caller]
    fn check(status: &Status, expected: &Expect) {
        assert_eq!((status.http_code(), status.reason.as_str()), (503, "ServiceUnavailable"));
        let retry = status.retry_after().map_or_else(String::new, |seconds| format!(" [retry {seconds}]"));
        expected.assert_eq(&format!("{}{retry}", status.message));
    }

    #[test]
    fn status_of_partly_executed_request_has_no_retry_hints() {
        for status in [
            peer_not_ready_status(),
            unavailable_status(UnavailableReason::ForwardedButNotServed),
            proxy_failed_status(Execution::None),
        ] {
            let partial = without_retry_hints(status.with_cause("Other", ""));
            assert!(partial.retry_after().is_none() && !was_not_executed(&partial) && partial.has_cause("Other"));
            assert!(partial.message.ends_with("; the request was executed in part"), "{}", partial.message);
        }
        let conflict = Status::bad_request("no").with_cause("Other", "");
        assert_eq!(without_retry_hints(conflict.clone()), conflict, "it asks for no repetition anyway");
    }

    #[test]
    fn unavailable_status_names_reason_and_rule() {
        check(
            &unavailable_status(UnavailableReason::ForwardedButNotServed),
            &expect![
                "this API server was asked by another one for a resource that it does not serve (routing rule 2) [retry 1]"
            ],
        );
        check(
            &unavailable_status(UnavailableReason::DefinedButNotServed),
            &expect![
                "the resource is defined, and no API server that can be reached serves it yet (routing rule 4) [retry 1]"
            ],
        );
        check(
            &unavailable_status(UnavailableReason::OnlyUnreachableMembers),
            &expect![
                "the resource is served only by API servers that cannot be reached now (routing rule 5) [retry 1]"
            ],
        );
        check(
            &unavailable_status(UnavailableReason::ViewIncomplete(IncompleteViewReason::NotSynced)),
            &expect![
                "this API server has started and does not know yet what the others serve (routing rule 6) [retry 1]"
            ],
        );
        check(
            &unavailable_status(UnavailableReason::ViewIncomplete(IncompleteViewReason::MemberUnknown)),
            &expect![
                "the resource may be served by an API server that has not said yet what it serves (routing rule 6) [retry 1]"
            ],
        );
        check(
            &unavailable_status(UnavailableReason::ViewIncomplete(IncompleteViewReason::MemberMute)),
            &expect![
                "the resource may be served by an API server that does not say what it serves (routing rule 6) [retry 1]"
            ],
        );
        check(
            &unavailable_status(UnavailableReason::AbsenceNotProven),
            &expect!["storage cannot be asked whether any API server serves the resource (routing rule 7) [retry 1]"],
        );
    }

    #[test]
    fn unknown_execution_has_no_retry_after() {
        for execution in [Execution::None, Execution::Harmless] {
            check(
                &proxy_failed_status(execution),
                &expect!["Error while proxying request to destination apiserver [retry 1]"],
            );
        }
        check(
            &proxy_failed_status(Execution::Unknown),
            &expect![
                "Error while proxying request to destination apiserver: the request was sent, and it is not known whether it was executed"
            ],
        );
    }

    #[test]
    fn not_executed_causes_are_recognised() {
        let read_back = |status: Status| Status::from_json(&status.to_json()).unwrap();
        assert!(was_not_executed(&read_back(peer_not_ready_status())));
        assert!(was_not_executed(&read_back(unavailable_status(UnavailableReason::ForwardedButNotServed))));
        assert!(!was_not_executed(&read_back(unavailable_status(UnavailableReason::OnlyUnreachableMembers))));
        assert!(!was_not_executed(&read_back(proxy_failed_status(Execution::Unknown))));
        assert!(!was_not_executed(&Status::bad_request("no").with_cause(CAUSE_PEER_NOT_READY, "")));
    }
}

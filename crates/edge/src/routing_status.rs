//! The responses to requests that cannot be routed now, or that no other server answered.
//!
//! Each leaks no address; one about routing names its rule. `Retry-After` goes with it only if nothing was executed, because
//! clients repeat any verb on it.

use api::Status;
use api::status::{CAUSE_NOT_SERVED_BY_PEER, CAUSE_PEER_NOT_READY};

use forward::{Execution, ForwardError};
use membership::route::{IncompleteViewReason, UnavailableReason};

/// KEP-4020, "Aggregation Layer" 5.
const PROXY_FAILED: &str = "Error while proxying request to destination apiserver";
/// Servers come back within seconds; busy ones finish requests, and views catch up, within milliseconds.
const RETRY_AFTER_SECONDS: u32 = 1;

/// The response to a request that cannot be served now.
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
    let status = Status::service_unavailable(format!("{text} (routing rule {})", reason.routing_rule()));
    let status = status.with_retry_after(RETRY_AFTER_SECONDS);
    match reason {
        UnavailableReason::ForwardedButNotServed => status.with_cause(CAUSE_NOT_SERVED_BY_PEER, text),
        UnavailableReason::DefinedButNotServed
        | UnavailableReason::OnlyUnreachableMembers
        | UnavailableReason::ViewIncomplete(_)
        | UnavailableReason::AbsenceNotProven => status,
    }
}

/// The response to a forwarded write while this server is still joining.
pub fn peer_not_ready_status() -> Status {
    let text = "this API server is starting and takes no writes from others yet";
    Status::service_unavailable(text).with_retry_after(RETRY_AFTER_SECONDS).with_cause(CAUSE_PEER_NOT_READY, text)
}

/// The response to a request that no candidate answered.
pub fn forward_error_status(error: &ForwardError) -> Status {
    match error {
        ForwardError::Overloaded(rejection) => Status::too_many_requests(
            format!("too many requests: all capable API servers are at their in-flight limit; {rejection}"),
            RETRY_AFTER_SECONDS,
        ),
        ForwardError::NotVouched => Status::service_unavailable(
            "the API servers that can serve the request cannot be asked for a user of a client certificate: their \
                 --requestheader-* settings differ from this proxy's or were not compared yet; a bearer token works",
        )
        .with_retry_after(RETRY_AFTER_SECONDS),
        // As if the request were served here.
        ForwardError::ClientAborted => Status::bad_request(error.to_string()),
        ForwardError::NoEndpoint | ForwardError::Failed { .. } | ForwardError::TimedOut { .. } => {
            proxy_failed_status(error.execution())
        }
    }
}

fn proxy_failed_status(execution: Execution) -> Status {
    match execution {
        Execution::None | Execution::Harmless => {
            Status::service_unavailable(PROXY_FAILED).with_retry_after(RETRY_AFTER_SECONDS)
        }
        Execution::Unknown => Status::service_unavailable(format!(
            "{PROXY_FAILED}: the request was sent, and it is not known whether it was executed"
        )),
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use forward::QueueRejection;

    use super::*;

    #[track_caller]
    fn check(status: &Status, expected: &Expect) {
        assert_eq!((status.http_code(), status.reason.as_str()), (503, "ServiceUnavailable"));
        let retry = status.retry_after().map_or_else(String::new, |seconds| format!(" [retry {seconds}]"));
        expected.assert_eq(&format!("{}{retry}", status.message));
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
    fn peer_that_executed_nothing_says_so() {
        assert!(peer_not_ready_status().was_not_executed());
        assert!(unavailable_status(UnavailableReason::ForwardedButNotServed).was_not_executed());
        assert!(!unavailable_status(UnavailableReason::OnlyUnreachableMembers).was_not_executed());
    }

    #[test]
    fn overloaded_is_429_with_retry_after() {
        let check = |rejection: QueueRejection, expected: Expect| {
            let status = forward_error_status(&ForwardError::Overloaded(rejection));
            assert_eq!((status.http_code(), status.retry_after()), (429, Some(1)));
            expected.assert_eq(&status.message);
        };
        check(
            QueueRejection::UserQueueFull,
            expect![
                "too many requests: all capable API servers are at their in-flight limit; too many requests of this user are queued"
            ],
        );
        check(
            QueueRejection::QueueFull,
            expect![
                "too many requests: all capable API servers are at their in-flight limit; too many requests are queued"
            ],
        );
        check(
            QueueRejection::Evicted,
            expect![
                "too many requests: all capable API servers are at their in-flight limit; this request was evicted from the queue in favour of a less busy user"
            ],
        );
        check(
            QueueRejection::TimedOut,
            expect![
                "too many requests: all capable API servers are at their in-flight limit; this request was queued for the longest allowed time"
            ],
        );
        assert_eq!(forward_error_status(&ForwardError::NoEndpoint), proxy_failed_status(Execution::None));
    }

    #[test]
    fn incomplete_body_is_the_fault_of_the_client() {
        let status = forward_error_status(&ForwardError::ClientAborted);
        assert_eq!((status.http_code(), status.retry_after()), (400, None));
        assert_eq!(status.message, "the request body could not be read");
    }

    #[test]
    fn unknown_execution_has_no_retry_after() {
        let describe = |execution| {
            let status = forward_error_status(&ForwardError::TimedOut { execution });
            assert_eq!((status.http_code(), status.reason.as_str()), (503, "ServiceUnavailable"));
            format!("{} {:?}", status.message, status.retry_after())
        };
        for execution in [Execution::None, Execution::Harmless] {
            expect!["Error while proxying request to destination apiserver Some(1)"].assert_eq(&describe(execution));
        }
        expect![
            "Error while proxying request to destination apiserver: the request was sent, and it is not known whether it was executed None"
        ]
        .assert_eq(&describe(Execution::Unknown));
    }
}

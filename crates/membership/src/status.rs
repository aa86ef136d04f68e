//! The responses to requests that cannot be routed now.
//!
//! Each is a 503 `Status` that names the routing rule and leaks no address. Nothing was executed, so `Retry-After` goes with
//! it, on which clients repeat any verb.

use api::Status;
use api::status::{CAUSE_NOT_SERVED_BY_PEER, CAUSE_PEER_NOT_READY};

use crate::route::{IncompleteViewReason, UnavailableReason};

/// Members come back within seconds, and views catch up within milliseconds.
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

/// The response to a forwarded write while this server is still joining.
pub fn peer_not_ready_status() -> Status {
    let text = "this API server is starting and takes no writes from others yet";
    Status::service_unavailable(text).with_retry_after(RETRY_AFTER_SECONDS).with_cause(CAUSE_PEER_NOT_READY, text)
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
}

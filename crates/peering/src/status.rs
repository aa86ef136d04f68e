//! What clients are told when a request cannot be served now.
//!
//! Every text is a 503 `Status` that says which rule fired and leaks no address. `Retry-After` goes with it only if nothing was
//! executed, because clients repeat any verb on it.

use api::Status;

use crate::route::{Unavailable, Unheard};

/// A peer that is still starting refuses a forwarded write with this cause: nothing was executed, the next one may be tried.
pub const CAUSE_PEER_NOT_READY: &str = "PeerNotReady";
/// A peer that does not serve what was forwarded to it refuses with this cause; nothing was executed either.
pub const CAUSE_NOT_SERVED_BY_PEER: &str = "NotServedByPeer";

/// The causes by which a peer says that it executed nothing.
const HANDED_BACK: [&str; 2] = [CAUSE_PEER_NOT_READY, CAUSE_NOT_SERVED_BY_PEER];

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
pub fn unavailable(why: Unavailable) -> Status {
    let text = match why {
        Unavailable::ForwardedButUnknown => {
            "this API server was asked by another one for a resource that it does not serve"
        }
        Unavailable::OnlyDefined => "the resource is defined, and no API server that can be reached serves it yet",
        Unavailable::OnlySuspects => "the resource is served only by API servers that cannot be reached now",
        Unavailable::Unheard(Unheard::NotSynced) => {
            "this API server has started and does not know yet what the others serve"
        }
        Unavailable::Unheard(Unheard::MemberUnknown) => {
            "the resource may be served by an API server that has not said yet what it serves"
        }
        Unavailable::Unheard(Unheard::MemberMute) => {
            "the resource may be served by an API server that does not say what it serves"
        }
        Unavailable::NotProven => "storage cannot be asked whether any API server serves the resource",
    };
    let status = Status::service_unavailable(format!("{text} (routing rule {})", why.rule()));
    let status = status.with_retry_after(RETRY_AFTER_SECONDS);
    match why {
        Unavailable::ForwardedButUnknown => status.with_cause(CAUSE_NOT_SERVED_BY_PEER, text),
        Unavailable::OnlyDefined | Unavailable::OnlySuspects | Unavailable::Unheard(_) | Unavailable::NotProven => {
            status
        }
    }
}

/// The answer to a forwarded write while this server is still joining.
pub fn peer_not_ready() -> Status {
    let text = "this API server is starting and takes no writes from others yet";
    Status::service_unavailable(text).with_retry_after(RETRY_AFTER_SECONDS).with_cause(CAUSE_PEER_NOT_READY, text)
}

/// The answer to a request that no peer has answered.
pub fn proxy_failed(execution: Execution) -> Status {
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
pub fn not_vouched() -> Status {
    let text = "the API servers that can serve the request cannot be asked for a user of a client certificate: their \
                --requestheader-* settings differ from this proxy's or were not compared yet; a bearer token works";
    Status::service_unavailable(text).with_retry_after(RETRY_AFTER_SECONDS)
}

/// The failure of a request some of which was executed: it carries neither `Retry-After`, on which clients repeat any verb, nor
/// a cause on which the forwarding server tries the next peer.
pub fn executed_in_part(mut status: Status) -> Status {
    let invites_repetition = status.retry_after().is_some() || was_handed_back(&status);
    if let Some(details) = status.details.as_mut().filter(|_| invites_repetition) {
        details.retry_after_seconds = 0;
        details.causes.retain(|cause| !HANDED_BACK.contains(&&*cause.reason));
        status.message.push_str("; the request was executed in part");
    }
    status
}

/// Whether a peer's answer says that it executed nothing, so that the next one may be tried whatever the verb.
pub fn was_handed_back(answer: &Status) -> bool {
    answer.http_code() == 503 && HANDED_BACK.iter().any(|cause| answer.has_cause(cause))
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
    fn failure_of_a_request_executed_in_part_asks_for_no_repetition() {
        for status in [peer_not_ready(), unavailable(Unavailable::ForwardedButUnknown), proxy_failed(Execution::None)] {
            let partial = executed_in_part(status.with_cause("Other", ""));
            assert!(partial.retry_after().is_none() && !was_handed_back(&partial) && partial.has_cause("Other"));
            assert!(partial.message.ends_with("; the request was executed in part"), "{}", partial.message);
        }
        let conflict = Status::bad_request("no").with_cause("Other", "");
        assert_eq!(executed_in_part(conflict.clone()), conflict, "it asks for no repetition anyway");
    }

    #[test]
    fn every_refusal_says_why() {
        check(
            &unavailable(Unavailable::ForwardedButUnknown),
            &expect![
                "this API server was asked by another one for a resource that it does not serve (routing rule 2) [retry 1]"
            ],
        );
        check(
            &unavailable(Unavailable::OnlyDefined),
            &expect![
                "the resource is defined, and no API server that can be reached serves it yet (routing rule 4) [retry 1]"
            ],
        );
        check(
            &unavailable(Unavailable::OnlySuspects),
            &expect![
                "the resource is served only by API servers that cannot be reached now (routing rule 5) [retry 1]"
            ],
        );
        check(
            &unavailable(Unavailable::Unheard(Unheard::NotSynced)),
            &expect![
                "this API server has started and does not know yet what the others serve (routing rule 6) [retry 1]"
            ],
        );
        check(
            &unavailable(Unavailable::Unheard(Unheard::MemberUnknown)),
            &expect![
                "the resource may be served by an API server that has not said yet what it serves (routing rule 6) [retry 1]"
            ],
        );
        check(
            &unavailable(Unavailable::Unheard(Unheard::MemberMute)),
            &expect![
                "the resource may be served by an API server that does not say what it serves (routing rule 6) [retry 1]"
            ],
        );
        check(
            &unavailable(Unavailable::NotProven),
            &expect!["storage cannot be asked whether any API server serves the resource (routing rule 7) [retry 1]"],
        );
    }

    #[test]
    fn a_write_of_unknown_outcome_is_not_to_be_repeated() {
        for execution in [Execution::None, Execution::Harmless] {
            check(
                &proxy_failed(execution),
                &expect!["Error while proxying request to destination apiserver [retry 1]"],
            );
        }
        check(
            &proxy_failed(Execution::Unknown),
            &expect![
                "Error while proxying request to destination apiserver: the request was sent, and it is not known whether it was executed"
            ],
        );
    }

    #[test]
    fn a_peer_that_executed_nothing_is_recognised() {
        let read_back = |status: Status| Status::from_json(&status.to_json()).unwrap();
        assert!(was_handed_back(&read_back(peer_not_ready())));
        assert!(was_handed_back(&read_back(unavailable(Unavailable::ForwardedButUnknown))));
        assert!(!was_handed_back(&read_back(unavailable(Unavailable::OnlySuspects))));
        assert!(!was_handed_back(&read_back(proxy_failed(Execution::Unknown))));
        assert!(!was_handed_back(&Status::bad_request("no").with_cause(CAUSE_PEER_NOT_READY, "")));
    }
}

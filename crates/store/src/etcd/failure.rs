//! Classification of failed etcd requests, and the store error that each becomes.

use std::error::Error as _;
use std::fmt;

use tonic::{Code, Status};

use super::proto::PAGE_BYTES_MAX;
use crate::contract::Error;

/// A request that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum EtcdFailure {
    /// etcd rejected the request, and every other member would too.
    Rejected(EtcdRejection),
    /// The request was certainly not executed: this member was unreachable or unable. Another member may succeed.
    NotExecuted(String),
    /// The request may have been executed: the response was lost or is inconclusive.
    OutcomeUnknown(String),
}

/// The reason for which etcd rejected a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum EtcdRejection {
    Compacted,
    FutureRevision,
    TooLarge(String),
    /// The response would exceed [`PAGE_BYTES_MAX`].
    ResponseTooLarge,
    LeaseNotFound,
    /// The database has reached its quota. A write that fails with this may still have been executed: the member that
    /// applies the write which crosses the quota does apply it, and responds with this error.
    NoSpace,
    /// The members of the cluster hold different data.
    Corrupt,
    /// etcd denies access to this client.
    Denied(String),
    Malformed(String),
}

/// A request that was never sent; part of the source chain of a [`Status`].
#[derive(Debug)]
pub(super) struct UnsentRequest(pub(super) hyper::Error);

impl fmt::Display for UnsentRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the connection was closed before the request was sent: {}", self.0)
    }
}

impl std::error::Error for UnsentRequest {}

/// Classifies the status of a failed call. A failure that is not known to be harmless has an unknown outcome.
pub(super) fn classify_status(status: &Status) -> EtcdFailure {
    let text = status.message();
    if let Some(refusal) = classify_rejection(status) {
        return EtcdFailure::Rejected(refusal);
    }
    match text.strip_prefix("etcdserver: ").unwrap_or(text) {
        // With `hasleader` set, a member without a leader fails before it looks at the request.
        "no leader" => {
            EtcdFailure::NotExecuted("it has no leader: most members of the etcd cluster are not reachable".to_owned())
        }
        "too many requests" => EtcdFailure::NotExecuted("it is overloaded".to_owned()),
        "rpc not supported for learner" => {
            EtcdFailure::NotExecuted("it is a learner, which serves no clients".to_owned())
        }
        "not capable" => EtcdFailure::NotExecuted("it is still starting".to_owned()),
        // Returned by the contacted member instead of forwarding the proposal to the leader.
        "raft proposal dropped" => {
            EtcdFailure::NotExecuted("it dropped the request while it changed its leader".to_owned())
        }
        _ if is_unsent(status) => EtcdFailure::NotExecuted(describe_status(status)),
        _ => EtcdFailure::OutcomeUnknown(describe_status(status)),
    }
}

fn classify_rejection(status: &Status) -> Option<EtcdRejection> {
    let text = status.message();
    match text.strip_prefix("etcdserver: ").unwrap_or(text) {
        "mvcc: required revision has been compacted" => Some(EtcdRejection::Compacted),
        "mvcc: required revision is a future revision" => Some(EtcdRejection::FutureRevision),
        "mvcc: database space exceeded" => Some(EtcdRejection::NoSpace),
        "requested lease not found" => Some(EtcdRejection::LeaseNotFound),
        "request is too large" | "too many operations in txn request" => Some(EtcdRejection::TooLarge(text.to_owned())),
        "user name is empty" => Some(EtcdRejection::Denied(text.to_owned())),
        // A status with a source comes from the local gRPC client, not from etcd.
        _ if status.source().is_some() => None,
        other => rejection_by_code(status.code(), other),
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "every other code may be no rejection at all")]
fn rejection_by_code(code: Code, text: &str) -> Option<EtcdRejection> {
    match code {
        Code::OutOfRange if text.contains("decoded message length too large") => Some(EtcdRejection::ResponseTooLarge),
        Code::ResourceExhausted if text.contains("received message larger than max") => {
            Some(EtcdRejection::TooLarge(text.to_owned()))
        }
        Code::PermissionDenied | Code::Unauthenticated => Some(EtcdRejection::Denied(text.to_owned())),
        Code::InvalidArgument => Some(EtcdRejection::Malformed(text.to_owned())),
        Code::DataLoss => Some(EtcdRejection::Corrupt),
        _ => None,
    }
}

fn is_unsent(status: &Status) -> bool {
    error_chain(status.source()).any(<dyn std::error::Error>::is::<UnsentRequest>)
}

/// The error and all its sources.
fn error_chain<'a>(
    error: Option<&'a (dyn std::error::Error + 'static)>,
) -> impl Iterator<Item = &'a (dyn std::error::Error + 'static)> {
    std::iter::successors(error, |&error| error.source())
}

/// An error with its sources in one line, without repetitions.
pub(super) fn format_error_chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    for cause in error_chain(error.source()).map(ToString::to_string) {
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

/// The message of a status, or its sources if it has no message.
fn describe_status(status: &Status) -> String {
    match (status.source(), status.message()) {
        (Some(source), "") => format_error_chain(source),
        (Some(source), message) if format_error_chain(source).contains(message) => format_error_chain(source),
        (_, "") => format!("{:?} without a message", status.code()),
        (_, message) => message.to_owned(),
    }
}

impl EtcdFailure {
    /// The reason as text, for callers that treat all failures alike.
    pub(super) fn into_reason(self) -> String {
        match self {
            Self::NotExecuted(reason) | Self::OutcomeUnknown(reason) => reason,
            Self::Rejected(refusal) => format!("etcd rejected the request: {refusal:?}"),
        }
    }

    /// The store error for a request that is safe to repeat.
    pub(super) fn into_read_error(self) -> Error {
        match self {
            Self::NotExecuted(reason) | Self::OutcomeUnknown(reason) => {
                Error::Unavailable { reason: format!("no etcd member of --etcd-servers responds: {reason}") }
            }
            Self::Rejected(refusal) => refusal.into_error(),
        }
    }

    /// The store error for a transaction.
    pub(super) fn into_write_error(self) -> Error {
        match self {
            Self::OutcomeUnknown(reason) => Error::OutcomeUnknown { reason },
            Self::Rejected(EtcdRejection::NoSpace) => Error::OutcomeUnknown { reason: NO_SPACE.to_owned() },
            Self::NotExecuted(_) | Self::Rejected(_) => self.into_read_error(),
        }
    }
}

const NO_SPACE: &str = "etcd raised its NOSPACE alarm: its database has reached --quota-backend-bytes and takes no writes; \
    compact and defragment it (etcdctl defrag), then clear the alarm (etcdctl alarm disarm)";

impl EtcdRejection {
    fn into_error(self) -> Error {
        match self {
            Self::TooLarge(reason) => Error::TooLarge { reason },
            Self::ResponseTooLarge => {
                Error::TooLarge { reason: format!("a value of more than {PAGE_BYTES_MAX} bytes") }
            }
            Self::Malformed(reason) => Error::Malformed { reason },
            Self::Corrupt => Error::Damaged {
                reason: "etcd reports that its members hold different data (corrupt cluster); restore it first"
                    .to_owned(),
            },
            Self::NoSpace => Error::Unavailable { reason: NO_SPACE.to_owned() },
            Self::Denied(reason) => Error::Unavailable {
                reason: format!(
                    "etcd denies access: {reason}; check --etcd-certfile, and that etcd asks for no password"
                ),
            },
            Self::Compacted | Self::FutureRevision | Self::LeaseNotFound => {
                Error::Unavailable { reason: format!("unexpected error about a revision or a lease: {self:?}") }
            }
        }
    }
}

#[cfg(test)]
mod tests;

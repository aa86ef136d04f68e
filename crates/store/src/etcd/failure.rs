//! What becomes of a request that etcd did not answer with success, and what that means for whoever sent it.

use std::error::Error as _;
use std::fmt;

use tonic::{Code, Status};

use super::proto::PAGE_BYTES_MAX;
use crate::contract::Error;

/// How a request ended without an answer to use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum EtcdFailure {
    /// etcd has looked at it, and every etcd of the cluster would say the same.
    Rejected(EtcdRejection),
    /// It was not done, for sure: this etcd could not be asked, or would not. Another one may.
    NotExecuted(String),
    /// It may have been done: the answer was lost, or says so little.
    OutcomeUnknown(String),
}

/// Why etcd refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum EtcdRejection {
    /// The revision is forgotten.
    Compacted,
    /// The revision is not written yet.
    FutureRevision,
    /// The request is too large.
    TooLarge(String),
    /// The answer would be larger than we read.
    ResponseTooLarge,
    /// A lease that is not there.
    LeaseNotFound,
    /// The database has reached its quota. A write that was refused so may still have been done: the etcd that applies the
    /// write which crosses the quota does apply it, and answers with this.
    NoSpace,
    /// Members of the cluster hold different data.
    Corrupt,
    /// We may not do this.
    Denied(String),
    /// The request makes no sense to etcd.
    Malformed(String),
}

/// A request that never left us; part of the causes of a [`Status`].
#[derive(Debug)]
pub(super) struct UnsentRequest(pub(super) hyper::Error);

impl fmt::Display for UnsentRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the connection was closed before the request was sent: {}", self.0)
    }
}

impl std::error::Error for UnsentRequest {}

/// Judges what a call ended with. Whatever is not known to be harmless counts as unknown.
pub(super) fn classify_status(status: &Status) -> EtcdFailure {
    let text = status.message();
    if let Some(refusal) = classify_rejection(status) {
        return EtcdFailure::Rejected(refusal);
    }
    match text.strip_prefix("etcdserver: ").unwrap_or(text) {
        // Asked with `hasleader`, an etcd that knows no leader says so before it looks at the request.
        "no leader" => {
            EtcdFailure::NotExecuted("it has no leader: most members of the etcd cluster are not reachable".to_owned())
        }
        "too many requests" => EtcdFailure::NotExecuted("it is overloaded".to_owned()),
        "rpc not supported for learner" => {
            EtcdFailure::NotExecuted("it is a learner, which serves no clients".to_owned())
        }
        "not capable" => EtcdFailure::NotExecuted("it is still starting".to_owned()),
        // Said by the member that we asked, instead of sending the proposal to the leader.
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
        // What our side says when it gives up on a message, with a cause under it, is no answer of etcd.
        _ if status.source().is_some() => None,
        other => rejection_by_code(status.code(), other),
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "every code that is not known to be a refusal may be anything")]
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

/// An error and what is under it.
fn error_chain<'a>(
    error: Option<&'a (dyn std::error::Error + 'static)>,
) -> impl Iterator<Item = &'a (dyn std::error::Error + 'static)> {
    std::iter::successors(error, |&error| error.source())
}

/// What an error says, with its causes, each once.
pub(super) fn format_error_chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    for cause in error_chain(error.source()).map(ToString::to_string) {
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

/// What a status says: its message, or its causes where it has none.
fn describe_status(status: &Status) -> String {
    match (status.source(), status.message()) {
        (Some(source), "") => format_error_chain(source),
        (Some(source), message) if format_error_chain(source).contains(message) => format_error_chain(source),
        (_, "") => format!("{:?}, without a reason", status.code()),
        (_, message) => message.to_owned(),
    }
}

impl EtcdFailure {
    /// What happened, for those to whom every failure is the same.
    pub(super) fn into_reason(self) -> String {
        match self {
            Self::NotExecuted(reason) | Self::OutcomeUnknown(reason) => reason,
            Self::Rejected(refusal) => format!("etcd refused it: {refusal:?}"),
        }
    }

    /// What it means for a request that changes nothing, or nothing that matters.
    pub(super) fn into_read_error(self) -> Error {
        match self {
            Self::NotExecuted(reason) | Self::OutcomeUnknown(reason) => {
                Error::Unavailable { reason: format!("no etcd of --etcd-servers answers: {reason}") }
            }
            Self::Rejected(refusal) => refusal.into_error(),
        }
    }

    /// What it means for a transaction.
    pub(super) fn into_write_error(self) -> Error {
        match self {
            Self::OutcomeUnknown(reason) => Error::OutcomeUnknown { reason },
            Self::Rejected(EtcdRejection::NoSpace) => Error::OutcomeUnknown { reason: NO_SPACE.to_owned() },
            Self::NotExecuted(_) | Self::Rejected(_) => self.into_read_error(),
        }
    }
}

/// What to do about a full database.
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
                Error::Unavailable { reason: format!("etcd changed its mind about a revision or a lease: {self:?}") }
            }
        }
    }
}

#[cfg(test)]
mod tests;

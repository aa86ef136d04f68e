//! What becomes of a request that etcd did not answer with success, and what that means for whoever sent it.

use std::error::Error as _;
use std::fmt;

use tonic::{Code, Status};

use super::proto::PAGE_BYTES_MAX;
use crate::contract::Error;

/// How a request ended without an answer to use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// etcd has looked at it, and every etcd of the cluster would say the same.
    Refused(Refusal),
    /// It was not done, for sure: this etcd could not be asked, or would not. Another one may.
    NotDone(String),
    /// It may have been done: the answer was lost, or says so little.
    Unknown(String),
}

/// Why etcd refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The revision is forgotten.
    Compacted,
    /// The revision is not written yet.
    Future,
    /// The request is too large.
    TooLarge(String),
    /// The answer would be larger than we read.
    AnswerTooLarge,
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
pub(super) struct Unsent(pub(super) hyper::Error);

impl fmt::Display for Unsent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the connection was closed before the request was sent: {}", self.0)
    }
}

impl std::error::Error for Unsent {}

/// Judges what a call ended with. Whatever is not known to be harmless counts as unknown.
pub(super) fn judge(status: &Status) -> Failure {
    let text = status.message();
    if let Some(refusal) = refusal(status) {
        return Failure::Refused(refusal);
    }
    match text.strip_prefix("etcdserver: ").unwrap_or(text) {
        // Asked with `hasleader`, an etcd that knows no leader says so before it looks at the request.
        "no leader" => {
            Failure::NotDone("it has no leader: most members of the etcd cluster are not reachable".to_owned())
        }
        "too many requests" => Failure::NotDone("it is overloaded".to_owned()),
        "rpc not supported for learner" => Failure::NotDone("it is a learner, which serves no clients".to_owned()),
        "not capable" => Failure::NotDone("it is still starting".to_owned()),
        // Said by the member that we asked, instead of sending the proposal to the leader.
        "raft proposal dropped" => Failure::NotDone("it dropped the request while it changed its leader".to_owned()),
        _ if is_unsent(status) => Failure::NotDone(explain_status(status)),
        _ => Failure::Unknown(explain_status(status)),
    }
}

fn refusal(status: &Status) -> Option<Refusal> {
    let text = status.message();
    match text.strip_prefix("etcdserver: ").unwrap_or(text) {
        "mvcc: required revision has been compacted" => Some(Refusal::Compacted),
        "mvcc: required revision is a future revision" => Some(Refusal::Future),
        "mvcc: database space exceeded" => Some(Refusal::NoSpace),
        "requested lease not found" => Some(Refusal::LeaseNotFound),
        "request is too large" | "too many operations in txn request" => Some(Refusal::TooLarge(text.to_owned())),
        "user name is empty" => Some(Refusal::Denied(text.to_owned())),
        // What our side says when it gives up on a message, with a cause under it, is no answer of etcd.
        _ if status.source().is_some() => None,
        other => refusal_by_code(status.code(), other),
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "every code that is not known to be a refusal may be anything")]
fn refusal_by_code(code: Code, text: &str) -> Option<Refusal> {
    match code {
        Code::OutOfRange if text.contains("decoded message length too large") => Some(Refusal::AnswerTooLarge),
        Code::ResourceExhausted if text.contains("received message larger than max") => {
            Some(Refusal::TooLarge(text.to_owned()))
        }
        Code::PermissionDenied | Code::Unauthenticated => Some(Refusal::Denied(text.to_owned())),
        Code::InvalidArgument => Some(Refusal::Malformed(text.to_owned())),
        Code::DataLoss => Some(Refusal::Corrupt),
        _ => None,
    }
}

fn is_unsent(status: &Status) -> bool {
    causes(status.source()).any(<dyn std::error::Error>::is::<Unsent>)
}

/// An error and what is under it.
fn causes<'a>(
    error: Option<&'a (dyn std::error::Error + 'static)>,
) -> impl Iterator<Item = &'a (dyn std::error::Error + 'static)> {
    std::iter::successors(error, |&error| error.source())
}

/// What an error says, with its causes, each once.
pub(super) fn explain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    for cause in causes(error.source()).map(ToString::to_string) {
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

/// What a status says: its message, or its causes where it has none.
fn explain_status(status: &Status) -> String {
    match (status.source(), status.message()) {
        (Some(source), "") => explain(source),
        (Some(source), message) if explain(source).contains(message) => explain(source),
        (_, "") => format!("{:?}, without a reason", status.code()),
        (_, message) => message.to_owned(),
    }
}

impl Failure {
    /// What happened, for those to whom every failure is the same.
    pub(super) fn into_reason(self) -> String {
        match self {
            Self::NotDone(reason) | Self::Unknown(reason) => reason,
            Self::Refused(refusal) => format!("etcd refused it: {refusal:?}"),
        }
    }

    /// What it means for a request that changes nothing, or nothing that matters.
    pub(super) fn into_read_error(self) -> Error {
        match self {
            Self::NotDone(reason) | Self::Unknown(reason) => {
                Error::Unavailable { reason: format!("no etcd of --etcd-servers answers: {reason}") }
            }
            Self::Refused(refusal) => refusal.into_error(),
        }
    }

    /// What it means for a transaction.
    pub(super) fn into_write_error(self) -> Error {
        match self {
            Self::Unknown(reason) => Error::Unresolved { reason },
            Self::Refused(Refusal::NoSpace) => Error::Unresolved { reason: NO_SPACE.to_owned() },
            Self::NotDone(_) | Self::Refused(_) => self.into_read_error(),
        }
    }
}

/// What to do about a full database.
const NO_SPACE: &str = "etcd raised its NOSPACE alarm: its database has reached --quota-backend-bytes and takes no writes; \
    compact and defragment it (etcdctl defrag), then clear the alarm (etcdctl alarm disarm)";

impl Refusal {
    fn into_error(self) -> Error {
        match self {
            Self::TooLarge(reason) => Error::TooLarge { reason },
            Self::AnswerTooLarge => Error::TooLarge { reason: format!("a value of more than {PAGE_BYTES_MAX} bytes") },
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
            Self::Compacted | Self::Future | Self::LeaseNotFound => {
                Error::Unavailable { reason: format!("etcd changed its mind about a revision or a lease: {self:?}") }
            }
        }
    }
}

#[cfg(test)]
mod tests;

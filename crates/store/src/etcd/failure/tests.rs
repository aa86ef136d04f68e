use super::*;

/// Checks the store errors that a status becomes for a read and for a write.
#[track_caller]
fn check(code: Code, message: &str, read: &str, written: &str) {
    let status = Status::new(code, message);
    assert_eq!(error_name(&classify_status(&status).into_read_error()), read, "a read that ended with {message:?}");
    assert_eq!(
        error_name(&classify_status(&status).into_write_error()),
        written,
        "a write that ended with {message:?}"
    );
}

fn error_name(error: &Error) -> &'static str {
    match error {
        Error::Compacted { .. } => "compacted",
        Error::FutureRevision { .. } => "future",
        Error::Unavailable { .. } => "unavailable",
        Error::OutcomeUnknown { .. } => "unresolved",
        Error::TooLarge { .. } => "too large",
        Error::Malformed { .. } => "malformed",
        Error::Damaged { .. } => "damaged",
    }
}

#[test]
fn write_outcome_is_unknown_unless_surely_not_executed() {
    check(Code::Unavailable, "etcdserver: no leader", "unavailable", "unavailable");
    check(Code::ResourceExhausted, "etcdserver: too many requests", "unavailable", "unavailable");
    check(Code::Unknown, "raft proposal dropped", "unavailable", "unavailable");
    check(Code::Unavailable, "etcdserver: rpc not supported for learner", "unavailable", "unavailable");
    check(Code::Unavailable, "etcdserver: leader changed", "unavailable", "unresolved");
    check(Code::Unavailable, "etcdserver: request timed out", "unavailable", "unresolved");
    check(Code::Unavailable, "etcdserver: server stopped", "unavailable", "unresolved");
    check(Code::DeadlineExceeded, "context deadline exceeded", "unavailable", "unresolved");
    check(Code::Unknown, "whatever a future etcd says", "unavailable", "unresolved");
    check(Code::ResourceExhausted, "etcdserver: mvcc: database space exceeded", "unavailable", "unresolved");
}

#[test]
fn rejections_map_to_their_store_errors() {
    check(Code::InvalidArgument, "etcdserver: request is too large", "too large", "too large");
    check(Code::InvalidArgument, "etcdserver: too many operations in txn request", "too large", "too large");
    check(Code::ResourceExhausted, "grpc: received message larger than max (3 vs. 2)", "too large", "too large");
    check(Code::InvalidArgument, "etcdserver: key is not provided", "malformed", "malformed");
    check(Code::DataLoss, "etcdserver: corrupt cluster", "damaged", "damaged");
    check(Code::PermissionDenied, "etcdserver: permission denied", "unavailable", "unavailable");
    check(Code::InvalidArgument, "etcdserver: user name is empty", "unavailable", "unavailable");
}

#[test]
fn classify_status_recognizes_revision_and_lease_rejections() {
    let refused = |message: &str| classify_status(&Status::out_of_range(message));
    let compacted = refused("etcdserver: mvcc: required revision has been compacted");
    assert_eq!(compacted, EtcdFailure::Rejected(EtcdRejection::Compacted));
    let future = refused("etcdserver: mvcc: required revision is a future revision");
    assert_eq!(future, EtcdFailure::Rejected(EtcdRejection::FutureRevision));
    let lease = classify_status(&Status::not_found("etcdserver: requested lease not found"));
    assert_eq!(lease, EtcdFailure::Rejected(EtcdRejection::LeaseNotFound));
}

#[test]
fn no_space_error_explains_the_remedy() {
    let status = Status::resource_exhausted("etcdserver: mvcc: database space exceeded");
    let text = classify_status(&status).into_write_error().to_string();
    assert!(text.contains("NOSPACE") && text.contains("defrag") && text.contains("disarm"), "{text}");
}

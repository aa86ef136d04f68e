use super::*;

/// What reading and writing make of an answer.
#[track_caller]
fn check(code: Code, message: &str, read: &str, written: &str) {
    let status = Status::new(code, message);
    assert_eq!(name(&judge(&status).into_read_error()), read, "a read that ended with {message:?}");
    assert_eq!(name(&judge(&status).into_write_error()), written, "a write that ended with {message:?}");
}

fn name(error: &Error) -> &'static str {
    match error {
        Error::Compacted { .. } => "compacted",
        Error::Future { .. } => "future",
        Error::Unavailable { .. } => "unavailable",
        Error::Unresolved { .. } => "unresolved",
        Error::TooLarge { .. } => "too large",
        Error::Malformed { .. } => "malformed",
        Error::Damaged { .. } => "damaged",
    }
}

#[test]
fn a_write_is_unresolved_unless_it_is_certain_that_it_was_not_done() {
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
fn a_refusal_is_what_it_says() {
    check(Code::InvalidArgument, "etcdserver: request is too large", "too large", "too large");
    check(Code::InvalidArgument, "etcdserver: too many operations in txn request", "too large", "too large");
    check(Code::ResourceExhausted, "grpc: received message larger than max (3 vs. 2)", "too large", "too large");
    check(Code::InvalidArgument, "etcdserver: key is not provided", "malformed", "malformed");
    check(Code::DataLoss, "etcdserver: corrupt cluster", "damaged", "damaged");
    check(Code::PermissionDenied, "etcdserver: permission denied", "unavailable", "unavailable");
    check(Code::InvalidArgument, "etcdserver: user name is empty", "unavailable", "unavailable");
}

#[test]
fn revisions_and_leases_are_told_apart_for_those_who_can_act_on_it() {
    let refused = |message: &str| judge(&Status::out_of_range(message));
    let compacted = refused("etcdserver: mvcc: required revision has been compacted");
    assert_eq!(compacted, Failure::Refused(Refusal::Compacted));
    let future = refused("etcdserver: mvcc: required revision is a future revision");
    assert_eq!(future, Failure::Refused(Refusal::Future));
    let lease = judge(&Status::not_found("etcdserver: requested lease not found"));
    assert_eq!(lease, Failure::Refused(Refusal::LeaseNotFound));
}

#[test]
fn a_full_database_is_explained() {
    let status = Status::resource_exhausted("etcdserver: mvcc: database space exceeded");
    let text = judge(&status).into_write_error().to_string();
    assert!(text.contains("NOSPACE") && text.contains("defrag") && text.contains("disarm"), "{text}");
}

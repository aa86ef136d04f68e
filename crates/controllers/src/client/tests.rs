use api::GroupResource;
use api::status::Details;

use super::*;

const JOBS: GroupVersionResource<&str> = GroupVersionResource { group: "batch", version: "v1", resource: "jobs" };

fn refused(status: Status) -> CallError {
    CallError::Refused(Box::new(status))
}

#[test]
fn only_a_404_that_names_the_object_says_that_it_is_absent() {
    let jobs = GroupResource { group: "batch", resource: "jobs" };
    let named = refused(Status::not_found(jobs, "a"));
    assert!(named.is_absent(JOBS, "a"));
    assert!(!named.is_absent(JOBS, "b"), "another object");
    let elsewhere = GroupVersionResource { resource: "cronjobs", ..JOBS };
    assert!(!named.is_absent(elsewhere, "a"), "another resource");
    let unnamed = Status { details: Some(Box::new(Details::default())), ..Status::path_not_found() };
    for (what, error) in [
        ("a path", refused(Status::path_not_found())),
        ("no details", refused(unnamed)),
        ("503", refused(Status::service_unavailable("peers are away"))),
        ("no answer", CallError::Unanswered("reset".to_owned())),
        ("a page", refused(Status { code: 404, message: "404 page not found".to_owned(), ..Status::default() })),
    ] {
        assert!(!error.is_absent(JOBS, "a"), "{what}");
    }
}

#[test]
fn a_path_that_is_not_served_names_nothing() {
    assert!(refused(Status::path_not_found()).is_unserved());
    assert!(refused(Status { code: 404, ..Status::default() }).is_unserved());
    assert!(!refused(Status::not_found(GroupResource { group: "", resource: "pods" }, "a")).is_unserved());
    assert!(!refused(Status::service_unavailable("x")).is_unserved());
}

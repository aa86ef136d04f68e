use api::GroupResource;
use api::status::StatusDetails;

use super::*;

const JOBS: GroupVersionResource<&str> = GroupVersionResource { group: "batch", version: "v1", resource: "jobs" };

fn status_error(status: Status) -> ApiError {
    ApiError::Status(Box::new(status))
}

#[test]
fn only_a_404_naming_the_object_proves_absence() {
    let jobs = GroupResource { group: "batch", resource: "jobs" };
    let named = status_error(Status::not_found(jobs, "a"));
    assert!(named.is_object_not_found(JOBS, "a"));
    assert!(!named.is_object_not_found(JOBS, "b"), "another object");
    let elsewhere = GroupVersionResource { resource: "cronjobs", ..JOBS };
    assert!(!named.is_object_not_found(elsewhere, "a"), "another resource");
    let unnamed = Status { details: Some(Box::new(StatusDetails::default())), ..Status::path_not_found() };
    for (what, error) in [
        ("a path", status_error(Status::path_not_found())),
        ("no details", status_error(unnamed)),
        ("503", status_error(Status::service_unavailable("peers are away"))),
        ("no answer", ApiError::NoResponse("reset".to_owned())),
        ("a page", status_error(Status { code: 404, message: "404 page not found".to_owned(), ..Status::default() })),
    ] {
        assert!(!error.is_object_not_found(JOBS, "a"), "{what}");
    }
}

#[test]
fn a_404_without_object_name_means_resource_not_served() {
    assert!(status_error(Status::path_not_found()).is_resource_not_served());
    assert!(status_error(Status { code: 404, ..Status::default() }).is_resource_not_served());
    assert!(
        !status_error(Status::not_found(GroupResource { group: "", resource: "pods" }, "a")).is_resource_not_served()
    );
    assert!(!status_error(Status::service_unavailable("x")).is_resource_not_served());
}

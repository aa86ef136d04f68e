use api::Status;

use super::*;

const CRONTABS: GroupResource<&str> = GroupResource { group: "stable.example.com", resource: "crontabs" };

fn unavailable(status: Status) -> InformerEvent {
    InformerEvent::Unavailable(ApiError::Status(Box::new(status)))
}

#[test]
fn resource_is_watched_once_until_it_is_not_served() {
    let mut view = QuotaView::default();
    let first = view.add_resource(CRONTABS).expect("it is not watched yet");
    assert_eq!(view.add_resource(CRONTABS), None);
    assert!(!view.forget_unserved(first, &unavailable(Status::service_unavailable("peers are away"))));
    assert_eq!(view.add_resource(CRONTABS), None, "it may be back");
    assert!(view.forget_unserved(first, &unavailable(Status::path_not_found())));
    assert!(!view.forget_unserved(first, &unavailable(Status::path_not_found())), "its informer was ended");
    let second = view.add_resource(CRONTABS).expect("it is served again");
    assert_ne!(second, first, "events of the first informer may be queued");
}

#[test]
fn informer_of_quotas_is_never_ended() {
    assert!(!QuotaView::default().forget_unserved(QUOTAS, &unavailable(Status::path_not_found())));
}

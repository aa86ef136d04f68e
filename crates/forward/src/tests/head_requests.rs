//! HEAD requests are classified like GET requests, although their responses have no body.

use super::*;

const OBJECT: &str = r#"{"kind":"Status","apiVersion":"v1","code":404,"details":{"name":"x","kind":"pods"}}"#;
const RESOURCE: &str = r#"{"kind":"Status","apiVersion":"v1","code":404,"details":{}}"#;
const JSON: &str = "Content-Type: application/json\r\n";
const TEXT: &str = "Content-Type: text/plain\r\n";

/// The outcome of a HEAD whose first peer answers GET like this and HEAD with the same head; and the methods that peer read.
async fn head_outcome(get: String) -> (String, String) {
    let fixture = ForwarderFixture::new(generous_limits());
    let head = get.split_inclusive("\r\n\r\n").next().unwrap().to_owned();
    let a = fixture
        .start_responder(
            move |received| if received.request_line.starts_with("HEAD ") { head.clone() } else { get.clone() },
        )
        .await;
    let b = fixture.start_responder(|_| "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n".to_owned()).await;
    let request = Request::head("/api/v1/namespaces/n/pods/x?pretty").body(Empty::<Bytes>::new()).unwrap();
    let response = fixture.forward(&[&a, &b], Effect::Reads, Lifetime::LongRunning, request).await.unwrap();
    let by = responding_peer(&response).clone();
    let length = response.headers()["content-length"].to_str().unwrap().to_owned();
    let shown = format!("{} from {by}, length {length} {:?}", response.status().as_u16(), fixture.failure_counts());
    assert_eq!(body_text(response).await, "");
    let received: Vec<_> = a.take_requests().await.iter().map(|received| received.request_line.clone()).collect();
    for line in &received {
        assert!(line.ends_with(" /api/v1/namespaces/n/pods/x?pretty HTTP/1.1"), "{line}");
    }
    let methods: Vec<_> = received.iter().filter_map(|line| line.split(' ').next()).collect();
    (shown, methods.join(" "))
}

#[tokio::test]
async fn head_is_classified_by_the_body_of_a_get() {
    let json = |status: &api::Status| String::from_utf8(status.to_json()).unwrap();
    let not_served = json(&not_executed_status(CAUSE_NOT_SERVED_BY_PEER));
    for (get, expected, methods) in [
        (http_response(200, JSON, "{}"), "200 from apiserver-a, length 2 []", "HEAD"),
        (http_response(403, JSON, "{}"), "403 from apiserver-a, length 2 []", "HEAD"),
        (http_response(404, JSON, OBJECT), "404 from apiserver-a, length 83 []", "HEAD GET"),
        (
            http_response(404, JSON, RESOURCE),
            r#"200 from apiserver-b, length 4 ["apiserver-a not_served 1"]"#,
            "HEAD GET",
        ),
        (
            http_response(404, TEXT, "404 page not found\n"),
            r#"200 from apiserver-b, length 4 ["apiserver-a not_served 1"]"#,
            "HEAD GET",
        ),
        (http_response(503, JSON, "{}"), "503 from apiserver-a, length 2 []", "HEAD GET"),
        (
            http_response(503, JSON, &not_served),
            r#"200 from apiserver-b, length 4 ["apiserver-a handed_back 1"]"#,
            "HEAD GET",
        ),
    ] {
        assert_eq!(head_outcome(get.clone()).await, (expected.to_owned(), methods.to_owned()), "{get}");
    }
}

#[tokio::test]
async fn head_of_an_object_created_meanwhile_keeps_its_404() {
    let fixture = ForwarderFixture::new(generous_limits());
    let peer = fixture
        .start_responder(|received| match received.request_line.starts_with("HEAD ") {
            true => format!("HTTP/1.1 404 x\r\n{JSON}Content-Length: 9\r\n\r\n"),
            false => http_response(200, JSON, "{}"),
        })
        .await;
    let request = Request::head("/api/v1/namespaces/n/pods/x").body(Empty::<Bytes>::new()).unwrap();
    let response = fixture.forward(&[&peer], Effect::Reads, Lifetime::LongRunning, request).await.unwrap();
    assert_eq!((response.status().as_u16(), fixture.failure_counts().len()), (404, 0));
}

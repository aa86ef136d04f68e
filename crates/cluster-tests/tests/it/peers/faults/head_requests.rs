//! HEAD of resources that a member lists but does not serve. kube-apiserver rejects HEAD for built-in resources and
//! allows it for custom ones.

use super::*;

const THINGS: &str = "/apis/heads.example.com/v1/things";

/// The scripted member's response for a thing of this name.
fn thing_response(name: &str) -> String {
    let json = "application/json";
    let status = |details: &str| {
        format!(
            r#"{{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404,"details":{details}}}"#
        )
    };
    match name {
        "present" => http_response("200 OK", json, r#"{"kind":"Thing"}"#),
        "absent" => http_response("404 Not Found", json, &status(r#"{"name":"absent","kind":"things"}"#)),
        "unserved" => http_response("404 Not Found", json, &status("{}")),
        _ => http_response("404 Not Found", "text/plain", "404 page not found\n"),
    }
}

#[test]
fn head_of_unserved_resource_is_503_like_get() {
    let mut plane = ControlPlane::new(TestStore::Sqlite);
    plane.start("old", &OLD_FLAGS);
    let old = plane.admin("old");
    block_on(async {
        let stage = ScriptedMembers::connect(&plane).await;
        let listing = ScriptedDiscovery::default().with_resource("heads.example.com", "v1", "things", &[]);
        let script = move |mut visit: ScriptedConnection| {
            let listing = listing.clone();
            async move {
                while let Some(received) = visit.read_request().await {
                    let path = received.request_line.split(' ').nth(1).unwrap_or_default();
                    let whole = listing
                        .respond(&received)
                        .unwrap_or_else(|| thing_response(path.rsplit('/').next().unwrap_or_default()));
                    let is_head = received.request_line.starts_with("HEAD ");
                    let end = if is_head { whole.find("\r\n\r\n").unwrap() + 4 } else { whole.len() };
                    visit.write(&whole[..end]).await;
                }
            }
        };
        let peer = stage.start_peer(script).await;
        stage.add_member(&old, "apiserver-heads", peer.address).await;
        eventually("the member is discovered", async || expect_status(&old, &format!("{THINGS}/present"), 200).await)
            .await;
        for (name, status) in [("present", 200), ("absent", 404), ("unserved", 503), ("lost", 503)] {
            let path = format!("{THINGS}/{name}");
            assert_eq!(old.get(&path).await.status, status, "{name}");
            let head = old.send(old.request_builder(http::Method::HEAD, &path), bytes::Bytes::new()).await;
            assert_eq!((head.status.as_u16(), &head.body[..]), (status, &b""[..]), "{name}");
        }
        let length = thing_response("absent").split("\r\n\r\n").nth(1).unwrap().len().to_string();
        let absent = old.request_builder(http::Method::HEAD, &format!("{THINGS}/absent"));
        let absent = old.send(absent, bytes::Bytes::new()).await;
        assert_eq!(absent.headers["content-length"], *length, "the headers come from the response to HEAD");
        for path in ["/api", "/apis", "/apis/heads.example.com/v1", "/version", "/readyz"] {
            let head = old.send(old.request_builder(http::Method::HEAD, path), bytes::Bytes::new()).await;
            assert_eq!(head.status, old.get(path).await.status, "{path}");
        }
    });
}

//! HEAD of what a member lists and does not serve. Of built-in resources kube-apiserver refuses HEAD, of custom ones it does not.

use super::*;

const THINGS: &str = "/apis/heads.example.com/v1/things";

/// What a member answers to a request for a thing of this name.
fn thing(name: &str) -> String {
    let json = "application/json";
    let status = |details: &str| {
        format!(
            r#"{{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404,"details":{details}}}"#
        )
    };
    match name {
        "present" => answer("200 OK", json, r#"{"kind":"Thing"}"#),
        "absent" => answer("404 Not Found", json, &status(r#"{"name":"absent","kind":"things"}"#)),
        "unserved" => answer("404 Not Found", json, &status("{}")),
        _ => answer("404 Not Found", "text/plain", "404 page not found\n"),
    }
}

#[test]
fn head_is_503_where_get_is() {
    let mut plane = ControlPlane::new(Store::Sqlite);
    plane.start("old", &OLD);
    let old = plane.admin("old");
    block_on(async {
        let stage = Stage::open(&plane).await;
        let listing = Listing::default().with("heads.example.com", "v1", "things", &[]);
        let script = move |mut visit: Visit| {
            let listing = listing.clone();
            async move {
                while let Some(heard) = visit.hear().await {
                    let path = heard.line.split(' ').nth(1).unwrap_or_default();
                    let whole =
                        listing.answer(&heard).unwrap_or_else(|| thing(path.rsplit('/').next().unwrap_or_default()));
                    let is_head = heard.line.starts_with("HEAD ");
                    let end = if is_head { whole.find("\r\n\r\n").unwrap() + 4 } else { whole.len() };
                    visit.say(&whole[..end]).await;
                }
            }
        };
        let peer = stage.peer(script).await;
        stage.admit(&old, "apiserver-heads", peer.address).await;
        eventually("the member is known", async || has_status(&old, &format!("{THINGS}/present"), 200).await).await;
        for (name, status) in [("present", 200), ("absent", 404), ("unserved", 503), ("lost", 503)] {
            let path = format!("{THINGS}/{name}");
            assert_eq!(old.get(&path).await.status, status, "{name}");
            let head = old.send(old.request(http::Method::HEAD, &path), bytes::Bytes::new()).await;
            assert_eq!((head.status.as_u16(), &head.body[..]), (status, &b""[..]), "{name}");
        }
        let length = thing("absent").split("\r\n\r\n").nth(1).unwrap().len().to_string();
        let absent = old.request(http::Method::HEAD, &format!("{THINGS}/absent"));
        let absent = old.send(absent, bytes::Bytes::new()).await;
        assert_eq!(absent.headers["content-length"], *length, "the head is that of the response to the HEAD");
        for path in ["/api", "/apis", "/apis/heads.example.com/v1", "/version", "/readyz"] {
            let head = old.send(old.request(http::Method::HEAD, path), bytes::Bytes::new()).await;
            assert_eq!(head.status, old.get(path).await.status, "{path}");
        }
    });
}

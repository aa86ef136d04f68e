//! Upstreams that come and go.

use std::time::{Duration, Instant};

use cluster_tests::Lines;
use cluster_tests::wait::eventually;

use super::*;

async fn becomes(client: &Client, path: &str, status: StatusCode) {
    eventually(&format!("{path} is {status}"), async || {
        let answer = client.get(path).await;
        // Between what was and what is to be there may be 503 and never 404.
        assert_ne!(answer.status, StatusCode::NOT_FOUND, "{path}");
        if answer.status == status { Ok(()) } else { Err(answer.brief()) }
    })
    .await;
}

#[test]
fn what_only_a_dead_server_has_is_503_and_everything_else_goes_on() {
    let mut plane = two(Store::Sqlite);
    let gateway = Gateway::start("gateway", &plane, &["old", "new"], &[]);
    let admin = gateway.admin();
    block_on(async {
        assert_eq!(admin.get(CLASSES).await.status, StatusCode::OK);
        plane.kill("new");
        for _ in 0..50 {
            assert_eq!(admin.get(CLASSES).await.status, StatusCode::SERVICE_UNAVAILABLE);
            for path in ["/api/v1/namespaces/default", DEPLOYMENTS] {
                let answer = admin.get(path).await;
                assert_eq!(answer.status, StatusCode::OK, "{path}: {}", answer.brief());
            }
        }
        // It is listed still, as what nobody serves now.
        eventually("the document says so", async || {
            let document = accepting(&admin, "/apis", MERGED).await.json();
            let stale = document["items"].as_array().into_iter().flatten().any(|group| {
                group["versions"].as_array().into_iter().flatten().any(|version| version["freshness"] == "Stale")
            });
            if stale { Ok(()) } else { Err(document.to_string()) }
        })
        .await;
        plane.launch("new", &[NEW[0], NEW[1], STOCK]);
        becomes(&admin, CLASSES, StatusCode::OK).await;
    });
}

#[test]
fn a_restarted_gateway_remembers_what_a_dead_server_had() {
    let mut plane = two(Store::Sqlite);
    let state = format!("--state-dir={}", plane.folder().join("state").display());
    let first = Gateway::start("first", &plane, &["old", "new"], &[&state]);
    assert_eq!(block_on(first.admin().get(CLASSES)).status, StatusCode::OK);
    assert_eq!(first.stop(), Some(0));
    plane.kill("new");
    let remembering = Gateway::start("second", &plane, &["old", "new"], &[&state]);
    block_on(async {
        let answer = remembering.admin().get(CLASSES).await;
        assert!(answer.brief().contains("routing rule 5"), "{}", answer.brief());
        assert_eq!(remembering.admin().get(DEPLOYMENTS).await.status, StatusCode::OK);
    });
    // One that has nothing to remember does not guess either.
    let forgetful = Gateway::start("third", &plane, &["old", "new"], &[]);
    block_on(async {
        let answer = forgetful.admin().get(CLASSES).await;
        assert!(answer.brief().contains("routing rule 6"), "{}", answer.brief());
        let nowhere = forgetful.admin().get("/apis/shop.example.com/v1/carts").await;
        assert_eq!(nowhere.status, StatusCode::NOT_FOUND);
    });
}

#[test]
fn a_server_that_is_away_for_too_long_is_forgotten() {
    let mut plane = two(Store::Sqlite);
    let gateway = Gateway::start("gateway", &plane, &["old", "new"], &["--upstream-forget-after=5s"]);
    let admin = gateway.admin();
    block_on(async {
        assert_eq!(admin.get(CLASSES).await.status, StatusCode::OK);
        plane.kill("new");
        let killed = Instant::now();
        goes_from_503_to_404(&admin, CLASSES).await;
        // An inspection may have begun two seconds before it failed.
        assert!(killed.elapsed() >= Duration::from_secs(3), "after {:?}", killed.elapsed());
        // It is nowhere any more, and the 404 is the other server's own.
        let directly = plane.admin("old").get(CLASSES).await;
        assert_eq!(admin.get(CLASSES).await.body, directly.body);
        let document = accepting(&admin, "/apis", MERGED).await;
        assert!(!String::from_utf8_lossy(&document.body).contains("volumeattributesclasses"));
        let report = admin.get("/debug/peers").await.json();
        assert!(!report.to_string().contains(&plane.address("new")), "{report}");
        assert_eq!(admin.get(DEPLOYMENTS).await.status, StatusCode::OK);
        // What comes back counts again.
        plane.launch("new", &[NEW[0], NEW[1], STOCK]);
        eventually("it is served again", async || {
            let answer = admin.get(CLASSES).await;
            if answer.status == StatusCode::OK { Ok(()) } else { Err(answer.brief()) }
        })
        .await;
    });
}

#[test]
fn a_server_that_never_answered_is_waited_for_as_long() {
    let mut plane = two(Store::Sqlite);
    plane.kill("new");
    let gateway = Gateway::start("gateway", &plane, &["old", "new"], &["--upstream-forget-after=5s"]);
    let admin = gateway.admin();
    block_on(async {
        let answer = admin.get(CLASSES).await;
        assert!(answer.brief().contains("routing rule 6"), "{}", answer.brief());
        goes_from_503_to_404(&admin, CLASSES).await;
    });
}

/// What nobody can reach is unavailable, until it is not there: nothing else comes between.
async fn goes_from_503_to_404(client: &Client, path: &str) {
    eventually(&format!("{path} is 404"), async || {
        let answer = client.get(path).await;
        match answer.status {
            StatusCode::NOT_FOUND => Ok(()),
            StatusCode::SERVICE_UNAVAILABLE => Err(answer.brief()),
            _ => panic!("{path}: {}", answer.brief()),
        }
    })
    .await;
}

#[test]
fn without_any_server_a_gateway_is_not_ready_and_comes_back() {
    let mut plane = two(Store::Sqlite);
    let gateway = Gateway::start("gateway", &plane, &["old", "new"], &[]);
    let admin = gateway.admin();
    let etag = block_on(accepting(&admin, "/apis", MERGED)).headers["etag"].clone();
    plane.kill("old");
    plane.kill("new");
    block_on(async {
        eventually(
            "the gateway is not ready",
            async || {
                if admin.is_ready().await { Err("it is".to_owned()) } else { Ok(()) }
            },
        )
        .await;
        for path in [CLASSES, DEPLOYMENTS, "/version", "/apis/shop.example.com/v1/carts"] {
            let answer = admin.get(path).await;
            assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE, "{path}: {}", answer.brief());
        }
    });
    plane.start("old", &[OLD[0], STOCK]);
    plane.start("new", &[NEW[0], NEW[1], STOCK]);
    gateway.wait_ready();
    block_on(async {
        becomes(&admin, CLASSES, StatusCode::OK).await;
        becomes(&admin, DEPLOYMENTS, StatusCode::OK).await;
        eventually("the document is as it was", async || {
            let now = accepting(&admin, "/apis", MERGED).await;
            if now.headers.get("etag") == Some(&etag) { Ok(()) } else { Err(format!("{:?}", now.headers)) }
        })
        .await;
    });
}

#[test]
fn a_watch_ends_with_its_server_and_is_resumed_on_another() {
    let mut plane = ControlPlane::new(Store::Sqlite);
    for name in ["a", "b"] {
        plane.start(name, &[STOCK]);
    }
    let gateway = Gateway::start("gateway", &plane, &["a", "b"], &[]);
    let admin = gateway.admin();
    block_on(async {
        let mut watches = Vec::new();
        for _ in 0..4 {
            watches.push(Lines::open(&admin, &format!("{}?watch=1", crate::CONFIG_MAPS)).await);
        }
        plane.stop("a");
        let created = admin.create(crate::CONFIG_MAPS, &crate::config_map("after")).await;
        assert_eq!(created.status, StatusCode::CREATED, "{}", created.brief());
        let mut ended = 0;
        for watch in &mut watches {
            loop {
                match watch.try_next().await {
                    Err(_) => {
                        ended += 1;
                        break;
                    }
                    Ok(event) if event["object"]["metadata"]["name"] == "after" => break,
                    Ok(_) => {}
                }
            }
        }
        assert_eq!(ended, 2, "as many as were on the server that stopped");
    });
}

//! Upstreams that stop and return.

use std::time::{Duration, Instant};

use cluster_tests::WatchReader;
use cluster_tests::wait::eventually;

use super::*;

async fn wait_for_status(client: &Client, path: &str, status: StatusCode) {
    eventually(&format!("{path} is {status}"), async || {
        let answer = client.get(path).await;
        // In between, 503 is allowed and 404 is not.
        assert_ne!(answer.status, StatusCode::NOT_FOUND, "{path}");
        if answer.status == status { Ok(()) } else { Err(answer.summary()) }
    })
    .await;
}

#[test]
fn resources_of_a_dead_upstream_are_503_and_others_are_served() {
    let mut plane = start_two_stock_servers(TestStore::Sqlite);
    let gateway = RunningGateway::start("gateway", &plane, &["old", "new"], &[]);
    let admin = gateway.admin();
    block_on(async {
        assert_eq!(admin.get(CLASSES_PATH).await.status, StatusCode::OK);
        plane.kill("new");
        for _ in 0..50 {
            assert_eq!(admin.get(CLASSES_PATH).await.status, StatusCode::SERVICE_UNAVAILABLE);
            for path in ["/api/v1/namespaces/default", DEPLOYMENTS_PATH] {
                let answer = admin.get(path).await;
                assert_eq!(answer.status, StatusCode::OK, "{path}: {}", answer.summary());
            }
        }
        // The resource is still listed, as stale.
        eventually("the document marks it as stale", async || {
            let document = get_accepting(&admin, "/apis", MERGED_DISCOVERY_ACCEPT).await.json();
            let stale = document["items"].as_array().into_iter().flatten().any(|group| {
                group["versions"].as_array().into_iter().flatten().any(|version| version["freshness"] == "Stale")
            });
            if stale { Ok(()) } else { Err(document.to_string()) }
        })
        .await;
        plane.launch("new", &[NEW_FLAGS[0], NEW_FLAGS[1], PEER_PROXY_OFF]);
        wait_for_status(&admin, CLASSES_PATH, StatusCode::OK).await;
    });
}

#[test]
fn restarted_gateway_remembers_resources_of_a_dead_upstream() {
    let mut plane = start_two_stock_servers(TestStore::Sqlite);
    let state = format!("--state-dir={}", plane.folder().join("state").display());
    let first = RunningGateway::start("first", &plane, &["old", "new"], &[&state]);
    assert_eq!(block_on(first.admin().get(CLASSES_PATH)).status, StatusCode::OK);
    assert_eq!(first.stop(), Some(0));
    plane.kill("new");
    let remembering = RunningGateway::start("second", &plane, &["old", "new"], &[&state]);
    block_on(async {
        let answer = remembering.admin().get(CLASSES_PATH).await;
        assert!(answer.summary().contains("routing rule 5"), "{}", answer.summary());
        assert_eq!(remembering.admin().get(DEPLOYMENTS_PATH).await.status, StatusCode::OK);
    });
    // A gateway without stored documents returns 503 as well, not a guessed 404.
    let forgetful = RunningGateway::start("third", &plane, &["old", "new"], &[]);
    block_on(async {
        let answer = forgetful.admin().get(CLASSES_PATH).await;
        assert!(answer.summary().contains("routing rule 6"), "{}", answer.summary());
        let nowhere = forgetful.admin().get("/apis/shop.example.com/v1/carts").await;
        assert_eq!(nowhere.status, StatusCode::NOT_FOUND);
    });
}

#[test]
fn upstream_is_forgotten_after_the_configured_time() {
    let mut plane = start_two_stock_servers(TestStore::Sqlite);
    let gateway = RunningGateway::start("gateway", &plane, &["old", "new"], &["--upstream-forget-after=5s"]);
    let admin = gateway.admin();
    block_on(async {
        assert_eq!(admin.get(CLASSES_PATH).await.status, StatusCode::OK);
        plane.kill("new");
        let killed = Instant::now();
        wait_for_404_after_503(&admin, CLASSES_PATH).await;
        // An inspection may have begun up to two seconds before it failed.
        assert!(killed.elapsed() >= Duration::from_secs(3), "after {:?}", killed.elapsed());
        // The upstream is forgotten, and the 404 comes from the other server.
        let directly = plane.admin("old").get(CLASSES_PATH).await;
        assert_eq!(admin.get(CLASSES_PATH).await.body, directly.body);
        let document = get_accepting(&admin, "/apis", MERGED_DISCOVERY_ACCEPT).await;
        assert!(!String::from_utf8_lossy(&document.body).contains("volumeattributesclasses"));
        let report = admin.get("/debug/peers").await.json();
        assert!(!report.to_string().contains(&plane.address("new")), "{report}");
        assert_eq!(admin.get(DEPLOYMENTS_PATH).await.status, StatusCode::OK);
        // A returning upstream counts again.
        plane.launch("new", &[NEW_FLAGS[0], NEW_FLAGS[1], PEER_PROXY_OFF]);
        eventually("the resource is served again", async || {
            let answer = admin.get(CLASSES_PATH).await;
            if answer.status == StatusCode::OK { Ok(()) } else { Err(answer.summary()) }
        })
        .await;
    });
}

#[test]
fn upstream_that_never_answered_is_503_until_forgotten() {
    let mut plane = start_two_stock_servers(TestStore::Sqlite);
    plane.kill("new");
    let gateway = RunningGateway::start("gateway", &plane, &["old", "new"], &["--upstream-forget-after=5s"]);
    let admin = gateway.admin();
    block_on(async {
        let answer = admin.get(CLASSES_PATH).await;
        assert!(answer.summary().contains("routing rule 6"), "{}", answer.summary());
        wait_for_404_after_503(&admin, CLASSES_PATH).await;
    });
}

/// Waits for 404 and accepts only 503 until then.
async fn wait_for_404_after_503(client: &Client, path: &str) {
    eventually(&format!("{path} is 404"), async || {
        let answer = client.get(path).await;
        match answer.status {
            StatusCode::NOT_FOUND => Ok(()),
            StatusCode::SERVICE_UNAVAILABLE => Err(answer.summary()),
            _ => panic!("{path}: {}", answer.summary()),
        }
    })
    .await;
}

#[test]
fn gateway_is_unready_without_upstreams_and_recovers() {
    let mut plane = start_two_stock_servers(TestStore::Sqlite);
    let gateway = RunningGateway::start("gateway", &plane, &["old", "new"], &[]);
    let admin = gateway.admin();
    let etag = block_on(get_accepting(&admin, "/apis", MERGED_DISCOVERY_ACCEPT)).headers["etag"].clone();
    plane.kill("old");
    plane.kill("new");
    block_on(async {
        eventually("the gateway is not ready", async || {
            if admin.is_ready().await { Err("still ready".to_owned()) } else { Ok(()) }
        })
        .await;
        for path in [CLASSES_PATH, DEPLOYMENTS_PATH, "/version", "/apis/shop.example.com/v1/carts"] {
            let answer = admin.get(path).await;
            assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE, "{path}: {}", answer.summary());
        }
    });
    plane.start("old", &[OLD_FLAGS[0], PEER_PROXY_OFF]);
    plane.start("new", &[NEW_FLAGS[0], NEW_FLAGS[1], PEER_PROXY_OFF]);
    gateway.wait_ready();
    block_on(async {
        wait_for_status(&admin, CLASSES_PATH, StatusCode::OK).await;
        wait_for_status(&admin, DEPLOYMENTS_PATH, StatusCode::OK).await;
        eventually("the document is complete again", async || {
            let now = get_accepting(&admin, "/apis", MERGED_DISCOVERY_ACCEPT).await;
            if now.headers.get("etag") == Some(&etag) { Ok(()) } else { Err(format!("{:?}", now.headers)) }
        })
        .await;
    });
}

#[test]
fn watches_end_with_their_upstream_only() {
    let mut plane = ControlPlane::new(TestStore::Sqlite);
    for name in ["a", "b"] {
        plane.start(name, &[PEER_PROXY_OFF]);
    }
    let gateway = RunningGateway::start("gateway", &plane, &["a", "b"], &[]);
    let admin = gateway.admin();
    block_on(async {
        let mut watches = Vec::new();
        for _ in 0..4 {
            watches.push(WatchReader::open(&admin, &format!("{}?watch=1", crate::CONFIG_MAPS_PATH)).await);
        }
        plane.stop("a");
        let created = admin.create(crate::CONFIG_MAPS_PATH, &crate::config_map("after")).await;
        assert_eq!(created.status, StatusCode::CREATED, "{}", created.summary());
        let mut ended = 0;
        for watch in &mut watches {
            loop {
                match watch.try_next_event().await {
                    Err(_) => {
                        ended += 1;
                        break;
                    }
                    Ok(event) if event["object"]["metadata"]["name"] == "after" => break,
                    Ok(_) => {}
                }
            }
        }
        assert_eq!(ended, 2, "only watches on the stopped server end");
    });
}

//! Cost, duration and path of forwarding.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use cluster_tests::wait::{eventually, metric_value};
use cluster_tests::{Client, ControlPlane, WatchReader};
use tokio::net::{TcpListener, TcpStream};

use crate::*;

/// `storage.k8s.io/v1` serves it from 1.34 on, so the old server has it only through the new one.
const CLASSES_PATH: &str = "/apis/storage.k8s.io/v1/volumeattributesclasses";
const OLD_FLAG: &str = "--emulated-version=1.33";
const NEW_FLAG: &str = "--emulated-version=1.36";

async fn expect_ok(client: &Client, path: &str) -> Result<(), String> {
    let found = client.get(path).await;
    if found.status == 200 { Ok(()) } else { Err(found.summary()) }
}

/// Series that counts a server's own requests for the classes.
fn request_count_series(verb: &str) -> String {
    format!(
        "apiserver_request_total{{code=\"200\",group=\"storage.k8s.io\",resource=\"volumeattributesclasses\",\
         subresource=\"\",verb=\"{verb}\",version=\"v1\"}}"
    )
}

#[test]
fn forwarded_watches_take_no_seat_and_requests_log_nothing() {
    let mut plane = ControlPlane::new(TestStore::Sqlite);
    plane.start("new", &[NEW_FLAG]);
    plane.start("old", &[OLD_FLAG, "--max-requests-inflight=2", "--max-mutating-requests-inflight=2"]);
    let old = plane.admin("old");
    block_on(async {
        eventually("the servers discover each other", async || expect_ok(&old, CLASSES_PATH).await).await;
        let mut watches = Vec::new();
        for _ in 0..10 {
            watches.push(WatchReader::open(&old, &format!("{CLASSES_PATH}?watch=true")).await);
        }
        let (before, log) =
            (metric_value(&old, &request_count_series("LIST")).await, plane.server("old").log().lines().count());
        for _ in 0..20 {
            assert_eq!(old.get(CLASSES_PATH).await.status, 200, "watches take no in-flight seat");
        }
        assert_eq!(
            metric_value(&old, &request_count_series("LIST")).await,
            before + 20,
            "forwarded requests count as requests"
        );
        let class = json!({"metadata": {"name": "one"}, "driverName": "disks.example.com", "parameters": {"a": "b"}});
        assert_eq!(old.create(CLASSES_PATH, &class).await.status, 201);
        for watch in &mut watches {
            assert_eq!(watch.next_event_summary().await, "ADDED one");
        }
        assert_eq!(plane.server("old").log().lines().count(), log, "{}", plane.server("old").log());
    });
}

/// Total time that the bandwidth limit delayed bodies, over all peers.
async fn bandwidth_wait_seconds(client: &Client) -> f64 {
    let page = client.get("/metrics").await;
    let text = String::from_utf8_lossy(&page.body).into_owned();
    let series = text.lines().filter(|line| line.starts_with("unskew_peer_bandwidth_wait_seconds_total{"));
    series.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}

#[test]
fn bandwidth_limit_delays_forwarded_bodies_without_loss() {
    let mut plane = ControlPlane::new(TestStore::Sqlite);
    plane.start("new", &[NEW_FLAG]);
    plane.start("old", &[OLD_FLAG, "--peer-max-bandwidth=10000"]);
    let [new, old] = ["new", "old"].map(|name| plane.admin(name));
    let one = format!("{CLASSES_PATH}/one");
    block_on(async {
        eventually("the servers discover each other", async || expect_ok(&old, CLASSES_PATH).await).await;
        let class = json!({
            "metadata": {"name": "one"}, "driverName": "disks.example.com", "parameters": {"a": "x".repeat(30_000)},
        });
        assert_eq!(old.create(CLASSES_PATH, &class).await.status, 201);
        eventually("a response is delayed by the bandwidth limit", async || {
            let [direct, forwarded] = [new.get(&one).await, old.get(&one).await];
            assert_eq!(forwarded.body, direct.body);
            if bandwidth_wait_seconds(&old).await > 0.0 { Ok(()) } else { Err("nothing was delayed".to_owned()) }
        })
        .await;
        assert_eq!(bandwidth_wait_seconds(&new).await, 0.0, "the limit applies at the forwarding server");
    });
}

#[test]
fn draining_server_still_forwards_requests() {
    let mut plane = ControlPlane::new(TestStore::Sqlite);
    plane.start("new", &[NEW_FLAG]);
    plane.start("old", &[OLD_FLAG, "--shutdown-delay-duration=3s"]);
    let old = plane.admin("old");
    block_on(eventually("the servers discover each other", async || expect_ok(&old, CLASSES_PATH).await));
    std::thread::scope(|scope| {
        let stopping = scope.spawn(|| plane.stop("old"));
        block_on(async {
            eventually("the server is no longer ready", async || match old.get("/readyz").await.status.as_u16() {
                500 => Ok(()),
                other => Err(other.to_string()),
            })
            .await;
            for _ in 0..20 {
                assert_eq!(old.get(CLASSES_PATH).await.status, 200, "a draining server still forwards");
            }
        });
        stopping.join().unwrap();
    });
}

/// Relays TCP connections to `target` and counts them.
async fn relay(listener: TcpListener, target: SocketAddr, count: Arc<AtomicUsize>) {
    while let Ok((mut here, _)) = listener.accept().await {
        count.fetch_add(1, Ordering::SeqCst);
        let carrying = async move {
            let mut there = TcpStream::connect(target).await.unwrap();
            let _ = tokio::io::copy_bidirectional(&mut here, &mut there).await;
        };
        #[expect(clippy::disallowed_methods, reason = "the task ends with the test's runtime")]
        tokio::spawn(carrying);
    }
}

/// Addresses of a server's peers, from `/debug/peers`.
async fn peer_addresses(client: &Client) -> Vec<String> {
    let report = client.get("/debug/peers").await.json();
    let members = report["members"].as_array().unwrap().clone();
    members.iter().filter_map(|member| member["address"].as_str().map(str::to_owned)).collect()
}

#[test]
fn peers_connect_to_the_advertised_address() {
    let mut plane = ControlPlane::new(TestStore::Sqlite);
    plane.start("old", &[OLD_FLAG]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let listener = runtime.block_on(TcpListener::bind("127.0.0.2:0")).unwrap();
    let advertised = listener.local_addr().unwrap();
    let [ip, port] =
        [format!("--peer-advertise-ip={}", advertised.ip()), format!("--peer-advertise-port={}", advertised.port())];
    plane.start("new", &[NEW_FLAG, &ip, &port]);
    let old = plane.admin("old");
    let target = plane.server("new").address().parse().unwrap();
    runtime.block_on(async {
        let count = Arc::new(AtomicUsize::new(0));
        #[expect(clippy::disallowed_methods, reason = "the task ends with the test's runtime")]
        tokio::spawn(relay(listener, target, count.clone()));
        eventually("the servers discover each other", async || expect_ok(&old, CLASSES_PATH).await).await;
        assert_eq!(peer_addresses(&old).await, [advertised.to_string()]);
        assert!(count.load(Ordering::SeqCst) > 0, "requests use the advertised address");
    });
    // Without the flags a server advertises its listen address, or an address of the host if it listens on all.
    plane.stop("new");
    plane.start("new", &[NEW_FLAG]);
    let listens = plane.server("new").address().to_owned();
    let old = plane.admin("old");
    let is_there = async || {
        let found = peer_addresses(&old).await;
        if found == [listens.clone()] { Ok(()) } else { Err(format!("{found:?}")) }
    };
    block_on(eventually("the listen address is advertised", is_there));
    plane.stop("new");
    plane.start("new", &[NEW_FLAG, "--bind-address=0.0.0.0", "--advertise-address=127.0.0.1"]);
    block_on(eventually("the address of the flags is advertised", is_there));
    plane.stop("new");
    plane.start("new", &[NEW_FLAG, "--bind-address=0.0.0.0"]);
    block_on(async {
        eventually("the peer is used", async || expect_ok(&old, CLASSES_PATH).await).await;
        let found = peer_addresses(&old).await;
        assert!(found.len() == 1 && !found[0].starts_with("0.0.0.0"), "{found:?}");
    });
}

#[test]
fn forwarding_follows_the_feature_gate_across_restarts() {
    let mut plane = ControlPlane::new(TestStore::Sqlite);
    plane.start("new", &[NEW_FLAG]);
    for gate in ["true", "false", "true"] {
        plane.start("old", &[OLD_FLAG, &format!("--feature-gates=UnknownVersionInteroperabilityProxy={gate}")]);
        let old = plane.admin("old");
        let wanted = if gate == "true" { 200 } else { 404 };
        let answers = async || match old.get(CLASSES_PATH).await.status.as_u16() {
            found if found == wanted => Ok(()),
            other => Err(other.to_string()),
        };
        block_on(eventually("the gate takes effect", answers));
        plane.stop("old");
    }
}

#[test]
fn every_listed_collection_is_served_or_501() {
    let mut plane = ControlPlane::new(TestStore::Sqlite);
    plane.start("old", &["--emulated-version=1.33", "--runtime-config=apps/v1=false"]);
    plane.start("new", &["--emulated-version=1.37", "--runtime-config=api/all=true"]);
    let clients = ["old", "new"].map(|name| plane.admin(name));
    block_on(async {
        eventually("the servers discover each other", async || expect_ok(&clients[0], CLASSES_PATH).await).await;
        for client in &clients {
            let mut asked = 0;
            for path in list_collection_paths(client).await {
                let answer = client.get(&path).await;
                // Listed resources that are not implemented return 501.
                assert!([200, 501].contains(&answer.status.as_u16()), "{path}: {}", answer.summary());
                asked += u32::from(answer.status == 200);
            }
            assert!(asked > 50, "{asked} collections were listed");
            let made = metric_value(client, "aggregator_discovery_peer_aggregated_cache_misses_total").await;
            assert!(made > 0, "building the merged document is counted");
        }
    });
}

/// Paths of all collections in a server's merged discovery document.
async fn list_collection_paths(client: &Client) -> Vec<String> {
    let merged = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let request = client.request_builder(http::Method::GET, "/apis").header("accept", merged);
    let document = client.send(request, bytes::Bytes::new()).await.json();
    let items = |value: &Value, field: &str| value[field].as_array().cloned().unwrap_or_default();
    let mut paths = Vec::new();
    for group in items(&document, "items") {
        for version in items(&group, "versions") {
            for resource in items(&version, "resources") {
                let [group, version] =
                    [&group["metadata"]["name"], &version["version"]].map(|name| name.as_str().unwrap());
                if resource["verbs"].to_string().contains("\"list\"") {
                    paths.push(format!("/apis/{group}/{version}/{}", resource["resource"].as_str().unwrap()));
                }
            }
        }
    }
    paths
}

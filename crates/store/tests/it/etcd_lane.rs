//! The connection that probes have to themselves.

use std::sync::Arc;
use std::time::Duration;

use store::etcd::Timeouts;
use store::{Key, Store};

use crate::conformance::stage::{put, revision, within};
use crate::etcd::{Cluster, Release};
use crate::proxy::{Mode, Proxy};

const KEY: Key = Key::from_static(b"a");

/// So long that no connection is tested by itself.
const TIMEOUTS: Timeouts = Timeouts {
    connect: Duration::from_secs(1),
    request: Duration::from_secs(4),
    keep_alive_interval: Duration::from_secs(600),
    keep_alive_timeout: Duration::from_secs(600),
};

/// A client that probes through a proxy, on a connection of its own by now.
async fn in_lane(cluster: &Cluster) -> (Arc<dyn Store>, Proxy) {
    let proxy = Proxy::start(cluster.members[0].port, Mode::Pass).await;
    let store = cluster.client_at(vec![proxy.url.clone()], TIMEOUTS).await;
    put(&store, KEY, "1").await.unwrap();
    let before = proxy.accepted();
    let opened = async {
        while proxy.accepted() == before {
            revision(&store).await.unwrap();
        }
    };
    within("a connection for probes", opened).await.unwrap();
    (store, proxy)
}

#[tokio::test]
async fn every_probe_sees_every_write_on_one_connection() {
    let cluster = Cluster::single(Release::New).await;
    let (store, proxy) = in_lane(&cluster).await;
    let connections = proxy.accepted();
    for round in 0..200 {
        let written = put(&store, KEY, format!("{round}")).await.unwrap();
        assert_eq!(revision(&store).await.unwrap(), written);
    }
    assert_eq!(proxy.accepted(), connections);
}

#[tokio::test]
async fn a_lane_that_is_cut_loses_no_probe() {
    let cluster = Cluster::single(Release::New).await;
    let (store, proxy) = in_lane(&cluster).await;
    for _ in 0..3 {
        let written = put(&store, KEY, "2").await.unwrap();
        proxy.cut();
        assert_eq!(revision(&store).await.unwrap(), written);
    }
}

#[tokio::test]
async fn a_lane_that_goes_deaf_is_passed_by() {
    let cluster = Cluster::single(Release::New).await;
    let (store, proxy) = in_lane(&cluster).await;
    let written = put(&store, KEY, "2").await.unwrap();
    proxy.set(Mode::StallOld);
    assert_eq!(within("a probe", store.revision()).await.unwrap().unwrap(), written);
}

#[tokio::test]
async fn an_etcd_of_before_has_a_lane_too() {
    let cluster = Cluster::single(Release::Old).await;
    let (store, _proxy) = in_lane(&cluster).await;
    let written = put(&store, KEY, "2").await.unwrap();
    assert_eq!(revision(&store).await.unwrap(), written);
}

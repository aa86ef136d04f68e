//! Tests of the dedicated probe connection.

use std::sync::Arc;
use std::time::Duration;

use store::etcd::Timeouts;
use store::{Key, Store};

use crate::conformance::check_fixture::{put, revision, with_timeout};
use crate::etcd_cluster::{EtcdCluster, EtcdRelease};
use crate::proxy::{FaultProxy, ProxyMode};

const KEY: Key = Key::from_static(b"a");

/// So long that no keepalive is sent.
const TIMEOUTS: Timeouts = Timeouts {
    connect: Duration::from_secs(1),
    request: Duration::from_secs(4),
    keep_alive_interval: Duration::from_secs(600),
    keep_alive_timeout: Duration::from_secs(600),
};

/// Returns a client that already has its probe connection, through a proxy.
async fn client_with_probe_connection(cluster: &EtcdCluster) -> (Arc<dyn Store>, FaultProxy) {
    let proxy = FaultProxy::start(cluster.members[0].port, ProxyMode::Pass).await;
    let store = cluster.client_at(vec![proxy.url.clone()], TIMEOUTS).await;
    put(&store, KEY, "1").await.unwrap();
    let before = proxy.accepted_count();
    let opened = async {
        while proxy.accepted_count() == before {
            revision(&store).await.unwrap();
        }
    };
    with_timeout("a connection for probes", opened).await.unwrap();
    (store, proxy)
}

#[tokio::test]
async fn probes_share_one_connection_and_see_every_write() {
    let cluster = EtcdCluster::single(EtcdRelease::New).await;
    let (store, proxy) = client_with_probe_connection(&cluster).await;
    let connections = proxy.accepted_count();
    for round in 0..200 {
        let written = put(&store, KEY, format!("{round}")).await.unwrap();
        assert_eq!(revision(&store).await.unwrap(), written);
    }
    assert_eq!(proxy.accepted_count(), connections);
}

#[tokio::test]
async fn probe_survives_broken_probe_connection() {
    let cluster = EtcdCluster::single(EtcdRelease::New).await;
    let (store, proxy) = client_with_probe_connection(&cluster).await;
    for _ in 0..3 {
        let written = put(&store, KEY, "2").await.unwrap();
        proxy.cut_connections();
        assert_eq!(revision(&store).await.unwrap(), written);
    }
}

#[tokio::test]
async fn probe_falls_back_from_stalled_probe_connection() {
    let cluster = EtcdCluster::single(EtcdRelease::New).await;
    let (store, proxy) = client_with_probe_connection(&cluster).await;
    let written = put(&store, KEY, "2").await.unwrap();
    proxy.set_mode(ProxyMode::StallExisting);
    assert_eq!(with_timeout("a probe", store.revision()).await.unwrap().unwrap(), written);
}

#[tokio::test]
async fn old_etcd_gets_a_probe_connection() {
    let cluster = EtcdCluster::single(EtcdRelease::Old).await;
    let (store, _proxy) = client_with_probe_connection(&cluster).await;
    let written = put(&store, KEY, "2").await.unwrap();
    assert_eq!(revision(&store).await.unwrap(), written);
}

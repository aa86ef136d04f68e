//! Storage that is unavailable, recovers, or holds unreadable objects.

use std::time::Duration;

use cluster_tests::process::run_command;
use cluster_tests::{WatchReader, tools, wait};

use crate::*;

#[test]
fn etcd_with_protobuf_objects_is_rejected_at_start() {
    for key in ["/registry/namespaces/default", "/registry/configmaps/default/a"] {
        let etcd = Etcd::start();
        etcd.put(key, b"k8s\0\n\x0f\n\x02v1\x12\tNamespace");
        // kube-apiserver always stores these as JSON.
        etcd.put("/registry/apiregistration.k8s.io/apiservices/v1.", b"{}");
        etcd.put("/registry/zzz/default/b", b"k8s\0\n\x0f");
        let folder = tempfile::tempdir().unwrap();
        let mut command = std::process::Command::new(tools::unskew_binary());
        let servers = format!("--etcd-servers={}", etcd.url());
        command.current_dir(folder.path()).args(["serve", "--secure-port=0", &servers]);
        let refused = run_command(command, Duration::from_secs(60));
        assert_eq!(refused.code, Some(69), "{refused:?}");
        for part in [key, "protobuf", "--storage-media-type=application/json"] {
            assert!(refused.stderr.contains(part), "{part} is not in {}", refused.stderr);
        }
        assert_eq!(etcd.count_keys(), 3, "nothing was written");
    }
}

#[test]
fn single_protobuf_object_is_reported_when_read() {
    let etcd = Etcd::start();
    let folder = tempfile::tempdir().unwrap();
    RunningServer::start(folder.path(), TestStore::Etcd(&etcd), &[]).stop();
    etcd.put("/registry/configmaps/default/odd", b"k8s\0\n\x0f");
    let server = RunningServer::start(folder.path(), TestStore::Etcd(&etcd), &[]);
    block_on(async {
        let answer = server.admin().get(&format!("{CONFIG_MAPS_PATH}/odd")).await;
        assert_eq!(answer.status, 500, "{answer:?}");
        assert!(answer.summary().contains("/registry/configmaps/default/odd"), "{answer:?}");
        let elsewhere = server.admin().create(CONFIG_MAPS_PATH, &config_map("even")).await;
        assert_eq!(elsewhere.status, 201, "{elsewhere:?}");
    });
}

#[test]
fn requests_are_503_while_etcd_is_down_and_recover() {
    let mut etcd = Etcd::start();
    let folder = tempfile::tempdir().unwrap();
    let server = RunningServer::start(folder.path(), TestStore::Etcd(&etcd), &[]);
    let client = server.admin();
    block_on(async {
        let path = format!("{CONFIG_MAPS_PATH}/a");
        let written = client.create(CONFIG_MAPS_PATH, &config_map("a")).await.json();
        let mut watch = WatchReader::open(&client, &format!("{CONFIG_MAPS_PATH}?watch=1&resourceVersion=0")).await;
        assert_eq!(watch.next_event_summary().await, "ADDED a");
        etcd.kill();
        wait_for_status(&client, "/readyz/etcd", 500).await;
        // More requests than a minute would hold if each waited for its own timeout.
        for _ in 0..10 {
            let (got, listed) = (client.get(&path).await, client.get(CONFIG_MAPS_PATH).await);
            let created = client.create(CONFIG_MAPS_PATH, &config_map("b")).await;
            for answer in [&got, &listed, &created] {
                assert_eq!((answer.status.as_u16(), &answer.json()["reason"]), (503, &"ServiceUnavailable".into()));
            }
            assert_eq!(got.headers["retry-after"], "1", "nothing was executed, so clients may retry");
        }
        let remembered = client.get(&format!("{path}?resourceVersion=0")).await;
        assert_eq!(remembered.json(), written, "resourceVersion=0 is served from the cache");
        etcd.restart();
        wait_for_status(&client, "/readyz/etcd", 200).await;
        wait_for_status(&client, &path, 200).await;
        assert_eq!(client.create(CONFIG_MAPS_PATH, &config_map("c")).await.status, 201);
        assert_eq!(watch.next_event_summary().await, "ADDED c", "the watch survives the outage");
    });
}

async fn wait_for_status(client: &Client, path: &str, status: u16) {
    wait::eventually(&format!("{path} returns {status}"), async || match client.get(path).await {
        answer if answer.status == status => Ok(()),
        answer => Err(answer.summary()),
    })
    .await;
}

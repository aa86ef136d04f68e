//! Storage that is away, comes back, or holds what we cannot read.

use std::time::Duration;

use cluster_tests::process::run;
use cluster_tests::{Lines, tools, wait};

use super::*;

#[test]
fn an_etcd_of_protobuf_is_refused_at_the_start_and_left_as_it_is() {
    for key in ["/registry/namespaces/default", "/registry/configmaps/default/a"] {
        let etcd = Etcd::start();
        etcd.put(key, b"k8s\0\n\x0f\n\x02v1\x12\tNamespace");
        // What kube-apiserver stores as JSON always.
        etcd.put("/registry/apiregistration.k8s.io/apiservices/v1.", b"{}");
        etcd.put("/registry/zzz/default/b", b"k8s\0\n\x0f");
        let folder = tempfile::tempdir().unwrap();
        let mut command = std::process::Command::new(tools::unskew());
        let servers = format!("--etcd-servers={}", etcd.url());
        command.current_dir(folder.path()).args(["serve", "--secure-port=0", &servers]);
        let refused = run(command, Duration::from_secs(60));
        assert_eq!(refused.code, Some(69), "{refused:?}");
        for part in [key, "protobuf", "--storage-media-type=application/json"] {
            assert!(refused.stderr.contains(part), "{part} is not in {}", refused.stderr);
        }
        assert_eq!(etcd.count(), 3, "nothing was written");
    }
}

#[test]
fn one_object_of_protobuf_is_told_of_when_it_is_read() {
    let etcd = Etcd::start();
    let folder = tempfile::tempdir().unwrap();
    Server::start(folder.path(), Store::Etcd(&etcd), &[]).stop();
    etcd.put("/registry/configmaps/default/odd", b"k8s\0\n\x0f");
    let server = Server::start(folder.path(), Store::Etcd(&etcd), &[]);
    block_on(async {
        let answer = server.admin().get(&format!("{CONFIG_MAPS}/odd")).await;
        assert_eq!(answer.status, 500, "{answer:?}");
        assert!(answer.brief().contains("/registry/configmaps/default/odd"), "{answer:?}");
        let elsewhere = server.admin().create(CONFIG_MAPS, &config_map("even")).await;
        assert_eq!(elsewhere.status, 201, "{elsewhere:?}");
    });
}

#[test]
fn requests_are_unavailable_while_storage_is_away_and_go_on_when_it_is_back() {
    let mut etcd = Etcd::start();
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), Store::Etcd(&etcd), &[]);
    let client = server.admin();
    block_on(async {
        let path = format!("{CONFIG_MAPS}/a");
        let written = client.create(CONFIG_MAPS, &config_map("a")).await.json();
        let mut watch = Lines::open(&client, &format!("{CONFIG_MAPS}?watch=1&resourceVersion=0")).await;
        assert_eq!(watch.brief().await, "ADDED a");
        etcd.kill();
        eventually_answers(&client, "/readyz/etcd", 500).await;
        // More of them than a minute would hold if each waited for its own timeout.
        for _ in 0..10 {
            let (got, listed) = (client.get(&path).await, client.get(CONFIG_MAPS).await);
            let created = client.create(CONFIG_MAPS, &config_map("b")).await;
            for answer in [&got, &listed, &created] {
                assert_eq!((answer.status.as_u16(), &answer.json()["reason"]), (503, &"ServiceUnavailable".into()));
            }
            assert_eq!(got.headers["retry-after"], "1", "nothing was done, so it may be repeated");
        }
        let remembered = client.get(&format!("{path}?resourceVersion=0")).await;
        assert_eq!(remembered.json(), written, "memory is enough for who takes any state");
        etcd.restart();
        eventually_answers(&client, "/readyz/etcd", 200).await;
        eventually_answers(&client, &path, 200).await;
        assert_eq!(client.create(CONFIG_MAPS, &config_map("c")).await.status, 201);
        assert_eq!(watch.brief().await, "ADDED c", "the watch has outlived it");
    });
}

async fn eventually_answers(client: &Client, path: &str, status: u16) {
    wait::eventually(&format!("{path} answers {status}"), async || match client.get(path).await {
        answer if answer.status == status => Ok(()),
        answer => Err(answer.brief()),
    })
    .await;
}

//! kube-rs: client, watcher and reflector.

use std::time::Duration;

use futures_util::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::reflector::store::Writer;
use kube::runtime::{WatchStreamExt as _, reflector, watcher};
use kube::{Api, Client as KubeClient, Config};

use crate::*;

/// Prevents a hanging watch from hanging the test run.
const WATCH_TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) async fn connect(server: &RunningServer) -> KubeClient {
    let kubeconfig = Kubeconfig::read_from(server.kubeconfig()).unwrap();
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    KubeClient::try_from(config).unwrap()
}

fn typed_config_map(name: &str) -> ConfigMap {
    serde_json::from_value(config_map(name)).unwrap()
}

#[test]
fn kube_client_writes_objects_of_both_scopes() {
    for_each_store(|server| {
        block_on(async {
            let client = connect(server).await;
            let namespaces: Api<Namespace> = Api::all(client.clone());
            let namespace = serde_json::from_value(json!({"metadata": {"name": "rs"}})).unwrap();
            namespaces.create(&PostParams::default(), &namespace).await.unwrap();
            let maps: Api<ConfigMap> = Api::namespaced(client, "rs");
            for at in 0..25 {
                maps.create(&PostParams::default(), &typed_config_map(&format!("m{at:02}"))).await.unwrap();
            }
            let mut names = Vec::new();
            let mut params = ListParams::default().limit(10);
            loop {
                let page = maps.list(&params).await.unwrap();
                names.extend(page.items.iter().map(|map| map.metadata.name.clone().unwrap()));
                match page.metadata.continue_ {
                    Some(token) => params = params.continue_token(&token),
                    None => break,
                }
            }
            assert_eq!(names, (0..25).map(|at| format!("m{at:02}")).collect::<Vec<_>>());
            let patch = Patch::Strategic(json!({"data": {"b": "2"}}));
            let patched = maps.patch("m00", &PatchParams::default(), &patch).await.unwrap();
            assert_eq!(patched.data.unwrap().len(), 2);
            maps.delete("m00", &DeleteParams::default()).await.unwrap();
            let missing = maps.get("m00").await.unwrap_err();
            assert!(matches!(&missing, kube::Error::Api(status) if status.is_not_found()), "{missing:?}");
        });
    });
}

#[test]
fn reflector_sees_changes_with_and_without_streaming_list() {
    for_each_store(|server| {
        for config in [watcher::Config::default(), watcher::Config::default().streaming_lists()] {
            let following = async { tokio::time::timeout(WATCH_TIMEOUT, check_reflector(server, config)).await };
            block_on(following).expect("the reflector sees the changes in time");
        }
    });
}

async fn check_reflector(server: &RunningServer, config: watcher::Config) {
    let maps: Api<ConfigMap> = Api::namespaced(connect(server).await, "default");
    maps.create(&PostParams::default(), &typed_config_map("before")).await.unwrap();
    let writer = Writer::default();
    let store = writer.as_reader();
    let mut events = reflector(writer, watcher(maps.clone(), config)).applied_objects().boxed();
    let first = events.try_next().await.unwrap().unwrap();
    assert_eq!(first.metadata.name.as_deref(), Some("before"));
    maps.create(&PostParams::default(), &typed_config_map("after")).await.unwrap();
    let second = events.try_next().await.unwrap().unwrap();
    assert_eq!(second.metadata.name.as_deref(), Some("after"));
    assert_eq!(store.len(), 2);
    for name in ["before", "after"] {
        maps.delete(name, &DeleteParams::default()).await.unwrap();
    }
}

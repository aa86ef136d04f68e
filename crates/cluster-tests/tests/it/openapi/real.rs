//! A gateway in front of two real kube-apiservers of different releases.

use cluster_tests::kube_apiserver::{KubeApiserver, KubeApiserverRelease};
use cluster_tests::{ControlPlane, Etcd, RunningGateway, TestStore};

use super::{check_references, document_of, get_accepting, wait_for_merged_index};
use crate::block_on;

#[test]
fn gateway_merges_openapi_of_kube_apiservers() {
    let etcd = Etcd::start();
    let mut plane = ControlPlane::new(TestStore::Sqlite);
    // This server only creates the certificates; the real servers have their own storage.
    plane.start("maker", &[]);
    plane.stop("maker");
    let old = KubeApiserver::start_stock(KubeApiserverRelease::Old, plane.folder(), &etcd, &[]);
    let new = KubeApiserver::start_stock(
        KubeApiserverRelease::New,
        plane.folder(),
        &etcd,
        &["--runtime-config=apps/v1=false"],
    );
    let upstreams = [&old, &new].map(|server| format!("--upstream=https://{}", server.admin().address()));
    let gateway = RunningGateway::launch("gateway", &plane, &[], &[&upstreams[0], &upstreams[1]]);
    gateway.wait_ready();
    let admin = gateway.admin();
    block_on(async {
        let index = wait_for_merged_index(&admin, "apis/apps/v1").await;
        let [from_old, from_new] = [&old, &new].map(|server| server.admin());
        let theirs = from_new.get("/openapi/v3").await.json();
        for path in theirs["paths"].as_object().unwrap().keys() {
            assert!(index["paths"].get(path).is_some(), "{path}");
        }
        let document = document_of(&admin, &index, "apis/apps/v1").await;
        check_references(&document);
        let directly = from_old.get("/openapi/v3/apis/apps/v1").await.json();
        assert_eq!(document["paths"], directly["paths"]);
        let core = document_of(&admin, &index, "api/v1").await;
        assert_eq!(core["info"], from_new.get("/openapi/v3/api/v1").await.json()["info"]);
        let swagger = get_accepting(&admin, "/openapi/v2", "application/json").await.json();
        check_references(&swagger);
        assert!(swagger["paths"].get("/apis/apps/v1/deployments").is_some());
        get_accepting(&admin, "/openapi/v2", super::PROTOBUF_ACCEPT).await;
    });
    if !cluster_tests::tools::is_skipped("kubectl") {
        let explain = ["explain", "deployment.spec", "--output=plaintext-openapiv2"];
        for args in [&explain[..], &explain[..2]] {
            let text = cluster_tests::tools::kubectl(&gateway.kubeconfig(), args).expect_success();
            assert!(text.contains("FIELDS:"), "{text}");
        }
    }
}

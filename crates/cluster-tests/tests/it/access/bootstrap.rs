//! Objects that a new cluster holds from the start, for pods, extension API servers and schedulers.

use super::*;

#[test]
fn new_cluster_has_the_bootstrap_objects_of_kube_apiserver() {
    let folder = tempfile::tempdir().unwrap();
    let server = start_on_sqlite(folder.path(), &["--service-cluster-ip-range=10.96.0.0/12"]);
    let admin = server.admin();
    let (host, port) = server.address().rsplit_once(':').unwrap();
    let port: u16 = port.parse().unwrap();
    block_on(async {
        let service = admin.get("/api/v1/namespaces/default/services/kubernetes").await.json();
        assert_eq!(service["spec"]["clusterIP"], "10.96.0.1", "{service}");
        assert_eq!(service["spec"]["ports"][0]["targetPort"], port);
        let endpoints = admin.get("/api/v1/namespaces/default/endpoints/kubernetes").await.json();
        assert_eq!(endpoints["subsets"][0]["addresses"][0]["ip"], host, "{endpoints}");
        assert_eq!(endpoints["subsets"][0]["ports"][0]["port"], port);
        let slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes";
        let slice = admin.get(slices).await.json();
        assert_eq!(slice["endpoints"][0]["addresses"], json!([host]), "{slice}");
        let trust = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";
        let trust = admin.get(trust).await.json();
        let authority = |name: &str| std::fs::read_to_string(server.pki().join(name)).unwrap();
        assert_eq!(trust["data"]["client-ca-file"], authority("ca.crt"), "{trust}");
        assert_eq!(trust["data"]["requestheader-client-ca-file"], authority("front-proxy-ca.crt"), "{trust}");
        assert_eq!(trust["data"]["requestheader-username-headers"], r#"["X-Remote-User"]"#);
        let class = admin.get("/apis/scheduling.k8s.io/v1/priorityclasses/system-node-critical").await.json();
        assert_eq!(class["value"], 2_000_001_000, "{class}");
    });
    assert_eq!(server.stop(), Some(0));
    let again = start_on_sqlite(folder.path(), &["--service-cluster-ip-range=10.96.0.0/12"]);
    let new_port: u16 = again.address().rsplit_once(':').unwrap().1.parse().unwrap();
    block_on(async {
        let endpoints = again.admin().get("/api/v1/namespaces/default/endpoints/kubernetes").await.json();
        assert_eq!(endpoints["subsets"][0]["ports"][0]["port"], new_port, "the endpoints follow the server's port");
    });
}

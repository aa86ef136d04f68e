//! Servers with only some of the certificates that peering needs.

use super::*;

#[test]
fn server_without_all_peer_certificates_serves_alone_and_warns() {
    let mut plane = ControlPlane::new(TestStore::Sqlite);
    plane.start("new", &NEW_FLAGS);
    let pki = plane.server("new").pki();
    let flag = |name: &str, file: &str| format!("--{name}={}", pki.join(file).display());
    let given = [
        flag("proxy-client-cert-file", "front-proxy-client.crt"),
        flag("proxy-client-key-file", "front-proxy-client.key"),
        flag("requestheader-client-ca-file", "front-proxy-ca.crt"),
        "--requestheader-username-headers=X-Remote-User".to_owned(),
        "--requestheader-group-headers=X-Remote-Group".to_owned(),
        "--emulated-version=1.33".to_owned(),
    ];
    let given: Vec<&str> = given.iter().map(String::as_str).collect();
    plane.start("alone", &given);
    let (alone, new) = (plane.admin("alone"), plane.admin("new"));
    let log = plane.server("alone").log();
    assert!(log.contains("peering is disabled") && log.contains("--peer-ca-file not given"), "{log}");
    block_on(async {
        let ready = alone.get("/readyz?verbose").await;
        assert_eq!(ready.status, 200);
        let page = String::from_utf8_lossy(&ready.body).into_owned();
        assert!(page.contains("peering is disabled: this server neither asks nor forwards"), "{page}");
        assert_eq!(metric_value(&alone, "unskew_peering_disabled{reason=\"certificates\"}").await, 1);
        // The other server is mute to it: resources that it may serve are 503, not 404.
        let refused = alone.get(CLASSES_PATH).await;
        assert!(
            refused.summary().starts_with("503 ") && refused.summary().ends_with("(routing rule 6)"),
            "{}",
            refused.summary()
        );
        assert_eq!(alone.get("/apis/example.com/v1/widgets").await.status, 404);
        assert_eq!(alone.get("/api/v1/namespaces").await.status, 200);
        let merged = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
        let [with, without] = [merged.to_owned(), format!("{merged};profile=nopeer")];
        let [with, without] = [
            get_with_headers(&alone, "/apis", &[("accept", &with)]).await,
            get_with_headers(&alone, "/apis", &[("accept", &without)]).await,
        ];
        assert_eq!(with.json(), without.json(), "discovery is local");
        assert_eq!(metric_value(&new, "unskew_peering_disabled{reason=\"certificates\"}").await, 0);
        assert_eq!(new.get(CLASSES_PATH).await.status, 200);
    });
}

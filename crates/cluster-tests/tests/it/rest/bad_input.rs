//! Invalid requests get a clear Status, and the server keeps serving.

use http::Method;

use crate::*;

#[test]
fn malformed_requests_are_rejected_and_the_server_keeps_serving() {
    let folder = tempfile::tempdir().unwrap();
    let server = start_on_sqlite(folder.path(), &[]);
    let client = server.admin();
    block_on(async {
        let json = "application/json";
        let post = async |body: Vec<u8>, content_type: &str| {
            client.send_body(Method::POST, CONFIG_MAPS_PATH, content_type, body.into()).await.status.as_u16()
        };
        assert_eq!(post(vec![b' '; (3 << 20) + 1], json).await, 413);
        assert_eq!(post(b"{\"metadata\":".to_vec(), json).await, 400);
        assert_eq!(post("[".repeat(100_000).into_bytes(), json).await, 400);
        assert_eq!(post("{\"a\":".repeat(50_000).into_bytes(), json).await, 400);
        assert_eq!(post(b"{}".to_vec(), "text/csv").await, 415);
        let protobuf = "application/vnd.kubernetes.protobuf";
        for broken in [&b""[..], b"{}", b"k8s\0", b"k8s\0\x0a\x7f", b"k8s\0\x12\x02\x0a\x7f"] {
            assert_eq!(post(broken.to_vec(), protobuf).await, 400, "{broken:?}");
        }
        assert_eq!(post(b"a: &a [*a, *a]".to_vec(), "application/yaml").await, 400);
        assert_eq!(post(br#"{"kind":"Secret","apiVersion":"v1","metadata":{"name":"x"}}"#.to_vec(), json).await, 400);
        assert_eq!(post(br#"{"metadata":{"name":"UPPER"}}"#.to_vec(), json).await, 422);
        assert_eq!(post(br#"{"metadata":{"name":"x","namespace":"other"}}"#.to_vec(), json).await, 400);

        let get = async |path: &str| client.get(path).await;
        assert_eq!(
            get("/api/v1/namespaces/default/gadgets").await.summary(),
            "404 the server could not find the requested resource"
        );
        assert_eq!(get("/apis/example.com/v1/widgets").await.status, 404);
        assert_eq!(get("/no/such/page").await.status, 404);
        assert_eq!(get("/api/v1/namespaces/default/configmaps/..%2f..%2fsecrets%2fx").await.status, 404);
        assert_eq!(get("/api/v1/namespaces/../namespaces/default/configmaps/%2e%2e").await.status, 404);
        assert_eq!(get("/api/v1/namespaces/default/configmaps/%00").await.status, 404);
        assert_eq!(get("/api/v1/%zz").await.status, 400);
        assert_eq!(get(&format!("{CONFIG_MAPS_PATH}?labelSelector=a%20in")).await.status, 400);
        assert_eq!(get(&format!("{CONFIG_MAPS_PATH}?limit=x")).await.status, 400);
        assert_eq!(get(&format!("{CONFIG_MAPS_PATH}?continue=x")).await.status, 400);
        let options = client.send(client.request_builder(Method::OPTIONS, CONFIG_MAPS_PATH), bytes::Bytes::new()).await;
        assert_eq!(options.status, 405);
        // Methods that do not fit an object or a collection.
        let to = async |method, path: &str, media_type| client.send_body(method, path, media_type, "{}".into()).await;
        assert_eq!(to(Method::POST, &format!("{CONFIG_MAPS_PATH}/a"), json).await.status, 405);
        assert_eq!(to(Method::PATCH, CONFIG_MAPS_PATH, "application/merge-patch+json").await.status, 405);
        assert_eq!(to(Method::PUT, CONFIG_MAPS_PATH, json).await.status, 405);
        let dry = client.create(&format!("{CONFIG_MAPS_PATH}?dryRun=Some"), &config_map("dry")).await;
        assert_eq!(
            dry.summary(),
            r#"422 CreateOptions.meta.k8s.io "" is invalid: dryRun: Unsupported value: ["Some"]: supported values: "All""#
        );
        let dry = client.create(&format!("{CONFIG_MAPS_PATH}?dryRun=All"), &config_map("dry")).await.json();
        assert!(dry["metadata"]["resourceVersion"].is_null(), "a dry run has no resourceVersion: {dry}");
        let picky = client.request_builder(Method::GET, CONFIG_MAPS_PATH).header("accept", "image/png");
        assert_eq!(client.send(picky, bytes::Bytes::new()).await.status, 406);

        assert_eq!(client.create(CONFIG_MAPS_PATH, &config_map("still-here")).await.status, 201);
    });
}

#[test]
fn strict_validation_reports_fields_in_the_order_of_the_body() {
    let folder = tempfile::tempdir().unwrap();
    let server = start_on_sqlite(folder.path(), &[]);
    block_on(async {
        let client = server.admin();
        let body =
            r#"{"metadata": {"name": "a"}, "z": 1, "immutable": true, "immutable": false, "b": {"x": 1, "x": 2}}"#;
        let path = format!("{CONFIG_MAPS_PATH}?fieldValidation=Strict");
        let refused = client.send_body(Method::POST, &path, "application/json", body.into()).await;
        assert_eq!(
            refused.summary(),
            "400 ConfigMap in version \"v1\" cannot be handled as a ConfigMap: strict decoding error: unknown field \"z\", \
             duplicate field \"immutable\", unknown field \"b\""
        );
    });
}

//! OpenAPI documents of extension API servers, merged into those of the server.

use std::path::Path;

use cluster_tests::tools::{is_skipped, kubectl};
use http::StatusCode;

use super::extension_server::openapi::{CLASHING, GADGET};
use super::extension_server::{GROUP, NAME};
use super::*;

const VERSION: &str = "apis/ext.example.com/v1";
const DOCUMENT: &str = "/openapi/v3/apis/ext.example.com/v1";
const GADGETS_PATH: &str = "/apis/ext.example.com/v1/namespaces/{namespace}/gadgets";
const PROTOBUF_ACCEPT: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// The address of the document in the index; empty if there is none.
async fn indexed(client: &Client) -> String {
    let index = client.get("/openapi/v3").await.json();
    assert!(!index["paths"]["apis/apps/v1"].to_string().contains("EVIL"), "{index}");
    index["paths"][VERSION]["serverRelativeURL"].as_str().unwrap_or_default().to_owned()
}

#[track_caller]
fn wait_until_indexed(client: &Client, hash: &str) {
    let expected = format!("{DOCUMENT}?hash={hash}");
    wait_within(LIMIT, &format!("the index lists {expected}"), async || {
        let found = indexed(client).await;
        if found == expected { Ok(()) } else { Err(found) }
    });
}

fn explain(kubeconfig: &Path, extra: &[&str]) -> String {
    let args: Vec<&str> = ["explain", "gadget.size"].into_iter().chain(extra.iter().copied()).collect();
    kubectl(kubeconfig, &args).expect_success()
}

#[test]
fn openapi_of_extension_server_is_merged_and_explained() {
    let mut plane = ControlPlane::new(TestStore::Sqlite);
    plane.start("a", &["--emulated-version=1.33"]);
    plane.start("b", &[]);
    let ([a, b], runtime) = (["a", "b"].map(|name| plane.admin(name)), runtime());
    let extension = runtime.block_on(ExtensionServer::start());
    block_on(extension.register(&a));
    for client in [&a, &b] {
        wait_until_listed(client, GROUP, &["v1 Current gadgets"]);
        wait_until_indexed(client, "ABC1");
    }
    block_on(async {
        for client in [&a, &b] {
            let document = client.get(&format!("{DOCUMENT}?hash=ABC1")).await;
            assert_eq!(document.status, StatusCode::OK, "{}", document.summary());
            assert_eq!(document.headers["cache-control"], "public, immutable");
            assert_eq!(document.json()["info"]["title"], "Gadgets");
            let swagger = client.get("/openapi/v2").await.json();
            assert!(swagger["paths"].get("/apis/apps/v1/deployments").is_some());
            assert!(swagger["paths"].get("/apis/apps/v1/evils").is_none());
            let body = &swagger["paths"][GADGETS_PATH]["post"]["parameters"][0]["schema"]["$ref"];
            assert_eq!(*body, format!("#/definitions/{GADGET}"));
            let pod = &swagger["definitions"][GADGET]["properties"]["pod"]["$ref"];
            assert_eq!(*pod, format!("#/definitions/{CLASHING}_v2"));
            assert!(swagger["definitions"][CLASHING]["properties"].get("containers").is_some());
            let protobuf = client.request_builder(http::Method::GET, "/openapi/v2").header("accept", PROTOBUF_ACCEPT);
            let protobuf = client.send(protobuf, bytes::Bytes::new()).await.body;
            assert!(protobuf.windows(GADGET.len()).any(|window| window == GADGET.as_bytes()));
        }
    });
    if !is_skipped("kubectl") {
        for output in [&[][..], &["--output=plaintext-openapiv2"]] {
            let text = explain(&plane.server("a").kubeconfig(), output);
            assert!(text.contains("Size in release 1."), "{text}");
        }
    }
    extension.set_mode(Mode::NewerOpenApi);
    wait_until_indexed(&a, "ABC2");
    wait_within(LIMIT, "the document has changed", async || {
        let title = a.get(DOCUMENT).await.json()["info"]["version"].to_string();
        let swagger = a.get("/openapi/v2").await.json();
        let size = swagger["definitions"][GADGET]["properties"]["size"]["description"].to_string();
        let is_new = title == "\"v2\"" && size.contains("release 2");
        if is_new { Ok(()) } else { Err(format!("{title} {size}")) }
    });
}

#[test]
fn broken_openapi_of_extension_server_harms_only_itself() {
    let mut plane = ControlPlane::new(TestStore::Sqlite);
    plane.start("a", &[]);
    let (a, runtime) = (plane.admin("a"), runtime());
    let extension = runtime.block_on(ExtensionServer::start());
    block_on(extension.register(&a));
    wait_until_available(&a, NAME, "True", "Passed");
    wait_until_indexed(&a, "ABC1");
    block_on(async {
        assert_eq!(a.get(DOCUMENT).await.status, StatusCode::OK);
        assert!(a.get("/openapi/v2").await.json()["paths"].get(GADGETS_PATH).is_some());
    });
    plane.start("late", &[]);
    let late = plane.admin("late");
    for mode in [Mode::BrokenOpenApi, Mode::SilentOpenApi, Mode::Down] {
        extension.set_mode(mode);
        block_on(async {
            // The last known documents stay.
            assert_eq!(indexed(&a).await, format!("{DOCUMENT}?hash=ABC1"), "{mode:?}");
            assert_eq!(a.get(DOCUMENT).await.json()["info"]["title"], "Gadgets", "{mode:?}");
            assert!(a.get("/openapi/v2").await.json()["paths"].get(GADGETS_PATH).is_some(), "{mode:?}");
            // A server that never saw them serves all others.
            assert_eq!(indexed(&late).await, "", "{mode:?}");
            let missing = late.get(DOCUMENT).await;
            assert_eq!(missing.status, StatusCode::SERVICE_UNAVAILABLE, "{mode:?}: {}", missing.summary());
            let paths = late.get("/openapi/v2").await.json()["paths"].clone();
            assert!(paths.get("/apis/apps/v1/deployments").is_some() && paths.get(GADGETS_PATH).is_none(), "{mode:?}");
            assert!(late.get("/openapi/v3").await.json()["paths"].get("apis/apps/v1").is_some(), "{mode:?}");
        });
    }
    extension.set_mode(Mode::Normal);
    wait_until_indexed(&late, "ABC1");
}

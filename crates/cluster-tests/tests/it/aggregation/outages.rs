//! An extension API server that is away, slow or broken.

use super::extension_server::{GADGETS, GROUP, NAME, gadget};
use super::*;

const CONTROLLERS: &str = "--controllers=*";

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

fn condition_of(namespace: &Value, kind: &str) -> String {
    let conditions = namespace["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let found = conditions.iter().find(|condition| condition["type"] == *kind);
    found.map(|found| format!("{} {}", found["status"].as_str().unwrap(), found["message"])).unwrap_or_default()
}

#[test]
fn namespace_with_resources_of_an_absent_extension_server_is_held() {
    ControlPlane::for_each_store(|mut plane| {
        plane.start("a", &[CONTROLLERS]);
        let (a, runtime) = (plane.admin("a"), runtime());
        let extension = runtime.block_on(ExtensionServer::start());
        block_on(extension.register(&a));
        wait_until_listed(&a, GROUP, &["v1 Current gadgets"]);
        let shop = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}});
        assert_eq!(block_on(a.create("/api/v1/namespaces", &shop)).status, 201);
        let in_shop = "/apis/ext.example.com/v1/namespaces/shop/gadgets";
        assert_eq!(block_on(a.create(in_shop, &gadget("held"))).status, 201);
        // A dependent of an object that only the extension server has.
        let owner = json!({"apiVersion": "ext.example.com/v1", "kind": "Gadget", "name": "owner", "uid": "uid-owner"});
        assert_eq!(block_on(a.create(GADGETS, &gadget("owner"))).status, 201);
        extension.set_mode(Mode::Down);
        let page = block_on(a.get(GADGETS));
        assert_eq!(page.status, 503, "{}", page.summary());
        wait_until_available(&a, NAME, "False", "FailedDiscoveryCheck");
        wait_until_listed(&a, GROUP, &["v1 Stale gadgets"]);
        assert_eq!(shown(&block_on(a.get(GADGETS))), "503 service unavailable");
        let mut dependent = crate::config_map("dependent");
        dependent["metadata"]["ownerReferences"] = json!([owner]);
        assert_eq!(block_on(a.create(crate::CONFIG_MAPS_PATH, &dependent)).status, 201);
        assert_eq!(block_on(a.delete("/api/v1/namespaces/shop")).status, 200);
        wait_within(LIMIT, "the namespace says why it is held", async || {
            let namespace = a.get("/api/v1/namespaces/shop").await.json();
            let failure = condition_of(&namespace, "NamespaceDeletionDiscoveryFailure");
            let is_held = failure.starts_with("True") && failure.contains("ext.example.com/v1");
            if is_held { Ok(()) } else { Err(namespace.to_string()) }
        });
        let dependent = format!("{}/dependent", crate::CONFIG_MAPS_PATH);
        assert_eq!(block_on(a.get(&dependent)).status, 200, "its owner may exist");
        extension.set_mode(Mode::Normal);
        wait_until_available(&a, NAME, "True", "Passed");
        wait_within(LIMIT, "the namespace is gone", async || {
            let found = a.get("/api/v1/namespaces/shop").await;
            if found.status == 404 { Ok(()) } else { Err(found.summary()) }
        });
        let left = block_on(a.get("/apis/ext.example.com/v1/gadgets")).json();
        assert_eq!(left["items"].as_array().unwrap().len(), 1, "only the owner is left: {left}");
        assert_eq!(block_on(a.get(&dependent)).status, 200, "its owner exists");
    });
}

#[test]
fn slow_and_broken_extension_servers_are_unavailable() {
    let mut plane = ControlPlane::new(TestStore::Sqlite);
    plane.start("a", &[]);
    let (a, runtime) = (plane.admin("a"), runtime());
    let extension = runtime.block_on(ExtensionServer::start());
    block_on(extension.register(&a));
    wait_until_available(&a, NAME, "True", "Passed");
    for (mode, reason) in [(Mode::Garbage, "malformed HTTP"), (Mode::Silent, "context deadline exceeded")] {
        extension.set_mode(mode);
        // The failed request has the server checked at once.
        let page = block_on(a.get(GADGETS));
        assert_eq!(page.status, 503, "{mode:?}: {}", page.summary());
        wait_until_available(&a, NAME, "False", "FailedDiscoveryCheck");
        wait_within(LIMIT, reason, async || {
            let (_, _, message) = available(&a, NAME).await;
            if message.contains(reason) { Ok(()) } else { Err(message) }
        });
        // This server is not held up.
        assert_eq!(block_on(a.get(crate::CONFIG_MAPS_PATH)).status, 200);
        extension.set_mode(Mode::Normal);
        wait_until_available(&a, NAME, "True", "Passed");
    }
    extension.set_mode(Mode::LosesResponses);
    let lost = block_on(a.create(GADGETS, &gadget("once")));
    assert!(shown(&lost).starts_with("503 error trying to reach service: "), "{}", shown(&lost));
    assert_eq!(extension.creates(), 1, "a write that may have been executed is not sent again");
}

/// The client was authenticated here, so that a 401 rejects this server: clients must not drop their credentials because of it.
#[test]
fn unauthorized_of_an_extension_server_is_unavailable_for_clients() {
    let mut plane = ControlPlane::new(TestStore::Sqlite);
    plane.start("a", &[]);
    let (a, runtime) = (plane.admin("a"), runtime());
    let extension = runtime.block_on(ExtensionServer::start());
    block_on(extension.register(&a));
    wait_until_available(&a, NAME, "True", "Passed");
    extension.set_mode(Mode::Unauthorized);
    block_on(async {
        let expected = "503 error trying to reach service: it does not accept our certificate (401)";
        assert_eq!(shown(&a.get(GADGETS).await), expected);
        assert_eq!(shown(&a.create(GADGETS, &gadget("refused")).await), expected);
        extension.set_mode(Mode::Normal);
        assert_eq!(a.create(GADGETS, &gadget("accepted")).await.status, 201);
    });
    assert_eq!(extension.creates(), 1);
}

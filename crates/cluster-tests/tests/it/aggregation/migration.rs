//! Storage migrations of resources that an extension API server stores.

use super::extension_server::GROUP;
use super::*;
use crate::migration::{MIGRATOR_FLAGS, create_migration, wait_for_state};

#[test]
fn migration_of_a_resource_of_an_extension_server_is_refused() {
    let mut plane = ControlPlane::new(TestStore::Sqlite);
    plane.start("a", &[&["--emulated-version=1.36"], &MIGRATOR_FLAGS[..]].concat());
    let a = plane.admin("a");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let extension = runtime.block_on(ExtensionServer::start());
    block_on(extension.register(&a));
    wait_until_listed(&a, GROUP, &["v1 Current gadgets"]);
    block_on(create_migration(&a, "gadgets", GROUP, "gadgets"));
    wait_for_state(
        &a,
        "gadgets",
        "Failed",
        "is served by an extension API server, whose storage this server cannot read",
    );
}

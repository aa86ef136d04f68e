//! `unskew migrate`: with evidence from our servers, and from stock kube-apiservers that report nothing.

use cluster_tests::lab::run_unskew;
use cluster_tests::process::CommandOutput;
use cluster_tests::tools::kubectl;
use cluster_tests::{ControlPlane, Etcd, RunningServer, TestStore};

use super::*;
use crate::custom_resource::{CARTS_PATH, CRD_PATH, carts_crd};

fn storage_flag(plane: &ControlPlane<'_>) -> String {
    match plane.store() {
        TestStore::Sqlite => format!("--sqlite-file={}", plane.folder().join("unskew-data/store.db").display()),
        TestStore::Etcd(etcd) => format!("--etcd-servers={}", etcd.url()),
    }
}

fn migrate(plane: &ControlPlane<'_>, server: &str, args: &[&str]) -> CommandOutput {
    let kubeconfig = plane.server(server).kubeconfig().display().to_string();
    let storage = storage_flag(plane);
    let flags = ["migrate", "--kubeconfig", &kubeconfig, &storage, "--linger=1"];
    run_unskew(plane.folder(), &[&flags, args].concat())
}

/// The output of a migration that is not complete.
#[track_caller]
fn incomplete(output: CommandOutput) -> String {
    assert_eq!(output.code, Some(1), "stdout: {}\nstderr: {}", output.stdout, output.stderr);
    output.stdout
}

#[test]
fn migrate_waits_for_agreement_and_proves_that_nothing_is_left() {
    ControlPlane::for_each_store(|mut plane| {
        plane.start("a", &["--emulated-version=1.36"]);
        plane.start("b", &["--emulated-version=1.34"]);
        for name in ["one", "two"] {
            assert_eq!(block_on(plane.admin("b").create(CLASSES, &class(name))).status, 201);
        }
        let resource = "volumeattributesclasses.storage.k8s.io";
        let held = incomplete(migrate(&plane, "a", &[resource, "--timeout=4"]));
        assert!(held.contains("storage.k8s.io/v1beta1 is written by b (apiserver-"), "{held}");
        assert!(held.contains("given up after 4 s"), "{held}");
        plane.stop("b");
        plane.start("b", &["--emulated-version=1.36"]);
        let planned = incomplete(migrate(&plane, "a", &[resource, "--dry-run"]));
        assert!(planned.contains("would rewrite 2 of 2 objects to storage.k8s.io/v1 (revision "), "{planned}");
        let before = block_on(stored_versions(&plane, STORED_CLASSES, None));
        assert!(before.iter().all(|(_, version)| version == "storage.k8s.io/v1beta1"), "{before:?}");
        let done = migrate(&plane, "a", &[resource]).expect_success();
        assert!(done.contains(&format!("{resource}: done: all 2 objects are stored as storage.k8s.io/v1")), "{done}");
        let after = block_on(stored_versions(&plane, STORED_CLASSES, None));
        assert!(after.iter().all(|(_, version)| version == "storage.k8s.io/v1"), "{after:?}");
        migrate(&plane, "a", &["--all", "--dry-run"]).expect_success();
    });
}

#[test]
fn migrate_reduces_stored_versions_of_a_definition_after_the_proof() {
    ControlPlane::for_each_store(|mut plane| {
        plane.start("a", &[]);
        let a = plane.admin("a");
        change_storage_of_carts(&a);
        let done = migrate(&plane, "a", &["carts.shop.example.com"]).expect_success();
        assert!(done.contains("storedVersions is now [v2], was [\"v1\", \"v2\"]"), "{done}");
        let definition = block_on(a.get(&format!("{CRD_PATH}/carts.shop.example.com"))).json();
        assert_eq!(definition["status"]["storedVersions"], json!(["v2"]));
        let refused = migrate(&plane, "a", &["events.events.k8s.io"]).expect_failure();
        assert!(refused.contains("no storage of its own"), "{refused}");
    });
}

/// Creates a cart that is stored as `v1`, then makes `v2` the storage version.
fn change_storage_of_carts(client: &Client) {
    let mut definition = carts_crd();
    let first = definition["spec"]["versions"][0].clone();
    let mut second = first.clone();
    (second["name"], second["storage"]) = ("v2".into(), false.into());
    definition["spec"]["versions"] = json!([first, second]);
    block_on(async {
        assert_eq!(client.create(CRD_PATH, &definition).await.status, 201);
        let cart = json!({"apiVersion": "shop.example.com/v1", "kind": "Cart", "metadata": {"name": "c"}, "items": 3});
        cluster_tests::wait::eventually("the definition is served", async || {
            match client.create(CARTS_PATH, &cart).await {
                answer if answer.status == 201 => Ok(()),
                answer => Err(answer.summary()),
            }
        })
        .await;
        let mut changed = client.get(&format!("{CRD_PATH}/carts.shop.example.com")).await.json();
        changed["spec"]["versions"][0]["storage"] = false.into();
        changed["spec"]["versions"][1]["storage"] = true.into();
        let updated = client.update(&format!("{CRD_PATH}/carts.shop.example.com"), &changed).await;
        assert_eq!(updated.status, 200, "{}", updated.summary());
    });
}

/// Runs with `cargo xtask real`.
mod real {
    use std::path::{Path, PathBuf};

    use cluster_tests::kube_apiserver::{KubeApiserver, KubeApiserverRelease};

    use super::*;

    struct StockServers {
        folder: tempfile::TempDir,
        etcd: Etcd,
        /// Of the server that made the certificates.
        template: (PathBuf, String),
    }

    impl StockServers {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let maker = RunningServer::start(folder.path(), TestStore::Sqlite, &[]);
            let template = (maker.kubeconfig(), maker.address().to_owned());
            maker.stop();
            Self { folder, etcd: Etcd::start(), template }
        }

        fn start(&self, flags: &[&str]) -> KubeApiserver {
            KubeApiserver::start_stock(KubeApiserverRelease::New, self.folder.path(), &self.etcd, flags)
        }

        fn kubeconfig(&self, server: &KubeApiserver) -> PathBuf {
            let (file, address) = &self.template;
            let text = std::fs::read_to_string(file).unwrap().replace(address, server.admin().address());
            let file = self.folder.path().join("stock.kubeconfig");
            std::fs::write(&file, text).unwrap();
            file
        }

        fn migrate(&self, servers: &[&KubeApiserver], args: &[&str]) -> CommandOutput {
            let kubeconfig = self.kubeconfig(servers[0]).display().to_string();
            let storage = format!("--etcd-servers={}", self.etcd.url());
            let named: Vec<String> =
                servers.iter().map(|server| format!("--server=https://{}", server.admin().address())).collect();
            let mut flags = vec!["migrate", "--kubeconfig", &kubeconfig, &storage, "--linger=1"];
            flags.extend(named.iter().map(String::as_str));
            flags.extend(args);
            run_unskew(self.folder.path(), &flags)
        }

        /// Version, encryption and number of the stored objects of a resource.
        fn forms(&self, resource: &str, flags: &[&str]) -> Vec<String> {
            let storage = format!("--etcd-servers={}", self.etcd.url());
            let args = [&["inventory", "--output=json", &storage], flags].concat();
            let found: Value = serde_json::from_str(&run_unskew(self.folder.path(), &args).expect_success()).unwrap();
            let resources = found["resources"].as_array().unwrap().iter();
            let forms = resources
                .filter(|found| found["resource"] == resource)
                .flat_map(|found| found["forms"].as_array().unwrap());
            forms
                .map(|form| {
                    let key = form["encryption"]["key"].as_str().unwrap_or("plain");
                    format!("{} {key} {}", form["apiVersion"].as_str().unwrap_or("-"), form["objects"])
                })
                .collect()
        }
    }

    fn write_encryption_config(file: &Path, keys: &[&str]) {
        let secret = |name: &&str| json!({"name": name, "secret": "a2tra2tra2tra2tra2tra2tra2tra2tra2tra2tra2s="});
        let keys: Vec<Value> = keys.iter().map(secret).collect();
        let config = json!({"apiVersion": "apiserver.config.k8s.io/v1", "kind": "EncryptionConfiguration", "resources": [
            {"resources": ["secrets"], "providers": [{"aescbc": {"keys": keys}}]},
        ]});
        std::fs::write(file, config.to_string()).unwrap();
    }

    #[test]
    fn migrate_holds_until_stock_servers_store_the_same_version() {
        let stock = StockServers::new();
        let new = stock.start(&[]);
        let careful = stock.start(&["--min-compatibility-version=1.33"]);
        for name in ["one", "two", "three"] {
            assert_eq!(block_on(careful.admin().create(CLASSES, &class(name))).status, 201);
        }
        assert_eq!(stock.forms("volumeattributesclasses", &[]), ["storage.k8s.io/v1beta1 plain 3"]);
        let resource = "volumeattributesclasses.storage.k8s.io";
        let both = [&new, &careful];
        let held = incomplete(stock.migrate(&both, &[resource, "--timeout=6"]));
        let named = format!("storage.k8s.io/v1beta1 is written by https://{}", careful.admin().address());
        assert!(held.contains(&named), "{held}");
        let planned = incomplete(stock.migrate(&both, &["deviceclasses.resource.k8s.io", "--dry-run"]));
        assert!(planned.contains("resource.k8s.io/v1beta2 is written by"), "{planned}");
        careful.kill();
        let upgraded = stock.start(&[]);
        let done = stock.migrate(&[&new, &upgraded], &[resource]).expect_success();
        assert!(done.contains("all 3 objects are stored as storage.k8s.io/v1 at revision"), "{done}");
        assert_eq!(stock.forms("volumeattributesclasses", &[]), ["storage.k8s.io/v1 plain 3"]);

        change_storage_of_carts(&upgraded.admin());
        let done = stock.migrate(&[&new, &upgraded], &["carts.shop.example.com"]).expect_success();
        assert!(done.contains("all 1 objects are stored as shop.example.com/v2"), "{done}");
        assert!(done.contains("storedVersions is now [v2]"), "{done}");
    }

    #[test]
    fn migrate_rewrites_until_no_secret_uses_the_old_key() {
        let stock = StockServers::new();
        let file = stock.folder.path().join("encryption.json");
        let flag = format!("--encryption-provider-config={}", file.display());
        write_encryption_config(&file, &["old"]);
        let server = stock.start(&[&flag]);
        let secret = json!({"kind": "Secret", "apiVersion": "v1", "metadata": {"name": "a"}});
        assert_eq!(block_on(server.admin().create("/api/v1/namespaces/default/secrets", &secret)).status, 201);
        server.kill();
        write_encryption_config(&file, &["new", "old"]);
        let server = stock.start(&[&flag]);
        assert_eq!(stock.forms("secrets", &[&flag]), ["v1 old 1"]);
        let done = stock.migrate(&[&server], &["secrets", &flag]).expect_success();
        assert!(done.contains("all 1 objects are stored as v1"), "{done}");
        assert_eq!(stock.forms("secrets", &[&flag]), ["v1 new 1"]);
        let listed = kubectl(&stock.kubeconfig(&server), &["get", "secrets", "-o", "name"]).expect_success();
        assert_eq!(listed.trim(), "secret/a");
    }
}

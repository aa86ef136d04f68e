//! The examples of docs/deploy, with only addresses and paths replaced: servers started by them peer with each other.

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use cluster_tests::client::ClientCredentials;
use cluster_tests::wait::eventually;
use cluster_tests::{Client, Etcd, RunningServer, TestStore};
use http::Method;
use serde_json::{Map, Value};
use transport::pki::{CertificateAuthority, CertificateUsage};

use crate::{block_on, start_on_sqlite};

const CONFIGURATION: &str = include_str!("../../../../../docs/deploy/serve.json");
const MANIFEST: &str = include_str!("../../../../../docs/deploy/static-pod.yaml");

/// Served from 1.34 on, so a server of 1.33 has to forward.
const CLASSES_PATH: &str = "/apis/storage.k8s.io/v1/volumeattributesclasses";

/// Creates certificates and keys under the names that kubeadm uses.
fn make_keys(folder: &Path) {
    let authority = CertificateAuthority::open_or_create(folder, "ca").unwrap();
    let serving = CertificateUsage::Serving { addresses: vec![IpAddr::V4(Ipv4Addr::LOCALHOST)], names: Vec::new() };
    authority.open_or_issue("apiserver", "kube-apiserver", None, &serving).unwrap();
    authority.open_or_issue("admin", "kubernetes-admin", Some("system:masters"), &CertificateUsage::Client).unwrap();
    let proxies = CertificateAuthority::open_or_create(folder, "front-proxy-ca").unwrap();
    proxies.open_or_issue("front-proxy-client", "front-proxy-client", None, &CertificateUsage::Client).unwrap();
    let accounts = rcgen::KeyPair::generate().unwrap();
    std::fs::write(folder.join("sa.key"), accounts.serialize_pem()).unwrap();
    std::fs::write(folder.join("sa.pub"), accounts.public_key_pem()).unwrap();
}

/// Flags that the test sets itself: its etcd has no certificates, and ports are assigned by the system.
fn is_set_by_the_test(flag: &str) -> bool {
    flag.starts_with("etcd-") || flag == "secure-port"
}

/// Replaces paths and addresses by those of this machine.
fn localize(text: &str, keys: &Path) -> String {
    let keys = keys.to_str().unwrap();
    let text = text.replace("/etc/unskew/pki", keys).replace("/etc/kubernetes/pki", keys);
    text.replace("192.0.2.11", "127.0.0.1").replace("0.0.0.0", "127.0.0.1")
}

fn flags_from_config_file(keys: &Path, folder: &Path) -> Vec<String> {
    let mut settings: Map<String, Value> = serde_json::from_str(&localize(CONFIGURATION, keys)).unwrap();
    settings.retain(|name, _| !is_set_by_the_test(name));
    let file = folder.join("serve.json");
    std::fs::write(&file, Value::Object(settings).to_string()).unwrap();
    vec![format!("--config={}", file.display())]
}

fn flags_from_manifest(keys: &Path, _folder: &Path) -> Vec<String> {
    let manifest = localize(MANIFEST, keys);
    let flags = manifest.lines().filter_map(|line| line.trim().strip_prefix("- --"));
    let flags: Vec<_> = flags.filter(|flag| !is_set_by_the_test(flag.split('=').next().unwrap())).collect();
    assert!(flags.len() > 10, "the manifest has a command line: {flags:?}");
    flags.iter().map(|flag| format!("--{flag}")).collect()
}

#[track_caller]
fn check(flags: fn(&Path, &Path) -> Vec<String>) {
    let (etcd, keys) = (Etcd::start(), tempfile::tempdir().unwrap());
    make_keys(keys.path());
    let machines = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let servers = [("new", "1.36"), ("old", "1.33")].iter().zip(&machines).map(|((name, release), machine)| {
        let mut flags = flags(keys.path(), machine.path());
        flags.push(format!("--hostname-override={name}"));
        flags.push(format!("--emulated-version={release}"));
        flags.push("--peer-response-headers".to_owned());
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        RunningServer::launch_as(name, machine.path(), TestStore::Etcd(&etcd), &flags)
    });
    let servers: Vec<RunningServer> = servers.collect();
    let identity = || ClientCredentials::Certificate {
        certificate: keys.path().join("admin.crt"),
        key: keys.path().join("admin.key"),
    };
    let client = |server: &RunningServer| Client::new(server.address(), &keys.path().join("ca.crt"), identity());
    let (new, old) = (client(&servers[0]), client(&servers[1]));
    block_on(async {
        for client in [&new, &old] {
            eventually("a server is ready", async || match client.is_ready().await {
                true => Ok(()),
                false => Err(servers.iter().map(RunningServer::log).collect()),
            })
            .await;
        }
        eventually("the old server forwards to the new one", async || {
            let (own, forwarded) = (new.get(CLASSES_PATH).await, old.get(CLASSES_PATH).await);
            let by = |answer: &cluster_tests::client::FullResponse| answer.headers.get("x-unskew-served-by").cloned();
            match forwarded.status.as_u16() == 200 && by(&own).is_some() && by(&own) == by(&forwarded) {
                true => Ok(()),
                false => Err(format!("{} {:?}", forwarded.summary(), by(&forwarded))),
            }
        })
        .await;
    });
}

#[test]
fn servers_started_from_the_config_example_peer() {
    check(flags_from_config_file);
}

#[test]
fn servers_started_from_the_static_pod_example_peer() {
    check(flags_from_manifest);
}

#[test]
fn static_pod_example_is_a_valid_pod() {
    let folder = tempfile::tempdir().unwrap();
    let server = start_on_sqlite(folder.path(), &[]);
    let path = "/api/v1/namespaces/kube-system/pods?dryRun=All&fieldValidation=Strict";
    let answer = block_on(server.admin().send_body(Method::POST, path, "application/yaml", MANIFEST.into()));
    assert_eq!(answer.summary(), "201 ");
}

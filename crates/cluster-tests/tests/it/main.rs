//! Whole servers: real processes, real TLS, SQLite and etcd, real clients.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod access;
mod bad_input;
mod carts;
mod controllers;
mod deploy;
mod gateway;
mod immutable;
mod kinds;
mod kube_rs;
mod kubectl;
mod kubectl_create;
mod kubectl_everyday;
mod lab;
mod lab_rollout;
mod lists;
mod numbers;
mod objects;
mod overload;
mod page;
mod peers;
mod peers_bounds;
mod peers_faults;
mod peers_interop;
mod peers_security;
mod peers_upgrade;
mod process;
mod protobuf;
mod python;
mod readme;
mod reload;
mod rollout;
mod scale;
mod storage;
mod storage_versions;
mod unread;
mod watches;

use std::path::Path;

use cluster_tests::{Client, Etcd, Server, Store};
use serde_json::{Value, json};

/// Runs a test against a server on SQLite and against one on etcd.
#[track_caller]
fn on_both(test: impl Fn(&Server)) {
    let etcd = Etcd::start();
    for store in [Store::Sqlite, Store::Etcd(&etcd)] {
        let folder = tempfile::tempdir().unwrap();
        let server = Server::start(folder.path(), store, &[]);
        test(&server);
    }
}

/// Runs an asynchronous test against a server on each storage.
#[track_caller]
fn on_both_async(test: impl AsyncFn(Client)) {
    on_both(|server| block_on(test(server.admin())));
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

fn on_sqlite(folder: &Path, flags: &[&str]) -> Server {
    Server::start(folder, Store::Sqlite, flags)
}

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn config_map(name: &str) -> Value {
    json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": name}, "data": {"a": "1"}})
}

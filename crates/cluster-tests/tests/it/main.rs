//! Whole-server tests: real processes, real TLS, SQLite and etcd, real clients.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod access;
mod admission;
mod aggregation;
mod apply;
mod clients;
mod controllers;
mod custom_resource;
mod custom_resources;
mod docs;
mod extension_server;
mod gateway;
mod inventory;
mod kubectl;
mod lab;
mod migration;
mod openapi;
mod peers;
mod preflight;
mod raw_http;
mod real;
mod rest;
mod rollout;
mod server;
mod services;
mod storage_versions;
mod validation;

use std::path::Path;

use cluster_tests::{Client, Etcd, RunningServer, TestStore};
use serde_json::{Value, json};

/// Runs a test against a server on SQLite and one on etcd.
#[track_caller]
fn for_each_store(test: impl Fn(&RunningServer)) {
    let etcd = Etcd::start();
    for store in [TestStore::Sqlite, TestStore::Etcd(&etcd)] {
        let folder = tempfile::tempdir().unwrap();
        let server = RunningServer::start(folder.path(), store, &[]);
        test(&server);
    }
}

/// Runs an asynchronous test against a server on each store.
#[track_caller]
fn for_each_store_async(test: impl AsyncFn(Client)) {
    for_each_store(|server| block_on(test(server.admin())));
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

fn start_on_sqlite(folder: &Path, flags: &[&str]) -> RunningServer {
    RunningServer::start(folder, TestStore::Sqlite, flags)
}

const CONFIG_MAPS_PATH: &str = "/api/v1/namespaces/default/configmaps";

fn config_map(name: &str) -> Value {
    json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": name}, "data": {"a": "1"}})
}

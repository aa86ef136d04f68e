//! Several servers over one store; they share a folder with the CA and so accept each other as peers.

use std::collections::BTreeMap;
use std::path::Path;

use crate::{Client, Etcd, RunningServer, TestStore};

/// The servers of a control plane, by name.
#[derive(Debug)]
pub struct ControlPlane<'a> {
    servers: BTreeMap<String, RunningServer>,
    /// A restarted server listens on its previous port.
    ports: BTreeMap<String, String>,
    store: TestStore<'a>,
    folder: tempfile::TempDir,
}

impl<'a> ControlPlane<'a> {
    /// Runs a test once on SQLite and once on a real etcd.
    #[track_caller]
    pub fn for_each_store(test: impl Fn(ControlPlane<'_>)) {
        let etcd = Etcd::start();
        test(ControlPlane::new(TestStore::Sqlite));
        test(ControlPlane::new(TestStore::Etcd(&etcd)));
    }

    /// Creates a control plane without servers.
    pub fn new(store: TestStore<'a>) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        Self { servers: BTreeMap::new(), ports: BTreeMap::new(), store, folder }
    }

    /// Starts a server and waits until it is ready.
    #[track_caller]
    pub fn start(&mut self, name: &str, flags: &[&str]) -> &RunningServer {
        self.launch(name, flags);
        self.server(name).wait_ready();
        self.server(name)
    }

    /// Starts a server and waits until it listens; it may not be ready yet.
    #[track_caller]
    pub fn launch(&mut self, name: &str, flags: &[&str]) -> &RunningServer {
        let port = self.ports.get(name).map_or("0", String::as_str);
        let own = [format!("--secure-port={port}"), format!("--hostname-override={name}")];
        let flags: Vec<&str> = own.iter().map(String::as_str).chain(flags.iter().copied()).collect();
        let server = RunningServer::launch_as(name, self.folder.path(), self.store, &flags);
        let port = server.address().rsplit(':').next().unwrap_or("0").to_owned();
        self.ports.insert(name.to_owned(), port);
        self.servers.insert(name.to_owned(), server);
        self.server(name)
    }

    /// Returns a running server.
    #[track_caller]
    pub fn server(&self, name: &str) -> &RunningServer {
        self.servers.get(name).unwrap_or_else(|| panic!("there is no server {name}"))
    }

    /// Returns the address of a server, even after it stopped.
    pub fn address(&self, name: &str) -> String {
        format!("127.0.0.1:{}", self.ports.get(name).map_or("0", String::as_str))
    }

    /// Client of a running server with the administrator's certificate.
    #[track_caller]
    pub fn admin(&self, name: &str) -> Client {
        self.server(name).admin()
    }

    /// Kills a server with SIGKILL.
    #[track_caller]
    pub fn kill(&mut self, name: &str) {
        self.remove_server(name).kill();
    }

    /// Stops a server with SIGTERM; fails if it does not exit with 0.
    #[track_caller]
    pub fn stop(&mut self, name: &str) {
        let log = self.server(name).log();
        assert_eq!(self.remove_server(name).stop(), Some(0), "{name} does not stop cleanly; its log: {log}");
    }

    /// The store that the servers share.
    pub fn store(&self) -> TestStore<'a> {
        self.store
    }

    /// The folder with data, certificates and logs of all servers.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    #[track_caller]
    fn remove_server(&mut self, name: &str) -> RunningServer {
        self.servers.remove(name).unwrap_or_else(|| panic!("there is no server {name}"))
    }
}

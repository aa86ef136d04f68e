//! A real kube-apiserver that shares storage and certificates with our servers.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::Etcd;
use crate::client::{Client, Identity};
use crate::process::Process;

/// How long it may take to be ready, or to stop, on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// A running kube-apiserver. Killed when dropped.
#[derive(Debug)]
pub struct KubeApiserver {
    process: Process,
    pki: PathBuf,
    log: PathBuf,
    address: String,
}

impl KubeApiserver {
    /// Starts one on `etcd` with the certificates that our servers made in `folder`, and waits until it is ready. `None`, which
    /// is said, if `KUBEBUILDER_ASSETS` names no folder that has one.
    #[track_caller]
    pub fn start(folder: &Path, etcd: &Etcd, flags: &[&str]) -> Option<Self> {
        let binary = binary()?;
        let port = free_port();
        let pki = folder.join("unskew-data/pki");
        let file = |name: &str| pki.join(name).display().to_string();
        write_public_key(&pki);
        let mut command = Command::new(binary);
        command.current_dir(folder).args([
            format!("--etcd-servers={}", etcd.url()),
            "--storage-media-type=application/json".to_owned(),
            "--feature-gates=UnknownVersionInteroperabilityProxy=true".to_owned(),
            "--bind-address=127.0.0.1".to_owned(),
            "--advertise-address=127.0.0.1".to_owned(),
            format!("--secure-port={port}"),
            "--peer-advertise-ip=127.0.0.1".to_owned(),
            format!("--peer-advertise-port={port}"),
            "--service-cluster-ip-range=10.0.0.0/24".to_owned(),
            "--service-account-issuer=https://kubernetes.default.svc.cluster.local".to_owned(),
            format!("--service-account-signing-key-file={}", file("sa.key")),
            format!("--service-account-key-file={}", file("sa.pub")),
            "--disable-admission-plugins=ServiceAccount".to_owned(),
            "--authorization-mode=RBAC".to_owned(),
            format!("--client-ca-file={}", file("ca.crt")),
            format!("--tls-cert-file={}", file("apiserver.crt")),
            format!("--tls-private-key-file={}", file("apiserver.key")),
            format!("--requestheader-client-ca-file={}", file("front-proxy-ca.crt")),
            "--requestheader-allowed-names=front-proxy-client".to_owned(),
            "--requestheader-username-headers=X-Remote-User".to_owned(),
            "--requestheader-uid-headers=X-Remote-Uid".to_owned(),
            "--requestheader-group-headers=X-Remote-Group".to_owned(),
            "--requestheader-extra-headers-prefix=X-Remote-Extra-".to_owned(),
            format!("--peer-ca-file={}", file("ca.crt")),
            format!("--proxy-client-cert-file={}", file("front-proxy-client.crt")),
            format!("--proxy-client-key-file={}", file("front-proxy-client.key")),
        ]);
        command.args(flags);
        let log = folder.join("kube-apiserver.log");
        let (process, _lines) = Process::start(command, &log);
        let server = Self { process, pki, log, address: format!("127.0.0.1:{port}") };
        server.wait_ready();
        Some(server)
    }

    /// A client that is let in as administrator.
    pub fn admin(&self) -> Client {
        let identity =
            Identity::Certificate { certificate: self.pki.join("admin.crt"), key: self.pki.join("admin.key") };
        Client::new(&self.address, &self.pki.join("ca.crt"), identity)
    }

    /// What it has logged so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Kills it without a warning.
    pub fn kill(mut self) {
        self.process.signal(Signal::KILL);
        self.process.wait(PATIENCE);
    }

    #[track_caller]
    fn wait_ready(&self) {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime can be made");
        let admin = self.admin();
        let deadline = Instant::now() + PATIENCE;
        while !runtime.block_on(admin.is_ready()) {
            assert!(Instant::now() < deadline, "kube-apiserver is not ready; its log: {}", self.log());
            std::thread::park_timeout(Duration::from_millis(50));
        }
    }
}

/// Where it is, by the convention of envtest.
#[expect(clippy::print_stdout, reason = "a test that was not run says so")]
fn binary() -> Option<PathBuf> {
    let folder = std::env::var_os("KUBEBUILDER_ASSETS");
    let binary = folder.map(|folder| Path::new(&folder).join("kube-apiserver")).filter(|binary| binary.exists());
    if binary.is_none() {
        println!("not run: KUBEBUILDER_ASSETS names no folder with a kube-apiserver");
    }
    binary
}

/// Free now; should somebody take it before it does, the test fails with its log.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
    listener.local_addr().expect("it is bound").port()
}

/// It reads public keys from files of their own.
fn write_public_key(pki: &Path) {
    let key = std::fs::read_to_string(pki.join("sa.key")).expect("our servers have made it");
    let pair = rcgen::KeyPair::from_pem(&key).expect("it is a key");
    std::fs::write(pki.join("sa.pub"), pair.public_key_pem()).expect("the folder can be written");
}

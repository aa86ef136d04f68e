//! A real kube-apiserver that shares etcd and certificates with our servers.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::Etcd;
use crate::client::{Client, ClientCredentials};
use crate::process::{SpawnedProcess, run_command};

/// Limit for kube-apiserver to become ready or to stop on a loaded machine.
const READY_TIMEOUT: Duration = Duration::from_secs(120);

/// A running kube-apiserver. Killed on drop.
#[derive(Debug)]
pub struct KubeApiserver {
    process: SpawnedProcess,
    pki: PathBuf,
    log: PathBuf,
    address: String,
    binary: PathBuf,
    flags: Vec<String>,
}

/// Which release to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KubeApiserverRelease {
    /// The binary in `KUBEBUILDER_ASSETS`.
    New,
    /// The binary in `KUBEBUILDER_ASSETS_OLD`; without it, the new one emulating 1.33.
    Old,
}

impl KubeApiserver {
    /// Starts kube-apiserver with the peer proxy enabled on `etcd`, with the certificates in `folder`, and waits until
    /// it is ready. Fails the test if `KUBEBUILDER_ASSETS` holds no kube-apiserver.
    #[track_caller]
    pub fn start(folder: &Path, etcd: &Etcd, flags: &[&str]) -> Self {
        let binary = new_release_binary();
        let port = free_port();
        let file = |name: &str| folder.join("unskew-data/pki").join(name).display().to_string();
        let mut all = common_flags(folder, etcd, port);
        all.extend([
            "--storage-media-type=application/json".to_owned(),
            "--feature-gates=UnknownVersionInteroperabilityProxy=true".to_owned(),
            "--peer-advertise-ip=127.0.0.1".to_owned(),
            format!("--peer-advertise-port={port}"),
            format!("--peer-ca-file={}", file("ca.crt")),
            format!("--proxy-client-cert-file={}", file("front-proxy-client.crt")),
            format!("--proxy-client-key-file={}", file("front-proxy-client.key")),
        ]);
        all.extend(flags.iter().map(ToString::to_string));
        Self::launch(binary, folder, "kube-apiserver", port, all)
    }

    /// Starts kube-apiserver without the peer proxy, as kubeadm does.
    #[track_caller]
    pub fn start_stock(release: KubeApiserverRelease, folder: &Path, etcd: &Etcd, flags: &[&str]) -> Self {
        let given = new_release_binary();
        let port = free_port();
        let mut all = common_flags(folder, etcd, port);
        let (binary, name) = match release {
            KubeApiserverRelease::New => (given, "kube-apiserver-new"),
            KubeApiserverRelease::Old => match binary_from_variable("KUBEBUILDER_ASSETS_OLD") {
                Some(old) => (old, "kube-apiserver-old"),
                None => {
                    all.push("--emulated-version=1.33".to_owned());
                    (given, "kube-apiserver-old")
                }
            },
        };
        all.extend(flags.iter().map(ToString::to_string));
        Self::launch(binary, folder, name, port, all)
    }

    #[track_caller]
    fn launch(binary: PathBuf, folder: &Path, name: &str, port: u16, flags: Vec<String>) -> Self {
        let pki = folder.join("unskew-data/pki");
        write_public_key(&pki);
        let log = folder.join(format!("{name}.log"));
        let mut command = Command::new(&binary);
        command.current_dir(folder).args(&flags);
        let (process, _lines) = SpawnedProcess::start(command, &log);
        let server = Self { process, pki, log, address: format!("127.0.0.1:{port}"), binary, flags };
        server.wait_ready();
        server
    }

    /// Starts it again with the same flags and port, after `kill_restartable`.
    #[track_caller]
    pub fn restart(&mut self) {
        let mut command = Command::new(&self.binary);
        command.args(&self.flags);
        (self.process, _) = SpawnedProcess::start(command, &self.log);
        self.wait_ready();
    }

    /// Kills it with SIGKILL; `restart` may follow.
    pub fn kill_restartable(&mut self) {
        self.process.signal(Signal::KILL);
        self.process.wait(READY_TIMEOUT);
    }

    /// Client with the administrator's certificate.
    pub fn admin(&self) -> Client {
        let identity =
            ClientCredentials::Certificate { certificate: self.pki.join("admin.crt"), key: self.pki.join("admin.key") };
        Client::new(&self.address, &self.pki.join("ca.crt"), identity)
    }

    /// Log output so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Kills it with SIGKILL.
    pub fn kill(mut self) {
        self.kill_restartable();
    }

    #[track_caller]
    fn wait_ready(&self) {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime can be made");
        let admin = self.admin();
        let deadline = Instant::now() + READY_TIMEOUT;
        while !runtime.block_on(admin.is_ready()) {
            assert!(Instant::now() < deadline, "kube-apiserver is not ready; its log: {}", self.log());
            std::thread::park_timeout(Duration::from_millis(50));
        }
    }
}

/// The release of the kube-apiserver in `KUBEBUILDER_ASSETS`, such as `1.36`. Fails the test if there is none.
#[track_caller]
pub fn release_of_assets() -> String {
    release_of(new_release_binary())
}

/// The release of the kube-apiserver in `KUBEBUILDER_ASSETS_OLD`. Fails the test if there is none.
#[track_caller]
pub fn release_of_old_assets() -> String {
    let binary = binary_from_variable("KUBEBUILDER_ASSETS_OLD");
    release_of(binary.expect("KUBEBUILDER_ASSETS_OLD names a folder with a kube-apiserver of an older release"))
}

#[track_caller]
fn release_of(binary: PathBuf) -> String {
    let mut command = Command::new(binary);
    command.arg("--version");
    let said = run_command(command, READY_TIMEOUT).expect_success();
    let version = said.trim().rsplit('v').next().unwrap_or_default();
    version.split('.').take(2).collect::<Vec<_>>().join(".")
}

/// Flags that every kube-apiserver of the tests needs.
fn common_flags(folder: &Path, etcd: &Etcd, port: u16) -> Vec<String> {
    let pki = folder.join("unskew-data/pki");
    let file = |name: &str| pki.join(name).display().to_string();
    vec![
        format!("--etcd-servers={}", etcd.url()),
        "--bind-address=127.0.0.1".to_owned(),
        "--advertise-address=127.0.0.1".to_owned(),
        format!("--secure-port={port}"),
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
    ]
}

/// Path of the new release's binary. Fails the test if there is none.
#[track_caller]
fn new_release_binary() -> PathBuf {
    let binary = binary_from_variable("KUBEBUILDER_ASSETS");
    binary.expect("KUBEBUILDER_ASSETS names a folder with a kube-apiserver: run `cargo xtask real`")
}

/// Path of kube-apiserver in the folder that an environment variable names, as envtest does it.
fn binary_from_variable(variable: &str) -> Option<PathBuf> {
    let folder = std::env::var_os(variable);
    folder.map(|folder| Path::new(&folder).join("kube-apiserver")).filter(|binary| binary.exists())
}

/// Returns a free port. If another process takes it first, the test fails and shows the log.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
    listener.local_addr().expect("the listener is bound").port()
}

/// Writes the public half of the token signing key, which kube-apiserver reads from a file of its own.
fn write_public_key(pki: &Path) {
    let key = std::fs::read_to_string(pki.join("sa.key")).expect("a server has created the key");
    let pair = rcgen::KeyPair::from_pem(&key).expect("sa.key is a private key");
    std::fs::write(pki.join("sa.pub"), pair.public_key_pem()).expect("the folder can be written");
}

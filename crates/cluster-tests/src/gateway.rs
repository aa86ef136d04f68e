//! One `unskew gateway` as a real process, in front of the servers of a control plane.

use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use http::{Method, StatusCode};
use rustix::process::Signal;

use crate::client::{Client, ClientCredentials};
use crate::process::SpawnedProcess;
use crate::server::read_listen_address;
use crate::{ControlPlane, tools};

/// Limit for a gateway to become ready or to stop on a loaded machine.
const READY_TIMEOUT: Duration = Duration::from_secs(60);

/// Makes our servers act as stock kube-apiservers, without peer proxy.
pub const PEER_PROXY_OFF: &str = "--feature-gates=UnknownVersionInteroperabilityProxy=false";

/// RBAC objects of the gateway, from the deployment manual.
const GATEWAY_RBAC: &str = include_str!("../../../docs/deploy/gateway-rbac.yaml");

/// Creates the gateway's RBAC objects; accepts objects that exist already.
pub async fn create_gateway_rbac(admin: &Client) {
    for object in GATEWAY_RBAC.split("\n---\n") {
        let field = |name: &str| object.lines().find_map(|line| line.trim().strip_prefix(name)).unwrap_or_default();
        let (kind, namespace) = (field("kind: ").to_lowercase(), field("namespace: "));
        let path = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/{kind}s");
        let created = admin.send_body(Method::POST, &path, "application/yaml", object.to_owned().into()).await;
        let is_there = [StatusCode::CREATED, StatusCode::CONFLICT].contains(&created.status);
        assert!(is_there, "{path}: {}", created.summary());
    }
}

/// A running gateway. Killed on drop.
#[derive(Debug)]
pub struct RunningGateway {
    process: SpawnedProcess,
    folder: PathBuf,
    log: PathBuf,
    address: String,
}

impl RunningGateway {
    /// Starts a gateway with these servers as upstreams and waits until all running ones are ready. The prefix `local=`
    /// marks an upstream as local.
    #[track_caller]
    pub fn start(name: &str, plane: &ControlPlane<'_>, upstreams: &[&str], flags: &[&str]) -> Self {
        let gateway = Self::launch(name, plane, upstreams, flags);
        gateway.wait_ready();
        let address = |upstream: &&str| plane.address(upstream.trim_start_matches("local="));
        let running = upstreams.iter().filter(|upstream| TcpStream::connect(address(upstream)).is_ok()).count();
        // The gateway asks an upstream who may read the details, so this needs the administrator.
        gateway
            .wait_for_readyz_text(&gateway.admin(), &format!("{running} of {} upstreams are ready", upstreams.len()));
        gateway
    }

    /// Starts a gateway and waits until it listens; it may not be ready yet.
    #[track_caller]
    pub fn launch(name: &str, plane: &ControlPlane<'_>, upstreams: &[&str], flags: &[&str]) -> Self {
        let pki = plane.folder().join("unskew-data/pki");
        let file = |flag: &str, name: &str| format!("--{flag}={}", pki.join(name).display());
        let mut all = vec![
            "--bind-address=127.0.0.1".to_owned(),
            "--secure-port=0".to_owned(),
            file("upstream-ca-file", "ca.crt"),
            file("client-ca-file", "ca.crt"),
            file("proxy-client-cert-file", "front-proxy-client.crt"),
            file("proxy-client-key-file", "front-proxy-client.key"),
            file("tls-cert-file", "apiserver.crt"),
            file("tls-private-key-file", "apiserver.key"),
            "--peer-response-headers".to_owned(),
        ];
        all.extend(upstreams.iter().map(|upstream| match upstream.strip_prefix("local=") {
            Some(server) => format!("--upstream=local=https://{}", plane.address(server)),
            None => format!("--upstream=https://{}", plane.address(upstream)),
        }));
        all.extend(flags.iter().map(ToString::to_string));
        Self::launch_with_flags(name, plane, &all.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// Starts a gateway with only these flags and waits until it listens.
    #[track_caller]
    pub fn launch_with_flags(name: &str, plane: &ControlPlane<'_>, flags: &[&str]) -> Self {
        let folder = plane.folder().to_owned();
        let mut command = Command::new(tools::unskew_binary());
        command.current_dir(&folder).arg("gateway").args(flags);
        let log = folder.join(format!("{name}.log"));
        let (process, lines) = SpawnedProcess::start(command, &log);
        let address = read_listen_address(&lines).unwrap_or_else(|| {
            let log = std::fs::read_to_string(&log).unwrap_or_default();
            panic!("the gateway printed no listen address; its log: {log}")
        });
        Self { process, folder, log, address }
    }

    /// The address it listens on, `host:port`.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Log output so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Client with the administrator's certificate.
    pub fn admin(&self) -> Client {
        let file = |name: &str| self.folder.join("unskew-data/pki").join(name);
        self.client_with(ClientCredentials::Certificate { certificate: file("admin.crt"), key: file("admin.key") })
    }

    /// Client with the given credentials.
    pub fn client_with(&self, identity: ClientCredentials) -> Client {
        Client::new(&self.address, &self.folder.join("unskew-data/pki/ca.crt"), identity)
    }

    /// Writes and returns a kubeconfig of the administrator for this gateway.
    #[track_caller]
    pub fn kubeconfig(&self) -> PathBuf {
        let of_server = std::fs::read_to_string(self.folder.join("unskew-data/admin.kubeconfig"));
        let of_server = of_server.expect("a server has written its kubeconfig");
        let (start, rest) = of_server.split_once("https://").expect("the kubeconfig names a server");
        let (_, end) = rest.split_once('"').expect("the server URL is quoted");
        let file = self.log.with_extension("kubeconfig");
        std::fs::write(&file, format!("{start}https://{}\"{end}", self.address)).expect("the folder can be written");
        file
    }

    /// Resident memory in bytes.
    pub fn resident_bytes(&self) -> u64 {
        self.process.resident_bytes()
    }

    /// Number of open files, including sockets.
    pub fn open_files(&self) -> usize {
        self.process.open_files()
    }

    /// Waits until `/readyz` succeeds.
    #[track_caller]
    pub fn wait_ready(&self) {
        self.wait_for_readyz_text(&self.client_with(ClientCredentials::Anonymous), "readyz check passed");
    }

    /// Waits until `/readyz?verbose` contains a text.
    #[track_caller]
    fn wait_for_readyz_text(&self, client: &Client, text: &str) {
        let runtime = runtime();
        let deadline = Instant::now() + READY_TIMEOUT;
        loop {
            let page = runtime.block_on(client.get("/readyz?verbose"));
            let page = String::from_utf8_lossy(&page.body);
            if page.contains(text) {
                return;
            }
            assert!(Instant::now() < deadline, "not {text}: {page}\nthe log of the gateway: {}", self.log());
            std::thread::park_timeout(Duration::from_millis(5));
        }
    }

    /// Stops the gateway with SIGTERM and returns its exit code.
    #[track_caller]
    pub fn stop(mut self) -> Option<i32> {
        self.process.signal(Signal::TERM);
        self.process.wait(READY_TIMEOUT)
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime can be made")
}

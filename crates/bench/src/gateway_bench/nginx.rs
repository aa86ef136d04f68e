//! nginx, configured to do what a gateway does for one user.

use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use cluster_tests::process::SpawnedProcess;

const START_TIMEOUT: Duration = Duration::from_secs(30);

/// A running nginx. Killed on drop.
pub(super) struct Nginx {
    _process: SpawnedProcess,
    address: String,
}

impl Nginx {
    /// Starts nginx in front of a server whose certificates are in `folder`; `None` without `UNSKEW_NGINX`.
    pub(super) fn start(folder: &Path, upstream: &str) -> anyhow::Result<Option<Self>> {
        let Some(binary) = std::env::var_os("UNSKEW_NGINX") else { return Ok(None) };
        let prefix = folder.join("nginx");
        std::fs::create_dir_all(&prefix)?;
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let address = format!("127.0.0.1:{port}");
        let file = prefix.join("nginx.conf");
        std::fs::write(&file, configuration(&folder.join("unskew-data/pki"), &address, upstream))?;
        let mut command = Command::new(binary);
        command.arg("-p").arg(&prefix).arg("-c").arg(&file).args(["-e", "stderr"]);
        let (process, _lines) = SpawnedProcess::start(command, &prefix.join("log"));
        let begun = Instant::now();
        while TcpStream::connect(&address).is_err() {
            let log = || std::fs::read_to_string(prefix.join("log")).unwrap_or_default();
            anyhow::ensure!(begun.elapsed() < START_TIMEOUT, "nginx does not listen; its log: {}", log());
            std::thread::park_timeout(Duration::from_millis(10));
        }
        Ok(Some(Self { _process: process, address }))
    }

    pub(super) fn address(&self) -> &str {
        &self.address
    }
}

/// Configuration that authenticates one user by the front-proxy certificate, over keep-alive connections.
fn configuration(pki: &Path, address: &str, upstream: &str) -> String {
    let pki = pki.display();
    format!(
        "daemon off;
master_process on;
worker_processes auto;
pid nginx.pid;
error_log stderr;
events {{ worker_connections 4096; }}
http {{
  access_log off;
  client_body_temp_path body;
  proxy_temp_path proxy;
  fastcgi_temp_path fastcgi;
  uwsgi_temp_path uwsgi;
  scgi_temp_path scgi;
  keepalive_requests 100000000;
  upstream server {{
    server {upstream};
    keepalive 100;
    keepalive_requests 100000000;
  }}
  server {{
    listen {address} ssl;
    ssl_certificate {pki}/apiserver.crt;
    ssl_certificate_key {pki}/apiserver.key;
    location / {{
      proxy_pass https://server;
      proxy_http_version 1.1;
      proxy_set_header Connection \"\";
      proxy_set_header Host $host;
      proxy_set_header X-Remote-User kubernetes-admin;
      proxy_set_header X-Remote-Group system:masters;
      proxy_ssl_certificate {pki}/front-proxy-client.crt;
      proxy_ssl_certificate_key {pki}/front-proxy-client.key;
      proxy_ssl_trusted_certificate {pki}/ca.crt;
      proxy_ssl_verify on;
      proxy_ssl_name kubernetes.default.svc;
    }}
  }}
}}
"
    )
}

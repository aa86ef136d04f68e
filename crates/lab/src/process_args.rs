//! Command lines of the processes of a lab. Pure.

use transport::pki::CertificateFiles;

use crate::data_dir::DataDir;
use crate::data_dir::state::{LabState, LabStorage, ServerSpec};
use crate::pki::{FRONT_PROXY_NAME, LabPki};
use crate::plan;

/// Disables peer discovery and forwarding between servers.
pub(crate) const PEER_PROXY_GATE_OFF: &str = "UnknownVersionInteroperabilityProxy=false";

/// Arguments after `unskew` for one server.
pub(crate) fn server_args(
    data_dir: &DataDir,
    state: &LabState,
    server: &ServerSpec,
    pki: &LabPki,
    serving: &CertificateFiles,
) -> Vec<String> {
    let mut args = vec!["serve".to_owned()];
    let mut flag = |name: &str, value: &dyn std::fmt::Display| args.push(format!("--{name}={value}"));
    flag("bind-address", &"127.0.0.1");
    flag("secure-port", &server.port);
    flag("hostname-override", &format!("lab-{}", server.name));
    flag("emulated-version", &server.release);
    match &state.store {
        LabStorage::Sqlite => flag("sqlite-file", &data_dir.sqlite_file().display()),
        LabStorage::Etcd { servers } => flag("etcd-servers", &servers.join(",")),
        LabStorage::OwnEtcd { client_port, .. } => flag("etcd-servers", &etcd_url(*client_port)),
    }
    // Gives the load balancer time to see "not ready" before connections are refused.
    flag("shutdown-delay-duration", &"100ms");
    flag("cert-dir", &data_dir.pki_dir().display());
    flag("tls-cert-file", &serving.certificate.display());
    flag("tls-private-key-file", &serving.key.display());
    flag("client-ca-file", &pki.ca_file.display());
    flag("service-account-signing-key-file", &pki.service_account_key_file.display());
    // With the gate off, kube-apiserver rejects these flags, and so do we.
    if !state.feature_gates.iter().any(|gate| gate == PEER_PROXY_GATE_OFF) {
        flag("peer-ca-file", &pki.ca_file.display());
        flag("peer-advertise-ip", &"127.0.0.1");
        flag("peer-advertise-port", &server.port);
    }
    flag("proxy-client-cert-file", &pki.front_proxy_client.certificate.display());
    flag("proxy-client-key-file", &pki.front_proxy_client.key.display());
    flag("requestheader-client-ca-file", &pki.front_proxy_ca_file.display());
    flag("requestheader-allowed-names", &FRONT_PROXY_NAME);
    flag("requestheader-username-headers", &"X-Remote-User");
    flag("requestheader-group-headers", &"X-Remote-Group");
    flag("requestheader-extra-headers-prefix", &"X-Remote-Extra-");
    // Older releases reject the flag: RemoteRequestHeaderUID is alpha there.
    if plan::minor_version(&server.release) >= 33 {
        flag("requestheader-uid-headers", &"X-Remote-Uid");
    }
    if !state.feature_gates.is_empty() {
        flag("feature-gates", &state.feature_gates.join(","));
    }
    args
}

/// Client URL of the etcd that the lab runs.
pub(crate) fn etcd_url(client_port: u16) -> String {
    format!("http://127.0.0.1:{client_port}")
}

/// Command line of the etcd that the lab runs.
pub(crate) fn etcd_args(data_dir: &DataDir, client_port: u16, peer_port: u16) -> Vec<String> {
    let (client, peer) = (etcd_url(client_port), etcd_url(peer_port));
    [
        ("--data-dir", data_dir.etcd_data_dir().display().to_string()),
        ("--name", "lab".to_owned()),
        ("--listen-client-urls", client.clone()),
        ("--advertise-client-urls", client),
        ("--listen-peer-urls", peer.clone()),
        ("--initial-advertise-peer-urls", peer.clone()),
        ("--initial-cluster", format!("lab={peer}")),
    ]
    .into_iter()
    .map(|(name, value)| format!("{name}={value}"))
    .collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::data_dir::state::tests::test_lab_state;

    fn test_server_args(state: &LabState) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        let keys = LabPki::open_or_create(&folder.path().join("pki")).unwrap();
        let serving = keys.serving_certificate("a").unwrap();
        server_args(&DataDir::new(Path::new("/lab")), state, &state.servers[0], &keys, &serving)
    }

    #[test]
    fn server_args_name_port_identity_store_and_trusted_proxies() {
        let args = test_server_args(&test_lab_state("a=1.33:7001"));
        assert_eq!(args[0], "serve");
        for flag in [
            "--secure-port=7001",
            "--hostname-override=lab-a",
            "--emulated-version=1.33",
            "--sqlite-file=/lab/store.db",
            "--peer-advertise-port=7001",
            "--requestheader-allowed-names=front-proxy-client",
            "--requestheader-uid-headers=X-Remote-Uid",
        ] {
            assert!(args.iter().any(|arg| arg == flag), "{flag} is not in {args:?}");
        }
        assert!(!args.iter().any(|arg| arg.starts_with("--feature-gates")));
    }

    #[test]
    fn server_args_depend_on_release_store_and_gates() {
        let mut state = test_lab_state("a=1.32:7001");
        state.feature_gates = vec!["A=false".to_owned(), "B=true".to_owned()];
        state.store = LabStorage::OwnEtcd { client_port: 1, peer_port: 2 };
        let args = test_server_args(&state);
        assert!(!args.iter().any(|arg| arg.contains("uid-headers") || arg.contains("sqlite")), "{args:?}");
        assert!(args.iter().any(|arg| arg == "--etcd-servers=http://127.0.0.1:1"), "{args:?}");
        assert!(args.iter().any(|arg| arg == "--feature-gates=A=false,B=true"), "{args:?}");
        assert!(args.iter().any(|arg| arg.starts_with("--peer-")), "{args:?}");
        state.feature_gates.push(PEER_PROXY_GATE_OFF.to_owned());
        assert!(!self::test_server_args(&state).iter().any(|arg| arg.starts_with("--peer-")));
        let etcd = etcd_args(&DataDir::new(Path::new("/lab")), 1, 2).join(" ");
        assert!(
            etcd.contains("--data-dir=/lab/etcd") && etcd.contains("--initial-cluster=lab=http://127.0.0.1:2"),
            "{etcd}"
        );
    }
}

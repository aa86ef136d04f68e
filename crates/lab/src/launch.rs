//! The command lines of the processes of a lab. Pure.

use transport::pki::Pair;

use crate::folder::Layout;
use crate::folder::state::{Remembered, State, Store};
use crate::keys::{Keys, PROXY_NAME};
use crate::plan;

/// The feature gate without which servers do not know each other, turned off.
pub(crate) const PEERING_OFF: &str = "UnknownVersionInteroperabilityProxy=false";

/// Everything after `unskew` for one server.
pub(crate) fn server(layout: &Layout, state: &State, server: &Remembered, keys: &Keys, serving: &Pair) -> Vec<String> {
    let mut args = vec!["serve".to_owned()];
    let mut flag = |name: &str, value: &dyn std::fmt::Display| args.push(format!("--{name}={value}"));
    flag("bind-address", &"127.0.0.1");
    flag("secure-port", &server.port);
    flag("hostname-override", &format!("lab-{}", server.name));
    flag("emulated-version", &server.release);
    match &state.store {
        Store::Sqlite => flag("sqlite-file", &layout.store().display()),
        Store::Etcd { servers } => flag("etcd-servers", &servers.join(",")),
        Store::OwnEtcd { client_port, .. } => flag("etcd-servers", &own_etcd_url(*client_port)),
    }
    // Long enough for the door to look elsewhere before connections are refused.
    flag("shutdown-delay-duration", &"100ms");
    flag("cert-dir", &layout.pki().display());
    flag("tls-cert-file", &serving.certificate.display());
    flag("tls-private-key-file", &serving.key.display());
    flag("client-ca-file", &keys.authority.display());
    flag("service-account-signing-key-file", &keys.accounts.display());
    // With the gate off these are refused, as kube-apiserver refuses them.
    if !state.feature_gates.iter().any(|gate| gate == PEERING_OFF) {
        flag("peer-ca-file", &keys.authority.display());
        flag("peer-advertise-ip", &"127.0.0.1");
        flag("peer-advertise-port", &server.port);
    }
    flag("proxy-client-cert-file", &keys.proxy.certificate.display());
    flag("proxy-client-key-file", &keys.proxy.key.display());
    flag("requestheader-client-ca-file", &keys.proxy_authority.display());
    flag("requestheader-allowed-names", &PROXY_NAME);
    flag("requestheader-username-headers", &"X-Remote-User");
    flag("requestheader-group-headers", &"X-Remote-Group");
    flag("requestheader-extra-headers-prefix", &"X-Remote-Extra-");
    // Older releases refuse the flag, as theirs is an alpha feature.
    if plan::minor(&server.release) >= 33 {
        flag("requestheader-uid-headers", &"X-Remote-Uid");
    }
    if !state.feature_gates.is_empty() {
        flag("feature-gates", &state.feature_gates.join(","));
    }
    args
}

/// Where the lab's own etcd is reached.
pub(crate) fn own_etcd_url(client_port: u16) -> String {
    format!("http://127.0.0.1:{client_port}")
}

/// The command line of the lab's own etcd.
pub(crate) fn etcd(layout: &Layout, client_port: u16, peer_port: u16) -> Vec<String> {
    let (client, peer) = (own_etcd_url(client_port), own_etcd_url(peer_port));
    [
        ("--data-dir", layout.etcd().display().to_string()),
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
    use crate::folder::state::tests::state;

    fn args(state: &State) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        let keys = Keys::open(&folder.path().join("pki")).unwrap();
        let serving = keys.serving("a").unwrap();
        server(&Layout::new(Path::new("/lab")), state, &state.servers[0], &keys, &serving)
    }

    #[test]
    fn a_server_is_told_where_it_is_who_it_is_and_whom_to_believe() {
        let args = args(&state("a=1.33:7001"));
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
    fn releases_and_stores_make_a_difference() {
        let mut state = state("a=1.32:7001");
        state.feature_gates = vec!["A=false".to_owned(), "B=true".to_owned()];
        state.store = Store::OwnEtcd { client_port: 1, peer_port: 2 };
        let args = args(&state);
        assert!(!args.iter().any(|arg| arg.contains("uid-headers") || arg.contains("sqlite")), "{args:?}");
        assert!(args.iter().any(|arg| arg == "--etcd-servers=http://127.0.0.1:1"), "{args:?}");
        assert!(args.iter().any(|arg| arg == "--feature-gates=A=false,B=true"), "{args:?}");
        assert!(args.iter().any(|arg| arg.starts_with("--peer-")), "{args:?}");
        state.feature_gates.push(PEERING_OFF.to_owned());
        assert!(!self::args(&state).iter().any(|arg| arg.starts_with("--peer-")));
        let etcd = etcd(&Layout::new(Path::new("/lab")), 1, 2).join(" ");
        assert!(
            etcd.contains("--data-dir=/lab/etcd") && etcd.contains("--initial-cluster=lab=http://127.0.0.1:2"),
            "{etcd}"
        );
    }
}

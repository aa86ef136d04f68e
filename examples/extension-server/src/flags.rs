//! The command line.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;

/// The settings; every flag is required, as `--name=value`.
#[derive(Debug)]
pub(crate) struct Flags {
    /// `--main-cluster`: address of an API server of the main cluster, or of a load balancer before them.
    pub(crate) main_cluster: SocketAddr,
    /// `--main-cluster-ca`: the CA bundle that verifies it.
    pub(crate) main_cluster_ca: PathBuf,
    /// `--token-file`: this server's token in the main cluster.
    pub(crate) token_file: PathBuf,
    /// `--hostname`: tells the replicas apart.
    pub(crate) hostname: String,
    /// `--port`.
    pub(crate) port: u16,
    /// `--tls-cert-file`.
    pub(crate) certificate: PathBuf,
    /// `--tls-private-key-file`.
    pub(crate) key: PathBuf,
    /// `--store`: the SQLite file.
    pub(crate) store: PathBuf,
    /// `--storage-version`: the version in which gadgets are stored.
    pub(crate) storage_version: String,
    /// `--lease-duration-seconds` of the identity lease.
    pub(crate) lease_duration: Duration,
}

impl Flags {
    pub(crate) fn parse(args: impl Iterator<Item = String>) -> anyhow::Result<Self> {
        let mut given = HashMap::new();
        for arg in args {
            let flag = arg.strip_prefix("--").and_then(|flag| flag.split_once('='));
            let (name, value) = flag.with_context(|| format!("{arg}: --name=value is expected"))?;
            given.insert(name.to_owned(), value.to_owned());
        }
        let mut take = |name: &str| given.remove(name).with_context(|| format!("--{name} is missing"));
        let flags = Self {
            main_cluster: take("main-cluster")?.parse().context("--main-cluster")?,
            main_cluster_ca: take("main-cluster-ca")?.into(),
            token_file: take("token-file")?.into(),
            hostname: take("hostname")?,
            port: take("port")?.parse().context("--port")?,
            certificate: take("tls-cert-file")?.into(),
            key: take("tls-private-key-file")?.into(),
            store: take("store")?.into(),
            storage_version: take("storage-version")?,
            lease_duration: Duration::from_secs(
                take("lease-duration-seconds")?.parse().context("--lease-duration-seconds")?,
            ),
        };
        anyhow::ensure!(given.is_empty(), "unknown flags: {:?}", given.keys());
        Ok(flags)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_all_required_and_others_are_rejected() {
        let all = "--main-cluster=127.0.0.1:6443 --main-cluster-ca=ca --token-file=t --hostname=a --port=0 --tls-cert-file=c \
                   --tls-private-key-file=k --store=s --storage-version=v1 --lease-duration-seconds=60";
        let parse = |text: &str| Flags::parse(text.split_whitespace().map(str::to_owned));
        assert_eq!(parse(all).unwrap().storage_version, "v1");
        assert!(parse(&all.replace("--port=0", "")).is_err());
        assert!(parse(&format!("{all} --other=1")).is_err());
        assert!(parse(&format!("{all} word")).is_err());
    }
}

//! Real programs of Kubernetes that are clients of an API server: kube-controller-manager and kube-scheduler.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process::SpawnedProcess;

/// A running program of `KUBEBUILDER_ASSETS`. Killed on drop.
#[derive(Debug)]
pub struct KubeProgram {
    _process: SpawnedProcess,
    log: PathBuf,
}

impl KubeProgram {
    /// Starts a program as administrator of a server. Fails the test if the assets do not have it.
    #[track_caller]
    pub fn start(program: &str, folder: &Path, kubeconfig: &Path, flags: &[&str]) -> Self {
        let assets = std::env::var_os("KUBEBUILDER_ASSETS").unwrap_or_default();
        let binary = Path::new(&assets).join(program);
        assert!(binary.exists(), "KUBEBUILDER_ASSETS names a folder with {program}: run `cargo xtask real`");
        let log = folder.join(format!("{program}.log"));
        let mut command = Command::new(binary);
        command.current_dir(folder).arg(format!("--kubeconfig={}", kubeconfig.display()));
        command.args(["--leader-elect=false", "--secure-port=0"]).args(flags);
        let (process, _lines) = SpawnedProcess::start(command, &log);
        Self { _process: process, log }
    }

    /// Starts kube-controller-manager with all controllers, with the keys that `folder` has.
    #[track_caller]
    pub fn controller_manager(folder: &Path, kubeconfig: &Path) -> Self {
        let file = |name: &str| folder.join("unskew-data/pki").join(name).display().to_string();
        let key = format!("--service-account-private-key-file={}", file("sa.key"));
        let root = format!("--root-ca-file={}", file("ca.crt"));
        Self::start("kube-controller-manager", folder, kubeconfig, &[&key, &root])
    }

    /// Log output so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}

//! The kubeconfig of the generated administrator.

use std::net::SocketAddr;
use std::path::Path;

use anyhow::Context as _;
use serde_json::json;
use transport::pki::{self, CertificateFiles};

/// Writes a kubeconfig that refers to certificate and key by path. Only the owner can read it.
pub(crate) fn write(file: &Path, server: SocketAddr, ca_file: &Path, user: &CertificateFiles) -> anyhow::Result<()> {
    let absolute = |path: &Path| std::path::absolute(path).map(|path| path.display().to_string());
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "unskew", "cluster": {
            "server": format!("https://{server}"),
            "certificate-authority": absolute(ca_file)?,
        }}],
        "users": [{"name": "admin", "user": {
            "client-certificate": absolute(&user.certificate)?,
            "client-key": absolute(&user.key)?,
        }}],
        "contexts": [{"name": "unskew", "context": {"cluster": "unskew", "user": "admin"}}],
        "current-context": "unskew",
    });
    let text = format!("{config:#}\n");
    if std::fs::read_to_string(file).is_ok_and(|found| found == text) {
        return Ok(());
    }
    pki::write_secret(file, &text).with_context(|| format!("cannot write {}", file.display()))
}

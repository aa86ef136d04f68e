//! The audit log, opened.

use std::path::PathBuf;

use anyhow::Context as _;
use edge::audit::{AuditLog, Auditor, Policy};

/// `--audit-policy-file` and `--audit-log-path`.
#[derive(Clone, Debug)]
pub struct AuditConfig {
    /// Which events are recorded.
    pub policy: Policy,
    /// The file to which events are appended; `-` for standard output.
    pub path: PathBuf,
}

impl AuditConfig {
    /// Opens the log file for appending.
    pub(crate) fn open_auditor(&self) -> anyhow::Result<Auditor> {
        if self.policy.has_request_response_rule() {
            tracing::warn!("--audit-policy-file: RequestResponse is recorded as Request: responses are not recorded");
        }
        let log = AuditLog::open(&self.path).with_context(|| format!("--audit-log-path: {}", self.path.display()))?;
        Ok(Auditor::new(self.policy.clone(), log))
    }
}

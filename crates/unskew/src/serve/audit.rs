//! The flags of the audit log.

use std::path::PathBuf;

use anyhow::Context as _;
use edge::audit::{AuditLog, Auditor, Policy};
use object::decode::{self, BodyEncoding};

use crate::flags::{FlagError, FlagValues};

/// What is recorded, and where.
#[derive(Clone, Debug)]
pub(crate) struct AuditFlags {
    policy: Policy,
    path: PathBuf,
}

impl AuditFlags {
    /// `None` if nothing is recorded: that takes both flags, as with kube-apiserver.
    pub(super) fn from_flags(flags: &FlagValues) -> Result<Option<Self>, FlagError> {
        let (policy, path) = (flags.given_value("audit-policy-file"), flags.given_value("audit-log-path"));
        let (Some(file), Some(path)) = (policy, path) else { return Ok(None) };
        let read = || {
            let content = std::fs::read(file).map_err(|error| error.to_string())?;
            // JSON is YAML too.
            let policy = decode::decode_value(&content, BodyEncoding::Yaml)?.value;
            Policy::from_value(policy).map_err(|error| error.to_string())
        };
        let policy = read().map_err(|reason| FlagError::Rejected(format!("--audit-policy-file: {file}: {reason}")))?;
        Ok(Some(Self { policy, path: path.into() }))
    }

    /// What should be said once at the start.
    pub(super) fn startup_warning(flags: &FlagValues) -> Option<&'static str> {
        match (flags.given_value("audit-policy-file"), flags.given_value("audit-log-path")) {
            (None, Some(_)) => Some("--audit-log-path: without --audit-policy-file nothing is recorded"),
            (Some(_), None) => Some("--audit-policy-file: without --audit-log-path nothing is recorded"),
            (Some(_), Some(_)) | (None, None) => None,
        }
    }

    /// Opens the file.
    pub(super) fn open_auditor(&self) -> anyhow::Result<Auditor> {
        if self.policy.has_request_response_rule() {
            tracing::warn!("--audit-policy-file: RequestResponse is recorded as Request: responses are not recorded");
        }
        let log = AuditLog::open(&self.path).with_context(|| format!("--audit-log-path: {}", self.path.display()))?;
        Ok(Auditor::new(self.policy.clone(), log))
    }
}

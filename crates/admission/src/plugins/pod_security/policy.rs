//! Levels and versions of the pod security standards, and what the labels of a namespace choose.

use std::fmt;

use api::FieldError;
use api::json::JsonObject;
use object::unstructured::nested_object;
use serde_json::Value;

pub(super) const PREFIX: &str = "pod-security.kubernetes.io/";

/// How much a pod may do; later ones allow less.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    Privileged,
    Baseline,
    Restricted,
}

/// The release whose standards count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PolicyVersion {
    Latest,
    Minor(u32),
}

/// A level of one release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LevelVersion {
    pub(super) level: Level,
    pub(super) version: PolicyVersion,
}

/// What a namespace chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Policy {
    pub(super) enforce: LevelVersion,
    pub(super) audit: LevelVersion,
    pub(super) warn: LevelVersion,
}

const PRIVILEGED: LevelVersion = LevelVersion { level: Level::Privileged, version: PolicyVersion::Latest };

impl Policy {
    /// The policy of a namespace: `defaults` where it has no label. A level that cannot be read enforces the strictest one, and neither audits nor warns.
    pub(super) fn of_namespace(namespace: &JsonObject, defaults: Self) -> (Self, Vec<FieldError>) {
        let mut policy = defaults;
        let labels = nested_object(namespace, &["metadata", "labels"]);
        let label = |name: &str| labels?.get(&format!("{PREFIX}{name}")).and_then(Value::as_str);
        let mut errors = Vec::new();
        let mut read = |mode: &str, target: &mut LevelVersion, fallback: Level| -> (bool, bool) {
            let mut refuse = |name: &str, value: &str, detail: &str| {
                errors.push(FieldError::invalid(format!("metadata.labels[{PREFIX}{name}]"), value, detail));
            };
            let mut is_valid = false;
            if let Some(value) = label(mode) {
                is_valid = Level::parse(value).is_some();
                target.level = Level::parse(value).unwrap_or(fallback);
                if !is_valid {
                    refuse(mode, value, "must be one of privileged, baseline, restricted");
                }
            }
            let version = format!("{mode}-version");
            if let Some(value) = label(&version) {
                target.version = PolicyVersion::parse(value).unwrap_or(PolicyVersion::Latest);
                if PolicyVersion::parse(value).is_none() {
                    refuse(&version, value, "must be \"latest\" or \"v1.x\"");
                }
            }
            (is_valid, label(&version).is_some())
        };
        let (is_enforced, _) = read("enforce", &mut policy.enforce, Level::Restricted);
        read("audit", &mut policy.audit, Level::Privileged);
        let (_, has_warn_version) = read("warn", &mut policy.warn, Level::Privileged);
        if label("warn").is_none() && is_enforced && policy.enforce.level > policy.warn.level {
            policy.warn.level = policy.enforce.level;
            if !has_warn_version {
                policy.warn.version = policy.enforce.version;
            }
        }
        (policy, errors)
    }

    /// True if both mean the same; the version of the level privileged means nothing.
    pub(super) fn is_equivalent(&self, other: &Self) -> bool {
        let pairs = [(self.enforce, other.enforce), (self.audit, other.audit), (self.warn, other.warn)];
        pairs.iter().all(|(own, other)| own == other || [own, other].iter().all(|it| it.level == Level::Privileged))
    }

    pub(super) fn is_privileged(&self) -> bool {
        [self.enforce, self.audit, self.warn].iter().all(|mode| mode.level == Level::Privileged)
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self { enforce: PRIVILEGED, audit: PRIVILEGED, warn: PRIVILEGED }
    }
}

impl Level {
    pub(super) fn parse(text: &str) -> Option<Self> {
        match text {
            "privileged" => Some(Self::Privileged),
            "baseline" => Some(Self::Baseline),
            "restricted" => Some(Self::Restricted),
            _ => None,
        }
    }
}

impl PolicyVersion {
    pub(super) fn parse(text: &str) -> Option<Self> {
        if text == "latest" {
            return Some(Self::Latest);
        }
        let digits = text.strip_prefix("v1.")?;
        let is_number = !digits.is_empty()
            && digits.bytes().all(|byte| byte.is_ascii_digit())
            && (digits.len() == 1 || !digits.starts_with('0'));
        is_number.then(|| digits.parse().ok().map(Self::Minor))?
    }

    /// The minor of the release, at most `newest`.
    pub(super) fn minor(self, newest: u32) -> u32 {
        match self {
            Self::Latest => newest,
            Self::Minor(minor) => minor.min(newest),
        }
    }
}

impl fmt::Display for LevelVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let level = match self.level {
            Level::Privileged => "privileged",
            Level::Baseline => "baseline",
            Level::Restricted => "restricted",
        };
        match self.version {
            PolicyVersion::Latest => write!(f, "{level}:latest"),
            PolicyVersion::Minor(minor) => write!(f, "{level}:v1.{minor}"),
        }
    }
}

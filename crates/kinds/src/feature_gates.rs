//! Feature gates of each release, their defaults, and parsing of `--feature-gates`.

mod dependencies;
mod table;

use std::fmt;

use crate::flag::parse_bool;
use crate::release::Release;

/// Enabled by default in every release, unlike in Kubernetes: they implement the mixed-version proxy.
const ENABLED_IN_EVERY_RELEASE: [&str; 2] = ["StorageVersionAPI", "UnknownVersionInteroperabilityProxy"];

/// The enabled feature gates of a server of one release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeatureGates {
    release: Release,
    /// Indexed like the table; false for gates that the release does not have.
    enabled: Vec<bool>,
    warnings: Vec<GateWarning>,
}

/// Warning about a stable or deprecated gate that was set explicitly. `Display` prints kube-apiserver's message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GateWarning {
    gate: &'static str,
    stage: FeatureStage,
    value: bool,
}

/// Stage, default and lock of a gate in one release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeatureSpec {
    /// Maturity of the feature.
    pub stage: FeatureStage,
    /// Whether the gate is on by default.
    pub default: bool,
    /// Whether the gate may be set to another value than its default.
    pub lock: GateLock,
}

/// Maturity of a feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeatureStage {
    /// Disabled by default; may be removed.
    Alpha,
    /// Usually enabled by default.
    Beta,
    /// The feature is permanent; the gate will be removed.
    Stable,
    /// The feature and its gate will be removed.
    Deprecated,
}

/// Whether a gate can be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GateLock {
    /// To true or false.
    Unlocked,
    /// Only to its default.
    Locked,
}

/// Error of a `--feature-gates` value, with kube-apiserver's message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FeatureGatesError {
    /// A gate without `=true` or `=false`.
    #[error("missing bool value for {0}")]
    MissingValue(Box<str>),
    /// A gate whose value is not a boolean.
    #[error("invalid value of {gate}={value}, err: strconv.ParseBool: parsing {value:?}: invalid syntax")]
    InvalidValue {
        /// The gate.
        gate: Box<str>,
        /// The invalid value.
        value: Box<str>,
    },
    /// A gate of another component than `kube`.
    #[error("component not registered: {0}")]
    UnknownComponent(Box<str>),
    /// Some gates with the prefix `kube:` and some without.
    #[error("set kube feature gates with default empty prefix or kube: prefix consistently, do not mix use")]
    MixedPrefixes,
    /// A gate that this release does not have.
    #[error("unrecognized feature gate: {0}")]
    Unrecognized(Box<str>),
    /// A gate that can no longer be set.
    #[error("cannot set feature gate {gate} to {value}, feature is locked to {}", !value)]
    Locked {
        /// The gate.
        gate: &'static str,
        /// The requested value.
        value: bool,
    },
    /// An enabled gate whose dependencies are disabled.
    #[error("{gate} is enabled, but depends on features that are disabled: [{}]", disabled.join(" "))]
    Dependency {
        /// The enabled gate.
        gate: &'static str,
        /// The disabled dependencies.
        disabled: Vec<&'static str>,
    },
    /// Several errors.
    #[error("[{}]", join_errors(.0))]
    Several(Vec<FeatureGatesError>),
}

impl FeatureGates {
    /// Parses the value of `--feature-gates`, `A=true,B=false`; values of repeated flags are joined by commas.
    ///
    /// `AllAlpha` and `AllBeta` apply to gates that are not set by name. For a gate that is set twice, the last value
    /// applies.
    pub fn parse(release: Release, text: &str) -> Result<Self, FeatureGatesError> {
        let settings = parse_settings(text)?;
        let mut refused = Vec::new();
        let mut gates = Self::new(release);
        for (all, stage) in [("AllAlpha", FeatureStage::Alpha), ("AllBeta", FeatureStage::Beta)] {
            if let Some((_, value)) = settings.iter().rfind(|(name, _)| *name == all) {
                gates.set_stage(stage, *value);
            }
        }
        for (name, value) in settings {
            if matches!(name, "AllAlpha" | "AllBeta") {
                continue;
            }
            let Some((row, spec)) = find_gate(release, name) else {
                return Err(FeatureGatesError::Unrecognized(name.into()));
            };
            if spec.lock == GateLock::Locked && spec.default != value {
                refused.push(FeatureGatesError::Locked { gate: table::GATES[row].name, value });
            }
            gates.enabled[row] = value;
            if matches!(spec.stage, FeatureStage::Stable | FeatureStage::Deprecated) {
                let gate = table::GATES[row].name;
                gates.warnings.retain(|notice| notice.gate != gate);
                gates.warnings.push(GateWarning { gate, stage: spec.stage, value });
            }
        }
        if refused.is_empty() {
            refused = gates.unmet_dependencies();
        }
        match refused.len() {
            0 => Ok(gates),
            1 => Err(refused.remove(0)),
            _ => Err(FeatureGatesError::Several(refused)),
        }
    }

    /// The default gates of a release.
    pub fn new(release: Release) -> Self {
        let is_on = |row: &table::GateRow| {
            row.spec(release).is_some_and(|spec| spec.default || ENABLED_IN_EVERY_RELEASE.contains(&row.name))
        };
        Self { release, enabled: table::GATES.iter().map(is_on).collect(), warnings: Vec::new() }
    }

    /// The same gates with one of them set, whatever its lock and dependencies; unchanged if there is no such gate.
    #[must_use]
    pub fn with(&self, name: &str, value: bool) -> Self {
        let mut gates = self.clone();
        if let Some(row) = gate_index(name) {
            gates.enabled[row] = value;
        }
        gates
    }

    /// The release of the server.
    pub fn release(&self) -> Release {
        self.release
    }

    /// True if the gate is enabled; false if the release does not have it.
    pub fn enabled(&self, name: &str) -> bool {
        gate_index(name).is_some_and(|row| self.enabled[row])
    }

    /// True if the release has the gate and it is disabled. What belongs to a gate that a release no longer has is
    /// permanent.
    pub fn is_disabled(&self, name: &str) -> bool {
        gate_index(name).is_some_and(|row| !self.enabled[row] && table::GATES[row].spec(self.release).is_some())
    }

    /// True if the release has what belongs to the gate: the gate is enabled, or was removed after it became permanent.
    pub fn includes(&self, name: &str) -> bool {
        let Some(row) = gate_index(name) else { return false };
        let was_stable = |earlier: &Release| {
            *earlier < self.release
                && table::GATES[row].spec(*earlier).is_some_and(|spec| spec.stage == FeatureStage::Stable)
        };
        self.enabled[row] || table::GATES[row].spec(self.release).is_none() && Release::ALL.iter().any(was_stable)
    }

    /// Warnings to log at startup about gates that were set by name, in their order.
    pub fn warnings(&self) -> &[GateWarning] {
        &self.warnings
    }

    /// Every gate of the release, sorted by name, with its spec and whether it is enabled.
    pub fn all(&self) -> impl Iterator<Item = (&'static str, FeatureSpec, bool)> {
        let rows = table::GATES.iter().zip(&self.enabled);
        rows.filter_map(|(row, on)| row.spec(self.release).map(|spec| (row.name, spec, *on)))
    }

    fn set_stage(&mut self, stage: FeatureStage, value: bool) {
        for (row, on) in table::GATES.iter().zip(&mut self.enabled) {
            if row.spec(self.release).is_some_and(|spec| spec.stage == stage) {
                *on = value;
            }
        }
    }

    fn unmet_dependencies(&self) -> Vec<FeatureGatesError> {
        let of_release =
            dependencies::DEPENDENCIES.iter().filter(|dependency| dependency.releases.contains(self.release));
        let broken = of_release.filter(|dependency| self.enabled(dependency.gate)).filter_map(|dependency| {
            let disabled: Vec<_> = dependency.requires.iter().copied().filter(|needed| !self.enabled(needed)).collect();
            (!disabled.is_empty()).then_some(FeatureGatesError::Dependency { gate: dependency.gate, disabled })
        });
        broken.collect()
    }
}

/// Spec of a gate in a release; `None` if the release does not have it.
pub fn feature_spec(release: Release, name: &str) -> Option<FeatureSpec> {
    find_gate(release, name).map(|(_, spec)| spec)
}

fn find_gate(release: Release, name: &str) -> Option<(usize, FeatureSpec)> {
    let row = gate_index(name)?;
    Some((row, table::GATES[row].spec(release)?))
}

fn gate_index(name: &str) -> Option<usize> {
    table::GATES.binary_search_by_key(&name, |row| row.name).ok()
}

/// The key-value pairs of the flag in their order, without the component prefix.
fn parse_settings(text: &str) -> Result<Vec<(&str, bool)>, FeatureGatesError> {
    let pairs: Vec<_> = text
        .split(',')
        .filter(|pair| !pair.is_empty())
        .map(|pair| pair.split_once(':').unwrap_or(("", pair)))
        .collect();
    let components = || pairs.iter().map(|(component, _)| component.trim());
    if let Some(other) = components().find(|component| !matches!(*component, "" | "kube")) {
        return Err(FeatureGatesError::UnknownComponent(other.into()));
    }
    if components().any(str::is_empty) && components().any(|component| component == "kube") {
        return Err(FeatureGatesError::MixedPrefixes);
    }
    pairs.iter().map(|(_, pair)| parse_setting(pair)).collect()
}

fn parse_setting(pair: &str) -> Result<(&str, bool), FeatureGatesError> {
    let Some((gate, value)) = pair.split_once('=') else {
        return Err(FeatureGatesError::MissingValue(pair.trim().into()));
    };
    let (gate, value) = (gate.trim(), value.trim());
    match parse_bool(value) {
        Some(value) => Ok((gate, value)),
        None => Err(FeatureGatesError::InvalidValue { gate: gate.into(), value: value.into() }),
    }
}

fn join_errors(errors: &[FeatureGatesError]) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

impl fmt::Display for GateWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { gate, stage, value } = self;
        let stage = if *stage == FeatureStage::Deprecated { "deprecated" } else { "GA" };
        write!(f, "Setting {stage} feature gate {gate}={value}. It will be removed in a future release.")
    }
}

/// Prints the stage as in kube-apiserver's metrics and help; empty for stable.
impl fmt::Display for FeatureStage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Alpha => "ALPHA",
            Self::Beta => "BETA",
            Self::Stable => "",
            Self::Deprecated => "DEPRECATED",
        })
    }
}

#[cfg(test)]
mod tests;

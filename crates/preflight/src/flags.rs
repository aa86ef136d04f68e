//! The flags of kube-apiserver: which release has which, and the flags with which a server of a release does not start.

mod names;

use admission::PluginSet;
use kinds::{FeatureGates, Release, RuntimeConfig};
use serde_json::Value;

use crate::releases::release_list;

/// How many releases back a server can emulate, and not before the oldest known one.
const EMULATED_RELEASES_MAX: u8 = 3;

/// The flags that servers are started with, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerFlags {
    /// Names without dashes; the value is empty if there is none.
    flags: Vec<(String, String)>,
}

/// One reason why a server does not start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartRefusal {
    /// kube-apiserver's own words, after the flag.
    pub evidence: String,
    /// What to do about it.
    pub cure: String,
}

/// What the flags say about the served part of a server.
#[derive(Debug)]
pub(crate) struct CheckedFlags {
    /// The gates of the emulated release; its defaults if the flag is refused.
    pub(crate) gates: FeatureGates,
    /// Everything default if the flag is refused.
    pub(crate) runtime_config: RuntimeConfig,
    pub(crate) refusals: Vec<StartRefusal>,
}

impl ServerFlags {
    /// Reads the container of kube-apiserver in the manifest of a Pod; `None` if there is none.
    pub fn from_manifest(manifest: &Value) -> Option<Self> {
        let containers = manifest["spec"]["containers"].as_array()?;
        let words = |container: &Value| {
            let parts = ["command", "args"].into_iter().flat_map(|part| container[part].as_array().cloned());
            parts.flatten().filter_map(|word| word.as_str().map(str::to_owned)).collect::<Vec<String>>()
        };
        let is_server = |container: &&Value| {
            container["name"] == "kube-apiserver"
                || words(container).first().is_some_and(|program| program.ends_with("kube-apiserver"))
        };
        containers.iter().find(is_server).map(|container| Self::from_words(words(container)))
    }

    /// Reads a command line, a systemd unit or an environment file: every word that begins with two dashes is a flag.
    pub fn from_command_line(text: &str) -> Self {
        let plain: String = text.chars().filter(|letter| !matches!(letter, '"' | '\'' | '\\')).collect();
        let words = plain.split_whitespace().map(|word| match word.split_once("=--") {
            // KUBE_APISERVER_ARGS="--a=b …"
            Some((variable, flag)) if !variable.starts_with('-') => format!("--{flag}"),
            Some(_) | None => word.to_owned(),
        });
        Self::from_words(words)
    }

    fn from_words(words: impl IntoIterator<Item = String>) -> Self {
        let mut flags: Vec<(String, String)> = Vec::new();
        let mut wants_value = false;
        for word in words {
            if let Some(flag) = word.strip_prefix("--") {
                let (name, value) = flag.split_once('=').unwrap_or((flag, ""));
                wants_value = !flag.contains('=');
                // kube-apiserver reads --feature_gates, too.
                flags.push((name.replace('_', "-"), value.to_owned()));
            } else if let Some((_, value)) = flags.last_mut().filter(|_| wants_value && !word.starts_with('-')) {
                *value = word;
                wants_value = false;
            }
        }
        Self { flags }
    }

    /// Adds a flag after the others; for a gate that is set twice the last value applies. An empty value adds nothing.
    pub fn push(&mut self, name: &str, value: String) {
        if !value.is_empty() {
            self.flags.push((name.to_owned(), value));
        }
    }

    /// True if there is no flag.
    pub fn is_empty(&self) -> bool {
        self.flags.is_empty()
    }

    /// The values of a flag, joined by commas.
    fn joined(&self, name: &str) -> String {
        let values = self.flags.iter().filter(|(known, value)| known == name && !value.is_empty());
        values.map(|(_, value)| value.as_str()).collect::<Vec<_>>().join(",")
    }

    /// Checks the flags as a kube-apiserver of `release` does at its start.
    pub(crate) fn check(&self, release: Release) -> CheckedFlags {
        let mut refusals: Vec<StartRefusal> =
            self.flags.iter().filter_map(|(name, _)| unknown_flag(name, release)).collect();
        let emulated = self.check_versions(release, &mut refusals);
        let mut refuse = |flag: &str, error: &dyn std::fmt::Display| {
            let cure = format!("Change --{flag} of the servers of that release.");
            refusals.push(StartRefusal { evidence: format!("--{flag}: {error}"), cure });
        };
        let gates = FeatureGates::parse(emulated, &self.joined("feature-gates")).unwrap_or_else(|error| {
            refuse("feature-gates", &error);
            FeatureGates::new(emulated)
        });
        let runtime_config = RuntimeConfig::parse(emulated, &self.joined("runtime-config")).unwrap_or_else(|error| {
            refuse("runtime-config", &error);
            RuntimeConfig::default()
        });
        let [enable, disable] = ["enable-admission-plugins", "disable-admission-plugins"].map(|flag| self.joined(flag));
        let names = |list: &'_ str| list.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect();
        let [enable, disable]: [Vec<String>; 2] = [names(&enable), names(&disable)];
        let [enable, disable] = [&enable, &disable].map(|list| list.iter().map(String::as_str).collect::<Vec<_>>());
        if let Err(error) = PluginSet::from_flags(release, &enable, &disable, |_| true) {
            refuse("enable-admission-plugins", &error);
        }
        CheckedFlags { gates, runtime_config, refusals }
    }

    /// The release that the server emulates: its own if no other is given, or a wrong one.
    fn check_versions(&self, release: Release, refusals: &mut Vec<StartRefusal>) -> Release {
        let oldest = (release.minor() - EMULATED_RELEASES_MAX).max(Release::OLDEST.minor());
        let mut check = |flag: &str, noun: &str, newest: Release, newest_shown: String| {
            let refusal = match kube_version(&self.joined(flag)) {
                Ok(None) => return None,
                Ok(Some(given)) => match given.parse::<Release>() {
                    Ok(parsed) if parsed.minor() >= oldest && parsed <= newest => return Some(parsed),
                    Ok(_) | Err(_) => format!("{noun} {given} is not between [1.{oldest}, {newest_shown}]"),
                },
                Err(refusal) => refusal,
            };
            let cure = format!("Give --{flag} a version that {release} can emulate, or none.");
            refusals.push(StartRefusal { evidence: format!("--{flag}: {refusal}"), cure });
            None
        };
        let emulated = check("emulated-version", "emulation version", release, format!("{release}.0"));
        let emulated = emulated.unwrap_or(release);
        check("min-compatibility-version", "minCompatibilityVersion version", emulated, emulated.to_string());
        emulated
    }
}

/// The version of kube-apiserver, `1.35`, in a list of versions of components such as `kube=v1.35`; or kube-apiserver's words
/// against the list.
fn kube_version(list: &str) -> Result<Option<String>, String> {
    let mut found = None;
    for pair in list.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
        let (component, version) = pair.split_once('=').unwrap_or(("kube", pair));
        let (component, version) = (component.trim(), version.trim().trim_start_matches('v'));
        let numbers: Option<Vec<u32>> = version.split('.').map(|number| number.parse().ok()).collect();
        let short = match numbers.as_deref() {
            Some([major, minor] | [major, minor, 0]) => format!("{major}.{minor}"),
            Some([_, _, _]) => return Err(format!("patch version not allowed, got: {component}={version}")),
            Some(_) | None => return Err(format!("illegal version string {version:?}")),
        };
        if component != "kube" {
            return Err(format!("component not registered: {component}"));
        }
        if let Some(other) = found.replace(short) {
            return Err(format!("duplicate version flag, kube={other} and kube={version}"));
        }
    }
    Ok(found)
}

fn unknown_flag(name: &str, release: Release) -> Option<StartRefusal> {
    let releases: Vec<Release> = Release::ALL.into_iter().filter(|known| names::has_flag(*known, name)).collect();
    let cure = match releases.is_empty() {
        true => format!("Remove --{name}: no known release has it."),
        false => format!("Remove --{name}: only {} has it.", release_list(&releases)),
    };
    (!releases.contains(&release)).then(|| StartRefusal { evidence: format!("unknown flag: --{name}"), cure })
}

#[cfg(test)]
mod tests;

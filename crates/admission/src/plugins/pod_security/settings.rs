//! The configuration of PodSecurity: levels of namespaces without labels, and exemptions.

use api::FieldError;
use api::json::JsonObject;
use api::quote::Quoted;
use api::validation::ValidationErrors;
use object::unstructured::{get, nested_object, texts};
use serde_json::Value;

use super::policy::{Level, LevelVersion, PREFIX, Policy, PolicyVersion};

/// A `PodSecurityConfiguration`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodSecuritySettings {
    pub(super) defaults: Policy,
    usernames: Vec<String>,
    namespaces: Vec<String>,
    runtime_classes: Vec<String>,
}

impl PodSecuritySettings {
    /// Reads a configuration whose fields are known.
    pub(crate) fn read(configuration: &JsonObject) -> Result<Self, Vec<FieldError>> {
        let mut errors = Vec::new();
        let mut defaults = Policy::default();
        let modes = [("enforce", &mut defaults.enforce), ("warn", &mut defaults.warn), ("audit", &mut defaults.audit)];
        for (mode, target) in modes {
            let mut value = |name: &str, detail: &str, is_valid: &dyn Fn(&str) -> bool| {
                let text = get(configuration, &["defaults", name]).and_then(Value::as_str)?;
                if !is_valid(text) {
                    errors.push(FieldError::invalid(format!("defaults.{name}"), text, detail));
                }
                Some(text)
            };
            let detail = "must be one of privileged, baseline, restricted";
            let level = value(mode, detail, &|text| Level::parse(text).is_some());
            let version = format!("{mode}-version");
            let version =
                value(&version, "must be \"latest\" or \"v1.x\"", &|text| PolicyVersion::parse(text).is_some());
            target.level = level.and_then(Level::parse).unwrap_or(target.level);
            target.version = version.and_then(PolicyVersion::parse).unwrap_or(target.version);
        }
        let mut exemptions = |name: &str, problem: &dyn Fn(&str) -> ValidationErrors| {
            let mut names: Vec<String> = Vec::new();
            for (index, text) in texts(configuration, &["exemptions", name]).enumerate() {
                let path = format!("exemptions.{name}[{index}]");
                let problems = problem(text);
                if !problems.is_empty() {
                    errors.push(FieldError::invalid(path, text, problems.join(", ")));
                } else if names.iter().any(|known| known == text) {
                    errors.push(FieldError::duplicate(path, text));
                }
                names.push(text.to_owned());
            }
            names
        };
        let namespaces = exemptions("namespaces", &api::validation::validate_dns1123_label);
        let runtime_classes = exemptions("runtimeClasses", &api::validation::validate_dns1123_subdomain);
        let usernames = exemptions("usernames", &|name| match name {
            "" => vec!["username must not be empty".into()],
            _ => Vec::new(),
        });
        if errors.is_empty() { Ok(Self { defaults, usernames, namespaces, runtime_classes }) } else { Err(errors) }
    }

    pub(super) fn is_exempt_namespace(&self, name: &str) -> bool {
        self.namespaces.iter().any(|exempt| exempt == name)
    }

    pub(super) fn is_exempt_user(&self, name: &str) -> bool {
        self.usernames.iter().any(|exempt| exempt == name)
    }

    pub(super) fn is_exempt_class(&self, name: &str) -> bool {
        self.runtime_classes.iter().any(|exempt| exempt == name)
    }

    /// The warning about labels of an exempt namespace that have no effect.
    pub(super) fn warning_of_exempt_namespace(
        &self,
        name: &str,
        namespace: &JsonObject,
        policy: Policy,
    ) -> Option<String> {
        if !self.is_exempt_namespace(name) || policy.is_privileged() || policy.is_equivalent(&self.defaults) {
            return None;
        }
        let labels = nested_object(namespace, &["metadata", "labels"]);
        let has_label = |name: String| labels.is_some_and(|labels| labels.contains_key(&name));
        let modes = [("enforce", policy.enforce), ("audit", policy.audit), ("warn", policy.warn)];
        let shown: Vec<String> = modes
            .into_iter()
            .filter(|(mode, chosen): &(&str, LevelVersion)| {
                chosen.level != Level::Privileged
                    && (has_label(format!("{PREFIX}{mode}")) || has_label(format!("{PREFIX}{mode}-version")))
            })
            .map(|(mode, chosen)| format!("{mode}={chosen}"))
            .collect();
        let (name, shown) = (Quoted(name), shown.join(", "));
        Some(format!("namespace {name} is exempt from Pod Security, and the policy ({shown}) will be ignored"))
    }
}

//! `--audit-policy-file`: the level of each request. The first matching rule decides.

use access::User;
use api::{Target, target};
use serde::Deserialize;

/// How much of a request is recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize, serde::Serialize)]
pub enum Level {
    /// Nothing.
    #[default]
    None,
    /// User, request line, times and outcome.
    Metadata,
    /// Also the request body.
    Request,
    /// Also the response body. Accepted, and recorded as [`Level::Request`].
    RequestResponse,
}

/// The stage of a request that an event records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, serde::Serialize)]
pub enum Stage {
    /// The user is authenticated.
    RequestReceived,
    /// The head of a long-running response is sent, or authentication failed.
    ResponseStarted,
    /// The response has ended.
    ResponseComplete,
    /// The handler panicked.
    Panic,
}

/// A policy file.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Policy {
    #[serde(default)]
    kind: String,
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    rules: Vec<AuditRule>,
    #[serde(default)]
    omit_stages: Vec<Stage>,
}

/// A policy that kube-apiserver would reject.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// The file does not parse.
    #[error("it is no audit policy: {0}")]
    Malformed(#[from] serde_json::Error),
    /// Kind or version is not that of a policy.
    #[error("unknown group version field {0} in policy")]
    WrongKind(String),
    /// The policy has no rules, so that it would record nothing.
    #[error("loaded illegal policy with 0 rules")]
    NoRules,
    /// A rule names resources and paths, which no request matches.
    #[error(
        "rules[{0}].nonResourceURLs: Invalid value: rules cannot apply to both regular resources and non-resource URLs"
    )]
    ResourcesAndUrls(usize),
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
struct AuditRule {
    level: Level,
    #[serde(default)]
    users: Vec<String>,
    #[serde(default)]
    user_groups: Vec<String>,
    #[serde(default)]
    verbs: Vec<String>,
    #[serde(default)]
    resources: Vec<GroupResources>,
    #[serde(default)]
    namespaces: Vec<String>,
    #[serde(default, rename = "nonResourceURLs")]
    non_resource_urls: Vec<String>,
    #[serde(default)]
    omit_stages: Vec<Stage>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
struct GroupResources {
    #[serde(default)]
    group: String,
    #[serde(default)]
    resources: Vec<String>,
    #[serde(default)]
    resource_names: Vec<String>,
}

/// The decision of a policy on one request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct AuditDecision {
    pub(super) level: Level,
    omit_stages: Vec<Stage>,
}

impl AuditDecision {
    pub(super) fn records(&self, stage: Stage) -> bool {
        self.level != Level::None && !self.omit_stages.contains(&stage)
    }
}

impl Policy {
    /// Parses a policy from a JSON value.
    pub fn from_value(value: serde_json::Value) -> Result<Self, PolicyError> {
        let policy: Self = serde_json::from_value(value)?;
        if (&*policy.kind, &*policy.api_version) != ("Policy", "audit.k8s.io/v1") {
            return Err(PolicyError::WrongKind(format!("{}, Kind={}", policy.api_version, policy.kind)));
        }
        if policy.rules.is_empty() {
            return Err(PolicyError::NoRules);
        }
        let is_both = |rule: &AuditRule| {
            let is_about_resources = !rule.resources.is_empty() || !rule.namespaces.is_empty();
            is_about_resources && !rule.non_resource_urls.is_empty()
        };
        match policy.rules.iter().position(is_both) {
            Some(at) => Err(PolicyError::ResourcesAndUrls(at)),
            None => Ok(policy),
        }
    }

    /// True if a rule has level RequestResponse, which is recorded as Request.
    pub fn has_request_response_rule(&self) -> bool {
        self.rules.iter().any(|rule| rule.level == Level::RequestResponse)
    }

    pub(super) fn decide(&self, user: Option<&User>, target: &Target<'_>) -> AuditDecision {
        let Some(rule) = self.rules.iter().find(|rule| rule.matches(user, target)) else {
            return AuditDecision::default();
        };
        let omit_stages = self.omit_stages.iter().chain(&rule.omit_stages).copied().collect();
        AuditDecision { level: rule.level.min(Level::Request), omit_stages }
    }
}

impl AuditRule {
    fn matches(&self, user: Option<&User>, target: &Target<'_>) -> bool {
        let has = |list: &[String], wanted: &str| list.iter().any(|entry| entry == wanted);
        if !self.users.is_empty() && !user.is_some_and(|user| has(&self.users, &user.name)) {
            return false;
        }
        let is_in_group = |user: &User| user.groups.iter().any(|group| has(&self.user_groups, group));
        if !self.user_groups.is_empty() && !user.is_some_and(is_in_group) {
            return false;
        }
        if !self.verbs.is_empty() && !has(&self.verbs, target.verb()) {
            return false;
        }
        match target {
            Target::Resource(resource) => {
                let is_in_namespace = self.namespaces.is_empty() || has(&self.namespaces, &resource.namespace);
                let is_match =
                    self.resources.is_empty() || self.resources.iter().any(|resources| resources.matches(resource));
                self.non_resource_urls.is_empty() && is_in_namespace && is_match
            }
            Target::NonResource(page) => {
                let is_match = |url: &String| matches_url(&page.path, url);
                self.namespaces.is_empty()
                    && self.resources.is_empty()
                    && (self.non_resource_urls.is_empty() || self.non_resource_urls.iter().any(is_match))
            }
        }
    }
}

impl GroupResources {
    fn matches(&self, resource_target: &target::ResourceTarget<'_>) -> bool {
        if self.group != resource_target.group {
            return false;
        }
        if self.resources.is_empty() {
            return true;
        }
        let is_named =
            self.resource_names.is_empty() || self.resource_names.iter().any(|name| *name == resource_target.name);
        is_named && self.resources.iter().any(|resource| matches_resource(resource, resource_target))
    }
}

/// A resource of a rule: `pods`, `pods/log`, `pods/*`, `*/scale` or `*`.
fn matches_resource(rule: &str, target: &target::ResourceTarget<'_>) -> bool {
    match rule.split_once('/') {
        None if rule == "*" => true,
        None => rule == target.resource && target.subresource.is_empty(),
        Some(("*", subresource)) => !target.subresource.is_empty() && subresource == target.subresource,
        Some((resource, "*")) => resource == target.resource,
        Some((resource, subresource)) => resource == target.resource && subresource == target.subresource,
    }
}

/// True if a path matches a rule's URL pattern: the same path, `*`, or a prefix followed by `*`.
fn matches_url(path: &str, pattern: &str) -> bool {
    pattern == "*" || pattern == path || pattern.ends_with('*') && path.starts_with(pattern.trim_end_matches('*'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(rules: &str) -> Policy {
        let text = format!(r#"{{"kind":"Policy","apiVersion":"audit.k8s.io/v1","rules":{rules}}}"#);
        Policy::from_value(serde_json::from_str(&text).unwrap()).unwrap()
    }

    #[track_caller]
    fn check(rules: &str, user: &str, method: &str, line: &str, expected: Level) {
        let user = User { groups: vec!["devs".to_owned()], ..User::named(user) };
        let target = Target::parse(method, line).unwrap();
        assert_eq!(policy(rules).decide(Some(&user), &target).level, expected, "{rules} {method} {line}");
    }

    #[test]
    fn first_matching_audit_rule_decides() {
        let rules = r#"[{"level":"None","users":["probe"]},{"level":"Request","userGroups":["devs"],"verbs":["create"]},{"level":"Metadata"}]"#;
        check(rules, "probe", "POST", "/api/v1/namespaces/d/pods", Level::None);
        check(rules, "jane", "POST", "/api/v1/namespaces/d/pods", Level::Request);
        check(rules, "jane", "GET", "/api/v1/namespaces/d/pods", Level::Metadata);
        let only = r#"[{"level":"RequestResponse","users":["jane"]}]"#;
        check(only, "bob", "GET", "/healthz", Level::None);
        check(only, "jane", "GET", "/healthz", Level::Request);
        let health = Target::parse("GET", "/healthz").unwrap();
        assert_eq!(policy(only).decide(None, &health).level, Level::None);
    }

    #[test]
    fn audit_rule_matches_resources_as_kubernetes() {
        for (resources, line, matches) in [
            (r#"[{"group":""}]"#, "/api/v1/namespaces/d/pods/p/log", true),
            (r#"[{"group":""}]"#, "/apis/apps/v1/deployments", false),
            (r#"[{"resources":["pods"]}]"#, "/api/v1/namespaces/d/pods/p", true),
            (r#"[{"resources":["pods"]}]"#, "/api/v1/namespaces/d/pods/p/log", false),
            (r#"[{"resources":["pods/log"]}]"#, "/api/v1/namespaces/d/pods/p/log", true),
            (r#"[{"resources":["pods/*"]}]"#, "/api/v1/namespaces/d/pods/p", true),
            (r#"[{"resources":["*/scale"]}]"#, "/api/v1/namespaces/d/replicationcontrollers/r/scale", true),
            (r#"[{"resources":["*"]}]"#, "/api/v1/namespaces/d/pods/p/log", true),
            (r#"[{"resources":["pods"],"resourceNames":["q"]}]"#, "/api/v1/namespaces/d/pods/p", false),
            (r#"[{"resources":["pods"],"resourceNames":["p"]}]"#, "/api/v1/namespaces/d/pods/p", true),
            (r#"[{"resources":["pods"]}]"#, "/healthz", false),
        ] {
            let rules = format!(r#"[{{"level":"Metadata","resources":{resources}}}]"#);
            check(&rules, "jane", "GET", line, if matches { Level::Metadata } else { Level::None });
        }
    }

    #[test]
    fn audit_rule_matches_namespaces_and_urls() {
        let rules = r#"[{"level":"Metadata","namespaces":["kube-system",""]}]"#;
        check(rules, "jane", "GET", "/api/v1/namespaces/kube-system/pods", Level::Metadata);
        check(rules, "jane", "GET", "/api/v1/nodes", Level::Metadata);
        check(rules, "jane", "GET", "/api/v1/namespaces/default/pods", Level::None);
        check(rules, "jane", "GET", "/healthz", Level::None);
        let rules = r#"[{"level":"Metadata","nonResourceURLs":["/healthz*","/version"]}]"#;
        check(rules, "jane", "GET", "/healthz/etcd", Level::Metadata);
        check(rules, "jane", "GET", "/version", Level::Metadata);
        check(rules, "jane", "GET", "/metrics", Level::None);
        check(rules, "jane", "GET", "/api/v1/nodes", Level::None);
    }

    #[test]
    fn from_value_rejects_invalid_policy() {
        let refusal = |text: &str| Policy::from_value(serde_json::from_str(text).unwrap()).unwrap_err().to_string();
        let head = r#""kind":"Policy","apiVersion":"audit.k8s.io/v1""#;
        assert_eq!(
            refusal(r#"{"kind":"Pod","apiVersion":"v1"}"#),
            "unknown group version field v1, Kind=Pod in policy"
        );
        assert_eq!(refusal(&format!("{{{head}}}")), "loaded illegal policy with 0 rules");
        assert!(refusal(&format!(r#"{{{head},"rules":[{{"level":"Everything"}}]}}"#)).contains("unknown variant"));
        let both = r#"[{"level":"None","nonResourceURLs":["*"],"namespaces":["a"]}]"#;
        assert!(refusal(&format!(r#"{{{head},"rules":{both}}}"#)).starts_with("rules[0].nonResourceURLs"));
    }
}

//! SelfSubjectRulesReview: what may I do? This is what `kubectl auth can-i --list` shows.

use api::wire::{null_is_default, object};
use serde::{Deserialize, Serialize};

use super::{AUTHORIZATION, Judge, ReviewError, read, write};
use crate::authorize::{Mode, aggregate};
use crate::rbac::PolicyRule;
use crate::user::{NODES, User};

/// The rules that apply to the one who asks, in the namespace of the review.
pub fn self_subject_rules_review(body: &[u8], judge: Judge<'_>, user: &User) -> Result<Vec<u8>, ReviewError> {
    let kind = "SelfSubjectRulesReview";
    let review: Review = read(kind, body)?;
    let namespace = review.spec.namespace.as_str();
    if namespace.is_empty() {
        return Err(ReviewError::BadRequest("no namespace on request".to_owned()));
    }
    let everything = [Rule::everything_in_groups(), Rule::everything_on_paths()];
    let mut rules: Vec<Rule<'_>> = Vec::new();
    let mut errors = Vec::new();
    let mut incomplete = false;
    if judge.authorizer.has(Mode::Node) && user.name.starts_with("system:node:") && user.is_in(NODES) {
        incomplete = true;
        errors.push("node authorizer does not support user rule resolution".to_owned());
    }
    if judge.authorizer.has(Mode::AlwaysAllow) {
        rules.extend(everything);
    }
    if judge.authorizer.has(Mode::Rbac) {
        rules.extend(judge.index.rules_for(user, namespace).into_iter().map(Rule::from));
        errors.extend(aggregate(&judge.index.unresolved_for(user, namespace)));
    }
    let (paths, resources): (Vec<_>, Vec<_>) =
        rules.into_iter().flat_map(Rule::split).partition(|rule| rule.is_of_paths());
    let status = RulesStatus {
        resource_rules: resources,
        non_resource_rules: paths,
        incomplete,
        evaluation_error: errors.join(", "),
    };
    Ok(write(AUTHORIZATION, kind, &Answer { metadata: Empty {}, spec: Empty {}, status }))
}

#[derive(Default, Deserialize)]
struct Review {
    #[serde(default, deserialize_with = "object")]
    spec: Spec,
}

#[derive(Default, Deserialize)]
struct Spec {
    #[serde(default, deserialize_with = "null_is_default")]
    namespace: String,
}

/// Kubernetes answers without the spec of the request.
#[derive(Serialize)]
struct Answer<'a> {
    metadata: Empty,
    spec: Empty,
    status: RulesStatus<'a>,
}

#[derive(Serialize)]
struct Empty {}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RulesStatus<'a> {
    resource_rules: Vec<Rule<'a>>,
    non_resource_rules: Vec<Rule<'a>>,
    incomplete: bool,
    #[serde(skip_serializing_if = "String::is_empty")]
    evaluation_error: String,
}

#[derive(Clone, Serialize)]
#[serde(rename_all = "camelCase")]
struct Rule<'a> {
    verbs: Vec<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    api_groups: Vec<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    resources: Vec<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    resource_names: Vec<&'a str>,
    #[serde(rename = "nonResourceURLs", skip_serializing_if = "Vec::is_empty")]
    non_resource_urls: Vec<&'a str>,
}

impl<'a> Rule<'a> {
    fn everything_in_groups() -> Self {
        let all = vec!["*"];
        let none = Vec::new();
        Self {
            verbs: all.clone(),
            api_groups: all.clone(),
            resources: all,
            resource_names: none.clone(),
            non_resource_urls: none,
        }
    }

    fn everything_on_paths() -> Self {
        let none = Vec::new();
        let (api_groups, resources, resource_names) = (none.clone(), none.clone(), none);
        Self { verbs: vec!["*"], api_groups, resources, resource_names, non_resource_urls: vec!["*"] }
    }

    fn is_of_paths(&self) -> bool {
        !self.non_resource_urls.is_empty()
    }

    /// A rule may be about both, and is then shown as two; one about neither is not shown.
    fn split(self) -> impl Iterator<Item = Self> + use<'a> {
        let none = Vec::new();
        let of_paths = Self {
            verbs: self.verbs.clone(),
            api_groups: none.clone(),
            resources: none.clone(),
            resource_names: none.clone(),
            non_resource_urls: self.non_resource_urls.clone(),
        };
        let of_resources = Self { non_resource_urls: none, ..self };
        let of_resources = Some(of_resources).filter(|rule| !rule.resources.is_empty());
        of_resources.into_iter().chain(Some(of_paths).filter(Self::is_of_paths))
    }
}

impl<'a> From<&'a PolicyRule> for Rule<'a> {
    fn from(rule: &'a PolicyRule) -> Self {
        let words = |list: &'a [String]| list.iter().map(String::as_str).collect();
        Self {
            verbs: words(&rule.verbs),
            api_groups: words(&rule.api_groups),
            resources: words(&rule.resources),
            resource_names: words(&rule.resource_names),
            non_resource_urls: words(&rule.non_resource_urls),
        }
    }
}

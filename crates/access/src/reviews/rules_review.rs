//! SelfSubjectRulesReview: the caller's permissions, which `kubectl auth can-i --list` shows.

use api::wire::{null_is_default, object};
use serde::{Deserialize, Serialize};

use super::{AUTHORIZATION_GROUP, AuthorizerSnapshot, ReviewError, decode_review, encode_review};
use crate::authorization::{AuthorizationMode, aggregate_messages};
use crate::rbac::PolicyRule;
use crate::user::{NODES_GROUP, User};

/// Returns the rules that apply to the calling user in the namespace of the review.
pub fn self_subject_rules_review(
    body: &[u8],
    authorizer: AuthorizerSnapshot<'_>,
    user: &User,
) -> Result<Vec<u8>, ReviewError> {
    let kind = "SelfSubjectRulesReview";
    let review: RulesReview = decode_review(kind, body)?;
    let namespace = review.spec.namespace.as_str();
    if namespace.is_empty() {
        return Err(ReviewError::BadRequest("no namespace on request".to_owned()));
    }
    let everything = [ReviewRule::all_resources(), ReviewRule::all_paths()];
    let mut rules: Vec<ReviewRule<'_>> = Vec::new();
    let mut errors = Vec::new();
    let mut incomplete = false;
    if authorizer.authorizer.has_mode(AuthorizationMode::Node)
        && user.name.starts_with("system:node:")
        && user.is_in_group(NODES_GROUP)
    {
        incomplete = true;
        errors.push("node authorizer does not support user rule resolution".to_owned());
    }
    if authorizer.authorizer.has_mode(AuthorizationMode::AlwaysAllow) {
        rules.extend(everything);
    }
    if authorizer.authorizer.has_mode(AuthorizationMode::Rbac) {
        rules.extend(authorizer.index.rules_for(user, namespace).into_iter().map(ReviewRule::from));
        errors.extend(aggregate_messages(&authorizer.index.unresolved_roles_for(user, namespace)));
    }
    let (paths, resources): (Vec<_>, Vec<_>) =
        rules.into_iter().flat_map(ReviewRule::split_resources_and_paths).partition(|rule| rule.is_non_resource());
    let status = RulesReviewStatus {
        resource_rules: resources,
        non_resource_rules: paths,
        incomplete,
        evaluation_error: errors.join(", "),
    };
    Ok(encode_review(
        AUTHORIZATION_GROUP,
        kind,
        &RulesReviewResponse { metadata: EmptyObject {}, spec: EmptyObject {}, status },
    ))
}

#[derive(Default, Deserialize)]
struct RulesReview {
    #[serde(default, deserialize_with = "object")]
    spec: RulesReviewSpec,
}

#[derive(Default, Deserialize)]
struct RulesReviewSpec {
    #[serde(default, deserialize_with = "null_is_default")]
    namespace: String,
}

/// The response's spec is empty, as in Kubernetes.
#[derive(Serialize)]
struct RulesReviewResponse<'a> {
    metadata: EmptyObject,
    spec: EmptyObject,
    status: RulesReviewStatus<'a>,
}

#[derive(Serialize)]
struct EmptyObject {}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RulesReviewStatus<'a> {
    resource_rules: Vec<ReviewRule<'a>>,
    non_resource_rules: Vec<ReviewRule<'a>>,
    incomplete: bool,
    #[serde(skip_serializing_if = "String::is_empty")]
    evaluation_error: String,
}

#[derive(Clone, Serialize)]
#[serde(rename_all = "camelCase")]
struct ReviewRule<'a> {
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

impl<'a> ReviewRule<'a> {
    fn all_resources() -> Self {
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

    fn all_paths() -> Self {
        let none = Vec::new();
        let (api_groups, resources, resource_names) = (none.clone(), none.clone(), none);
        Self { verbs: vec!["*"], api_groups, resources, resource_names, non_resource_urls: vec!["*"] }
    }

    fn is_non_resource(&self) -> bool {
        !self.non_resource_urls.is_empty()
    }

    /// Splits a rule that lists both resources and paths into two; drops a rule that lists neither.
    fn split_resources_and_paths(self) -> impl Iterator<Item = Self> + use<'a> {
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
        of_resources.into_iter().chain(Some(of_paths).filter(Self::is_non_resource))
    }
}

impl<'a> From<&'a PolicyRule> for ReviewRule<'a> {
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

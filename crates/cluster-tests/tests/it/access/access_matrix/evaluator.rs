//! An RBAC evaluator after the Kubernetes documentation, independent of the server's code.

use serde_json::Value;

/// Limit for nested aggregation; Kubernetes' own roles nest two levels.
const DEPTH_MAX: usize = 5;

/// All roles and bindings of a cluster.
pub(super) struct RbacObjects {
    pub(super) cluster_roles: Vec<Value>,
    pub(super) roles: Vec<Value>,
    pub(super) cluster_role_bindings: Vec<Value>,
    pub(super) role_bindings: Vec<Value>,
}

/// Authorization attributes of a request.
#[derive(Clone, Debug)]
pub(super) struct RequestAttributes {
    pub(super) verb: &'static str,
    pub(super) group: String,
    pub(super) resource: String,
    pub(super) subresource: String,
    pub(super) namespace: String,
    pub(super) name: String,
}

impl RbacObjects {
    /// True if a rule bound to the user or to `system:authenticated` allows the request.
    pub(super) fn allows(&self, user: &str, request: &RequestAttributes) -> bool {
        let is_bound =
            |binding: &&Value| list_items(&binding["subjects"]).any(|subject| subject_matches(subject, user));
        let everywhere = self.cluster_role_bindings.iter().filter(is_bound);
        let inside = self
            .role_bindings
            .iter()
            .filter(|binding| !request.namespace.is_empty() && binding["metadata"]["namespace"] == *request.namespace)
            .filter(is_bound);
        let rules = everywhere.chain(inside).flat_map(|binding| self.bound_rules(binding));
        rules.into_iter().any(|rule| rule_covers(rule, request))
    }

    fn bound_rules(&self, binding: &Value) -> Vec<&Value> {
        let (kind, name) = (&binding["roleRef"]["kind"], &binding["roleRef"]["name"]);
        let of_kind = if kind == "ClusterRole" { &self.cluster_roles } else { &self.roles };
        let namespace = &binding["metadata"]["namespace"];
        let role = of_kind.iter().find(|role| {
            role["metadata"]["name"] == *name && (kind == "ClusterRole" || role["metadata"]["namespace"] == *namespace)
        });
        role.map(|role| self.aggregated_rules(role, DEPTH_MAX)).unwrap_or_default()
    }

    /// Rules of a role: its own, or those of the roles that its aggregation rule selects.
    fn aggregated_rules<'a>(&'a self, role: &'a Value, depth: usize) -> Vec<&'a Value> {
        let selectors = &role["aggregationRule"]["clusterRoleSelectors"];
        if selectors.is_null() || depth == 0 {
            return list_items(&role["rules"]).collect();
        }
        let is_selected = |part: &&Value| {
            let has = |wanted: &Value| {
                let mut labels = wanted["matchLabels"].as_object().into_iter().flatten();
                labels.all(|(key, value)| part["metadata"]["labels"][key] == *value)
            };
            part["metadata"]["name"] != role["metadata"]["name"] && list_items(selectors).any(has)
        };
        let parts = self.cluster_roles.iter().filter(is_selected);
        parts.flat_map(|part| self.aggregated_rules(part, depth - 1)).collect()
    }
}

fn list_items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

fn subject_matches(subject: &Value, user: &str) -> bool {
    match subject["kind"].as_str() {
        Some("User") => subject["name"] == user,
        Some("Group") => subject["name"] == "system:authenticated",
        _ => false,
    }
}

fn rule_covers(rule: &Value, request: &RequestAttributes) -> bool {
    let has = |key: &str, wanted: &str| list_items(&rule[key]).any(|entry| entry == wanted);
    let RequestAttributes { verb, group, resource, subresource, name, .. } = request;
    let is_resource = has("resources", "*")
        || match subresource.as_str() {
            "" => has("resources", resource),
            sub => has("resources", &format!("{resource}/{sub}")) || has("resources", &format!("*/{sub}")),
        };
    let is_name = list_items(&rule["resourceNames"]).next().is_none() || has("resourceNames", name);
    (has("verbs", "*") || has("verbs", verb))
        && (has("apiGroups", "*") || has("apiGroups", group))
        && is_resource
        && is_name
}

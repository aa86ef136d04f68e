//! What is valid in admission policies and their bindings.

use std::collections::HashSet;

use api::validation::{validate_dns1035_label, validate_dns1123_subdomain, validate_label_key};
use k8s_cel::{Environment, Type};

use super::matching::{FAILURE_POLICIES, REINVOCATION_POLICIES, check_match_conditions, check_match_resources};
use crate::expressions::{AdmissionVariables, DefinedVariables, admission_environment};
use crate::validation::Field;
use crate::validation::conditions::check_conditions;

const REASONS: [&str; 3] = ["Forbidden", "Invalid", "RequestEntityTooLarge"];
const ACTIONS: [&str; 3] = ["Audit", "Deny", "Warn"];
const DENY_AND_WARN: &str = "must not contain both Deny and Warn (repeating the same validation failure information in the API \
     response and headers serves no purpose)";
const MUTATED_OPERATIONS: [&str; 4] = ["*", "CONNECT", "CREATE", "UPDATE"];
const ANNOTATIONS_MAX: usize = 20;
const VALUE_EXPRESSION_BYTES_MAX: usize = 5 * 1024;
/// Words that name no variable.
const RESERVED_WORDS: [&str; 21] = [
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

pub(super) fn check_validating_policy(policy: Field<'_>) {
    let spec = policy.at("spec");
    check_subject(spec);
    let scope = PolicyScope::of(spec, spec.at("variables").len() > 0);
    let (validations, annotations) = (spec.at("validations"), spec.at("auditAnnotations"));
    if validations.len() + annotations.len() == 0 {
        for list in [validations, annotations] {
            list.required("validations or auditAnnotations must contain at least one item");
        }
        return;
    }
    validations.each(|validation| check_validation(validation, &scope));
    if annotations.len() > ANNOTATIONS_MAX {
        annotations.invalid(format!("must not have more than {ANNOTATIONS_MAX} auditAnnotations"));
    }
    let mut keys = HashSet::new();
    for annotation in annotations.items() {
        check_audit_annotation(annotation, policy.path("metadata.name").text(), &scope);
        if !keys.insert(annotation.at("key").text()) {
            annotation.at("key").duplicate();
        }
    }
}

pub(super) fn check_mutating_policy(policy: Field<'_>) {
    let spec = policy.at("spec");
    check_subject(spec);
    check_mutated_operations(spec.at("matchConstraints"));
    let scope = PolicyScope::of(spec, true);
    let mutations = spec.at("mutations");
    if mutations.len() == 0 {
        mutations.required("mutations must contain at least one item");
    }
    mutations.each(|mutation| check_mutation(mutation, &scope));
    spec.at("reinvocationPolicy").require_one_of(&REINVOCATION_POLICIES);
}

/// Deleted objects cannot be mutated. Kubernetes' paths have no indices here.
fn check_mutated_operations(constraints: Field<'_>) {
    let operations = constraints.at("resourceRules").at("operations");
    for rule in constraints.at("resourceRules").items() {
        for operation in rule.at("operations").items() {
            operation.reported_at(operations).one_of(&MUTATED_OPERATIONS);
        }
    }
}

/// What every policy says about the requests that it applies to.
fn check_subject(spec: Field<'_>) {
    spec.at("failurePolicy").one_of(&FAILURE_POLICIES);
    let params = spec.at("paramKind");
    if params.is_present() {
        check_param_kind(params);
    }
    let constraints = spec.at("matchConstraints");
    if constraints.is_present() {
        check_match_resources(constraints);
        if constraints.at("resourceRules").len() == 0 {
            constraints.at("resourceRules").required("");
        }
    } else {
        constraints.required("");
    }
}

fn check_param_kind(params: Field<'_>) {
    let (version, kind) = (params.at("apiVersion"), params.at("kind"));
    let check = |value: &str, faults: Vec<std::borrow::Cow<'static, str>>| {
        if !faults.is_empty() {
            version.invalid_as(value, faults.join(","));
        }
    };
    if version.require_text() {
        match version.text().split_once('/') {
            Some((_, rest)) if rest.contains('/') => {
                version.invalid_text(format!("unexpected GroupVersion string: {}", version.text()));
            }
            parts => {
                let (group, name) = parts.unwrap_or(("", version.text()));
                if !group.is_empty() {
                    check(group, validate_dns1123_subdomain(group));
                }
                if name.is_empty() {
                    version.invalid_text("version must be specified");
                } else {
                    check(name, validate_dns1035_label(name));
                }
            }
        }
    }
    if kind.require_text() {
        let faults = validate_dns1035_label(&kind.text().to_lowercase());
        if !faults.is_empty() {
            let faults = faults.join(",");
            kind.invalid_text(format!("may have mixed case, but should otherwise match: {faults}"));
        }
    }
}

/// What expressions of a policy can refer to.
struct PolicyScope {
    variables: DefinedVariables,
    has_variables: bool,
    has_params: bool,
}

impl PolicyScope {
    /// Checks conditions and variables of a policy, in this order.
    fn of(spec: Field<'_>, has_variables: bool) -> Self {
        let has_params = spec.at("paramKind").is_present();
        check_match_conditions(spec.at("matchConditions"), has_params);
        let mut scope = Self { variables: DefinedVariables::default(), has_variables, has_params };
        for variable in spec.at("variables").items() {
            let (name, expression) = (variable.at("name"), variable.at("expression"));
            if name.text().trim().is_empty() {
                name.required("name is not specified");
            } else if !is_identifier(name.text()) {
                name.invalid_text("must be a valid CEL identifier");
            }
            if expression.text().trim().is_empty() {
                expression.required("expression is not specified");
                continue;
            }
            let program = expression.compiled(expression.text(), &scope.environment(expression, true));
            scope.variables.define(name.text(), program.as_ref().map(|program| program.output_type()));
        }
        scope
    }

    fn environment(&self, field: Field<'_>, authorizer: bool) -> Environment {
        let environment = admission_environment(field, AdmissionVariables { params: self.has_params, authorizer });
        if self.has_variables { self.variables.declare_for(field.text(), environment) } else { environment }
    }
}

fn is_identifier(name: &str) -> bool {
    let is_word = |byte: u8| byte == b'_' || byte.is_ascii_alphanumeric();
    name.bytes().all(is_word)
        && !name.starts_with(|first: char| first.is_ascii_digit())
        && !RESERVED_WORDS.contains(&name)
}

fn check_validation(validation: Field<'_>, scope: &PolicyScope) {
    let (expression, of_message) = (validation.at("expression"), validation.at("messageExpression"));
    if expression.text().trim().is_empty() {
        expression.required("expression is not specified");
    } else {
        expression.expression_of(expression.text(), &scope.environment(expression, true), &[Type::Bool]);
    }
    if !of_message.text().is_empty() && of_message.text().trim().is_empty() {
        of_message.invalid_text("must be non-empty if specified");
    } else if !of_message.text().is_empty() {
        of_message.expression_of(of_message.text(), &scope.environment(of_message, false), &[Type::String]);
    }
    let message = validation.at("message");
    let trimmed = message.text().trim();
    if !message.text().is_empty() && trimmed.is_empty() {
        message.invalid_text("must be non-empty if specified");
    } else if trimmed.contains(['\n', '\r']) {
        message.invalid_text("must not contain line breaks");
    }
    validation.at("reason").one_of_if_present(&REASONS);
}

fn check_audit_annotation(annotation: Field<'_>, policy: &str, scope: &PolicyScope) {
    let (key, value) = (annotation.at("key"), annotation.at("valueExpression"));
    let name = format!("{policy}/{}", key.text());
    validate_label_key(&name).into_iter().for_each(|fault| key.invalid_as(name.clone(), fault));
    let text = value.text().trim();
    if text.is_empty() {
        value.required("valueExpression is not specified");
    } else if text.len() > VALUE_EXPRESSION_BYTES_MAX {
        value.required(format!("must not exceed {VALUE_EXPRESSION_BYTES_MAX} bytes in length"));
    } else {
        value.expression_of(text, &scope.environment(value, true), &[Type::String, Type::Null]);
    }
}

fn check_mutation(mutation: Field<'_>, scope: &PolicyScope) {
    let (kind, apply, patch) = (mutation.at("patchType"), mutation.at("applyConfiguration"), mutation.at("jsonPatch"));
    let (used, other, name) = match kind.text() {
        "ApplyConfiguration" => (apply, patch, "jsonPatch"),
        "JSONPatch" => (patch, apply, "applyConfiguration"),
        _ => return kind.require_one_of(&["ApplyConfiguration", "JSONPatch"]),
    };
    if used.is_present() {
        let expression = used.at("expression");
        let text = expression.text().trim();
        if text.is_empty() {
            expression.required("");
        } else {
            check_mutation_expression(expression, text, kind.text(), scope);
        }
    } else {
        used.required(format!("must be specified when patchType is {}", kind.text()));
    }
    if other.is_present() {
        let detail = format!("must not be specified when patchType is {}", kind.text());
        other.invalid_as(format!("{{{name}}}"), detail);
    }
}

fn check_mutation_expression(expression: Field<'_>, text: &str, patch: &str, scope: &PolicyScope) {
    let environment = scope.environment(expression, true).patch_types();
    let wanted = if patch == "JSONPatch" { "list(JSONPatch)" } else { "Object" };
    if let Some(program) = expression.compiled(text, &environment) {
        let found = program.output_type().to_string();
        if found != wanted {
            expression.invalid_as(text, format!("must evaluate to {wanted} but got {found}"));
        }
    }
}

pub(super) fn check_validating_binding(binding: Field<'_>) {
    let spec = binding.at("spec");
    check_binding(spec);
    let actions = spec.at("validationActions");
    let mut seen = HashSet::new();
    for action in actions.items() {
        action.one_of(&ACTIONS);
        if !seen.insert(action.text()) {
            action.duplicate();
        }
    }
    if seen.contains("Deny") && seen.contains("Warn") {
        actions.invalid(DENY_AND_WARN);
    }
    if actions.len() == 0 {
        actions.required("at least one validation action is required");
    }
}

pub(super) fn check_mutating_binding(binding: Field<'_>) {
    check_binding(binding.at("spec"));
    check_mutated_operations(binding.path("spec.matchResources"));
}

fn check_binding(spec: Field<'_>) {
    spec.at("policyName").require_object_name();
    if spec.at("paramRef").is_present() {
        check_param_ref(spec.at("paramRef"));
    }
    if spec.at("matchResources").is_present() {
        check_match_resources(spec.at("matchResources"));
    }
}

fn check_param_ref(reference: Field<'_>) {
    let (name, selector) = (reference.at("name"), reference.at("selector"));
    let has_both = !name.text().is_empty() && selector.is_present();
    if !name.text().is_empty() {
        name.path_segment();
    }
    if has_both {
        name.forbidden("name and selector are mutually exclusive");
    }
    selector.label_selector();
    if has_both {
        selector.forbidden("name and selector are mutually exclusive");
    }
    if name.text().is_empty() && !selector.is_present() {
        reference.required("one of name or selector must be specified");
    }
    reference.at("parameterNotFoundAction").require_one_of(&["Deny", "Allow"]);
}

pub(super) fn check_policy_status(policy: Field<'_>, _: Field<'_>) {
    let status = policy.at("status");
    status.path("typeChecking.expressionWarnings").each(|warning| {
        warning.at("warning").require_text();
        if warning.at("fieldRef").text().trim().is_empty() {
            warning.at("fieldRef").required("");
        }
    });
    check_conditions(status.at("conditions"));
}

//! Labels, annotations, label selectors and node selectors.

use api::validation::{validate_label_key, validate_label_value};

use super::Field;

/// Whether the values of a selector's requirements must be valid label values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SelectorValues {
    Checked,
    Unchecked,
}

const VALUES_REQUIRED: &str = "must be specified when `operator` is 'In' or 'NotIn'";
const VALUES_FORBIDDEN: &str = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
const NO_OPERATOR: &str = "not a valid selector operator";
/// Limit for the total bytes of annotation keys and values.
const ANNOTATIONS_LENGTH_MAX: usize = 256 * 1024;

impl Field<'_> {
    /// A map of labels: keys and values.
    pub(crate) fn labels(self) {
        for (key, value) in self.entries() {
            validate_label_key(key).into_iter().for_each(|error| self.invalid_as(key, error));
            validate_label_value(value.text()).into_iter().for_each(|error| self.invalid_as(value.text(), error));
        }
    }

    pub(crate) fn annotations(self) {
        let mut length = 0;
        for (key, value) in self.entries() {
            validate_label_key(&key.to_lowercase()).into_iter().for_each(|error| self.invalid_as(key, error));
            length += key.len() + value.text().len();
        }
        if length > ANNOTATIONS_LENGTH_MAX {
            self.too_long(ANNOTATIONS_LENGTH_MAX);
        }
    }

    pub(crate) fn label_value(self) -> bool {
        self.check_text(validate_label_value(self.text()))
    }

    pub(crate) fn label_selector(self) {
        self.label_selector_with(SelectorValues::Checked);
    }

    pub(crate) fn label_selector_with(self, values: SelectorValues) {
        self.at("matchLabels").labels();
        self.at("matchExpressions").each(|requirement| requirement.label_requirement(values));
    }

    fn label_requirement(self, checked: SelectorValues) {
        let values = self.at("values");
        match self.at("operator").text() {
            "In" | "NotIn" if values.len() == 0 => values.required(VALUES_REQUIRED),
            "Exists" | "DoesNotExist" if values.len() > 0 => values.forbidden(VALUES_FORBIDDEN),
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            _ => self.at("operator").invalid_text(NO_OPERATOR),
        }
        self.at("key").qualified_name();
        if checked == SelectorValues::Checked {
            values.each(|value| {
                value.label_value();
            });
        }
    }

    /// A label selector that selects something. True if it has a term.
    pub(crate) fn has_selector_terms(self) -> bool {
        self.at("matchLabels").len() + self.at("matchExpressions").len() > 0
    }

    /// The terms of a node selector; at least one.
    pub(crate) fn node_selector(self, values: SelectorValues) {
        let terms = self.at("nodeSelectorTerms");
        if terms.len() == 0 {
            return terms.required("must have at least one node selector term");
        }
        terms.each(|term| term.node_selector_term(values));
    }

    pub(crate) fn node_selector_term(self, checked: SelectorValues) {
        self.at("matchExpressions").each(|requirement| {
            let values = requirement.at("values");
            match requirement.at("operator").text() {
                "In" | "NotIn" if values.len() == 0 => values.required(VALUES_REQUIRED),
                "Exists" | "DoesNotExist" if values.len() > 0 => values.forbidden(VALUES_FORBIDDEN),
                "Gt" | "Lt" if values.len() != 1 => {
                    values.required("must be specified single value when `operator` is 'Lt' or 'Gt'");
                }
                "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => {}
                _ => requirement.at("operator").invalid_text(NO_OPERATOR),
            }
            requirement.at("key").qualified_name();
            if checked == SelectorValues::Checked {
                values.each(|value| {
                    value.label_value();
                });
            }
        });
        self.at("matchFields").each(|requirement| {
            let (operator, values) = (requirement.at("operator"), requirement.at("values"));
            match operator.text() {
                "In" | "NotIn" if values.len() != 1 => {
                    values
                        .required("must be only one value when `operator` is 'In' or 'NotIn' for node field selector");
                }
                "In" | "NotIn" => {}
                _ => operator.invalid_text(NO_OPERATOR),
            }
            if requirement.at("key").text() == "metadata.name" {
                values.each(|value| {
                    value.dns_subdomain();
                });
            } else {
                requirement.at("key").invalid_text("not a valid field selector key");
            }
        });
    }
}

/// True if a label selector matches labels. Both are fields of valid objects.
pub(crate) fn selector_matches(selector: Field<'_>, labels: Field<'_>) -> bool {
    let label = |key: &str| labels.object().and_then(|labels| labels.get(key)).and_then(serde_json::Value::as_str);
    let expressions = selector.at("matchExpressions").list().iter().all(|term| {
        let text = |name: &str| term.get(name).and_then(serde_json::Value::as_str).unwrap_or_default();
        let values = term.get("values").and_then(serde_json::Value::as_array);
        let found = label(text("key"));
        let is_among =
            found.is_some_and(|found| values.is_some_and(|values| values.iter().any(|value| value == found)));
        match text("operator") {
            "In" => is_among,
            "NotIn" => !is_among,
            "Exists" => found.is_some(),
            "DoesNotExist" => found.is_none(),
            // Another rule's concern.
            _ => true,
        }
    });
    let wanted = selector.at("matchLabels").object().into_iter().flatten();
    expressions && wanted.into_iter().all(|(key, value)| label(key) == value.as_str())
}

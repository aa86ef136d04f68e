//! Quantities, and lists of resources with their amounts.

use std::cmp::Ordering;

use api::validation::validate_label_key;
use schema::{compare_quantities, quantity_in_billionths};
use serde_json::Value;

use super::Field;
use super::numbers::{NOT_NEGATIVE, POSITIVE};

/// Amounts that every kind knows, without a prefix.
const STANDARD_RESOURCES: [&str; 20] = [
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "storage",
    "requests.storage",
    "services.nodeports",
    "services.loadbalancers",
];
const CONTAINER_RESOURCES: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];
const POD_RESOURCES: [&str; 3] = ["cpu", "hugepages-", "memory"];
/// Counted in whole objects.
const INTEGER_RESOURCES: [&str; 9] = [
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "services.nodeports",
    "services.loadbalancers",
];
const HUGE_PAGES: &str = "hugepages-";
const BILLION: i128 = 1_000_000_000;

/// Which resources a list may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResourceScope {
    Any,
    Container,
    Pod,
}

impl<'a> Field<'a> {
    /// Compares with 0; an absent quantity is 0.
    pub(crate) fn quantity_sign(self) -> Ordering {
        self.value().and_then(quantity_in_billionths).unwrap_or_default().cmp(&0)
    }

    pub(crate) fn compare_quantity(self, other: Field<'_>) -> Ordering {
        let zero = Value::from(0);
        compare_quantities(self.value().unwrap_or(&zero), other.value().unwrap_or(&zero)).unwrap_or(Ordering::Equal)
    }

    /// The canonical text of a quantity.
    pub(crate) fn quantity_text(self) -> String {
        match self.value() {
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
            None => "0".to_owned(),
        }
    }

    pub(crate) fn quantity_not_negative(self) {
        if self.quantity_sign() == Ordering::Less {
            self.invalid_as(self.quantity_text(), NOT_NEGATIVE);
        }
    }

    /// Rounded to a whole number, not negative; the message shows that number.
    pub(crate) fn whole_quantity_not_negative(self) {
        let amount = self.value().and_then(quantity_in_billionths).unwrap_or_default();
        // Kubernetes rounds away from zero.
        let whole = if amount < 0 { amount.saturating_sub(BILLION - 1) / BILLION } else { amount / BILLION };
        if whole < 0 {
            self.invalid_as(i64::try_from(whole).unwrap_or(i64::MIN), "must be a valid resource quantity");
        }
    }

    pub(crate) fn quantity_positive(self) {
        if self.quantity_sign() != Ordering::Greater {
            self.invalid_as(self.quantity_text(), POSITIVE);
        }
    }

    /// The amount of a resource: not negative, and whole where the resource is counted.
    pub(crate) fn resource_amount(self, resource: &str) {
        self.quantity_not_negative();
        let amount = self.value().and_then(quantity_in_billionths).unwrap_or_default();
        // Kubernetes looks at thousandths, rounded up. What is cut off at the limit is a power of ten or more: whole.
        let is_whole = amount.checked_add(999_999).is_none_or(|amount| amount.div_euclid(1_000_000) % 1000 == 0);
        if is_integer_resource(resource) && !is_whole {
            self.invalid_as(self.quantity_text(), "must be an integer");
        }
    }

    /// The name of a resource, reported at its key.
    pub(crate) fn resource_name(self, resource: &'a str, scope: ResourceScope) {
        let errors = self.error_count();
        validate_label_key(resource).into_iter().for_each(|error| self.invalid_as(resource, error));
        let is_prefixed = resource.contains('/');
        if self.error_count() == errors && !is_prefixed && !is_standard_resource(resource) {
            self.invalid_as(resource, "must be a standard resource type or fully qualified");
        }
        match scope {
            ResourceScope::Any => {}
            ResourceScope::Pod if self.error_count() > errors => {}
            ResourceScope::Pod => {
                let is_supported = ["cpu", "memory"].contains(&resource) || resource.starts_with(HUGE_PAGES);
                if !is_supported {
                    self.add_error(api::FieldError::not_supported(self.path_text(), resource, &POD_RESOURCES));
                }
            }
            ResourceScope::Container if !is_prefixed => {
                if !CONTAINER_RESOURCES.contains(&resource) && !resource.starts_with(HUGE_PAGES) {
                    self.invalid_as(resource, "must be a standard resource for containers");
                }
            }
            ResourceScope::Container if !is_native_resource(resource) && !is_extended_resource(resource) => {
                self.invalid_as(resource, "doesn't follow extended resource name standard");
            }
            ResourceScope::Container => {}
        }
    }

    /// Requests and limits of a container or a pod. `claims` are the names of the pod's resource claims.
    pub(crate) fn resource_requirements(self, scope: ResourceScope, claims: &[&str]) {
        let (limits, requests) = (self.at("limits"), self.at("requests"));
        for (name, amount) in limits.entries() {
            amount.resource_entry(name, scope);
        }
        for (name, amount) in requests.entries() {
            amount.resource_entry(name, scope);
            let limit = limits.key(name);
            let differs = if limit.is_present() { amount.compare_quantity(limit) } else { Ordering::Equal };
            let bound = match differs {
                Ordering::Greater | Ordering::Less if !allows_overcommit(name) => "equal to",
                Ordering::Greater => "less than or equal to",
                Ordering::Less | Ordering::Equal => "",
            };
            if !bound.is_empty() {
                let detail = format!("must be {bound} {name} limit of {}", limit.quantity_text());
                requests.invalid_as(amount.quantity_text(), detail);
            } else if !limit.is_present() && !allows_overcommit(name) {
                limits.required("Limit must be set for non overcommitable resources");
            }
        }
        let has =
            |wanted: &dyn Fn(&str) -> bool| limits.entries().chain(requests.entries()).any(|(name, _)| wanted(name));
        if has(&|name| name.starts_with(HUGE_PAGES)) && !has(&|name| name == "cpu" || name == "memory") {
            self.forbidden("HugePages require cpu or memory");
        }
        self.at("claims").claim_names(claims);
    }

    /// One resource and its amount.
    pub(crate) fn resource_entry(self, name: &'a str, scope: ResourceScope) {
        self.resource_name(name, scope);
        self.resource_amount(name);
        if name.starts_with(HUGE_PAGES) && !self.is_multiple_of_page(name) {
            let text = self.quantity_text();
            self.invalid_as(text.clone(), format!("{text} is not positive integer multiple of {name}"));
        }
    }

    fn is_multiple_of_page(self, name: &str) -> bool {
        let size = name.strip_prefix(HUGE_PAGES).and_then(|size| quantity_in_billionths(&Value::from(size)));
        let amount = self.value().and_then(quantity_in_billionths).unwrap_or_default();
        size.is_some_and(|size| size > 0 && size % BILLION == 0 && (amount / BILLION) % (size / BILLION) == 0)
    }

    /// The resource claims of a container, by their names in the pod.
    fn claim_names(self, claims: &[&str]) {
        let mut seen: Vec<String> = Vec::new();
        for claim in self.items() {
            let (name, request) = (claim.at("name").text(), claim.at("request"));
            if name.is_empty() {
                claim.required("");
                continue;
            }
            if seen.iter().any(|known| known == name) {
                claim.duplicate_of(name);
            } else {
                let key =
                    if request.text().is_empty() { name.to_owned() } else { format!("{name}/{}", request.text()) };
                if !request.text().is_empty() {
                    request.dns_label();
                }
                let prefix = format!("{name}/");
                if seen.contains(&key) {
                    claim.duplicate_of(key.clone());
                } else if request.text().is_empty() && seen.iter().any(|known| known.starts_with(&prefix)) {
                    claim.duplicate_of(name);
                }
                seen.push(key);
            }
            if !claims.contains(&name) {
                let mut known = claims.to_vec();
                known.sort_unstable();
                known.dedup();
                let known =
                    if known.is_empty() { " which is empty".to_owned() } else { format!(": {}", known.join(", ")) };
                let detail = format!("must be one of the names in pod.spec.resourceClaims{known}");
                claim.add_error(api::FieldError::not_found(claim.path_text(), name).with_detail(detail));
            }
        }
    }
}

pub(crate) fn is_standard_resource(resource: &str) -> bool {
    STANDARD_RESOURCES.contains(&resource) || is_quota_huge_page(resource)
}

pub(crate) fn is_quota_huge_page(resource: &str) -> bool {
    resource.starts_with(HUGE_PAGES) || resource.starts_with("requests.hugepages-")
}

fn is_integer_resource(resource: &str) -> bool {
    INTEGER_RESOURCES.contains(&resource) || is_extended_resource(resource)
}

fn is_native_resource(resource: &str) -> bool {
    !resource.contains('/') || resource.contains("kubernetes.io/")
}

fn is_extended_resource(resource: &str) -> bool {
    !is_native_resource(resource)
        && !resource.starts_with("requests.")
        && validate_label_key(&format!("requests.{resource}")).is_empty()
}

/// Whether limits of a resource may exceed its requests.
fn allows_overcommit(resource: &str) -> bool {
    is_native_resource(resource) && !resource.starts_with(HUGE_PAGES)
}

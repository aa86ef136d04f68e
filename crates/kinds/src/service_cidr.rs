//! Service CIDRs and the IP addresses taken from them.

use api::FieldError;
use object::KindRules;
use object::rules::{NameRule, StatusSubresource};
use object::table::Column;
use object::table::cells::{AGE, NAME, string_column};
use object::unstructured;
use object::unstructured::texts;

use crate::fields::list_items;
use crate::release::Release::{self, *};
use crate::reset_fields;
use crate::strategy::{KindStrategy, LENIENT_RULES, RULES};
use crate::update_validation::immutable_fields::fixed_field;
use crate::update_validation::{FIELD_IS_IMMUTABLE, ObjectUpdate};
use crate::validation::addresses::parse_cidr;
use crate::validation::{Field, Report, go_object};

pub(crate) static SERVICE_CIDR_STRATEGY: KindStrategy = KindStrategy {
    reset_fields: reset_fields::SERVICE_CIDR,
    rules: KindRules { status: StatusSubresource::StatusOnly, ..LENIENT_RULES },
    validate_create: |range| check_ranges(range.path("spec.cidrs")),
    validate_update: |range, _| check_update(range),
    immutable_fields: &[fixed_field("spec.cidrs").until(R33)],
    columns: SERVICE_CIDRS,
    ..KindStrategy::DEFAULT
};

pub(crate) static IP_ADDRESS_STRATEGY: KindStrategy = KindStrategy {
    rules: KindRules { name_rule: NameRule::CanonicalIp, ..RULES },
    validate: |address| check_parent(address.path("spec.parentRef")),
    immutable_fields: &[fixed_field("spec.parentRef")],
    columns: ADDRESSES,
    ..KindStrategy::DEFAULT
};

const ONE_OF_EACH_FAMILY: &str =
    "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64";

/// One range, or one of each family.
fn check_ranges(ranges: Field<'_>) {
    if ranges.len() == 0 {
        return ranges.required("at least one CIDR required");
    }
    if ranges.len() > 2 {
        let shown = go_object(&[("CIDRs", ranges.value().cloned().unwrap_or_default())]);
        return ranges.invalid_showing(shown, "may only hold up to 2 values");
    }
    ranges.each(Field::canonical_cidr);
    let parsed: Vec<_> = ranges.texts().filter_map(parse_cidr).collect();
    if let [(first, _), (second, _)] = parsed[..]
        && first.is_ipv4() == second.is_ipv4()
    {
        ranges.invalid(ONE_OF_EACH_FAMILY);
    }
}

/// The object that an address belongs to.
fn check_parent(parent: Field<'_>) {
    if !parent.is_present() {
        return parent.required("");
    }
    if !parent.at("group").text().is_empty() {
        parent.at("group").dns_subdomain();
    }
    for name in ["resource", "name"].map(|name| parent.at(name)) {
        if name.require_text() {
            name.path_segment();
        }
    }
    if !parent.at("namespace").text().is_empty() {
        parent.at("namespace").path_segment();
    }
}

/// From 1.33 on a range of a second family may be added.
fn check_update(update: ObjectUpdate<'_>) -> Vec<FieldError> {
    let path = "spec.cidrs";
    if update.gates.release() < Release::R33 {
        return Vec::new();
    }
    let [old, new] = [update.old_value(path), update.new_value(path)].map(list_items);
    if old.len() != new.len() && (old.len(), new.len()) != (1, 2) {
        return vec![FieldError::invalid(path, update.displayed_value(path), FIELD_IS_IMMUTABLE)];
    }
    let changed = old.iter().zip(new).enumerate().filter(|(_, (old, new))| old != new);
    let immutable = |(at, (_, new)): (usize, (_, &serde_json::Value))| {
        FieldError::invalid(format!("{path}[{at}]"), new.clone(), FIELD_IS_IMMUTABLE)
    };
    let mut errors: Vec<_> = changed.map(immutable).collect();
    if new.len() > old.len() {
        let report = Report::new(update.gates);
        check_ranges(report.root(update.new).path(path));
        errors.extend(report.take_errors());
    }
    errors
}

const SERVICE_CIDRS: &[Column] = &[
    NAME,
    string_column("CIDRs", "The ranges of addresses.", |range, _| {
        texts(range, &["spec", "cidrs"]).collect::<Vec<_>>().join(",").into()
    }),
    AGE,
];

const ADDRESSES: &[Column] = &[
    NAME,
    string_column("ParentRef", "What uses it.", |address, _| {
        let Some(parent) = unstructured::nested_object(address, &["spec", "parentRef"]) else { return "<none>".into() };
        let field = |name: &str| unstructured::text(parent, &[name]);
        let resource = api::GroupResource { group: field("group"), resource: field("resource") };
        let resource = resource.to_string().to_lowercase();
        match field("namespace") {
            "" => format!("{resource}/{}", field("name")).into(),
            namespace => format!("{resource}/{namespace}/{}", field("name")).into(),
        }
    }),
];

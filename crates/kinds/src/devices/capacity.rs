//! What may be requested of a device's capacity.

use std::cmp::Ordering;

use schema::quantity_in_billionths;

use crate::validation::Field;

/// Values of a policy that lists them.
const VALUES_MAX: usize = 10;
const ONE_POLICY: &str =
    "exactly one policy can be specified, cannot specify \"validValues\" and \"validRange\" at the same time";
const BILLION: i128 = 1_000_000_000;

/// The policy of one capacity. `is_shared`: the device may be allocated several times.
pub(super) fn check_request_policy(capacity: Field<'_>, is_shared: bool) {
    let policy = capacity.at("requestPolicy");
    if !policy.is_present() {
        return;
    }
    if !is_shared {
        return policy.forbidden("allowMultipleAllocations must be true");
    }
    let (values, range, default) = (policy.at("validValues"), policy.at("validRange"), policy.at("default"));
    match (values.len() > 0, range.is_present()) {
        (true, true) => policy.forbidden(ONE_POLICY),
        (true, false) if !default.is_present() => default.required("required when validValues is defined"),
        (true, false) => check_values(values, default, capacity.at("value")),
        (false, true) if !default.is_present() => default.required("required when validRange is defined"),
        (false, true) => check_range(range, default, capacity.at("value")),
        (false, false) => {}
    }
}

fn check_values<'a>(values: Field<'a>, default: Field<'a>, capacity: Field<'a>) {
    for (before, value) in values.items().zip(values.items().skip(1)) {
        if before.compare_quantity(value) == Ordering::Greater {
            value.invalid_as(value.quantity_text(), "values must be sorted in ascending order");
        }
    }
    if values.at_most(VALUES_MAX) {
        for value in values.items().filter(|value| value.compare_quantity(capacity) == Ordering::Greater) {
            let detail = format!("option is larger than capacity value: {}", capacity.quantity_text());
            value.invalid_as(value.quantity_text(), detail);
        }
        let mut seen = Vec::new();
        for value in values.items() {
            let amount = whole_amount(value);
            if seen.contains(&amount) {
                value.duplicate_of(amount.to_string());
            }
            seen.push(amount);
        }
    }
    if !values.items().any(|value| value.compare_quantity(default) == Ordering::Equal) || values.len() > VALUES_MAX {
        values.invalid_as(default.quantity_text(), "default value is not valid according to the requestPolicy");
    }
}

fn check_range<'a>(range: Field<'a>, default: Field<'a>, capacity: Field<'a>) {
    let (min, max, step) = (range.at("min"), range.at("max"), range.at("step"));
    if !min.is_present() {
        return min.required("required when validRange is defined");
    }
    expect_order(min, [min, capacity], min, "min is larger than capacity value", capacity);
    expect_order(min, [min, default], default, "default is less than min", min);
    if max.is_present() {
        expect_order(max, [min, max], min, "min is larger than max", max);
        expect_order(max, [max, capacity], max, "max is larger than capacity value", capacity);
        expect_order(max, [default, max], default, "default is more than max", max);
    }
    if step.is_present() {
        check_step(step, min, capacity);
        let values = [Some(default), Some(max).filter(|max| max.is_present())];
        for value in values.into_iter().flatten().filter(|value| !is_multiple(*value, min, step)) {
            let (step_text, min_text) = (step.quantity_text(), min.quantity_text());
            let detail = format!("value is not a multiple of a given step ({step_text}) from ({min_text})");
            step.invalid_as(value.quantity_text(), detail);
        }
    }
}

/// Reports at `place` that the first amount is larger than the second, with the amount and the limit that are shown.
fn expect_order(place: Field<'_>, [low, high]: [Field<'_>; 2], shown: Field<'_>, words: &str, limit: Field<'_>) {
    if low.compare_quantity(high) == Ordering::Greater {
        place.invalid_as(shown.quantity_text(), format!("{words}: {}", limit.quantity_text()));
    }
}

/// One step from the least value must fit.
fn check_step<'a>(step: Field<'a>, min: Field<'a>, capacity: Field<'a>) {
    let [first, width, limit] = [min, step, capacity].map(billionths);
    if first.saturating_add(width) > limit {
        let sum = first.saturating_add(width) / BILLION;
        let detail = format!("one step {sum} is larger than capacity value: {}", capacity.quantity_text());
        step.invalid_as(step.quantity_text(), detail);
    }
}

fn is_multiple<'a>(value: Field<'a>, min: Field<'a>, step: Field<'a>) -> bool {
    let [value, min, step] = [value, min, step].map(whole_amount);
    step != 0 && (value - min) % step == 0
}

fn billionths(field: Field<'_>) -> i128 {
    field.value().and_then(quantity_in_billionths).unwrap_or_default()
}

/// Rounded away from zero, as Go's `Quantity.Value`.
fn whole_amount(field: Field<'_>) -> i128 {
    let amount = billionths(field);
    let rest = amount % BILLION;
    amount / BILLION + rest.signum()
}

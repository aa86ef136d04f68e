//! Runtime classes.

use std::collections::HashSet;

use object::KindRules;
use object::table::Column;
use object::table::cells::{AGE, NAME, string_cell, string_column};

use crate::pod::validation::check_tolerations;
use crate::strategy::{KindStrategy, RULES};
use crate::update_validation::immutable_fields::fixed_field;
use crate::validation::resources::ResourceScope;
use crate::validation::{Field, go_object};

pub(crate) static STRATEGY: KindStrategy = KindStrategy {
    allows_any_finalizer: true,
    rules: KindRules { allows_unconditional_update: false, ..RULES },
    validate: check_runtime_class,
    immutable_fields: &[fixed_field("handler")],
    columns: RUNTIME_CLASSES,
    ..KindStrategy::DEFAULT
};

fn check_runtime_class(class: Field<'_>) {
    if class.at("handler").require_text() {
        class.at("handler").dns_label();
    }
    let overhead = class.at("overhead");
    for (name, amount) in overhead.at("podFixed").entries() {
        amount.reported_at(overhead.at("limits").key(name)).resource_entry(name, ResourceScope::Container);
    }
    let scheduling = class.at("scheduling");
    scheduling.at("nodeSelector").labels();
    let tolerations = scheduling.at("tolerations");
    check_tolerations(tolerations);
    let mut seen = HashSet::new();
    for toleration in tolerations.items() {
        if !seen.insert(["key", "operator", "value", "effect"].map(|name| toleration.at(name).text())) {
            // As Kubernetes' own type is shown.
            let text = |name| toleration.at(name).text();
            toleration.duplicate_showing(go_object(&[
                ("Key", text("key").into()),
                ("Operator", text("operator").into()),
                ("Value", text("value").into()),
                ("Effect", text("effect").into()),
                ("TolerationSeconds", toleration.at("tolerationSeconds").integer().into()),
            ]));
        }
    }
}

const RUNTIME_CLASSES: &[Column] =
    &[NAME, string_column("Handler", "What runs the containers.", |class, _| string_cell(class, &["handler"])), AGE];

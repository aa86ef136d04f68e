//! CSI drivers, the nodes that have them, and the storage capacity that they report.

use std::collections::HashSet;

use api::FieldError;
use api::json::JsonObject;
use object::KindRules;
use object::rules::StatusSubresource;
use object::table::Column;
use object::table::cells::{
    AGE, NAME, boolean_column, count_at, integer_column, or_placeholder, string_cell, string_cell_or, string_column,
};
use object::unstructured;
use object::unstructured::{get, objects, texts};
use schema::TypeForm;
use schema::semantic_equality::is_object_equal;
use serde_json::Value;

use crate::feature_gates::FeatureGates;
use crate::fields::{drop_empty_list, list_items, set_if_absent};
use crate::strategy::{KindStrategy, LENIENT_RULES, RULES};
use crate::update_validation::go_form::{GoLayout, go_struct_form};
use crate::update_validation::immutable_fields::fixed_field;
use crate::update_validation::{FIELD_IS_IMMUTABLE, ObjectUpdate};
use crate::validation::Field;

pub(crate) static CSI_DRIVER_STRATEGY: KindStrategy = KindStrategy {
    rules: KindRules { allows_unconditional_update: false, ..LENIENT_RULES },
    returns_deleted_object: true,
    immutable_fields: &[
        fixed_field("spec.attachRequired").displayed_as("spec.attachedRequired"),
        fixed_field("spec.volumeLifecycleModes"),
    ],
    prepare_for_update: |old, driver| {
        // Counted from the first change on, not from the creation.
        if old.get("spec") != driver.get("spec") {
            let generation = unstructured::integer(old, &["metadata", "generation"]).unwrap_or_default();
            unstructured::nested_object_mut(driver, "metadata")
                .insert("generation".to_owned(), (generation + 1).into());
        }
        Ok(())
    },
    validate: |driver| check_driver(driver.at("spec")),
    columns: CSI_DRIVERS,
    ..KindStrategy::DEFAULT
};

pub(crate) fn set_driver_defaults(spec: &mut JsonObject, gates: &FeatureGates) {
    if gates.enabled("SELinuxMountReadWriteOncePod") {
        set_if_absent(spec, "seLinuxMount", false);
    }
}

pub(crate) static CSI_NODE_STRATEGY: KindStrategy = KindStrategy {
    prepare_for_create: |_, node| {
        drop_empty_list(node, "spec", "drivers");
        Ok(())
    },
    prepare_for_update: |_, node| {
        drop_empty_list(node, "spec", "drivers");
        Ok(())
    },
    rules: KindRules { status: StatusSubresource::StatusOnly, allows_unconditional_update: false, ..RULES },
    returns_deleted_object: true,
    validate: |node| check_node_drivers(node.path("spec.drivers")),
    validate_update: |node, _| check_drivers(node),
    columns: CSI_NODES,
    ..KindStrategy::DEFAULT
};

pub(crate) static CSI_STORAGE_CAPACITY_STRATEGY: KindStrategy = KindStrategy {
    rules: KindRules { allows_unconditional_update: false, ..RULES },
    immutable_fields: &[fixed_field("nodeTopology"), fixed_field("storageClassName")],
    validate: |capacity| {
        capacity.at("nodeTopology").label_selector();
        capacity.at("storageClassName").dns_subdomain();
        if capacity.at("capacity").is_present() {
            capacity.at("capacity").quantity_not_negative();
        }
    },
    columns: CSI_CAPACITIES,
    ..KindStrategy::DEFAULT
};

const NODE_ID_LENGTH_MAX: usize = 256;

fn check_driver(spec: Field<'_>) {
    spec.at("fsGroupPolicy").one_of_if_present(&["File", "None", "ReadWriteOnceWithFSType"]);
    let mut audiences = HashSet::new();
    for request in spec.at("tokenRequests").items() {
        let (audience, seconds) = (request.at("audience"), request.at("expirationSeconds"));
        if !audiences.insert(audience.text()) {
            audience.duplicate_of(audience.text());
            continue;
        }
        match seconds.integer() {
            Some(..600) => seconds.invalid("may not specify a duration less than 10 minutes"),
            Some(number) if number > 1 << 32 => seconds.invalid("may not specify a duration larger than 2^32 seconds"),
            _ => {}
        }
    }
    let modes = spec.at("volumeLifecycleModes");
    modes.items().for_each(|mode| mode.reported_at(modes).one_of(&["Persistent", "Ephemeral"]));
    let period = spec.at("nodeAllocatableUpdatePeriodSeconds");
    if period.integer().is_some_and(|seconds| seconds < 10) {
        period.invalid("must be greater than or equal to 10 seconds");
    }
    let in_secrets = spec.at("serviceAccountTokenInSecrets");
    if in_secrets.is_present() && spec.at("tokenRequests").len() == 0 {
        in_secrets.invalid("serviceAccountTokenInSecrets is set but no tokenRequests are specified");
    }
}

fn check_node_drivers(drivers: Field<'_>) {
    let mut names = HashSet::new();
    for driver in drivers.items() {
        let (name, id) = (driver.at("name"), driver.at("nodeID"));
        name.csi_driver_name();
        id.require_text();
        if id.text().len() > NODE_ID_LENGTH_MAX {
            id.invalid(format!("must be {NODE_ID_LENGTH_MAX} characters or less"));
        }
        driver.path("allocatable.count").not_negative();
        if !names.insert(name.text()) {
            name.duplicate_of(name.text());
        }
        let mut keys = HashSet::new();
        for key in driver.at("topologyKeys").items().map(|key| key.reported_at(driver)) {
            key.require_text();
            if !keys.insert(key.text()) {
                key.duplicate_of(key.text());
            }
            key.qualified_name();
        }
    }
}

/// Rejects changes of a listed driver; with the feature gate its allocatable count may change.
fn check_drivers(update: ObjectUpdate<'_>) -> Vec<FieldError> {
    let path = "spec.drivers";
    let Some(TypeForm::List(drivers)) = update.field(path).map(|field| field.value_type().form()) else {
        return Vec::new();
    };
    let TypeForm::Struct(kind) = drivers.form() else { return Vec::new() };
    let ignores_allocatable = update.gates.enabled("MutableCSINodeAllocatableCount");
    let comparable = |driver: &Value| {
        let mut driver = driver.as_object().cloned().unwrap_or_default();
        if ignores_allocatable {
            driver.remove("allocatable");
        }
        driver
    };
    let olds: Vec<_> = list_items(update.old_value(path)).iter().map(comparable).collect();
    let mut errors = Vec::new();
    for new in list_items(update.new_value(path)).iter().map(comparable) {
        let old = olds.iter().find(|old| old.get("name") == new.get("name"));
        if old.is_some_and(|old| !is_object_equal(kind, old, &new)) {
            let form = go_struct_form(&new, kind, kind.name(), GoLayout::Compact).unwrap_or_default();
            errors.push(FieldError::invalid_without_value(path, FIELD_IS_IMMUTABLE).showing(form));
        }
    }
    errors
}

const CSI_DRIVERS: &[Column] = &[
    NAME,
    boolean_column("AttachRequired", "Whether volumes must be attached.", |driver, _| {
        get(driver, &["spec", "attachRequired"]).and_then(Value::as_bool).unwrap_or(true).into()
    }),
    boolean_column("PodInfoOnMount", "Whether it wants to know the pod.", |driver, _| {
        unstructured::flag(driver, &["spec", "podInfoOnMount"]).into()
    }),
    boolean_column("StorageCapacity", "Whether it tells how much is free.", |driver, _| {
        unstructured::flag(driver, &["spec", "storageCapacity"]).into()
    }),
    string_column("TokenRequests", "The audiences of tokens it wants.", |driver, _| {
        if get(driver, &["spec", "tokenRequests"]).is_none() {
            return "<unset>".into();
        }
        let audiences =
            objects(driver, &["spec", "tokenRequests"]).map(|request| unstructured::text(request, &["audience"]));
        audiences.collect::<Vec<_>>().join(",").into()
    }),
    boolean_column("RequiresRepublish", "Whether it is called again and again.", |driver, _| {
        unstructured::flag(driver, &["spec", "requiresRepublish"]).into()
    }),
    string_column("Modes", "The kinds of volume it makes.", |driver, _| {
        or_placeholder(texts(driver, &["spec", "volumeLifecycleModes"]).collect::<Vec<_>>().join(","), "<none>")
    }),
    AGE,
];

const CSI_NODES: &[Column] = &[
    NAME,
    integer_column("Drivers", "How many drivers the node has.", |node, _| count_at(node, &["spec", "drivers"]).into()),
    AGE,
];

const CSI_CAPACITIES: &[Column] = &[
    NAME,
    string_column("StorageClassName", "The class it is about.", |capacity, _| {
        string_cell(capacity, &["storageClassName"])
    }),
    string_column("Capacity", "How much is free.", |capacity, _| string_cell_or(capacity, &["capacity"], "<unset>")),
];

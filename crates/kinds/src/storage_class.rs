//! Storage classes, volume attributes classes and volume attachments.

use api::validation::validate_label_key;
use object::KindRules;
use object::rules::StatusSubresource;
use object::table::Column;
use object::table::cells::{AGE, NAME, boolean_column, string_cell, string_cell_or, string_column};
use object::unstructured;

use crate::ingress::name_with_default_mark;
use crate::persistent_volume::check_inline_volume_spec;
use crate::release::Release::*;
use crate::reset_fields;
use crate::strategy::{KindStrategy, RULES};
use crate::update_validation::immutable_fields::{SPEC_IS_FIXED, fixed_field, forbidden_change};
use crate::validation::Field;

pub(crate) static STORAGE_CLASS_STRATEGY: KindStrategy = KindStrategy {
    returns_deleted_object: true,
    validate: check_storage_class,
    immutable_fields: &[
        forbidden_change("parameters", "updates to parameters are forbidden.").until(R36),
        forbidden_change("provisioner", "updates to provisioner are forbidden.").until(R36),
        forbidden_change("reclaimPolicy", "updates to reclaimPolicy are forbidden.").until(R36),
        fixed_field("parameters").since(R36),
        fixed_field("provisioner").since(R36),
        fixed_field("reclaimPolicy").since(R36),
        fixed_field("volumeBindingMode"),
    ],
    columns: CLASSES,
    ..KindStrategy::DEFAULT
};

pub(crate) static VOLUME_ATTRIBUTES_CLASS_STRATEGY: KindStrategy = KindStrategy {
    returns_deleted_object: true,
    validate: |class| {
        check_provisioner(class.at("driverName"));
        check_parameters(class.at("parameters"));
        if class.at("parameters").len() == 0 {
            class.at("parameters").required("must contain at least one key/value pair");
        }
    },
    immutable_fields: &[
        forbidden_change("driverName", "updates to driverName are forbidden."),
        forbidden_change("parameters", "updates to parameters are forbidden."),
    ],
    columns: ATTRIBUTES_CLASSES,
    ..KindStrategy::DEFAULT
};

pub(crate) static VOLUME_ATTACHMENT_STRATEGY: KindStrategy = KindStrategy {
    reset_fields: reset_fields::STATUS_WITHOUT_METADATA,
    rules: KindRules { status: StatusSubresource::StatusOnly, allows_unconditional_update: false, ..RULES },
    returns_deleted_object: true,
    validate: check_attachment,
    validate_status: |attachment, _| check_attachment_status(attachment.at("status")),
    immutable_fields: SPEC_IS_FIXED,
    columns: ATTACHMENTS,
    ..KindStrategy::DEFAULT
};

const PARAMETERS_MAX: usize = 512;
const PARAMETERS_LENGTH_MAX: usize = 256 * 1024;
const ERROR_LENGTH_MAX: usize = 1024;
const ONE_SOURCE: &str = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";

fn check_storage_class(class: Field<'_>) {
    check_provisioner(class.at("provisioner"));
    check_parameters(class.at("parameters"));
    class.at("reclaimPolicy").one_of_if_set(&["Delete", "Retain"]);
    if class.at("volumeBindingMode").is_present() {
        class.at("volumeBindingMode").one_of(&["Immediate", "WaitForFirstConsumer"]);
    } else {
        class.at("volumeBindingMode").required("");
    }
    let topologies = class.at("allowedTopologies");
    let mut terms: Vec<Vec<(&str, Vec<&str>)>> = vec![Vec::new()];
    for topology in topologies.items() {
        let term = check_topology(topology);
        if terms.contains(&term) {
            topology.at("matchLabelExpressions").duplicate_of("");
        }
        terms.push(term);
    }
}

/// Keys and values of a topology, sorted.
fn check_topology<'a>(topology: Field<'a>) -> Vec<(&'a str, Vec<&'a str>)> {
    let mut term: Vec<(&str, Vec<&str>)> = Vec::new();
    for expression in topology.at("matchLabelExpressions").items() {
        let (key, values) = (expression.at("key"), expression.at("values"));
        if values.len() == 0 {
            values.required("");
        }
        values.unique_items();
        key.qualified_name();
        let mut sorted: Vec<&str> = values.texts().collect();
        sorted.sort_unstable();
        if term.iter().any(|(known, _)| *known == key.text()) {
            key.duplicate_of(key.text());
            term.retain(|(known, _)| *known != key.text());
        }
        term.push((key.text(), sorted));
    }
    term.sort_unstable();
    term
}

/// The name of a driver in any case.
fn check_provisioner(provisioner: Field<'_>) {
    if provisioner.require_text() {
        let lower = provisioner.text().to_lowercase();
        validate_label_key(&lower).into_iter().for_each(|error| provisioner.invalid_as(lower.clone(), error));
    }
}

fn check_parameters(parameters: Field<'_>) {
    if parameters.len() > PARAMETERS_MAX {
        return parameters.too_long(PARAMETERS_MAX);
    }
    let mut length = 0;
    for (key, value) in parameters.entries() {
        if key.is_empty() {
            parameters.invalid_as(key, "field can not be empty.");
        }
        length += key.len() + value.text().len();
    }
    if length > PARAMETERS_LENGTH_MAX {
        parameters.too_long(PARAMETERS_LENGTH_MAX);
    }
}

fn check_attachment(attachment: Field<'_>) {
    let spec = attachment.at("spec");
    let source = spec.at("source");
    let (inline, name) = (source.at("inlineVolumeSpec"), source.at("persistentVolumeName"));
    spec.at("attacher").csi_driver_name();
    match (inline.is_present(), name.is_present()) {
        (false, false) => source.required(ONE_SOURCE),
        (true, true) => source.forbidden(ONE_SOURCE),
        (false, true) if name.text().is_empty() => name.required("must specify non empty persistentVolumeName"),
        (false, true) => {}
        (true, false) => check_inline_volume_spec(inline),
    }
    spec.at("nodeName").dns_subdomain();
    check_attachment_status(attachment.at("status"));
    if name.is_present() {
        name.dns_subdomain();
    }
}

fn check_attachment_status(status: Field<'_>) {
    for error in ["attachError", "detachError"].map(|name| status.at(name)) {
        if error.at("message").text().len() > ERROR_LENGTH_MAX {
            error.at("message").too_long(PARAMETERS_LENGTH_MAX);
        }
        error.at("errorCode").in_range(0, i64::from(i32::MAX));
    }
}

const CLASSES: &[Column] = &[
    Column {
        format: "name",
        ..string_column("Name", "The name of the object.", |class, _| {
            name_with_default_mark(
                class,
                &["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"],
            )
        })
    },
    string_column("Provisioner", "What makes its volumes.", |class, _| string_cell(class, &["provisioner"])),
    string_column("ReclaimPolicy", "What becomes of its volumes once released.", |class, _| {
        string_cell_or(class, &["reclaimPolicy"], "Delete")
    }),
    string_column("VolumeBindingMode", "When claims are bound.", |class, _| {
        string_cell_or(class, &["volumeBindingMode"], "Immediate")
    }),
    string_column("AllowVolumeExpansion", "Whether volumes can grow.", |class, _| {
        unstructured::flag(class, &["allowVolumeExpansion"]).into()
    }),
    AGE,
];

const ATTRIBUTES_CLASSES: &[Column] =
    &[NAME, string_column("DriverName", "The driver it is for.", |class, _| string_cell(class, &["driverName"])), AGE];

const ATTACHMENTS: &[Column] = &[
    NAME,
    Column {
        format: "name",
        ..string_column("Attacher", "What attaches the volume.", |attachment, _| {
            string_cell(attachment, &["spec", "attacher"])
        })
    },
    string_column("PV", "The volume.", |attachment, _| {
        string_cell(attachment, &["spec", "source", "persistentVolumeName"])
    }),
    string_column("Node", "The node.", |attachment, _| string_cell(attachment, &["spec", "nodeName"])),
    boolean_column("Attached", "Whether it is done.", |attachment, _| {
        unstructured::flag(attachment, &["status", "attached"]).into()
    }),
    AGE,
];

//! Storage classes, volume attributes classes and volume attachments.

use object::KindRules;
use object::rules::StatusSubresource;
use object::table::Column;
use object::table::cells::{AGE, NAME, boolean_column, string_cell, string_cell_or, string_column};
use object::unstructured;

use crate::ingress::name_with_default_mark;
use crate::release::Release::*;
use crate::strategy::{KindStrategy, RULES};
use crate::update_validation::immutable_fields::{SPEC_IS_FIXED, fixed_field, forbidden_change};

pub(crate) static STORAGE_CLASS_STRATEGY: KindStrategy = KindStrategy {
    returns_deleted_object: true,
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
    immutable_fields: &[
        forbidden_change("driverName", "updates to driverName are forbidden."),
        forbidden_change("parameters", "updates to parameters are forbidden."),
    ],
    columns: ATTRIBUTES_CLASSES,
    ..KindStrategy::DEFAULT
};

pub(crate) static VOLUME_ATTACHMENT_STRATEGY: KindStrategy = KindStrategy {
    rules: KindRules { status: StatusSubresource::StatusOnly, allows_unconditional_update: false, ..RULES },
    returns_deleted_object: true,
    immutable_fields: SPEC_IS_FIXED,
    columns: ATTACHMENTS,
    ..KindStrategy::DEFAULT
};

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

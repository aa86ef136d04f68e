//! Persistent volumes, and the rules shared with persistent volume claims.

use access::User;
use api::FieldError;
use api::json::JsonObject;
use api::time::Time;
use object::Rejection;
use object::table::Column;
use object::table::cells::{AGE, NAME, string_cell, string_cell_or, string_column, wide_column};
use object::unstructured;
use object::unstructured::{get, nested_object_mut, texts};
use schema::semantic_equality::is_field_equal;
use schema::{StructField, TypeForm};
use serde_json::{Value, json};

use crate::fields::{list_items, object_field_mut, set_if_absent, set_if_empty};
use crate::strategy::{KindStrategy, SubresourceStrategy};
use crate::update_validation::go_form::{GoLayout, go_struct_form};
use crate::update_validation::immutable_fields::{ImmutableField, fixed_field};
use crate::update_validation::unified_diff::diff_lines;
use crate::update_validation::{FIELD_IS_IMMUTABLE, ObjectUpdate};
use crate::validation::Field;
use crate::validation::labels::SelectorValues;
use crate::validation::volume_sources::{
    self, AWS_ELASTIC_BLOCK_STORE, CEPH_FS, GCE_PERSISTENT_DISK, VOLUME_MODES, VolumeSource, check_access_modes,
    check_each_access_mode, check_one_source, source,
};

pub(crate) static STRATEGY: KindStrategy = KindStrategy {
    returns_deleted_object: true,
    prepare_for_create,
    subresources: &[SubresourceStrategy::status(prepare_status_update)],
    validate: check_volume,
    validate_update: |volume, _| check_update(volume),
    immutable_fields: &[VOLUME_MODE_IS_FIXED],
    columns: VOLUMES,
    ..KindStrategy::DEFAULT
};

/// The volume mode of volumes and claims stays as created.
pub(crate) const VOLUME_MODE_IS_FIXED: ImmutableField = fixed_field("spec.volumeMode").displayed_as("volumeMode");

const SOURCES: &[VolumeSource] = &[
    source("hostPath", volume_sources::check_host_path),
    GCE_PERSISTENT_DISK,
    AWS_ELASTIC_BLOCK_STORE,
    source("glusterfs", volume_sources::check_glusterfs),
    source("flocker", volume_sources::check_flocker),
    source("nfs", volume_sources::check_nfs),
    source("rbd", volume_sources::check_rbd),
    source("quobyte", volume_sources::check_quobyte),
    CEPH_FS,
    // Its name is part of a rule: see `check_volume`.
    source("iscsi", |_| {}),
    source("cinder", |source| {
        source.require(&["volumeID"]);
        volume_sources::check_secret(source.at("secretRef"), &["name", "namespace"]);
    }),
    source("fc", volume_sources::check_fc),
    VolumeSource { shown_as_second: "", ..source("flexVolume", volume_sources::check_flex) },
    source("azureFile", volume_sources::check_azure_file),
    source("vsphereVolume", |source| source.require(&["volumePath"])),
    source("photonPersistentDisk", |source| source.require(&["pdID"])),
    source("portworxVolume", |source| source.require(&["volumeID"])),
    source("azureDisk", volume_sources::check_azure_disk),
    source("scaleIO", |source| source.require(&["gateway", "system", "volumeName"])),
    source("local", |source| {
        if source.at("path").require_text() {
            source.at("path").path_without_backsteps();
        }
    }),
    source("storageos", |source| volume_sources::check_storage_os(source, &["name", "namespace"])),
    source("csi", |source| {
        source.at("driver").csi_driver_name();
        source.require(&["volumeHandle"]);
        for secret in
            ["controllerPublishSecretRef", "controllerExpandSecretRef", "nodePublishSecretRef", "nodeExpandSecretRef"]
        {
            if source.at(secret).is_present() {
                source.at(secret).secret_reference();
            }
        }
    }),
];

const INLINE: &str = "may not be specified in the context of inline volumes";

/// The spec of a volume that has no object of its own.
pub(crate) fn check_inline_volume_spec(spec: Field<'_>) {
    spec.forbid(&["claimRef"], INLINE);
    if spec.at("capacity").len() > 0 {
        spec.at("capacity").forbidden(INLINE);
    }
    if !spec.at("csi").is_present() {
        spec.at("csi").required("has to be specified in the context of inline volumes");
    }
    check_access_modes(spec, "");
    check_each_access_mode(spec);
    if !matches!(spec.at("persistentVolumeReclaimPolicy").text(), "" | "Retain") {
        let detail = "may only be Retain in the context of inline volumes";
        spec.at("persistentVolumeReclaimPolicy").forbidden(detail);
    }
    spec.forbid(&["nodeAffinity"], INLINE);
    check_one_source(spec, SOURCES);
    check_iscsi_source(spec, "");
    if !spec.at("storageClassName").text().is_empty() {
        spec.at("storageClassName").forbidden(INLINE);
    }
    if !matches!(spec.at("volumeMode").text(), "" | "Filesystem") {
        let detail = "may not specify volumeMode other than Filesystem in the context of inline volumes";
        spec.at("volumeMode").forbidden(detail);
    }
}

fn check_volume(volume: Field<'_>) {
    let (spec, name) = (volume.at("spec"), volume.path("metadata.name").text());
    check_access_modes(spec, "");
    check_each_access_mode(spec);
    check_capacity(spec.at("capacity"));
    spec.at("persistentVolumeReclaimPolicy").one_of_if_set(&["Delete", "Recycle", "Retain"]);
    let affinity = spec.at("nodeAffinity");
    if affinity.is_present() {
        if affinity.at("required").is_present() {
            affinity.at("required").node_selector(SelectorValues::Checked);
        } else {
            affinity.at("required").required("must specify required node constraints");
        }
    }
    check_one_source(spec, SOURCES);
    check_iscsi_source(spec, name);
    if spec.at("local").is_present() && !affinity.is_present() {
        affinity.required("Local volume requires node affinity");
    }
    let path = spec.path("hostPath.path").text();
    let is_root = !path.is_empty() && path.split('/').all(|part| matches!(part, "" | "."));
    if is_root && spec.at("persistentVolumeReclaimPolicy").text() == "Recycle" {
        let detail = "may not be 'recycle' for a hostPath mount of '/'";
        spec.at("persistentVolumeReclaimPolicy").forbidden(detail);
    }
    if !spec.at("storageClassName").text().is_empty() {
        spec.at("storageClassName").dns_subdomain();
    }
    spec.at("volumeMode").one_of_if_present(&VOLUME_MODES);
    let class = spec.at("volumeAttributesClassName");
    if class.is_present() && class.is_enabled("VolumeAttributesClass") {
        if class.text().is_empty() {
            class.required("an empty string is disallowed");
        } else {
            class.dns_subdomain();
        }
        if !spec.at("csi").is_present() {
            spec.at("csi").required("has to be specified when using volumeAttributesClassName");
        }
    }
}

/// The rules of the only source that depend on the name of the volume.
fn check_iscsi_source(spec: Field<'_>, name: &str) {
    let first = SOURCES.iter().find(|source| spec.at(source.field).is_present());
    if first.is_some_and(|source| source.field == "iscsi") {
        volume_sources::check_iscsi(spec.at("iscsi"), false, name);
    }
}

/// Storage, and nothing else.
fn check_capacity(capacity: Field<'_>) {
    if capacity.len() == 0 {
        capacity.required("");
    }
    if !capacity.key("storage").is_present() || capacity.len() > 1 {
        capacity.unsupported_as(capacity.value().cloned().unwrap_or_default(), &["storage"]);
    }
    for (_, amount) in capacity.entries() {
        amount.whole_quantity_not_negative();
        amount.quantity_positive();
    }
}

/// A new volume is pending since its creation.
/// Records when the phase changed, unless the client does.
fn prepare_status_update(old: &JsonObject, new: &mut JsonObject, now: Time) -> Result<(), Rejection> {
    let time = |volume: &JsonObject| unstructured::get(volume, &["status", "lastPhaseTransitionTime"]).cloned();
    let phase = |volume: &JsonObject| unstructured::text(volume, &["status", "phase"]).to_owned();
    let (before, sent) = (time(old), time(new));
    let changed = phase(old) != phase(new);
    let next = match sent {
        None if !changed => before,
        sent if changed && (sent.is_none() || sent == before) => Some(now.to_string().into()),
        sent => sent,
    };
    unstructured::set_or_remove(nested_object_mut(new, "status"), "lastPhaseTransitionTime", next);
    Ok(())
}

fn prepare_for_create(_: &User, object: &mut JsonObject) -> Result<(), Rejection> {
    let creation_timestamp = object.get("metadata").and_then(|metadata| metadata.get("creationTimestamp")).cloned();
    let mut status = json!({"phase": "Pending"});
    if let Some(creation_timestamp @ Value::String(_)) = creation_timestamp {
        status["lastPhaseTransitionTime"] = creation_timestamp;
    }
    object.insert("status".to_owned(), status);
    Ok(())
}

/// A volume or a claim starts pending.
/// A volume within another object, such as an attachment, gets none of these.
pub(crate) fn set_persistent_volume_defaults(volume: &mut JsonObject) {
    if let Some(spec) = object_field_mut(volume, "spec") {
        set_if_empty(spec, "persistentVolumeReclaimPolicy", "Retain");
        set_if_absent(spec, "volumeMode", "Filesystem");
    }
    set_phase_default(volume);
}

/// The phase of volumes and claims.
pub(crate) fn set_phase_default(volume: &mut JsonObject) {
    if let Some(status) = object_field_mut(volume, "status") {
        set_if_empty(status, "phase", "Pending");
    }
}

/// Node labels that volumes were bound by, and their present names.
const RENAMED_LABELS: &[(&str, &str)] = &[
    ("beta.kubernetes.io/arch", "kubernetes.io/arch"),
    ("beta.kubernetes.io/instance-type", "node.kubernetes.io/instance-type"),
    ("beta.kubernetes.io/os", "kubernetes.io/os"),
    ("failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region"),
    ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"),
];

fn check_update(update: ObjectUpdate<'_>) -> Vec<FieldError> {
    [check_volume_source(update), check_volume_node_affinity(update), check_attributes_class(update)]
        .into_iter()
        .flatten()
        .collect()
}

fn check_volume_source(update: ObjectUpdate<'_>) -> Option<FieldError> {
    let old = volume_source_fields(update, update.old_value("spec"));
    let mut new = volume_source_fields(update, update.new_value("spec"));
    let secret = "controllerExpandSecretRef";
    if old.get("csi").is_some_and(|csi| csi.get(secret).is_none())
        && let Some(csi) = new.get_mut("csi").and_then(Value::as_object_mut)
    {
        csi.remove(secret);
    }
    let TypeForm::Struct(spec) = update.field("spec")?.value_type().form() else { return None };
    let is_kept =
        |name: &String| spec.field(name).is_none_or(|field| is_field_equal(field, old.get(name), new.get(name)));
    if old.keys().chain(new.keys()).all(is_kept) {
        return None;
    }
    let form = |source| go_struct_form(source, spec, "PersistentVolumeSource", GoLayout::Indented).unwrap_or_default();
    let difference = diff_lines(&form(&old), &form(&new));
    let detail = format!("spec.persistentvolumesource is immutable after creation\n{difference}");
    Some(FieldError::forbidden("spec.persistentvolumesource", detail))
}

/// The fields of the volume source: in protobuf they are a message of their own.
fn volume_source_fields(update: ObjectUpdate<'_>, spec: Option<&Value>) -> JsonObject {
    let is_source = |name: &str| {
        let field = update.field(&format!("spec.{name}"));
        field.is_some_and(|field: StructField<'_>| field.protobuf_numbers().count() > 1)
    };
    let fields = spec.and_then(Value::as_object).into_iter().flatten();
    fields.filter(|(name, _)| is_source(name)).map(|(name, value)| (name.clone(), value.clone())).collect()
}

fn check_volume_node_affinity(update: ObjectUpdate<'_>) -> Option<FieldError> {
    let path = "spec.nodeAffinity";
    let old = update.old_value(path).filter(|_| !update.gates.enabled("MutablePVNodeAffinity"))?;
    let mut renamed = old.clone();
    let terms = renamed.pointer_mut("/required/nodeSelectorTerms").and_then(Value::as_array_mut);
    for (at, term) in terms.into_iter().flatten().enumerate() {
        for part in ["matchExpressions", "matchFields"] {
            let new = update
                .new_value(path)
                .and_then(|affinity| affinity.pointer(&format!("/required/nodeSelectorTerms/{at}")));
            let new = list_items(new.and_then(|term| term.get(part)));
            let requirements = term.get_mut(part).and_then(Value::as_array_mut).into_iter().flatten();
            requirements.zip(new).for_each(|(old, new)| rename_label_key(old, new));
        }
    }
    if is_field_equal(update.field(path)?, Some(&renamed), update.new_value(path)) {
        return None;
    }
    let detail = format!("{FIELD_IS_IMMUTABLE}, except for updating from beta label to GA");
    Some(update.invalid("nodeAffinity", path, &detail))
}

fn rename_label_key(old: &mut Value, new: &Value) {
    let [before, after] = [&*old, new].map(|value| value.get("key").and_then(Value::as_str).unwrap_or_default());
    if RENAMED_LABELS.contains(&(before, after)) {
        old["key"] = after.into();
    }
}

/// The attributes class of a volume or a claim changes only with its feature gate.
pub(crate) fn check_attributes_class(update: ObjectUpdate<'_>) -> Option<FieldError> {
    let path = "spec.volumeAttributesClassName";
    if update.is_unchanged(path) || update.gates.enabled("VolumeAttributesClass") {
        return None;
    }
    Some(FieldError::forbidden(path, "update is forbidden when the VolumeAttributesClass feature gate is disabled"))
}

const VOLUMES: &[Column] = &[
    NAME,
    string_column("Capacity", "How much it holds.", |volume, _| {
        string_cell_or(volume, &["spec", "capacity", "storage"], "0")
    }),
    string_column("Access Modes", "How it may be mounted.", |volume, _| access_modes(volume, "spec").into()),
    string_column("Reclaim Policy", "What becomes of it once released.", |volume, _| {
        string_cell(volume, &["spec", "persistentVolumeReclaimPolicy"])
    }),
    string_column("Status", "Whether it is bound.", |volume, _| phase_cell(volume)),
    string_column("Claim", "Who has claimed it.", |volume, _| {
        let Some(claim) = unstructured::nested_object(volume, &["spec", "claimRef"]) else { return "".into() };
        format!("{}/{}", unstructured::text(claim, &["namespace"]), unstructured::text(claim, &["name"])).into()
    }),
    string_column("StorageClass", "Its class.", |volume, _| storage_class_cell(volume)),
    ATTRIBUTES_CLASS,
    string_column("Reason", "Why it is in its status.", |volume, _| string_cell(volume, &["status", "reason"])),
    AGE,
    MODE,
];

pub(crate) const ATTRIBUTES_CLASS: Column =
    string_column("VolumeAttributesClass", "The class of its attributes.", |volume, _| {
        string_cell_or(volume, &["spec", "volumeAttributesClassName"], "<unset>")
    });

pub(crate) const MODE: Column =
    wide_column("VolumeMode", "Whether it is a file system or a block device.", |volume, _| {
        string_cell_or(volume, &["spec", "volumeMode"], "<unset>")
    });

pub(crate) fn phase_cell(volume: &JsonObject) -> Value {
    if get(volume, &["metadata", "deletionTimestamp"]).is_some_and(|time| !time.is_null()) {
        return "Terminating".into();
    }
    string_cell(volume, &["status", "phase"])
}

pub(crate) fn storage_class_cell(volume: &JsonObject) -> Value {
    match get(volume, &["metadata", "annotations", "volume.beta.kubernetes.io/storage-class"]) {
        Some(class) => class.clone(),
        None => string_cell(volume, &["spec", "storageClassName"]),
    }
}

pub(crate) fn access_modes(volume: &JsonObject, part: &str) -> String {
    let known =
        [("ReadWriteOnce", "RWO"), ("ReadOnlyMany", "ROX"), ("ReadWriteMany", "RWX"), ("ReadWriteOncePod", "RWOP")];
    let has = |mode: &str| texts(volume, &[part, "accessModes"]).any(|own| own == mode);
    known.into_iter().filter(|(mode, _)| has(mode)).map(|(_, short)| short).collect::<Vec<_>>().join(",")
}

//! Volumes, classes of storage, and devices.

use api::json::JsonObject;
use serde_json::Value;

use super::Column;
use super::cells::{
    AGE, NAME, boolean_column, count_at, integer_column, or_placeholder, string_cell, string_cell_or, string_column,
    wide_column,
};
use super::network::name_with_default_mark;
use crate::unstructured::{self, get, objects, texts};

pub(super) fn columns(kind: &str) -> Option<&'static [Column]> {
    Some(match kind {
        "StorageClass" => CLASSES,
        "VolumeAttributesClass" => ATTRIBUTES_CLASSES,
        "VolumeAttachment" => ATTACHMENTS,
        "CSINode" => CSI_NODES,
        "CSIDriver" => CSI_DRIVERS,
        "CSIStorageCapacity" => CSI_CAPACITIES,
        "DeviceClass" | "ResourceClaimTemplate" => &[NAME, AGE],
        "ResourceClaim" => RESOURCE_CLAIMS,
        "ResourceSlice" => RESOURCE_SLICES,
        _ => return None,
    })
}

pub(super) const VOLUMES: &[Column] = &[
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

pub(super) const CLAIMS: &[Column] = &[
    NAME,
    string_column("Status", "Whether it is bound.", |claim, _| phase_cell(claim)),
    string_column("Volume", "The volume it got.", |claim, _| string_cell(claim, &["spec", "volumeName"])),
    string_column("Capacity", "How much the volume holds.", |claim, _| {
        match unstructured::text(claim, &["spec", "volumeName"]) {
            "" => "".into(),
            _ => string_cell_or(claim, &["status", "capacity", "storage"], "0"),
        }
    }),
    string_column("Access Modes", "How it may be mounted.", |claim, _| {
        match unstructured::text(claim, &["spec", "volumeName"]) {
            "" => "".into(),
            _ => access_modes(claim, "status").into(),
        }
    }),
    string_column("StorageClass", "Its class.", |claim, _| storage_class_cell(claim)),
    ATTRIBUTES_CLASS,
    AGE,
    MODE,
];

const ATTRIBUTES_CLASS: Column = string_column("VolumeAttributesClass", "The class of its attributes.", |volume, _| {
    string_cell_or(volume, &["spec", "volumeAttributesClassName"], "<unset>")
});

const MODE: Column = wide_column("VolumeMode", "Whether it is a file system or a block device.", |volume, _| {
    string_cell_or(volume, &["spec", "volumeMode"], "<unset>")
});

fn phase_cell(volume: &JsonObject) -> Value {
    if get(volume, &["metadata", "deletionTimestamp"]).is_some_and(|time| !time.is_null()) {
        return "Terminating".into();
    }
    string_cell(volume, &["status", "phase"])
}

fn storage_class_cell(volume: &JsonObject) -> Value {
    match get(volume, &["metadata", "annotations", "volume.beta.kubernetes.io/storage-class"]) {
        Some(class) => class.clone(),
        None => string_cell(volume, &["spec", "storageClassName"]),
    }
}

fn access_modes(volume: &JsonObject, part: &str) -> String {
    let known =
        [("ReadWriteOnce", "RWO"), ("ReadOnlyMany", "ROX"), ("ReadWriteMany", "RWX"), ("ReadWriteOncePod", "RWOP")];
    let has = |mode: &str| texts(volume, &[part, "accessModes"]).any(|own| own == mode);
    known.into_iter().filter(|(mode, _)| has(mode)).map(|(_, short)| short).collect::<Vec<_>>().join(",")
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

const CSI_NODES: &[Column] = &[
    NAME,
    integer_column("Drivers", "How many drivers the node has.", |node, _| count_at(node, &["spec", "drivers"]).into()),
    AGE,
];

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

const CSI_CAPACITIES: &[Column] = &[
    NAME,
    string_column("StorageClassName", "The class it is about.", |capacity, _| {
        string_cell(capacity, &["storageClassName"])
    }),
    string_column("Capacity", "How much is free.", |capacity, _| string_cell_or(capacity, &["capacity"], "<unset>")),
];

const RESOURCE_CLAIMS: &[Column] = &[
    NAME,
    string_column("State", "Whether it is allocated and reserved.", |claim, _| claim_state(claim).join(",").into()),
    AGE,
];

fn claim_state(claim: &JsonObject) -> Vec<&'static str> {
    let is_deleted = get(claim, &["metadata", "deletionTimestamp"]).is_some_and(|time| !time.is_null());
    let is_allocated = unstructured::nested_object(claim, &["status", "allocation"]).is_some();
    let is_reserved = !unstructured::list(claim, &["status", "reservedFor"]).is_empty();
    let mut states = Vec::new();
    if is_deleted {
        states.push("deleted");
    }
    match (is_allocated, is_reserved) {
        (false, _) if is_deleted => {}
        (false, _) => states.push("pending"),
        (true, false) => states.push("allocated"),
        (true, true) => states.extend(["allocated", "reserved"]),
    }
    states
}

const RESOURCE_SLICES: &[Column] = &[
    NAME,
    string_column("Node", "The node that has the devices.", |slice, _| string_cell(slice, &["spec", "nodeName"])),
    string_column("Driver", "The driver of the devices.", |slice, _| string_cell(slice, &["spec", "driver"])),
    string_column("Pool", "The pool they belong to.", |slice, _| string_cell(slice, &["spec", "pool", "name"])),
    AGE,
];

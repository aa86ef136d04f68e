//! Volumes, classes of storage, and devices.

use serde_json::Value;

use super::Column;
use super::cells::{AGE, NAME, boolean, count_at, number, or, text, text_at, text_or, wide};
use super::network::default_name;
use crate::access::{self, Object, get, objects, texts};

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
    text("Capacity", "How much it holds.", |volume, _| text_or(volume, &["spec", "capacity", "storage"], "0")),
    text("Access Modes", "How it may be mounted.", |volume, _| access_modes(volume, "spec").into()),
    text("Reclaim Policy", "What becomes of it once released.", |volume, _| {
        text_at(volume, &["spec", "persistentVolumeReclaimPolicy"])
    }),
    text("Status", "Whether it is bound.", |volume, _| phase(volume)),
    text("Claim", "Who has claimed it.", |volume, _| {
        let Some(claim) = access::part(volume, &["spec", "claimRef"]) else { return "".into() };
        format!("{}/{}", access::text(claim, &["namespace"]), access::text(claim, &["name"])).into()
    }),
    text("StorageClass", "Its class.", |volume, _| class(volume)),
    ATTRIBUTES_CLASS,
    text("Reason", "Why it is in its status.", |volume, _| text_at(volume, &["status", "reason"])),
    AGE,
    MODE,
];

pub(super) const CLAIMS: &[Column] = &[
    NAME,
    text("Status", "Whether it is bound.", |claim, _| phase(claim)),
    text("Volume", "The volume it got.", |claim, _| text_at(claim, &["spec", "volumeName"])),
    text("Capacity", "How much the volume holds.", |claim, _| match access::text(claim, &["spec", "volumeName"]) {
        "" => "".into(),
        _ => text_or(claim, &["status", "capacity", "storage"], "0"),
    }),
    text("Access Modes", "How it may be mounted.", |claim, _| match access::text(claim, &["spec", "volumeName"]) {
        "" => "".into(),
        _ => access_modes(claim, "status").into(),
    }),
    text("StorageClass", "Its class.", |claim, _| class(claim)),
    ATTRIBUTES_CLASS,
    AGE,
    MODE,
];

const ATTRIBUTES_CLASS: Column = text("VolumeAttributesClass", "The class of its attributes.", |volume, _| {
    text_or(volume, &["spec", "volumeAttributesClassName"], "<unset>")
});

const MODE: Column = wide("VolumeMode", "Whether it is a file system or a block device.", |volume, _| {
    text_or(volume, &["spec", "volumeMode"], "<unset>")
});

fn phase(volume: &Object) -> Value {
    if get(volume, &["metadata", "deletionTimestamp"]).is_some_and(|time| !time.is_null()) {
        return "Terminating".into();
    }
    text_at(volume, &["status", "phase"])
}

fn class(volume: &Object) -> Value {
    match get(volume, &["metadata", "annotations", "volume.beta.kubernetes.io/storage-class"]) {
        Some(class) => class.clone(),
        None => text_at(volume, &["spec", "storageClassName"]),
    }
}

fn access_modes(volume: &Object, part: &str) -> String {
    let known =
        [("ReadWriteOnce", "RWO"), ("ReadOnlyMany", "ROX"), ("ReadWriteMany", "RWX"), ("ReadWriteOncePod", "RWOP")];
    let has = |mode: &str| texts(volume, &[part, "accessModes"]).any(|own| own == mode);
    known.into_iter().filter(|(mode, _)| has(mode)).map(|(_, short)| short).collect::<Vec<_>>().join(",")
}

const CLASSES: &[Column] = &[
    Column {
        format: "name",
        ..text("Name", "The name of the object.", |class, _| {
            default_name(
                class,
                &["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"],
            )
        })
    },
    text("Provisioner", "What makes its volumes.", |class, _| text_at(class, &["provisioner"])),
    text("ReclaimPolicy", "What becomes of its volumes once released.", |class, _| {
        text_or(class, &["reclaimPolicy"], "Delete")
    }),
    text("VolumeBindingMode", "When claims are bound.", |class, _| text_or(class, &["volumeBindingMode"], "Immediate")),
    text("AllowVolumeExpansion", "Whether volumes can grow.", |class, _| {
        access::flag(class, &["allowVolumeExpansion"]).into()
    }),
    AGE,
];

const ATTRIBUTES_CLASSES: &[Column] =
    &[NAME, text("DriverName", "The driver it is for.", |class, _| text_at(class, &["driverName"])), AGE];

const ATTACHMENTS: &[Column] = &[
    NAME,
    Column {
        format: "name",
        ..text("Attacher", "What attaches the volume.", |attachment, _| text_at(attachment, &["spec", "attacher"]))
    },
    text("PV", "The volume.", |attachment, _| text_at(attachment, &["spec", "source", "persistentVolumeName"])),
    text("Node", "The node.", |attachment, _| text_at(attachment, &["spec", "nodeName"])),
    boolean("Attached", "Whether it is done.", |attachment, _| {
        access::flag(attachment, &["status", "attached"]).into()
    }),
    AGE,
];

const CSI_NODES: &[Column] = &[
    NAME,
    number("Drivers", "How many drivers the node has.", |node, _| count_at(node, &["spec", "drivers"]).into()),
    AGE,
];

const CSI_DRIVERS: &[Column] = &[
    NAME,
    boolean("AttachRequired", "Whether volumes must be attached.", |driver, _| {
        get(driver, &["spec", "attachRequired"]).and_then(Value::as_bool).unwrap_or(true).into()
    }),
    boolean("PodInfoOnMount", "Whether it wants to know the pod.", |driver, _| {
        access::flag(driver, &["spec", "podInfoOnMount"]).into()
    }),
    boolean("StorageCapacity", "Whether it tells how much is free.", |driver, _| {
        access::flag(driver, &["spec", "storageCapacity"]).into()
    }),
    text("TokenRequests", "The audiences of tokens it wants.", |driver, _| {
        if get(driver, &["spec", "tokenRequests"]).is_none() {
            return "<unset>".into();
        }
        let audiences = objects(driver, &["spec", "tokenRequests"]).map(|request| access::text(request, &["audience"]));
        audiences.collect::<Vec<_>>().join(",").into()
    }),
    boolean("RequiresRepublish", "Whether it is called again and again.", |driver, _| {
        access::flag(driver, &["spec", "requiresRepublish"]).into()
    }),
    text("Modes", "The kinds of volume it makes.", |driver, _| {
        or(texts(driver, &["spec", "volumeLifecycleModes"]).collect::<Vec<_>>().join(","), "<none>")
    }),
    AGE,
];

const CSI_CAPACITIES: &[Column] = &[
    NAME,
    text("StorageClassName", "The class it is about.", |capacity, _| text_at(capacity, &["storageClassName"])),
    text("Capacity", "How much is free.", |capacity, _| text_or(capacity, &["capacity"], "<unset>")),
];

const RESOURCE_CLAIMS: &[Column] = &[
    NAME,
    text("State", "Whether it is allocated and reserved.", |claim, _| claim_state(claim).join(",").into()),
    AGE,
];

fn claim_state(claim: &Object) -> Vec<&'static str> {
    let is_deleted = get(claim, &["metadata", "deletionTimestamp"]).is_some_and(|time| !time.is_null());
    let is_allocated = access::part(claim, &["status", "allocation"]).is_some();
    let is_reserved = !access::list(claim, &["status", "reservedFor"]).is_empty();
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
    text("Node", "The node that has the devices.", |slice, _| text_at(slice, &["spec", "nodeName"])),
    text("Driver", "The driver of the devices.", |slice, _| text_at(slice, &["spec", "driver"])),
    text("Pool", "The pool they belong to.", |slice, _| text_at(slice, &["spec", "pool", "name"])),
    AGE,
];

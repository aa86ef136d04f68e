//! Volumes, and the rewriting of stored objects.

use crate::kind::Group;
use crate::kind::row::{STATUS, cluster, group, namespaced, old, v};
use crate::release::Release::*;

pub(super) static STORAGE: Group = group(
    "storage.k8s.io",
    16800,
    &[("v1", 15), ("v1beta1", 9), ("v1alpha1", 1)],
    &[
        cluster("CSIDriver", "csidrivers").versions(&[v("v1"), old("v1beta1")]),
        cluster("CSINode", "csinodes").versions(&[v("v1"), old("v1beta1")]).subresources(&[STATUS.since(R37)]),
        namespaced("CSIStorageCapacity", "csistoragecapacities").versions(&[v("v1"), old("v1beta1"), old("v1alpha1")]),
        cluster("StorageClass", "storageclasses").short(&["sc"]).versions(&[v("v1"), old("v1beta1")]),
        cluster("VolumeAttachment", "volumeattachments").versions(&[v("v1"), old("v1beta1"), old("v1alpha1")]).status(),
        cluster("VolumeAttributesClass", "volumeattributesclasses")
            .short(&["vac"])
            .versions(&[v("v1").since(R34), v("v1beta1").removed(R37), v("v1alpha1").removed(R35)])
            .stored(&[(R31, "v1beta1"), (R36, "v1")]),
    ],
);

pub(super) static STORAGE_MIGRATION: Group = group(
    "storagemigration.k8s.io",
    15800,
    &[("v1", 15), ("v1beta1", 9), ("v1alpha1", 9)],
    &[cluster("StorageVersionMigration", "storageversionmigrations")
        .gate("StorageVersionMigrator")
        .versions(&[v("v1").since(R37), v("v1beta1").since(R35), v("v1alpha1").forgotten(R35)])
        .stored(&[(R31, "v1alpha1"), (R35, "v1beta1")])
        .status()],
);

//! Volumes and storage version migration.

use crate::kind::BuiltInGroup;
use crate::kind::builder::{STATUS, cluster_scoped_kind, group, namespaced_kind, stored_only, version};
use crate::release::Release::*;
use crate::{csi, storage_class, storage_version_migration};

pub(super) static STORAGE: BuiltInGroup = group(
    "storage.k8s.io",
    16800,
    &[("v1", 15), ("v1beta1", 9), ("v1alpha1", 1)],
    &[
        cluster_scoped_kind("CSIDriver", "csidrivers")
            .strategy(&csi::CSI_DRIVER_STRATEGY)
            .versions(&[version("v1"), stored_only("v1beta1")]),
        cluster_scoped_kind("CSINode", "csinodes")
            .strategy(&csi::CSI_NODE_STRATEGY)
            .versions(&[version("v1"), stored_only("v1beta1")])
            .subresources(&[STATUS.since(R37)]),
        namespaced_kind("CSIStorageCapacity", "csistoragecapacities")
            .strategy(&csi::CSI_STORAGE_CAPACITY_STRATEGY)
            .versions(&[version("v1"), stored_only("v1beta1"), stored_only("v1alpha1")]),
        cluster_scoped_kind("StorageClass", "storageclasses")
            .strategy(&storage_class::STORAGE_CLASS_STRATEGY)
            .short_names(&["sc"])
            .versions(&[version("v1"), stored_only("v1beta1")]),
        cluster_scoped_kind("VolumeAttachment", "volumeattachments")
            .strategy(&storage_class::VOLUME_ATTACHMENT_STRATEGY)
            .versions(&[version("v1"), stored_only("v1beta1"), stored_only("v1alpha1")])
            .status(),
        cluster_scoped_kind("VolumeAttributesClass", "volumeattributesclasses")
            .strategy(&storage_class::VOLUME_ATTRIBUTES_CLASS_STRATEGY)
            .short_names(&["vac"])
            .versions(&[version("v1").since(R34), version("v1beta1").removed(R37), version("v1alpha1").removed(R35)])
            .storage_versions(&[(R31, "v1beta1"), (R36, "v1")]),
    ],
);

pub(super) static STORAGE_MIGRATION: BuiltInGroup = group(
    "storagemigration.k8s.io",
    15800,
    &[("v1", 15), ("v1beta1", 9), ("v1alpha1", 9)],
    &[cluster_scoped_kind("StorageVersionMigration", "storageversionmigrations")
        .strategy(&storage_version_migration::STRATEGY)
        .gate("StorageVersionMigrator")
        .versions(&[
            version("v1").since(R37),
            version("v1beta1").since(R35),
            version("v1alpha1").undecodable_since(R35),
        ])
        .storage_versions(&[(R31, "v1alpha1"), (R35, "v1beta1")])
        .status()],
);

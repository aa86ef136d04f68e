//! Dependencies between feature gates.
//!
//! kube-apiserver checks them from 1.35 on. Those of the two gates that this server enables itself are checked in every
//! release.

use crate::release::Release::{self, *};
use crate::release::ReleaseRange;

/// A gate, and the gates that it requires.
pub(super) struct GateDependency {
    pub(super) gate: &'static str,
    /// By name, as the error lists them.
    pub(super) requires: &'static [&'static str],
    pub(super) releases: ReleaseRange,
}

const fn requires(gate: &'static str, needs: &'static [&'static str]) -> GateDependency {
    GateDependency { gate, requires: needs, releases: ReleaseRange { since: R35, removed: None } }
}

impl GateDependency {
    const fn since(self, since: Release) -> Self {
        Self { releases: ReleaseRange { since, ..self.releases }, ..self }
    }

    const fn removed(self, removed: Release) -> Self {
        Self { releases: ReleaseRange { removed: Some(removed), ..self.releases }, ..self }
    }
}

/// By gate.
pub(super) static DEPENDENCIES: &[GateDependency] = &[
    requires("AuthorizeNodeWithSelectors", &["AuthorizeWithSelectors"]).removed(R37),
    requires("ClusterTrustBundleProjection", &["ClusterTrustBundle"]),
    requires("CompositePodGroup", &["GenericWorkload", "TopologyAwareWorkloadScheduling"]).since(R37),
    requires("DRAAdminAccess", &["DynamicResourceAllocation"]),
    requires("DRAConsumableCapacity", &["DynamicResourceAllocation"]),
    requires("DRADerivedAttributes", &["DynamicResourceAllocation"]).since(R37),
    requires("DRADeviceBindingConditions", &["DRAResourceClaimDeviceStatus", "DynamicResourceAllocation"]),
    requires("DRADeviceCompatibilityGroups", &["DRAPartitionableDevices", "DynamicResourceAllocation"]).since(R37),
    requires("DRADeviceTaintRules", &["DRADeviceTaints"]),
    requires("DRADeviceTaints", &["DynamicResourceAllocation"]),
    requires("DRAExtendedResource", &["DynamicResourceAllocation"]),
    requires("DRAFractionalCapacityRange", &["DRAConsumableCapacity"]).since(R37),
    requires("DRAListTypeAttributes", &["DynamicResourceAllocation"]).since(R36),
    requires("DRANodeAllocatableResources", &["DynamicResourceAllocation"]).since(R36),
    requires("DRAOptionalNodeOperations", &["DynamicResourceAllocation", "NodeDeclaredFeatures"]).since(R37),
    requires("DRAPartitionableDevices", &["DynamicResourceAllocation"]),
    requires(
        "DRAPartitionableDevicesType",
        &["DRAPartitionableDevices", "DRAResourcePoolStatus", "DynamicResourceAllocation"],
    )
    .since(R37),
    requires("DRAPrioritizedList", &["DynamicResourceAllocation"]),
    requires(
        "DRAResourceClaimGranularStatusAuthorization",
        &["DRAResourceClaimDeviceStatus", "DynamicResourceAllocation"],
    )
    .since(R36),
    requires("DRAResourcePoolStatus", &["DynamicResourceAllocation"]).since(R36),
    requires("DRASchedulerFilterTimeout", &["DynamicResourceAllocation"]),
    requires("DRAWorkloadResourceClaims", &["DynamicResourceAllocation", "GenericWorkload"]).since(R36),
    requires("DeclarativeValidationBeta", &["DeclarativeValidation"]).since(R36),
    requires("DeclarativeValidationTakeover", &["DeclarativeValidation"]),
    requires("DisableAllocatorDualWrite", &["MultiCIDRServiceAllocator"]),
    requires("EventedPLEG", &["PLEGOnDemandRelist"]).since(R37),
    requires("ExtendWebSocketsToKubelet", &["NodeDeclaredFeatures"]).since(R36),
    requires("GangScheduling", &["GenericWorkload"]).removed(R37),
    requires("GracefulNodeShutdownBasedOnPodPriority", &["GracefulNodeShutdown"]),
    requires("H2CContainerProbe", &["NodeDeclaredFeatures"]).since(R37),
    requires("ImageVolumeWithDigest", &["ImageVolume"]).since(R36),
    requires(
        "InPlacePodLevelResourcesVerticalScaling",
        &["InPlacePodVerticalScaling", "NodeDeclaredFeatures", "PodLevelResources"],
    ),
    requires("InPlacePodVerticalScalingAllocatedStatus", &["InPlacePodVerticalScaling"]).removed(R36),
    requires("InPlacePodVerticalScalingExclusiveCPUs", &["InPlacePodVerticalScaling"]),
    requires("InPlacePodVerticalScalingExclusiveMemory", &["InPlacePodVerticalScaling", "MemoryManager"]).removed(R36),
    requires("InPlacePodVerticalScalingExclusiveMemory", &["InPlacePodVerticalScaling"]).since(R36),
    requires("InPlacePodVerticalScalingInitContainers", &["InPlacePodVerticalScaling", "NodeDeclaredFeatures"])
        .since(R36),
    requires("InPlacePodVerticalScalingMemoryBackedVolumes", &["InPlacePodVerticalScaling", "NodeDeclaredFeatures"])
        .since(R37),
    requires("InPlacePodVerticalScalingSchedulerPreemption", &["InPlacePodVerticalScaling"]).since(R37),
    requires("KubeletAllocatedPodsEndpoint", &["InPlacePodVerticalScaling"]).since(R37),
    requires("MatchLabelKeysInPodTopologySpreadSelectorMerge", &["MatchLabelKeysInPodTopologySpread"]),
    requires("NodeControllerLeaseCircuitBreaker", &["AtomicFIFO"]).since(R37),
    requires("PodCertificateRequest", &["AuthorizeNodeWithSelectors"]).removed(R37),
    requires("PodGroupPreemptionPolicy", &["GenericWorkload"]).since(R37),
    requires("PodLevelResourceManagers", &["PodLevelResources"]).since(R36),
    requires("PodLevelResourcesFixDefaulting", &["PodLevelResources"]).since(R37),
    requires("PodLevelResourcesFixKubeletQOSClass", &["PodLevelResources"]).since(R37),
    requires("PodLifecycleSleepActionAllowZero", &["PodLifecycleSleepAction"]).removed(R37),
    requires("ProcMountType", &["UserNamespacesSupport"]),
    requires("ResourceHealthStatus", &["DynamicResourceAllocation"]),
    requires("ResourceHealthStatusMessage", &["ResourceHealthStatus"]).since(R36),
    requires("RestartAllContainersOnContainerExits", &["ContainerRestartRules", "NodeDeclaredFeatures"]),
    requires("ServiceAccountTokenNodeBinding", &["ServiceAccountTokenNodeBindingValidation"]),
    requires("StaleControllerConsistencyDaemonSet", &["AtomicFIFO"]).since(R36),
    requires("StaleControllerConsistencyHPA", &["AtomicFIFO"]).since(R37),
    requires("StaleControllerConsistencyJob", &["AtomicFIFO"]).since(R36),
    requires("StaleControllerConsistencyReplicaSet", &["AtomicFIFO"]).since(R36),
    requires("StaleControllerConsistencyStatefulSet", &["AtomicFIFO"]).since(R36),
    requires("StorageVersionAPI", &["APIServerIdentity"]).since(R31),
    requires("StructuredAuthenticationConfigurationEgressSelector", &["StructuredAuthenticationConfiguration"])
        .removed(R37),
    requires("StructuredAuthenticationConfigurationJWKSMetrics", &["StructuredAuthenticationConfiguration"])
        .removed(R37),
    requires("TopologyAwareWorkloadScheduling", &["GenericWorkload"]).since(R36),
    requires("UnknownVersionInteroperabilityProxy", &["APIServerIdentity"]).since(R31),
    requires("UserNamespacesHostNetworkSupport", &["NodeDeclaredFeatures", "UserNamespacesSupport"]).since(R36),
    requires("UserNamespacesHostNetworkSupport", &["UserNamespacesSupport"]).removed(R36),
    requires("WindowsCPUAndMemoryAffinity", &["MemoryManager"]).removed(R36),
    requires("WindowsGracefulNodeShutdown", &["GracefulNodeShutdown"]),
    requires("WorkloadAwarePreemption", &["GangScheduling"]).since(R36).removed(R37),
    requires("WorkloadWithJob", &["GenericWorkload"]).since(R36),
];

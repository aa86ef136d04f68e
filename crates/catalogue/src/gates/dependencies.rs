//! Which gate cannot be on without which others.
//!
//! kube-apiserver checks this from 1.35 on. The two that this server turns on by itself are checked in every release.

use crate::release::Release::{self, *};
use crate::release::Span;

/// A gate, and the gates it is useless without.
pub(super) struct Dependency {
    pub(super) gate: &'static str,
    /// By name, as the error lists them.
    pub(super) needs: &'static [&'static str],
    pub(super) span: Span,
}

const fn needs(gate: &'static str, needs: &'static [&'static str]) -> Dependency {
    Dependency { gate, needs, span: Span { since: R35, removed: None } }
}

impl Dependency {
    const fn since(self, since: Release) -> Self {
        Self { span: Span { since, ..self.span }, ..self }
    }

    const fn removed(self, removed: Release) -> Self {
        Self { span: Span { removed: Some(removed), ..self.span }, ..self }
    }
}

/// By gate.
pub(super) static DEPENDENCIES: &[Dependency] = &[
    needs("AuthorizeNodeWithSelectors", &["AuthorizeWithSelectors"]).removed(R37),
    needs("ClusterTrustBundleProjection", &["ClusterTrustBundle"]),
    needs("CompositePodGroup", &["GenericWorkload", "TopologyAwareWorkloadScheduling"]).since(R37),
    needs("DRAAdminAccess", &["DynamicResourceAllocation"]),
    needs("DRAConsumableCapacity", &["DynamicResourceAllocation"]),
    needs("DRADerivedAttributes", &["DynamicResourceAllocation"]).since(R37),
    needs("DRADeviceBindingConditions", &["DRAResourceClaimDeviceStatus", "DynamicResourceAllocation"]),
    needs("DRADeviceCompatibilityGroups", &["DRAPartitionableDevices", "DynamicResourceAllocation"]).since(R37),
    needs("DRADeviceTaintRules", &["DRADeviceTaints"]),
    needs("DRADeviceTaints", &["DynamicResourceAllocation"]),
    needs("DRAExtendedResource", &["DynamicResourceAllocation"]),
    needs("DRAFractionalCapacityRange", &["DRAConsumableCapacity"]).since(R37),
    needs("DRAListTypeAttributes", &["DynamicResourceAllocation"]).since(R36),
    needs("DRANodeAllocatableResources", &["DynamicResourceAllocation"]).since(R36),
    needs("DRAOptionalNodeOperations", &["DynamicResourceAllocation", "NodeDeclaredFeatures"]).since(R37),
    needs("DRAPartitionableDevices", &["DynamicResourceAllocation"]),
    needs(
        "DRAPartitionableDevicesType",
        &["DRAPartitionableDevices", "DRAResourcePoolStatus", "DynamicResourceAllocation"],
    )
    .since(R37),
    needs("DRAPrioritizedList", &["DynamicResourceAllocation"]),
    needs(
        "DRAResourceClaimGranularStatusAuthorization",
        &["DRAResourceClaimDeviceStatus", "DynamicResourceAllocation"],
    )
    .since(R36),
    needs("DRAResourcePoolStatus", &["DynamicResourceAllocation"]).since(R36),
    needs("DRASchedulerFilterTimeout", &["DynamicResourceAllocation"]),
    needs("DRAWorkloadResourceClaims", &["DynamicResourceAllocation", "GenericWorkload"]).since(R36),
    needs("DeclarativeValidationBeta", &["DeclarativeValidation"]).since(R36),
    needs("DeclarativeValidationTakeover", &["DeclarativeValidation"]),
    needs("DisableAllocatorDualWrite", &["MultiCIDRServiceAllocator"]),
    needs("EventedPLEG", &["PLEGOnDemandRelist"]).since(R37),
    needs("ExtendWebSocketsToKubelet", &["NodeDeclaredFeatures"]).since(R36),
    needs("GangScheduling", &["GenericWorkload"]).removed(R37),
    needs("GracefulNodeShutdownBasedOnPodPriority", &["GracefulNodeShutdown"]),
    needs("H2CContainerProbe", &["NodeDeclaredFeatures"]).since(R37),
    needs("ImageVolumeWithDigest", &["ImageVolume"]).since(R36),
    needs(
        "InPlacePodLevelResourcesVerticalScaling",
        &["InPlacePodVerticalScaling", "NodeDeclaredFeatures", "PodLevelResources"],
    ),
    needs("InPlacePodVerticalScalingAllocatedStatus", &["InPlacePodVerticalScaling"]).removed(R36),
    needs("InPlacePodVerticalScalingExclusiveCPUs", &["InPlacePodVerticalScaling"]),
    needs("InPlacePodVerticalScalingExclusiveMemory", &["InPlacePodVerticalScaling", "MemoryManager"]).removed(R36),
    needs("InPlacePodVerticalScalingExclusiveMemory", &["InPlacePodVerticalScaling"]).since(R36),
    needs("InPlacePodVerticalScalingInitContainers", &["InPlacePodVerticalScaling", "NodeDeclaredFeatures"]).since(R36),
    needs("InPlacePodVerticalScalingMemoryBackedVolumes", &["InPlacePodVerticalScaling", "NodeDeclaredFeatures"])
        .since(R37),
    needs("InPlacePodVerticalScalingSchedulerPreemption", &["InPlacePodVerticalScaling"]).since(R37),
    needs("KubeletAllocatedPodsEndpoint", &["InPlacePodVerticalScaling"]).since(R37),
    needs("MatchLabelKeysInPodTopologySpreadSelectorMerge", &["MatchLabelKeysInPodTopologySpread"]),
    needs("NodeControllerLeaseCircuitBreaker", &["AtomicFIFO"]).since(R37),
    needs("PodCertificateRequest", &["AuthorizeNodeWithSelectors"]).removed(R37),
    needs("PodGroupPreemptionPolicy", &["GenericWorkload"]).since(R37),
    needs("PodLevelResourceManagers", &["PodLevelResources"]).since(R36),
    needs("PodLevelResourcesFixDefaulting", &["PodLevelResources"]).since(R37),
    needs("PodLevelResourcesFixKubeletQOSClass", &["PodLevelResources"]).since(R37),
    needs("PodLifecycleSleepActionAllowZero", &["PodLifecycleSleepAction"]).removed(R37),
    needs("ProcMountType", &["UserNamespacesSupport"]),
    needs("ResourceHealthStatus", &["DynamicResourceAllocation"]),
    needs("ResourceHealthStatusMessage", &["ResourceHealthStatus"]).since(R36),
    needs("RestartAllContainersOnContainerExits", &["ContainerRestartRules", "NodeDeclaredFeatures"]),
    needs("ServiceAccountTokenNodeBinding", &["ServiceAccountTokenNodeBindingValidation"]),
    needs("StaleControllerConsistencyDaemonSet", &["AtomicFIFO"]).since(R36),
    needs("StaleControllerConsistencyHPA", &["AtomicFIFO"]).since(R37),
    needs("StaleControllerConsistencyJob", &["AtomicFIFO"]).since(R36),
    needs("StaleControllerConsistencyReplicaSet", &["AtomicFIFO"]).since(R36),
    needs("StaleControllerConsistencyStatefulSet", &["AtomicFIFO"]).since(R36),
    needs("StorageVersionAPI", &["APIServerIdentity"]).since(R31),
    needs("StructuredAuthenticationConfigurationEgressSelector", &["StructuredAuthenticationConfiguration"])
        .removed(R37),
    needs("StructuredAuthenticationConfigurationJWKSMetrics", &["StructuredAuthenticationConfiguration"]).removed(R37),
    needs("TopologyAwareWorkloadScheduling", &["GenericWorkload"]).since(R36),
    needs("UnknownVersionInteroperabilityProxy", &["APIServerIdentity"]).since(R31),
    needs("UserNamespacesHostNetworkSupport", &["NodeDeclaredFeatures", "UserNamespacesSupport"]).since(R36),
    needs("UserNamespacesHostNetworkSupport", &["UserNamespacesSupport"]).removed(R36),
    needs("WindowsCPUAndMemoryAffinity", &["MemoryManager"]).removed(R36),
    needs("WindowsGracefulNodeShutdown", &["GracefulNodeShutdown"]),
    needs("WorkloadAwarePreemption", &["GangScheduling"]).since(R36).removed(R37),
    needs("WorkloadWithJob", &["GenericWorkload"]).since(R36),
];

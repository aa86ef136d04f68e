//! Every feature gate of kube-apiserver, by release.

use super::{FeatureSpec, FeatureStage, GateLock};
use crate::release::Release;

/// A gate and its spec in each release.
pub(super) struct GateRow {
    pub(super) name: &'static str,
    specs: [Option<FeatureSpec>; Release::ALL.len()],
}

impl GateRow {
    /// `None` if the release does not have the gate.
    pub(super) fn spec(&self, release: Release) -> Option<FeatureSpec> {
        self.specs[release.index()]
    }
}

/// Stage letters; a capital letter means enabled by default.
macro_rules! spec {
    (.) => {
        None
    };
    (a) => {
        Some(FeatureSpec { stage: FeatureStage::Alpha, default: false, lock: GateLock::Unlocked })
    };
    (A) => {
        Some(FeatureSpec { stage: FeatureStage::Alpha, default: true, lock: GateLock::Unlocked })
    };
    (b) => {
        Some(FeatureSpec { stage: FeatureStage::Beta, default: false, lock: GateLock::Unlocked })
    };
    (B) => {
        Some(FeatureSpec { stage: FeatureStage::Beta, default: true, lock: GateLock::Unlocked })
    };
    (S) => {
        Some(FeatureSpec { stage: FeatureStage::Stable, default: true, lock: GateLock::Unlocked })
    };
    (L) => {
        Some(FeatureSpec { stage: FeatureStage::Stable, default: true, lock: GateLock::Locked })
    };
    (d) => {
        Some(FeatureSpec { stage: FeatureStage::Deprecated, default: false, lock: GateLock::Unlocked })
    };
    (D) => {
        Some(FeatureSpec { stage: FeatureStage::Deprecated, default: true, lock: GateLock::Unlocked })
    };
    (x) => {
        Some(FeatureSpec { stage: FeatureStage::Deprecated, default: false, lock: GateLock::Locked })
    };
    (X) => {
        Some(FeatureSpec { stage: FeatureStage::Deprecated, default: true, lock: GateLock::Locked })
    };
}

macro_rules! gates {
    ($($name:ident $r31:tt $r32:tt $r33:tt $r34:tt $r35:tt $r36:tt $r37:tt)*) => {
        /// By name.
        pub(super) static GATES: &[GateRow] = &[$(GateRow {
            name: stringify!($name),
            specs: [spec!($r31), spec!($r32), spec!($r33), spec!($r34), spec!($r35), spec!($r36), spec!($r37)],
        }),*];
    };
}

// a, b: alpha, beta; S: stable; L: stable and locked; d: deprecated; x: deprecated and locked; a capital: on by
// default; a dot: not known. The columns are 1.31 to 1.37.
gates! {
    APIListChunking                                      L L . . . . .
    APIResponseCompression                               B B B B B B B
    APIServerIdentity                                    B B B B B B B
    APIServerTracing                                     B B B L L L .
    APIServerWebhookAuthenticationToken                  . . . . . . a
    APIServingWithRoutine                                a a a a a a a
    AdmissionWebhookMatchConditions                      L L . . . . .
    AggregatedDiscoveryEndpoint                          L L . . . . .
    AggregatedDiscoveryRemoveBetaType                    . . D D X X X
    AllowDNSOnlyNodeCSR                                  d d d d d d d
    AllowInsecureKubeletCertificateSigningRequests       d d d d d d d
    AllowOverwriteTerminationGracePeriodSeconds          . d d d x x x
    AllowParsingUserUIDFromCertAuth                      . . B B B B B
    AllowServiceExternalIPs                              . . . . . S S
    AllowServiceLBStatusOnNonLB                          d x x x . . .
    AllowUnsafeMalformedObjectDeletion                   . a a a a a B
    AnonymousAuthConfigurableEndpoints                   a B B L L L .
    AnyVolumeDataSource                                  B B L L L L .
    AppArmor                                             L L . . . . .
    AppArmorFields                                       L L . . . . .
    AtomicFIFO                                           . . . . . B B
    AtomicWriteVolumeUserFields                          . . . . . . a
    AuthorizeNodeWithSelectors                           a B B L L L .
    AuthorizePodWebsocketUpgradeCreatePermission         . . . . B B B
    AuthorizeWithSelectors                               a B B L L L .
    BtreeWatchCache                                      . B L L L L .
    CBORServingAndStorage                                . a a a a a a
    CPUManager                                           L L . . . . .
    CPUManagerPolicyAlphaOptions                         a a a a a a a
    CPUManagerPolicyBetaOptions                          B B B B B B B
    CPUManagerPolicyOptions                              B B L L L L L
    CRDObservedGenerationTracking                        . . . . b B B
    CRDValidationRatcheting                              B B L L L L L
    CRIListStreaming                                     . . . . . a a
    CSIMigrationPortworx                                 B B L L L . .
    CSIServiceAccountTokenSecrets                        . . . . B L L
    CSIVolumeHealth                                      a a a a a a a
    ChangeContainerStatusOnKubeletRestart                . . . . d d d
    ClearingNominatedNodeNameAfterBinding                . . . a B B B
    ClientsAllowCARotation                               . . . . . B B
    ClientsAllowCBOR                                     . a a a a a a
    ClientsAllowTLSCacheGC                               . . . . . B B
    ClientsPreferCBOR                                    . a a a a a a
    CloudControllerManagerWatchBasedRoutesReconciliation . . . . a a a
    CloudControllerManagerWebhook                        a a a a a a a
    CloudDualStackNodeIPs                                L . . . . . .
    ClusterTrustBundle                                   a a b b b b S
    ClusterTrustBundleProjection                         a a b b b b S
    ComponentFlagz                                       . a a a a B B
    ComponentSLIs                                        B L L L . . .
    ComponentStatusz                                     . a a a a B B
    CompositePodGroup                                    . . . . . . a
    ConcurrentWatchObjectDecode                          b b b b b b B
    ConsistentListFromCache                              B B B L L L .
    ConsistentListFromCacheSkipTimeoutFallback           . . . . . . a
    ConstrainedImpersonation                             . . . . a B B
    ContainerCheckpoint                                  B B B B B B B
    ContainerRestartRules                                . . . a B B B
    ContainerStopSignals                                 . . a a a a a
    ContextualLogging                                    b b B B B B B
    CoordinatedLeaderElection                            a a b b b b b
    CronJobsScheduledAnnotation                          B L L L . . .
    CrossNamespaceVolumeDataSource                       a a a a a a a
    CustomCPUCFSQuotaPeriod                              a a a a a S S
    CustomResourceFieldSelectors                         B L L L L L L
    DRAAdminAccess                                       . a a B B L L
    DRAConsumableCapacity                                . . . a a B B
    DRAControlPlaneController                            a . . . . . .
    DRADerivedAttributes                                 . . . . . . a
    DRADeviceBindingConditions                           . . . a a B B
    DRADeviceCompatibilityGroups                         . . . . . . a
    DRADeviceTaintRules                                  . . . . a b S
    DRADeviceTaints                                      . . a a a B S
    DRAExtendedResource                                  . . . a a B L
    DRAFractionalCapacityRange                           . . . . . . b
    DRAListTypeAttributes                                . . . . . a a
    DRANodeAllocatableResources                          . . . . . a a
    DRAOptionalNodeOperations                            . . . . . . a
    DRAPartitionableDevices                              . . a a a B B
    DRAPartitionableDevicesType                          . . . . . . a
    DRAPrioritizedList                                   . . a B B S L
    DRAResourceClaimDeviceStatus                         . a B B B B L
    DRAResourceClaimGranularStatusAuthorization          . . . . . B B
    DRAResourcePoolStatus                                . . . . . a a
    DRASchedulerFilterTimeout                            . . . B B B B
    DRAWorkloadResourceClaims                            . . . . . a b
    DeclarativeValidation                                . . B B B L L
    DeclarativeValidationBeta                            . . . . . B B
    DeclarativeValidationTakeover                        . . b b b d x
    DefaultPodSysctls                                    . . . . . . a
    DeploymentReplicaSetTerminatingReplicas              . . a a B B B
    DetectCacheInconsistency                             . . . B B B B
    DevicePluginCDIDevices                               L L L . . . .
    DisableAllocatorDualWrite                            a a b S L L L
    DisableCPUQuotaWithExclusiveCPUs                     . . B B B D X
    DisableCloudProviders                                L L . . . . .
    DisableKubeletCloudCredentialProviders               L L . . . . .
    DisableNodeKubeProxyVersion                          d d D D D X X
    DynamicResourceAllocation                            a b b S L L L
    EfficientWatchResumption                             L L . . . . .
    ElasticIndexedJob                                    L L L . . . .
    EmptyDirVolumeMode                                   . . . . . . a
    EnvFiles                                             . . . a B B B
    EtcdRangeStream                                      . . . . . . B
    EventedPLEG                                          a a a a a a a
    EvictionRequestAPI                                   . . . . . . a
    ExcludeAdmissionWebhookVirtualResources              . . . . . . B
    ExecProbeTimeout                                     S S S S L L L
    ExtendWebSocketsToKubelet                            . . . . . B B
    ExternalServiceAccountTokenSigner                    . a a B B L L
    GRPCContainerProbeTLS                                . . . . . . a
    GangScheduling                                       . . . . a a .
    GenericWorkload                                      . . . . a a b
    GitRepoVolumeDriver                                  . . d d d x x
    GracefulNodeShutdown                                 B B B B B B B
    GracefulNodeShutdownBasedOnPodPriority               B B B B B B B
    H2CContainerProbe                                    . . . . . . a
    HPAConfigurableTolerance                             . . a a B B L
    HPAContainerMetrics                                  L . . . . . .
    HPAGeneration                                        . . . . . . B
    HPAOptimizedSelectorStore                            . . . . . . B
    HPAScaleToZero                                       a a a a a a B
    HonorPVReclaimPolicy                                 B B L L L . .
    HostnameOverride                                     . . . a B B L
    HugepageAwareEviction                                . . . . . . B
    ImageMaximumGCAge                                    B B B B L L L
    ImageVolume                                          a a b b B L L
    ImageVolumeWithDigest                                . . . . . a a
    InOrderInformers                                     . . B B B L L
    InOrderInformersBatchProcess                         . . . . B B B
    InPlacePodLevelResourcesVerticalScaling              . . . . a B B
    InPlacePodVerticalScaling                            a a B B L L L
    InPlacePodVerticalScalingAllocatedStatus             . a d d d . .
    InPlacePodVerticalScalingExclusiveCPUs               . a a a a a a
    InPlacePodVerticalScalingExclusiveMemory             . . . a a a a
    InPlacePodVerticalScalingInitContainers              . . . . . B L
    InPlacePodVerticalScalingMemoryBackedVolumes         . . . . . . a
    InPlacePodVerticalScalingSchedulerPreemption         . . . . . . a
    InTreePluginPortworxUnregister                       a a a a a . .
    InformerResourceVersion                              a a a a S S S
    InterPodAffinityHostnameFastPath                     . . . . . . a
    JobBackoffLimitPerIndex                              B B L L L L .
    JobManagedBy                                         a B B B L L L
    JobPodFailurePolicy                                  L L . . . . .
    JobPodReplacementPolicy                              B B B L L L .
    JobSuccessPolicy                                     B B L L L L .
    KMSv1                                                d d d d d d d
    KMSv2                                                L . . . . . .
    KMSv2KDF                                             L . . . . . .
    KubeProxyDrainingTerminatingNodes                    L L . . . . .
    KubeProxyIPVS                                        . . . . . . D
    KubeProxyNFTablesLocalhostNodePorts                  . . . . . . a
    KubeletAllocatedPodsEndpoint                         . . . . . . a
    KubeletCgroupDriverFromCRI                           B B B L L L L
    KubeletCrashLoopBackOffMax                           . a a a B B B
    KubeletEnsureSecretPulledImages                      . . a a B B B
    KubeletFineGrainedAuthz                              . a B B B L L
    KubeletInUserNamespace                               a a a a a a B
    KubeletPSI                                           . . a B B L L
    KubeletPodResourcesDynamicResources                  a a a B B L L
    KubeletPodResourcesGet                               a a a B B L L
    KubeletPodResourcesListUseActivePods                 . . . D D D D
    KubeletRegistrationGetOnExistsOnly                   . d d d d d d
    KubeletSeparateDiskGC                                B B B B B B B
    KubeletServiceAccountTokenForCredentialProviders     . . a B B B B
    KubeletTracing                                       B B B L L L L
    LegacyServiceAccountTokenCleanUp                     L . . . . . .
    LegacySidecarContainers                              . . d . . . .
    ListFromCacheSnapshot                                . . a B B B B
    LoadBalancerIPMode                                   B L L L . . .
    LocalStorageCapacityIsolationFSQuotaMonitoring       b b b b b b b
    LogarithmicScaleDown                                 L L L L L L .
    LoggingAlphaOptions                                  a a a a a a a
    LoggingBetaOptions                                   B B B B B B B
    ManifestBasedAdmissionControlConfig                  . . . . . a B
    MatchLabelKeysInPodAffinity                          B B L L L L L
    MatchLabelKeysInPodTopologySpread                    B B B B B B B
    MatchLabelKeysInPodTopologySpreadSelectorMerge       . . . B B B B
    MaxUnavailableStatefulSet                            a a a a b b B
    MemoryManager                                        B L L L L . .
    MemoryQoS                                            a a a a a a B
    MinDomainsInPodTopologySpread                        L . . . . . .
    MultiCIDRServiceAllocator                            b b S L L L L
    MutableCSINodeAllocatableCount                       . . a b B L L
    MutablePVNodeAffinity                                . . . . a a a
    MutablePodResourcesForSuspendedJobs                  . . . . a B B
    MutableSchedulingDirectivesForSuspendedJobs          . . . . a B B
    MutatingAdmissionPolicy                              a a a b b S S
    NFTablesNetlink                                      . . . . . . B
    NFTablesProxyMode                                    B B L L L L L
    NativeHistograms                                     . . . . . a B
    NewVolumeManagerReconstruction                       L . . . . . .
    NodeControllerLeaseCircuitBreaker                    . . . . . . B
    NodeDeclaredFeatures                                 . . . . a B L
    NodeInclusionPolicyInPodTopologySpread               B B L L L L L
    NodeLifecycleConditions                              . . . . . . a
    NodeLogQuery                                         b b b b b L L
    NodeOutOfServiceVolumeDetach                         L . . . . . .
    NodeSwap                                             B B B L L L L
    NominatedNodeNameForExpectation                      . . . a B B B
    OpenAPIEnums                                         B B B B B B B
    OpportunisticBatching                                . . . . B B B
    OrderedNamespaceDeletion                             b b B L L L .
    PDBUnhealthyPodEvictionPolicy                        L L . . . . .
    PLEGOnDemandRelist                                   . . . . . B L
    PersistentVolumeClaimUnusedSinceTime                 . . . . . a B
    PersistentVolumeLastPhaseTransitionTime              L L . . . . .
    PodAndContainerStatsFromCRI                          a a a a a a b
    PodCertificateRequest                                . . . a b b S
    PodDeletionCost                                      B B B B B B B
    PodDisruptionConditions                              L L L . . . .
    PodGroupPreemptionPolicy                             . . . . . . a
    PodHostIPs                                           L . . . . . .
    PodIndexLabel                                        B L L L . . .
    PodLevelResourceManagers                             . . . . . a b
    PodLevelResources                                    . a a B B B B
    PodLevelResourcesFixDefaulting                       . . . . . . B
    PodLevelResourcesFixKubeletQOSClass                  . . . . . . B
    PodLifecycleSleepAction                              B B B L L L .
    PodLifecycleSleepActionAllowZero                     . a B L L L .
    PodLogsQuerySplitStreams                             . a a a a a a
    PodObservedGenerationTracking                        . . a B L L L
    PodReadyToStartContainersCondition                   B B B B B B L
    PodSchedulingReadiness                               L L L L L L L
    PodTopologyLabelsAdmission                           . . a a B B B
    PodsAPI                                              . . . . . a B
    PortForwardWebsockets                                B B B B B B B
    PreferSameTrafficDistribution                        . . a B L L L
    PreventStaticPodAPIReferences                        . . . B B B .
    ProbeHostPodSecurityStandards                        . . . L . . .
    ProcMountType                                        b b B B B L L
    QOSReserved                                          a a a a a a a
    RecoverVolumeExpansionFailure                        a B B L L L L
    RecursiveReadOnlyMounts                              B B L L L L L
    ReduceDefaultCrashLoopBackOffDecay                   . . a a a a a
    RelaxedDNSSearchValidation                           . a B L L L .
    RelaxedEnvironmentVariableValidation                 a B B L L L L
    RelaxedServiceNameValidation                         . . . a a B L
    ReloadKubeletClientCAFile                            . . . . . B B
    ReloadKubeletServerCertificateFile                   B B B B B B B
    RemainingItemCount                                   L L . . . . .
    RemoteRequestHeaderUID                               . a B B B B B
    ResilientWatchCacheInitialization                    B B B L L L .
    ResourceHealthStatus                                 a a a a a B B
    ResourceHealthStatusMessage                          . . . . . B B
    RestartAllContainersOnContainerExits                 . . . . a B B
    RetryGenerateName                                    B L L L L L .
    RotateKubeletServerCertificate                       B B B B B B B
    RuntimeClassInImageCriApi                            a a a a a a a
    SELinuxChangePolicy                                  . a B B B L L
    SELinuxMount                                         a a b b b b S
    SELinuxMountReadWriteOncePod                         B B B B B L L
    SchedulerAsyncAPICalls                               . . . b b b b
    SchedulerAsyncPreemption                             . a B B B B B
    SchedulerPopFromBackoffQ                             . . B B B B B
    SchedulerPreQueueingHints                            . . . . . . a
    SchedulerQueueingHints                               b B B L L L .
    SeparateCacheWatchRPC                                B B d d d x x
    SeparateTaintEvictionController                      B B B L L L L
    ServerSideApply                                      L . . . . . .
    ServerSideFieldValidation                            L . . . . . .
    ServiceAccountNodeAudienceRestriction                . b B B B B B
    ServiceAccountTokenJTI                               B L L L L L L
    ServiceAccountTokenNodeBinding                       B B L L L L L
    ServiceAccountTokenNodeBindingValidation             B L L L L L L
    ServiceAccountTokenPodNodeInfo                       B L L L L L L
    ServiceCIDRStatusFieldWiping                         . . . . . D D
    ServiceTrafficDistribution                           B B L L L . .
    ShardedListAndWatch                                  . . . . . a a
    SidecarContainers                                    B B L L L L .
    SizeBasedListCostEstimate                            . . . B B B B
    SizeMemoryBackedVolumes                              B L L L . . .
    StableLoadBalancerNodeSet                            L . . . . . .
    StaleControllerConsistencyDaemonSet                  . . . . . B B
    StaleControllerConsistencyHPA                        . . . . . . B
    StaleControllerConsistencyJob                        . . . . . B B
    StaleControllerConsistencyReplicaSet                 . . . . . B B
    StaleControllerConsistencyStatefulSet                . . . . . B B
    StatefulSetAutoDeletePVC                             B L L L . . .
    StatefulSetRecreateStrategy                          . . . . . . a
    StatefulSetSemanticRevisionComparison                . . . B B B B
    StatefulSetStartOrdinal                              L L L . . . .
    StorageCapacityScoring                               . . a a a a B
    StorageNamespaceIndex                                B B D D D D D
    StorageVersionAPI                                    a a a a a a a
    StorageVersionHash                                   B B B B B B B
    StorageVersionMigrator                               a a a a b b S
    StreamingCollectionEncodingToJSON                    . . B L L L .
    StreamingCollectionEncodingToProtobuf                . . B L L L .
    StrictCostEnforcementForVAP                          b L L L . . .
    StrictCostEnforcementForWebhooks                     b L L L . . .
    StrictIPCIDRValidation                               . . a a a B B
    StructuredAuthenticationConfiguration                B B B L L L .
    StructuredAuthenticationConfigurationEgressSelector  . . . B B B B
    StructuredAuthenticationConfigurationJWKSMetrics     . . . . B B B
    StructuredAuthorizationConfiguration                 B L L L L . .
    SupplementalGroupsPolicy                             a a B B L L L
    SystemdWatchdog                                      . B B B L L L
    TaintTolerationComparisonOperators                   . . . . a a a
    TokenRequestServiceAccountUIDValidation              . . . B B B B
    TopologyAwareHints                                   B B L L L . .
    TopologyAwareWorkloadScheduling                      . . . . . a a
    TopologyManagerPolicyAlphaOptions                    a a a a a a a
    TopologyManagerPolicyBetaOptions                     B B B B B B B
    TopologyManagerPolicyOptions                         B S S S S L L
    TranslateStreamCloseWebsocketRequests                B B B B B B B
    UnauthenticatedHTTP2DOSMitigation                    B B B B B B B
    UnknownVersionInteroperabilityProxy                  a a a a a B B
    UnlockWhileProcessingFIFO                            . . . . . B B
    UserNamespacesHostNetworkSupport                     . . . . a a a
    UserNamespacesPodSecurityStandards                   a a a a . . .
    UserNamespacesSupport                                b b B B B L L
    ValidatingAdmissionPolicy                            L . . . . . .
    VolumeAttributesClass                                b b b S S L L
    VolumeBindMountOptions                               . . . . . . a
    VolumeCapacityPriority                               a a . . . . .
    VolumeLimitScaling                                   . . . . a a B
    WatchBookmark                                        L L . . . . .
    WatchCacheInitializationPostStartHook                b b b b b B L
    WatchFromStorageWithoutResourceVersion               b b x x x . .
    WatchList                                            a B b B B B B
    WatchListClient                                      b b b b B B B
    WatchListCompression                                 . . . . . . B
    WebhookRoundTripLoadBalancing                        . . . . . . B
    WinDSR                                               a a B L L L L
    WinOverlay                                           B B B L L L L
    WindowsCPUAndMemoryAffinity                          . a a a a a a
    WindowsGracefulNodeShutdown                          . a a B B B B
    WindowsHostNetwork                                   A A d d d d d
    WorkloadAwarePreemption                              . . . . . a .
    WorkloadWithJob                                      . . . . . a a
    ZeroLimitedNominalConcurrencyShares                  L . . . . . .
}

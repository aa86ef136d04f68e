use expect_test::expect;

use super::*;
use crate::release::Release::*;

#[test]
#[expect(clippy::too_many_lines, reason = "most of it is expected output")]
fn diff_text_lists_upgrade_changes() {
    expect![[r#"
        Kubernetes 1.33 -> 1.34

        appears
          admissionregistration.k8s.io/v1beta1  mutatingadmissionpolicies, off by default
          admissionregistration.k8s.io/v1beta1  mutatingadmissionpolicybindings, off by default
          certificates.k8s.io/v1alpha1          podcertificaterequests (status), off by default
          resource.k8s.io/v1                    deviceclasses
          resource.k8s.io/v1                    resourceclaims (status)
          resource.k8s.io/v1                    resourceclaimtemplates
          resource.k8s.io/v1                    resourceslices
          storage.k8s.io/v1                     volumeattributesclasses

        disappears
          admissionregistration.k8s.io/v1beta1  validatingadmissionpolicies (status), off by default
          admissionregistration.k8s.io/v1beta1  validatingadmissionpolicybindings, off by default
          resource.k8s.io/v1alpha3              deviceclasses, off by default
          resource.k8s.io/v1alpha3              resourceclaims (status), off by default
          resource.k8s.io/v1alpha3              resourceclaimtemplates, off by default
          resource.k8s.io/v1alpha3              resourceslices, off by default

        stored in another version
          ipaddresses.networking.k8s.io           v1beta1 -> v1
          servicecidrs.networking.k8s.io          v1beta1 -> v1
          deviceclasses.resource.k8s.io           v1beta1 -> v1beta2
          resourceclaims.resource.k8s.io          v1beta1 -> v1beta2
          resourceclaimtemplates.resource.k8s.io  v1beta1 -> v1beta2
          resourceslices.resource.k8s.io          v1beta1 -> v1beta2

        gates unknown to 1.34, which does not start when told of them
          DevicePluginCDIDevices   stable on, locked
          ElasticIndexedJob        stable on, locked
          LegacySidecarContainers  deprecated off
          PodDisruptionConditions  stable on, locked
          StatefulSetStartOrdinal  stable on, locked

        gates that are new
          ClearingNominatedNodeNameAfterBinding                alpha off
          ContainerRestartRules                                alpha off
          DRAConsumableCapacity                                alpha off
          DRADeviceBindingConditions                           alpha off
          DRAExtendedResource                                  alpha off
          DRASchedulerFilterTimeout                            beta on
          DetectCacheInconsistency                             beta on
          EnvFiles                                             alpha off
          HostnameOverride                                     alpha off
          InPlacePodVerticalScalingExclusiveMemory             alpha off
          KubeletPodResourcesListUseActivePods                 deprecated on
          MatchLabelKeysInPodTopologySpreadSelectorMerge       beta on
          NominatedNodeNameForExpectation                      alpha off
          PodCertificateRequest                                alpha off
          PreventStaticPodAPIReferences                        beta on
          ProbeHostPodSecurityStandards                        stable on, locked
          RelaxedServiceNameValidation                         alpha off
          SchedulerAsyncAPICalls                               beta off
          SizeBasedListCostEstimate                            beta on
          StatefulSetSemanticRevisionComparison                beta on
          StructuredAuthenticationConfigurationEgressSelector  beta on
          TokenRequestServiceAccountUIDValidation              beta on

        gates that change
          APIServerTracing                                  beta on -> stable on, locked
          AnonymousAuthConfigurableEndpoints                beta on -> stable on, locked
          AuthorizeNodeWithSelectors                        beta on -> stable on, locked
          AuthorizeWithSelectors                            beta on -> stable on, locked
          ConsistentListFromCache                           beta on -> stable on, locked
          DRAAdminAccess                                    alpha off -> beta on
          DRAPrioritizedList                                alpha off -> beta on
          DisableAllocatorDualWrite                         beta off -> stable on
          DynamicResourceAllocation                         beta off -> stable on
          ExternalServiceAccountTokenSigner                 alpha off -> beta on
          JobPodReplacementPolicy                           beta on -> stable on, locked
          KubeletCgroupDriverFromCRI                        beta on -> stable on, locked
          KubeletPSI                                        alpha off -> beta on
          KubeletPodResourcesDynamicResources               alpha off -> beta on
          KubeletPodResourcesGet                            alpha off -> beta on
          KubeletServiceAccountTokenForCredentialProviders  alpha off -> beta on
          KubeletTracing                                    beta on -> stable on, locked
          ListFromCacheSnapshot                             alpha off -> beta on
          MultiCIDRServiceAllocator                         stable on -> stable on, locked
          MutableCSINodeAllocatableCount                    alpha off -> beta off
          MutatingAdmissionPolicy                           alpha off -> beta off
          NodeSwap                                          beta on -> stable on, locked
          OrderedNamespaceDeletion                          beta on -> stable on, locked
          PodLevelResources                                 alpha off -> beta on
          PodLifecycleSleepAction                           beta on -> stable on, locked
          PodLifecycleSleepActionAllowZero                  beta on -> stable on, locked
          PodObservedGenerationTracking                     alpha off -> beta on
          PreferSameTrafficDistribution                     alpha off -> beta on
          RecoverVolumeExpansionFailure                     beta on -> stable on, locked
          RelaxedDNSSearchValidation                        beta on -> stable on, locked
          RelaxedEnvironmentVariableValidation              beta on -> stable on, locked
          ResilientWatchCacheInitialization                 beta on -> stable on, locked
          SchedulerQueueingHints                            beta on -> stable on, locked
          SeparateTaintEvictionController                   beta on -> stable on, locked
          StreamingCollectionEncodingToJSON                 beta on -> stable on, locked
          StreamingCollectionEncodingToProtobuf             beta on -> stable on, locked
          StructuredAuthenticationConfiguration             beta on -> stable on, locked
          VolumeAttributesClass                             beta off -> stable on
          WatchList                                         beta off -> beta on
          WinDSR                                            beta on -> stable on, locked
          WinOverlay                                        beta on -> stable on, locked
          WindowsGracefulNodeShutdown                       alpha off -> beta on
    "#]]
    .assert_eq(&diff_releases(R33, R34).to_string());
}

#[test]
#[expect(clippy::too_many_lines, reason = "most of it is expected output")]
fn diff_of_each_release_step() {
    let steps = Release::ALL.windows(2).map(|pair| {
        let text = diff_releases(pair[0], pair[1]).to_string();
        text.split("\ngates").next().unwrap().to_owned()
    });
    let steps: Vec<_> = steps.collect();
    expect![[r#"
        Kubernetes 1.31 -> 1.32

        appears
          v1                                     pods/resize, off by default
          admissionregistration.k8s.io/v1alpha1  mutatingadmissionpolicies, off by default
          admissionregistration.k8s.io/v1alpha1  mutatingadmissionpolicybindings, off by default
          coordination.k8s.io/v1alpha2           leasecandidates, off by default
          resource.k8s.io/v1beta1                deviceclasses, off by default
          resource.k8s.io/v1beta1                resourceclaims (status), off by default
          resource.k8s.io/v1beta1                resourceclaimtemplates, off by default
          resource.k8s.io/v1beta1                resourceslices, off by default

        disappears
          admissionregistration.k8s.io/v1alpha1  validatingadmissionpolicies (status), off by default
          admissionregistration.k8s.io/v1alpha1  validatingadmissionpolicybindings, off by default
          authentication.k8s.io/v1alpha1         selfsubjectreviews, off by default
          coordination.k8s.io/v1alpha1           leasecandidates, off by default
          flowcontrol.apiserver.k8s.io/v1beta3   flowschemas (status)
          flowcontrol.apiserver.k8s.io/v1beta3   prioritylevelconfigurations (status)
          resource.k8s.io/v1alpha3               podschedulingcontexts (status), off by default

        stored in another version
          leasecandidates.coordination.k8s.io     v1alpha1 -> v1alpha2
          deviceclasses.resource.k8s.io           v1alpha3 -> v1beta1
          resourceclaims.resource.k8s.io          v1alpha3 -> v1beta1
          resourceclaimtemplates.resource.k8s.io  v1alpha3 -> v1beta1
          resourceslices.resource.k8s.io          v1alpha3 -> v1beta1

        Kubernetes 1.32 -> 1.33

        appears
          certificates.k8s.io/v1beta1  clustertrustbundles, off by default
          coordination.k8s.io/v1beta1  leasecandidates, off by default
          networking.k8s.io/v1         ipaddresses
          networking.k8s.io/v1         servicecidrs (status)
          resource.k8s.io/v1alpha3     devicetaintrules, off by default
          resource.k8s.io/v1beta2      deviceclasses, off by default
          resource.k8s.io/v1beta2      resourceclaims (status), off by default
          resource.k8s.io/v1beta2      resourceclaimtemplates, off by default
          resource.k8s.io/v1beta2      resourceslices, off by default

        disappears
          authentication.k8s.io/v1beta1  selfsubjectreviews, off by default

        on by default in 1.33, not in 1.32
          v1  pods/resize

        stored in another version
          clustertrustbundles.certificates.k8s.io  v1alpha1 -> v1beta1
          leasecandidates.coordination.k8s.io      v1alpha2 -> v1beta1

        Kubernetes 1.33 -> 1.34

        appears
          admissionregistration.k8s.io/v1beta1  mutatingadmissionpolicies, off by default
          admissionregistration.k8s.io/v1beta1  mutatingadmissionpolicybindings, off by default
          certificates.k8s.io/v1alpha1          podcertificaterequests (status), off by default
          resource.k8s.io/v1                    deviceclasses
          resource.k8s.io/v1                    resourceclaims (status)
          resource.k8s.io/v1                    resourceclaimtemplates
          resource.k8s.io/v1                    resourceslices
          storage.k8s.io/v1                     volumeattributesclasses

        disappears
          admissionregistration.k8s.io/v1beta1  validatingadmissionpolicies (status), off by default
          admissionregistration.k8s.io/v1beta1  validatingadmissionpolicybindings, off by default
          resource.k8s.io/v1alpha3              deviceclasses, off by default
          resource.k8s.io/v1alpha3              resourceclaims (status), off by default
          resource.k8s.io/v1alpha3              resourceclaimtemplates, off by default
          resource.k8s.io/v1alpha3              resourceslices, off by default

        stored in another version
          ipaddresses.networking.k8s.io           v1beta1 -> v1
          servicecidrs.networking.k8s.io          v1beta1 -> v1
          deviceclasses.resource.k8s.io           v1beta1 -> v1beta2
          resourceclaims.resource.k8s.io          v1beta1 -> v1beta2
          resourceclaimtemplates.resource.k8s.io  v1beta1 -> v1beta2
          resourceslices.resource.k8s.io          v1beta1 -> v1beta2

        Kubernetes 1.34 -> 1.35

        appears
          certificates.k8s.io/v1beta1      podcertificaterequests (status), off by default
          resource.k8s.io/v1alpha3         devicetaintrules/status, off by default
          scheduling.k8s.io/v1alpha1       workloads, off by default
          storagemigration.k8s.io/v1beta1  storageversionmigrations (status), off by default

        disappears
          certificates.k8s.io/v1alpha1      podcertificaterequests (status), off by default
          storage.k8s.io/v1alpha1           volumeattributesclasses, off by default
          storagemigration.k8s.io/v1alpha1  storageversionmigrations (status), off by default

        stored in another version
          mutatingadmissionpolicies.admissionregistration.k8s.io        v1alpha1 -> v1beta1
          mutatingadmissionpolicybindings.admissionregistration.k8s.io  v1alpha1 -> v1beta1
          podcertificaterequests.certificates.k8s.io                    v1alpha1 -> v1beta1
          deviceclasses.resource.k8s.io                                 v1beta2 -> v1
          resourceclaims.resource.k8s.io                                v1beta2 -> v1
          resourceclaimtemplates.resource.k8s.io                        v1beta2 -> v1
          resourceslices.resource.k8s.io                                v1beta2 -> v1
          storageversionmigrations.storagemigration.k8s.io              v1alpha1 -> v1beta1

        Kubernetes 1.35 -> 1.36

        appears
          admissionregistration.k8s.io/v1  mutatingadmissionpolicies
          admissionregistration.k8s.io/v1  mutatingadmissionpolicybindings
          resource.k8s.io/v1alpha3         resourcepoolstatusrequests (status), off by default
          resource.k8s.io/v1beta2          devicetaintrules (status), off by default
          scheduling.k8s.io/v1alpha2       podgroups (status), off by default
          scheduling.k8s.io/v1alpha2       workloads, off by default

        disappears
          scheduling.k8s.io/v1alpha1  workloads, off by default

        stored in another version
          workloads.scheduling.k8s.io             v1alpha1 -> v1alpha2
          volumeattributesclasses.storage.k8s.io  v1beta1 -> v1

        Kubernetes 1.36 -> 1.37

        appears
          certificates.k8s.io/v1      clustertrustbundles
          certificates.k8s.io/v1      podcertificaterequests (status)
          lifecycle.k8s.io/v1alpha1   evictionrequests (status), off by default
          lifecycle.k8s.io/v1alpha1   evictions (status), off by default
          resource.k8s.io/v1          devicetaintrules (status)
          scheduling.k8s.io/v1alpha3  compositepodgroups (status), off by default
          scheduling.k8s.io/v1alpha3  podgroups (status), off by default
          scheduling.k8s.io/v1alpha3  workloads, off by default
          scheduling.k8s.io/v1beta1   podgroups (status), off by default
          scheduling.k8s.io/v1beta1   workloads, off by default
          storage.k8s.io/v1           csinodes/status
          storagemigration.k8s.io/v1  storageversionmigrations (status)

        disappears
          certificates.k8s.io/v1alpha1  clustertrustbundles, off by default
          networking.k8s.io/v1beta1     ipaddresses, off by default
          networking.k8s.io/v1beta1     servicecidrs (status), off by default
          scheduling.k8s.io/v1alpha2    podgroups (status), off by default
          scheduling.k8s.io/v1alpha2    workloads, off by default
          storage.k8s.io/v1beta1        volumeattributesclasses, off by default

        stored in another version
          mutatingadmissionpolicies.admissionregistration.k8s.io        v1beta1 -> v1
          mutatingadmissionpolicybindings.admissionregistration.k8s.io  v1beta1 -> v1
          devicetaintrules.resource.k8s.io                              v1alpha3 -> v1beta2
          podgroups.scheduling.k8s.io                                   v1alpha2 -> v1beta1
          workloads.scheduling.k8s.io                                   v1alpha2 -> v1beta1
    "#]]
    .assert_eq(&steps.join("\n"));
}

#[test]
fn diff_of_release_with_itself_is_empty() {
    for release in Release::ALL {
        assert_eq!(diff_releases(release, release).to_string(), format!("Kubernetes {release} -> {release}\n"));
    }
}

#[test]
fn diff_is_symmetric() {
    for (from, to) in Release::ALL.into_iter().flat_map(|from| Release::ALL.map(|to| (from, to))) {
        let (there, back) = (diff_releases(from, to), diff_releases(to, from));
        assert_eq!(there.added, back.removed);
        assert_eq!(there.removed, back.added);
        let turned = |change: &StorageChange| StorageChange { from: change.to, to: change.from, ..*change };
        assert_eq!(there.storage_changes, back.storage_changes.iter().map(turned).collect::<Vec<_>>());
        assert_eq!(there.gate_changes.len(), back.gate_changes.len());
        assert_eq!(there.default_changes.len(), back.default_changes.len());
    }
}

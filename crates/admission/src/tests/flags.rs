//! Plugin flags and the default set of releases.

use expect_test::{Expect, expect};
use kinds::Release;

use crate::{Chain, PluginSet};

fn check(release: Release, enable: &[&str], disable: &[&str], expected: &Expect) {
    let shown = match PluginSet::from_flags(release, enable, disable, |name| name != "ResourceQuota") {
        Ok(set) => format!("{} without {}", set.enabled().join(","), set.not_built().join(",")),
        Err(error) => error.to_string(),
    };
    expected.assert_eq(&shown);
}

#[test]
fn default_set_follows_release_and_order() {
    check(
        Release::R31,
        &[],
        &[],
        &expect![
            "NamespaceLifecycle,LimitRanger,ServiceAccount,TaintNodesByCondition,PodSecurity,Priority,DefaultTolerationSeconds,DefaultStorageClass,StorageObjectInUseProtection,PersistentVolumeClaimResize,RuntimeClass,CertificateApproval,CertificateSigning,ClusterTrustBundleAttest,CertificateSubjectRestriction,DefaultIngressClass,MutatingAdmissionWebhook,ValidatingAdmissionPolicy,ValidatingAdmissionWebhook without ResourceQuota"
        ],
    );
    check(
        Release::R36,
        &[],
        &["LimitRanger", "ServiceAccount"],
        &expect![
            "NamespaceLifecycle,TaintNodesByCondition,PodSecurity,Priority,DefaultTolerationSeconds,DefaultStorageClass,StorageObjectInUseProtection,PodGroupProtection,PersistentVolumeClaimResize,RuntimeClass,CertificateApproval,CertificateSigning,ClusterTrustBundleAttest,CertificateSubjectRestriction,DefaultIngressClass,PodTopologyLabels,PodGroupWorkloadExists,NodeDeclaredFeatureValidator,JobValidation,PodResizeValidator,MutatingAdmissionPolicy,MutatingAdmissionWebhook,ValidatingAdmissionPolicy,ValidatingAdmissionWebhook without ResourceQuota"
        ],
    );
}

#[test]
fn flags_refuse_unknown_and_overlapping_plugins() {
    check(Release::R36, &["Nonsense"], &[], &expect![[r#"enable-admission-plugins plugin "Nonsense" is unknown"#]]);
    check(Release::R36, &[], &["Nonsense"], &expect![[r#"disable-admission-plugins plugin "Nonsense" is unknown"#]]);
    check(
        Release::R36,
        &["Priority", "PodSecurity"],
        &["PodSecurity", "Priority"],
        &expect!["[PodSecurity Priority] in enable-admission-plugins and disable-admission-plugins overlapped"],
    );
}

#[test]
fn plugin_that_is_not_built_is_refused_by_name() {
    let is_built = |name: &str| Chain::is_built(name);
    let refused = PluginSet::from_flags(Release::R36, &["ImagePolicyWebhook"], &[], is_built).unwrap_err();
    expect![[
        r#"enable-admission-plugins plugin "ImagePolicyWebhook" is not built into this server; remove it from the flag"#
    ]]
    .assert_eq(&refused.to_string());
    // Plugins of the default set may be named, as kubeadm and other tools do.
    assert!(
        PluginSet::from_flags(Release::R36, &["ResourceQuota", "NodeRestriction"], &["ServiceAccount"], is_built)
            .is_ok()
    );
}

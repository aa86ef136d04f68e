//! What is valid in volumes of a pod, and in the mounts of its containers.

use std::collections::{HashMap, HashSet};

use api::validation::validate_dns1123_subdomain;

use super::PodContext;
use super::containers::PULL_POLICIES;
use super::environment::{FILE_FIELDS, check_field_reference, check_resource_reference};
use crate::persistent_volume_claim::check_claim_spec;
use crate::validation::Field;
use crate::validation::volume_sources::{
    self, AWS_ELASTIC_BLOCK_STORE, CEPH_FS, GCE_PERSISTENT_DISK, ISCSI_TOO_LONG, VolumeSource, check_one_source, source,
};

const SOURCES: &[VolumeSource] = &[
    source("emptyDir", |_| {}),
    source("hostPath", volume_sources::check_host_path),
    source("gitRepo", |source| {
        source.require(&["repository"]);
        source.at("directory").local_descending_path();
    }),
    GCE_PERSISTENT_DISK,
    AWS_ELASTIC_BLOCK_STORE,
    source("secret", |source| check_files(source, "secretName")),
    source("nfs", volume_sources::check_nfs),
    source("iscsi", |source| volume_sources::check_iscsi(source, true, "")),
    source("glusterfs", |source| source.require(&["endpoints", "path"])),
    source("flocker", volume_sources::check_flocker),
    source("persistentVolumeClaim", |source| source.require(&["claimName"])),
    source("rbd", volume_sources::check_rbd),
    source("cinder", volume_sources::check_cinder),
    CEPH_FS,
    source("quobyte", volume_sources::check_quobyte),
    VolumeSource {
        field: "downwardAPI",
        shown_as_second: "downwarAPI",
        shown: "downwardAPI",
        check: |source| {
            source.at("defaultMode").file_mode();
            source.at("items").items().for_each(|file| check_downward_file(file.reported_at(source)));
        },
    },
    source("fc", volume_sources::check_fc),
    source("flexVolume", volume_sources::check_flex),
    source("configMap", |source| check_files(source, "name")),
    source("azureFile", |source| source.require(&["secretName", "shareName"])),
    source("vsphereVolume", |source| source.require(&["volumePath"])),
    source("photonPersistentDisk", |source| source.require(&["pdID"])),
    source("portworxVolume", |source| source.require(&["volumeID"])),
    source("azureDisk", volume_sources::check_azure_disk),
    source("storageos", |source| volume_sources::check_storage_os(source, &["name"])),
    source("projected", |source| {
        source.at("defaultMode").file_mode();
        check_projected(source);
    }),
    source("scaleIO", |source| source.require(&["gateway", "system", "volumeName"])),
    source("csi", check_csi),
    source("ephemeral", |source| {
        let template = source.at("volumeClaimTemplate");
        if template.is_present() {
            check_claim_template(template);
        } else {
            template.required("");
        }
    }),
    source("image", |source| source.at("pullPolicy").require_one_of(&PULL_POLICIES)),
];
const CONFLICT: &str = "conflicting duplicate paths";
const KEY_TYPES: [&str; 6] = ["RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519"];
const MOUNT_PROPAGATIONS: [&str; 3] = ["Bidirectional", "HostToContainer", "None"];
/// Fields of the metadata of a claim template that may be set.
const TEMPLATE_METADATA: [&str; 2] = ["annotations", "labels"];

/// Checks the volumes; the valid ones, by name, and whether they can be block devices. `metadata` is that of the pod.
/// `claims` are volumes that a stateful set adds, in place of its own of the same name.
pub(super) fn check_volumes<'a>(
    volumes: Field<'a>,
    metadata: Option<Field<'a>>,
    claims: &[&'a str],
) -> HashMap<&'a str, bool> {
    let pod_name = metadata.map_or("", |metadata| metadata.at("name").text());
    let mut valid: HashMap<&str, bool> = claims.iter().map(|name| (*name, true)).collect();
    let claim_name = |volume: Field<'_>| format!("{pod_name}-{}", volume.at("name").text());
    let is_ephemeral = |volume: &Field<'_>| !pod_name.is_empty() && volume.at("ephemeral").is_present();
    let created: HashSet<String> = volumes.items().filter(is_ephemeral).map(claim_name).collect();
    let own = volumes.items().filter(|volume| !claims.contains(&volume.at("name").text()));
    for (index, volume) in own.enumerate() {
        let volume = volume.reported_at(volumes.index(claims.len() + index));
        let (name, errors) = (volume.at("name"), volume.error_count());
        if volume.path("emptyDir.sizeLimit").quantity_sign().is_lt() {
            let detail = "SizeLimit field must be a valid resource quantity";
            volume.path("emptyDir.sizeLimit").forbidden(detail);
        }
        check_one_source(volume, SOURCES);
        check_iscsi_length(volume);
        if metadata.is_some() && volume.at("image").is_present() {
            volume.at("image").require(&["reference"]);
        }
        if is_ephemeral(&volume) && !name.text().is_empty() && volume.path("ephemeral.volumeClaimTemplate").is_present()
        {
            let claim = claim_name(volume);
            for error in validate_dns1123_subdomain(&claim) {
                name.invalid(format!("PVC name {claim:?}: {error}"));
            }
        }
        if name.require_text() {
            name.dns_label();
        }
        if valid.contains_key(name.text()) {
            name.duplicate();
        }
        if volume.error_count() == errors {
            valid.insert(
                name.text(),
                ["persistentVolumeClaim", "ephemeral"].iter().any(|claim| volume.at(claim).is_present()),
            );
        }
        let claim = volume.path("persistentVolumeClaim.claimName");
        if created.contains(claim.text()) {
            claim.invalid("must not reference a PVC that gets created for an ephemeral volume");
        }
    }
    valid
}

fn check_iscsi_length(volume: Field<'_>) {
    let (name, portal) = (volume.at("name"), volume.path("iscsi.targetPortal"));
    if volume.path("iscsi.initiatorName").is_present() && name.text().len() + 1 + portal.text().len() > 64 {
        name.invalid_text(ISCSI_TOO_LONG);
    }
}

/// A volume with files from a secret or a config map.
fn check_files<'a>(source: Field<'a>, name: &'a str) {
    source.require(&[name]);
    source.at("defaultMode").file_mode();
    source.at("items").each(check_key_to_path);
}

fn check_key_to_path(item: Field<'_>) {
    item.require(&["key", "path"]);
    item.at("path").local_non_reserved_path();
    item.at("mode").file_mode();
}

fn check_downward_file(file: Field<'_>) {
    let (field, resource) = (file.at("fieldRef"), file.at("resourceFieldRef"));
    file.require(&["path"]);
    file.at("path").local_non_reserved_path();
    if field.is_present() {
        check_field_reference(field, &FILE_FIELDS);
        if resource.is_present() {
            file.invalid_as("resource", "fieldRef and resourceFieldRef can not be specified simultaneously");
        }
    } else if resource.is_present() {
        check_resource_reference(resource, true);
    } else {
        file.required("one of fieldRef and resourceFieldRef is required");
    }
    file.at("mode").file_mode();
}

fn check_csi(source: Field<'_>) {
    source.at("driver").csi_driver_name();
    let secret = source.at("nodePublishSecretRef");
    if secret.is_present() && secret.at("name").require_text() {
        secret.at("name").reported_at(source.at("name")).dns_subdomain();
    }
}

fn check_claim_template(template: Field<'_>) {
    let metadata = template.at("metadata");
    metadata.at("annotations").annotations();
    metadata.at("labels").labels();
    for (name, _) in metadata.entries().filter(|(name, _)| !TEMPLATE_METADATA.contains(name)) {
        let field = metadata.at(name);
        if !field.is_zero() || field.object().is_some() {
            let shown = if name == "uid" { metadata.at("uID") } else { field };
            shown.forbidden("cannot be set");
        }
    }
    check_claim_spec(template.at("spec"));
}

/// Sources that share one directory: no path twice.
fn check_projected(projected: Field<'_>) {
    let mut paths = HashSet::new();
    let mut check_path = |path: &str, shown: &str| {
        if !path.is_empty() && !paths.insert(path.to_owned()) {
            projected.invalid_as(shown, CONFLICT);
        }
    };
    for one in projected.at("sources").items() {
        for source in ["secret", "configMap"].map(|name| one.at(name)).into_iter().filter(|source| source.is_present())
        {
            source.require(&["name"]);
            for item in source.at("items").items() {
                check_key_to_path(item);
                check_path(item.at("path").text(), source.at("name").text());
            }
        }
        let downward = one.at("downwardAPI");
        for file in downward.at("items").items() {
            check_downward_file(file.reported_at(downward));
            check_path(file.at("path").text(), file.at("path").text());
        }
        check_token(one.at("serviceAccountToken"), projected);
        let bundle = one.at("clusterTrustBundle");
        if bundle.is_present() {
            check_trust_bundle(bundle);
            check_path(bundle.at("path").text(), bundle.at("path").text());
        }
        let certificate = one.at("podCertificate");
        if certificate.is_present() {
            check_certificate(certificate);
            let names = ["credentialBundlePath", "keyPath", "certificateChainPath"];
            for path in names.map(|name| certificate.at(name)).into_iter().filter(|path| !path.text().is_empty()) {
                path.local_non_reserved_path();
                check_path(path.text(), path.text());
            }
            if names.iter().all(|name| certificate.at(name).text().is_empty()) {
                let detail = "specify at least one of credentialBundlePath, keyPath, and certificateChainPath";
                certificate.required(detail);
            }
        }
        if one.len() > 1 {
            one.forbidden("may not specify more than 1 volume type per source");
        }
    }
}

fn check_token<'a>(token: Field<'a>, projected: Field<'a>) {
    if !token.is_present() {
        return;
    }
    let (seconds, path) = (token.at("expirationSeconds"), token.at("path").reported_at(projected.at("path")));
    if seconds.integer_or_zero() < 600 {
        seconds.invalid_as(seconds.integer_or_zero(), "may not specify a duration less than 10 minutes");
    }
    if seconds.integer_or_zero() > 1 << 32 {
        seconds.invalid("may not specify a duration larger than 2^32 seconds");
    }
    if path.require_text() {
        path.local_non_reserved_path();
    }
}

fn check_trust_bundle(bundle: Field<'_>) {
    let (name, signer, selector) = (bundle.at("name"), bundle.at("signerName"), bundle.at("labelSelector"));
    match (name.is_present(), signer.is_present()) {
        (true, true) => bundle.invalid("only one of name and signerName may be used"),
        (true, false) => {
            if name.text().is_empty() {
                name.required("must be a valid object name");
            }
            for error in validate_dns1123_subdomain(name.text().rsplit(':').next().unwrap_or_default()) {
                name.invalid(format!("not a valid clustertrustbundlename: {error}"));
            }
            if selector.is_present() {
                selector.invalid("labelSelector must be unset if name is specified");
            }
        }
        (false, true) => {
            if signer.text().is_empty() {
                signer.required("must be a valid signer name");
            }
            signer.signer_name();
            selector.label_selector();
        }
        (false, false) => bundle.required("either name or signerName must be specified"),
    }
    bundle.require(&["path"]);
    bundle.at("path").local_non_reserved_path();
}

fn check_certificate(certificate: Field<'_>) {
    let (signer, expiration) = (certificate.at("signerName"), certificate.at("maxExpirationSeconds"));
    signer.signer_name();
    certificate.at("userAnnotations").annotations();
    certificate.at("keyType").one_of(&KEY_TYPES);
    let is_of_kubernetes = signer.text().starts_with("kubernetes.io/");
    let max = if is_of_kubernetes { 24 * 60 * 60 } else { 91 * 24 * 60 * 60 };
    match expiration.integer() {
        Some(seconds) if seconds < 3600 => {
            expiration.invalid("if provided, maxExpirationSeconds must be >= 3600");
        }
        Some(seconds) if seconds > max => {
            expiration.invalid(format!("if provided, maxExpirationSeconds must be <= {max}"));
        }
        _ => {}
    }
}

pub(super) fn check_mounts(container: Field<'_>, context: &PodContext<'_>) {
    let (mounts, devices) = (container.at("volumeMounts"), container.at("volumeDevices"));
    let [device_names, device_paths] = ["name", "devicePath"].map(|field| devices.texts_of_items(field));
    let mut paths = HashSet::new();
    for mount in mounts.items() {
        let (name, path) = (mount.at("name"), mount.at("mountPath"));
        name.require_text();
        if !context.volumes.contains_key(name.text()) {
            name.not_found();
        }
        path.require_text();
        if !paths.insert(path.text()) {
            path.invalid_text("must be unique");
        }
        if device_names.contains(name.text()) {
            name.invalid_text("must not already exist in volumeDevices");
        }
        if device_paths.contains(path.text()) {
            path.invalid_text("must not already exist as a path in volumeDevices");
        }
        // From here on Kubernetes' paths leave out the index of the mount.
        let shown = |name| mount.at(name).reported_at(mounts.at(name));
        let (below, expression) = (shown("subPath"), shown("subPathExpr"));
        if !below.text().is_empty() {
            below.local_descending_path();
        }
        if !expression.text().is_empty() {
            if !below.text().is_empty() {
                mount.at("subPathExpr").invalid("subPathExpr and subPath are mutually exclusive");
            }
            expression.local_descending_path();
        }
        check_propagation(shown("mountPropagation"), container);
        check_recursive_read_only(shown("recursiveReadOnly"), mount);
    }
}

fn check_propagation(propagation: Field<'_>, container: Field<'_>) {
    propagation.one_of_if_present(&MOUNT_PROPAGATIONS);
    if propagation.text() == "Bidirectional" && !container.path("securityContext.privileged").flag() {
        propagation.forbidden("Bidirectional mount propagation is available only to privileged containers");
    }
}

fn check_recursive_read_only(mode: Field<'_>, mount: Field<'_>) {
    match mode.text() {
        "Enabled" | "IfPossible" => {
            if !mount.at("readOnly").flag() {
                mode.forbidden("may only be specified when readOnly is true");
            }
            if !matches!(mount.at("mountPropagation").text(), "" | "None") {
                mode.forbidden("may only be specified when mountPropagation is None or not specified");
            }
        }
        _ => mode.one_of_if_present(&["Disabled", "Enabled", "IfPossible"]),
    }
}

pub(super) fn check_devices(container: Field<'_>, context: &PodContext<'_>) {
    let (mounts, devices) = (container.at("volumeMounts"), container.at("volumeDevices"));
    let [mount_names, mount_paths] = ["name", "mountPath"].map(|field| mounts.texts_of_items(field));
    let (mut names, mut paths) = (HashSet::new(), HashSet::new());
    for device in devices.items() {
        let (name, path) = (device.at("name"), device.at("devicePath"));
        name.require_text();
        if names.contains(name.text()) {
            name.invalid("must be unique");
        }
        match context.volumes.get(name.text()) {
            None => name.not_found(),
            Some(false) => {
                name.invalid("can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode");
            }
            Some(true) => {}
        }
        path.require_text();
        if paths.contains(path.text()) {
            path.invalid_text("must be unique");
        }
        if path.text().split('/').any(|part| part == "..") {
            path.invalid("can not contain backsteps ('..')");
        } else {
            paths.insert(path.text());
        }
        if mount_names.contains(name.text()) {
            name.invalid_text("must not already exist in volumeMounts");
        }
        if mount_paths.contains(path.text()) {
            path.invalid_text("must not already exist as a path in volumeMounts");
        }
        if !name.text().is_empty() {
            names.insert(name.text());
        }
    }
}

//! Sources of volumes: what pods and persistent volumes have in common.

use super::Field;

/// One kind of source: its field, the path in Kubernetes' messages where that is another, and its rules.
pub(crate) struct VolumeSource {
    pub(crate) field: &'static str,
    /// The path that is shown if there is another source as well; empty where Kubernetes does not check that.
    pub(crate) shown_as_second: &'static str,
    /// The path that is shown in errors of the rules.
    pub(crate) shown: &'static str,
    pub(crate) check: fn(Field<'_>),
}

pub(crate) const fn source(field: &'static str, check: fn(Field<'_>)) -> VolumeSource {
    VolumeSource { field, shown_as_second: field, shown: field, check }
}

const HOST_PATH_TYPES: [&str; 8] =
    ["", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"];
const PAIRS: &str = "must be a host:port pair or multiple pairs separated by commas";
const MANAGED_DISK: &str =
    "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}";
const BLOB_DISK: &str = "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd";
pub(crate) const ACCESS_MODES: [&str; 4] = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
pub(crate) const VOLUME_MODES: [&str; 2] = ["Block", "Filesystem"];

/// Exactly one of these sources, in this order.
pub(crate) fn check_one_source(volume: Field<'_>, sources: &'static [VolumeSource]) {
    let mut present = sources.iter().filter(|source| volume.at(source.field).is_present());
    match present.next() {
        Some(source) => (source.check)(volume.at(source.field).reported_at(volume.at(source.shown))),
        None => volume.required("must specify a volume type"),
    }
    for second in present.filter(|source| !source.shown_as_second.is_empty()) {
        volume.at(second.shown_as_second).forbidden("may not specify more than 1 volume type");
    }
}

pub(crate) fn check_host_path(source: Field<'_>) {
    if source.at("path").require_text() {
        source.at("path").path_without_backsteps();
        source.at("type").one_of_if_present(&HOST_PATH_TYPES);
    }
}

pub(crate) const GCE_PERSISTENT_DISK: VolumeSource = VolumeSource {
    field: "gcePersistentDisk",
    shown_as_second: "gcePersistentDisk",
    shown: "persistentDisk",
    check: |source| check_disk(source, "pdName"),
};
pub(crate) const AWS_ELASTIC_BLOCK_STORE: VolumeSource =
    source("awsElasticBlockStore", |source| check_disk(source, "volumeID"));

fn check_disk<'a>(source: Field<'a>, id_field: &'a str) {
    source.require(&[id_field]);
    if source.at("partition").integer().is_some_and(|partition| !(0..=255).contains(&partition)) {
        source.at("partition").invalid("must be between 1 and 255, inclusive");
    }
}

pub(crate) fn check_nfs(source: Field<'_>) {
    source.require(&["server", "path"]);
    if !source.at("path").text().starts_with('/') {
        source.at("path").invalid_text("must be an absolute path");
    }
}

pub(crate) fn check_quobyte(source: Field<'_>) {
    let registry = source.at("registry");
    if registry.text().is_empty() {
        registry.required(PAIRS);
    } else if source.at("tenant").text().len() >= 65 {
        source.at("tenant").required("must be a UUID and may not exceed a length of 64 characters");
    } else {
        for _ in registry.text().split(',').filter(|pair| !is_host_and_port(pair)) {
            registry.invalid(PAIRS);
        }
    }
    source.require(&["volume"]);
}

/// The form alone: `host:port` or `[host]:port`.
fn is_host_and_port(text: &str) -> bool {
    match text.strip_prefix('[') {
        Some(rest) => rest
            .split_once("]:")
            .is_some_and(|(host, port)| !host.contains(['[', ']']) && !port.contains([':', '[', ']'])),
        None => text.matches(':').count() == 1 && !text.contains(['[', ']']),
    }
}

pub(crate) fn check_glusterfs(source: Field<'_>) {
    source.require(&["endpoints", "path"]);
    let namespace = source.at("endpointsNamespace");
    if namespace.is_present() {
        if namespace.text().is_empty() {
            namespace.invalid("if the endpointnamespace is set, it must be a valid namespace name");
        } else {
            namespace.dns_label();
        }
    }
}

pub(crate) fn check_flocker(source: Field<'_>) {
    let (name, uuid) = (source.at("datasetName"), source.at("datasetUUID"));
    match (name.text().is_empty(), uuid.text().is_empty()) {
        (true, true) => source.required("one of datasetName and datasetUUID is required"),
        (false, false) => {
            source.invalid_as("resource", "datasetName and datasetUUID can not be specified simultaneously");
        }
        _ => {}
    }
    if name.text().contains('/') {
        name.invalid("must not contain '/'");
    }
}

/// Ceph's block devices.
pub(crate) fn check_rbd(source: Field<'_>) {
    check_monitors(source);
    source.require(&["image"]);
}

pub(crate) fn check_monitors(source: Field<'_>) {
    if source.at("monitors").len() == 0 {
        source.at("monitors").required("");
    }
}

pub(crate) const CEPH_FS: VolumeSource =
    VolumeSource { field: "cephfs", shown_as_second: "cephFS", shown: "cephfs", check: check_monitors };

pub(crate) fn check_cinder(source: Field<'_>) {
    source.require(&["volumeID"]);
    check_secret(source.at("secretRef"), &["name"]);
}

pub(crate) fn check_secret<'a>(secret: Field<'a>, required: &[&'a str]) {
    if secret.is_present() {
        secret.require(required);
    }
}

/// iSCSI, of a volume in a pod (`is_inline`) or of a persistent volume.
pub(crate) fn check_iscsi(source: Field<'_>, is_inline: bool, volume_name: &str) {
    let (portal, initiator) = (source.at("targetPortal"), source.at("initiatorName"));
    portal.require_text();
    if !is_inline && initiator.is_present() && volume_name.len() + 1 + portal.text().len() > 64 {
        source.at("targetportal").invalid_as(portal.text(), ISCSI_TOO_LONG);
    }
    let prefix = if is_inline { "must be valid format starting with iqn, eui, or naa" } else { "must be valid format" };
    let name = source.at("iqn");
    if name.require_text() {
        check_iscsi_name(name, prefix);
    }
    let unit = source.at("lun").integer_or_zero();
    if !(0..=255).contains(&unit) {
        source.at("lun").invalid_as(unit, "must be between 0 and 255, inclusive");
    }
    let is_authenticated = ["chapAuthDiscovery", "chapAuthSession"].iter().any(|flag| source.at(flag).flag());
    if is_authenticated && !source.at("secretRef").is_present() {
        source.at("secretRef").required("");
    }
    if !is_inline {
        check_secret(source.at("secretRef"), &["name"]);
    }
    if initiator.is_present() {
        check_iscsi_name(initiator.reported_at(source.at("initiatorname")), prefix);
    }
}

pub(crate) const ISCSI_TOO_LONG: &str = "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if \
     iscsi.initiatorName is specified.";

fn check_iscsi_name(name: Field<'_>, wrong_prefix: &str) {
    let text = name.text();
    let is_alphanumeric = |text: &str, length: usize| {
        text.len() == length + 4
            && text.is_char_boundary(4)
            && text[4..].bytes().all(|byte| byte.is_ascii_alphanumeric())
    };
    match text.get(..3) {
        Some("iqn") if is_iqn(text) => {}
        Some("eui") if is_alphanumeric(text, 16) => {}
        Some("naa") if is_alphanumeric(text, 32) => {}
        Some("iqn" | "eui" | "naa") => name.invalid("must be valid format"),
        _ => name.invalid_text(wrong_prefix),
    }
}

/// `iqn.2015-02.example.com:name`, at the end of the text.
fn is_iqn(text: &str) -> bool {
    text.match_indices("iqn.").any(|(at, _)| {
        let rest = &text[at + 4..];
        let is_digit = |at: usize| rest.as_bytes().get(at).is_some_and(u8::is_ascii_digit);
        let is_byte = |at: usize, byte: u8| rest.as_bytes().get(at) == Some(&byte);
        let is_date = (0..4).all(is_digit) && is_byte(4, b'-') && is_digit(5) && is_digit(6) && is_byte(7, b'.');
        let Some((domain, name)) = rest.get(8..).filter(|_| is_date).and_then(|rest| rest.split_once(':')) else {
            return false;
        };
        !domain.is_empty()
            && domain.bytes().all(|byte| matches!(byte, b'-' | b'.') || byte.is_ascii_alphanumeric())
            && !name.is_empty()
            && !name.contains([',', ';', '*', '&', '$', '|', ' ', '\t', '\n', '\r', '\x0c'])
    })
}

/// Fibre Channel.
pub(crate) fn check_fc(source: Field<'_>) {
    let (targets, ids) = (source.at("targetWWNs"), source.at("wwids"));
    if targets.len() == 0 && ids.len() == 0 {
        targets.required("must specify either targetWWNs or wwids, but not both");
    }
    if targets.len() > 0 {
        if ids.len() > 0 {
            targets.invalid("targetWWNs and wwids can not be specified simultaneously");
        }
        if source.at("lun").is_present() {
            source.at("lun").in_range(0, 255);
        } else {
            source.at("lun").required("lun is required if targetWWNs is specified");
        }
    }
}

pub(crate) fn check_flex(source: Field<'_>) {
    source.require(&["driver"]);
    for (key, option) in source.at("options").entries() {
        let namespace = key.split_once('/').map_or(key, |(namespace, _)| namespace);
        let normalized = format!(".{}", namespace.to_lowercase());
        if normalized.ends_with(".kubernetes.io") || normalized.ends_with(".k8s.io") {
            option.invalid_as(key, "kubernetes.io and k8s.io namespaces are reserved");
        }
    }
}

pub(crate) fn check_azure_file(source: Field<'_>) {
    source.require(&["secretName", "shareName"]);
    let namespace = source.at("secretNamespace");
    if namespace.is_present() && namespace.text().is_empty() {
        namespace.required("");
    }
}

pub(crate) fn check_azure_disk(source: Field<'_>) {
    let (kind, uri) = (source.at("kind"), source.at("diskURI"));
    source.require(&["diskName", "diskURI"]);
    source.at("cachingMode").one_of_if_present(&["None", "ReadOnly", "ReadWrite"]);
    kind.one_of_if_present(&["Dedicated", "Managed", "Shared"]);
    match kind.text() {
        _ if !kind.is_present() => {}
        "Managed" if !uri.text().starts_with("/subscriptions/") => uri.unsupported(&[MANAGED_DISK]),
        "Managed" => {}
        _ if !uri.text().starts_with("https://") => uri.unsupported(&[BLOB_DISK]),
        _ => {}
    }
}

pub(crate) fn check_storage_os(source: Field<'_>, secret: &[&'static str]) {
    if source.at("volumeName").require_text() {
        source.at("volumeName").dns_label();
    }
    if !source.at("volumeNamespace").text().is_empty() {
        source.at("volumeNamespace").dns_label();
    }
    check_secret(source.at("secretRef"), secret);
}

/// Access modes of a volume or a claim.
pub(crate) fn check_access_modes(spec: Field<'_>, detail: &str) {
    let modes = spec.at("accessModes");
    if modes.len() == 0 {
        modes.required(detail);
    }
}

pub(crate) fn check_each_access_mode(spec: Field<'_>) {
    let modes = spec.at("accessModes");
    modes.items().for_each(|mode| mode.reported_at(modes).one_of(&ACCESS_MODES));
    let is_single = |mode: &&str| *mode == "ReadWriteOncePod";
    if modes.texts().any(|mode| is_single(&mode))
        && modes.texts().any(|mode| ACCESS_MODES.contains(&mode) && !is_single(&mode))
    {
        modes.forbidden("may not use ReadWriteOncePod with other access modes");
    }
}

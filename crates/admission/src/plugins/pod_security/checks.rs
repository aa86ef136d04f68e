//! The checks of the pod security standards, by level and release.

mod containers;
mod profiles;

use api::json::JsonObject;
use object::unstructured::{flag, get, objects, text};
use serde_json::Value;

use super::policy::{Level, LevelVersion};

/// The last release that changed a check.
const NEWEST_CHECKS: u32 = 35;

/// A pod or a pod template.
#[derive(Clone, Copy)]
pub(super) struct PodView<'a> {
    pub(super) annotations: Option<&'a JsonObject>,
    pub(super) spec: &'a JsonObject,
}

/// Why a check refuses a pod: a reason, and details that may be empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Violation {
    pub(super) reason: &'static str,
    pub(super) detail: String,
}

type CheckPod = fn(PodView<'_>) -> Option<Violation>;

struct Check {
    id: &'static str,
    /// The first release of each form of the check, ascending.
    versions: &'static [(u32, CheckPod)],
    /// The check of the baseline that this one replaces at the restricted level.
    replaces: &'static str,
}

const fn check(id: &'static str, versions: &'static [(u32, CheckPod)]) -> Check {
    Check { id, versions, replaces: "" }
}

/// In the order in which violations are reported.
const BASELINE: &[Check] = &[
    check("appArmorProfile", &[(0, profiles::app_armor)]),
    check("capabilities_baseline", &[(0, containers::capabilities_baseline)]),
    check("hostNamespaces", &[(0, host_namespaces)]),
    check("hostPathVolumes", &[(0, host_path_volumes)]),
    check("hostPorts", &[(0, containers::host_ports)]),
    check("hostProbesAndHostLifecycle", &[(34, containers::host_probes)]),
    check("privileged", &[(0, containers::privileged)]),
    check("procMount", &[(0, containers::proc_mount), (35, |pod| unless_user_namespace(pod, containers::proc_mount))]),
    check("seLinuxOptions", &[(0, profiles::se_linux), (31, profiles::se_linux_31)]),
    check("seccompProfile_baseline", &[(0, profiles::seccomp_annotations), (19, profiles::seccomp_baseline)]),
    check("sysctls", &[(0, sysctls_0), (27, sysctls_27), (29, sysctls_29), (32, sysctls_32)]),
    check("windowsHostProcess", &[(0, containers::windows_host_process)]),
];

const RESTRICTED: &[Check] = &[
    check(
        "allowPrivilegeEscalation",
        &[(8, containers::privilege_escalation), (25, |pod| unless_windows(pod, containers::privilege_escalation))],
    ),
    Check {
        replaces: "capabilities_baseline",
        ..check(
            "capabilities_restricted",
            &[
                (22, containers::capabilities_restricted),
                (25, |pod| unless_windows(pod, containers::capabilities_restricted)),
            ],
        )
    },
    Check { replaces: "procMount", ..check("procMount_restricted", &[(35, containers::proc_mount)]) },
    Check { replaces: "hostPathVolumes", ..check("restrictedVolumes", &[(0, restricted_volumes)]) },
    check(
        "runAsNonRoot",
        &[(0, containers::run_as_non_root), (35, |pod| unless_user_namespace(pod, containers::run_as_non_root))],
    ),
    check(
        "runAsUser",
        &[(23, containers::run_as_user), (35, |pod| unless_user_namespace(pod, containers::run_as_user))],
    ),
    Check {
        replaces: "seccompProfile_baseline",
        ..check(
            "seccompProfile_restricted",
            &[(19, profiles::seccomp_restricted), (25, |pod| unless_windows(pod, profiles::seccomp_restricted))],
        )
    },
];

impl Check {
    fn at(&self, minor: u32) -> Option<CheckPod> {
        self.versions.iter().rev().find(|(since, _)| *since <= minor).map(|(_, check)| *check)
    }
}

/// Checks a pod against a level; `release` is the minor of the server's release.
pub(super) fn violations(pod: PodView<'_>, level_version: LevelVersion, release: u32) -> Vec<Violation> {
    if level_version.level == Level::Privileged {
        return Vec::new();
    }
    let minor = level_version.version.minor(NEWEST_CHECKS.min(release));
    let restricted = if level_version.level == Level::Restricted { RESTRICTED } else { &[] };
    let is_replaced = |id: &str| restricted.iter().any(|check| check.replaces == id && check.at(minor).is_some());
    let baseline = BASELINE.iter().filter(|check| !is_replaced(check.id));
    baseline.chain(restricted).filter_map(|check| check.at(minor)?(pod)).collect()
}

/// `hostNamespaces (hostPID=true), privileged (…)`.
pub(super) fn details_of(violations: &[Violation]) -> String {
    let shown = violations.iter().map(|violation| match &*violation.detail {
        "" => violation.reason.to_owned(),
        detail => format!("{} ({detail})", violation.reason),
    });
    shown.collect::<Vec<_>>().join(", ")
}

fn violation(reason: &'static str, detail: impl Into<String>) -> Option<Violation> {
    Some(Violation { reason, detail: detail.into() })
}

/// All containers: init containers first, then containers, then ephemeral ones.
fn containers_of<'a>(pod: PodView<'a>) -> impl Iterator<Item = &'a JsonObject> + use<'a> {
    ["initContainers", "containers", "ephemeralContainers"].into_iter().flat_map(move |list| {
        let items = pod.spec.get(list).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        items.iter().filter_map(Value::as_object)
    })
}

/// Names of the containers that match, in order.
fn names_of<'a>(pod: PodView<'a>, is_bad: impl Fn(&'a JsonObject) -> bool) -> Vec<String> {
    containers_of(pod)
        .filter(|container| is_bad(container))
        .map(|container| text(container, &["name"]).to_owned())
        .collect()
}

/// `container "a"` or `containers "a", "b"`.
fn containers_text(names: &[String]) -> String {
    format!("{} {}", plural("container", "containers", names.len()), quoted(names))
}

fn quoted(names: &[impl AsRef<str>]) -> String {
    let names: Vec<String> = names.iter().map(|name| format!("\"{}\"", name.as_ref())).collect();
    names.join(", ")
}

fn plural(one: &'static str, several: &'static str, count: usize) -> &'static str {
    if count == 1 { one } else { several }
}

/// `pod and container "a"`.
fn setters_text(is_pod_bad: bool, names: &[String]) -> String {
    let mut setters = Vec::new();
    if is_pod_bad {
        setters.push("pod".to_owned());
    }
    if !names.is_empty() {
        setters.push(containers_text(names));
    }
    setters.join(" and ")
}

fn sorted(mut values: Vec<String>) -> Vec<String> {
    values.sort_unstable();
    values.dedup();
    values
}

fn unless_windows(pod: PodView<'_>, check: CheckPod) -> Option<Violation> {
    if text(pod.spec, &["os", "name"]) == "windows" { None } else { check(pod) }
}

/// Pods with a user namespace of their own may do what is harmless within it.
fn unless_user_namespace(pod: PodView<'_>, check: CheckPod) -> Option<Violation> {
    if pod.spec.get("hostUsers") == Some(&Value::Bool(false)) { None } else { check(pod) }
}

fn host_namespaces(pod: PodView<'_>) -> Option<Violation> {
    let used: Vec<String> = ["hostNetwork", "hostPID", "hostIPC"]
        .iter()
        .filter(|name| flag(pod.spec, &[name]))
        .map(|name| format!("{name}=true"))
        .collect();
    if used.is_empty() { None } else { violation("host namespaces", used.join(", ")) }
}

fn host_path_volumes(pod: PodView<'_>) -> Option<Violation> {
    let volumes = objects(pod.spec, &["volumes"]).filter(|volume| has(volume, "hostPath"));
    let names: Vec<&str> = volumes.map(|volume| text(volume, &["name"])).collect();
    if names.is_empty() {
        return None;
    }
    violation("hostPath volumes", format!("{} {}", plural("volume", "volumes", names.len()), quoted(&names)))
}

fn has(object: &JsonObject, field: &str) -> bool {
    get(object, &[field]).is_some_and(|value| !value.is_null())
}

fn restricted_volumes(pod: PodView<'_>) -> Option<Violation> {
    const ALLOWED: [&str; 9] = [
        "configMap",
        "csi",
        "downwardAPI",
        "emptyDir",
        "ephemeral",
        "image",
        "persistentVolumeClaim",
        "projected",
        "secret",
    ];
    const KNOWN: [&str; 21] = [
        "hostPath",
        "gcePersistentDisk",
        "awsElasticBlockStore",
        "gitRepo",
        "nfs",
        "iscsi",
        "glusterfs",
        "rbd",
        "flexVolume",
        "cinder",
        "cephfs",
        "flocker",
        "fc",
        "azureFile",
        "vsphereVolume",
        "quobyte",
        "azureDisk",
        "photonPersistentDisk",
        "portworxVolume",
        "scaleIO",
        "storageos",
    ];
    let (mut names, mut types) = (Vec::new(), Vec::new());
    for volume in objects(pod.spec, &["volumes"]) {
        if ALLOWED.iter().any(|field| has(volume, field)) {
            continue;
        }
        names.push(text(volume, &["name"]));
        types.push(KNOWN.iter().find(|field| has(volume, field)).map_or("unknown", |field| *field).to_owned());
    }
    if names.is_empty() {
        return None;
    }
    let types = sorted(types);
    let detail = format!(
        "{} {} {} {} {}",
        plural("volume", "volumes", names.len()),
        quoted(&names),
        plural("uses", "use", names.len()),
        plural("restricted volume type", "restricted volume types", types.len()),
        quoted(&types)
    );
    violation("restricted volume types", detail)
}

const SYSCTLS: [&str; 12] = [
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.ping_group_range",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
];

fn sysctls(pod: PodView<'_>, allowed: &[&str]) -> Option<Violation> {
    let names = objects(pod.spec, &["securityContext", "sysctls"]).map(|sysctl| text(sysctl, &["name"]));
    let forbidden: Vec<&str> = names.filter(|name| !allowed.contains(name)).collect();
    if forbidden.is_empty() { None } else { violation("forbidden sysctls", forbidden.join(", ")) }
}

fn sysctls_0(pod: PodView<'_>) -> Option<Violation> {
    sysctls(pod, &SYSCTLS[..5])
}

fn sysctls_27(pod: PodView<'_>) -> Option<Violation> {
    sysctls(pod, &SYSCTLS[..6])
}

fn sysctls_29(pod: PodView<'_>) -> Option<Violation> {
    sysctls(pod, &SYSCTLS[..10])
}

fn sysctls_32(pod: PodView<'_>) -> Option<Violation> {
    sysctls(pod, &SYSCTLS)
}

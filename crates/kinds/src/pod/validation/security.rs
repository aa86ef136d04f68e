//! What is valid in security contexts.

use std::collections::HashSet;

use super::{PodContext, all_containers};
use crate::validation::Field;

const PROFILE_TYPES: [&str; 3] = ["Localhost", "RuntimeDefault", "Unconfined"];
const PROC_MOUNTS: [&str; 2] = ["Default", "Unmasked"];
const SYSCTL: &str = "must have at most 253 characters and match regex \
     ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";
const SYSCTL_LENGTH_MAX: usize = 253;
const PROFILE_LENGTH_MAX: usize = 4095;
const CREDENTIAL_LENGTH_MAX: usize = 64 * 1024;
const WITHOUT_HOST_USERS: &str = "when `hostUsers` is false";

pub(super) fn check_security_context(security: Field<'_>, context: &PodContext<'_>) {
    if !security.is_present() {
        return;
    }
    security.at("runAsUser").user_or_group_id();
    security.at("runAsGroup").user_or_group_id();
    let proc_mount = security.at("procMount");
    proc_mount.one_of_if_present(&PROC_MOUNTS);
    if context.has_host_users && proc_mount.text() == "Unmasked" {
        proc_mount.invalid("`hostUsers` must be false to use `Unmasked`");
    }
    check_seccomp_profile(security.at("seccompProfile"));
    let escalation = security.at("allowPrivilegeEscalation");
    if escalation.is_present() && !escalation.flag() {
        if security.at("privileged").flag() {
            security.invalid("cannot set `allowPrivilegeEscalation` to false and `privileged` to true");
        }
        for _ in security.path("capabilities.add").texts().filter(|capability| *capability == "CAP_SYS_ADMIN") {
            security.invalid("cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN");
        }
    }
    check_windows_options(security.at("windowsOptions"));
    check_app_armor_profile(security.at("appArmorProfile"));
}

pub(super) fn check_pod_security_context(spec: Field<'_>) {
    let security = spec.at("securityContext");
    for id in ["fsGroup", "runAsUser", "runAsGroup"] {
        security.at(id).user_or_group_id();
    }
    security.at("supplementalGroups").each(Field::user_or_group_id);
    if spec.at("shareProcessNamespace").flag() && spec.at("hostPID").flag() {
        let detail = "ShareProcessNamespace and HostPID cannot both be enabled";
        security.at("shareProcessNamespace").invalid_as(true, detail);
    }
    check_sysctls(spec);
    security.at("fsGroupChangePolicy").one_of_if_present(&["Always", "OnRootMismatch"]);
    check_seccomp_profile(security.at("seccompProfile"));
    check_windows_options(security.at("windowsOptions"));
    check_app_armor_profile(security.at("appArmorProfile"));
    security.at("supplementalGroupsPolicy").one_of_if_present(&["Merge", "Strict"]);
    security.at("seLinuxChangePolicy").one_of_if_present(&["MountOption", "Recursive"]);
}

fn check_sysctls(spec: Field<'_>) {
    let mut names = HashSet::new();
    for sysctl in spec.path("securityContext.sysctls").items() {
        let name = sysctl.at("name");
        if name.require_text() {
            if !is_sysctl(name.text()) {
                name.invalid(SYSCTL);
            } else if names.contains(name.text()) {
                name.duplicate();
            }
        }
        let dotted = name.text().replace('/', ".");
        let is_of_ipc = ["kernel.shm", "kernel.msg", "fs.mqueue."].iter().any(|prefix| dotted.starts_with(prefix))
            || dotted == "kernel.sem";
        if spec.at("hostNetwork").flag() && dotted.starts_with("net.") {
            name.invalid("may not be specified when 'hostNetwork' is true");
        } else if spec.at("hostIPC").flag() && is_of_ipc {
            name.invalid("may not be specified when 'hostIPC' is true");
        }
        names.insert(name.text());
    }
}

fn is_sysctl(name: &str) -> bool {
    let is_edge = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_segment = |segment: &str| {
        segment.bytes().all(|byte| matches!(byte, b'-' | b'_') || is_edge(byte))
            && segment.bytes().next().is_some_and(is_edge)
            && segment.bytes().next_back().is_some_and(is_edge)
    };
    name.len() <= SYSCTL_LENGTH_MAX && name.split(['.', '/']).all(is_segment)
}

fn check_seccomp_profile(profile: Field<'_>) {
    if !profile.is_present() {
        return;
    }
    let (kind, local) = (profile.at("type"), profile.at("localhostProfile"));
    if kind.text().is_empty() {
        kind.required("type is required when seccompProfile is set");
    } else {
        kind.one_of(&PROFILE_TYPES);
    }
    match (kind.text() == "Localhost", local.is_present()) {
        (true, true) => local.local_descending_path(),
        (true, false) => local.required("must be set when seccomp type is Localhost"),
        (false, true) => {
            let shown = profile.value().cloned().unwrap_or_default();
            local.invalid_as(shown, "can only be set when seccomp type is Localhost");
        }
        (false, false) => {}
    }
}

fn check_app_armor_profile(profile: Field<'_>) {
    if !profile.is_present() {
        return;
    }
    let (kind, local) = (profile.at("type"), profile.at("localhostProfile"));
    match kind.text() {
        "Localhost" if !local.is_present() => local.required("must be set when AppArmor type is Localhost"),
        "Localhost" => {
            if local.text().trim() != local.text() {
                local.invalid("must not be padded with whitespace");
            } else if local.text().is_empty() {
                local.required("must be set when AppArmor type is Localhost");
            }
            if local.text().len() > PROFILE_LENGTH_MAX {
                local.too_long(PROFILE_LENGTH_MAX);
            }
        }
        "RuntimeDefault" | "Unconfined" => {
            if local.is_present() {
                local.invalid("can only be set when AppArmor type is Localhost");
            }
        }
        "" => kind.required("type is required when appArmorProfile is set"),
        _ => kind.unsupported(&PROFILE_TYPES),
    }
}

fn check_windows_options(options: Field<'_>) {
    let (name, credential) = (options.at("gmsaCredentialSpecName"), options.at("gmsaCredentialSpec"));
    if name.is_present() {
        name.dns_subdomain();
    }
    if credential.is_present() {
        if credential.text().is_empty() {
            credential.invalid("gmsaCredentialSpec cannot be an empty string");
        } else if credential.text().len() > CREDENTIAL_LENGTH_MAX {
            credential.invalid("gmsaCredentialSpec size must be under 64 KiB");
        }
    }
    if options.at("runAsUserName").is_present() {
        check_windows_user(options.at("runAsUserName"));
    }
}

/// `user` or `DOMAIN\user`.
fn check_windows_user(name: Field<'_>) {
    let text = name.text();
    if text.is_empty() {
        return name.invalid("runAsUserName cannot be an empty string");
    }
    if text.bytes().any(|byte| byte.is_ascii_control()) {
        return name.invalid("runAsUserName cannot contain control characters");
    }
    let (domain, user) = match text.split_once('\\') {
        Some((_, rest)) if rest.contains('\\') => {
            return name.invalid("runAsUserName cannot contain more than one backslash");
        }
        Some((domain, user)) => (Some(domain), user),
        None => (None, text),
    };
    if domain.is_some_and(|domain| domain.len() >= 256) {
        name.invalid("runAsUserName's Domain length must be under 256 characters");
    }
    if domain.is_some_and(|domain| !is_net_bios_name(domain) && !is_windows_domain(domain)) {
        name.invalid("runAsUserName's Domain doesn't match the NetBios nor the DNS format");
    }
    if user.is_empty() {
        name.invalid("runAsUserName's User cannot be empty");
    } else if user.len() > 104 {
        name.invalid("runAsUserName's User length must not be longer than 104 characters");
    }
    if !user.is_empty() && user.bytes().all(|byte| matches!(byte, b'.' | b' ')) {
        name.invalid("runAsUserName's User cannot contain only periods or spaces");
    }
    if user.contains(['"', '/', '\\', ':', ';', '|', '=', ',', '+', '*', '?', '<', '>', '@', '[', ']']) {
        name.invalid("runAsUserName's User cannot contain the following characters: \"/\\:;|=,+*?<>@[]");
    }
}

fn is_net_bios_name(domain: &str) -> bool {
    let length = domain.chars().count();
    (1..=15).contains(&length)
        && !domain.starts_with('.')
        && !domain.contains(['\\', '/', ':', '*', '?', '"', '<', '>', '|'])
}

fn is_windows_domain(domain: &str) -> bool {
    domain.split('.').all(|label| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte == b'-' || byte.is_ascii_alphanumeric())
            && !label.starts_with('-')
            && !label.ends_with('-')
    })
}

/// A pod with a user namespace of its own cannot share other namespaces of the host.
pub(super) fn check_user_namespace(context: &PodContext<'_>) {
    let spec = context.spec;
    if context.has_host_users {
        return;
    }
    if spec.at("hostNetwork").flag() && !spec.is_enabled("UserNamespacesHostNetworkSupport") {
        spec.at("hostNetwork").forbidden(WITHOUT_HOST_USERS);
    }
    for (flag, shown) in [("hostPID", "HostPID"), ("hostIPC", "HostIPC")] {
        if spec.at(flag).flag() {
            spec.at(shown).forbidden(WITHOUT_HOST_USERS);
        }
    }
    for devices in all_containers(spec).map(|container| container.at("volumeDevices")) {
        if devices.len() > 0 {
            devices.forbidden(WITHOUT_HOST_USERS);
        }
    }
}

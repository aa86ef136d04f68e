//! What is valid on one operating system alone.

use super::all_containers;
use crate::validation::Field;

const NOT_ON_WINDOWS: &str = "cannot be set for a windows pod";
const NOT_ON_LINUX: &str = "windows options cannot be set for a linux pod";

pub(super) fn check_operating_system(spec: Field<'_>) {
    let system = spec.at("os");
    if !system.is_present() {
        return;
    }
    match system.at("name").text() {
        "" => system.at("name").required(""),
        "linux" => {
            spec.at("securityContext").forbid(&["windowsOptions"], NOT_ON_LINUX);
            all_containers(spec).for_each(|one| one.at("securityContext").forbid(&["windowsOptions"], NOT_ON_LINUX));
        }
        "windows" => check_windows(spec),
        other => system.unsupported_as(other, &["linux", "windows"]),
    }
}

fn check_windows(spec: Field<'_>) {
    let security = spec.at("securityContext");
    security.forbid(&["appArmorProfile", "seLinuxOptions"], NOT_ON_WINDOWS);
    spec.forbid(&["hostUsers"], NOT_ON_WINDOWS);
    for flag in ["hostPID", "hostIPC"].map(|name| spec.at(name)).into_iter().filter(|flag| flag.flag()) {
        flag.forbidden(NOT_ON_WINDOWS);
    }
    security.forbid(&["seccompProfile", "fsGroup", "fsGroupChangePolicy"], NOT_ON_WINDOWS);
    if security.at("sysctls").len() > 0 {
        security.forbid(&["sysctls"], NOT_ON_WINDOWS);
    }
    spec.forbid(&["shareProcessNamespace"], NOT_ON_WINDOWS);
    security.forbid(
        &["runAsUser", "runAsGroup", "supplementalGroups", "supplementalGroupsPolicy", "seLinuxChangePolicy"],
        NOT_ON_WINDOWS,
    );
    for container in all_containers(spec) {
        container.at("securityContext").forbid(
            &[
                "appArmorProfile",
                "seLinuxOptions",
                "seccompProfile",
                "capabilities",
                "readOnlyRootFilesystem",
                "privileged",
                "allowPrivilegeEscalation",
                "procMount",
                "runAsUser",
                "runAsGroup",
            ],
            NOT_ON_WINDOWS,
        );
    }
}

/// Either every container runs as a process of the Windows host, or none.
pub(super) fn check_host_process(spec: Field<'_>) {
    let of_pod = spec.path("securityContext.windowsOptions.hostProcess");
    let (mut containers, mut host_processes) = (0, 0);
    for container in all_containers(spec) {
        let own = container.path("securityContext.windowsOptions.hostProcess");
        containers += 1;
        if of_pod.is_present() && own.is_present() && of_pod.flag() != own.flag() {
            let detail =
                format!("pod hostProcess value must be identical if both are specified, was {}", of_pod.flag());
            own.invalid(detail);
        }
        let effective = if own.is_present() { own } else { of_pod };
        host_processes += usize::from(effective.flag());
    }
    if host_processes == 0 {
        return;
    }
    if host_processes != containers {
        let detail = "If pod contains any hostProcess containers then all containers must be HostProcess containers";
        spec.invalid_as("", detail);
    }
    if !spec.at("hostNetwork").flag() {
        let detail = "hostNetwork must be true if pod contains any hostProcess containers";
        spec.at("hostNetwork").invalid_as(false, detail);
    }
}

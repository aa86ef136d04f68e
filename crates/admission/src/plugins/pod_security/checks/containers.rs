//! Checks of single containers.

use api::json::JsonObject;
use object::unstructured::{flag, get, integer, objects, text, texts};
use serde_json::Value;

use super::{
    PodView, Violation, containers_of, containers_text, names_of, plural, quoted, setters_text, sorted, violation,
};

fn security<'a>(container: &'a JsonObject, field: &str) -> Option<&'a Value> {
    get(container, &["securityContext", field]).filter(|value| !value.is_null())
}

pub(super) fn privileged(pod: PodView<'_>) -> Option<Violation> {
    let names = names_of(pod, |container| flag(container, &["securityContext", "privileged"]));
    if names.is_empty() {
        return None;
    }
    violation("privileged", format!("{} must not set securityContext.privileged=true", containers_text(&names)))
}

pub(super) fn privilege_escalation(pod: PodView<'_>) -> Option<Violation> {
    let names = names_of(pod, |container| security(container, "allowPrivilegeEscalation") != Some(&Value::Bool(false)));
    if names.is_empty() {
        return None;
    }
    let detail = format!("{} must set securityContext.allowPrivilegeEscalation=false", containers_text(&names));
    violation("allowPrivilegeEscalation != false", detail)
}

pub(super) fn capabilities_baseline(pod: PodView<'_>) -> Option<Violation> {
    const ALLOWED: [&str; 13] = [
        "AUDIT_WRITE",
        "CHOWN",
        "DAC_OVERRIDE",
        "FOWNER",
        "FSETID",
        "KILL",
        "MKNOD",
        "NET_BIND_SERVICE",
        "SETFCAP",
        "SETGID",
        "SETPCAP",
        "SETUID",
        "SYS_CHROOT",
    ];
    let (names, added) = added_capabilities(pod, |capability| ALLOWED.contains(&capability));
    if names.is_empty() {
        return None;
    }
    let detail =
        format!("{} must not include {} in securityContext.capabilities.add", containers_text(&names), quoted(&added));
    violation("non-default capabilities", detail)
}

/// The containers that add capabilities that are not allowed, and those capabilities.
fn added_capabilities(pod: PodView<'_>, is_allowed: impl Fn(&str) -> bool) -> (Vec<String>, Vec<String>) {
    let added = |container| -> Vec<String> {
        let added = texts(container, &["securityContext", "capabilities", "add"]);
        added.filter(|capability| !is_allowed(capability)).map(str::to_owned).collect()
    };
    let names = names_of(pod, |container| !added(container).is_empty());
    (names, sorted(containers_of(pod).flat_map(added).collect()))
}

pub(super) fn capabilities_restricted(pod: PodView<'_>) -> Option<Violation> {
    let undropped = names_of(pod, |container| {
        !texts(container, &["securityContext", "capabilities", "drop"]).any(|capability| capability == "ALL")
    });
    let (names, added) = added_capabilities(pod, |capability| capability == "NET_BIND_SERVICE");
    let mut details = Vec::new();
    if !undropped.is_empty() {
        let containers = containers_text(&undropped);
        details.push(format!("{containers} must set securityContext.capabilities.drop=[\"ALL\"]"));
    }
    if !names.is_empty() {
        details.push(format!(
            "{} must not include {} in securityContext.capabilities.add",
            containers_text(&names),
            quoted(&added)
        ));
    }
    if details.is_empty() { None } else { violation("unrestricted capabilities", details.join("; ")) }
}

pub(super) fn host_ports(pod: PodView<'_>) -> Option<Violation> {
    let ports = |container| -> Vec<String> {
        let ports = objects(container, &["ports"]).filter_map(|port| integer(port, &["hostPort"]));
        ports.filter(|port| *port != 0).map(|port| port.to_string()).collect()
    };
    let names = names_of(pod, |container| !ports(container).is_empty());
    if names.is_empty() {
        return None;
    }
    let used = sorted(containers_of(pod).flat_map(ports).collect());
    let detail = format!(
        "{} {} {} {}",
        containers_text(&names),
        plural("uses", "use", names.len()),
        plural("hostPort", "hostPorts", used.len()),
        used.join(", ")
    );
    violation("hostPort", detail)
}

pub(super) fn host_probes(pod: PodView<'_>) -> Option<Violation> {
    const HANDLERS: [&[&str]; 5] = [
        &["livenessProbe"],
        &["readinessProbe"],
        &["startupProbe"],
        &["lifecycle", "postStart"],
        &["lifecycle", "preStop"],
    ];
    let hosts = |container: &JsonObject| -> Vec<String> {
        let handlers = HANDLERS.iter().filter_map(|path| get(container, path).and_then(Value::as_object));
        handlers
            .flat_map(|handler| ["httpGet", "tcpSocket"].map(|kind| text(handler, &[kind, "host"]).to_owned()))
            .filter(|host| !host.is_empty())
            .collect()
    };
    let names = sorted(names_of(pod, |container| !hosts(container).is_empty()));
    if names.is_empty() {
        return None;
    }
    let used = sorted(containers_of(pod).flat_map(hosts).collect());
    let detail = format!(
        "{} {} {} {}",
        containers_text(&names),
        plural("uses", "use", names.len()),
        plural("probe or lifecycle host", "probe or lifecycle hosts", used.len()),
        quoted(&used)
    );
    violation("probe or lifecycle host", detail)
}

pub(super) fn proc_mount(pod: PodView<'_>) -> Option<Violation> {
    let mount =
        |container| security(container, "procMount").and_then(Value::as_str).filter(|mount| *mount != "Default");
    let names = names_of(pod, |container| mount(container).is_some());
    if names.is_empty() {
        return None;
    }
    let mounts = sorted(containers_of(pod).filter_map(mount).map(str::to_owned).collect());
    let detail = format!("{} must not set securityContext.procMount to {}", containers_text(&names), quoted(&mounts));
    violation("procMount", detail)
}

pub(super) fn run_as_non_root(pod: PodView<'_>) -> Option<Violation> {
    const REASON: &str = "runAsNonRoot != true";
    let of_pod = security(pod.spec, "runAsNonRoot").and_then(Value::as_bool);
    let own = |container: &JsonObject| security(container, "runAsNonRoot").and_then(Value::as_bool);
    let explicit = names_of(pod, |container| own(container) == Some(false));
    if of_pod == Some(false) || !explicit.is_empty() {
        let setters = setters_text(of_pod == Some(false), &explicit);
        return violation(REASON, format!("{setters} must not set securityContext.runAsNonRoot=false"));
    }
    let implicit = names_of(pod, |container| own(container).is_none() && of_pod != Some(true));
    if implicit.is_empty() {
        return None;
    }
    violation(REASON, format!("pod or {} must set securityContext.runAsNonRoot=true", containers_text(&implicit)))
}

pub(super) fn run_as_user(pod: PodView<'_>) -> Option<Violation> {
    let is_root = |object: &JsonObject| integer(object, &["securityContext", "runAsUser"]) == Some(0);
    let names = names_of(pod, is_root);
    if !is_root(pod.spec) && names.is_empty() {
        return None;
    }
    violation("runAsUser=0", format!("{} must not set runAsUser=0", setters_text(is_root(pod.spec), &names)))
}

pub(super) fn windows_host_process(pod: PodView<'_>) -> Option<Violation> {
    let is_host_process = |object: &JsonObject| flag(object, &["securityContext", "windowsOptions", "hostProcess"]);
    let names = names_of(pod, is_host_process);
    if !is_host_process(pod.spec) && names.is_empty() {
        return None;
    }
    let setters = setters_text(is_host_process(pod.spec), &names);
    violation("hostProcess", format!("{setters} must not set securityContext.windowsOptions.hostProcess=true"))
}

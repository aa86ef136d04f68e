//! What is valid in probes and lifecycle handlers.

use super::PodContext;
use crate::validation::Field;

/// In Kubernetes' order: the first one counts, each further one is an error.
const PROBE_HANDLERS: [&str; 4] = ["exec", "httpGet", "tcpSocket", "grpc"];
const LIFECYCLE_HANDLERS: [&str; 4] = ["exec", "httpGet", "tcpSocket", "sleep"];
const WINDOWS_SIGNALS: [&str; 2] = ["SIGKILL", "SIGTERM"];
const LINUX_SIGNALS: [&str; 65] = [
    "SIGABRT",
    "SIGALRM",
    "SIGBUS",
    "SIGCHLD",
    "SIGCLD",
    "SIGCONT",
    "SIGFPE",
    "SIGHUP",
    "SIGILL",
    "SIGINT",
    "SIGIO",
    "SIGIOT",
    "SIGKILL",
    "SIGPIPE",
    "SIGPOLL",
    "SIGPROF",
    "SIGPWR",
    "SIGQUIT",
    "SIGRTMAX",
    "SIGRTMAX-1",
    "SIGRTMAX-10",
    "SIGRTMAX-11",
    "SIGRTMAX-12",
    "SIGRTMAX-13",
    "SIGRTMAX-14",
    "SIGRTMAX-2",
    "SIGRTMAX-3",
    "SIGRTMAX-4",
    "SIGRTMAX-5",
    "SIGRTMAX-6",
    "SIGRTMAX-7",
    "SIGRTMAX-8",
    "SIGRTMAX-9",
    "SIGRTMIN",
    "SIGRTMIN+1",
    "SIGRTMIN+10",
    "SIGRTMIN+11",
    "SIGRTMIN+12",
    "SIGRTMIN+13",
    "SIGRTMIN+14",
    "SIGRTMIN+15",
    "SIGRTMIN+2",
    "SIGRTMIN+3",
    "SIGRTMIN+4",
    "SIGRTMIN+5",
    "SIGRTMIN+6",
    "SIGRTMIN+7",
    "SIGRTMIN+8",
    "SIGRTMIN+9",
    "SIGSEGV",
    "SIGSTKFLT",
    "SIGSTOP",
    "SIGSYS",
    "SIGTERM",
    "SIGTRAP",
    "SIGTSTP",
    "SIGTTIN",
    "SIGTTOU",
    "SIGURG",
    "SIGUSR1",
    "SIGUSR2",
    "SIGVTALRM",
    "SIGWINCH",
    "SIGXCPU",
    "SIGXFSZ",
];

/// `name` is the name of the probe's field.
pub(super) fn check_probe(name: &str, probe: Field<'_>, context: &PodContext<'_>) {
    if !probe.is_present() {
        return;
    }
    check_handler(probe, &PROBE_HANDLERS, context);
    for number in ["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"] {
        probe.at(number).not_negative();
    }
    let grace = probe.at("terminationGracePeriodSeconds");
    if grace.integer().is_some_and(|seconds| seconds <= 0) {
        grace.invalid("must be greater than 0");
    }
    let successes = probe.at("successThreshold");
    match name {
        "readinessProbe" if grace.is_present() => grace.invalid("must not be set for readinessProbes"),
        "livenessProbe" | "startupProbe" if successes.integer() != Some(1) => {
            successes.invalid_as(successes.integer_or_zero(), "must be 1");
        }
        _ => {}
    }
}

pub(super) fn check_lifecycle(lifecycle: Field<'_>, context: &PodContext<'_>) {
    for handler in ["postStart", "preStop"].map(|name| lifecycle.at(name)) {
        if handler.is_present() {
            check_handler(handler, &LIFECYCLE_HANDLERS, context);
        }
    }
    let signal = lifecycle.at("stopSignal");
    if signal.is_present() {
        match context.spec.path("os.name").text() {
            _ if !context.spec.at("os").is_present() => {
                signal.forbidden("may not be set for containers with empty `spec.os.name`");
            }
            "windows" => signal.one_of(&WINDOWS_SIGNALS),
            "linux" => signal.one_of(&LINUX_SIGNALS),
            _ => {}
        }
    }
}

fn check_handler(handler: Field<'_>, kinds: &[&'static str], context: &PodContext<'_>) {
    let mut present = kinds.iter().filter(|kind| handler.at(kind).is_present());
    match present.next() {
        Some(kind) => check_action(kind, handler.at(kind), context),
        None => handler.required("must specify a handler type"),
    }
    present.for_each(|kind| handler.at(kind).forbidden("may not specify more than 1 handler type"));
}

fn check_action(kind: &str, action: Field<'_>, context: &PodContext<'_>) {
    match kind {
        "exec" if action.at("command").len() == 0 => action.at("command").required(""),
        "httpGet" => {
            action.require(&["path"]);
            action.at("port").port_number_or_name();
            action.at("scheme").one_of(&["HTTP", "HTTPS"]);
            let headers = action.at("httpHeaders");
            headers.items().for_each(|header| header.at("name").reported_at(headers).http_header_name());
        }
        "tcpSocket" => action.at("port").port_number_or_name(),
        "grpc" => action.at("port").port_number(),
        "sleep" => check_sleep(action, context.grace_period),
        _ => {}
    }
}

fn check_sleep(sleep: Field<'_>, grace_period: Option<i64>) {
    let (seconds, Some(grace)) = (sleep.at("seconds").integer_or_zero(), grace_period) else { return };
    if sleep.is_enabled("PodLifecycleSleepActionAllowZero") {
        if seconds < 0 || seconds > grace {
            let detail = format!("must be non-negative and less than terminationGracePeriodSeconds ({grace})");
            sleep.invalid_as(seconds, detail);
        }
    } else if seconds <= 0 || seconds > grace {
        let detail = format!(
            "must be greater than 0 and less than terminationGracePeriodSeconds ({grace}). Enable \
             AllowPodLifecycleSleepActionZeroValue feature gate for zero sleep."
        );
        sleep.invalid_as(seconds, detail);
    }
}

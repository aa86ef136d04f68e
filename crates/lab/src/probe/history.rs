//! Which server served which resources when, and hence whether a 404 was right. Pure.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::Instant;

/// Group-version and resource, such as `("apps/v1", "deployments")`.
pub type ProbedResource = (String, String);

/// How long the servers respond 503 for the resources of a member that left; slightly less than their own linger time,
/// because the probe's clock starts at another moment.
const LINGER: Duration = Duration::from_secs(50);

/// One start of a server, with the resources it served.
#[derive(Clone, Debug)]
struct ServerRun {
    server: usize,
    served: BTreeSet<ProbedResource>,
    ready_at: Instant,
    /// When it was told to stop.
    stopping_at: Option<Instant>,
    /// When the server was started again; `served` of this run no longer applies from then on.
    restarted_at: Option<Instant>,
}

/// Every start of every server since the probe began.
#[derive(Clone, Debug, Default)]
pub struct ServingHistory {
    runs: Vec<ServerRun>,
}

impl ServingHistory {
    /// Records that a server is ready and serves these resources.
    pub fn server_ready(&mut self, server: usize, served: BTreeSet<ProbedResource>, now: Instant) {
        self.runs.push(ServerRun { server, served, ready_at: now, stopping_at: None, restarted_at: None });
    }

    /// Records that a server is about to be stopped.
    pub fn server_stopping(&mut self, server: usize, now: Instant) {
        self.update_last_run(server, |life| life.stopping_at = Some(now));
    }

    /// Records that a server is about to be started again.
    pub fn server_starting(&mut self, server: usize, now: Instant) {
        self.update_last_run(server, |life| life.restarted_at = Some(now));
    }

    fn update_last_run(&mut self, server: usize, change: impl FnOnce(&mut ServerRun)) {
        if let Some(life) = self.runs.iter_mut().rev().find(|life| life.server == server) {
            change(life);
        }
    }

    /// True if the cluster served the resource during the whole interval: a 404 or a discovery document without it is
    /// then wrong.
    pub fn served_throughout(&self, name: &ProbedResource, from: Instant, to: Instant) -> bool {
        self.runs.iter().any(|life| life.covers(from, to) && life.served.contains(name))
    }

    /// All resources that the cluster served during the whole interval.
    pub fn all_served_throughout(&self, from: Instant, to: Instant) -> BTreeSet<&ProbedResource> {
        self.runs.iter().filter(|life| life.covers(from, to)).flat_map(|life| &life.served).collect()
    }

    /// Resources that some running servers serve and others do not.
    pub fn skewed_resources(&self) -> Vec<ProbedResource> {
        let running: Vec<&ServerRun> =
            self.runs.iter().filter(|life| life.stopping_at.is_none() && life.restarted_at.is_none()).collect();
        let all: BTreeSet<&ProbedResource> = running.iter().flat_map(|life| &life.served).collect();
        all.into_iter().filter(|name| !running.iter().all(|life| life.served.contains(*name))).cloned().collect()
    }
}

impl ServerRun {
    /// True if a 404 during the interval would be wrong for a resource of this run.
    fn covers(&self, from: Instant, to: Instant) -> bool {
        self.ready_at <= from
            && self.restarted_at.is_none_or(|replaced| to < replaced)
            && self.stopping_at.is_none_or(|ended| to < ended + LINGER)
    }
}

/// Classification of one response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeOutcome {
    /// Success, or a 404 for a resource that the cluster does not serve.
    Good,
    /// 503 or 429: allowed while no server can serve the resource.
    Unavailable,
    /// 404 for a resource that the cluster serves.
    WrongNotFound,
    /// Any other status, or no response.
    Failed,
}

/// Classifies a status code; `None` if there was no response.
pub fn classify_response(code: Option<u16>, was_served: bool) -> ProbeOutcome {
    match (code, was_served) {
        (Some(200..=299), _) | (Some(404), false) => ProbeOutcome::Good,
        (Some(404), true) => ProbeOutcome::WrongNotFound,
        // 429 is a temporary refusal like 503.
        (Some(503 | 429), _) => ProbeOutcome::Unavailable,
        (Some(_) | None, _) => ProbeOutcome::Failed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> ProbedResource {
        let (version, resource) = text.rsplit_once('/').unwrap();
        (version.to_owned(), resource.to_owned())
    }

    fn names(text: &str) -> BTreeSet<ProbedResource> {
        text.split_whitespace().map(name).collect()
    }

    fn at(start: Instant, seconds: u64) -> Instant {
        start + Duration::from_secs(seconds)
    }

    #[track_caller]
    fn check(history: &ServingHistory, start: Instant, (from, to): (u64, u64), expected: bool) {
        assert_eq!(
            history.served_throughout(&name("a/v1/xs"), at(start, from), at(start, to)),
            expected,
            "{from}..{to}"
        );
    }

    #[test]
    fn resource_counts_as_served_until_linger_ends_or_server_restarts() {
        let start = Instant::now();
        let mut history = ServingHistory::default();
        history.server_ready(0, names("a/v1/xs v1/pods"), at(start, 10));
        check(&history, start, (9, 11), false);
        check(&history, start, (10, 11), true);
        history.server_stopping(0, at(start, 20));
        check(&history, start, (20, 21), true);
        check(&history, start, (60, 71), false);
        history.server_starting(0, at(start, 30));
        check(&history, start, (28, 29), true);
        check(&history, start, (29, 31), false);
        history.server_ready(0, names("v1/pods"), at(start, 32));
        check(&history, start, (40, 41), false);
        history.server_ready(1, names("a/v1/xs"), at(start, 50));
        check(&history, start, (51, 52), true);
    }

    #[test]
    fn skewed_resources_differ_between_running_servers() {
        let start = Instant::now();
        let mut history = ServingHistory::default();
        history.server_ready(0, names("v1/pods a/v1/xs"), start);
        history.server_ready(1, names("v1/pods b/v1/ys"), start);
        assert_eq!(history.skewed_resources(), [name("a/v1/xs"), name("b/v1/ys")]);
        history.server_stopping(1, start);
        assert_eq!(history.skewed_resources(), [] as [ProbedResource; 0]);
    }

    #[test]
    fn responses_are_classified_by_code_and_history() {
        for (code, had, verdict) in [
            (Some(200), true, ProbeOutcome::Good),
            (Some(404), false, ProbeOutcome::Good),
            (Some(404), true, ProbeOutcome::WrongNotFound),
            (Some(503), true, ProbeOutcome::Unavailable),
            (Some(500), true, ProbeOutcome::Failed),
            (None, true, ProbeOutcome::Failed),
        ] {
            assert_eq!(classify_response(code, had), verdict, "{code:?} {had}");
        }
    }
}

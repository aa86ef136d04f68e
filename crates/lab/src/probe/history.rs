//! Which server of the cluster served what, and when; and so whether a 404 was right. Pure.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::Instant;

/// Group-version and resource, such as `("apps/v1", "deployments")`.
pub type ProbedResource = (String, String);

/// What a member served is answered with 503 for this long after it left; a little less than the servers' linger, since our
/// clock does not stand beside theirs.
const LINGER: Duration = Duration::from_secs(50);

/// One start of a server.
#[derive(Clone, Debug)]
struct ServerRun {
    server: usize,
    served: BTreeSet<ProbedResource>,
    ready_at: Instant,
    /// Told to stop.
    stopping_at: Option<Instant>,
    /// Started again: what it served before counts no longer.
    restarted_at: Option<Instant>,
}

/// Every start of every server since the probe began.
#[derive(Clone, Debug, Default)]
pub struct ServingHistory {
    runs: Vec<ServerRun>,
}

impl ServingHistory {
    /// A server is ready, and serves this.
    pub fn server_ready(&mut self, server: usize, served: BTreeSet<ProbedResource>, now: Instant) {
        self.runs.push(ServerRun { server, served, ready_at: now, stopping_at: None, restarted_at: None });
    }

    /// A server is about to be told to stop.
    pub fn server_stopping(&mut self, server: usize, now: Instant) {
        self.update_last_run(server, |life| life.stopping_at = Some(now));
    }

    /// A server is about to be started again.
    pub fn server_starting(&mut self, server: usize, now: Instant) {
        self.update_last_run(server, |life| life.restarted_at = Some(now));
    }

    fn update_last_run(&mut self, server: usize, change: impl FnOnce(&mut ServerRun)) {
        if let Some(life) = self.runs.iter_mut().rev().find(|life| life.server == server) {
            change(life);
        }
    }

    /// Whether the cluster had this during all of that time: then "not found" is wrong, and so is a document without it.
    pub fn served_throughout(&self, name: &ProbedResource, from: Instant, to: Instant) -> bool {
        self.runs.iter().any(|life| life.covers(from, to) && life.served.contains(name))
    }

    /// Everything that the cluster had during all of that time.
    pub fn all_served_throughout(&self, from: Instant, to: Instant) -> BTreeSet<&ProbedResource> {
        self.runs.iter().filter(|life| life.covers(from, to)).flat_map(|life| &life.served).collect()
    }

    /// What some server that runs now has and another has not.
    pub fn skewed_resources(&self) -> Vec<ProbedResource> {
        let running: Vec<&ServerRun> =
            self.runs.iter().filter(|life| life.stopping_at.is_none() && life.restarted_at.is_none()).collect();
        let all: BTreeSet<&ProbedResource> = running.iter().flat_map(|life| &life.served).collect();
        all.into_iter().filter(|name| !running.iter().all(|life| life.served.contains(*name))).cloned().collect()
    }
}

impl ServerRun {
    fn covers(&self, from: Instant, to: Instant) -> bool {
        self.ready_at <= from
            && self.restarted_at.is_none_or(|replaced| to < replaced)
            && self.stopping_at.is_none_or(|ended| to < ended + LINGER)
    }
}

/// What an answer is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeOutcome {
    /// As it should be.
    Good,
    /// 503: allowed while nobody who can is there.
    Unavailable,
    /// 404 for what the cluster has.
    WrongNotFound,
    /// Anything else.
    Failed,
}

/// Judges a code; `None` if there was no answer.
pub fn classify_response(code: Option<u16>, was_served: bool) -> ProbeOutcome {
    match (code, was_served) {
        (Some(200..=299), _) | (Some(404), false) => ProbeOutcome::Good,
        (Some(404), true) => ProbeOutcome::WrongNotFound,
        // Too many requests is a server's way of saying "not now", too.
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

//! Which server of the cluster served what, and when; and so whether a 404 was right. Pure.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::Instant;

/// Group-version and resource, such as `("apps/v1", "deployments")`.
pub type Name = (String, String);

/// What a member served is answered with 503 for this long after it left; a little less than the servers' linger, since our
/// clock does not stand beside theirs.
const LINGER: Duration = Duration::from_secs(50);

/// One start of a server.
#[derive(Clone, Debug)]
struct Life {
    server: usize,
    served: BTreeSet<Name>,
    ready: Instant,
    /// Told to stop.
    ended: Option<Instant>,
    /// Started again: what it served before counts no longer.
    replaced: Option<Instant>,
}

/// Every start of every server since the probe began.
#[derive(Clone, Debug, Default)]
pub struct History {
    lives: Vec<Life>,
}

impl History {
    /// A server is ready, and serves this.
    pub fn ready(&mut self, server: usize, served: BTreeSet<Name>, now: Instant) {
        self.lives.push(Life { server, served, ready: now, ended: None, replaced: None });
    }

    /// A server is about to be told to stop.
    pub fn stopping(&mut self, server: usize, now: Instant) {
        self.last(server, |life| life.ended = Some(now));
    }

    /// A server is about to be started again.
    pub fn starting(&mut self, server: usize, now: Instant) {
        self.last(server, |life| life.replaced = Some(now));
    }

    fn last(&mut self, server: usize, change: impl FnOnce(&mut Life)) {
        if let Some(life) = self.lives.iter_mut().rev().find(|life| life.server == server) {
            change(life);
        }
    }

    /// Whether the cluster had this during all of that time: then "not found" is wrong, and so is a document without it.
    pub fn has(&self, name: &Name, from: Instant, to: Instant) -> bool {
        self.lives.iter().any(|life| life.has(from, to) && life.served.contains(name))
    }

    /// Everything that the cluster had during all of that time.
    pub fn all(&self, from: Instant, to: Instant) -> BTreeSet<&Name> {
        self.lives.iter().filter(|life| life.has(from, to)).flat_map(|life| &life.served).collect()
    }

    /// What some server that runs now has and another has not.
    pub fn skewed(&self) -> Vec<Name> {
        let running: Vec<&Life> =
            self.lives.iter().filter(|life| life.ended.is_none() && life.replaced.is_none()).collect();
        let all: BTreeSet<&Name> = running.iter().flat_map(|life| &life.served).collect();
        all.into_iter().filter(|name| !running.iter().all(|life| life.served.contains(*name))).cloned().collect()
    }
}

impl Life {
    fn has(&self, from: Instant, to: Instant) -> bool {
        self.ready <= from
            && self.replaced.is_none_or(|replaced| to < replaced)
            && self.ended.is_none_or(|ended| to < ended + LINGER)
    }
}

/// What an answer is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
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
pub fn judge(code: Option<u16>, had: bool) -> Verdict {
    match (code, had) {
        (Some(200..=299), _) | (Some(404), false) => Verdict::Good,
        (Some(404), true) => Verdict::WrongNotFound,
        // Too many requests is a server's way of saying "not now", too.
        (Some(503 | 429), _) => Verdict::Unavailable,
        (Some(_) | None, _) => Verdict::Failed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        let (version, resource) = text.rsplit_once('/').unwrap();
        (version.to_owned(), resource.to_owned())
    }

    fn names(text: &str) -> BTreeSet<Name> {
        text.split_whitespace().map(name).collect()
    }

    fn at(start: Instant, seconds: u64) -> Instant {
        start + Duration::from_secs(seconds)
    }

    #[track_caller]
    fn check(history: &History, start: Instant, (from, to): (u64, u64), expected: bool) {
        assert_eq!(history.has(&name("a/v1/xs"), at(start, from), at(start, to)), expected, "{from}..{to}");
    }

    #[test]
    fn a_404_is_wrong_while_a_member_has_it_and_as_long_as_it_lingers() {
        let start = Instant::now();
        let mut history = History::default();
        history.ready(0, names("a/v1/xs v1/pods"), at(start, 10));
        check(&history, start, (9, 11), false);
        check(&history, start, (10, 11), true);
        history.stopping(0, at(start, 20));
        check(&history, start, (20, 21), true);
        check(&history, start, (60, 71), false);
        history.starting(0, at(start, 30));
        check(&history, start, (28, 29), true);
        check(&history, start, (29, 31), false);
        history.ready(0, names("v1/pods"), at(start, 32));
        check(&history, start, (40, 41), false);
        history.ready(1, names("a/v1/xs"), at(start, 50));
        check(&history, start, (51, 52), true);
    }

    #[test]
    fn what_differs_between_those_that_run_is_asked_for() {
        let start = Instant::now();
        let mut history = History::default();
        history.ready(0, names("v1/pods a/v1/xs"), start);
        history.ready(1, names("v1/pods b/v1/ys"), start);
        assert_eq!(history.skewed(), [name("a/v1/xs"), name("b/v1/ys")]);
        history.stopping(1, start);
        assert_eq!(history.skewed(), [] as [Name; 0]);
    }

    #[test]
    fn answers_are_judged() {
        for (code, had, verdict) in [
            (Some(200), true, Verdict::Good),
            (Some(404), false, Verdict::Good),
            (Some(404), true, Verdict::WrongNotFound),
            (Some(503), true, Verdict::Unavailable),
            (Some(500), true, Verdict::Failed),
            (None, true, Verdict::Failed),
        ] {
            assert_eq!(judge(code, had), verdict, "{code:?} {had}");
        }
    }
}

//! Migrations over a model cluster: servers join, leave and change versions while a client writes.

use std::collections::BTreeMap;

use expect_test::{Expect, expect};
use fastrand::Rng;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;

use super::*;

const LINGER: Duration = Duration::from_secs(70);

fn writer(server: &str, version: Option<&str>) -> Writer {
    let hostname = format!("host-{server}");
    Writer { server: server.to_owned(), hostname, encoding_version: version.map(str::to_owned) }
}

fn evidence(writers: &[(&str, Option<&str>)]) -> WriterEvidence {
    let writers = writers.iter().map(|(server, version)| writer(server, *version)).collect();
    WriterEvidence { writers, ..WriterEvidence::default() }
}

#[track_caller]
fn check_judgement(evidence: &WriterEvidence, expected: &Expect) {
    let text = match evidence.judge() {
        Ok(agreed) => format!("{} by {}", agreed.version, agreed.servers.join(" ")),
        Err(reason) => reason.to_string(),
    };
    expected.assert_eq(&text);
}

#[test]
fn writers_agree_only_if_all_report_the_same_version() {
    check_judgement(&evidence(&[]), &expect!["no API server is known to write the resource"]);
    check_judgement(&evidence(&[("b", Some("apps/v1")), ("a", Some("apps/v1"))]), &expect!["apps/v1 by a b"]);
    check_judgement(
        &evidence(&[("a", Some("g/v1")), ("b", Some("g/v1beta1")), ("c", Some("g/v1"))]),
        &expect![
            "the API servers disagree: g/v1 is written by host-a (a), host-c (c); g/v1beta1 is written by host-b (b)"
        ],
    );
    check_judgement(&evidence(&[("a", Some("g/v1")), ("b", None)]), &expect!["encoding version unknown of host-b (b)"]);
    let defined = WriterEvidence { defined_version: Some("g/v2".to_owned()), ..evidence(&[("a", Some("g/v1"))]) };
    check_judgement(&defined, &expect!["the definition stores g/v2, the API servers still report g/v1"]);
}

#[tokio::test(start_paused = true)]
async fn agreement_counts_only_after_linger_since_the_last_departure() {
    let mut tracker = AgreementTracker::new(LINGER, WriterHistory::default());
    let both = evidence(&[("a", Some("v1")), ("b", Some("v1"))]);
    assert_eq!(
        tracker.observe(&both, Instant::now()).unwrap_err(),
        HoldReason::Lingering { remaining: LINGER },
        "a server may have left just before the first observation"
    );
    tokio::time::advance(LINGER).await;
    let seen = |tracker: &mut AgreementTracker, evidence: &WriterEvidence| {
        tracker.observe(evidence, Instant::now()).map(|(_, continuity)| continuity)
    };
    assert_eq!(seen(&mut tracker, &both), Ok(Continuity::New));
    let touched = WriterEvidence { marker: "2".to_owned(), ..both.clone() };
    assert_eq!(seen(&mut tracker, &touched), Ok(Continuity::Unbroken), "a changed revision alone is harmless");
    let one = evidence(&[("a", Some("v1"))]);
    assert!(matches!(seen(&mut tracker, &one), Err(HoldReason::Lingering { .. })));
    tokio::time::advance(LINGER).await;
    assert_eq!(seen(&mut tracker, &one), Ok(Continuity::New));
    assert_eq!(seen(&mut tracker, &both), Ok(Continuity::New), "a server joined");
    let mixed = evidence(&[("a", Some("v1")), ("b", Some("v2"))]);
    assert!(matches!(seen(&mut tracker, &mixed), Err(HoldReason::Disagreement(_))));
    assert_eq!(seen(&mut tracker, &both), Ok(Continuity::New), "the agreement was interrupted");
}

#[tokio::test(start_paused = true)]
async fn next_migration_does_not_wait_for_departures_that_the_last_one_waited_for() {
    let history = WriterHistory::default();
    let [one, both] = [evidence(&[("a", Some("v1"))]), evidence(&[("a", Some("v1")), ("b", Some("v1"))])];
    let observe = |tracker: &mut AgreementTracker, evidence: &WriterEvidence| {
        tracker.observe(evidence, Instant::now()).map(|(_, continuity)| continuity)
    };
    let new = || AgreementTracker::new(LINGER, history.clone());
    let waits = |remaining| Err(HoldReason::Lingering { remaining });
    let mut first = new();
    assert_eq!(observe(&mut first, &both), waits(LINGER));
    tokio::time::advance(LINGER).await;
    assert_eq!(observe(&mut first, &both), Ok(Continuity::New));
    tokio::time::advance(UNOBSERVED_MAX).await;
    assert_eq!(observe(&mut new(), &both), Ok(Continuity::New), "nothing left since");
    assert_eq!(observe(&mut new(), &one), waits(LINGER), "b left between the migrations");
    tokio::time::advance(Duration::from_secs(3)).await;
    assert_eq!(observe(&mut new(), &one), waits(LINGER - Duration::from_secs(3)), "the rest of that time");
    tokio::time::advance(LINGER).await;
    assert_eq!(observe(&mut new(), &one), waits(LINGER), "a server may have come and gone since");
    assert_eq!(observe(&mut first, &both), Ok(Continuity::Unbroken), "a running migration has its own observations");
}

#[test]
fn target_accepts_only_its_version_media_type_and_key() {
    let stored = StoredForm { api_version: "v1", media_type: "application/json", encryption: "aescbc:v1:new" };
    let target = |api_version: &str, media_type: Option<&str>, encryption: Option<&str>| TargetForm {
        api_version: api_version.to_owned(),
        media_type: media_type.map(str::to_owned),
        encryption: encryption.map(str::to_owned),
    };
    assert!(target("v1", None, None).accepts(&stored));
    assert!(target("v1", Some("application/json"), Some("aescbc:v1:new")).accepts(&stored));
    assert!(!target("v2", None, None).accepts(&stored));
    assert!(!target("v1", Some("application/vnd.kubernetes.protobuf"), None).accepts(&stored));
    assert!(!target("v1", None, Some("aescbc:v1:old")).accepts(&stored));
    assert!(!target("v1", None, Some("")).accepts(&stored), "it shall not be encrypted");
    let hidden = StoredForm { api_version: "", media_type: "", encryption: "kms:v2:vault" };
    assert!(!target("v1", None, None).accepts(&hidden));
}

/// Servers and objects in memory. Time passes, and other clients act, in each call of the migration.
struct ModelCluster {
    state: Mutex<ModelState>,
}

struct ModelState {
    rng: Rng,
    revision: u64,
    /// Encoding versions by server.
    servers: BTreeMap<String, &'static str>,
    /// Changes whenever `servers` does.
    servers_changed: u64,
    /// Version, revision and content of each object.
    objects: BTreeMap<String, (&'static str, u64, u64)>,
    /// The content that each object must have: no rewrite may undo a write of a client.
    expected: BTreeMap<String, u64>,
    /// Actions of others that are left.
    actions: u32,
    refused: Option<&'static str>,
    /// Nothing happens.
    is_quiet: bool,
    /// How often a server of another version writes and leaves right after a survey.
    visits: u32,
    reports: Vec<Progress>,
}

const VERSIONS: [&str; 2] = ["g/v1", "g/v2"];

impl ModelState {
    /// A client writes, a server restarts in another version, or nothing happens.
    fn act(&mut self) {
        if self.is_quiet {
            return;
        }
        if self.actions == 0 {
            // The last actions: all servers are upgraded.
            if self.servers.values().any(|version| *version != VERSIONS[1]) {
                self.servers.values_mut().for_each(|version| *version = VERSIONS[1]);
                self.servers_changed += 1;
            }
            return;
        }
        self.actions -= 1;
        let server = format!("s{}", self.rng.u8(..3));
        match self.rng.u8(..8) {
            0 => {
                self.servers.insert(server, VERSIONS[usize::from(self.rng.bool())]);
                self.servers_changed += 1;
            }
            1 if self.servers.len() > 1 => {
                self.servers_changed += u64::from(self.servers.remove(&server).is_some());
            }
            2..=5 => self.write_as_client(),
            _ => {}
        }
    }

    fn write_as_client(&mut self) {
        let Some(version) = self.rng.choice(self.servers.values().copied().collect::<Vec<_>>()) else { return };
        let name = format!("o{}", self.rng.u8(..60));
        self.revision += 1;
        self.objects.insert(name.clone(), (version, self.revision, self.revision));
        self.expected.insert(name, self.revision);
    }
}

impl MigrationPort for ModelCluster {
    fn observe(&self) -> BoxFuture<'_, Result<WriterEvidence, String>> {
        let mut state = self.state.lock();
        state.act();
        let writers = state.servers.iter().map(|(server, version)| writer(server, Some(version))).collect();
        let marker = state.servers_changed.to_string();
        std::future::ready(Ok(WriterEvidence { writers, defined_version: None, marker })).boxed()
    }

    fn survey<'a>(&'a self, target: &'a TargetForm) -> BoxFuture<'a, Result<Survey, String>> {
        let mut state = self.state.lock();
        state.act();
        let mut survey = Survey { revision: state.revision, ..Survey::default() };
        for (name, (version, revision, _)) in &state.objects {
            let reference = || StoredRef { namespace: String::new(), name: name.clone(), revision: *revision };
            survey.add(*version == target.api_version, reference);
        }
        state.act();
        if survey.outdated == 0 && state.visits > 0 {
            state.visits -= 1;
            (state.revision, state.servers_changed) = (state.revision + 1, state.servers_changed + 2);
            let written = (VERSIONS[0], state.revision, state.expected["o1"]);
            state.objects.insert("o1".to_owned(), written);
        }
        std::future::ready(Ok(survey)).boxed()
    }

    fn rewrite<'a>(&'a self, object: &'a StoredRef, _: &'a AgreedWriters) -> BoxFuture<'a, RewriteOutcome> {
        let mut state = self.state.lock();
        state.act();
        if state.refused.is_some_and(|refused| refused == object.name) {
            return std::future::ready(RewriteOutcome::Refused("denied".to_owned())).boxed();
        }
        if state.rng.u8(..20) == 0 && state.actions > 0 {
            return std::future::ready(RewriteOutcome::Unavailable("connection refused".to_owned())).boxed();
        }
        let versions: Vec<_> = state.servers.values().copied().collect();
        let Some(version) = state.rng.choice(versions) else {
            return std::future::ready(RewriteOutcome::Answered).boxed();
        };
        let (known, content) = state.objects.get(&object.name).map_or((0, 0), |(_, known, content)| (*known, *content));
        if known == object.revision {
            state.revision += 1;
            let written = (version, state.revision, content);
            state.objects.insert(object.name.clone(), written);
        }
        std::future::ready(RewriteOutcome::Answered).boxed()
    }

    fn report<'a>(&'a self, progress: &'a Progress) -> BoxFuture<'a, ()> {
        self.state.lock().reports.push(progress.clone());
        std::future::ready(()).boxed()
    }
}

fn model(seed: u64, actions: u32) -> ModelCluster {
    let servers = (0..3).map(|server| (format!("s{server}"), VERSIONS[0])).collect();
    let mut state = ModelState {
        rng: Rng::with_seed(seed),
        revision: 1,
        servers,
        servers_changed: 0,
        objects: BTreeMap::new(),
        expected: BTreeMap::new(),
        actions,
        refused: None,
        is_quiet: false,
        visits: 0,
        reports: Vec::new(),
    };
    (0..100).for_each(|_| state.write_as_client());
    ModelCluster { state: Mutex::new(state) }
}

fn settings() -> MigrationSettings {
    MigrationSettings { linger: LINGER, poll_interval: Duration::from_secs(1), ..MigrationSettings::default() }
}

#[tokio::test(start_paused = true)]
async fn proven_migration_leaves_no_object_in_another_version_and_loses_no_write() {
    for seed in 0..150 {
        let cluster = model(seed, 60 + u32::try_from(seed).unwrap_or(0) % 400);
        let outcome = migrate(&cluster, &settings()).await;
        let state = cluster.state.lock();
        let MigrationOutcome::Proven(progress) = outcome else { panic!("{seed}: {outcome:?}") };
        for (name, (version, _, content)) in &state.objects {
            assert_eq!(*version, progress.version, "{seed}: {name}");
            assert_eq!(state.expected.get(name), Some(content), "{seed}: {name} lost a write");
        }
        assert!(state.servers.values().all(|version| *version == progress.version), "{seed}");
    }
}

#[tokio::test(start_paused = true)]
async fn server_that_writes_and_leaves_between_two_observations_voids_the_proof() {
    let cluster = model(4, 0);
    {
        let mut state = cluster.state.lock();
        state.objects.insert("o1".to_owned(), (VERSIONS[0], 1, 1));
        state.expected.insert("o1".to_owned(), 1);
        state.visits = 2;
    }
    let outcome = migrate(&cluster, &settings()).await;
    assert!(matches!(outcome, MigrationOutcome::Proven(_)), "{outcome:?}");
    let state = cluster.state.lock();
    assert!(state.objects.values().all(|(version, ..)| *version == VERSIONS[1]));
    assert_eq!(state.visits, 0);
}

#[tokio::test(start_paused = true)]
async fn refused_object_is_named_and_the_others_are_rewritten() {
    let cluster = model(1, 0);
    {
        let mut state = cluster.state.lock();
        state.objects.entry("o7".to_owned()).or_insert(("g/v1", 2, 2));
        state.refused = Some("o7");
    }
    let outcome = migrate(&cluster, &settings()).await;
    let MigrationOutcome::Refused { progress, objects } = outcome else { panic!("{outcome:?}") };
    assert_eq!((objects, progress.outdated), (vec!["o7: denied".to_owned()], 1));
    let state = cluster.state.lock();
    assert!(state.objects.iter().all(|(name, (version, ..))| (*version == "g/v2") != (name == "o7")));
}

#[tokio::test(start_paused = true)]
async fn migration_holds_and_names_the_server_that_writes_another_version() {
    let cluster = model(2, 0);
    {
        let mut state = cluster.state.lock();
        state.servers.insert("s1".to_owned(), VERSIONS[1]);
        state.is_quiet = true;
    }
    let held = tokio::time::timeout(LINGER * 3, migrate(&cluster, &settings())).await;
    assert!(held.is_err(), "it waits for as long as they disagree");
    let report = cluster.state.lock().reports.last().cloned().unwrap();
    expect!["the API servers disagree: g/v1 is written by host-s0 (s0), host-s2 (s2); g/v2 is written by host-s1 (s1)"]
        .assert_eq(&report.waiting_for);
    assert_eq!(report.rewritten, 0);
    cluster.state.lock().is_quiet = false;
    assert!(matches!(migrate(&cluster, &settings()).await, MigrationOutcome::Proven(_)));
}

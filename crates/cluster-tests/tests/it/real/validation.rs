//! Sends mutated manifests of every kind to a real kube-apiserver and to ours, and prints where they differ.
//!
//! | variable | meaning |
//! |---|---|
//! | `UNSKEW_REAL_SEED` | number that selects the cases; 1 if unset |
//! | `UNSKEW_REAL_CASES` | cases per kind, about; 200 if unset, 60 when recording |
//! | `UNSKEW_REAL_KINDS` | kinds, separated by commas; all if unset |
//! | `UNSKEW_REAL_RELEASE` | an older release, such as 1.35, which the real server then emulates; its own if unset |
//! | `UNSKEW_REAL_OUTPUT` | folder for one file per kind with a line per difference; `target/validation` if unset |
//! | `UNSKEW_REAL_RECORD` | set: the real server's responses replace the recorded ones, and the known differences |

#![expect(clippy::print_stdout, reason = "figures are what the comparison is run for")]

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Instant;

use cluster_tests::kube_apiserver::{KubeApiserver, KubeApiserverRelease, release_of_assets};
use cluster_tests::tools::optional_text;
use cluster_tests::{Etcd, RunningServer, TestStore};

use crate::block_on;
use crate::validation::generate::Generator;
use crate::validation::manifests::{Kind, load_kinds};
use crate::validation::mutation::Case;
use crate::validation::outcome::Outcome;
use crate::validation::recording::{KnownDifferences, Recordings};
use crate::validation::report::{Comparison, render_missing_rules, render_tables};
use crate::validation::schema::Schemas;
use crate::validation::target::Target;
use crate::validation::{ALL_APIS, PLUGINS, SERVICE_RANGE};

const SEED: u64 = 1;
const CASES_PER_KIND: usize = 200;
/// So many that the replay takes seconds.
const RECORDED_CASES_PER_KIND: usize = 60;

#[test]
fn validation_agrees_with_kube_apiserver() {
    let own_release = release_of_assets();
    let release = optional_text("UNSKEW_REAL_RELEASE").unwrap_or(own_release);
    let folder = tempfile::tempdir().unwrap();
    let etcd = Etcd::start();
    let release_flag = format!("--emulated-version={release}");
    let ours =
        RunningServer::start(folder.path(), TestStore::Sqlite, &[&release_flag, ALL_APIS, SERVICE_RANGE, PLUGINS]);
    // As envtest and kubeadm have it.
    let flags = [ALL_APIS, "--allow-privileged=true", &release_flag];
    let real = KubeApiserver::start_stock(KubeApiserverRelease::New, folder.path(), &etcd, &flags);
    let kinds = selected_kinds();
    let started = Instant::now();
    let comparisons = block_on(async {
        let (ours, real) = (Target::discover(ours.admin()).await, Target::discover(real.admin()).await);
        compare(&ours, &real, &kinds).await
    });
    println!("{release}: {} cases in {:.1} s", comparisons.len(), started.elapsed().as_secs_f64());
    print!("{}", render_tables(&comparisons));
    write_differences(&comparisons);
    if is_recording() {
        record(&Recordings::of_release(&release), &comparisons);
    }
    // The worth of the comparison is in the figures above; this says that there was one.
    assert!(comparisons.iter().any(|one| matches!(one.real, Outcome::Refused { .. })), "nothing was refused");
}

pub(super) fn is_recording() -> bool {
    optional_text("UNSKEW_REAL_RECORD").is_some()
}

fn number_variable<T: std::str::FromStr>(variable: &str, default: T) -> T {
    optional_text(variable)
        .map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{variable} is not a number: {text}")))
}

fn selected_kinds() -> Vec<Kind> {
    let mut kinds = load_kinds();
    if let Some(names) = optional_text("UNSKEW_REAL_KINDS") {
        let unknown = |name: &&str| !kinds.iter().any(|kind| kind.kind == *name);
        assert_eq!(names.split(',').find(unknown), None, "no manifest is of this kind");
        kinds.retain(|kind| names.split(',').any(|name| name == kind.kind));
    }
    kinds
}

/// Sends mutations of all manifests to both servers.
pub(super) async fn compare<'a>(ours: &Target, real: &Target, kinds: &'a [Kind]) -> Vec<Comparison<'a>> {
    let served: Vec<&Kind> = kinds.iter().filter(|kind| ours.serves(kind) && real.serves(kind)).collect();
    let cases = generate_cases(real, &served).await;
    let (real_outcomes, refused) = real.run_all(&served, &cases).await;
    assert!(refused.is_empty(), "the real server refuses manifests:\n{}", refused.join("\n"));
    let unstable = find_unstable(real, &cases, &real_outcomes).await;
    println!("{} cases left out: the real server does not respond, or not always the same", unstable.len());
    for (kind, case) in unstable.iter().map(|index| &cases[*index]) {
        println!("  {} {case}", kind.file_stem());
    }
    let started = Instant::now();
    let (our_outcomes, refused) = ours.run_all(&served, &cases).await;
    println!("ours took {:.1} s", started.elapsed().as_secs_f64());
    refused.iter().for_each(|error| println!("ours refuses a manifest: {error}"));
    let all = cases.into_iter().zip(our_outcomes.into_iter().zip(real_outcomes)).enumerate();
    all.filter(|(index, _)| !unstable.contains(index))
        .map(|(_, ((kind, case), (ours, real)))| Comparison { kind, case, ours, real })
        .collect()
}

async fn generate_cases<'a>(real: &Target, kinds: &[&'a Kind]) -> Vec<(&'a Kind, Case)> {
    let default_count = if is_recording() { RECORDED_CASES_PER_KIND } else { CASES_PER_KIND };
    let seed = number_variable("UNSKEW_REAL_SEED", SEED);
    let count = number_variable("UNSKEW_REAL_CASES", default_count);
    let mut schemas: BTreeMap<&str, Schemas> = BTreeMap::new();
    let mut cases = Vec::new();
    for kind in kinds {
        if !schemas.contains_key(kind.api_version.as_str()) {
            let root = if kind.api_version.contains('/') { "apis" } else { "api" };
            let document = real.client().get(&format!("/openapi/v3/{root}/{}", kind.api_version)).await;
            assert_eq!(document.status, 200, "{}", kind.api_version);
            schemas.insert(&kind.api_version, Schemas::new(&document.json()));
        }
        let schemas = &schemas[kind.api_version.as_str()];
        let generator =
            Generator { kind, schemas, can_update: real.can_update(kind), has_status: real.has_status(kind) };
        cases.extend(generator.cases(seed, count).into_iter().map(|case| (*kind, case)));
    }
    cases
}

/// Indices of cases that cannot be compared: without a response, since handlers of real servers panic too, or with several causes
/// whose order differs when they are sent once more, since maps have no order. What was stored since refuses creates of
/// the same name, which then come without causes.
async fn find_unstable(real: &Target, cases: &[(&Kind, Case)], outcomes: &[Outcome]) -> Vec<usize> {
    let several: Vec<usize> = (0..cases.len()).filter(|index| outcomes[*index].has_several_causes()).collect();
    let again: Vec<(&Kind, Case)> = several.iter().map(|index| (cases[*index].0, cases[*index].1.clone())).collect();
    let repeated = real.run(&again).await;
    let pairs = several.into_iter().zip(repeated);
    let is_unstable = |(index, again): &(usize, Outcome)| again.has_several_causes() && outcomes[*index] != *again;
    let mut unstable: Vec<usize> = pairs.filter(is_unstable).map(|(index, _)| index).collect();
    unstable.extend((0..cases.len()).filter(|index| outcomes[*index].is_missing()));
    unstable
}

/// One file per kind; a line has the difference, the case, our outcome and the real one.
pub(super) fn write_differences(comparisons: &[Comparison<'_>]) {
    let default = || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target/validation");
    let folder = optional_text("UNSKEW_REAL_OUTPUT").map_or_else(default, PathBuf::from);
    std::fs::create_dir_all(&folder).unwrap();
    let mut files: BTreeMap<String, String> = BTreeMap::new();
    for one in comparisons {
        let file = files.entry(one.kind.file_stem()).or_default();
        if let Some(difference) = one.difference() {
            let (word, Comparison { case, ours, real, .. }) = (difference.word(), one);
            *file += &format!("{word}\t{case}\tOURS\t{ours}\tREAL\t{real}\n");
        }
    }
    for (stem, lines) in files {
        std::fs::write(folder.join(format!("{stem}.tsv")), lines).unwrap();
    }
    std::fs::write(folder.join("missing-rules.tsv"), render_missing_rules(comparisons)).unwrap();
    println!("differences are in {}", folder.display());
}

pub(super) fn record(recordings: &Recordings, comparisons: &[Comparison<'_>]) {
    let mut kinds: BTreeMap<String, Vec<&Comparison<'_>>> = BTreeMap::new();
    for one in comparisons {
        kinds.entry(one.kind.file_stem()).or_default().push(one);
    }
    for members in kinds.values() {
        let outcomes: Vec<_> = members.iter().map(|one| (&one.case, &one.real)).collect();
        recordings.write_outcomes(members[0].kind, &outcomes);
        let differing = members.iter().filter_map(|one| Some((one.case.to_string(), one.difference()?)));
        recordings.write_known(members[0].kind, &differing.collect::<KnownDifferences>());
    }
}

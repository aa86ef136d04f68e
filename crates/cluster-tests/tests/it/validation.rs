//! Requests that break the rules of a kind get the verdict, causes and message of a real kube-apiserver, and valid ones its
//! defaults.
//!
//! `cargo xtask real validation` compares with a real server and records its responses; the test here replays the recording
//! against ours.

pub(crate) mod generate;
pub(crate) mod manifests;
pub(crate) mod mutation;
pub(crate) mod outcome;
pub(crate) mod recording;
pub(crate) mod report;
pub(crate) mod schema;
pub(crate) mod target;

use std::collections::BTreeMap;

use cluster_tests::Client;
use cluster_tests::tools::optional_text;

use crate::{block_on, start_on_sqlite};
use manifests::{Kind, load_kinds};
use mutation::Case;
use outcome::{Difference, Outcome};
use recording::{KnownDifferences, Recordings};
use target::Target;

/// Both servers of a comparison have all APIs, alpha ones too, and the gates of the release.
pub(crate) const ALL_APIS: &str = "--runtime-config=api/all=true";
/// Real servers allocate service addresses from this range.
pub(crate) const SERVICE_RANGE: &str = "--service-cluster-ip-range=10.0.0.0/24";

/// The recorded server ran without it: nothing creates service accounts.
pub(crate) const PLUGINS: &str = "--disable-admission-plugins=ServiceAccount";
/// Shown of each sort of failure; the counts are complete.
const SHOWN_MAX: usize = 25;

/// Set: lists of known differences lose the cases that agree by now.
const SHRINK_VARIABLE: &str = "UNSKEW_SHRINK_KNOWN";

#[test]
fn recorded_validation_is_replayed_with_known_differences_alone() {
    let releases = Recordings::releases();
    assert!(!releases.is_empty(), "nothing is recorded");
    let mut failures = Vec::new();
    for release in releases {
        failures.extend(replay(&release));
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Sends the recorded cases of a release to ours; what differs from the lists.
fn replay(release: &str) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let release_flag = format!("--emulated-version={release}");
    let server = start_on_sqlite(folder.path(), &[&release_flag, ALL_APIS, SERVICE_RANGE, PLUGINS]);
    block_on(replay_on(server.admin(), release, &Recordings::of_release(release), &load_kinds()))
}

/// Sends recorded cases to a server; what differs from the lists.
#[expect(clippy::print_stdout, reason = "the size of the replay belongs to its output")]
pub(crate) async fn replay_on(client: Client, name: &str, recordings: &Recordings, kinds: &[Kind]) -> Vec<String> {
    let mut cases: Vec<(&Kind, Case)> = Vec::new();
    let mut recorded = Vec::new();
    for kind in kinds {
        for (case, outcome) in recordings.read_outcomes(kind) {
            cases.push((kind, case));
            recorded.push(outcome);
        }
    }
    let target = Target::discover(client).await;
    let (outcomes, _) = target.run_all(&kinds.iter().collect::<Vec<_>>(), &cases).await;
    let outcomes: Vec<_> = outcomes.into_iter().map(Outcome::cut).collect();
    let mut found: BTreeMap<String, KnownDifferences> = BTreeMap::new();
    for (((kind, case), ours), real) in cases.iter().zip(&outcomes).zip(&recorded) {
        if let Some(difference) = ours.difference_from(real) {
            found.entry(kind.file_stem()).or_default().insert(case.to_string(), difference);
        }
    }
    let failures = check_lists(recordings, kinds, &found);
    println!("{name}: {} cases, {} differ", cases.len(), found.values().map(BTreeMap::len).sum::<usize>());
    let all = cases.iter().zip(&outcomes).zip(&recorded);
    let failed = all.filter(|(((kind, case), _), _)| failures.contains(&(kind.file_stem(), case.to_string())));
    let detail = |(((kind, case), ours), real): ((&(&Kind, Case), &Outcome), &Outcome)| {
        format!("{} {case}\n  ours: {ours}\n  real: {real}", kind.file_stem())
    };
    let mut shown: Vec<String> = failed.take(SHOWN_MAX).map(detail).collect();
    if !failures.is_empty() {
        shown.insert(0, explain(name, failures.len()));
    }
    shown
}

fn explain(name: &str, count: usize) -> String {
    format!(
        "{name}: {count} cases are not as listed in known-differences. A case that differs \
         and is not listed must be mended. If listed cases agree now, which is welcome, shorten the lists with \
         {SHRINK_VARIABLE}=1 cargo xtask test -- -p cluster-tests recorded_"
    )
}

/// Compares with the lists, and shortens them if asked to; kinds and cases that are not as listed.
fn check_lists(
    recordings: &Recordings,
    kinds: &[Kind],
    found: &BTreeMap<String, KnownDifferences>,
) -> Vec<(String, String)> {
    let shrink = optional_text(SHRINK_VARIABLE).is_some();
    let mut failures = Vec::new();
    let nothing = KnownDifferences::new();
    for kind in kinds {
        let (stem, known) = (kind.file_stem(), recordings.read_known(kind));
        let found = found.get(&stem).unwrap_or(&nothing);
        let (worse, better) = compare_lists(&known, found);
        failures.extend(worse.into_iter().map(|case| (stem.clone(), case)));
        if shrink {
            let mut shorter = known;
            for case in &better {
                match found.get(case) {
                    Some(difference) => drop(shorter.insert(case.clone(), *difference)),
                    None => drop(shorter.remove(case)),
                }
            }
            recordings.write_known(kind, &shorter);
        } else {
            failures.extend(better.into_iter().map(|case| (stem.clone(), case)));
        }
    }
    failures
}

/// Cases that differ more than listed, and cases that differ less.
fn compare_lists(known: &KnownDifferences, found: &KnownDifferences) -> (Vec<String>, Vec<String>) {
    let rank = |list: &KnownDifferences, case: &String| list.get(case).copied();
    let (mut worse, mut better) = (Vec::new(), Vec::new());
    for case in known.keys().chain(found.keys().filter(|case| !known.contains_key(*case))) {
        let (listed, now): (Option<Difference>, Option<Difference>) = (rank(known, case), rank(found, case));
        match now.cmp(&listed) {
            std::cmp::Ordering::Greater => worse.push(case.clone()),
            std::cmp::Ordering::Less => better.push(case.clone()),
            std::cmp::Ordering::Equal => (),
        }
    }
    (worse, better)
}

#[test]
fn list_comparison_tells_worse_from_better() {
    let list = |entries: &[(&str, Difference)]| -> KnownDifferences {
        entries.iter().map(|(case, difference)| ((*case).to_owned(), *difference)).collect()
    };
    let known =
        list(&[("same", Difference::Causes), ("gone", Difference::Object), ("milder", Difference::FalseAccept)]);
    let found = list(&[("same", Difference::Causes), ("milder", Difference::Message), ("new", Difference::Object)]);
    let expected = (vec!["new".to_owned()], vec!["gone".to_owned(), "milder".to_owned()]);
    assert_eq!(compare_lists(&known, &found), expected);
}

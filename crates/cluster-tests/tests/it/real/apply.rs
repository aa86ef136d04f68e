//! Runs random sequences of writes by several managers on a real kube-apiserver and on ours, and prints where objects,
//! managed fields and conflicts differ.
//!
//! | variable | meaning |
//! |---|---|
//! | `UNSKEW_REAL_SEED` | number of the first sequence; 0 if unset |
//! | `UNSKEW_REAL_SEQUENCES` | number of sequences; 10,000 if unset |
//! | `UNSKEW_REAL_KINDS` | kinds, separated by commas; all if unset |
//! | `UNSKEW_REAL_RECORD` | set: the real server's results replace the recorded ones |

#![expect(clippy::print_stdout, reason = "figures are what the comparison is run for")]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Instant;

use cluster_tests::kube_apiserver::{KubeApiserver, KubeApiserverRelease, release_of_assets};
use cluster_tests::tools::optional_text;
use cluster_tests::{Client, Etcd, RunningServer, TestStore};
use futures_util::StreamExt as _;

use crate::apply::corpus::{CorpusKind, corpus};
use crate::apply::create_widgets;
use crate::apply::deviations::{ComparedStep, Difference};
use crate::apply::recording::Recording;
use crate::apply::sequence::{SequenceObject, Step, describe, generate};
use crate::block_on;

const SEQUENCES: u64 = 10_000;
const CONCURRENT_SEQUENCES: usize = 24;
/// Admission plugins that change objects: ours has none of them.
const DISABLED_PLUGINS: &str = "--disable-admission-plugins=ServiceAccount,DefaultTolerationSeconds,Priority,TaintNodesByCondition,DefaultStorageClass,StorageObjectInUseProtection,RuntimeClass,DefaultIngressClass,PodTopologyLabels";

/// A sequence and what both servers made of it.
struct Comparison<'a> {
    kind: &'a CorpusKind,
    seed: u64,
    steps: Vec<Step>,
    results: Vec<ComparedStep>,
}

#[test]
fn apply_sequences_agree_with_kube_apiserver() {
    let release = release_of_assets();
    let folder = tempfile::tempdir().unwrap();
    let etcd = Etcd::start();
    let release_flag = format!("--emulated-version={release}");
    let ours = RunningServer::start(folder.path(), TestStore::Sqlite, &[&release_flag]);
    let real = KubeApiserver::start_stock(KubeApiserverRelease::New, folder.path(), &etcd, &[DISABLED_PLUGINS]);
    let first = number("UNSKEW_REAL_SEED", 0);
    let is_recording = optional_text("UNSKEW_REAL_RECORD").is_some();
    let seeds = match is_recording {
        true => Recording::seeds(),
        false => (first..first + number("UNSKEW_REAL_SEQUENCES", SEQUENCES)).collect(),
    };
    let mut kinds = corpus();
    if let Some(names) = optional_text("UNSKEW_REAL_KINDS") {
        kinds.retain(|kind| names.split(',').any(|name| name == kind.kind));
    }
    let started = Instant::now();
    let comparisons = block_on(async {
        let clients = [ours.admin(), real.admin()];
        for client in &clients {
            create_widgets(client).await;
        }
        compare(&clients, &kinds, &seeds).await
    });
    println!("{} sequences in {:.1} s", comparisons.len(), started.elapsed().as_secs_f64());
    let unexplained = report(&comparisons);
    if is_recording {
        Recording::write(comparisons.iter().map(|one| (one.seed, &*one.results)));
    }
    assert_eq!(unexplained, 0, "sequences with differences that no rule explains");
}

fn number(variable: &str, default: u64) -> u64 {
    optional_text(variable).map_or(default, |text| text.parse().expect("the variable is a number"))
}

async fn compare<'a>(clients: &[Client; 2], kinds: &'a [CorpusKind], seeds: &[u64]) -> Vec<Comparison<'a>> {
    let sequences = seeds.iter().map(async |&seed| {
        let kind = &kinds[usize::try_from(seed).expect("a seed is small") % kinds.len()];
        let steps = generate(kind, seed);
        let [mut ours, mut real] = clients.each_ref().map(|client| SequenceObject::new(client, kind, seed));
        let mut results = Vec::new();
        for step in &steps {
            let (our_result, real_result) = futures_util::join!(ours.run(step), real.run(step));
            let compared = ComparedStep::new(kind, step, our_result, real_result);
            if compared.difference.is_some_and(|difference| !difference.is_followed_by_same_object()) {
                futures_util::join!(ours.recreate(), real.recreate());
            }
            results.push(compared);
        }
        futures_util::join!(ours.delete(), real.delete());
        Comparison { kind, seed, steps, results }
    });
    futures_util::stream::iter(sequences).buffered(CONCURRENT_SEQUENCES).collect().await
}

/// Prints the figures and writes the differences to a file. Returns the number of sequences with one that no rule explains.
fn report(comparisons: &[Comparison<'_>]) -> usize {
    let mut by_rule: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    let (mut details, mut unexplained, mut steps) = (String::new(), 0, 0);
    for one in comparisons {
        steps += one.steps.len();
        let mut is_unexplained = false;
        for (at, compared) in one.results.iter().enumerate() {
            let Some(difference) = compared.difference else { continue };
            *by_rule.entry((one.kind.kind, difference.rule())).or_default() += 1;
            if difference == Difference::Unexplained {
                is_unexplained = true;
                let fields = compared.differences().join("\n  ");
                let steps = describe(&one.steps[..=at]);
                let _ = writeln!(details, "seed {} {} step {at}\n{steps}  {fields}\n", one.seed, one.kind.kind);
            }
        }
        unexplained += usize::from(is_unexplained);
    }
    println!("{steps} steps; those with a difference, by kind and rule:");
    for ((kind, rule), count) in by_rule {
        println!("  {kind} {rule}: {count}");
    }
    let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/apply-differences.txt");
    std::fs::write(&file, details).unwrap();
    println!("{unexplained} unexplained; see {}", file.display());
    unexplained
}

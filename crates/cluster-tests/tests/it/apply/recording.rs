//! Results of a real kube-apiserver for some sequences, as one number per step.

use std::fmt::Write as _;
use std::path::PathBuf;

use super::sequence::{StepResult, digest};

/// The first so many sequences are recorded.
pub(crate) const RECORDED_SEQUENCES: u64 = 300;

/// Digests of the results by seed. A dash stands for a step at which ours deviates on purpose; the steps
/// after it are compared again.
pub(crate) struct Recording;

impl Recording {
    fn path() -> PathBuf {
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/apply/sequences.txt")
    }

    /// Replaces the file by these results: ours and the real ones of each seed.
    pub(crate) fn write<'a>(results: impl Iterator<Item = (u64, &'a [StepResult], &'a [StepResult])>) {
        let mut text = String::new();
        for (seed, ours, real) in results {
            let _ = write!(text, "{seed}");
            for (ours, real) in ours.iter().zip(real) {
                let _ = match ours == real {
                    true => write!(text, " {:x}", digest(real)),
                    false => write!(text, " -"),
                };
            }
            text.push('\n');
        }
        std::fs::create_dir_all(Self::path().parent().expect("the file is in a folder")).unwrap();
        std::fs::write(Self::path(), text).unwrap();
    }

    /// Seeds and digests.
    pub(crate) fn read() -> Vec<(u64, Vec<Option<u64>>)> {
        let text = std::fs::read_to_string(Self::path()).unwrap();
        let digest = |word: &str| (word != "-").then(|| u64::from_str_radix(word, 16).unwrap());
        text.lines()
            .map(|line| {
                let mut words = line.split(' ');
                (words.next().unwrap().parse().unwrap(), words.map(digest).collect())
            })
            .collect()
    }
}

//! Results of a real kube-apiserver for some sequences, as one number per step.

use std::fmt::Write as _;
use std::path::PathBuf;

use super::deviations::ComparedStep;
use super::sequence::digest;

/// The first so many sequences are recorded.
const RECORDED_SEQUENCES: u64 = 300;

/// Sequences that once differed, beside the first ones.
const FOUND_SEQUENCES: [u64; 9] = [20_054, 20_089, 20_233, 20_245, 20_548, 31_885, 31_994, 33_784, 35_030];

/// What is recorded of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum RecordedStep {
    /// The digest of the result.
    Digest(u64),
    /// Ours deviates on purpose; the next steps find the same object all the same.
    Deviation,
    /// Ours deviates on purpose; the object is created again after the step.
    Recreated,
}

impl RecordedStep {
    fn parse(word: &str) -> Self {
        match word {
            "-" => Self::Deviation,
            "!" => Self::Recreated,
            digest => Self::Digest(u64::from_str_radix(digest, 16).unwrap()),
        }
    }

    fn of(compared: &ComparedStep) -> Self {
        match &compared.difference {
            None => Self::Digest(digest(&compared.real)),
            Some(difference) if difference.is_followed_by_same_object() => Self::Deviation,
            Some(_) => Self::Recreated,
        }
    }
}

/// Results of a real kube-apiserver by seed.
pub(crate) struct Recording;

impl Recording {
    fn path() -> PathBuf {
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/apply/sequences.txt")
    }

    /// The seeds to record.
    pub(crate) fn seeds() -> Vec<u64> {
        (0..RECORDED_SEQUENCES).chain(FOUND_SEQUENCES).collect()
    }

    /// Replaces the file by these results of each seed.
    pub(crate) fn write<'a>(results: impl Iterator<Item = (u64, &'a [ComparedStep])>) {
        let mut text = String::new();
        for (seed, steps) in results {
            let _ = write!(text, "{seed}");
            for step in steps {
                let _ = match RecordedStep::of(step) {
                    RecordedStep::Digest(digest) => write!(text, " {digest:x}"),
                    RecordedStep::Deviation => write!(text, " -"),
                    RecordedStep::Recreated => write!(text, " !"),
                };
            }
            text.push('\n');
        }
        std::fs::create_dir_all(Self::path().parent().expect("the file is in a folder")).unwrap();
        std::fs::write(Self::path(), text).unwrap();
    }

    /// Seeds and their steps.
    pub(crate) fn read() -> Vec<(u64, Vec<RecordedStep>)> {
        let text = std::fs::read_to_string(Self::path()).unwrap();
        text.lines()
            .map(|line| {
                let mut words = line.split(' ');
                (words.next().unwrap().parse().unwrap(), words.map(RecordedStep::parse).collect())
            })
            .collect()
    }
}

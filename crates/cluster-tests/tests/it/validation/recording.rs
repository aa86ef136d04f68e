//! The files of a kind: the real server's outcomes, and the cases in which ours is known to differ.
//!
//! A recorded file has one line per case: the case, a tab, the outcome. What a server adds to an accepted object repeats from
//! case to case, so it stands once, in a line of its own that begins with `#` and a number.
//! A list of known differences has one line per case: the difference, a tab, the case. It may only shrink.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::manifests::{Kind, data_folder, definitions_folder};
use super::mutation::Case;
use super::outcome::{Difference, Outcome};

/// The files of one release, or of custom resources.
pub(crate) struct Recordings {
    folder: PathBuf,
}

/// Case → how ours differs.
pub(crate) type KnownDifferences = BTreeMap<String, Difference>;

impl Recordings {
    /// Every release that has a folder.
    pub(crate) fn releases() -> Vec<String> {
        let entries = std::fs::read_dir(data_folder()).unwrap().map(|entry| entry.unwrap());
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let mut releases: Vec<String> = names.filter(|name| name.starts_with("1.")).collect();
        releases.sort();
        releases
    }

    pub(crate) fn of_release(release: &str) -> Self {
        Self { folder: data_folder().join(release) }
    }

    /// The files of custom resources, in the folder of their definitions.
    pub(crate) fn of_definitions() -> Self {
        Self { folder: definitions_folder() }
    }

    /// The recorded outcomes of a kind; empty if it was not recorded.
    pub(crate) fn read_outcomes(&self, kind: &Kind) -> Vec<(Case, Outcome)> {
        parse_outcomes(&read(&self.outcomes_file(kind)))
    }

    pub(crate) fn write_outcomes(&self, kind: &Kind, outcomes: &[(&Case, &Outcome)]) {
        write(&self.outcomes_file(kind), &render_outcomes(outcomes));
    }

    pub(crate) fn read_known(&self, kind: &Kind) -> KnownDifferences {
        let text = read(&self.known_file(kind));
        text.lines().map(|line| parse_known(line).unwrap_or_else(|| panic!("{}: {line}", kind.file_stem()))).collect()
    }

    /// Removes the file of a kind that has no differences left.
    pub(crate) fn write_known(&self, kind: &Kind, known: &KnownDifferences) {
        let lines: String = known.iter().map(|(case, difference)| format!("{}\t{case}\n", difference.word())).collect();
        let file = self.known_file(kind);
        if lines.is_empty() {
            let _absent_is_fine = std::fs::remove_file(file);
        } else {
            write(&file, &lines);
        }
    }

    fn outcomes_file(&self, kind: &Kind) -> PathBuf {
        self.folder.join("recorded").join(format!("{}.txt", kind.file_stem()))
    }

    fn known_file(&self, kind: &Kind) -> PathBuf {
        self.folder.join("known-differences").join(format!("{}.txt", kind.file_stem()))
    }
}

fn read(file: &Path) -> String {
    std::fs::read_to_string(file).unwrap_or_default()
}

fn write(file: &Path, text: &str) {
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(file, text).unwrap();
}

fn parse_known(line: &str) -> Option<(String, Difference)> {
    let (word, case) = line.split_once('\t')?;
    Some((case.to_owned(), Difference::parse(word)?))
}

fn render_outcomes(outcomes: &[(&Case, &Outcome)]) -> String {
    let mut numbers: BTreeMap<&str, usize> = BTreeMap::new();
    let (mut head, mut lines) = (String::new(), String::new());
    for (case, outcome) in outcomes {
        match outcome {
            Outcome::Accepted { changes } => {
                let next = numbers.len();
                let number = *numbers.entry(changes).or_insert(next);
                if number == next {
                    head += &format!("#{number}\t{changes}\n");
                }
                lines += &format!("{case}\tok\t#{number}\n");
            }
            Outcome::Refused { .. } => lines += &format!("{case}\t{}\n", (*outcome).clone().cut()),
        }
    }
    head + &lines
}

#[track_caller]
fn parse_outcomes(text: &str) -> Vec<(Case, Outcome)> {
    let mut shared: BTreeMap<&str, &str> = BTreeMap::new();
    let mut outcomes = Vec::new();
    for line in text.lines() {
        let (first, rest) = line.split_once('\t').unwrap_or_else(|| panic!("a line without a tab: {line}"));
        if first.starts_with('#') {
            shared.insert(first, rest);
            continue;
        }
        let parsed = Case::parse(first).zip(Outcome::parse(rest));
        let (case, outcome) = parsed.unwrap_or_else(|| panic!("not a recorded case: {line}"));
        let outcome = match outcome {
            Outcome::Accepted { changes } => Outcome::Accepted { changes: shared[changes.as_str()].to_owned() },
            refused @ Outcome::Refused { .. } => refused,
        };
        outcomes.push((case, outcome));
    }
    outcomes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recorded_outcomes_round_trip() {
        let cases = ["create 0", "create 0 delete /spec", "update 0"].map(|text| Case::parse(text).unwrap());
        let refused = Outcome::Refused {
            code: 422,
            reason: "Invalid".to_owned(),
            causes: vec!["FieldValueRequired spec".to_owned()],
            message: "spec: Required value".to_owned(),
        };
        let accepted = Outcome::Accepted { changes: "/spec/a=1 ; -/spec/b".to_owned() };
        let outcomes = [(&cases[0], &accepted), (&cases[1], &refused), (&cases[2], &accepted)];
        let text = render_outcomes(&outcomes);
        assert_eq!(
            text,
            "#0\t/spec/a=1 ; -/spec/b\n\
             create 0\tok\t#0\n\
             create 0 delete /spec\t422\tInvalid\tFieldValueRequired spec\tspec: Required value\n\
             update 0\tok\t#0\n"
        );
        let parsed = parse_outcomes(&text);
        assert!(parsed.iter().map(|(case, outcome)| (case, outcome)).eq(outcomes), "{parsed:?}");
    }

    #[test]
    fn known_difference_parses() {
        let parsed = parse_known("false-accept\tcreate 0 delete /spec");
        assert_eq!(parsed, Some(("create 0 delete /spec".to_owned(), Difference::FalseAccept)));
        assert_eq!(parse_known("worse\tcreate 0"), None);
    }
}

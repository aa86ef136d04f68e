//! Figures of a comparison between a real server and ours.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::manifests::Kind;
use super::mutation::Case;
use super::outcome::{Difference, Outcome};

/// A case with both outcomes.
pub(crate) struct Comparison<'a> {
    pub(crate) kind: &'a Kind,
    pub(crate) case: Case,
    pub(crate) ours: Outcome,
    pub(crate) real: Outcome,
}

impl Comparison<'_> {
    /// The worst difference; none if both agree.
    pub(crate) fn difference(&self) -> Option<Difference> {
        self.ours.difference_from(&self.real)
    }
}

/// One table by kind and one by operation.
pub(crate) fn render_tables(comparisons: &[Comparison<'_>]) -> String {
    let by_kind = |one: &Comparison<'_>| format!("{} {}", one.kind.api_version, one.kind.kind);
    let by_operation = |one: &Comparison<'_>| one.case.operation.clone();
    let all = |_: &Comparison<'_>| "all".to_owned();
    let tables = [&by_kind as &dyn Fn(&Comparison<'_>) -> String, &by_operation, &all];
    let tables = tables.map(|group| render_table(comparisons, group)).join("");
    format!("{tables}\n{}\n", render_shares(comparisons))
}

/// How often causes and messages agree where both refuse, and objects where both accept.
fn render_shares(comparisons: &[Comparison<'_>]) -> String {
    let is_refused = |outcome: &Outcome| matches!(outcome, Outcome::Refused { .. });
    let count = |refused: bool, differing: &[Difference]| {
        let both =
            comparisons.iter().filter(|one| is_refused(&one.ours) == refused && is_refused(&one.real) == refused);
        let differ = |one: &&Comparison<'_>| one.difference().is_some_and(|difference| differing.contains(&difference));
        let total = both.clone().count();
        (total, percentage(total - both.filter(differ).count(), total))
    };
    let (refused, causes) = count(true, &[Difference::Causes]);
    let (_, messages) = count(true, &[Difference::Causes, Difference::Message]);
    let (accepted, objects) = count(false, &[Difference::Object]);
    format!(
        "both refuse {refused}: causes agree in {causes:.1} %, messages in {messages:.1} %\n\
         both accept {accepted}: objects agree in {objects:.1} %"
    )
}

fn percentage(part: usize, whole: usize) -> f64 {
    100.0 * part as f64 / whole.max(1) as f64
}

fn render_table(comparisons: &[Comparison<'_>], group: &dyn Fn(&Comparison<'_>) -> String) -> String {
    let mut groups: BTreeMap<String, Vec<&Comparison<'_>>> = BTreeMap::new();
    for one in comparisons {
        groups.entry(group(one)).or_default().push(one);
    }
    let mut table = format!("\n{:56} {:>6} {:>9}", "", "cases", "verdict %");
    Difference::ALL.iter().for_each(|difference| table += &format!(" {:>13}", difference.word()));
    for (name, members) in groups {
        let count = |difference| members.iter().filter(|one| one.difference() == Some(difference)).count();
        let wrong = count(Difference::FalseAccept) + count(Difference::FalseRefusal);
        let agreement = percentage(members.len() - wrong, members.len());
        write!(table, "\n{name:56} {:>6} {agreement:>9.1}", members.len()).unwrap();
        Difference::ALL.iter().for_each(|difference| table += &format!(" {:>13}", count(*difference)));
    }
    table + "\n"
}

/// The causes of what only the real server refuses, the most frequent first: count, kind, reason and field.
pub(crate) fn render_missing_rules(comparisons: &[Comparison<'_>]) -> String {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for one in comparisons.iter().filter(|one| one.difference() == Some(Difference::FalseAccept)) {
        let Outcome::Refused { causes, reason, .. } = &one.real else { continue };
        let causes = if causes.is_empty() { std::slice::from_ref(reason) } else { causes };
        for cause in causes {
            *counts.entry(format!("{}\t{}", one.kind.file_stem(), without_indices(cause))).or_default() += 1;
        }
    }
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by(|(name, count), (other, other_count)| (other_count, name).cmp(&(count, other)));
    counts.into_iter().map(|(name, count)| format!("{count}\t{name}\n")).collect()
}

/// `ports[3].name` → `ports[].name`
fn without_indices(cause: &str) -> String {
    let mut parts = cause.split('[');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + "[]" + part.split_once(']').map_or(part, |(_, rest)| rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indices_and_keys_are_removed_from_causes() {
        assert_eq!(without_indices("FieldValueInvalid a[3].b[x.y].c"), "FieldValueInvalid a[].b[].c");
        assert_eq!(without_indices("FieldValueRequired a.b"), "FieldValueRequired a.b");
    }
}

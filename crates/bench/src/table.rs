//! The table that a run prints.

use std::fmt;
use std::time::Duration;

/// Rows in the order of measurement, below the names of their groups.
pub(crate) struct BenchTable {
    lines: Vec<TableLine>,
    verdicts: VerdictDisplay,
}

/// Whether the table shows which goals are met.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum VerdictDisplay {
    Shown,
    /// For figures that are not meaningful.
    Hidden,
}

enum TableLine {
    Section(String),
    Row(BenchRow),
    Note(String),
}

/// One measurement with its goal and its baseline.
pub(crate) struct BenchRow {
    name: String,
    measured: Measurement,
    goal: Option<Goal>,
    baseline: Option<(String, Measurement)>,
}

/// A measured value.
#[derive(Clone, Copy)]
pub(crate) enum Measurement {
    /// Duration of one operation; less is better.
    Time(Duration),
    /// Operations per second; more is better.
    Rate(f64),
    /// Bytes; less is better.
    Bytes(u64),
}

enum Goal {
    Value(Measurement),
    /// Ratio to the baseline: at least this for rates, at most this for times and bytes.
    Ratio(f64),
    /// Either is enough.
    ValueOrRatio(Measurement, f64),
}

impl BenchTable {
    pub(crate) fn new(verdicts: VerdictDisplay) -> Self {
        Self { lines: Vec::new(), verdicts }
    }

    pub(crate) fn section(&mut self, name: &str) {
        self.lines.push(TableLine::Section(name.to_owned()));
    }

    pub(crate) fn push(&mut self, row: BenchRow) {
        self.lines.push(TableLine::Row(row));
    }

    /// Adds a note about nearby rows, such as what was skipped.
    pub(crate) fn note(&mut self, text: impl Into<String>) {
        self.lines.push(TableLine::Note(text.into()));
    }
}

impl BenchRow {
    pub(crate) fn time(name: impl Into<String>, time: Duration) -> Self {
        Self::new(name, Measurement::Time(time))
    }

    pub(crate) fn new(name: impl Into<String>, figure: Measurement) -> Self {
        Self { name: name.into(), measured: figure, goal: None, baseline: None }
    }

    /// Sets the goal: at most for times and bytes, at least for rates.
    pub(crate) fn with_goal(mut self, bar: Measurement) -> Self {
        self.goal = Some(Goal::Value(bar));
        self
    }

    /// Sets the baseline, measured in the same run.
    pub(crate) fn compared_with(mut self, peer: impl Into<String>, figure: Measurement) -> Self {
        self.baseline = Some((peer.into(), figure));
        self
    }

    /// Sets the goal as a ratio to the baseline.
    pub(crate) fn with_ratio_goal(mut self, ratio: f64) -> Self {
        self.goal = Some(Goal::Ratio(ratio));
        self
    }

    /// Sets a goal that either the value or the ratio must meet.
    pub(crate) fn with_goal_or_ratio(mut self, bar: Measurement, ratio: f64) -> Self {
        self.goal = Some(Goal::ValueOrRatio(bar, ratio));
        self
    }

    fn ratio(&self) -> Option<f64> {
        let (_, peer) = self.baseline.as_ref()?;
        Some(self.measured.as_f64() / peer.as_f64())
    }

    fn verdict(&self, verdicts: VerdictDisplay) -> String {
        let by_figure = |bar: &Measurement| self.measured.meets(bar.as_f64());
        let by_ratio =
            |bar: f64| self.baseline.as_ref().is_some_and(|(_, peer)| self.measured.meets(bar * peer.as_f64()));
        let (reached, text) = match &self.goal {
            None => return String::new(),
            Some(Goal::Value(bar)) => (by_figure(bar), bar.to_string()),
            Some(Goal::Ratio(ratio)) => (by_ratio(*ratio), format!("{ratio:.2}x")),
            Some(Goal::ValueOrRatio(bar, ratio)) => {
                (by_figure(bar) || by_ratio(*ratio), format!("{bar} or {ratio:.0}x"))
            }
        };
        let sign = match self.measured {
            Measurement::Rate(_) => "≥",
            Measurement::Time(_) | Measurement::Bytes(_) => "≤",
        };
        let verdict = match (verdicts, reached) {
            (VerdictDisplay::Hidden, _) => "",
            (VerdictDisplay::Shown, true) => " met",
            (VerdictDisplay::Shown, false) => " MISSED",
        };
        format!("{sign} {text}{verdict}")
    }
}

impl Measurement {
    fn as_f64(self) -> f64 {
        match self {
            Self::Time(time) => time.as_secs_f64(),
            Self::Rate(rate) => rate,
            Self::Bytes(bytes) => bytes as f64,
        }
    }

    fn meets(self, bar: f64) -> bool {
        match self {
            Self::Rate(rate) => rate >= bar,
            Self::Time(_) | Self::Bytes(_) => self.as_f64() <= bar,
        }
    }
}

impl fmt::Display for Measurement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Time(time) => {
                let nanos = time.as_secs_f64() * 1e9;
                match nanos {
                    n if n < 1e3 => write!(f, "{n:.0} ns"),
                    n if n < 1e6 => write!(f, "{:.1} µs", n / 1e3),
                    n if n < 1e9 => write!(f, "{:.2} ms", n / 1e6),
                    n => write!(f, "{:.2} s", n / 1e9),
                }
            }
            Self::Rate(rate) => write!(f, "{rate:.0}/s"),
            Self::Bytes(bytes) => write!(f, "{:.1} MiB", bytes as f64 / f64::from(1 << 20)),
        }
    }
}

impl fmt::Display for BenchTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head = ["benchmark", "median", "bar", "ratio", "to (same run)"].map(str::to_owned);
        let rows: Vec<[String; 5]> = self.lines.iter().map(|line| cells(line, self.verdicts)).collect();
        // A note may be longer than any name and is not aligned.
        let is_aligned = |row: &&[String; 5]| row[1..].iter().any(|cell| !cell.is_empty());
        let width = |column: usize| {
            std::iter::once(&head)
                .chain(&rows)
                .filter(is_aligned)
                .map(|row| row[column].chars().count())
                .max()
                .unwrap_or(0)
        };
        let widths: [usize; 5] = std::array::from_fn(width);
        for row in std::iter::once(&head).chain(&rows) {
            let line: Vec<String> = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect();
            writeln!(f, "{}", line.join("  ").trim_end())?;
        }
        Ok(())
    }
}

fn cells(line: &TableLine, verdicts: VerdictDisplay) -> [String; 5] {
    match line {
        TableLine::Section(name) => [format!("[{name}]"), String::new(), String::new(), String::new(), String::new()],
        TableLine::Note(text) => [text.clone(), String::new(), String::new(), String::new(), String::new()],
        TableLine::Row(row) => [
            row.name.clone(),
            row.measured.to_string(),
            row.verdict(verdicts),
            row.ratio().map(|ratio| format!("{ratio:.2}x")).unwrap_or_default(),
            row.baseline.as_ref().map(|(name, figure)| format!("{name}: {figure}")).unwrap_or_default(),
        ],
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn goals_are_lower_bounds_for_rates_and_upper_bounds_otherwise() {
        let rate = |name: &str, rate: f64| {
            BenchRow::new(name, Measurement::Rate(rate)).compared_with("peer", Measurement::Rate(100.0))
        };
        let mut table = BenchTable::new(VerdictDisplay::Shown);
        table.section("group");
        table.push(
            BenchRow::time("quick", Duration::from_nanos(400)).with_goal(Measurement::Time(Duration::from_nanos(500))),
        );
        table.push(BenchRow::new("large", Measurement::Bytes(3 << 20)).with_goal(Measurement::Bytes(2 << 20)));
        table.push(rate("half", 50.0).with_ratio_goal(0.8));
        table.push(rate("by rate", 600.0).with_goal_or_ratio(Measurement::Rate(500.0), 8.0));
        table.push(rate("by ratio", 800.0).with_goal_or_ratio(Measurement::Rate(900.0), 8.0));
        table.push(rate("neither", 700.0).with_goal_or_ratio(Measurement::Rate(900.0), 8.0));
        table.note("a note that is longer than any name above");
        expect![[r#"
            benchmark  median   bar                   ratio  to (same run)
            [group]
            quick      400 ns   ≤ 500 ns met
            large      3.0 MiB  ≤ 2.0 MiB MISSED
            half       50/s     ≥ 0.80x MISSED        0.50x  peer: 100/s
            by rate    600/s    ≥ 500/s or 8x met     6.00x  peer: 100/s
            by ratio   800/s    ≥ 900/s or 8x met     8.00x  peer: 100/s
            neither    700/s    ≥ 900/s or 8x MISSED  7.00x  peer: 100/s
            a note that is longer than any name above
        "#]]
        .assert_eq(&table.to_string());
    }
    #[test]
    fn hidden_verdicts_are_not_printed() {
        let mut table = BenchTable::new(VerdictDisplay::Hidden);
        table.push(BenchRow::time("slow", Duration::from_secs(2)).with_goal(Measurement::Time(Duration::from_secs(1))));
        assert!(table.to_string().ends_with("slow       2.00 s  ≤ 1.00 s\n"));
    }
}

//! The table that a run prints.

use std::fmt;
use std::time::Duration;

/// Rows in the order in which they were measured, under the names of their groups.
pub(crate) struct Table {
    lines: Vec<Line>,
    verdicts: Verdicts,
}

/// Whether the table says which figures reach their bars.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdicts {
    Shown,
    /// For figures that mean nothing.
    Hidden,
}

enum Line {
    Section(String),
    Row(Row),
    Note(String),
}

/// One figure, what it is to be, and what it is compared with.
pub(crate) struct Row {
    name: String,
    figure: Figure,
    bar: Option<Bar>,
    peer: Option<(String, Figure)>,
}

/// What was measured.
#[derive(Clone, Copy)]
pub(crate) enum Figure {
    /// How long one takes; less is better.
    Time(Duration),
    /// How many a second; more is better.
    Rate(f64),
    /// So many bytes; less is better.
    Bytes(u64),
}

enum Bar {
    Figure(Figure),
    /// The ratio to the peer must be at least this for rates, at most this for times and bytes.
    Ratio(f64),
    /// Either will do.
    FigureOrRatio(Figure, f64),
}

impl Table {
    pub(crate) fn new(verdicts: Verdicts) -> Self {
        Self { lines: Vec::new(), verdicts }
    }

    pub(crate) fn section(&mut self, name: &str) {
        self.lines.push(Line::Section(name.to_owned()));
    }

    pub(crate) fn push(&mut self, row: Row) {
        self.lines.push(Line::Row(row));
    }

    /// Something to know about the rows around it, such as what was left out.
    pub(crate) fn note(&mut self, text: impl Into<String>) {
        self.lines.push(Line::Note(text.into()));
    }
}

impl Row {
    pub(crate) fn time(name: impl Into<String>, time: Duration) -> Self {
        Self::new(name, Figure::Time(time))
    }

    pub(crate) fn new(name: impl Into<String>, figure: Figure) -> Self {
        Self { name: name.into(), figure, bar: None, peer: None }
    }

    /// The figure that this one is to reach: at most for times and bytes, at least for rates.
    pub(crate) fn bar(mut self, bar: Figure) -> Self {
        self.bar = Some(Bar::Figure(bar));
        self
    }

    /// What else was measured in the same run, to compare with.
    pub(crate) fn against(mut self, peer: impl Into<String>, figure: Figure) -> Self {
        self.peer = Some((peer.into(), figure));
        self
    }

    /// The ratio to the peer that this one is to reach.
    pub(crate) fn ratio_bar(mut self, ratio: f64) -> Self {
        self.bar = Some(Bar::Ratio(ratio));
        self
    }

    /// The figure or the ratio that this one is to reach.
    pub(crate) fn bar_or_ratio(mut self, bar: Figure, ratio: f64) -> Self {
        self.bar = Some(Bar::FigureOrRatio(bar, ratio));
        self
    }

    fn ratio(&self) -> Option<f64> {
        let (_, peer) = self.peer.as_ref()?;
        Some(self.figure.number() / peer.number())
    }

    fn verdict(&self, verdicts: Verdicts) -> String {
        let by_figure = |bar: &Figure| self.figure.reaches(bar.number());
        let by_ratio = |bar: f64| self.peer.as_ref().is_some_and(|(_, peer)| self.figure.reaches(bar * peer.number()));
        let (reached, text) = match &self.bar {
            None => return String::new(),
            Some(Bar::Figure(bar)) => (by_figure(bar), bar.to_string()),
            Some(Bar::Ratio(ratio)) => (by_ratio(*ratio), format!("{ratio:.2}x")),
            Some(Bar::FigureOrRatio(bar, ratio)) => {
                (by_figure(bar) || by_ratio(*ratio), format!("{bar} or {ratio:.0}x"))
            }
        };
        let sign = match self.figure {
            Figure::Rate(_) => "≥",
            Figure::Time(_) | Figure::Bytes(_) => "≤",
        };
        let verdict = match (verdicts, reached) {
            (Verdicts::Hidden, _) => "",
            (Verdicts::Shown, true) => " met",
            (Verdicts::Shown, false) => " MISSED",
        };
        format!("{sign} {text}{verdict}")
    }
}

impl Figure {
    fn number(self) -> f64 {
        match self {
            Self::Time(time) => time.as_secs_f64(),
            Self::Rate(rate) => rate,
            Self::Bytes(bytes) => bytes as f64,
        }
    }

    fn reaches(self, bar: f64) -> bool {
        match self {
            Self::Rate(rate) => rate >= bar,
            Self::Time(_) | Self::Bytes(_) => self.number() <= bar,
        }
    }
}

impl fmt::Display for Figure {
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

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head = ["benchmark", "median", "bar", "ratio", "to (same run)"].map(str::to_owned);
        let rows: Vec<[String; 5]> = self.lines.iter().map(|line| cells(line, self.verdicts)).collect();
        // A note may be longer than any name and stands alone on its line.
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

fn cells(line: &Line, verdicts: Verdicts) -> [String; 5] {
    match line {
        Line::Section(name) => [format!("[{name}]"), String::new(), String::new(), String::new(), String::new()],
        Line::Note(text) => [text.clone(), String::new(), String::new(), String::new(), String::new()],
        Line::Row(row) => [
            row.name.clone(),
            row.figure.to_string(),
            row.verdict(verdicts),
            row.ratio().map(|ratio| format!("{ratio:.2}x")).unwrap_or_default(),
            row.peer.as_ref().map(|(name, figure)| format!("{name}: {figure}")).unwrap_or_default(),
        ],
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn a_bar_is_met_or_missed_in_the_direction_of_its_figure() {
        let rate = |name: &str, rate: f64| Row::new(name, Figure::Rate(rate)).against("peer", Figure::Rate(100.0));
        let mut table = Table::new(Verdicts::Shown);
        table.section("group");
        table.push(Row::time("quick", Duration::from_nanos(400)).bar(Figure::Time(Duration::from_nanos(500))));
        table.push(Row::new("large", Figure::Bytes(3 << 20)).bar(Figure::Bytes(2 << 20)));
        table.push(rate("half", 50.0).ratio_bar(0.8));
        table.push(rate("by rate", 600.0).bar_or_ratio(Figure::Rate(500.0), 8.0));
        table.push(rate("by ratio", 800.0).bar_or_ratio(Figure::Rate(900.0), 8.0));
        table.push(rate("neither", 700.0).bar_or_ratio(Figure::Rate(900.0), 8.0));
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
    fn figures_that_mean_nothing_are_not_judged() {
        let mut table = Table::new(Verdicts::Hidden);
        table.push(Row::time("slow", Duration::from_secs(2)).bar(Figure::Time(Duration::from_secs(1))));
        assert!(table.to_string().ends_with("slow       2.00 s  ≤ 1.00 s\n"));
    }
}

//! What was measured, as rows of the table.

use std::time::Duration;

use super::follow::Wakeups;
use super::{Measured, Sizes};
use crate::table::{Figure, Row, Table};
use crate::timing::percentile_of_sorted;

/// What 64 writers are to reach together: so many syncs' worth, or so many a second.
const WRITES_RATIO: f64 = 8.0;
const WRITES_RATE: f64 = 5_000.0;
/// How soon another process is to have what was written.
const WAKEUP_P99: Duration = Duration::from_millis(20);
/// What a compaction may do to the slowest writes.
const COMPACTION_RATIO: f64 = 2.0;
/// A tenfold history may cost no more memory than caches that fill.
const MEMORY_RATIO: f64 = 1.25;

pub(super) fn push(table: &mut Table, sizes: Sizes, disk: f64, sqlite: &Measured, etcd: Option<&Measured>) {
    let rows = Rows { sizes, disk, sqlite, etcd };
    rows.reads().into_iter().for_each(|row| table.push(row));
    rows.watches().into_iter().for_each(|row| table.push(row));
    let [half, most] = Rows::wakeups("SQLite", sqlite);
    table.push(half);
    table.push(most.bar(Figure::Time(WAKEUP_P99)));
    if let Some(etcd) = etcd {
        Rows::wakeups("etcd", etcd).into_iter().for_each(|row| table.push(row));
    }
    let [writes_of_one, writes_of_many] = rows.writes("SQLite", sqlite);
    table.push(writes_of_one);
    table.push(writes_of_many.bar_or_ratio(Figure::Rate(WRITES_RATE), WRITES_RATIO));
    if let Some(etcd) = etcd {
        rows.writes("etcd", etcd).into_iter().for_each(|row| table.push(row));
    }
    let [latency, memory] = rows.history("SQLite", sqlite);
    table.push(rows.compaction());
    table.push(latency.ratio_bar(COMPACTION_RATIO));
    table.push(memory.ratio_bar(MEMORY_RATIO));
    if let Some(etcd) = etcd {
        let [latency, memory] = rows.history("etcd", etcd);
        table.push(latency);
        table.push(memory);
    }
}

struct Rows<'a> {
    sizes: Sizes,
    disk: f64,
    sqlite: &'a Measured,
    etcd: Option<&'a Measured>,
}

impl Rows<'_> {
    fn reads(&self) -> Vec<Row> {
        let Sizes { keys, page, .. } = self.sizes;
        vec![
            self.row("point reads, 1 reader", |measured| Figure::Rate(measured.rates.reads_of_one)),
            self.row("point reads, 64 readers", |measured| Figure::Rate(measured.rates.reads_of_many)),
            self.row("current revision", |measured| Figure::Time(measured.rates.revision)),
            self.row(&format!("range of {page} of {keys} keys"), |measured| Figure::Time(measured.rates.page)),
        ]
    }

    fn watches(&self) -> Vec<Row> {
        let watchers = self.sizes.watchers;
        vec![
            self.row("a write until 1 watcher has it", |measured| Figure::Time(measured.deliveries.to_one)),
            self.row(&format!("a write until {watchers} watchers have it"), |measured| {
                Figure::Time(measured.deliveries.to_all)
            }),
            self.row(&format!("events delivered to {watchers} watchers"), |measured| {
                Figure::Rate(measured.deliveries.rate)
            }),
        ]
    }

    /// How much later than the answer to the writer, at p50 and p99.
    fn wakeups(backend: &str, measured: &Measured) -> [Row; 2] {
        let Wakeups { after_write, write } = &measured.wakeups;
        [50.0, 99.0].map(|percent| {
            let [after_write, write] = [after_write, write].map(|times| percentile_of_sorted(times, percent));
            Row::time(format!("{backend}: wake-up of another process, p{percent}"), after_write)
                .against("its write", Figure::Time(write))
        })
    }

    /// Both backends beside one sync per write on the same disk.
    fn writes(&self, backend: &str, measured: &Measured) -> [Row; 2] {
        let rates = &measured.rates;
        [("1 writer", rates.writes_of_one), ("64 writers", rates.writes_of_many)].map(|(writers, rate)| {
            Row::new(format!("{backend}: durable writes, {writers}"), Figure::Rate(rate))
                .against("one fdatasync per write", Figure::Rate(self.disk))
        })
    }

    /// Not beside etcd, which answers first and forgets later.
    fn compaction(&self) -> Row {
        let history = &self.sqlite.history;
        Row::time(format!("SQLite: compaction of {} revisions", self.sizes.history), history.compaction)
            .against("writing them", Figure::Time(history.making))
    }

    fn history(&self, backend: &str, measured: &Measured) -> [Row; 2] {
        let (revisions, history) = (self.sizes.history, &measured.history);
        [
            Row::time(format!("{backend}: p99.9 of writes during compaction"), history.p999_during)
                .against("p99.9 without", Figure::Time(history.p999_without)),
            Row::new(format!("{backend}: memory at {revisions} revisions"), Figure::Bytes(history.bytes_late))
                .against(format!("at {} revisions", revisions / 10), Figure::Bytes(history.bytes_early)),
        ]
    }

    /// A figure of SQLite beside the same one of etcd.
    fn row(&self, name: &str, figure: fn(&Measured) -> Figure) -> Row {
        let row = Row::new(format!("SQLite: {name}"), figure(self.sqlite));
        match self.etcd {
            Some(etcd) => row.against("etcd", figure(etcd)),
            None => row,
        }
    }
}

//! Turns measurements into table rows.

use std::time::Duration;

use super::cross_process_watch::CrossProcessLatencies;
use super::{BackendMeasurements, StoreBenchSizes};
use crate::table::{BenchRow, BenchTable, Measurement};
use crate::timing::percentile_of_sorted;

/// Goals for 64 writers together: relative to one sync per write, or in writes per second.
const WRITES_RATIO_MIN: f64 = 8.0;
const WRITES_RATE_MIN: f64 = 5_000.0;
/// Goal for another process to see a write.
const CROSS_PROCESS_P99_MAX: Duration = Duration::from_millis(20);
/// Goal for p99.9 of writes during compaction, relative to p99.9 without.
const COMPACTION_RATIO_MAX: f64 = 2.0;
/// Goal for memory after a tenfold history: no more than caches that fill up.
const MEMORY_RATIO_MAX: f64 = 1.25;

pub(super) fn push_rows(
    table: &mut BenchTable,
    sizes: StoreBenchSizes,
    disk: f64,
    sqlite: &BackendMeasurements,
    etcd: Option<&BackendMeasurements>,
) {
    let rows = RowBuilder { sizes, disk, sqlite, etcd };
    rows.read_rows().into_iter().for_each(|row| table.push(row));
    rows.watch_rows().into_iter().for_each(|row| table.push(row));
    let [half, most] = RowBuilder::cross_process_rows("SQLite", sqlite);
    table.push(half);
    table.push(most.with_goal(Measurement::Time(CROSS_PROCESS_P99_MAX)));
    if let Some(etcd) = etcd {
        RowBuilder::cross_process_rows("etcd", etcd).into_iter().for_each(|row| table.push(row));
    }
    let [writes_of_one, writes_of_many] = rows.write_rows("SQLite", sqlite);
    table.push(writes_of_one);
    table.push(writes_of_many.with_goal_or_ratio(Measurement::Rate(WRITES_RATE_MIN), WRITES_RATIO_MIN));
    if let Some(etcd) = etcd {
        rows.write_rows("etcd", etcd).into_iter().for_each(|row| table.push(row));
    }
    let [latency, memory] = rows.history_rows("SQLite", sqlite);
    table.push(rows.compaction_row());
    table.push(latency.with_ratio_goal(COMPACTION_RATIO_MAX));
    table.push(memory.with_ratio_goal(MEMORY_RATIO_MAX));
    if let Some(etcd) = etcd {
        let [latency, memory] = rows.history_rows("etcd", etcd);
        table.push(latency);
        table.push(memory);
    }
}

struct RowBuilder<'a> {
    sizes: StoreBenchSizes,
    disk: f64,
    sqlite: &'a BackendMeasurements,
    etcd: Option<&'a BackendMeasurements>,
}

impl RowBuilder<'_> {
    fn read_rows(&self) -> Vec<BenchRow> {
        let StoreBenchSizes { keys, page, .. } = self.sizes;
        vec![
            self.compared_row("point reads, 1 reader", |measured| Measurement::Rate(measured.rates.one_reader)),
            self.compared_row("point reads, 64 readers", |measured| Measurement::Rate(measured.rates.many_readers)),
            self.compared_row("current revision", |measured| Measurement::Time(measured.rates.revision)),
            self.compared_row(&format!("range of {page} of {keys} keys"), |measured| {
                Measurement::Time(measured.rates.page)
            }),
        ]
    }

    fn watch_rows(&self) -> Vec<BenchRow> {
        let watchers = self.sizes.watchers;
        vec![
            self.compared_row("a write until 1 watcher has it", |measured| {
                Measurement::Time(measured.deliveries.to_one)
            }),
            self.compared_row(&format!("a write until {watchers} watchers have it"), |measured| {
                Measurement::Time(measured.deliveries.to_all)
            }),
            self.compared_row(&format!("events delivered to {watchers} watchers"), |measured| {
                Measurement::Rate(measured.deliveries.rate)
            }),
        ]
    }

    /// Latency after the acknowledgement, at p50 and p99.
    fn cross_process_rows(backend: &str, measured: &BackendMeasurements) -> [BenchRow; 2] {
        let CrossProcessLatencies { after_write, write } = &measured.wakeups;
        [50.0, 99.0].map(|percent| {
            let [after_write, write] = [after_write, write].map(|times| percentile_of_sorted(times, percent));
            BenchRow::time(format!("{backend}: wake-up of another process, p{percent}"), after_write)
                .compared_with("its write", Measurement::Time(write))
        })
    }

    /// Durable writes, compared with one sync per write on the same disk.
    fn write_rows(&self, backend: &str, measured: &BackendMeasurements) -> [BenchRow; 2] {
        let rates = &measured.rates;
        [("1 writer", rates.one_writer), ("64 writers", rates.many_writers)].map(|(writers, rate)| {
            BenchRow::new(format!("{backend}: durable writes, {writers}"), Measurement::Rate(rate))
                .compared_with("one fdatasync per write", Measurement::Rate(self.disk))
        })
    }

    /// SQLite only: etcd responds before it has compacted.
    fn compaction_row(&self) -> BenchRow {
        let history = &self.sqlite.history;
        BenchRow::time(format!("SQLite: compaction of {} revisions", self.sizes.history), history.compaction)
            .compared_with("writing them", Measurement::Time(history.writing))
    }

    fn history_rows(&self, backend: &str, measured: &BackendMeasurements) -> [BenchRow; 2] {
        let (revisions, history) = (self.sizes.history, &measured.history);
        [
            BenchRow::time(format!("{backend}: p99.9 of writes during compaction"), history.p999_during)
                .compared_with("p99.9 without", Measurement::Time(history.p999_without)),
            BenchRow::new(
                format!("{backend}: memory at {revisions} revisions"),
                Measurement::Bytes(history.bytes_late),
            )
            .compared_with(format!("at {} revisions", revisions / 10), Measurement::Bytes(history.bytes_early)),
        ]
    }

    /// A measurement of SQLite compared with the same of etcd.
    fn compared_row(&self, name: &str, figure: fn(&BackendMeasurements) -> Measurement) -> BenchRow {
        let row = BenchRow::new(format!("SQLite: {name}"), figure(self.sqlite));
        match self.etcd {
            Some(etcd) => row.compared_with("etcd", figure(etcd)),
            None => row,
        }
    }
}

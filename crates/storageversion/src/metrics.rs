//! The metrics of this crate.

use prometheus::{IntCounter, IntCounterVec, Opts, Registry};

/// The metrics of storage versions.
#[derive(Clone, Debug)]
pub struct Metrics {
    pub(crate) writes: IntCounterVec,
    /// Writes of other objects that the barrier held.
    pub(crate) held_writes: IntCounter,
    /// Entries and objects that the collector removed.
    pub(crate) collected: IntCounterVec,
}

impl Metrics {
    /// Registers the metrics.
    pub fn new(registry: &Registry) -> Self {
        let metrics = Self {
            writes: counters(
                "unskew_storageversion_writes_total",
                "Attempts of this server to write a StorageVersion, by result: written, conflict or failed.",
                "result",
            ),
            held_writes: IntCounter::new(
                "unskew_storageversion_held_writes_total",
                "Writes held back because this server's storage version of the resource was not published.",
            )
            .expect("the name is valid"),
            collected: counters(
                "unskew_storageversion_collected_total",
                "What this server removed as the garbage collector of storage versions: entries and objects.",
                "what",
            ),
        };
        for collector in [
            Box::new(metrics.writes.clone()) as Box<dyn prometheus::core::Collector>,
            Box::new(metrics.held_writes.clone()),
            Box::new(metrics.collected.clone()),
        ] {
            registry.register(collector).expect("each name is registered once");
        }
        metrics
    }
}

fn counters(name: &str, help: &str, label: &str) -> IntCounterVec {
    IntCounterVec::new(Opts::new(name, help), &[label]).expect("the name and the label are valid")
}

//! The metrics of the controllers.

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{GaugeVec, IntCounter, IntCounterVec, IntGaugeVec, Opts, Registry};
use tokio::time::Instant;

/// The metrics of all controllers, with kube-controller-manager's names where it has one.
#[derive(Clone, Debug)]
pub struct Metrics {
    depth: IntGaugeVec,
    leader_status: IntGaugeVec,
    oldest_item_age: OldestItemAge,
    migrations: MigrationMetrics,
}

/// The metrics of storage migrations.
#[derive(Clone, Debug)]
pub(crate) struct MigrationMetrics {
    outdated: IntGaugeVec,
    waiting: IntGaugeVec,
    rewritten: IntCounter,
    results: IntCounterVec,
    /// Resources with gauges.
    shown: Arc<Mutex<Vec<String>>>,
}

/// The gauges of one controller's work queue.
#[derive(Clone)]
pub(crate) struct QueueGauges {
    metrics: Metrics,
    name: &'static str,
}

impl fmt::Debug for QueueGauges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("QueueGauges").field(&self.name).finish()
    }
}

/// The insertion time of the oldest item in each queue. The age is computed on collection.
#[derive(Clone, Debug)]
struct OldestItemAge {
    gauge: GaugeVec,
    since: Arc<Mutex<Vec<(&'static str, Instant)>>>,
}

impl Metrics {
    /// Registers the metrics.
    pub fn new(registry: &Registry) -> Self {
        let depth =
            Opts::new("workqueue_depth", "Items in the work queue of a controller, including those in progress.");
        let leads = Opts::new(
            "leader_election_master_status",
            "1 if this server leads the election of a controller, 0 if it stands by.",
        );
        let oldest = Opts::new(
            "unskew_controller_oldest_item_seconds",
            "Age of the oldest item in the work queue of a controller.",
        );
        let metrics = Self {
            depth: IntGaugeVec::new(depth, &["name"]).expect("the name is well-formed"),
            leader_status: IntGaugeVec::new(leads, &["name"]).expect("the name is well-formed"),
            oldest_item_age: OldestItemAge {
                gauge: GaugeVec::new(oldest, &["name"]).expect("the name is well-formed"),
                since: Arc::default(),
            },
            migrations: MigrationMetrics::new(),
        };
        let all: [Box<dyn Collector>; 7] = [
            Box::new(metrics.depth.clone()),
            Box::new(metrics.leader_status.clone()),
            Box::new(metrics.oldest_item_age.clone()),
            Box::new(metrics.migrations.outdated.clone()),
            Box::new(metrics.migrations.waiting.clone()),
            Box::new(metrics.migrations.rewritten.clone()),
            Box::new(metrics.migrations.results.clone()),
        ];
        for collector in all {
            registry.register(collector).expect("each is registered once");
        }
        metrics
    }

    pub(crate) fn set_leader_status(&self, name: &str, leads: LeaderStatus) {
        let value = match leads {
            LeaderStatus::Standby => 0,
            LeaderStatus::Leading => 1,
        };
        self.leader_status.with_label_values(&[name]).set(value);
    }

    pub(crate) fn migrations(&self) -> MigrationMetrics {
        self.migrations.clone()
    }

    pub(crate) fn queue_gauges(&self, name: &'static str) -> QueueGauges {
        let gauges = QueueGauges { metrics: self.clone(), name };
        gauges.set(0, None);
        gauges
    }
}

impl MigrationMetrics {
    fn new() -> Self {
        let outdated = Opts::new(
            "unskew_storage_migration_outdated_objects",
            "Objects of a resource under migration that are not stored in the version of the servers.",
        );
        let waiting = Opts::new(
            "unskew_storage_migration_waiting",
            "1 if a storage migration waits: servers disagree, or something is unavailable or refused.",
        );
        let rewritten =
            Opts::new("unskew_storage_migration_rewritten_objects_total", "Objects that storage migrations rewrote.");
        let results = Opts::new("unskew_storage_migrations_total", "Storage migrations that ended, by result.");
        Self {
            outdated: IntGaugeVec::new(outdated, &["resource"]).expect("the name is well-formed"),
            waiting: IntGaugeVec::new(waiting, &["resource"]).expect("the name is well-formed"),
            rewritten: IntCounter::with_opts(rewritten).expect("the name is well-formed"),
            results: IntCounterVec::new(results, &["result"]).expect("the name is well-formed"),
            shown: Arc::default(),
        }
    }

    pub(crate) fn show_progress(&self, resource: &str, outdated: u64, is_waiting: bool) {
        let mut shown = self.shown.lock();
        if !shown.iter().any(|known| known == resource) {
            shown.push(resource.to_owned());
        }
        self.outdated.with_label_values(&[resource]).set(i64::try_from(outdated).unwrap_or(i64::MAX));
        self.waiting.with_label_values(&[resource]).set(i64::from(is_waiting));
    }

    /// Removes the gauges of resources without a migration.
    pub(crate) fn retain(&self, mut is_migrated: impl FnMut(&str) -> bool) {
        self.shown.lock().retain(|resource| {
            let is_kept = is_migrated(resource);
            if !is_kept {
                // They exist: each was shown.
                let _ = self.outdated.remove_label_values(&[resource]);
                let _ = self.waiting.remove_label_values(&[resource]);
            }
            is_kept
        });
    }

    pub(crate) fn count_rewrite(&self) {
        self.rewritten.inc();
    }

    pub(crate) fn count_result(&self, result: &str) {
        self.results.with_label_values(&[result]).inc();
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum LeaderStatus {
    Standby,
    Leading,
}

impl QueueGauges {
    pub(crate) fn set(&self, length: usize, oldest: Option<Instant>) {
        self.metrics.depth.with_label_values(&[self.name]).set(i64::try_from(length).unwrap_or(i64::MAX));
        let mut since = self.metrics.oldest_item_age.since.lock();
        since.retain(|(name, _)| *name != self.name);
        since.extend(oldest.map(|oldest| (self.name, oldest)));
    }
}

impl Collector for OldestItemAge {
    fn desc(&self) -> Vec<&Desc> {
        self.gauge.desc()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        self.gauge.reset();
        for (name, since) in self.since.lock().iter() {
            self.gauge.with_label_values(&[name]).set(since.elapsed().as_secs_f64());
        }
        self.gauge.collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use expect_test::expect;
    use prometheus::TextEncoder;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn queue_gauges_show_depth_and_age_of_oldest_item() {
        let registry = Registry::new();
        let metrics = Metrics::new(&registry);
        metrics.set_leader_status("namespace", LeaderStatus::Leading);
        metrics.set_leader_status("garbage", LeaderStatus::Standby);
        let gauges = metrics.queue_gauges("namespace");
        gauges.set(3, Some(Instant::now()));
        tokio::time::advance(Duration::from_secs(7)).await;
        let page = TextEncoder::new().encode_to_string(&registry.gather()).unwrap();
        let lines: Vec<&str> = page.lines().filter(|line| !line.starts_with('#')).collect();
        expect![[r#"
            leader_election_master_status{name="garbage"} 0
            leader_election_master_status{name="namespace"} 1
            unskew_controller_oldest_item_seconds{name="namespace"} 7
            unskew_storage_migration_rewritten_objects_total 0
            workqueue_depth{name="namespace"} 3"#]]
        .assert_eq(&lines.join("\n"));
    }
}

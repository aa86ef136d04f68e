//! Metrics of the forwarder, by candidate.

use std::time::Duration;

use prometheus::core::Collector as _;
use prometheus::{CounterVec, HistogramOpts, HistogramVec, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry};

use super::QueueRejection;

/// Seconds, from one hop on one machine to a slow list.
const FORWARD_BUCKETS: [f64; 14] =
    [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 10.0, 60.0];

/// Metrics of forwarded requests. Clones share the values.
#[derive(Clone, Debug)]
pub struct Metrics {
    /// Seconds from sending a request to the head of its response, by peer.
    pub(super) forward_duration: HistogramVec,
    /// Failed connections and requests, by peer and reason. Membership counts failed discovery fetches here too.
    pub transport_failures: IntCounterVec,
    /// Seconds that chunks of bodies were delayed by the bandwidth limit, by peer.
    pub(super) bandwidth_waits: CounterVec,
    queue_length: IntGaugeVec,
    queue_wait: HistogramVec,
    queue_rejections: IntCounterVec,
}

impl Metrics {
    /// Registers the metrics; panics if called twice for one registry.
    pub fn new(registry: &Registry) -> Self {
        let metrics = Self {
            forward_duration: histogram_vec(
                "unskew_peer_forward_duration_seconds",
                "How long peers took to begin their answers, by peer",
            ),
            transport_failures: counter_vec(
                "unskew_peer_transport_failures_total",
                "Connections and requests to peers that failed, by peer and reason",
                &["peer", "reason"],
            ),
            queue_length: IntGaugeVec::new(
                Opts::new(
                    "unskew_peer_queue_length",
                    "Requests queued because a peer is at its in-flight limit, by peer",
                ),
                &["peer"],
            )
            .expect("the name and labels are valid"),
            queue_wait: histogram_vec(
                "unskew_peer_queue_wait_seconds",
                "How long requests waited that had to wait for a peer, by the peer that took them",
            ),
            queue_rejections: counter_vec(
                "unskew_peer_queue_refused_total",
                "Requests that were not let wait for a peer, or not any longer, by reason",
                &["reason"],
            ),
            bandwidth_waits: bandwidth_wait_counter(),
        };
        for counters in [&metrics.transport_failures, &metrics.queue_rejections] {
            registry.register(Box::new(counters.clone())).expect("each name is registered once");
        }
        for durations in [&metrics.forward_duration, &metrics.queue_wait] {
            registry.register(Box::new(durations.clone())).expect("each name is registered once");
        }
        registry.register(Box::new(metrics.bandwidth_waits.clone())).expect("each name is registered once");
        registry.register(Box::new(metrics.queue_length.clone())).expect("each name is registered once");
        metrics
    }

    /// The number of requests that wait for a peer.
    pub(super) fn queue_length(&self, peer: &str) -> IntGauge {
        self.queue_length.with_label_values(&[peer])
    }

    /// Records the wait of a request that got a seat.
    pub(super) fn observe_queue_wait(&self, peer: &str, waited: Duration) {
        self.queue_wait.with_label_values(&[peer]).observe(waited.as_secs_f64());
    }

    /// Counts a request that was not queued or left the queue without a seat.
    pub(super) fn count_queue_rejection(&self, rejection: QueueRejection) {
        self.queue_rejections.with_label_values(&[rejection.reason()]).inc();
    }

    /// Removes the series of a peer; otherwise series of departed servers would accumulate.
    pub(super) fn remove_peer(&self, peer: &str) {
        let _ = self.forward_duration.remove_label_values(&[peer]);
        let _ = self.queue_wait.remove_label_values(&[peer]);
        let _ = self.queue_length.remove_label_values(&[peer]);
        let _ = self.bandwidth_waits.remove_label_values(&[peer]);
        for family in self.transport_failures.collect() {
            let labels = family.get_metric().iter().flat_map(|series| series.get_label());
            for reason in labels.filter(|label| label.name() == "reason") {
                let _ = self.transport_failures.remove_label_values(&[peer, reason.value()]);
            }
        }
    }
}

fn counter_vec(name: &str, help: &str, labels: &[&str]) -> IntCounterVec {
    IntCounterVec::new(Opts::new(name, help), labels).expect("the name and labels are valid")
}

fn histogram_vec(name: &str, help: &str) -> HistogramVec {
    let options = HistogramOpts::new(name, help).buckets(FORWARD_BUCKETS.to_vec());
    HistogramVec::new(options, &["peer"]).expect("the name and labels are valid")
}

fn bandwidth_wait_counter() -> CounterVec {
    let name = "unskew_peer_bandwidth_wait_seconds_total";
    let options = Opts::new(name, "How long pieces of bodies waited because of the limit on bandwidth, by peer");
    CounterVec::new(options, &["peer"]).expect("the name and labels are valid")
}

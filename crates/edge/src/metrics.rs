//! What the pipeline counts, under kube-apiserver's names.

use prometheus::{HistogramOpts, HistogramVec, IntCounterVec, IntGaugeVec, Opts, Registry, TextEncoder};

/// kube-apiserver's buckets for request durations, in seconds.
const DURATION_BUCKETS: [f64; 22] = [
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0,
    60.0,
];

/// The pipeline's own figures.
#[derive(Clone, Debug)]
pub struct Metrics {
    /// Requests by what they asked for and how they ended.
    pub requests: IntCounterVec,
    /// How long they took; long-running ones are not in it.
    pub durations: HistogramVec,
    /// Requests under way, by kind.
    pub inflight: IntGaugeVec,
    registry: Registry,
}

impl Metrics {
    /// Registers the pipeline's figures in a registry that other crates register theirs in too.
    pub fn new(registry: &Registry) -> Self {
        let labels = &["verb", "group", "version", "resource", "subresource", "code"];
        let requests = IntCounterVec::new(
            Opts::new(
                "apiserver_request_total",
                "[STABLE] Counter of apiserver requests broken out for each verb, dry run value, group, version, \
                 resource, scope, component, and HTTP response code.",
            ),
            labels,
        );
        let durations = HistogramVec::new(
            HistogramOpts::new(
                "apiserver_request_duration_seconds",
                "[STABLE] Response latency distribution in seconds for each verb, dry run value, group, version, \
                 resource, subresource, scope and component.",
            )
            .buckets(DURATION_BUCKETS.to_vec()),
            &labels[..5],
        );
        let inflight = IntGaugeVec::new(
            Opts::new(
                "apiserver_current_inflight_requests",
                "[STABLE] Maximal number of currently used inflight request limit of this apiserver per request kind \
                 in last second.",
            ),
            &["request_kind"],
        );
        let metrics = Self {
            requests: requests.expect("the name and labels are valid"),
            durations: durations.expect("the name and labels are valid"),
            inflight: inflight.expect("the name and labels are valid"),
            registry: registry.clone(),
        };
        for collector in [
            Box::new(metrics.requests.clone()) as Box<dyn prometheus::core::Collector>,
            Box::new(metrics.durations.clone()),
            Box::new(metrics.inflight.clone()),
        ] {
            registry.register(collector).expect("each name is registered once");
        }
        metrics
    }

    /// The page that Prometheus reads.
    pub fn page(&self) -> String {
        TextEncoder::new().encode_to_string(&self.registry.gather()).expect("writing to memory cannot fail")
    }
}

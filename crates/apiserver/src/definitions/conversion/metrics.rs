//! Metrics of conversion webhooks, with the names of kube-apiserver.

use std::time::Duration;

use prometheus::{HistogramOpts, HistogramVec, IntCounterVec, Opts, Registry, exponential_buckets};

/// Bounds of the duration of calls in seconds, as in kube-apiserver.
const CALL_BUCKETS: [f64; 15] = [0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 45.0, 60.0];

pub(super) struct ConversionMetrics {
    requests: IntCounterVec,
    call_duration: HistogramVec,
    duration_by_definition: HistogramVec,
}

impl ConversionMetrics {
    /// Registers the metrics; panics if called twice for one registry.
    pub(super) fn new(registry: &Registry) -> Self {
        let metrics = Self {
            requests: IntCounterVec::new(
                Opts::new(
                    "apiserver_conversion_webhook_request_total",
                    "Counter for conversion webhook requests with success/failure and failure error type",
                ),
                &["result", "failure_type"],
            )
            .expect("a valid metric"),
            call_duration: HistogramVec::new(
                HistogramOpts::new(
                    "apiserver_conversion_webhook_duration_seconds",
                    "Conversion webhook request latency",
                )
                .buckets(CALL_BUCKETS.to_vec()),
                &["result", "failure_type"],
            )
            .expect("a valid metric"),
            duration_by_definition: HistogramVec::new(
                HistogramOpts::new(
                    "apiserver_crd_conversion_webhook_duration_seconds",
                    "CRD webhook conversion duration in seconds",
                )
                .buckets(exponential_buckets(0.001, 2.0, 15).expect("valid buckets")),
                &["crd_name", "from_version", "to_version", "succeeded"],
            )
            .expect("a valid metric"),
        };
        for collector in [
            Box::new(metrics.requests.clone()) as Box<dyn prometheus::core::Collector>,
            Box::new(metrics.call_duration.clone()),
            Box::new(metrics.duration_by_definition.clone()),
        ] {
            registry.register(collector).expect("each name is registered once");
        }
        metrics
    }

    pub(super) fn observe_call(&self, elapsed: Duration, failure_type: Option<&str>) {
        let labels = [if failure_type.is_none() { "success" } else { "failure" }, failure_type.unwrap_or_default()];
        self.requests.with_label_values(&labels).inc();
        self.call_duration.with_label_values(&labels).observe(elapsed.as_secs_f64());
    }

    pub(super) fn observe_conversion(
        &self,
        definition: &str,
        [from, to]: [&str; 2],
        succeeded: bool,
        elapsed: Duration,
    ) {
        let succeeded = if succeeded { "true" } else { "false" };
        self.duration_by_definition
            .with_label_values(&[definition, from, to, succeeded])
            .observe(elapsed.as_secs_f64());
    }
}

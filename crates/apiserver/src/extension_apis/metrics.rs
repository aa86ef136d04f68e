//! kube-apiserver's metrics of APIServices, by this server's own judgement.

use aggregation::condition::Availability;
use prometheus::{IntCounterVec, IntGaugeVec, Opts, Registry};

/// Which APIServices this server cannot reach.
#[derive(Clone, Debug)]
pub(crate) struct ExtensionMetrics {
    unavailable: IntGaugeVec,
    became_unavailable: IntCounterVec,
}

impl ExtensionMetrics {
    /// Registers the metrics; panics if called twice for one registry.
    pub(crate) fn new(registry: &Registry) -> Self {
        let unavailable = IntGaugeVec::new(
            Opts::new(
                "aggregator_unavailable_apiservice",
                "APIServices that this server cannot reach, by name: 1 if it cannot",
            ),
            &["name"],
        );
        let became_unavailable = IntCounterVec::new(
            Opts::new(
                "aggregator_unavailable_apiservice_total",
                "How often APIServices became unavailable for this server, by name and reason",
            ),
            &["name", "reason"],
        );
        let metrics = Self {
            unavailable: unavailable.expect("the name and labels are valid"),
            became_unavailable: became_unavailable.expect("the name and labels are valid"),
        };
        registry.register(Box::new(metrics.unavailable.clone())).expect("each name is registered once");
        registry.register(Box::new(metrics.became_unavailable.clone())).expect("each name is registered once");
        metrics
    }

    /// Records a judgement and the one before.
    pub(super) fn record(&self, name: &str, judged: &Availability, previous: Option<&Availability>) {
        let is_available = judged.is_available();
        self.unavailable.with_label_values(&[name]).set(i64::from(!is_available));
        if !is_available && previous.is_none_or(Availability::is_available) {
            self.became_unavailable.with_label_values(&[name, judged.reason]).inc();
        }
    }

    /// Forgets a deleted APIService.
    pub(super) fn remove(&self, name: &str) {
        // Fails if it was never judged.
        let _ = self.unavailable.remove_label_values(&[name]);
    }
}

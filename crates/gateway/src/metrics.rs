//! Metrics of upstreams, besides those that peering exports for members.

use membership::ServerId;
use prometheus::{IntGaugeVec, Opts, Registry};

/// Metrics of upstreams. Clones share them.
#[derive(Clone, Debug)]
pub struct Metrics {
    ready: IntGaugeVec,
    info: IntGaugeVec,
    not_vouched: IntGaugeVec,
}

impl Metrics {
    /// Registers the metrics. Call once per registry.
    pub fn new(registry: &Registry) -> Self {
        let gauges = |name: &str, help: &str, labels: &[&str]| {
            IntGaugeVec::new(Opts::new(name, help), labels).expect("the name and labels are valid")
        };
        let ready = gauges("unskew_upstream_ready", "1 if requests may go to an upstream", &["upstream"]);
        let info = gauges("unskew_upstream_info", "1 for the release that an upstream is", &["upstream", "version"]);
        let not_vouched = gauges(
            "unskew_upstream_not_vouched",
            "1 if requests of certificate users do not go to an upstream, with the reason",
            &["upstream", "reason"],
        );
        for vector in [&ready, &info, &not_vouched] {
            registry.register(Box::new(vector.clone())).expect("each name is registered once");
        }
        Self { ready, info, not_vouched }
    }

    pub(crate) fn set_ready(&self, server: &ServerId, version: Option<&str>) {
        let ready = self.ready.with_label_values(&[server.as_str()]);
        if let Some(version) = version {
            let info = self.info.with_label_values(&[server.as_str(), version]);
            if info.get() == 0 {
                self.remove_info(server);
                self.info.with_label_values(&[server.as_str(), version]).set(1);
            }
        }
        ready.set(1);
    }

    pub(crate) fn set_not_ready(&self, server: &ServerId) {
        self.ready.with_label_values(&[server.as_str()]).set(0);
    }

    /// Sets why the gateway does not vouch for users to the upstream; `None` if it does.
    pub(crate) fn set_not_vouched(&self, server: &ServerId, reason: Option<&'static str>) {
        remove_series(&self.not_vouched, server, |other| Some(other) != reason);
        if let Some(reason) = reason {
            self.not_vouched.with_label_values(&[server.as_str(), reason]).set(1);
        }
    }

    /// Removes all series of an upstream, so that former upstreams do not accumulate.
    pub(crate) fn remove_upstream(&self, server: &ServerId) {
        let _ = self.ready.remove_label_values(&[server.as_str()]);
        self.remove_info(server);
        self.set_not_vouched(server, None);
    }

    fn remove_info(&self, server: &ServerId) {
        remove_series(&self.info, server, |_| true);
    }
}

/// Removes series of an upstream from a metric with the label `upstream` and one other, whose value decides.
fn remove_series(vector: &IntGaugeVec, server: &ServerId, is_unwanted: impl Fn(&str) -> bool) {
    use prometheus::core::Collector as _;
    for family in vector.collect() {
        for metric in family.get_metric() {
            // Labels are sorted by name, so the position of `upstream` varies.
            let (upstream, other): (Vec<_>, Vec<_>) =
                metric.get_label().iter().partition(|label| label.name() == "upstream");
            if let ([upstream], [other]) = (&upstream[..], &other[..])
                && upstream.value() == server.as_str()
                && is_unwanted(other.value())
            {
                let _ = vector.remove_label_values(&[upstream.value(), other.value()]);
            }
        }
    }
}

//! What is counted about upstreams, beside what peering counts about members.

use peering::ServerId;
use prometheus::{IntGaugeVec, Opts, Registry};

/// Figures about upstreams. Clones share them.
#[derive(Clone, Debug)]
pub struct Metrics {
    ready: IntGaugeVec,
    info: IntGaugeVec,
    not_vouched: IntGaugeVec,
}

impl Metrics {
    /// Registers the figures. Called once.
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

    /// Why users are not named to it; `None` if they are.
    pub(crate) fn set_not_vouched(&self, server: &ServerId, reason: Option<&'static str>) {
        remove_series(&self.not_vouched, server, |other| Some(other) != reason);
        if let Some(reason) = reason {
            self.not_vouched.with_label_values(&[server.as_str(), reason]).set(1);
        }
    }

    /// Its labels go too, or a metric would remember every upstream that ever was.
    pub(crate) fn remove_upstream(&self, server: &ServerId) {
        let _ = self.ready.remove_label_values(&[server.as_str()]);
        self.remove_info(server);
        self.set_not_vouched(server, None);
    }

    fn remove_info(&self, server: &ServerId) {
        remove_series(&self.info, server, |_| true);
    }
}

/// Removes what a metric with two labels, the upstream first, says of an upstream.
fn remove_series(vector: &IntGaugeVec, server: &ServerId, is_unwanted: impl Fn(&str) -> bool) {
    use prometheus::core::Collector as _;
    for family in vector.collect() {
        for metric in family.get_metric() {
            // Labels are in the order of their names.
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

//! What is counted about upstreams, beside what peering counts about members.

use peering::ServerId;
use prometheus::{IntGaugeVec, Opts, Registry};

/// Figures about upstreams. Clones share them.
#[derive(Clone, Debug)]
pub struct Metrics {
    ready: IntGaugeVec,
    info: IntGaugeVec,
}

impl Metrics {
    /// Registers the figures. Called once.
    pub fn new(registry: &Registry) -> Self {
        let gauges = |name: &str, help: &str, labels: &[&str]| {
            IntGaugeVec::new(Opts::new(name, help), labels).expect("the name and labels are valid")
        };
        let ready = gauges("unskew_upstream_ready", "1 if requests may go to an upstream", &["upstream"]);
        let info = gauges("unskew_upstream_info", "1 for the release that an upstream is", &["upstream", "version"]);
        for vector in [&ready, &info] {
            registry.register(Box::new(vector.clone())).expect("each name is registered once");
        }
        Self { ready, info }
    }

    pub(crate) fn ready(&self, server: &ServerId, version: Option<&str>) {
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

    pub(crate) fn not_ready(&self, server: &ServerId) {
        self.ready.with_label_values(&[server.as_str()]).set(0);
    }

    /// Its labels go too, or a metric would remember every upstream that ever was.
    pub(crate) fn forget(&self, server: &ServerId) {
        let _ = self.ready.remove_label_values(&[server.as_str()]);
        self.remove_info(server);
    }

    fn remove_info(&self, server: &ServerId) {
        use prometheus::core::Collector as _;
        for family in self.info.collect() {
            for metric in family.get_metric() {
                let value =
                    |name: &str| metric.get_label().iter().find(|label| label.name() == name).map(|l| l.value());
                if let (Some(upstream), Some(version)) = (value("upstream"), value("version"))
                    && upstream == server.as_str()
                {
                    let _ = self.info.remove_label_values(&[upstream, version]);
                }
            }
        }
    }
}

//! The metrics of the pipeline, under kube-apiserver's names.
//!
//! Clients choose the paths, and every new set of labels costs memory forever. A resource therefore gets labels of its own with
//! its first successful request; before that, its requests are counted with empty labels.

use std::collections::HashSet;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::time::Duration;

use api::Verb;
use api::target::ResourceTarget;
use http::StatusCode;
use parking_lot::RwLock;
use prometheus::{HistogramOpts, HistogramVec, IntCounterVec, IntGaugeVec, Opts, Registry, TextEncoder};

/// kube-apiserver's buckets for request durations, in seconds.
const DURATION_BUCKETS: [f64; 22] = [
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0,
    60.0,
];

/// The metrics of one pipeline. Clones share them.
#[derive(Clone, Debug)]
pub struct Metrics {
    /// Requests by verb, resource and status.
    requests: IntCounterVec,
    /// Durations of requests that are not long-running.
    durations: HistogramVec,
    /// Requests in flight, reads and writes.
    inflight: IntGaugeVec,
    labelled_resources: Arc<LabelledResources>,
    registry: Registry,
}

/// Hashes of the resources that have labels of their own.
#[derive(Debug, Default)]
struct LabelledResources {
    hasher: RandomState,
    hashes: RwLock<HashSet<u64>>,
}

impl Metrics {
    /// Creates the metrics and registers them.
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
            labelled_resources: Arc::default(),
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

    /// Counts a response; `duration` is `None` for long-running requests.
    pub(crate) fn count_request(
        &self,
        verb: &str,
        resource_target: &ResourceTarget<'_>,
        code: StatusCode,
        duration: Option<Duration>,
    ) {
        let names = [
            &*resource_target.group,
            &*resource_target.version,
            &*resource_target.resource,
            &*resource_target.subresource,
        ];
        let [group, version, resource, subresource] =
            if self.labelled_resources.is_labelled(names, code) { names } else { [""; 4] };
        let labels = [verb, group, version, resource, subresource, code.as_str()];
        self.requests.with_label_values(&labels).inc();
        if let Some(took) = duration {
            self.durations.with_label_values(&labels[..5]).observe(took.as_secs_f64());
        }
    }

    /// Renders all metrics of the registry in text format, with these numbers of requests in flight.
    pub(crate) fn render_page(&self, reads: usize, writes: usize) -> String {
        for (kind, count) in [("readOnly", reads), ("mutating", writes)] {
            self.inflight.with_label_values(&[kind]).set(i64::try_from(count).unwrap_or(i64::MAX));
        }
        TextEncoder::new().encode_to_string(&self.registry.gather()).expect("writing to memory cannot fail")
    }
}

impl LabelledResources {
    /// True if the resource has labels of its own; the first success adds them.
    fn is_labelled(&self, names: [&str; 4], code: StatusCode) -> bool {
        let hash = self.hasher.hash_one(names);
        if self.hashes.read().contains(&hash) {
            return true;
        }
        if code.is_success() {
            self.hashes.write().insert(hash);
        }
        code.is_success()
    }
}

/// The verb as kube-apiserver's metrics name it.
pub(crate) fn verb_label(verb: Verb) -> &'static str {
    match verb {
        Verb::Get => "GET",
        Verb::List => "LIST",
        Verb::Watch => "WATCH",
        Verb::Create => "POST",
        Verb::Update => "PUT",
        Verb::Patch => "PATCH",
        Verb::Delete => "DELETE",
        Verb::DeleteCollection => "DELETECOLLECTION",
        Verb::Proxy => "PROXY",
        Verb::Unknown => "other",
    }
}

#[cfg(test)]
mod tests {
    use api::Target;
    use expect_test::expect;

    use super::*;

    #[test]
    fn resource_without_success_is_counted_without_labels() {
        let metrics = Metrics::new(&Registry::new());
        let count = |path: &str, code: u16| {
            let target = Target::parse("GET", path).unwrap();
            let Target::Resource(asked) = &target else { panic!("{path} is a resource") };
            metrics.count_request("GET", asked, StatusCode::from_u16(code).unwrap(), None);
        };
        for number in 0..1_000 {
            count(&format!("/api/v1/namespaces/default/invented{number}/x"), 404);
            count(&format!("/apis/group{number}/v1/namespaces/default/things/x"), 401);
        }
        count("/api/v1/namespaces/default/pods/x", 404);
        count("/api/v1/namespaces/default/pods/x", 200);
        count("/api/v1/namespaces/default/pods/x", 404);
        let page = metrics.render_page(3, 1);
        let lines: Vec<&str> = page.lines().filter(|line| !line.starts_with('#')).collect();
        expect![[r#"
            apiserver_current_inflight_requests{request_kind="mutating"} 1
            apiserver_current_inflight_requests{request_kind="readOnly"} 3
            apiserver_request_total{code="200",group="",resource="pods",subresource="",verb="GET",version="v1"} 1
            apiserver_request_total{code="401",group="",resource="",subresource="",verb="GET",version=""} 1000
            apiserver_request_total{code="404",group="",resource="",subresource="",verb="GET",version=""} 1001
            apiserver_request_total{code="404",group="",resource="pods",subresource="",verb="GET",version="v1"} 1"#]]
        .assert_eq(&lines.join("\n"));
    }
}

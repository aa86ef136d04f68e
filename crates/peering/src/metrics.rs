//! What peering counts: kube-apiserver's names and labels, the older document's names as aliases, and a few of our own.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use api::GroupVersionResource;
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{
    CounterVec, GaugeVec, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::forward::QueueRejection;
use crate::identity::ServerId;
use crate::members::MemberState;
use crate::view::View;

/// From what a hop adds on one machine to what a slow list takes.
const FORWARD_BUCKETS: [f64; 14] =
    [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 10.0, 60.0];

/// Why syncing what a peer serves failed; the label `type` of `apiserver_peer_discovery_sync_errors_total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncError {
    /// The identity leases could not be listed.
    LeaseList,
    /// A peer has no usable endpoint record.
    HostportResolution,
    /// A peer's document could not be had; counted once for each of `/api` and `/apis`.
    FetchDiscovery,
}

/// Why a request could not be forwarded at all; the label `type` of `apiserver_peer_proxy_errors_total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyError {
    /// No capable peer has an address.
    EndpointResolution,
    /// The way to a peer could not be built.
    ProxyTransport,
}

/// Peering's figures. Clones share them.
#[derive(Clone, Debug)]
pub struct Metrics {
    rerouted: IntCounterVec,
    proxy_errors: IntCounterVec,
    sync_errors: IntCounterVec,
    nopeer_requests: IntCounter,
    /// Merged documents served from finished bytes.
    pub merged_hits: IntCounter,
    /// Merged documents made.
    pub merged_misses: IntCounter,
    /// How long peers took, by peer.
    pub forward_duration: HistogramVec,
    /// Connections to peers that failed, by peer and reason.
    pub transport_failures: IntCounterVec,
    /// For how long bodies to and from peers waited because of the limit on bandwidth, by peer.
    pub bandwidth_waits: CounterVec,
    queue_length: IntGaugeVec,
    queue_wait: HistogramVec,
    queue_rejections: IntCounterVec,
    /// 1 for the reason why peering is disabled.
    pub disabled: IntGaugeVec,
}

impl Metrics {
    /// Registers the figures. Called once, when the gates are known.
    pub fn new(registry: &Registry) -> Self {
        let request_help = "[ALPHA] Total number of requests that were proxied to a peer kube-apiserver because the local \
                            apiserver was not capable of serving it, broken down by 'group', 'version', and 'resource' \
                            indicating the GVR of the request. If all three are empty (\"\"), the request is a discovery \
                            request.";
        let nopeer_help = "[ALPHA] Counter of number of times no-peer (non peer-aggregated) discovery was requested";
        let request_labels = &["code", "group", "version", "resource"];
        let metrics = Self {
            rerouted: counter_vec("apiserver_rerouted_request_total", request_help, request_labels),
            proxy_errors: counter_vec(
                "apiserver_peer_proxy_errors_total",
                "[ALPHA] Total number of errors encountered while proxying requests to a peer kube apiserver",
                &["type", "group", "version", "resource"],
            ),
            sync_errors: counter_vec(
                "apiserver_peer_discovery_sync_errors_total",
                "[ALPHA] Total number of errors encountered while syncing discovery information from a peer \
                 kube-apiserver",
                &["type"],
            ),
            nopeer_requests: counter("aggregator_discovery_nopeer_requests_total", nopeer_help),
            merged_hits: counter(
                "aggregator_discovery_peer_aggregated_cache_hits_total",
                "[ALPHA] Counter of number of times discovery was served from peer-aggregated cache",
            ),
            merged_misses: counter(
                "aggregator_discovery_peer_aggregated_cache_misses_total",
                "[ALPHA] Counter of number of times discovery was aggregated across all API servers",
            ),
            forward_duration: histogram_vec(
                "unskew_peer_forward_duration_seconds",
                "How long peers took to begin their answers, by peer",
            ),
            transport_failures: counter_vec(
                "unskew_peer_transport_failures_total",
                "Connections and requests to peers that failed, by peer and reason",
                &["peer", "reason"],
            ),
            queue_length: gauge_vec(
                "unskew_peer_queue_length",
                "Requests that wait because a peer has as many as it may, by peer",
                &["peer"],
            ),
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
            disabled: gauge_vec("unskew_peering_disabled", "1 for each reason why peering is disabled", &["reason"]),
        };
        metrics.register(registry);
        metrics
    }

    fn register(&self, registry: &Registry) {
        let counters = [&self.nopeer_requests, &self.merged_hits, &self.merged_misses];
        for counter in counters {
            registry.register(Box::new(counter.clone())).expect("each name is registered once");
        }
        let vectors =
            [&self.rerouted, &self.proxy_errors, &self.sync_errors, &self.transport_failures, &self.queue_rejections];
        for counters in vectors {
            registry.register(Box::new(counters.clone())).expect("each name is registered once");
        }
        let rerouted = MetricAlias::new("kubernetes_apiserver_rerouted_request_total", self.rerouted.clone());
        registry.register(Box::new(rerouted)).expect("each name is registered once");
        let nopeer = MetricAlias::new("aggregator_discovery_local_requests_total", self.nopeer_requests.clone());
        registry.register(Box::new(nopeer)).expect("each name is registered once");
        for durations in [&self.forward_duration, &self.queue_wait] {
            registry.register(Box::new(durations.clone())).expect("each name is registered once");
        }
        registry.register(Box::new(self.bandwidth_waits.clone())).expect("each name is registered once");
        for gauges in [&self.disabled, &self.queue_length] {
            registry.register(Box::new(gauges.clone())).expect("each name is registered once");
        }
    }

    /// Counts a request that went to a peer, with the code that the client got; empty names for a discovery request.
    pub fn count_rerouted(&self, code: &str, name: GroupVersionResource<&str>) {
        let labels = [code, name.group, name.version, name.resource];
        self.rerouted.with_label_values(&labels).inc();
    }

    /// Counts a request that could not be forwarded at all.
    pub fn count_proxy_error(&self, error: ProxyError, name: GroupVersionResource<&str>) {
        let error = match error {
            ProxyError::EndpointResolution => "endpoint_resolution",
            ProxyError::ProxyTransport => "proxy_transport",
        };
        self.proxy_errors.with_label_values(&[error, name.group, name.version, name.resource]).inc();
    }

    /// Counts a failure to learn what a peer serves.
    pub fn count_sync_error(&self, error: SyncError) {
        let error = match error {
            SyncError::LeaseList => "lease_list",
            SyncError::HostportResolution => "hostport_resolution",
            SyncError::FetchDiscovery => "fetch_discovery",
        };
        self.sync_errors.with_label_values(&[error]).inc();
    }

    /// How many wait for a peer.
    pub(crate) fn queue_length(&self, peer: &ServerId) -> IntGauge {
        self.queue_length.with_label_values(&[peer.as_str()])
    }

    /// Counts a request that waited for a peer and was taken.
    pub(crate) fn observe_queue_wait(&self, peer: &ServerId, waited: Duration) {
        self.queue_wait.with_label_values(&[peer.as_str()]).observe(waited.as_secs_f64());
    }

    /// Counts a request that was not let wait, or not any longer.
    pub(crate) fn count_queue_rejection(&self, rejection: QueueRejection) {
        self.queue_rejections.with_label_values(&[rejection.reason()]).inc();
    }

    /// Forgets the figures of a peer, or they would remember every server that ever was.
    pub(crate) fn remove_peer(&self, peer: &ServerId) {
        let _ = self.forward_duration.remove_label_values(&[peer.as_str()]);
        let _ = self.queue_wait.remove_label_values(&[peer.as_str()]);
        let _ = self.queue_length.remove_label_values(&[peer.as_str()]);
        let _ = self.bandwidth_waits.remove_label_values(&[peer.as_str()]);
    }

    /// Counts a request for the local document.
    pub fn count_nopeer_discovery(&self) {
        self.nopeer_requests.inc();
    }
}

/// The same figures under another name, counted once.
struct MetricAlias<C> {
    name: &'static str,
    metric: C,
    descriptions: Vec<Desc>,
}

impl<C: Collector> MetricAlias<C> {
    fn new(name: &'static str, metric: C) -> Self {
        let renamed = |original: &Desc| {
            Desc::new(name.to_owned(), original.help.clone(), original.variable_labels.clone(), HashMap::new())
        };
        let descriptions =
            metric.desc().into_iter().map(|original| renamed(original).expect("the name is valid")).collect();
        Self { name, metric, descriptions }
    }
}

impl<C: Collector> Collector for MetricAlias<C> {
    fn desc(&self) -> Vec<&Desc> {
        self.descriptions.iter().collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let mut families = self.metric.collect();
        families.iter_mut().for_each(|family| family.set_name(self.name.to_owned()));
        families
    }
}

fn counter(name: &str, help: &str) -> IntCounter {
    IntCounter::new(name, help).expect("the name is valid")
}

fn counter_vec(name: &str, help: &str, labels: &[&str]) -> IntCounterVec {
    IntCounterVec::new(Opts::new(name, help), labels).expect("the name and labels are valid")
}

fn gauge_vec(name: &str, help: &str, labels: &[&str]) -> IntGaugeVec {
    IntGaugeVec::new(Opts::new(name, help), labels).expect("the name and labels are valid")
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

/// What follows from the view at the moment somebody looks: members by state, ages of documents, conflicts.
#[derive(Debug)]
pub struct ViewMetrics {
    view: watch::Receiver<Arc<View>>,
    members: IntGaugeVec,
    document_age: GaugeVec,
    conflicts: IntGaugeVec,
}

impl ViewMetrics {
    /// Figures of whatever view there is.
    pub fn new(view: watch::Receiver<Arc<View>>) -> Self {
        let age = Opts::new("unskew_peer_document_age_seconds", "For how long the document of a peer has been known");
        Self {
            view,
            members: gauge_vec("unskew_peer_members", "Other members of the cluster, by state", &["state"]),
            document_age: GaugeVec::new(age, &["peer"]).expect("the name and labels are valid"),
            conflicts: gauge_vec(
                "unskew_discovery_conflicts",
                "Resources that servers describe differently, by field",
                &["field"],
            ),
        }
    }

    fn update_gauges(&self, view: &View, now: Instant) {
        self.document_age.reset();
        for state in MemberState::ALL {
            let count = view.members().iter().filter(|member| member.state == state).count();
            self.members.with_label_values(&[state.as_str()]).set(i64::try_from(count).unwrap_or(i64::MAX));
        }
        for member in view.members() {
            if let Some(document) = &member.document {
                let age = now.saturating_duration_since(document.since).as_secs_f64();
                self.document_age.with_label_values(&[member.server.as_str()]).set(age);
            }
        }
        self.conflicts.reset();
        for conflict in view.merged_documents().conflicts() {
            self.conflicts.with_label_values(&[conflict.field.as_str()]).inc();
        }
    }
}

impl Collector for ViewMetrics {
    fn desc(&self) -> Vec<&Desc> {
        [self.members.desc(), self.document_age.desc(), self.conflicts.desc()].concat()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let view = self.view.borrow().clone();
        self.update_gauges(&view, Instant::now());
        [self.members.collect(), self.document_age.collect(), self.conflicts.collect()].concat()
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use prometheus::TextEncoder;

    use super::*;

    const JOBS: GroupVersionResource<&str> = GroupVersionResource { group: "batch", version: "v1", resource: "jobs" };

    #[test]
    fn metrics_have_names_of_kube_apiserver_and_of_the_kep() {
        let registry = Registry::new();
        let metrics = Metrics::new(&registry);
        metrics.count_rerouted("200", JOBS);
        metrics.count_rerouted("503", GroupVersionResource { group: "", version: "", resource: "" });
        for error in [ProxyError::EndpointResolution, ProxyError::ProxyTransport] {
            metrics.count_proxy_error(error, JOBS);
        }
        for error in [SyncError::LeaseList, SyncError::HostportResolution, SyncError::FetchDiscovery] {
            metrics.count_sync_error(error);
        }
        metrics.count_nopeer_discovery();
        metrics.merged_hits.inc_by(2);
        metrics.merged_misses.inc();
        let text = TextEncoder::new().encode_to_string(&registry.gather()).unwrap();
        let values: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
        expect![[r#"
            aggregator_discovery_local_requests_total 1
            aggregator_discovery_nopeer_requests_total 1
            aggregator_discovery_peer_aggregated_cache_hits_total 2
            aggregator_discovery_peer_aggregated_cache_misses_total 1
            apiserver_peer_discovery_sync_errors_total{type="fetch_discovery"} 1
            apiserver_peer_discovery_sync_errors_total{type="hostport_resolution"} 1
            apiserver_peer_discovery_sync_errors_total{type="lease_list"} 1
            apiserver_peer_proxy_errors_total{group="batch",resource="jobs",type="endpoint_resolution",version="v1"} 1
            apiserver_peer_proxy_errors_total{group="batch",resource="jobs",type="proxy_transport",version="v1"} 1
            apiserver_rerouted_request_total{code="200",group="batch",resource="jobs",version="v1"} 1
            apiserver_rerouted_request_total{code="503",group="",resource="",version=""} 1
            kubernetes_apiserver_rerouted_request_total{code="200",group="batch",resource="jobs",version="v1"} 1
            kubernetes_apiserver_rerouted_request_total{code="503",group="",resource="",version=""} 1"#]]
        .assert_eq(&values.join("\n"));
    }

    #[tokio::test(start_paused = true)]
    async fn member_gauges_are_updated_on_scrape() {
        let view = crate::testing::view_from_notation("here: v1 pods:get; b live: a/v1 xs:get; c mute; d mute");
        let (sender, receiver) = watch::channel(Arc::new(view));
        let registry = Registry::new();
        registry.register(Box::new(ViewMetrics::new(receiver))).unwrap();
        tokio::time::advance(std::time::Duration::from_secs(3)).await;
        let show = || TextEncoder::new().encode_to_string(&registry.gather()).unwrap();
        let text = show();
        assert!(text.contains("unskew_peer_members{state=\"mute\"} 2"), "{text}");
        assert!(text.contains("unskew_peer_members{state=\"gone\"} 0"), "{text}");
        assert!(text.contains("unskew_peer_document_age_seconds{peer=\"apiserver-b\"} 3"), "{text}");
        sender.send_replace(Arc::new(crate::testing::view_from_notation("here: v1 pods:get")));
        let text = show();
        assert!(text.contains("unskew_peer_members{state=\"mute\"} 0") && !text.contains("apiserver-b"), "{text}");
    }
}

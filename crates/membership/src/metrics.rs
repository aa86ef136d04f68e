//! Metrics of membership and of requests between servers: kube-apiserver's names and labels, older names as aliases, and a few
//! of our own.

use std::collections::HashMap;
use std::sync::Arc;

use api::GroupVersionResource;
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{GaugeVec, IntCounter, IntCounterVec, IntGaugeVec, Opts, Registry};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::members::MemberState;
use crate::view::View;

/// Why the discovery sync of a peer failed; the label `type` of `apiserver_peer_discovery_sync_errors_total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncError {
    /// The identity leases could not be listed.
    LeaseList,
    /// A peer has no usable endpoint record.
    HostportResolution,
    /// A document could not be fetched; counted once for each of `/api` and `/apis`.
    FetchDiscovery,
}

/// Why a request could not be forwarded; the label `type` of `apiserver_peer_proxy_errors_total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyError {
    /// No capable peer has an address.
    EndpointResolution,
    /// No peer answered.
    ProxyTransport,
}

/// The metrics. Clones share the values.
#[derive(Clone, Debug)]
pub struct Metrics {
    rerouted: IntCounterVec,
    proxy_errors: IntCounterVec,
    sync_errors: IntCounterVec,
    nopeer_requests: IntCounter,
    /// Merged documents served from encoded bytes.
    pub merged_hits: IntCounter,
    /// Merged documents computed.
    pub merged_misses: IntCounter,
    /// Failed discovery fetches, by peer and reason; the forwarder counts failed requests in the same counter.
    pub transport_failures: IntCounterVec,
    /// 1 for each reason why peering is disabled.
    pub disabled: IntGaugeVec,
}

impl Metrics {
    /// Registers the metrics; panics if called twice for one registry. `transport_failures`, with the labels `peer` and `reason`, is
    /// registered by the forwarder.
    pub fn new(registry: &Registry, transport_failures: IntCounterVec) -> Self {
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
            transport_failures,
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
        for counters in [&self.rerouted, &self.proxy_errors, &self.sync_errors] {
            registry.register(Box::new(counters.clone())).expect("each name is registered once");
        }
        let rerouted = MetricAlias::new("kubernetes_apiserver_rerouted_request_total", self.rerouted.clone());
        registry.register(Box::new(rerouted)).expect("each name is registered once");
        let nopeer = MetricAlias::new("aggregator_discovery_local_requests_total", self.nopeer_requests.clone());
        registry.register(Box::new(nopeer)).expect("each name is registered once");
        registry.register(Box::new(self.disabled.clone())).expect("each name is registered once");
    }

    /// Counts a request that was forwarded to a peer, with the status that the client got; empty names for a discovery request.
    pub fn count_rerouted(&self, code: &str, name: GroupVersionResource<&str>) {
        let labels = [code, name.group, name.version, name.resource];
        self.rerouted.with_label_values(&labels).inc();
    }

    /// Counts a request that could not be forwarded.
    pub fn count_proxy_error(&self, error: ProxyError, name: GroupVersionResource<&str>) {
        let error = match error {
            ProxyError::EndpointResolution => "endpoint_resolution",
            ProxyError::ProxyTransport => "proxy_transport",
        };
        self.proxy_errors.with_label_values(&[error, name.group, name.version, name.resource]).inc();
    }

    /// Counts a failed discovery sync.
    pub fn count_sync_error(&self, error: SyncError) {
        let error = match error {
            SyncError::LeaseList => "lease_list",
            SyncError::HostportResolution => "hostport_resolution",
            SyncError::FetchDiscovery => "fetch_discovery",
        };
        self.sync_errors.with_label_values(&[error]).inc();
    }

    /// Counts a discovery request for what this server itself serves (`profile=nopeer`).
    pub fn count_nopeer_discovery(&self) {
        self.nopeer_requests.inc();
    }
}

/// A metric under another name.
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

/// Metrics derived from the view at every scrape: members by state, ages of documents, conflicts.
#[derive(Debug)]
pub struct ViewMetrics {
    view: watch::Receiver<Arc<View>>,
    members: IntGaugeVec,
    document_age: GaugeVec,
    conflicts: IntGaugeVec,
}

impl ViewMetrics {
    /// Metrics of the current view.
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
        let metrics = Metrics::new(&registry, crate::testing::transport_failures(&registry));
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

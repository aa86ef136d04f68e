//! The names of kube-apiserver's flags, hidden and deprecated ones included.

use kinds::Release;

/// True if a kube-apiserver of the release has the flag.
pub(super) fn has_flag(release: Release, name: &str) -> bool {
    match CHANGED.iter().find(|(changed, _, _)| *changed == name) {
        Some((_, since, removed)) => *since <= release && removed.is_none_or(|removed| release < removed),
        None => EVERYWHERE.split(' ').any(|known| known == name),
    }
}

/// Flags that not all releases have: the first with it and the first without it.
const CHANGED: &[(&str, Release, Option<Release>)] = &[
    ("cloud-config", Release::OLDEST, Some(Release::R33)),
    ("cloud-provider", Release::OLDEST, Some(Release::R33)),
    ("coordinated-leadership-lease-duration", Release::R34, None),
    ("coordinated-leadership-renew-deadline", Release::R34, None),
    ("coordinated-leadership-retry-period", Release::R34, None),
    ("emulation-forward-compatible", Release::R33, None),
    ("min-compatibility-version", Release::R35, None),
    ("requestheader-uid-headers", Release::R32, None),
    ("runtime-config-emulation-forward-compatible", Release::R33, None),
    ("service-account-signing-endpoint", Release::R32, None),
    ("tls-curve-preferences", Release::R36, None),
];

/// Flags of all releases.
const EVERYWHERE: &str = "\
    admission-control admission-control-config-file advertise-address aggregator-reject-forwarding-redirect \
    allow-metric-labels allow-metric-labels-manifest allow-privileged anonymous-auth api-audiences apiserver-count \
    audit-log-batch-buffer-size audit-log-batch-max-size audit-log-batch-max-wait audit-log-batch-throttle-burst \
    audit-log-batch-throttle-enable audit-log-batch-throttle-qps audit-log-compress audit-log-format \
    audit-log-maxage audit-log-maxbackup audit-log-maxsize audit-log-mode audit-log-path audit-log-truncate-enabled \
    audit-log-truncate-max-batch-size audit-log-truncate-max-event-size audit-log-version audit-policy-file \
    audit-webhook-batch-buffer-size audit-webhook-batch-initial-backoff audit-webhook-batch-max-size \
    audit-webhook-batch-max-wait audit-webhook-batch-throttle-burst audit-webhook-batch-throttle-enable \
    audit-webhook-batch-throttle-qps audit-webhook-config-file audit-webhook-initial-backoff audit-webhook-mode \
    audit-webhook-truncate-enabled audit-webhook-truncate-max-batch-size audit-webhook-truncate-max-event-size \
    audit-webhook-version authentication-config authentication-token-webhook-cache-ttl \
    authentication-token-webhook-config-file authentication-token-webhook-version authorization-config \
    authorization-mode authorization-policy-file authorization-webhook-cache-authorized-ttl \
    authorization-webhook-cache-unauthorized-ttl authorization-webhook-config-file authorization-webhook-version \
    bind-address cert-dir client-ca-file contention-profiling cors-allowed-origins debug-socket-path \
    default-not-ready-toleration-seconds default-unreachable-toleration-seconds default-watch-cache-size \
    delete-collection-workers disable-admission-plugins disable-http2-serving disabled-metrics \
    egress-selector-config-file emulated-version enable-admission-plugins enable-aggregator-routing \
    enable-bootstrap-token-auth enable-garbage-collector enable-logs-handler enable-priority-and-fairness \
    encryption-provider-config encryption-provider-config-automatic-reload endpoint-reconciler-type etcd-cafile \
    etcd-certfile etcd-compaction-interval etcd-count-metric-poll-period etcd-db-metric-poll-interval \
    etcd-healthcheck-timeout etcd-keyfile etcd-prefix etcd-readycheck-timeout etcd-servers etcd-servers-overrides \
    event-ttl external-hostname feature-gates goaway-chance help http2-max-streams-per-connection \
    kubelet-certificate-authority kubelet-client-certificate kubelet-client-key kubelet-port \
    kubelet-preferred-address-types kubelet-read-only-port kubelet-timeout kubernetes-service-node-port \
    lease-reuse-duration-seconds livez-grace-period log-flush-frequency log-json-info-buffer-size \
    log-json-split-stream log-text-info-buffer-size log-text-split-stream logging-format \
    max-connection-bytes-per-sec max-mutating-requests-inflight max-requests-inflight min-request-timeout \
    oidc-ca-file oidc-client-id oidc-groups-claim oidc-groups-prefix oidc-issuer-url oidc-required-claim \
    oidc-signing-algs oidc-username-claim oidc-username-prefix peer-advertise-ip peer-advertise-port peer-ca-file \
    permit-address-sharing permit-port-sharing profiling proxy-client-cert-file proxy-client-key-file \
    request-timeout requestheader-allowed-names requestheader-client-ca-file requestheader-extra-headers-prefix \
    requestheader-group-headers requestheader-username-headers runtime-config secure-port \
    service-account-extend-token-expiration service-account-issuer service-account-jwks-uri service-account-key-file \
    service-account-lookup service-account-max-token-expiration service-account-signing-key-file \
    service-cluster-ip-range service-node-port-range show-hidden-metrics-for-version shutdown-delay-duration \
    shutdown-send-retry-after shutdown-watch-termination-grace-period storage-backend storage-initialization-timeout \
    storage-media-type strict-transport-security-directives tls-cert-file tls-cipher-suites tls-min-version \
    tls-private-key-file tls-sni-cert-key token-auth-file tracing-config-file v version vmodule watch-cache \
    watch-cache-sizes";

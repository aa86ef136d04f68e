//! The flags of `unskew serve`: kube-apiserver's names and meanings, and some of our own.

use crate::flags::{Flag, FlagKind, common, flag};

const fn ignored_flag(name: &'static str) -> Flag {
    flag(name, FlagKind::Ignored, "", "")
}

const fn ignored_bool_flag(name: &'static str) -> Flag {
    flag(name, FlagKind::IgnoredBool, "", "")
}

const fn unsupported_flag(name: &'static str) -> Flag {
    flag(name, FlagKind::Unsupported, "", "")
}

const fn unsupported_bool_flag(name: &'static str) -> Flag {
    flag(name, FlagKind::UnsupportedBool, "", "")
}

/// Every flag that starts the server.
pub(crate) static FLAGS: &[Flag] = &[
    common::CONFIG,
    // Listener.
    common::BIND_ADDRESS,
    common::SECURE_PORT,
    flag(
        "advertise-address",
        FlagKind::Text,
        "",
        "The IP address at which clients and peers reach this server. Default: the bind address.",
    ),
    flag("tls-cert-file", FlagKind::Text, "", "The serving certificate, PEM. Default: generated below --cert-dir."),
    common::TLS_PRIVATE_KEY_FILE,
    common::TLS_MIN_VERSION,
    common::TLS_CIPHER_SUITES,
    flag("cert-dir", FlagKind::Text, "unskew-data/pki", "The folder of generated certificates and keys."),
    // Storage.
    flag(
        "sqlite-file",
        FlagKind::Text,
        "unskew-data/store.db",
        "The SQLite file, shared by the servers of one machine.",
    ),
    flag("etcd-servers", FlagKind::List, "", "etcd endpoints, scheme://host:port. Default: SQLite."),
    flag("etcd-cafile", FlagKind::Text, "", "The CA bundle that etcd's serving certificates are verified by."),
    flag("etcd-certfile", FlagKind::Text, "", "The client certificate for etcd."),
    flag("etcd-keyfile", FlagKind::Text, "", "The key of --etcd-certfile."),
    flag("etcd-prefix", FlagKind::Text, "/registry", "The prefix of all keys in storage."),
    flag("etcd-compaction-interval", FlagKind::Text, "5m", "The interval of compactions; 0 turns them off."),
    flag(
        "storage-media-type",
        FlagKind::Text,
        "application/json",
        "The media type of stored objects; only application/json is supported.",
    ),
    // Authentication and authorization.
    flag(
        "client-ca-file",
        FlagKind::Text,
        "",
        "The CA bundle of client certificates. Default: generated below --cert-dir.",
    ),
    flag("token-auth-file", FlagKind::Text, "", "A file of static tokens: token,user,uid,\"group1,group2\"."),
    flag("anonymous-auth", FlagKind::Bool, "true", "Serve requests without credentials as system:anonymous."),
    flag("authorization-mode", FlagKind::List, "RBAC", "AlwaysAllow, AlwaysDeny, RBAC, Node."),
    flag("requestheader-client-ca-file", FlagKind::Text, "", "The CA bundle of front-proxy client certificates."),
    flag("requestheader-allowed-names", FlagKind::List, "", "Common names that front proxies may have; empty: any."),
    flag("requestheader-username-headers", FlagKind::List, "", "Headers in which front proxies send the user name."),
    flag("requestheader-uid-headers", FlagKind::List, "", "Headers in which front proxies send the uid of the user."),
    flag(
        "requestheader-group-headers",
        FlagKind::List,
        "",
        "Headers in which front proxies send the groups of the user.",
    ),
    flag(
        "requestheader-extra-headers-prefix",
        FlagKind::List,
        "",
        "Prefixes of headers in which front proxies send extra values of the user.",
    ),
    flag(
        "service-account-issuer",
        FlagKind::List,
        "https://kubernetes.default.svc.cluster.local",
        "Issuers of service account tokens: the first signs, tokens of all are accepted.",
    ),
    flag(
        "service-account-key-file",
        FlagKind::List,
        "",
        "Public keys that service account tokens are verified by. Default: that of the signing key.",
    ),
    flag(
        "service-account-signing-key-file",
        FlagKind::Text,
        "",
        "The private key that signs service account tokens. Default: generated below --cert-dir.",
    ),
    flag(
        "service-account-extend-token-expiration",
        FlagKind::Bool,
        "true",
        "Extend projected service account tokens to one year for clients that do not reload them.",
    ),
    flag(
        "service-account-max-token-expiration",
        FlagKind::Text,
        "",
        "The longest lifetime of a service account token; longer requests are shortened. Default: no limit.",
    ),
    flag(
        "service-account-jwks-uri",
        FlagKind::Text,
        "",
        "The URL of the keys of service account tokens. Default: this server.",
    ),
    flag("api-audiences", FlagKind::List, "", "Audiences of tokens for this server. Default: the issuers."),
    // Audit.
    flag(
        "audit-policy-file",
        FlagKind::Text,
        "",
        "The audit policy, YAML or JSON: levels None, Metadata and Request. Without one nothing is recorded.",
    ),
    flag(
        "audit-log-path",
        FlagKind::Text,
        "",
        "The file to which audit events are appended, one per line; - for standard output.",
    ),
    // Resources.
    flag(
        "service-cluster-ip-range",
        FlagKind::List,
        "10.0.0.0/24",
        "The range of service addresses, CIDR, or two ranges of different IP families.",
    ),
    flag(
        "service-node-port-range",
        FlagKind::Text,
        "30000-32767",
        "The ports of services of the types NodePort and LoadBalancer: FIRST-LAST or FIRST+COUNT.",
    ),
    flag(
        "emulated-version",
        FlagKind::Text,
        "",
        "The Kubernetes release to emulate, such as 1.34. Default: the newest known.",
    ),
    flag("runtime-config", FlagKind::List, "", "API versions to turn on or off: api/all=true, apps/v1=false, …"),
    flag(
        "enable-admission-plugins",
        FlagKind::List,
        "",
        "Admission plugins to run besides those that the release runs by default. The order has no meaning.",
    ),
    flag(
        "disable-admission-plugins",
        FlagKind::List,
        "",
        "Admission plugins that do not run although the release runs them by default.",
    ),
    flag(
        "admission-control-config-file",
        FlagKind::Text,
        "",
        "File with an AdmissionConfiguration: configuration of PodSecurity, ResourceQuota and the webhook plugins.",
    ),
    flag(
        "default-not-ready-toleration-seconds",
        FlagKind::Text,
        "300",
        "How long pods tolerate a node that is not ready, if they do not say (plugin DefaultTolerationSeconds).",
    ),
    flag(
        "default-unreachable-toleration-seconds",
        FlagKind::Text,
        "300",
        "How long pods tolerate a node that is unreachable, if they do not say (plugin DefaultTolerationSeconds).",
    ),
    flag("feature-gates", FlagKind::List, "", "Features to turn on or off: Name=true|false,…"),
    // Controllers.
    flag(
        "controllers",
        FlagKind::List,
        "*",
        "Controllers to run: * for all, -name for all but one. There are namespace-controller, \
         garbage-collector-controller, serviceaccount-controller, root-ca-certificate-publisher-controller, \
         resourcequota-controller, validatingadmissionpolicy-status-controller, \
         persistentvolumeclaim-protection-controller, persistentvolume-protection-controller, \
         volumeattributesclass-protection-controller and storage-version-migrator-controller.",
    ),
    flag(
        "migrate-automatically",
        FlagKind::Bool,
        "false",
        "Create a StorageVersionMigration for each resource whose objects are stored in another version than the one that all \
         servers write.",
    ),
    flag(
        "storage-migration-linger",
        FlagKind::Text,
        "70s",
        "How long after the identity lease of a server is gone a storage migration waits for its last writes: at least the \
         --shutdown-delay-duration and --request-timeout of kube-apiservers on the same etcd.",
    ),
    flag(
        "root-ca-file",
        FlagKind::Text,
        "",
        "The CA bundle, PEM, that is published as ConfigMap kube-root-ca.crt in every namespace. Default: the generated CA, if it \
         signed the serving certificate.",
    ),
    // Limits and timeouts.
    common::REQUEST_TIMEOUT,
    flag(
        "min-request-timeout",
        FlagKind::Text,
        "1800",
        "The shortest duration of a watch that names none, in seconds.",
    ),
    common::SHUTDOWN_DELAY_DURATION,
    common::MAX_REQUESTS_INFLIGHT,
    common::MAX_MUTATING_REQUESTS_INFLIGHT,
    // Peers.
    flag(
        "hostname-override",
        FlagKind::Text,
        "",
        "The hostname from which this server's identity is derived. Default: that of the machine, on SQLite with the port.",
    ),
    flag("peer-ca-file", FlagKind::Text, "", "The CA bundle that serving certificates of peers are verified by."),
    flag("proxy-client-cert-file", FlagKind::Text, "", "The front-proxy client certificate for requests to peers."),
    common::PROXY_CLIENT_KEY_FILE,
    flag(
        "peer-advertise-ip",
        FlagKind::Text,
        "",
        "The IP address at which peers reach this server. Default: --advertise-address.",
    ),
    flag(
        "peer-advertise-port",
        FlagKind::Text,
        "",
        "The port at which peers reach this server. Default: the port it listens on.",
    ),
    flag(
        "egress-selector-config-file",
        FlagKind::Text,
        "",
        "An EgressSelectorConfiguration; connections to peers, and to webhooks by URL, use its controlplane.",
    ),
    flag(
        "enable-aggregator-routing",
        FlagKind::Bool,
        "false",
        "Reach webhooks and extension API servers by an endpoint that is ready instead of by the cluster IP.",
    ),
    flag(
        "aggregator-reject-forwarding-redirect",
        FlagKind::Bool,
        "true",
        "Respond 502 to clients instead of passing on a redirect of an extension API server.",
    ),
    flag(
        "merge-discovery",
        FlagKind::Text,
        "aggregated",
        "Which discovery documents are merged from all servers: aggregated or all.",
    ),
    flag(
        "publish-discovery",
        FlagKind::Bool,
        "true",
        "Publish this server's discovery document in storage, so that peers need not fetch it.",
    ),
    flag(
        "peer-linger",
        FlagKind::Text,
        "1m0s",
        "How long requests for the resources of a server that left get 503 and not 404.",
    ),
    flag("peer-endpoint-ttl", FlagKind::Text, "15s", "The TTL of this server's endpoint record."),
    flag(
        "peer-max-requests-inflight",
        FlagKind::Text,
        "0",
        "The limit of requests in flight to one peer; 0 for no limit.",
    ),
    flag(
        "peer-max-bandwidth",
        FlagKind::Text,
        "0",
        "The limit of body bytes per second to and from one peer; more is delayed; 0 for no limit.",
    ),
    flag(
        "peer-response-headers",
        FlagKind::Bool,
        "false",
        "Add headers to responses that name the serving server and the routing rule.",
    ),
    flag("identity-lease-duration-seconds", FlagKind::Text, "3600", "The duration of this server's identity lease."),
    flag(
        "identity-lease-renew-interval-seconds",
        FlagKind::Text,
        "10",
        "The interval at which the identity lease is renewed.",
    ),
    flag(
        "ignore-unsupported",
        FlagKind::List,
        "",
        "Flags of kube-apiserver to ignore although they have a meaning for security that this server does not have, such as encryption-provider-config.",
    ),
    // Logging.
    common::LOGGING_FORMAT,
    common::VERBOSITY,
    // Flags of kube-apiserver that have no effect: accepted, so that its command lines start this server.
    ignored_bool_flag("allow-privileged"),
    ignored_flag("apiserver-count"),
    ignored_flag("audit-log-format"),
    ignored_flag("audit-log-maxage"),
    ignored_flag("audit-log-maxbackup"),
    ignored_flag("audit-log-maxsize"),
    ignored_bool_flag("contention-profiling"),
    ignored_flag("cors-allowed-origins"),
    ignored_flag("default-watch-cache-size"),
    ignored_flag("delete-collection-workers"),
    ignored_bool_flag("enable-bootstrap-token-auth"),
    ignored_bool_flag("enable-garbage-collector"),
    ignored_bool_flag("enable-priority-and-fairness"),
    ignored_flag("endpoint-reconciler-type"),
    ignored_flag("etcd-count-metric-poll-period"),
    ignored_flag("etcd-db-metric-poll-interval"),
    ignored_flag("etcd-healthcheck-timeout"),
    ignored_flag("etcd-readycheck-timeout"),
    ignored_flag("event-ttl"),
    ignored_flag("external-hostname"),
    ignored_flag("goaway-chance"),
    ignored_flag("http2-max-streams-per-connection"),
    ignored_flag("kubelet-certificate-authority"),
    ignored_flag("kubelet-client-certificate"),
    ignored_flag("kubelet-client-key"),
    ignored_flag("kubelet-preferred-address-types"),
    ignored_flag("kubelet-timeout"),
    ignored_flag("kubernetes-service-node-port"),
    ignored_flag("lease-reuse-duration-seconds"),
    ignored_flag("livez-grace-period"),
    ignored_flag("max-connection-bytes-per-sec"),
    ignored_bool_flag("permit-address-sharing"),
    ignored_bool_flag("permit-port-sharing"),
    ignored_bool_flag("profiling"),
    ignored_bool_flag("service-account-lookup"),
    ignored_flag("shutdown-send-retry-after"),
    ignored_flag("shutdown-watch-termination-grace-period"),
    ignored_flag("storage-backend"),
    ignored_flag("vmodule"),
    ignored_bool_flag("watch-cache"),
    ignored_flag("watch-cache-sizes"),
    // Flags of kube-apiserver with a meaning for security or for where data is kept, which this server does not have.
    unsupported_flag("audit-webhook-config-file"),
    unsupported_flag("authentication-config"),
    unsupported_flag("authentication-token-webhook-cache-ttl"),
    unsupported_flag("authentication-token-webhook-config-file"),
    unsupported_flag("authentication-token-webhook-version"),
    unsupported_flag("authorization-config"),
    unsupported_flag("authorization-policy-file"),
    unsupported_flag("authorization-webhook-cache-authorized-ttl"),
    unsupported_flag("authorization-webhook-cache-unauthorized-ttl"),
    unsupported_flag("authorization-webhook-config-file"),
    unsupported_flag("authorization-webhook-version"),
    unsupported_flag("encryption-provider-config"),
    unsupported_bool_flag("encryption-provider-config-automatic-reload"),
    unsupported_flag("etcd-servers-overrides"),
    unsupported_flag("oidc-ca-file"),
    unsupported_flag("oidc-client-id"),
    unsupported_flag("oidc-groups-claim"),
    unsupported_flag("oidc-groups-prefix"),
    unsupported_flag("oidc-issuer-url"),
    unsupported_flag("oidc-required-claim"),
    unsupported_flag("oidc-signing-algs"),
    unsupported_flag("oidc-username-claim"),
    unsupported_flag("oidc-username-prefix"),
    unsupported_flag("service-account-signing-endpoint"),
    unsupported_flag("strict-transport-security-directives"),
    unsupported_flag("tls-sni-cert-key"),
];

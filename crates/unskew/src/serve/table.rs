//! The flags of `unskew serve`: kube-apiserver's names and meanings, and two of our own.

use crate::flags::{Flag, Kind};

const fn flag(name: &'static str, kind: Kind, default: &'static str, help: &'static str) -> Flag {
    Flag { name, kind, default, help }
}

const fn ignored(name: &'static str) -> Flag {
    flag(name, Kind::NoMeaning, "", "")
}

const fn ignored_bool(name: &'static str) -> Flag {
    flag(name, Kind::NoMeaningBool, "", "")
}

/// Every flag that starts the server.
pub(crate) static TABLE: &[Flag] = &[
    flag("config", Kind::Text, "", "A JSON file with the same keys as these flags; the command line wins."),
    // Where it listens.
    flag("bind-address", Kind::Text, "127.0.0.1", "The IP address to listen on."),
    flag("secure-port", Kind::Text, "6443", "The port to listen on; 0 picks a free one and prints it."),
    flag(
        "advertise-address",
        Kind::Text,
        "",
        "The IP address that others reach this server at. Default: the bind address.",
    ),
    flag("tls-cert-file", Kind::Text, "", "The serving certificate, PEM. Default: one of our own below --cert-dir."),
    flag("tls-private-key-file", Kind::Text, "", "The private key of --tls-cert-file."),
    flag("cert-dir", Kind::Text, "unskew-data/pki", "Where certificates and keys of our own are kept."),
    // Where it stores.
    flag("sqlite-file", Kind::Text, "unskew-data/store.db", "The SQLite file, shared by the servers of one machine."),
    flag("etcd-servers", Kind::List, "", "etcd endpoints, scheme://host:port; instead of SQLite."),
    flag("etcd-cafile", Kind::Text, "", "The authority of etcd's certificates."),
    flag("etcd-certfile", Kind::Text, "", "The client certificate shown to etcd."),
    flag("etcd-keyfile", Kind::Text, "", "The key of --etcd-certfile."),
    flag("etcd-prefix", Kind::Text, "/registry", "What every key in storage begins with."),
    flag("etcd-compaction-interval", Kind::Text, "5m", "How often history is compacted; 0 turns it off."),
    flag(
        "storage-media-type",
        Kind::Text,
        "application/json",
        "How objects are stored; only application/json is built.",
    ),
    // Who may come in.
    flag("client-ca-file", Kind::Text, "", "The authorities of client certificates. Default: one of our own."),
    flag("token-auth-file", Kind::Text, "", "A file of static tokens: token,user,uid,\"group1,group2\"."),
    flag("anonymous-auth", Kind::Bool, "true", "Whether requests without credentials are let in as system:anonymous."),
    flag("authorization-mode", Kind::List, "RBAC", "AlwaysAllow, AlwaysDeny, RBAC, Node."),
    flag("requestheader-client-ca-file", Kind::Text, "", "The authorities of front proxies."),
    flag("requestheader-allowed-names", Kind::List, "", "Which names front proxies may have; empty: any."),
    flag("requestheader-username-headers", Kind::List, "", "Headers that name the user behind a front proxy."),
    flag("requestheader-uid-headers", Kind::List, "", "Headers with the uid of the user behind a front proxy."),
    flag("requestheader-group-headers", Kind::List, "", "Headers with the groups of the user behind a front proxy."),
    flag("requestheader-extra-headers-prefix", Kind::List, "", "Prefixes of headers with extra values of that user."),
    flag(
        "service-account-issuer",
        Kind::List,
        "https://kubernetes.default.svc.cluster.local",
        "Who signs service account tokens; the first signs, all are believed.",
    ),
    flag(
        "service-account-key-file",
        Kind::List,
        "",
        "Keys that service account tokens may be signed with. Default: one of our own.",
    ),
    flag(
        "service-account-signing-key-file",
        Kind::Text,
        "",
        "The key that signs service account tokens. Default: one of our own.",
    ),
    flag(
        "service-account-extend-token-expiration",
        Kind::Bool,
        "true",
        "Whether tokens of pods that may not know that tokens end get a year.",
    ),
    flag(
        "service-account-max-token-expiration",
        Kind::Text,
        "",
        "The longest life of a service account token; longer ones are cut down. Default: no limit.",
    ),
    flag(
        "service-account-jwks-uri",
        Kind::Text,
        "",
        "Where others find the keys of service account tokens. Default: this server.",
    ),
    flag("api-audiences", Kind::List, "", "Audiences of tokens for this server. Default: the issuer."),
    // What it records.
    flag(
        "audit-policy-file",
        Kind::Text,
        "",
        "The audit policy, YAML or JSON: levels None, Metadata and Request. Without one nothing is recorded.",
    ),
    flag(
        "audit-log-path",
        Kind::Text,
        "",
        "The file that audit events are added to, a line each; - for standard output.",
    ),
    // What it serves.
    flag(
        "service-cluster-ip-range",
        Kind::List,
        "",
        "Ranges of service addresses, CIDR. Nothing is allocated from them, but the service kubernetes has the first.",
    ),
    flag("emulated-version", Kind::Text, "", "The Kubernetes release to be, such as 1.34. Default: the newest known."),
    flag("runtime-config", Kind::List, "", "API versions to turn on or off: api/all=true, apps/v1=false, …"),
    flag("feature-gates", Kind::List, "", "Features to turn on or off: Name=true|false,…"),
    // What it does by itself.
    flag(
        "controllers",
        Kind::List,
        "*",
        "Controllers to run: * for all, -name for all but one. There are namespace-controller, \
         garbage-collector-controller, serviceaccount-controller and root-ca-certificate-publisher-controller.",
    ),
    flag(
        "root-ca-file",
        Kind::Text,
        "",
        "The authority that every namespace's ConfigMap kube-root-ca.crt holds, PEM. Default: our own, if it signed the \
         serving certificate.",
    ),
    // How much, how long.
    flag("request-timeout", Kind::Text, "1m0s", "How long a request may take that is not a watch."),
    flag("min-request-timeout", Kind::Text, "1800", "The shortest time, in seconds, after which a watch is ended."),
    flag(
        "shutdown-delay-duration",
        Kind::Text,
        "0s",
        "How long to go on serving, not ready, after a stop was asked for.",
    ),
    flag("max-requests-inflight", Kind::Text, "400", "How many reads may be under way; 0 for no limit."),
    flag("max-mutating-requests-inflight", Kind::Text, "200", "How many writes may be under way; 0 for no limit."),
    // The other servers.
    flag(
        "hostname-override",
        Kind::Text,
        "",
        "The hostname that this server's identity is made of. Default: the machine's, on SQLite with the port.",
    ),
    flag(
        "peer-ca-file",
        Kind::Text,
        "",
        "The certificate authorities that sign the serving certificates of other servers.",
    ),
    flag(
        "proxy-client-cert-file",
        Kind::Text,
        "",
        "The certificate that this server shows to the others as a front proxy.",
    ),
    flag("proxy-client-key-file", Kind::Text, "", "Its key."),
    flag("peer-advertise-ip", Kind::Text, "", "Where the others reach this server. Default: --advertise-address."),
    flag("peer-advertise-port", Kind::Text, "", "At which port. Default: the port it listens on."),
    flag(
        "egress-selector-config-file",
        Kind::Text,
        "",
        "An EgressSelectorConfiguration; its controlplane leads to the others.",
    ),
    flag(
        "merge-discovery",
        Kind::Text,
        "aggregated",
        "Which discovery pages speak for all servers: aggregated or all.",
    ),
    flag(
        "publish-discovery",
        Kind::Bool,
        "true",
        "Whether what this server serves is put into storage, so that the others need not ask.",
    ),
    flag("peer-linger", Kind::Text, "1m0s", "How long a server that left is answered for with 503 and not with 404."),
    flag("peer-endpoint-ttl", Kind::Text, "15s", "How long this server's address is valid after it was last written."),
    flag(
        "peer-max-requests-inflight",
        Kind::Text,
        "0",
        "How many requests may be under way to one other server; 0 for no limit.",
    ),
    flag(
        "peer-max-bandwidth",
        Kind::Text,
        "0",
        "How many bytes of bodies a second may go to and from one other server; what is more waits; 0 for no limit.",
    ),
    flag(
        "peer-response-headers",
        Kind::Bool,
        "false",
        "Whether answers tell which server gave them and by which rule.",
    ),
    flag("identity-lease-duration-seconds", Kind::Text, "3600", "How long this server's identity lease is valid."),
    flag("identity-lease-renew-interval-seconds", Kind::Text, "10", "How often it is renewed."),
    // How it shows.
    flag("logging-format", Kind::Text, "text", "text or json."),
    flag("v", Kind::Text, "0", "How much is logged: 0 to 9."),
    // kube-apiserver has these; they are taken so that its command lines start this server.
    ignored_bool("allow-privileged"),
    ignored("admission-control-config-file"),
    ignored_bool("aggregator-reject-forwarding-redirect"),
    ignored("apiserver-count"),
    ignored("audit-log-format"),
    ignored("audit-log-maxage"),
    ignored("audit-log-maxbackup"),
    ignored("audit-log-maxsize"),
    ignored("authentication-token-webhook-config-file"),
    ignored_bool("contention-profiling"),
    ignored("cors-allowed-origins"),
    ignored("default-not-ready-toleration-seconds"),
    ignored("default-unreachable-toleration-seconds"),
    ignored("default-watch-cache-size"),
    ignored("delete-collection-workers"),
    ignored("disable-admission-plugins"),
    ignored("enable-admission-plugins"),
    ignored_bool("enable-aggregator-routing"),
    ignored_bool("enable-bootstrap-token-auth"),
    ignored_bool("enable-garbage-collector"),
    ignored_bool("enable-priority-and-fairness"),
    ignored("encryption-provider-config"),
    ignored("endpoint-reconciler-type"),
    ignored("etcd-count-metric-poll-period"),
    ignored("etcd-db-metric-poll-interval"),
    ignored("etcd-healthcheck-timeout"),
    ignored("etcd-readycheck-timeout"),
    ignored("etcd-servers-overrides"),
    ignored("event-ttl"),
    ignored("external-hostname"),
    ignored("goaway-chance"),
    ignored("http2-max-streams-per-connection"),
    ignored("kubelet-certificate-authority"),
    ignored("kubelet-client-certificate"),
    ignored("kubelet-client-key"),
    ignored("kubelet-preferred-address-types"),
    ignored("kubelet-timeout"),
    ignored("kubernetes-service-node-port"),
    ignored("lease-reuse-duration-seconds"),
    ignored("livez-grace-period"),
    ignored("max-connection-bytes-per-sec"),
    ignored("oidc-ca-file"),
    ignored("oidc-client-id"),
    ignored("oidc-groups-claim"),
    ignored("oidc-groups-prefix"),
    ignored("oidc-issuer-url"),
    ignored("oidc-username-claim"),
    ignored("oidc-username-prefix"),
    ignored_bool("permit-address-sharing"),
    ignored_bool("permit-port-sharing"),
    ignored_bool("profiling"),
    ignored_bool("service-account-lookup"),
    ignored("service-node-port-range"),
    ignored("shutdown-send-retry-after"),
    ignored("shutdown-watch-termination-grace-period"),
    ignored("storage-backend"),
    ignored("strict-transport-security-directives"),
    ignored("tls-cipher-suites"),
    ignored("tls-min-version"),
    ignored("tls-sni-cert-key"),
    ignored("vmodule"),
    ignored_bool("watch-cache"),
    ignored("watch-cache-sizes"),
];

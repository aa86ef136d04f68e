//! The flags of `unskew gateway`: kube-apiserver's names and meanings where it has them.

use api::headers::{REMOTE_EXTRA_PREFIX, REMOTE_GROUP, REMOTE_UID, REMOTE_USER};

use crate::flags::{Flag, FlagKind, common, flag};

/// Every flag that starts the gateway.
pub(crate) static FLAGS: &[Flag] = &[
    common::CONFIG,
    flag("print-config", FlagKind::Bool, "false", "Print every setting with its source, and exit."),
    // Listener.
    Flag { default: "0.0.0.0", ..common::BIND_ADDRESS },
    Flag { default: "7443", ..common::SECURE_PORT },
    flag(
        "tls-cert-file",
        FlagKind::Text,
        "",
        "The serving certificate, PEM. Default: kubeadm's, or generated below --cert-dir.",
    ),
    common::TLS_PRIVATE_KEY_FILE,
    common::TLS_MIN_VERSION,
    common::TLS_CIPHER_SUITES,
    flag("cert-dir", FlagKind::Text, "unskew-data/gateway", "The folder of a generated serving certificate."),
    // Upstreams.
    flag(
        "upstream",
        FlagKind::List,
        "",
        "A kube-apiserver, https://host:port; local=https://host:port marks the preferred one.",
    ),
    flag(
        "upstream-ca-file",
        FlagKind::Text,
        "",
        "The CA bundle that the upstreams' serving certificates are verified by.",
    ),
    flag(
        "upstream-server-name",
        FlagKind::Text,
        "kubernetes.default.svc",
        "The name that every upstream's serving certificate must have.",
    ),
    flag(
        "upstream-discovery",
        FlagKind::Text,
        "",
        "endpointslices: add the endpoints of the service kubernetes. Default: none; on a kubeadm node endpointslices.",
    ),
    flag("upstream-cidr", FlagKind::List, "", "The networks in which --upstream-discovery accepts addresses."),
    flag(
        "upstream-forget-after",
        FlagKind::Text,
        "1h0m0s",
        "How long an upstream may fail before requests for resources that only it serves get 404 and not 503.",
    ),
    flag(
        "upstream-max-requests-inflight",
        FlagKind::Text,
        "0",
        "The limit of requests in flight to one upstream, watches excluded; 0 for no limit.",
    ),
    flag(
        "upstream-max-requests-queued",
        FlagKind::Text,
        "1000",
        "The limit of requests queued for an upstream at its in-flight limit, fair among users; 0 turns the queue off.",
    ),
    flag("upstream-max-requests-queued-per-user", FlagKind::Text, "100", "The limit of queued requests of one user."),
    flag("upstream-queue-timeout", FlagKind::Text, "10s", "How long a request is queued before it gets 429."),
    flag(
        "upstream-max-bandwidth",
        FlagKind::Text,
        "0",
        "The limit of body bytes per second to and from one upstream; more is delayed; 0 for no limit.",
    ),
    flag("state-dir", FlagKind::Text, "", "The folder in which discovery documents of upstreams survive a restart."),
    // Authentication.
    flag("client-ca-file", FlagKind::Text, "", "The CA bundle of client certificates."),
    flag("proxy-client-cert-file", FlagKind::Text, "", "The front-proxy certificate that the upstreams trust."),
    common::PROXY_CLIENT_KEY_FILE,
    flag("requestheader-client-ca-file", FlagKind::Text, "", "The CA bundle of front proxies before the gateway."),
    flag("requestheader-allowed-names", FlagKind::List, "", "Common names that front proxies may have; empty: any."),
    flag(
        "requestheader-username-headers",
        FlagKind::List,
        REMOTE_USER,
        "Headers in which front proxies send the user name.",
    ),
    flag(
        "requestheader-uid-headers",
        FlagKind::List,
        REMOTE_UID,
        "Headers in which front proxies send the uid of the user.",
    ),
    flag("requestheader-group-headers", FlagKind::List, REMOTE_GROUP, "Headers in which they give its groups."),
    flag(
        "requestheader-extra-headers-prefix",
        FlagKind::List,
        REMOTE_EXTRA_PREFIX,
        "Prefixes of headers in which front proxies send extra values of the user.",
    ),
    // Responses.
    flag(
        "merge-discovery",
        FlagKind::Text,
        "all",
        "Which discovery documents are merged from all upstreams: aggregated or all.",
    ),
    flag(
        "peer-response-headers",
        FlagKind::Bool,
        "false",
        "Add headers to responses that name the upstream and the routing rule.",
    ),
    // Limits and timeouts.
    common::REQUEST_TIMEOUT,
    common::SHUTDOWN_DELAY_DURATION,
    Flag { default: "0", ..common::MAX_REQUESTS_INFLIGHT },
    Flag { default: "0", ..common::MAX_MUTATING_REQUESTS_INFLIGHT },
    // Files and logging.
    flag("kubeadm-dir", FlagKind::Text, "/etc/kubernetes", "The folder of kubeadm's files."),
    flag(
        "access-log-path",
        FlagKind::Text,
        "",
        "The access log, one line of JSON per request: a file, created again after it was moved away, or - for standard output.",
    ),
    common::LOGGING_FORMAT,
    common::VERBOSITY,
];

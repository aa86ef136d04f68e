//! The flags of `unskew gateway`: kube-apiserver's names and meanings where it has them.

use api::headers::{REMOTE_EXTRA_PREFIX, REMOTE_GROUP, REMOTE_UID, REMOTE_USER};

use crate::flags::{Flag, FlagKind, common, flag};

/// Every flag that starts the gateway.
pub(crate) static FLAGS: &[Flag] = &[
    common::CONFIG,
    flag("print-config", FlagKind::Bool, "false", "Print every setting and where it comes from, and run nothing."),
    // Where it listens.
    Flag { default: "0.0.0.0", ..common::BIND_ADDRESS },
    Flag { default: "7443", ..common::SECURE_PORT },
    flag("tls-cert-file", FlagKind::Text, "", "The serving certificate, PEM. Default: kubeadm's, or one of our own."),
    common::TLS_PRIVATE_KEY_FILE,
    flag("cert-dir", FlagKind::Text, "unskew-data/gateway", "Where a serving certificate of our own is kept."),
    // The servers behind it.
    flag(
        "upstream",
        FlagKind::List,
        "",
        "A kube-apiserver, https://host:port; local=https://host:port marks the one that answers whatever it can.",
    ),
    flag("upstream-ca-file", FlagKind::Text, "", "The authorities of the upstreams' serving certificates."),
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
        "endpointslices: also take the addresses of the service kubernetes. Default: none, on a kubeadm node these.",
    ),
    flag("upstream-cidr", FlagKind::List, "", "The networks that addresses found by --upstream-discovery may be in."),
    flag(
        "upstream-forget-after",
        FlagKind::Text,
        "1h0m0s",
        "How long an upstream may fail before what only it serves is 404 and not 503.",
    ),
    flag(
        "upstream-max-requests-inflight",
        FlagKind::Text,
        "0",
        "How many requests that are no watch may be under way to one upstream; 0 for no limit.",
    ),
    flag(
        "upstream-max-requests-queued",
        FlagKind::Text,
        "1000",
        "How many requests may wait for an upstream that has as many as it may, users by turns; 0: none waits.",
    ),
    flag("upstream-max-requests-queued-per-user", FlagKind::Text, "100", "How many of these may be of one user."),
    flag("upstream-queue-timeout", FlagKind::Text, "10s", "How long a request waits before it is answered 429."),
    flag(
        "upstream-max-bandwidth",
        FlagKind::Text,
        "0",
        "How many bytes of bodies a second may go to and from one upstream; what is more waits; 0 for no limit.",
    ),
    flag("state-dir", FlagKind::Text, "", "Where is kept what upstreams serve, so that a restart does not forget it."),
    // Who may come in.
    flag("client-ca-file", FlagKind::Text, "", "The authorities of client certificates."),
    flag("proxy-client-cert-file", FlagKind::Text, "", "The front-proxy certificate that the upstreams trust."),
    common::PROXY_CLIENT_KEY_FILE,
    flag("requestheader-client-ca-file", FlagKind::Text, "", "The authorities of proxies before the gateway."),
    flag("requestheader-allowed-names", FlagKind::List, "", "Which names such proxies may have; empty: any."),
    flag("requestheader-username-headers", FlagKind::List, REMOTE_USER, "Headers in which they name the user."),
    flag("requestheader-uid-headers", FlagKind::List, REMOTE_UID, "Headers in which they give its uid."),
    flag("requestheader-group-headers", FlagKind::List, REMOTE_GROUP, "Headers in which they give its groups."),
    flag(
        "requestheader-extra-headers-prefix",
        FlagKind::List,
        REMOTE_EXTRA_PREFIX,
        "Prefixes of headers in which they give extra values.",
    ),
    // What it answers.
    flag("merge-discovery", FlagKind::Text, "all", "Which discovery pages speak for all upstreams: aggregated or all."),
    flag(
        "peer-response-headers",
        FlagKind::Bool,
        "false",
        "Whether answers tell which upstream gave them and by which rule.",
    ),
    // How much, how long.
    common::REQUEST_TIMEOUT,
    common::SHUTDOWN_DELAY_DURATION,
    Flag { default: "0", ..common::MAX_REQUESTS_INFLIGHT },
    Flag { default: "0", ..common::MAX_MUTATING_REQUESTS_INFLIGHT },
    // How it shows.
    flag("kubeadm-dir", FlagKind::Text, "/etc/kubernetes", "Where kubeadm keeps its files."),
    flag(
        "access-log-path",
        FlagKind::Text,
        "",
        "Where every request is told of by a line of JSON: a file, made anew when it was moved away, or -.",
    ),
    common::LOGGING_FORMAT,
    common::VERBOSITY,
];

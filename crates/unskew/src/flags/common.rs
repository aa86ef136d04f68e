//! Flags that `serve` and `gateway` both have; `gateway` overrides some defaults.

use super::{Flag, FlagKind, flag};

pub(crate) const CONFIG: Flag =
    flag("config", FlagKind::Text, "", "A JSON file with the same keys as these flags; the command line wins.");
pub(crate) const TLS_PRIVATE_KEY_FILE: Flag =
    flag("tls-private-key-file", FlagKind::Text, "", "The private key of --tls-cert-file.");
pub(crate) const TLS_MIN_VERSION: Flag = flag(
    "tls-min-version",
    FlagKind::Text,
    "",
    "The lowest TLS version to offer: VersionTLS12 or VersionTLS13. VersionTLS10 and VersionTLS11 mean VersionTLS12.",
);
pub(crate) const TLS_CIPHER_SUITES: Flag = flag(
    "tls-cipher-suites",
    FlagKind::List,
    "",
    "The cipher suites of TLS 1.2 to offer, by Go's names. Default: all that are not weak.",
);
pub(crate) const PROXY_CLIENT_KEY_FILE: Flag =
    flag("proxy-client-key-file", FlagKind::Text, "", "The private key of --proxy-client-cert-file.");
pub(crate) const REQUEST_TIMEOUT: Flag =
    flag("request-timeout", FlagKind::Text, "1m0s", "The timeout of requests other than watches.");
pub(crate) const SHUTDOWN_DELAY_DURATION: Flag =
    flag("shutdown-delay-duration", FlagKind::Text, "0s", "How long to keep serving, not ready, after SIGTERM.");
pub(crate) const LOGGING_FORMAT: Flag = flag("logging-format", FlagKind::Text, "text", "text or json.");
pub(crate) const VERBOSITY: Flag = flag("v", FlagKind::Text, "0", "Log verbosity, 0 to 9.");
pub(crate) const BIND_ADDRESS: Flag = flag("bind-address", FlagKind::Text, "127.0.0.1", "The IP address to listen on.");
pub(crate) const SECURE_PORT: Flag =
    flag("secure-port", FlagKind::Text, "6443", "The port to listen on; 0 picks a free port and prints it.");
pub(crate) const MAX_REQUESTS_INFLIGHT: Flag =
    flag("max-requests-inflight", FlagKind::Text, "400", "The limit of reads in flight; 0 for no limit.");
pub(crate) const MAX_MUTATING_REQUESTS_INFLIGHT: Flag =
    flag("max-mutating-requests-inflight", FlagKind::Text, "200", "The limit of writes in flight; 0 for no limit.");

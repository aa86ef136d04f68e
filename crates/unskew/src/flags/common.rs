//! Flags that `serve` and `gateway` both have; `gateway` overrides some defaults.

use super::{Flag, FlagKind, flag};

pub(crate) const CONFIG: Flag =
    flag("config", FlagKind::Text, "", "A JSON file with the same keys as these flags; the command line wins.");
pub(crate) const TLS_PRIVATE_KEY_FILE: Flag =
    flag("tls-private-key-file", FlagKind::Text, "", "The private key of --tls-cert-file.");
pub(crate) const PROXY_CLIENT_KEY_FILE: Flag = flag("proxy-client-key-file", FlagKind::Text, "", "Its key.");
pub(crate) const REQUEST_TIMEOUT: Flag =
    flag("request-timeout", FlagKind::Text, "1m0s", "How long a request may take that is not a watch.");
pub(crate) const SHUTDOWN_DELAY_DURATION: Flag = flag(
    "shutdown-delay-duration",
    FlagKind::Text,
    "0s",
    "How long to go on serving, not ready, after a stop was asked for.",
);
pub(crate) const LOGGING_FORMAT: Flag = flag("logging-format", FlagKind::Text, "text", "text or json.");
pub(crate) const VERBOSITY: Flag = flag("v", FlagKind::Text, "0", "How much is logged: 0 to 9.");
pub(crate) const BIND_ADDRESS: Flag = flag("bind-address", FlagKind::Text, "127.0.0.1", "The IP address to listen on.");
pub(crate) const SECURE_PORT: Flag =
    flag("secure-port", FlagKind::Text, "6443", "The port to listen on; 0 picks a free one and prints it.");
pub(crate) const MAX_REQUESTS_INFLIGHT: Flag =
    flag("max-requests-inflight", FlagKind::Text, "400", "How many reads may be under way; 0 for no limit.");
pub(crate) const MAX_MUTATING_REQUESTS_INFLIGHT: Flag =
    flag("max-mutating-requests-inflight", FlagKind::Text, "200", "How many writes may be under way; 0 for no limit.");

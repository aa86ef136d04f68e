//! Decides whether the gateway vouches for certificate users to an upstream, by comparing the upstream's
//! `--requestheader-*` settings with the headers that the gateway sets and removes.
//!
//! An upstream trusts every identity header that arrives with the front-proxy certificate. If it reads a header that
//! the gateway neither sets nor removes, a client could forge its identity in that header. The gateway therefore sends
//! no request of a certificate user to an upstream before the settings were compared, nor while they differ. The rules
//! are pure; the inspector applies them.

use std::collections::BTreeMap;
use std::sync::Arc;

use access::authentication::FrontProxyHeaderNames;
use api::headers::lowercase::REMOTE_PREFIX;
use api::headers::{REMOTE_EXTRA_PREFIX, REMOTE_GROUP, REMOTE_UID, REMOTE_USER};
use forward::{Candidate, Forwarder, IdentityHeaders};
use membership::ports::Fetch;
use parking_lot::Mutex;
use serde::Deserialize;

use crate::Upstream;

/// ConfigMap in which kube-apiserver publishes its settings. Servers that share storage publish the union of theirs.
pub(crate) const CONFIG_MAP: &str = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";
/// A user that may read the settings in every cluster, by the default RoleBinding
/// `system::extension-apiserver-authentication-reader`. The front-proxy certificate allows the gateway to act as any
/// user.
pub const SETTINGS_READER: &str = "system:kube-scheduler";
/// Longer lists are rejected; kubeadm sets one name.
const NAMES_MAX: usize = 64;

/// Decides to which upstreams the gateway vouches for users.
pub struct VouchingDecider {
    /// Headers that the gateway removes from client requests: its own `--requestheader-*` flags.
    pub removed_headers: FrontProxyHeaderNames,
    /// Reads the settings of the local upstream, at every comparison; `None` without a manifest.
    pub manifest: Option<ManifestReader>,
    /// Applies the decisions.
    pub enforcer: Arc<dyn VouchingEnforcer>,
    /// Reads settings as [`SETTINGS_READER`], where the gateway's own user may not.
    pub reader: Arc<dyn Fetch>,
    /// All identity headers that any upstream was ever found to read.
    learned_headers: Mutex<BTreeMap<HeaderKind, Vec<String>>>,
}

/// Reads the settings of the local upstream from its manifest.
pub type ManifestReader = Arc<dyn Fn() -> Result<FrontProxyHeaderNames, String> + Send + Sync>;

/// Applies vouching decisions where requests are sent.
pub trait VouchingEnforcer: Send + Sync {
    /// Allows or forbids requests of vouched users to an upstream.
    fn set_vouching(&self, upstream: &Upstream, is_allowed: bool);

    /// Sets the headers to remove from every request of a vouched user.
    fn set_removed_headers(&self, headers: IdentityHeaders);
}

impl VouchingEnforcer for Forwarder {
    fn set_vouching(&self, upstream: &Upstream, is_allowed: bool) {
        let Upstream { server, address, .. } = upstream;
        let candidate = Candidate::new(server.name().clone(), address.clone());
        Self::set_vouching(self, &candidate, is_allowed);
    }

    fn set_removed_headers(&self, headers: IdentityHeaders) {
        self.set_peer_identity_headers(headers);
    }
}

/// Whether the gateway vouches for users to an upstream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum VouchingDecision {
    /// The settings were not read yet: do not vouch.
    #[default]
    NotCompared,
    /// The settings match the gateway's.
    Allowed,
    /// The settings differ, or cannot be read.
    Refused(VouchingRefusal),
}

/// Why the gateway does not vouch for users to an upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VouchingRefusal {
    /// Label value for metrics.
    pub reason: &'static str,
    /// What is wrong, and what to do.
    pub text: Arc<str>,
}

impl VouchingDecision {
    /// Returns the reason; `None` if the gateway vouches.
    pub(crate) fn refusal(&self) -> Option<VouchingRefusal> {
        match self {
            Self::Allowed => None,
            Self::Refused(refusal) => Some(refusal.clone()),
            Self::NotCompared => Some(VouchingRefusal::new("not_compared", "its settings were not read yet")),
        }
    }
}

impl VouchingRefusal {
    fn new(reason: &'static str, text: impl Into<Arc<str>>) -> Self {
        Self { reason, text: text.into() }
    }
}

/// Result of reading an upstream's ConfigMap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PublishedSettings {
    Headers(FrontProxyHeaderNames),
    /// 401 or 403.
    Forbidden,
    /// 404.
    Missing,
    /// The response is not a valid ConfigMap with settings.
    Unreadable(String),
    /// No response, or a temporary one such as 429 or 503.
    NoResponse,
}

/// Parses the ConfigMap `extension-apiserver-authentication`. A missing key is an empty list, as in kube-apiserver.
pub fn parse_header_names(config_map: &[u8]) -> Result<FrontProxyHeaderNames, String> {
    #[derive(Deserialize)]
    struct ConfigMap {
        #[serde(default)]
        data: BTreeMap<String, String>,
    }
    let ConfigMap { data } = serde_json::from_slice(config_map).map_err(|_| "it is no ConfigMap".to_owned())?;
    let list = |kind: HeaderKind| -> Result<Vec<String>, String> {
        let key = format!("requestheader-{}", kind.flag_suffix());
        let text = data.get(&key).map_or("[]", String::as_str);
        let names: Vec<String> = serde_json::from_str(text).map_err(|_| format!("{key} is no list of strings"))?;
        let is_usual = names.len() <= NAMES_MAX && names.iter().all(|name| !name.trim().is_empty());
        if is_usual { Ok(names) } else { Err(format!("{key} has blank entries or more than {NAMES_MAX}")) }
    };
    let [user, uid, group, extra_prefix] = HeaderKind::ALL.map(list);
    Ok(FrontProxyHeaderNames { user: user?, uid: uid?, group: group?, extra_prefix: extra_prefix? })
}

pub(crate) fn parse_settings(body: &[u8]) -> PublishedSettings {
    parse_header_names(body).map_or_else(PublishedSettings::Unreadable, PublishedSettings::Headers)
}

/// The four lists of header names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum HeaderKind {
    User,
    Uid,
    Group,
    ExtraPrefix,
}

impl HeaderKind {
    const ALL: [Self; 4] = [Self::User, Self::Uid, Self::Group, Self::ExtraPrefix];

    /// Suffix of the flag and of the ConfigMap key.
    fn flag_suffix(self) -> &'static str {
        match self {
            Self::User => "username-headers",
            Self::Uid => "uid-headers",
            Self::Group => "group-headers",
            Self::ExtraPrefix => "extra-headers-prefix",
        }
    }

    /// Header that the gateway sets.
    fn written_header(self) -> &'static str {
        match self {
            Self::User => REMOTE_USER,
            Self::Uid => REMOTE_UID,
            Self::Group => REMOTE_GROUP,
            Self::ExtraPrefix => REMOTE_EXTRA_PREFIX,
        }
    }

    /// True if the upstream must read the header to know the user. Older releases do not know the uid, and extra values
    /// are optional.
    fn is_required(self) -> bool {
        match self {
            Self::User | Self::Group => true,
            Self::Uid | Self::ExtraPrefix => false,
        }
    }

    fn names_in(self, names: &FrontProxyHeaderNames) -> &[String] {
        match self {
            Self::User => &names.user,
            Self::Uid => &names.uid,
            Self::Group => &names.group,
            Self::ExtraPrefix => &names.extra_prefix,
        }
    }
}

/// Compares the headers that an upstream reads with those that the gateway removes and sets; the error says what to do.
fn compare_headers(
    removed_headers: &FrontProxyHeaderNames,
    upstream_headers: &FrontProxyHeaderNames,
) -> Result<(), String> {
    for kind in HeaderKind::ALL {
        let (flag, written, read) = (kind.flag_suffix(), kind.written_header(), kind.names_in(upstream_headers));
        if kind.is_required() && !read.iter().any(|name| name.eq_ignore_ascii_case(written)) {
            return Err(format!(
                "its --requestheader-{flag} lacks {written}, which the gateway writes: add it to the upstream's flag"
            ));
        }
        for name in read.iter().filter(|name| !name.eq_ignore_ascii_case(written)) {
            if starts_with(name, REMOTE_PREFIX) {
                return Err(format!(
                    "its --requestheader-{flag} has {name}, in which the gateway may write something else: remove it from \
                     the upstream's flag"
                ));
            }
            if !is_removed(removed_headers, kind, name) {
                return Err(format!(
                    "its --requestheader-{flag} has {name}, which the gateway does not remove from clients' requests: give \
                     the gateway the same --requestheader-{flag}"
                ));
            }
        }
    }
    Ok(())
}

/// True if the gateway removes every client header that an upstream reads under this name.
fn is_removed(removed_headers: &FrontProxyHeaderNames, kind: HeaderKind, name: &str) -> bool {
    let by_prefix = removed_headers.extra_prefix.iter().any(|prefix| starts_with(name, prefix));
    let by_name = || [&removed_headers.user, &removed_headers.uid, &removed_headers.group].into_iter().flatten();
    by_prefix || kind != HeaderKind::ExtraPrefix && by_name().any(|known| known.eq_ignore_ascii_case(name))
}

fn starts_with(name: &str, prefix: &str) -> bool {
    name.split_at_checked(prefix.len()).is_some_and(|(start, _)| start.eq_ignore_ascii_case(prefix))
}

/// Decides from an upstream's published settings and its manifest. Without any of them `last` stays.
fn decide_vouching(
    removed: &FrontProxyHeaderNames,
    published: &PublishedSettings,
    manifest: Option<&Result<FrontProxyHeaderNames, String>>,
    last: VouchingDecision,
) -> VouchingDecision {
    let manifest = manifest.and_then(|manifest| manifest.as_ref().ok());
    let names = match published {
        PublishedSettings::Headers(names) => Some(names),
        PublishedSettings::Forbidden
        | PublishedSettings::Missing
        | PublishedSettings::Unreadable(_)
        | PublishedSettings::NoResponse => None,
    };
    for theirs in names.into_iter().chain(manifest) {
        if let Err(text) = compare_headers(removed, theirs) {
            return VouchingDecision::Refused(VouchingRefusal::new("headers_differ", text));
        }
    }
    let map = "the ConfigMap extension-apiserver-authentication in kube-system";
    let refused = |reason: &'static str, text: String| VouchingDecision::Refused(VouchingRefusal::new(reason, text));
    match published {
        PublishedSettings::Headers(_) => VouchingDecision::Allowed,
        _ if manifest.is_some() => VouchingDecision::Allowed,
        PublishedSettings::Forbidden => refused(
            "forbidden",
            format!(
                "neither unskew:gateway nor {SETTINGS_READER} may read {map}: kubectl apply -f docs/deploy/gateway-rbac.yaml"
            ),
        ),
        PublishedSettings::Missing => {
            refused("not_found", format!("it has not published {map}, which kube-apiserver does at start"))
        }
        PublishedSettings::Unreadable(reason) => refused("unreadable", format!("{map} cannot be read: {reason}")),
        PublishedSettings::NoResponse => last,
    }
}

impl VouchingDecider {
    /// Creates a decider with the gateway's flags and, for the local upstream, its manifest.
    pub fn new(
        removed_headers: FrontProxyHeaderNames,
        manifest: Option<ManifestReader>,
        enforcer: Arc<dyn VouchingEnforcer>,
        reader: Arc<dyn Fetch>,
    ) -> Self {
        Self { removed_headers, manifest, enforcer, reader, learned_headers: Mutex::default() }
    }

    /// Decides whether the gateway vouches for users to an upstream; `last` stays if nothing can be read. The identity
    /// headers that the upstream reads are removed from all requests from now on.
    pub(crate) async fn decide_for(
        &self,
        upstream: &Upstream,
        published: &PublishedSettings,
        last: VouchingDecision,
    ) -> VouchingDecision {
        let manifest = match self.manifest.clone().filter(|_| upstream.is_local) {
            None => None,
            Some(read) => tokio::task::spawn_blocking(move || read()).await.ok(),
        };
        if let Some(Err(error)) = &manifest {
            tracing::warn!(upstream = %upstream.address, %error, "manifest of the local upstream unreadable");
        }
        if let PublishedSettings::Headers(names) = published {
            self.learn_headers(names);
        }
        if let Some(Ok(names)) = &manifest {
            self.learn_headers(names);
        }
        decide_vouching(&self.removed_headers, published, manifest.as_ref(), last)
    }

    /// Has the identity headers that an upstream reads removed from all requests. Names are never forgotten, because a
    /// running upstream may still use the flags it was started with.
    fn learn_headers(&self, names: &FrontProxyHeaderNames) {
        let mut learned_headers = self.learned_headers.lock();
        let mut is_new = false;
        for kind in HeaderKind::ALL {
            let known = learned_headers.entry(kind).or_default();
            for name in kind.names_in(names).iter().filter(|name| !starts_with(name, REMOTE_PREFIX)) {
                if !known.contains(name) && known.len() < NAMES_MAX {
                    known.push(name.clone());
                    is_new = true;
                }
            }
        }
        if is_new {
            let of = |kinds: &[HeaderKind]| -> Vec<&str> {
                kinds
                    .iter()
                    .flat_map(|kind| learned_headers.get(kind).into_iter().flatten())
                    .map(String::as_str)
                    .collect()
            };
            let (names, prefixes) =
                (of(&[HeaderKind::User, HeaderKind::Uid, HeaderKind::Group]), of(&[HeaderKind::ExtraPrefix]));
            self.enforcer.set_removed_headers(IdentityHeaders::new(names, prefixes));
        }
    }
}

#[cfg(test)]
mod tests;

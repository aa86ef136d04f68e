//! Whether users may be named to an upstream: its `--requestheader-*` settings against the headers that the gateway writes
//! and removes.
//!
//! An upstream believes whatever arrives over the front-proxy certificate. If it reads identity from a header that the gateway
//! neither writes nor removes, a client could name itself in that header. So no request of a certificate user goes to an
//! upstream before its settings were compared, nor while they differ. The rules are pure; the inspector acts on them.

use std::collections::BTreeMap;
use std::sync::Arc;

use access::authentication::FrontProxyHeaderNames;
use api::headers::lowercase::REMOTE_PREFIX;
use api::headers::{REMOTE_EXTRA_PREFIX, REMOTE_GROUP, REMOTE_UID, REMOTE_USER};
use parking_lot::Mutex;
use peering::forward::{Candidate, Forwarder, IdentityHeaders};
use peering::ports::Fetch;
use serde::Deserialize;

use crate::Upstream;

/// Where kube-apiserver publishes its settings. Servers that share storage publish the union of theirs.
pub(crate) const CONFIG_MAP: &str = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";
/// A user that RBAC lets read the settings in every cluster, by the default RoleBinding
/// `system::extension-apiserver-authentication-reader`. The front-proxy certificate allows the gateway to name any user.
pub const SETTINGS_READER: &str = "system:kube-scheduler";
/// More names than this in one list are not believed to be settings; kubeadm sets one.
const NAMES_MAX: usize = 64;

/// What the gateway needs to decide to which upstreams it vouches for users.
pub struct VouchingDecider {
    /// Headers that are removed from clients' requests: the gateway's own `--requestheader-*` flags.
    pub removed_headers: FrontProxyHeaderNames,
    /// The settings of the local upstream, read again at every comparison; `None` if its manifest is not known.
    pub manifest: Option<ManifestReader>,
    /// What enforces the decision.
    pub enforcer: Arc<dyn VouchingEnforcer>,
    /// Asks upstreams as [`SETTINGS_READER`], where the gateway's own user may not read the settings.
    pub reader: Arc<dyn Fetch>,
    /// What upstreams were ever found to read as identity.
    learned_headers: Mutex<BTreeMap<HeaderKind, Vec<String>>>,
}

/// Reads the settings of the local upstream from its manifest.
pub type ManifestReader = Arc<dyn Fn() -> Result<FrontProxyHeaderNames, String> + Send + Sync>;

/// Enforces decisions about vouching where requests are sent.
pub trait VouchingEnforcer: Send + Sync {
    /// Allows or forbids requests in a user's name to an upstream.
    fn set_vouching(&self, upstream: &Upstream, is_allowed: bool);

    /// Has headers removed from every request in a user's name.
    fn set_removed_headers(&self, headers: IdentityHeaders);
}

impl VouchingEnforcer for Forwarder {
    fn set_vouching(&self, upstream: &Upstream, is_allowed: bool) {
        let Upstream { server, address, .. } = upstream.clone();
        Self::set_vouching(self, &Candidate { server, address }, is_allowed);
    }

    fn set_removed_headers(&self, headers: IdentityHeaders) {
        self.set_peer_identity_headers(headers);
    }
}

/// Whether users are named to an upstream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum VouchingDecision {
    /// Its settings were not read yet: no.
    #[default]
    NotCompared,
    /// Its settings are the gateway's.
    Allowed,
    /// They differ, or cannot be read.
    Refused(VouchingRefusal),
}

/// Why users are not named to an upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VouchingRefusal {
    /// One word for metrics.
    pub reason: &'static str,
    /// What is wrong and what to do about it.
    pub text: Arc<str>,
}

impl VouchingDecision {
    /// Why not; `None` if users are named to it.
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

/// What the ConfigMap of an upstream says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PublishedSettings {
    Headers(FrontProxyHeaderNames),
    /// 401 or 403.
    Forbidden,
    /// 404.
    Missing,
    /// An answer that cannot be understood.
    Unreadable(String),
    /// No answer, or one that says nothing, such as 429 and 503.
    NoResponse,
}

/// Reads the ConfigMap `extension-apiserver-authentication`. A key that is absent is an empty list, as for kube-apiserver.
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

    /// The end of the flag's name, and of the ConfigMap's key.
    fn flag_suffix(self) -> &'static str {
        match self {
            Self::User => "username-headers",
            Self::Uid => "uid-headers",
            Self::Group => "group-headers",
            Self::ExtraPrefix => "extra-headers-prefix",
        }
    }

    /// What the gateway writes.
    fn written_header(self) -> &'static str {
        match self {
            Self::User => REMOTE_USER,
            Self::Uid => REMOTE_UID,
            Self::Group => REMOTE_GROUP,
            Self::ExtraPrefix => REMOTE_EXTRA_PREFIX,
        }
    }

    /// Whether users would not be who they are without it. Old servers know no uid, and extra values are additions.
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

/// Compares what an upstream reads with what the gateway removes and writes; the error says what to do.
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

/// Whether no client's header that an upstream reads under this name gets through.
fn is_removed(removed_headers: &FrontProxyHeaderNames, kind: HeaderKind, name: &str) -> bool {
    let by_prefix = removed_headers.extra_prefix.iter().any(|prefix| starts_with(name, prefix));
    let by_name = || [&removed_headers.user, &removed_headers.uid, &removed_headers.group].into_iter().flatten();
    by_prefix || kind != HeaderKind::ExtraPrefix && by_name().any(|known| known.eq_ignore_ascii_case(name))
}

fn starts_with(name: &str, prefix: &str) -> bool {
    name.split_at_checked(prefix.len()).is_some_and(|(start, _)| start.eq_ignore_ascii_case(prefix))
}

/// Decides from everything that is known of an upstream's settings. `last` stands while there is nothing to decide by.
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
    /// Decides by the gateway's flags and, for the local upstream, its manifest.
    pub fn new(
        removed_headers: FrontProxyHeaderNames,
        manifest: Option<ManifestReader>,
        enforcer: Arc<dyn VouchingEnforcer>,
        reader: Arc<dyn Fetch>,
    ) -> Self {
        Self { removed_headers, manifest, enforcer, reader, learned_headers: Mutex::default() }
    }

    /// Decides about an upstream. Whatever it reads as identity is removed from requests from now on, to any upstream.
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

    /// Names are only ever added: an upstream that runs may still have what it was started with.
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

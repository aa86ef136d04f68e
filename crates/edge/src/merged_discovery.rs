//! The merged discovery documents of all servers, and which requests get them.

use api::Status;
use api::media::{
    AggregatedVersion, DiscoveryFormat, DiscoveryOffer, Encoding, Encodings, Profile, is_pretty_print,
    negotiate_discovery,
};
use discovery::{EncodedDocument, respond};
use http::HeaderMap;
use http::header::{ACCEPT, USER_AGENT};
use membership::metrics::Metrics;
use membership::route::IncompleteViewReason;
use membership::view::FirstSync;
use membership::{UnavailableReason, View};

use crate::{Body, Response, routing_status};

/// `--merge-discovery`: which documents are merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MergeDiscovery {
    /// `/apis` in its aggregated form, as in the KEP.
    Aggregated,
    /// `/apis` in every form, and `/api`.
    All,
}

/// Which documents are merged, and the versions in which they are served.
#[derive(Clone, Copy, Debug)]
pub struct MergedPages {
    /// Which documents are merged.
    pub merge_discovery: MergeDiscovery,
    /// The oldest served version of the aggregated document.
    pub oldest_version: AggregatedVersion,
}

impl MergedPages {
    /// True if the path may be a merged page.
    pub(crate) fn has_page(self, path: &str) -> bool {
        DiscoveryPage::from_path(path, self.merge_discovery).is_some()
    }

    /// True if the request asks for the document of this server alone, in the form that kube-apiserver counts: for any client, and
    /// also for `/api`, which kube-apiserver never merges.
    pub(crate) fn is_nopeer_request(self, path: &str, headers: &HeaderMap) -> bool {
        let accept = headers.get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
        // Most requests name no profile: skip parsing.
        if !matches!(path, "/api" | "/apis") || !accept.contains("profile") {
            return false;
        }
        let offer =
            DiscoveryOffer { aggregated: Encodings::ALL, legacy: Encodings::ALL, oldest_version: self.oldest_version };
        matches!(
            negotiate_discovery(accept, offer),
            Ok(DiscoveryFormat::Aggregated { version: AggregatedVersion::V2, profile: Profile::Local, .. })
        )
    }

    /// Serves a merged document. `None`: the path is no merged page, or the client wants the document of this server.
    pub(crate) fn serve(
        self,
        path: &str,
        query: &str,
        headers: &HeaderMap,
        view: &View,
        metrics: &Metrics,
    ) -> Option<Result<Response, Status>> {
        let page = DiscoveryPage::from_path(path, self.merge_discovery)?;
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let aggregated = if page.has_aggregated() { Encodings::ALL } else { Encodings::NONE };
        let offer = DiscoveryOffer { aggregated, legacy: Encodings::ALL, oldest_version: self.oldest_version };
        // The local page rejects requests that accept no form.
        let form = negotiate_discovery(text(ACCEPT), offer).ok()?;
        let (document, pretty) = match form {
            DiscoveryFormat::Aggregated { profile: Profile::Local, .. } => return None,
            DiscoveryFormat::Legacy { .. } if self.merge_discovery == MergeDiscovery::Aggregated => return None,
            // An incomplete document is worse than none: controllers would treat missing resources as deleted.
            _ if view.first_sync() == FirstSync::Pending => {
                return Some(Err(routing_status::unavailable_status(UnavailableReason::ViewIncomplete(
                    IncompleteViewReason::NotSynced,
                ))));
            }
            DiscoveryFormat::Aggregated { version, encoding, pretty, profile: Profile::Merged } => {
                (page.aggregated_document(view, version, encoding)?, pretty)
            }
            DiscoveryFormat::Legacy { pretty, .. } => (page.legacy_document(view)?, pretty),
        };
        metrics.merged_hits.inc();
        let response = if pretty || is_pretty_print(query, text(USER_AGENT)) {
            respond(&document.to_indented(), headers)
        } else {
            respond(document, headers)
        };
        Some(Ok(response.map(Body::from)))
    }
}

/// A discovery page that may be merged.
#[derive(Clone, Copy)]
enum DiscoveryPage<'a> {
    /// `/apis`.
    Groups,
    /// `/api`.
    Core,
    /// A group or version below them, or `/apis/`: legacy form only.
    Below(&'a str),
}

impl<'a> DiscoveryPage<'a> {
    fn from_path(path: &'a str, merge_discovery: MergeDiscovery) -> Option<Self> {
        match (path, merge_discovery) {
            ("/apis", _) => Some(Self::Groups),
            (_, MergeDiscovery::Aggregated) => None,
            ("/api", MergeDiscovery::All) => Some(Self::Core),
            ("/api/", MergeDiscovery::All) => None,
            (_, MergeDiscovery::All) => {
                let key = path.trim_matches('/');
                // Deeper paths name resources.
                let is_discovery = match key.split_once('/').unwrap_or((key, "")) {
                    ("api", below) => !below.contains('/'),
                    ("apis", below) => below.matches('/').count() <= 1,
                    _ => false,
                };
                is_discovery.then_some(Self::Below(key))
            }
        }
    }

    fn has_aggregated(self) -> bool {
        match self {
            Self::Groups | Self::Core => true,
            Self::Below(_) => false,
        }
    }

    fn aggregated_document(
        self,
        view: &View,
        version: AggregatedVersion,
        encoding: Encoding,
    ) -> Option<&EncodedDocument> {
        let merged = view.merged_documents();
        match (self, encoding, version) {
            (Self::Groups, Encoding::Protobuf, AggregatedVersion::V2) => Some(merged.protobuf()),
            (Self::Groups, _, version) => Some(merged.json(version)),
            (Self::Core, _, AggregatedVersion::V2) => Some(merged.core_json()),
            (Self::Core, _, AggregatedVersion::V2Beta1) | (Self::Below(_), _, _) => None,
        }
    }

    fn legacy_document(self, view: &View) -> Option<&EncodedDocument> {
        match self {
            Self::Groups => view.merged_documents().legacy("apis"),
            // The legacy page contains this server's address, and all servers have the same versions of core.
            Self::Core => None,
            Self::Below(key) if is_complete_locally(key, view) => None,
            Self::Below(key) => view.merged_documents().legacy(key),
        }
    }
}

/// True if this server lists every resource of the version: its own page is then preferred, because it has storage version
/// hashes.
fn is_complete_locally(key: &str, view: &View) -> bool {
    let mut segments = key.split('/');
    let (groups, ours, group) = match segments.next() {
        Some("api") => (view.merged_documents().core(), view.local_document().core(), ""),
        _ => (view.merged_documents().apis(), view.local_document().apis(), segments.next().unwrap_or_default()),
    };
    let Some(version) = segments.next() else { return false };
    let ours = ours.version(group, version).or_else(|| view.shared_groups().version(group, version));
    match (groups.version(group, version), ours) {
        (Some(merged), Some(ours)) => merged.resources == ours.resources,
        (None, _) | (_, None) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const V2: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    const V2BETA1: &str = "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList";

    #[test]
    fn nopeer_request_is_recognised_by_profile() {
        let pages =
            MergedPages { merge_discovery: MergeDiscovery::Aggregated, oldest_version: AggregatedVersion::V2Beta1 };
        let check = |path: &str, accept: &str, expected: bool| {
            let headers = HeaderMap::from_iter([(ACCEPT, accept.parse().unwrap())]);
            assert_eq!(pages.is_nopeer_request(path, &headers), expected, "{path} {accept}");
        };
        for profile in ["nopeer", "local"] {
            for path in ["/api", "/apis"] {
                check(path, &format!("{V2};profile={profile}"), true);
                check(path, &format!("{V2};profile={profile},application/json"), true);
                check(path, &format!("{V2BETA1};profile={profile}"), false);
            }
            check("/apis/batch", &format!("{V2};profile={profile}"), false);
            check("/apis", &format!("application/json;profile={profile}"), false);
        }
        check("/apis", V2, false);
        check("/apis", &format!("{V2};profile=other"), false);
        assert!(!pages.is_nopeer_request("/apis", &HeaderMap::new()));
    }
}

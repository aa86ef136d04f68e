//! The discovery documents of this server: `/api`, `/apis` and below, aggregated and legacy, JSON and protobuf.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, OnceLock};

use ::discovery::aggregated;
use ::discovery::build::{LocalGroupVersion, build};
use ::discovery::legacy::{ApiGroup, ApiGroupList, ApiVersions, ServerAddress};
use ::discovery::{CreationTimestamp, EncodedDocument, GroupDiscoveryList, respond};
use api::Status;
use api::media::{
    AggregatedVersion, DiscoveryFormat, DiscoveryOffer, Encoding, Encodings, is_pretty_print, negotiate_discovery,
};
use edge::{Body, Response};
use http::HeaderMap;
use http::header::{ACCEPT, USER_AGENT};
use kinds::{Release, ServedResources};
use parking_lot::RwLock;

use crate::definitions::CustomResources;

/// The last release that serves `apidiscovery.k8s.io/v2beta1`.
const LAST_WITH_V2BETA1: Release = Release::R32;

/// The oldest version of aggregated discovery that a release serves.
pub fn oldest_aggregated_version(release: Release) -> AggregatedVersion {
    if release <= LAST_WITH_V2BETA1 { AggregatedVersion::V2Beta1 } else { AggregatedVersion::V2 }
}

/// The paths on the index page that are no discovery documents.
const PATHS_OUTSIDE_DISCOVERY: [&str; 10] = [
    "/.well-known/openid-configuration",
    "/apis/",
    "/healthz",
    "/livez",
    "/metrics",
    "/openapi/v2",
    "/openapi/v3",
    "/openid/v1/jwks",
    "/readyz",
    "/version",
];

/// All discovery documents of this server, encoded at startup.
#[derive(Debug)]
pub(crate) struct DiscoveryPages {
    aggregated: HashMap<&'static str, AggregatedDocuments>,
    /// Keyed by the path without leading and trailing slashes.
    legacy: HashMap<String, EncodedDocument>,
    oldest_version: AggregatedVersion,
    /// What `/apis` lists of this server alone.
    built_in_groups: GroupDiscoveryList,
    /// The same with priorities.
    built_in_parts: Vec<LocalGroupVersion>,
    creation_timestamp: CreationTimestamp,
    /// The documents of the last requested state.
    live: RwLock<Arc<LivePages>>,
}

/// The documents that custom resources and extension API servers change, encoded at the first request for each. Derived from one
/// state of both.
#[derive(Debug, Default)]
struct LivePages {
    custom: Arc<CustomResources>,
    extensions: Arc<Vec<LocalGroupVersion>>,
    /// What `/apis` lists.
    groups: OnceLock<GroupDiscoveryList>,
    aggregated: OnceLock<AggregatedDocuments>,
    /// By path without leading and trailing slashes. At most one per group and version.
    legacy: RwLock<HashMap<Box<str>, EncodedDocument>>,
}

#[derive(Clone, Debug)]
struct AggregatedDocuments {
    v2: EncodedDocument,
    v2beta1: EncodedDocument,
    protobuf: EncodedDocument,
}

impl DiscoveryPages {
    pub(crate) fn new(served_resources: &ServedResources, address: &str) -> Self {
        let (core, apis) = (served_resources.discovery_of_core(), served_resources.discovery_of_apis());
        let aggregated = HashMap::from([("api", aggregate(&core)), ("apis", aggregate(&apis))]);
        let oldest = oldest_aggregated_version(served_resources.release());
        Self {
            aggregated,
            legacy: legacy_documents(served_resources, address),
            oldest_version: oldest,
            built_in_groups: apis,
            built_in_parts: served_resources.group_versions().into_iter().filter(|it| !it.group.is_empty()).collect(),
            creation_timestamp: served_resources.creation_timestamp(),
            live: RwLock::default(),
        }
    }

    /// True if built-in resources are served in a version.
    pub(crate) fn has_built_in_version(&self, group: &str, version: &str) -> bool {
        let path = if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") };
        self.legacy.contains_key(&path)
    }

    /// The documents of this state.
    fn live(&self, custom: &Arc<CustomResources>, extensions: &Arc<Vec<LocalGroupVersion>>) -> Arc<LivePages> {
        let known = self.live.read().clone();
        if Arc::ptr_eq(&known.custom, custom) && Arc::ptr_eq(&known.extensions, extensions) {
            return known;
        }
        let (custom, extensions) = (custom.clone(), extensions.clone());
        let live = Arc::new(LivePages { custom, extensions, ..LivePages::default() });
        *self.live.write() = live.clone();
        live
    }

    /// The index page `/`: the paths of all documents except those that `/openapi/v3` lists.
    pub(crate) fn index_page(
        &self,
        custom: &Arc<CustomResources>,
        extensions: &Arc<Vec<LocalGroupVersion>>,
    ) -> Vec<u8> {
        let live = self.live(custom, extensions);
        let listed = self.groups(&live).items().iter().flat_map(|group| {
            let versions = group.versions.iter().map(|version| format!("/apis/{}/{}", group.name, version.name));
            versions.chain([format!("/apis/{}", group.name)]).collect::<Vec<_>>()
        });
        let documents = self.legacy.keys().map(|path| format!("/{path}")).chain(listed);
        let others = PATHS_OUTSIDE_DISCOVERY.into_iter().map(str::to_owned);
        let paths: BTreeSet<String> = documents.chain(others).collect();
        api::json::indent(&api::json::to_go_json(&serde_json::json!({"paths": paths})))
    }

    /// Serves a discovery document; `None` if the path is not one.
    pub(crate) fn serve(
        &self,
        custom: &Arc<CustomResources>,
        extensions: &Arc<Vec<LocalGroupVersion>>,
        path: &str,
        query: &str,
        headers: &HeaderMap,
    ) -> Option<Result<Response, Status>> {
        let key = path.trim_matches('/');
        let live = self.live(custom, extensions);
        let live_legacy = self.live_page(&live, key);
        let is_extended = live_legacy.is_some();
        let legacy = live_legacy.or_else(|| self.legacy.get(key).cloned())?;
        // `/api/` and `/apis/` with a trailing slash have only the legacy form, like everything below them.
        let aggregated = match key {
            _ if path.ends_with('/') => None,
            "apis" if is_extended => Some(live.aggregated.get_or_init(|| aggregate(self.groups(&live)))),
            key => self.aggregated.get(key),
        };
        Some(self.choose_document(&legacy, aggregated, headers).map(|(document, pretty)| {
            let agent = header_text(headers, USER_AGENT);
            let response = if pretty || is_pretty_print(query, agent) {
                respond(&document.to_indented(), headers)
            } else {
                respond(document, headers)
            };
            response.map(Body::from)
        }))
    }

    /// What `/apis` lists in a state.
    fn groups<'l>(&self, live: &'l LivePages) -> &'l GroupDiscoveryList {
        live.groups.get_or_init(|| {
            if live.extensions.is_empty() {
                return self.built_in_groups.with_later_groups(&live.custom.discovery(self.creation_timestamp));
            }
            // The priorities of extension API servers decide their places among all others.
            let custom = live.custom.custom_discovery().group_versions;
            let parts = self.built_in_parts.iter().chain(&custom).chain(live.extensions.iter()).cloned();
            build(&parts.collect::<Vec<_>>(), self.creation_timestamp)
        })
    }

    /// The legacy document of a path that custom resources or extension API servers change; `None` if they do not change it.
    fn live_page(&self, live: &LivePages, key: &str) -> Option<EncodedDocument> {
        let custom_groups = &live.custom.shared().groups;
        if custom_groups.items().is_empty() && live.extensions.is_empty() {
            return None;
        }
        if let Some(known) = live.legacy.read().get(key) {
            return Some(known.clone());
        }
        let mut parts = key.split('/');
        let page = match (parts.next()?, parts.next(), parts.next(), parts.next()) {
            ("apis", None, ..) => ApiGroupList::from_groups(self.groups(live)).to_document(),
            ("apis", Some(group), None, _) => {
                let is_extension = live.extensions.iter().any(|part| &*part.group == group);
                if !is_extension && custom_groups.group(group).is_none() {
                    return None;
                }
                ApiGroup::from_group(self.groups(live).group(group)?)?.to_document()
            }
            // A version that is built in hides custom resources in it.
            ("apis", Some(group), Some(version), None) if !self.legacy.contains_key(key) => {
                live.custom.custom_discovery().resource_list(group, version)?.to_document()
            }
            _ => return None,
        };
        live.legacy.write().insert(key.into(), page.clone());
        Some(page)
    }

    fn choose_document<'a>(
        &self,
        legacy: &'a EncodedDocument,
        aggregated: Option<&'a AggregatedDocuments>,
        headers: &HeaderMap,
    ) -> Result<(&'a EncodedDocument, bool), Status> {
        let aggregated_encodings = if aggregated.is_some() { Encodings::ALL } else { Encodings::NONE };
        let offer = DiscoveryOffer {
            aggregated: aggregated_encodings,
            legacy: Encodings::ALL,
            oldest_version: self.oldest_version,
        };
        let format = negotiate_discovery(header_text(headers, ACCEPT), offer)?;
        Ok(match (format, aggregated) {
            (DiscoveryFormat::Aggregated { version: AggregatedVersion::V2Beta1, pretty, .. }, Some(documents)) => {
                (&documents.v2beta1, pretty)
            }
            (DiscoveryFormat::Aggregated { encoding: Encoding::Protobuf, .. }, Some(documents)) => {
                (&documents.protobuf, false)
            }
            (DiscoveryFormat::Aggregated { pretty, .. }, Some(documents)) => (&documents.v2, pretty),
            (DiscoveryFormat::Aggregated { pretty, .. } | DiscoveryFormat::Legacy { pretty, .. }, _) => {
                (legacy, pretty)
            }
        })
    }
}

fn aggregate(groups: &GroupDiscoveryList) -> AggregatedDocuments {
    AggregatedDocuments {
        v2: aggregated::encode_json(groups, AggregatedVersion::V2),
        v2beta1: aggregated::encode_json(groups, AggregatedVersion::V2Beta1),
        protobuf: aggregated::encode_protobuf(groups, AggregatedVersion::V2),
    }
}

fn legacy_documents(served_resources: &ServedResources, address: &str) -> HashMap<String, EncodedDocument> {
    let mut documents = HashMap::new();
    let apis = served_resources.discovery_of_apis();
    let mut api = ApiVersions::from_groups(&served_resources.discovery_of_core());
    api.server_addresses = vec![ServerAddress { client_cidr: "0.0.0.0/0".into(), server_address: address.into() }];
    documents.insert("api".to_owned(), api.to_document());
    documents.insert("apis".to_owned(), ApiGroupList::from_groups(&apis).to_document());
    for group in apis.items() {
        if let Some(legacy) = ApiGroup::from_group(group) {
            documents.insert(format!("apis/{}", group.name), legacy.to_document());
        }
    }
    for served in served_resources.resources() {
        let name = served.group_version_resource();
        let path = match name.group {
            "" => format!("api/{}", name.version),
            group => format!("apis/{group}/{}", name.version),
        };
        documents.entry(path).or_insert_with(|| {
            let list = served_resources.resource_list(name.group, name.version);
            list.expect("a version with a served resource has a list").to_document()
        });
    }
    documents
}

fn header_text(headers: &HeaderMap, name: http::HeaderName) -> &str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

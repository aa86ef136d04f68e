//! The discovery documents of this server: `/api`, `/apis` and below, aggregated and legacy, JSON and protobuf.

use std::collections::{BTreeSet, HashMap};
use std::sync::OnceLock;

use ::discovery::aggregated;
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
    /// What `/apis` lists without custom resources.
    built_in_groups: GroupDiscoveryList,
    creation_timestamp: CreationTimestamp,
}

/// The documents that custom resources change, encoded at the first request for each. Part of one state of the custom
/// resources.
#[derive(Debug, Default)]
pub(crate) struct CustomPages {
    /// What `/apis` lists, with custom resources.
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
            creation_timestamp: served_resources.creation_timestamp(),
        }
    }

    /// True if built-in resources are served in a version.
    pub(crate) fn has_built_in_version(&self, group: &str, version: &str) -> bool {
        let path = if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") };
        self.legacy.contains_key(&path)
    }

    /// The index page `/`: the paths of all documents except those that `/openapi/v3` lists.
    pub(crate) fn index_page(&self, custom: &CustomResources) -> Vec<u8> {
        let groups = custom.shared().groups.clone();
        let custom = groups.items().iter().flat_map(|group| {
            let versions = group.versions.iter().map(|version| format!("/apis/{}/{}", group.name, version.name));
            versions.chain([format!("/apis/{}", group.name)]).collect::<Vec<_>>()
        });
        let documents = self.legacy.keys().map(|path| format!("/{path}")).chain(custom);
        let others = PATHS_OUTSIDE_DISCOVERY.into_iter().map(str::to_owned);
        let paths: BTreeSet<String> = documents.chain(others).collect();
        api::json::indent(&api::json::to_go_json(&serde_json::json!({"paths": paths})))
    }

    /// Serves a discovery document; `None` if the path is not one.
    pub(crate) fn serve(
        &self,
        custom: &CustomResources,
        path: &str,
        query: &str,
        headers: &HeaderMap,
    ) -> Option<Result<Response, Status>> {
        let key = path.trim_matches('/');
        let custom_legacy = self.custom_page(custom, key);
        let is_extended = custom_legacy.is_some();
        let legacy = custom_legacy.or_else(|| self.legacy.get(key).cloned())?;
        // `/api/` and `/apis/` with a trailing slash have only the legacy form, like everything below them.
        let aggregated = match key {
            _ if path.ends_with('/') => None,
            "apis" if is_extended => {
                Some(custom.pages.aggregated.get_or_init(|| aggregate(self.groups_with_custom(custom))))
            }
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

    /// What `/apis` lists, with custom resources.
    fn groups_with_custom<'c>(&self, custom: &'c CustomResources) -> &'c GroupDiscoveryList {
        let extend = || self.built_in_groups.with_later_groups(&custom.discovery(self.creation_timestamp));
        custom.pages.groups.get_or_init(extend)
    }

    /// The legacy document of a path that custom resources change; `None` if they do not change it.
    fn custom_page(&self, custom: &CustomResources, key: &str) -> Option<EncodedDocument> {
        if custom.shared().groups.items().is_empty() {
            return None;
        }
        if let Some(known) = custom.pages.legacy.read().get(key) {
            return Some(known.clone());
        }
        let mut parts = key.split('/');
        let page = match (parts.next()?, parts.next(), parts.next(), parts.next()) {
            ("apis", None, ..) => ApiGroupList::from_groups(self.groups_with_custom(custom)).to_document(),
            ("apis", Some(group), None, _) => {
                custom.shared().groups.group(group)?;
                ApiGroup::from_group(self.groups_with_custom(custom).group(group)?)?.to_document()
            }
            // A version that is built in hides custom resources in it.
            ("apis", Some(group), Some(version), None) if !self.legacy.contains_key(key) => {
                custom.custom_discovery().resource_list(group, version)?.to_document()
            }
            _ => return None,
        };
        custom.pages.legacy.write().insert(key.into(), page.clone());
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

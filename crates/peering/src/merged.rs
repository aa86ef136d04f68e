//! Merged discovery: one document of what all servers serve between them.
//!
//! A pure function of its inputs, made when one of them was replaced, and kept as finished bytes. What the replaced input does
//! not change is taken over from the last one.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use api::media::AggregatedVersion;
use discovery::aggregated::MergedJson;
use discovery::legacy::{ApiGroup, ApiGroupList, ApiResourceList};
use discovery::{
    Conflict, EncodedDocument, GroupDiscovery, GroupDiscoveryList, MergeInput, ServerLiveness, VersionDiscovery,
    aggregated, merge,
};

use crate::documents::ServerDocument;
use crate::exclusion::Exclusion;
use crate::identity::ServerId;

/// One server's part.
#[derive(Clone, Debug)]
pub struct MergedInput {
    /// Whose it is; named in conflicts only.
    pub server: ServerId,
    /// Whether it can be reached.
    pub liveness: ServerLiveness,
    /// What it serves.
    pub document: Arc<ServerDocument>,
    /// What of that does not count.
    pub exclusion: Arc<Exclusion>,
}

/// The merged documents. Finished bytes are made when first asked for, from those of the last documents that anybody asked for.
#[derive(Debug, Default)]
pub struct MergedDocuments {
    inputs: Vec<MergedInput>,
    /// What each of them contributes to `/apis`.
    merge_inputs: Vec<MergeInput>,
    apis: discovery::MergedDiscovery,
    v2: OnceLock<Arc<MergedJson>>,
    previous_v2: Option<Arc<MergedJson>>,
    v2beta1: OnceLock<MergedJson>,
    protobuf: OnceLock<EncodedDocument>,
    core: OnceLock<Arc<GroupDiscoveryList>>,
    core_v2: OnceLock<EncodedDocument>,
    /// By path without slashes around it.
    legacy: OnceLock<HashMap<String, EncodedDocument>>,
}

impl MergedDocuments {
    /// The documents of these servers. If they are the inputs of these ones, these are given again; otherwise what the same
    /// inputs lead to is taken over.
    pub fn update(self: &Arc<Self>, inputs: Vec<MergedInput>) -> Arc<Self> {
        if are_same_inputs(&inputs, &self.inputs) {
            return self.clone();
        }
        let excluded =
            self.inputs.iter().zip(&self.merge_inputs).map(|(input, part)| (exclusion_key(input), part.groups.clone()));
        let merge_inputs = merge_inputs(&inputs, excluded.collect(), ServerDocument::apis);
        Arc::new(Self {
            inputs,
            apis: self.apis.merge_incrementally(&merge_inputs),
            merge_inputs,
            previous_v2: self.v2.get().or(self.previous_v2.as_ref()).cloned(),
            ..Self::default()
        })
    }

    /// What `/apis` lists, for the forms that are not here.
    pub fn apis(&self) -> &Arc<GroupDiscoveryList> {
        &self.apis.groups
    }

    /// What `/api` would list: only with `--merge-discovery=all`, and made when first asked for.
    pub fn core(&self) -> &Arc<GroupDiscoveryList> {
        self.core.get_or_init(|| merge(&merge_inputs(&self.inputs, HashMap::new(), ServerDocument::core)).groups)
    }

    /// What the servers could not agree on.
    pub fn conflicts(&self) -> &[Conflict] {
        &self.apis.conflicts
    }

    /// The finished `/apis` in JSON.
    pub fn json(&self, version: AggregatedVersion) -> &EncodedDocument {
        let previous = self.v2.get().or(self.previous_v2.as_ref());
        let make = || MergedJson::new(self.apis(), version, previous.map(Arc::as_ref));
        match version {
            AggregatedVersion::V2 => self.v2.get_or_init(|| Arc::new(make())).document(),
            AggregatedVersion::V2Beta1 => self.v2beta1.get_or_init(make).document(),
        }
    }

    /// The finished `/apis` in protobuf, version 2.
    pub fn protobuf(&self) -> &EncodedDocument {
        self.protobuf.get_or_init(|| aggregated::encode_merged_protobuf(self.apis(), AggregatedVersion::V2))
    }

    /// The finished aggregated `/api` in JSON, version 2: only with `--merge-discovery=all`.
    pub fn core_json(&self) -> &EncodedDocument {
        self.core_v2.get_or_init(|| aggregated::encode_json(self.core(), AggregatedVersion::V2))
    }

    /// The finished legacy document of a path such as `apis/batch/v1`: only with `--merge-discovery=all`. `/api` itself is not
    /// among them, since it says where one server listens; nor are hashes of storage versions, which each server has its own.
    pub fn legacy(&self, path: &str) -> Option<&EncodedDocument> {
        self.legacy.get_or_init(|| legacy_documents(self.core(), self.apis())).get(path)
    }
}

fn legacy_documents(core: &GroupDiscoveryList, apis: &GroupDiscoveryList) -> HashMap<String, EncodedDocument> {
    let list = |group: &GroupDiscovery, version: &VersionDiscovery| {
        ApiResourceList::from_version(&group.name, version, |_, _| None).to_document()
    };
    let of_core = core.versions().map(|(group, version)| (format!("api/{}", version.name), list(group, version)));
    let of_versions =
        apis.versions().map(|(group, version)| (format!("apis/{}/{}", group.name, version.name), list(group, version)));
    let of_groups = apis
        .items()
        .iter()
        .filter_map(|group| Some((format!("apis/{}", group.name), ApiGroup::from_group(group)?.to_document())));
    let of_all = ("apis".to_owned(), ApiGroupList::from_groups(apis).to_document());
    of_core.chain(of_versions).chain(of_groups).chain([of_all]).collect()
}

fn are_same_inputs(a: &[MergedInput], b: &[MergedInput]) -> bool {
    let same = |(a, b): (&MergedInput, &MergedInput)| {
        a.server == b.server
            && a.liveness == b.liveness
            && Arc::ptr_eq(&a.document, &b.document)
            && Arc::ptr_eq(&a.exclusion, &b.exclusion)
    };
    a.len() == b.len() && a.iter().zip(b).all(same)
}

/// A document and what is struck from it.
type ExclusionKey = (*const ServerDocument, *const Exclusion);

fn exclusion_key(input: &MergedInput) -> ExclusionKey {
    (Arc::as_ptr(&input.document), Arc::as_ptr(&input.exclusion))
}

/// What each server contributes, without what is struck. Equal documents are struck once, and not those known already.
fn merge_inputs(
    inputs: &[MergedInput],
    mut excluded: HashMap<ExclusionKey, Arc<GroupDiscoveryList>>,
    part: impl Fn(&ServerDocument) -> &Arc<GroupDiscoveryList>,
) -> Vec<MergeInput> {
    let inputs = inputs.iter().map(|input| {
        let groups = excluded
            .entry(exclusion_key(input))
            .or_insert_with(|| exclude_from_groups(part(&input.document), &input.exclusion));
        MergeInput { server: input.server.name().clone(), liveness: input.liveness, groups: groups.clone() }
    });
    inputs.collect()
}

/// No resource has this name, so it is struck only with its version.
const WHOLE_VERSION: &str = "";

/// The document without what is struck; versions and groups that are empty then go too. What has nothing struck is given as it
/// is, memory included.
fn exclude_from_groups(groups: &Arc<GroupDiscoveryList>, exclusion: &Exclusion) -> Arc<GroupDiscoveryList> {
    let is_touched = |group: &GroupDiscovery| {
        group.versions.iter().any(|version| exclusion.affects_version(&group.name, &version.name))
    };
    if exclusion.is_empty() || !groups.items().iter().any(|group| is_touched(group)) {
        return groups.clone();
    }
    Arc::new(groups.filter_map_groups(|group| {
        if is_touched(group) { exclude_from_group(group, exclusion) } else { Some(group.clone()) }
    }))
}

fn exclude_from_group(group: &GroupDiscovery, exclusion: &Exclusion) -> Option<Arc<GroupDiscovery>> {
    let versions = group.versions.iter().filter_map(|version| {
        let is_struck = |resource: &str| exclusion.definition_state(&group.name, &version.name, resource).is_some();
        let resources = version.resources.iter();
        let kept: Vec<_> = resources.filter(|resource| !is_struck(&resource.name)).cloned().collect();
        let is_emptied = kept.is_empty() && !version.resources.is_empty();
        (!is_emptied && !is_struck(WHOLE_VERSION)).then(|| VersionDiscovery { resources: kept, ..version.clone() })
    });
    let versions: Vec<_> = versions.collect();
    // Only versions that are touched can be gone.
    (!versions.is_empty()).then(|| Arc::new(GroupDiscovery { versions, ..group.clone() }))
}

#[cfg(test)]
mod tests;

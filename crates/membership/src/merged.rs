//! The merged discovery document of all servers.
//!
//! A pure function of its inputs, computed when one of them was replaced, and kept as encoded bytes. Parts that a replaced
//! input does not change are reused.

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
use crate::exclusion::{DefinitionState, Exclusion};
use crate::identity::ServerId;

/// The contribution of one server.
#[derive(Clone, Debug)]
pub struct MergedInput {
    /// The server, named in conflicts only.
    pub server: ServerId,
    /// Whether requests can be sent to the server.
    pub liveness: ServerLiveness,
    /// What the server serves.
    pub document: Arc<ServerDocument>,
    /// The resources of the document that do not count: of this server's own document only whole versions, which extension API
    /// servers have taken over.
    pub exclusion: Arc<Exclusion>,
    /// True for this server.
    pub is_own: bool,
    /// The groups of custom resources and of extension API servers. They count as part of every document, so that all servers order them alike.
    pub shared_groups: Arc<GroupDiscoveryList>,
}

/// The merged documents. They are encoded when first requested, reusing parts of the last encoded ones.
#[derive(Debug, Default)]
pub struct MergedDocuments {
    inputs: Vec<MergedInput>,
    /// The contribution of each input to `/apis`.
    merge_inputs: Vec<MergeInput>,
    apis: discovery::MergedDiscovery,
    v2: OnceLock<Arc<MergedJson>>,
    previous_v2: Option<Arc<MergedJson>>,
    v2beta1: OnceLock<MergedJson>,
    protobuf: OnceLock<EncodedDocument>,
    core: OnceLock<Arc<GroupDiscoveryList>>,
    core_v2: OnceLock<EncodedDocument>,
    /// Keyed by path without leading and trailing slash.
    legacy: OnceLock<HashMap<String, EncodedDocument>>,
}

impl MergedDocuments {
    /// The merged documents of these inputs: `self` if the inputs are the same, otherwise new ones that reuse what unchanged
    /// inputs lead to.
    pub fn update(self: &Arc<Self>, inputs: Vec<MergedInput>) -> Arc<Self> {
        if are_same_inputs(&inputs, &self.inputs) {
            return self.clone();
        }
        let known = self.inputs.iter().zip(&self.merge_inputs);
        let known = known.map(|(input, part)| (contribution_key(input), part.groups.clone())).collect();
        let merge_inputs = merge_inputs(&inputs, known, contribution_to_apis);
        Arc::new(Self {
            inputs,
            apis: self.apis.merge_incrementally(&merge_inputs),
            merge_inputs,
            previous_v2: self.v2.get().or(self.previous_v2.as_ref()).cloned(),
            ..Self::default()
        })
    }

    /// The groups of `/apis`.
    pub fn apis(&self) -> &Arc<GroupDiscoveryList> {
        &self.apis.groups
    }

    /// The groups of `/api`: only with `--merge-discovery=all`, computed when first requested.
    pub fn core(&self) -> &Arc<GroupDiscoveryList> {
        self.core.get_or_init(|| merge(&merge_inputs(&self.inputs, HashMap::new(), contribution_to_core)).groups)
    }

    /// The descriptions on which servers differ.
    pub fn conflicts(&self) -> &[Conflict] {
        &self.apis.conflicts
    }

    /// The encoded `/apis` in JSON.
    pub fn json(&self, version: AggregatedVersion) -> &EncodedDocument {
        let previous = self.v2.get().or(self.previous_v2.as_ref());
        let make = || MergedJson::new(self.apis(), version, previous.map(Arc::as_ref));
        match version {
            AggregatedVersion::V2 => self.v2.get_or_init(|| Arc::new(make())).document(),
            AggregatedVersion::V2Beta1 => self.v2beta1.get_or_init(make).document(),
        }
    }

    /// The encoded `/apis` in protobuf, version 2.
    pub fn protobuf(&self) -> &EncodedDocument {
        self.protobuf.get_or_init(|| aggregated::encode_merged_protobuf(self.apis(), AggregatedVersion::V2))
    }

    /// The encoded aggregated `/api` in JSON, version 2: only with `--merge-discovery=all`.
    pub fn core_json(&self) -> &EncodedDocument {
        self.core_v2.get_or_init(|| aggregated::encode_json(self.core(), AggregatedVersion::V2))
    }

    /// The encoded legacy document of a path such as `apis/batch/v1`: only with `--merge-discovery=all`. `/api` itself is not
    /// merged, since it holds the address of one server; nor are hashes of storage versions, which differ between servers.
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
            && Arc::ptr_eq(&a.shared_groups, &b.shared_groups)
    };
    a.len() == b.len() && a.iter().zip(b).all(same)
}

/// A document, its exclusion and the shared groups, by address.
type ContributionKey = (*const ServerDocument, *const Exclusion, *const GroupDiscoveryList, bool);

fn contribution_key(input: &MergedInput) -> ContributionKey {
    (Arc::as_ptr(&input.document), Arc::as_ptr(&input.exclusion), Arc::as_ptr(&input.shared_groups), input.is_own)
}

/// The contribution of each server. It is computed once per document, and reused from the last inputs.
fn merge_inputs(
    inputs: &[MergedInput],
    mut known: HashMap<ContributionKey, Arc<GroupDiscoveryList>>,
    contribution: impl Fn(&MergedInput) -> Arc<GroupDiscoveryList>,
) -> Vec<MergeInput> {
    let inputs = inputs.iter().map(|input| {
        let groups = known.entry(contribution_key(input)).or_insert_with(|| contribution(input));
        MergeInput { server: input.server.name().clone(), liveness: input.liveness, groups: groups.clone() }
    });
    inputs.collect()
}

/// The groups of `/apis` without excluded resources, with the shared groups at their places.
fn contribution_to_apis(input: &MergedInput) -> Arc<GroupDiscoveryList> {
    let own = exclude_from_groups(input.document.apis(), &input.exclusion, input.is_own);
    if input.shared_groups.items().is_empty() { own } else { Arc::new(own.with_ordered_groups(&input.shared_groups)) }
}

fn contribution_to_core(input: &MergedInput) -> Arc<GroupDiscoveryList> {
    exclude_from_groups(input.document.core(), &input.exclusion, input.is_own)
}

/// No resource has this name, so it is excluded only with its whole version.
const WHOLE_VERSION: &str = "";

/// The document without excluded resources, and without versions and groups that become empty. Returns the same `Arc` if
/// nothing is excluded. Of this server's own document only versions that an extension API server has now are left out.
fn exclude_from_groups(
    groups: &Arc<GroupDiscoveryList>,
    exclusion: &Exclusion,
    is_own: bool,
) -> Arc<GroupDiscoveryList> {
    let is_touched = |group: &GroupDiscovery| {
        group.versions.iter().any(|version| match is_own {
            true => is_taken_over(group, version, exclusion),
            false => exclusion.affects_version(&group.name, &version.name),
        })
    };
    if exclusion.is_empty() || !groups.items().iter().any(|group| is_touched(group)) {
        return groups.clone();
    }
    Arc::new(groups.filter_map_groups(|group| match (is_touched(group), is_own) {
        (false, _) => Some(group.clone()),
        (true, true) => remove_taken_over_versions(group, exclusion),
        (true, false) => exclude_from_group(group, exclusion),
    }))
}

/// True if an extension API server has a whole version now.
fn is_taken_over(group: &GroupDiscovery, version: &VersionDiscovery, exclusion: &Exclusion) -> bool {
    let state = exclusion.definition_state(&group.name, &version.name, WHOLE_VERSION);
    state == Some(DefinitionState::Present)
}

fn remove_taken_over_versions(group: &GroupDiscovery, exclusion: &Exclusion) -> Option<Arc<GroupDiscovery>> {
    let versions = group.versions.iter().filter(|version| !is_taken_over(group, version, exclusion));
    let versions: Vec<_> = versions.cloned().collect();
    (!versions.is_empty()).then(|| Arc::new(GroupDiscovery { versions, ..group.clone() }))
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
    // Only affected versions can be empty.
    (!versions.is_empty()).then(|| Arc::new(GroupDiscovery { versions, ..group.clone() }))
}

#[cfg(test)]
mod tests;

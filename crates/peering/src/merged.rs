//! Merged discovery: one document of what all servers serve between them.
//!
//! A pure function of its inputs, made when one of them was replaced, and kept as finished bytes.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use api::media::AggregatedVersion;
use discovery::legacy::{ApiGroup, ApiGroupList, ApiResourceList};
use discovery::{Conflict, Document, Group, Groups, Input, Standing, Version, aggregated, merge};

use crate::documents::ServerDocument;
use crate::exclusion::Exclusion;
use crate::identity::ServerId;

/// One server's part.
#[derive(Clone, Debug)]
pub struct MergedInput {
    /// Whose it is; named in conflicts only.
    pub server: ServerId,
    /// Whether it can be reached.
    pub standing: Standing,
    /// What it serves.
    pub document: Arc<ServerDocument>,
    /// What of that does not count.
    pub exclusion: Arc<Exclusion>,
}

/// The merged documents.
#[derive(Debug)]
pub struct Merged {
    inputs: Vec<MergedInput>,
    apis: Arc<Groups>,
    conflicts: Vec<Conflict>,
    v2: Document,
    v2beta1: OnceLock<Document>,
    protobuf: OnceLock<Document>,
    core: OnceLock<Arc<Groups>>,
    core_v2: OnceLock<Document>,
    /// By path without slashes around it.
    legacy: OnceLock<HashMap<String, Document>>,
}

impl Merged {
    /// The documents of these servers. If they are the inputs of the last ones, these are given again.
    pub fn new(inputs: Vec<MergedInput>, last: Option<&Arc<Self>>) -> Arc<Self> {
        if let Some(last) = last
            && are_same(&inputs, &last.inputs)
        {
            return last.clone();
        }
        let merged = merge(&parts(&inputs, ServerDocument::apis));
        let v2 = aggregated::json(&merged.groups, AggregatedVersion::V2);
        Arc::new(Self {
            inputs,
            apis: merged.groups,
            conflicts: merged.conflicts,
            v2,
            v2beta1: OnceLock::new(),
            protobuf: OnceLock::new(),
            core: OnceLock::new(),
            core_v2: OnceLock::new(),
            legacy: OnceLock::new(),
        })
    }

    /// What `/apis` lists, for the forms that are not here.
    pub fn apis(&self) -> &Arc<Groups> {
        &self.apis
    }

    /// What `/api` would list: only with `--merge-discovery=all`, and made when first asked for.
    pub fn core(&self) -> &Arc<Groups> {
        self.core.get_or_init(|| merge(&parts(&self.inputs, ServerDocument::core)).groups)
    }

    /// What the servers could not agree on.
    pub fn conflicts(&self) -> &[Conflict] {
        &self.conflicts
    }

    /// The finished `/apis` in JSON.
    pub fn json(&self, version: AggregatedVersion) -> &Document {
        match version {
            AggregatedVersion::V2 => &self.v2,
            AggregatedVersion::V2Beta1 => {
                self.v2beta1.get_or_init(|| aggregated::json(&self.apis, AggregatedVersion::V2Beta1))
            }
        }
    }

    /// The finished `/apis` in protobuf, version 2.
    pub fn protobuf(&self) -> &Document {
        self.protobuf.get_or_init(|| aggregated::protobuf(&self.apis, AggregatedVersion::V2))
    }

    /// The finished aggregated `/api` in JSON, version 2: only with `--merge-discovery=all`.
    pub fn core_json(&self) -> &Document {
        self.core_v2.get_or_init(|| aggregated::json(self.core(), AggregatedVersion::V2))
    }

    /// The finished legacy document of a path such as `apis/batch/v1`: only with `--merge-discovery=all`. `/api` itself is not
    /// among them, since it says where one server listens; nor are hashes of storage versions, which each server has its own.
    pub fn legacy(&self, path: &str) -> Option<&Document> {
        self.legacy.get_or_init(|| legacy_documents(self.core(), &self.apis)).get(path)
    }
}

fn legacy_documents(core: &Groups, apis: &Groups) -> HashMap<String, Document> {
    let list = |group: &Group, version: &Version| {
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

fn are_same(a: &[MergedInput], b: &[MergedInput]) -> bool {
    let same = |(a, b): (&MergedInput, &MergedInput)| {
        a.server == b.server
            && a.standing == b.standing
            && Arc::ptr_eq(&a.document, &b.document)
            && Arc::ptr_eq(&a.exclusion, &b.exclusion)
    };
    a.len() == b.len() && a.iter().zip(b).all(same)
}

/// What each server contributes, without what is struck. Equal documents are struck once.
fn parts(inputs: &[MergedInput], part: impl Fn(&ServerDocument) -> &Arc<Groups>) -> Vec<Input> {
    let mut struck: HashMap<(*const Groups, *const Exclusion), Arc<Groups>> = HashMap::new();
    let inputs = inputs.iter().map(|input| {
        let groups = part(&input.document);
        let key = (Arc::as_ptr(groups), Arc::as_ptr(&input.exclusion));
        let groups = struck.entry(key).or_insert_with(|| strike(groups, &input.exclusion)).clone();
        Input { server: input.server.name().clone(), standing: input.standing, groups }
    });
    inputs.collect()
}

/// No resource has this name, so it is struck only with its version.
const WHOLE_VERSION: &str = "";

/// The document without what is struck; versions and groups that are empty then go too. One that has nothing struck is given as
/// it is, memory included.
fn strike(groups: &Arc<Groups>, exclusion: &Exclusion) -> Arc<Groups> {
    let is_struck = |group: &Group, version: &Version, resource: &str| {
        exclusion.definition(&group.name, &version.name, resource).is_some()
    };
    let has_struck = groups.versions().any(|(group, version)| {
        is_struck(group, version, WHOLE_VERSION)
            || version.resources.iter().any(|resource| is_struck(group, version, &resource.name))
    });
    if exclusion.is_empty() || !has_struck {
        return groups.clone();
    }
    let items = groups.items().iter().filter_map(|group| {
        let versions = group.versions.iter().filter_map(|version| {
            let resources = version.resources.iter();
            let kept: Vec<_> =
                resources.filter(|resource| !is_struck(group, version, &resource.name)).cloned().collect();
            let is_emptied = kept.is_empty() && !version.resources.is_empty();
            (!is_emptied && !is_struck(group, version, WHOLE_VERSION))
                .then(|| Version { resources: kept, ..version.clone() })
        });
        let versions: Vec<_> = versions.collect();
        let is_emptied = versions.is_empty() && !group.versions.is_empty();
        (!is_emptied).then(|| Arc::new(Group { versions, ..(**group).clone() }))
    });
    Arc::new(Groups::new(items.collect()))
}

#[cfg(test)]
mod tests;

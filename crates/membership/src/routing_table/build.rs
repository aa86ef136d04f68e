//! Builds the table from documents. Members with equal documents are one input.

use std::collections::HashMap;
use std::sync::Arc;

use api::KindScope;
use foldhash::fast::RandomState;
use smallvec::SmallVec;

use super::document_classes::{DocumentClasses, Reachability};
use super::version_listing::DocumentResources;
use super::{
    LocalSupport, MemberIndex, MemberOffer, RequestVerbs, RoutingTable, ServingMembers, TableEntry, TableKey,
    VersionSlot,
};
use crate::documents::ServerDocument;
use crate::exclusion::Exclusion;

/// A member with a document.
#[derive(Clone, Copy, Debug)]
pub struct ServingMember<'a> {
    /// The index of the member in its view.
    pub member: MemberIndex,
    /// Whether requests can be sent to the member.
    pub is_live: bool,
    /// What the member lists.
    pub document: &'a Arc<ServerDocument>,
}

impl RoutingTable {
    /// The table of this server and the members, in the order of the members. Excluded resources count for this server alone.
    /// Reuses versions of `self` with the same listings; the first table is built from an empty one.
    pub fn rebuild(&self, local: &ServerDocument, members: &[ServingMember<'_>], exclusion: &Exclusion) -> Self {
        let classes = self.document_classes.update(members);
        let mut sources: HashMap<TableKey, VersionSources, RandomState> = HashMap::default();
        for listing in local.listings() {
            sources.entry(listing.key.clone()).or_default().local = Some(listing.items().clone());
        }
        for (number, class) in classes.iter() {
            for listing in class.document.listings() {
                let items = listing.excluding(exclusion);
                sources.entry(listing.key.clone()).or_default().classes.push((number, items));
            }
        }
        let mut offers = OfferCache { classes: &classes, offers: HashMap::default(), slices: HashMap::default() };
        let versions = sources.into_iter().map(|(key, sources)| {
            let last = self.versions.get(&key).map(|slot| &slot.entries).filter(|last| last.sources == sources);
            let entries = last.cloned().unwrap_or_else(|| Arc::new(VersionEntries::new(sources)));
            let offers = entries.class_lists.iter().map(|listing| offers.offer_for(listing)).collect();
            (key, VersionSlot { entries, offer_sets: offers })
        });
        Self { versions: versions.collect(), document_classes: classes }
    }
}

/// The listings of one version.
#[derive(Debug, Default, PartialEq, Eq)]
struct VersionSources {
    local: Option<DocumentResources>,
    /// In ascending order of class numbers.
    classes: Vec<(u32, DocumentResources)>,
}

/// The entries of one version, by resource and subresource.
#[derive(Debug)]
pub(super) struct VersionEntries {
    sources: VersionSources,
    by_name: HashMap<TableKey, TableEntry, RandomState>,
    /// The distinct lists of classes of the entries.
    class_lists: Vec<ClassVerbs>,
}

/// The classes that list a resource with their verbs, in ascending order.
type ClassVerbs = SmallVec<[(u32, RequestVerbs); 4]>;

impl VersionEntries {
    fn new(sources: VersionSources) -> Self {
        let mut drafts: HashMap<TableKey, EntryDraft, RandomState> = HashMap::default();
        for item in sources.local.iter().flat_map(|items| items.iter()) {
            let draft = drafts.entry(item.name.clone()).or_default();
            draft.local = item.local;
            draft.merge_scope(item.scope);
        }
        for (class, items) in &sources.classes {
            for item in items.iter() {
                if let LocalSupport::Serves(verbs) = item.local {
                    let draft = drafts.entry(item.name.clone()).or_default();
                    draft.classes.push((*class, verbs));
                    draft.merge_scope(item.scope);
                }
            }
        }
        let mut listings = Vec::new();
        let mut positions: HashMap<ClassVerbs, u32, RandomState> = HashMap::default();
        let entries = drafts.into_iter().map(|(name, EntryDraft { local: here, scope, classes })| {
            let offer = *positions.entry(classes).or_insert_with_key(|classes| {
                listings.push(classes.clone());
                u32::try_from(listings.len() - 1).expect("a document is shorter than that")
            });
            (name, TableEntry { local: here, scope: scope.flatten(), offer_index: offer })
        });
        let by_name = entries.collect();
        Self { sources, by_name, class_lists: listings }
    }

    pub(super) fn get(&self, name: &[u8]) -> Option<&TableEntry> {
        self.by_name.get(name)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&TableKey, &TableEntry)> {
        self.by_name.iter()
    }

    pub(super) fn len(&self) -> usize {
        self.by_name.len()
    }
}

/// An entry under construction.
#[derive(Default)]
struct EntryDraft {
    local: LocalSupport,
    /// `None` before the first listing; `Some(None)` if listings disagree.
    scope: Option<Option<KindScope>>,
    classes: ClassVerbs,
}

impl EntryDraft {
    fn merge_scope(&mut self, scope: Option<KindScope>) {
        self.scope = match self.scope {
            None => Some(scope),
            Some(noted) => Some(noted.filter(|noted| scope == Some(*noted))),
        };
    }
}

/// Offers and slices shared by versions.
struct OfferCache<'a> {
    classes: &'a DocumentClasses,
    offers: HashMap<ClassVerbs, MemberOffer, RandomState>,
    slices: HashMap<(Reachability, ClassNumbers), Arc<[MemberIndex]>, RandomState>,
}

/// Class numbers.
type ClassNumbers = SmallVec<[u32; 8]>;

impl OfferCache<'_> {
    /// The offer of these classes; shares memory for equal classes and verbs.
    fn offer_for(&mut self, class_verbs: &ClassVerbs) -> MemberOffer {
        if let Some(offer) = self.offers.get(class_verbs) {
            return offer.clone();
        }
        let offer = MemberOffer {
            live: self.serving_members(class_verbs, Reachability::Live),
            unreachable: self.serving_members(class_verbs, Reachability::Unreachable),
        };
        self.offers.insert(class_verbs.clone(), offer.clone());
        offer
    }

    fn serving_members(&mut self, class_verbs: &ClassVerbs, reachability: Reachability) -> ServingMembers {
        let has_members = |(class, _): &&(u32, RequestVerbs)| !self.classes.members(*class, reachability).is_empty();
        let classes: ClassVerbs = class_verbs.iter().filter(has_members).copied().collect();
        if classes.is_empty() {
            return ServingMembers::default();
        }
        let any = self.member_slice(reachability, classes.iter().map(|(class, _)| *class).collect());
        let all = classes.iter().fold(RequestVerbs::default(), |all, (_, verbs)| all.union(*verbs));
        let mut by_verb: SmallVec<[(RequestVerbs, Arc<[MemberIndex]>); 1]> = SmallVec::new();
        if classes.iter().all(|(_, verbs)| *verbs == all) {
            by_verb.push((all, any.clone()));
            return ServingMembers { any: Some(any), by_verb };
        }
        for verb in all.iter() {
            let with_verb = classes.iter().filter(|(_, verbs)| verbs.contains(verb));
            let members = self.member_slice(reachability, with_verb.map(|(class, _)| *class).collect());
            match by_verb.iter_mut().find(|(_, known)| Arc::ptr_eq(known, &members)) {
                Some((verbs, _)) => *verbs = verbs.with(verb),
                None => by_verb.push((RequestVerbs::default().with(verb), members)),
            }
        }
        ServingMembers { any: Some(any), by_verb }
    }

    /// The members of these classes, in order; the same slice for the same classes.
    fn member_slice(&mut self, reachability: Reachability, classes: ClassNumbers) -> Arc<[MemberIndex]> {
        let Self { classes: all, slices, .. } = self;
        let slice = slices.entry((reachability, classes)).or_insert_with_key(|(reach, classes)| {
            let members = classes.iter().flat_map(|class| all.members(*class, *reach));
            let mut members: Vec<MemberIndex> = members.copied().collect();
            members.sort_unstable();
            members.into()
        });
        slice.clone()
    }
}

//! From documents to the table. Members with equal documents are one input.

use std::collections::HashMap;
use std::sync::Arc;

use api::Scope;
use foldhash::fast::RandomState;
use smallvec::SmallVec;

use super::classes::{Classes, Reach};
use super::listing::Items;
use super::{Bearers, Entry, Here, Key, MemberIndex, Offer, Slot, Table, Verbs};
use crate::documents::ServerDocument;
use crate::exclusion::Exclusion;

/// A member that lists things.
#[derive(Clone, Copy, Debug)]
pub struct Bearer<'a> {
    /// Who it is.
    pub member: MemberIndex,
    /// Whether it can be reached.
    pub is_live: bool,
    /// What it lists.
    pub document: &'a Arc<ServerDocument>,
}

impl Table {
    /// The table of what this server and the members list, in the order of the members. What is struck is nobody's but ours.
    /// What this table has of the same listings is taken over; the first table is made after an empty one.
    pub fn next(&self, local: &ServerDocument, bearers: &[Bearer<'_>], exclusion: &Exclusion) -> Self {
        let classes = self.classes.next(bearers);
        let mut sources: HashMap<Key, Sources, RandomState> = HashMap::default();
        for listing in local.listings() {
            sources.entry(listing.key.clone()).or_default().here = Some(listing.items().clone());
        }
        for (number, class) in classes.iter() {
            for listing in class.document.listings() {
                let items = listing.without(exclusion);
                sources.entry(listing.key.clone()).or_default().classes.push((number, items));
            }
        }
        let mut offers = Offers { classes: &classes, known: HashMap::default(), slices: HashMap::default() };
        let versions = sources.into_iter().map(|(key, sources)| {
            let last = self.versions.get(&key).map(|slot| &slot.entries).filter(|last| last.sources == sources);
            let entries = last.cloned().unwrap_or_else(|| Arc::new(Entries::new(sources)));
            let offers = entries.listings.iter().map(|listing| offers.of(listing)).collect();
            (key, Slot { entries, offers })
        });
        Self { versions: versions.collect(), classes }
    }
}

/// What was listed of one version, and by whom.
#[derive(Debug, Default, PartialEq, Eq)]
struct Sources {
    here: Option<Items>,
    /// In ascending order.
    classes: Vec<(u32, Items)>,
}

/// The entries of one version, by resource and subresource.
#[derive(Debug)]
pub(super) struct Entries {
    sources: Sources,
    by_name: HashMap<Key, Entry, RandomState>,
    /// The different lists of classes that entries have.
    listings: Vec<Listing>,
}

/// The classes that list something, with the verbs that they list; in ascending order.
type Listing = SmallVec<[(u32, Verbs); 4]>;

impl Entries {
    fn new(sources: Sources) -> Self {
        let mut drafts: HashMap<Key, Draft, RandomState> = HashMap::default();
        for item in sources.here.iter().flat_map(|items| items.iter()) {
            let draft = drafts.entry(item.name.clone()).or_default();
            draft.here = item.here;
            draft.note_scope(item.scope);
        }
        for (class, items) in &sources.classes {
            for item in items.iter() {
                if let Here::Serves(verbs) = item.here {
                    let draft = drafts.entry(item.name.clone()).or_default();
                    draft.classes.push((*class, verbs));
                    draft.note_scope(item.scope);
                }
            }
        }
        let mut listings = Vec::new();
        let mut positions: HashMap<Listing, u32, RandomState> = HashMap::default();
        let entries = drafts.into_iter().map(|(name, Draft { here, scope, classes })| {
            let offer = *positions.entry(classes).or_insert_with_key(|classes| {
                listings.push(classes.clone());
                u32::try_from(listings.len() - 1).expect("a document is shorter than that")
            });
            (name, Entry { here, scope: scope.flatten(), offer })
        });
        let by_name = entries.collect();
        Self { sources, by_name, listings }
    }

    pub(super) fn get(&self, name: &[u8]) -> Option<&Entry> {
        self.by_name.get(name)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&Key, &Entry)> {
        self.by_name.iter()
    }

    pub(super) fn len(&self) -> usize {
        self.by_name.len()
    }
}

/// An entry in the making.
#[derive(Default)]
struct Draft {
    here: Here,
    /// Absent before the first listing; `Some(None)` if listings do not agree.
    scope: Option<Option<Scope>>,
    classes: Listing,
}

impl Draft {
    fn note_scope(&mut self, scope: Option<Scope>) {
        self.scope = match self.scope {
            None => Some(scope),
            Some(noted) => Some(noted.filter(|noted| scope == Some(*noted))),
        };
    }
}

/// What versions share.
struct Offers<'a> {
    classes: &'a Classes,
    known: HashMap<Listing, Offer, RandomState>,
    slices: HashMap<(Reach, Numbers), Arc<[MemberIndex]>, RandomState>,
}

/// Numbers of classes.
type Numbers = SmallVec<[u32; 8]>;

impl Offers<'_> {
    /// What these classes offer between them; in the same memory for the same classes and verbs.
    fn of(&mut self, listing: &Listing) -> Offer {
        if let Some(offer) = self.known.get(listing) {
            return offer.clone();
        }
        let offer = Offer { live: self.bearers(listing, Reach::Live), away: self.bearers(listing, Reach::Away) };
        self.known.insert(listing.clone(), offer.clone());
        offer
    }

    fn bearers(&mut self, listing: &Listing, reach: Reach) -> Bearers {
        let has_members = |(class, _): &&(u32, Verbs)| !self.classes.members(*class, reach).is_empty();
        let classes: Listing = listing.iter().filter(has_members).copied().collect();
        if classes.is_empty() {
            return Bearers::default();
        }
        let any = self.slice(reach, classes.iter().map(|(class, _)| *class).collect());
        let all = classes.iter().fold(Verbs::default(), |all, (_, verbs)| all.union(*verbs));
        let mut by_verb: SmallVec<[(Verbs, Arc<[MemberIndex]>); 1]> = SmallVec::new();
        if classes.iter().all(|(_, verbs)| *verbs == all) {
            by_verb.push((all, any.clone()));
            return Bearers { any: Some(any), by_verb };
        }
        for verb in all.iter() {
            let with_verb = classes.iter().filter(|(_, verbs)| verbs.contains(verb));
            let members = self.slice(reach, with_verb.map(|(class, _)| *class).collect());
            match by_verb.iter_mut().find(|(_, known)| Arc::ptr_eq(known, &members)) {
                Some((verbs, _)) => *verbs = verbs.with(verb),
                None => by_verb.push((Verbs::default().with(verb), members)),
            }
        }
        Bearers { any: Some(any), by_verb }
    }

    /// The members of these classes, in order; the same slice for the same classes.
    fn slice(&mut self, reach: Reach, classes: Numbers) -> Arc<[MemberIndex]> {
        let Self { classes: all, slices, .. } = self;
        let slice = slices.entry((reach, classes)).or_insert_with_key(|(reach, classes)| {
            let members = classes.iter().flat_map(|class| all.members(*class, *reach));
            let mut members: Vec<MemberIndex> = members.copied().collect();
            members.sort_unstable();
            members.into()
        });
        slice.clone()
    }
}

//! From documents to the table. Members with equal documents are one input.

use std::collections::HashMap;
use std::collections::hash_map::Entry as Slot;
use std::sync::Arc;

use discovery::{Groups, Name, Names};
use foldhash::fast::RandomState;
use smallvec::SmallVec;

use super::{Bearers, Entry, Here, MemberIndex, Offer, Table, Verbs};
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
    pub fn build(local: &ServerDocument, bearers: &[Bearer<'_>], exclusion: &Exclusion) -> Self {
        let mut drafts = Drafts::default();
        drafts.add_local(local);
        let classes = classes_of(bearers);
        for (number, class) in classes.iter().enumerate() {
            drafts.add_class(u32::try_from(number).expect("fewer classes than members"), class, exclusion);
        }
        let mut offers =
            Offers { classes: &classes, known: HashMap::default(), all: Vec::new(), slices: HashMap::default() };
        let Drafts { positions, drafts } = drafts;
        let entry = |Draft { here, classes }| Entry { here, offer: offers.position(classes) };
        let entries: Vec<Entry> = drafts.into_iter().map(entry).collect();
        let entries = positions.into_iter().map(|(key, position)| (key, entries[position]));
        Self { entries: entries.collect(), offers: offers.all }
    }
}

/// Members that list the same and can all be reached, or all not.
struct Class<'a> {
    document: &'a Arc<ServerDocument>,
    is_live: bool,
    members: Vec<MemberIndex>,
}

fn classes_of<'a>(bearers: &[Bearer<'a>]) -> Vec<Class<'a>> {
    let mut classes: Vec<Class<'a>> = Vec::new();
    let mut positions = HashMap::new();
    for Bearer { member, is_live, document } in bearers {
        match positions.entry((Arc::as_ptr(document), *is_live)) {
            Slot::Occupied(position) => {
                let class: &mut Class<'a> = &mut classes[*position.get()];
                class.members.push(*member);
            }
            Slot::Vacant(position) => {
                position.insert(classes.len());
                classes.push(Class { document, is_live: *is_live, members: vec![*member] });
            }
        }
    }
    classes
}

#[derive(Default)]
struct Drafts {
    positions: HashMap<Box<[u8]>, usize, RandomState>,
    drafts: Vec<Draft>,
}

/// An entry in the making: the classes that list it, in ascending order.
#[derive(Default)]
struct Draft {
    here: Here,
    classes: Listing,
}

impl Drafts {
    fn add_local(&mut self, local: &ServerDocument) {
        let unbuilt = local.unbuilt_names();
        each_listed(local, |key, [group, _, resource, subresource], verbs| {
            let draft = self.draft(key);
            draft.here = match draft.here {
                _ if unbuilt.contains(&(group, resource, subresource)) => Here::Unbuilt,
                Here::Serves(known) => Here::Serves(known.union(verbs)),
                Here::Nothing | Here::Unbuilt => Here::Serves(verbs),
            };
        });
    }

    fn add_class(&mut self, number: u32, class: &Class<'_>, exclusion: &Exclusion) {
        let unbuilt = class.document.unbuilt_names();
        each_listed(class.document, |key, [group, version, resource, subresource], verbs| {
            let is_struck = exclusion.definition(group, version, resource).is_some();
            if is_struck || !unbuilt.is_empty() && unbuilt.contains(&(group, resource, subresource)) {
                return;
            }
            let draft = self.draft(key);
            match draft.classes.last_mut() {
                // Listed twice by one server, as aggregated API servers are known to do.
                Some((last, known)) if *last == number => *known = known.union(verbs),
                Some(_) | None => draft.classes.push((number, verbs)),
            }
        });
    }

    fn draft(&mut self, key: &[u8]) -> &mut Draft {
        let Self { positions, drafts } = self;
        let position = match positions.get(key) {
            Some(position) => *position,
            None => {
                positions.insert(key.into(), drafts.len());
                drafts.push(Draft::default());
                drafts.len() - 1
            }
        };
        &mut drafts[position]
    }
}

/// Every resource and subresource of a document, with its key. A resource without verbs is there for its subresources only.
fn each_listed(document: &ServerDocument, mut visit: impl FnMut(&[u8], [&str; 4], Verbs)) {
    // Most resources share one of a few lists of verbs.
    let mut known: HashMap<*const Name, Verbs, RandomState> = HashMap::default();
    let mut verbs_of = |names: &Names| *known.entry(names.as_ptr()).or_insert_with(|| Verbs::from_names(names));
    let documents: [&Groups; 2] = [document.core(), document.apis()];
    for (group, version) in documents.into_iter().flat_map(Groups::versions) {
        let mut key = format!("{}/{}/", group.name, version.name).into_bytes();
        let start = key.len();
        for resource in &version.resources {
            key.truncate(start);
            key.extend_from_slice(resource.name.as_bytes());
            key.push(b'/');
            let end = key.len();
            let mut add = |subresource: &str, names: &Option<Names>| {
                if let Some(names) = names {
                    key.truncate(end);
                    key.extend_from_slice(subresource.as_bytes());
                    visit(&key, [&group.name, &version.name, &resource.name, subresource], verbs_of(names));
                }
            };
            add("", &resource.verbs);
            for subresource in &resource.subresources {
                add(&subresource.name, &subresource.verbs);
            }
        }
    }
}

/// The classes that list something, with the verbs that they list; in ascending order.
type Listing = SmallVec<[(u32, Verbs); 4]>;

/// What entries share.
struct Offers<'a> {
    classes: &'a [Class<'a>],
    known: HashMap<Listing, u32, RandomState>,
    all: Vec<Offer>,
    slices: HashMap<SmallVec<[u32; 8]>, Arc<[MemberIndex]>, RandomState>,
}

impl Offers<'_> {
    /// The position of the offer that these classes make; the same for the same classes and verbs.
    fn position(&mut self, listing: Listing) -> u32 {
        if let Some(position) = self.known.get(&listing) {
            return *position;
        }
        let of = |is_live: bool| -> Listing {
            let classes = listing.iter().copied();
            classes.filter(|(class, _)| self.classes[*class as usize].is_live == is_live).collect()
        };
        let (live, away) = (of(true), of(false));
        let offer = Offer { live: self.bearers(&live), away: self.bearers(&away) };
        let position = u32::try_from(self.all.len()).expect("there are fewer offers than a document may have objects");
        self.all.push(offer);
        self.known.insert(listing, position);
        position
    }

    fn bearers(&mut self, classes: &[(u32, Verbs)]) -> Bearers {
        if classes.is_empty() {
            return Bearers::default();
        }
        let any = self.slice(classes.iter().map(|(class, _)| *class).collect());
        let all = classes.iter().fold(Verbs::default(), |all, (_, verbs)| all.union(*verbs));
        let mut by_verb: SmallVec<[(Verbs, Arc<[MemberIndex]>); 1]> = SmallVec::new();
        if classes.iter().all(|(_, verbs)| *verbs == all) {
            by_verb.push((all, any.clone()));
            return Bearers { any: Some(any), by_verb };
        }
        for verb in all.iter() {
            let with_verb = classes.iter().filter(|(_, verbs)| verbs.contains(verb));
            let members = self.slice(with_verb.map(|(class, _)| *class).collect());
            match by_verb.iter_mut().find(|(_, known)| Arc::ptr_eq(known, &members)) {
                Some((verbs, _)) => *verbs = verbs.with(verb),
                None => by_verb.push((Verbs::default().with(verb), members)),
            }
        }
        Bearers { any: Some(any), by_verb }
    }

    /// The members of these classes, in order; the same slice for the same classes.
    fn slice(&mut self, classes: SmallVec<[u32; 8]>) -> Arc<[MemberIndex]> {
        let Self { classes: all, slices, .. } = self;
        let slice = slices.entry(classes).or_insert_with_key(|classes| {
            let members = classes.iter().flat_map(|class| &all[*class as usize].members);
            let mut members: Vec<MemberIndex> = members.copied().collect();
            members.sort_unstable();
            members.into()
        });
        slice.clone()
    }
}

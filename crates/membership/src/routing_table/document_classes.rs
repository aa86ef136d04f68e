//! Members by document. Members with the same document are one class, whose number stays as long as it has members.

use std::collections::HashMap;
use std::sync::Arc;

use super::{MemberIndex, ServingMember};
use crate::documents::ServerDocument;

/// The classes by number; a new class takes a free number.
#[derive(Debug, Default)]
pub(super) struct DocumentClasses(Vec<Option<DocumentClass>>);

/// Members with the same document, in their order.
#[derive(Debug)]
pub(super) struct DocumentClass {
    pub(super) document: Arc<ServerDocument>,
    live: Vec<MemberIndex>,
    unreachable: Vec<MemberIndex>,
}

/// Selects members of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Reachability {
    /// Members that are live.
    Live,
    /// Members that are suspect or have left.
    Unreachable,
}

impl DocumentClass {
    pub(super) fn members(&self, reachability: Reachability) -> &[MemberIndex] {
        match reachability {
            Reachability::Live => &self.live,
            Reachability::Unreachable => &self.unreachable,
        }
    }
}

impl DocumentClasses {
    /// The classes of these members. Known documents keep their numbers.
    pub(super) fn update(&self, members: &[ServingMember<'_>]) -> Self {
        let known: HashMap<_, _> = self.iter().map(|(number, class)| (Arc::as_ptr(&class.document), number)).collect();
        let mut classes: Vec<Option<DocumentClass>> = self.0.iter().map(|_| None).collect();
        let mut new_classes = Vec::new();
        for class in group_by_document(members) {
            match known.get(&Arc::as_ptr(&class.document)) {
                Some(number) => classes[*number as usize] = Some(class),
                None => new_classes.push(class),
            }
        }
        let mut new_classes = new_classes.into_iter();
        for free in classes.iter_mut().filter(|class| class.is_none()) {
            *free = new_classes.next();
        }
        classes.extend(new_classes.map(Some));
        while classes.pop_if(|class| class.is_none()).is_some() {}
        Self(classes)
    }

    /// All classes in the order of their numbers.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &DocumentClass)> {
        (0..).zip(&self.0).filter_map(|(number, class)| Some((number, class.as_ref()?)))
    }

    pub(super) fn members(&self, number: u32, reachability: Reachability) -> &[MemberIndex] {
        self.0[number as usize].as_ref().map_or(&[], |class| class.members(reachability))
    }
}

fn group_by_document(members: &[ServingMember<'_>]) -> Vec<DocumentClass> {
    let mut classes: Vec<DocumentClass> = Vec::new();
    let mut positions = HashMap::new();
    for ServingMember { member, is_live, document } in members {
        let position = *positions.entry(Arc::as_ptr(document)).or_insert(classes.len());
        if position == classes.len() {
            classes.push(DocumentClass { document: (*document).clone(), live: Vec::new(), unreachable: Vec::new() });
        }
        let DocumentClass { live, unreachable, .. } = &mut classes[position];
        if *is_live { live.push(*member) } else { unreachable.push(*member) }
    }
    classes
}

//! Members by what they list. Those with the same document are one class, whose number stays as long as it has members.

use std::collections::HashMap;
use std::sync::Arc;

use super::{Bearer, MemberIndex};
use crate::documents::ServerDocument;

/// The classes by their numbers; a number that is free is taken by the next new class.
#[derive(Debug, Default)]
pub(super) struct Classes(Vec<Option<Class>>);

/// Members that list the same, in their order.
#[derive(Debug)]
pub(super) struct Class {
    pub(super) document: Arc<ServerDocument>,
    live: Vec<MemberIndex>,
    away: Vec<MemberIndex>,
}

/// Which members of a class are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Reach {
    /// Those that can be reached.
    Live,
    /// Those that cannot.
    Away,
}

impl Class {
    pub(super) fn members(&self, reach: Reach) -> &[MemberIndex] {
        match reach {
            Reach::Live => &self.live,
            Reach::Away => &self.away,
        }
    }
}

impl Classes {
    /// The classes of these members. Documents that have a number keep it.
    pub(super) fn next(&self, bearers: &[Bearer<'_>]) -> Self {
        let known: HashMap<_, _> = self.iter().map(|(number, class)| (Arc::as_ptr(&class.document), number)).collect();
        let mut classes: Vec<Option<Class>> = self.0.iter().map(|_| None).collect();
        let mut others = Vec::new();
        for class in classes_of(bearers) {
            match known.get(&Arc::as_ptr(&class.document)) {
                Some(number) => classes[*number as usize] = Some(class),
                None => others.push(class),
            }
        }
        let mut others = others.into_iter();
        for free in classes.iter_mut().filter(|class| class.is_none()) {
            *free = others.next();
        }
        classes.extend(others.map(Some));
        while classes.pop_if(|class| class.is_none()).is_some() {}
        Self(classes)
    }

    /// All of them in the order of their numbers.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &Class)> {
        (0..).zip(&self.0).filter_map(|(number, class)| Some((number, class.as_ref()?)))
    }

    pub(super) fn members(&self, number: u32, reach: Reach) -> &[MemberIndex] {
        self.0[number as usize].as_ref().map_or(&[], |class| class.members(reach))
    }
}

fn classes_of(bearers: &[Bearer<'_>]) -> Vec<Class> {
    let mut classes: Vec<Class> = Vec::new();
    let mut positions = HashMap::new();
    for Bearer { member, is_live, document } in bearers {
        let position = *positions.entry(Arc::as_ptr(document)).or_insert(classes.len());
        if position == classes.len() {
            classes.push(Class { document: (*document).clone(), live: Vec::new(), away: Vec::new() });
        }
        let Class { live, away, .. } = &mut classes[position];
        if *is_live { live.push(*member) } else { away.push(*member) }
    }
    classes
}

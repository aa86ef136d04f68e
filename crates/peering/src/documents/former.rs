//! What a server served before it changed: its former document lingers beside the new one.
//!
//! A server that comes back at another release may serve less than before. Whoever asks for the rest within the linger is told
//! 503 and not 404, as if a server had left: the former document is put under the name of the process that it was of, has no
//! lease there, and so *is* a server that left. What a process itself ceases to serve was taken away on purpose, and is gone.

use std::time::Duration;

use api::PortError;
use discovery::{Groups, Names, Resource};

use super::{ServerDocument, StoredDocument, Tenure};
use crate::identity::ServerId;
use crate::ports::Documents;

/// Leaves the document of a former process to linger before another takes its place, if it lists anything that the other does
/// not.
pub async fn leave_behind(
    documents: &dyn Documents,
    old: &StoredDocument,
    new: &StoredDocument,
    linger: Duration,
) -> Result<(), PortError> {
    let Some(name) = ServerId::from_name(old.holder.as_str()) else { return Ok(()) };
    if old.holder == new.holder || lists_everything(&new.document, &old.document) {
        return Ok(());
    }
    let former = StoredDocument { tenure: Tenure::Leaving, ..old.clone() };
    match documents.put(&name, former.encode(), None, Some(linger)).await {
        // It is there already.
        Ok(_) | Err(PortError::Conflict) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Whether a document lists everything that another does: resources, subresources and verbs.
fn lists_everything(new: &ServerDocument, old: &ServerDocument) -> bool {
    lists_all(new.core(), old.core()) && lists_all(new.apis(), old.apis())
}

fn lists_all(new: &Groups, old: &Groups) -> bool {
    old.versions().all(|(group, version)| {
        let now = new.version(&group.name, &version.name);
        let find = |name: &str| now?.resources.iter().find(|resource| *resource.name == *name);
        version.resources.iter().all(|resource| find(&resource.name).is_some_and(|now| offers_all(now, resource)))
    })
}

fn offers_all(new: &Resource, old: &Resource) -> bool {
    let find = |name: &str| new.subresources.iter().find(|part| *part.name == *name);
    has_all(new.verbs.as_ref(), old.verbs.as_ref())
        && old
            .subresources
            .iter()
            .all(|part| find(&part.name).is_some_and(|now| has_all(now.verbs.as_ref(), part.verbs.as_ref())))
}

fn has_all(new: Option<&Names>, old: Option<&Names>) -> bool {
    let has = |verb| new.is_some_and(|names| names.contains(verb));
    old.is_none_or(|verbs| verbs.iter().all(has))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::document;

    #[track_caller]
    fn check(new: &str, old: &str, expected: bool) {
        assert_eq!(lists_all(&document(new), &document(old)), expected, "{new} after {old}");
    }

    #[test]
    fn less_of_anything_is_less() {
        let old = "a/v1 xs:get,list | b/v1 ys:get";
        check(old, old, true);
        check("a/v1 xs:get,list zs:get | a/v2 xs:get | b/v1 ys:get", old, true);
        check("a/v1 xs:get,list", old, false);
        check("a/v1 zs:get,list | b/v1 ys:get", old, false);
        check("a/v2 xs:get,list | b/v1 ys:get", old, false);
        check("a/v1 xs:get | b/v1 ys:get", old, false);
        check(old, "", true);
    }
}

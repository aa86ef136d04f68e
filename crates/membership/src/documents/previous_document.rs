//! The document of a former process of a server, which lingers beside the new one.
//!
//! A server that comes back at another release may serve less than before. Requests for the rest get 503 within the linger and
//! not 404, as if a server had left: the former document is stored under the name of its process, which has no lease, and so
//! *is* a server that left. A resource that one process ceases to serve was removed on purpose and is gone at once.

use std::time::Duration;

use api::PortError;
use discovery::{GroupDiscoveryList, ResourceDiscovery, SharedStrList};

use super::{Retention, ServerDocument, StoredDocument};
use crate::identity::ServerId;
use crate::ports::DocumentStorage;

/// Stores the document of a former process, to linger, if it lists anything that the new document does not.
pub(crate) async fn keep_previous_as_lingering(
    documents: &dyn DocumentStorage,
    old: &StoredDocument,
    new: &StoredDocument,
    linger: Duration,
) -> Result<(), PortError> {
    let Some((name, lingering)) = lingering_document(old, new) else { return Ok(()) };
    match documents.put(&name, lingering.encode(), None, Some(linger)).await {
        // The document is stored already.
        Ok(_) | Err(PortError::Conflict) => Ok(()),
        Err(error) => Err(error),
    }
}

/// The document of a former process as that of a server that left, under the name of the process; `None` if the new document lists
/// everything that the old one does.
pub fn lingering_document(old: &StoredDocument, new: &StoredDocument) -> Option<(ServerId, StoredDocument)> {
    let name = ServerId::from_name(old.holder.as_str())?;
    let is_superseded = old.holder == new.holder || document_covers(&new.document, &old.document);
    (!is_superseded).then(|| (name, StoredDocument { retention: Retention::Lingering, ..old.clone() }))
}

/// True if `new` lists everything that `old` does: resources, subresources and verbs.
fn document_covers(new: &ServerDocument, old: &ServerDocument) -> bool {
    groups_cover(new.core(), old.core()) && groups_cover(new.apis(), old.apis())
}

fn groups_cover(new: &GroupDiscoveryList, old: &GroupDiscoveryList) -> bool {
    old.versions().all(|(group, version)| {
        let now = new.version(&group.name, &version.name);
        let find = |name: &str| now?.resources.iter().find(|resource| *resource.name == *name);
        version.resources.iter().all(|resource| find(&resource.name).is_some_and(|now| resource_covers(now, resource)))
    })
}

fn resource_covers(new: &ResourceDiscovery, old: &ResourceDiscovery) -> bool {
    let find = |name: &str| new.subresources.iter().find(|part| *part.name == *name);
    verbs_cover(new.verbs.as_ref(), old.verbs.as_ref())
        && old
            .subresources
            .iter()
            .all(|part| find(&part.name).is_some_and(|now| verbs_cover(now.verbs.as_ref(), part.verbs.as_ref())))
}

fn verbs_cover(new: Option<&SharedStrList>, old: Option<&SharedStrList>) -> bool {
    let has = |verb| new.is_some_and(|names| names.contains(verb));
    old.is_none_or(|verbs| verbs.iter().all(has))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::groups_from_notation;

    #[track_caller]
    fn check(new: &str, old: &str, expected: bool) {
        assert_eq!(groups_cover(&groups_from_notation(new), &groups_from_notation(old)), expected, "{new} after {old}");
    }

    #[test]
    fn groups_cover_requires_every_version_resource_and_verb() {
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

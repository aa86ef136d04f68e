//! What a server served before it changed: its former document lingers beside the new one.
//!
//! A server that comes back at another release may serve less than before. Whoever asks for the rest within the linger is told
//! 503 and not 404, as if a server had left: the former document is put under the name of the process that it was of, has no
//! lease there, and so *is* a server that left. What a process itself ceases to serve was taken away on purpose, and is gone.

use std::time::Duration;

use api::PortError;
use discovery::{GroupDiscoveryList, ResourceDiscovery, SharedStrList};

use super::{Retention, ServerDocument, StoredDocument};
use crate::identity::ServerId;
use crate::ports::DocumentStorage;

/// Leaves the document of a former process to linger before another takes its place, if it lists anything that the other does
/// not.
pub async fn keep_previous_as_lingering(
    documents: &dyn DocumentStorage,
    old: &StoredDocument,
    new: &StoredDocument,
    linger: Duration,
) -> Result<(), PortError> {
    let Some(name) = ServerId::from_name(old.holder.as_str()) else { return Ok(()) };
    if old.holder == new.holder || document_covers(&new.document, &old.document) {
        return Ok(());
    }
    let lingering = StoredDocument { retention: Retention::Lingering, ..old.clone() };
    match documents.put(&name, lingering.encode(), None, Some(linger)).await {
        // It is there already.
        Ok(_) | Err(PortError::Conflict) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Whether a document lists everything that another does: resources, subresources and verbs.
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

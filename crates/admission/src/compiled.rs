//! Values that are compiled from stored objects, and taken over while their object does not change.

use std::collections::HashMap;
use std::sync::Arc;

use api::json::JsonObject;

/// One state of a stored object: its key and the revision of its last write.
pub type StateId = (Vec<u8>, u64);

/// What was made of each object before, or what `make` makes of it now.
pub(crate) fn reuse<T, R>(
    before: &HashMap<StateId, Arc<T>>,
    objects: Vec<(StateId, R)>,
    make: impl Fn(&JsonObject) -> T,
) -> HashMap<StateId, Arc<T>>
where
    R: FnOnce() -> Option<JsonObject>,
{
    let made = objects.into_iter().filter_map(|(id, read)| {
        let made = before.get(&id).cloned().or_else(|| Some(Arc::new(make(&read()?))))?;
        Some((id, made))
    });
    made.collect()
}

//! What happened from a revision on, in pieces of whole transactions.

use bytes::Bytes;
use rusqlite::Row;

use crate::sqlite::fault::Fault;
use crate::sqlite::pool::Reader;
use crate::sqlite::schema::Place;
use crate::sqlite::snapshot::Snapshot;
use crate::{Batch, Entry, Error, Event, Key, Revision};

/// One piece is what a watcher is sent at once: enough to be quick, little enough to keep for a slow one.
const ROWS_MAX: usize = 1_000;
const BYTES_MAX: usize = 1 << 20;

/// The next piece of history at and after `from` below `prefix`, as far as anything may be shown.
/// [`Error::Compacted`] if some of it is forgotten.
pub(super) fn read(reader: &Reader, prefix: &Key, from: Revision) -> Result<Batch, Fault> {
    let snapshot = Snapshot::open(reader)?;
    check_known(from, snapshot.compacted)?;
    Ok(read_piece(&snapshot, prefix, from)?)
}

/// A watch from `r.next()` can begin exactly as long as a range at `r` can be read.
fn check_known(from: Revision, compacted: Revision) -> Result<(), Error> {
    if compacted.0 > 0 && from <= compacted {
        return Err(Error::Compacted { requested: from, oldest: compacted });
    }
    Ok(())
}

fn read_piece(snapshot: &Snapshot<'_>, prefix: &Key, from: Revision) -> rusqlite::Result<Batch> {
    let sql = "SELECT place, key, value FROM log WHERE place >= ?1 AND place < ?2 ORDER BY place";
    let mut select = snapshot.connection().prepare_cached(sql)?;
    let mut rows = select.query([Place::first_of(from), Place::first_of(snapshot.revision.next())])?;
    let mut batch = Batch { events: Vec::new(), through: from };
    let (mut visited, mut bytes) = (0, 0);
    while let Some(row) = rows.next()? {
        let place: Place = row.get(0)?;
        // A transaction is not torn, however large.
        if (visited >= ROWS_MAX || bytes >= BYTES_MAX) && place.revision() > batch.through {
            return Ok(batch);
        }
        batch.through = place.revision();
        visited += 1;
        if row.get_ref(1)?.as_blob()?.starts_with(prefix) {
            let event = event(row, place)?;
            bytes += weight(&event);
            batch.events.push(event);
        }
    }
    batch.through = snapshot.revision;
    Ok(batch)
}

fn event(row: &Row<'_>, place: Place) -> rusqlite::Result<Event> {
    let key = Key::copy_from_slice(row.get_ref(1)?.as_blob()?);
    let revision = place.revision();
    Ok(match row.get_ref(2)?.as_blob_or_null()? {
        Some(value) => Event::Put(Entry { key, value: Bytes::copy_from_slice(value), revision }),
        None => Event::Delete { key, revision },
    })
}

fn weight(event: &Event) -> usize {
    match event {
        Event::Put(entry) => entry.key.len() + entry.value.len(),
        Event::Delete { key, .. } => key.len(),
    }
}

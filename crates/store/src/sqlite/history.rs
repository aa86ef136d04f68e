//! What happened from a revision on, in pieces of whole transactions.

use bytes::Bytes;
use rusqlite::Row;

use crate::sqlite::fault::SqliteFault;
use crate::sqlite::reader_pool::SqliteReader;
use crate::sqlite::schema::LogPosition;
use crate::sqlite::snapshot::ReadSnapshot;
use crate::{Error, Key, Revision, StoreEntry, StoreEvent, WatchBatch};

/// One piece is what a watcher is sent at once: enough to be quick, little enough to keep for a slow one.
const BATCH_ROWS_MAX: usize = 1_000;
const BATCH_BYTES_MAX: usize = 1 << 20;

/// The next piece of history at and after `from` below `prefix`, as far as anything may be shown.
/// [`Error::Compacted`] if some of it is forgotten.
pub(super) fn read_batch(reader: &SqliteReader, prefix: &Key, from: Revision) -> Result<WatchBatch, SqliteFault> {
    let snapshot = ReadSnapshot::open(reader)?;
    check_not_compacted(from, snapshot.compacted_revision)?;
    Ok(read_log(&snapshot, prefix, from)?)
}

/// A watch from `r.next()` can begin exactly as long as a range at `r` can be read.
fn check_not_compacted(from: Revision, compacted: Revision) -> Result<(), Error> {
    if compacted.0 > 0 && from <= compacted {
        return Err(Error::Compacted { requested: from, oldest: compacted });
    }
    Ok(())
}

fn read_log(snapshot: &ReadSnapshot<'_>, prefix: &Key, from: Revision) -> rusqlite::Result<WatchBatch> {
    let sql = "SELECT place, key, value FROM log WHERE place >= ?1 AND place < ?2 ORDER BY place";
    let mut select = snapshot.connection().prepare_cached(sql)?;
    let mut rows =
        select.query([LogPosition::start_of(from), LogPosition::start_of(snapshot.visible_revision.next())])?;
    let mut batch = WatchBatch { events: Vec::new(), complete_through: from };
    let (mut visited, mut bytes) = (0, 0);
    while let Some(row) = rows.next()? {
        let place: LogPosition = row.get(0)?;
        // A transaction is not torn, however large.
        if (visited >= BATCH_ROWS_MAX || bytes >= BATCH_BYTES_MAX) && place.revision() > batch.complete_through {
            return Ok(batch);
        }
        batch.complete_through = place.revision();
        visited += 1;
        if row.get_ref(1)?.as_blob()?.starts_with(prefix) {
            let event = parse_event(row, place)?;
            bytes += event_bytes(&event);
            batch.events.push(event);
        }
    }
    batch.complete_through = snapshot.visible_revision;
    Ok(batch)
}

fn parse_event(row: &Row<'_>, place: LogPosition) -> rusqlite::Result<StoreEvent> {
    let key = Key::copy_from_slice(row.get_ref(1)?.as_blob()?);
    let revision = place.revision();
    Ok(match row.get_ref(2)?.as_blob_or_null()? {
        Some(value) => StoreEvent::Put(StoreEntry { key, value: Bytes::copy_from_slice(value), revision }),
        None => StoreEvent::Delete { key, revision },
    })
}

fn event_bytes(event: &StoreEvent) -> usize {
    match event {
        StoreEvent::Put(entry) => entry.key.len() + entry.value.len(),
        StoreEvent::Delete { key, .. } => key.len(),
    }
}

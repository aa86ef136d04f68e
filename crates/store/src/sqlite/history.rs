//! Reads the log from a revision on, in batches of whole transactions.

use bytes::Bytes;
use rusqlite::Row;

use crate::sqlite::fault::SqliteFault;
use crate::sqlite::reader_pool::SqliteReader;
use crate::sqlite::schema::LogPosition;
use crate::sqlite::snapshot::ReadSnapshot;
use crate::{Error, Key, Revision, StoreEntry, StoreEvent, WatchBatch};

/// Limits of a batch: large enough to be fast, small enough to queue for a slow watch.
const BATCH_ROWS_MAX: usize = 1_000;
const BATCH_BYTES_MAX: usize = 1 << 20;

/// Reads the next batch of changes below `prefix` at and after `from`, up to the visible revision. [`Error::Compacted`]
/// if the history before `from` is gone.
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
        let position: LogPosition = row.get(0)?;
        // A transaction is never split, however large.
        if (visited >= BATCH_ROWS_MAX || bytes >= BATCH_BYTES_MAX) && position.revision() > batch.complete_through {
            return Ok(batch);
        }
        batch.complete_through = position.revision();
        visited += 1;
        if row.get_ref(1)?.as_blob()?.starts_with(prefix) {
            let event = parse_event(row, position)?;
            bytes += event_bytes(&event);
            batch.events.push(event);
        }
    }
    batch.complete_through = snapshot.visible_revision;
    Ok(batch)
}

fn parse_event(row: &Row<'_>, position: LogPosition) -> rusqlite::Result<StoreEvent> {
    let key = Key::copy_from_slice(row.get_ref(1)?.as_blob()?);
    let revision = position.revision();
    Ok(match row.get_ref(2)?.as_blob_or_null()? {
        Some(value) => StoreEvent::Put(StoreEntry { key, value: Bytes::copy_from_slice(value), revision }),
        None => StoreEvent::Delete { key, revision },
    })
}

/// What an event counts for in the limit of the history.
fn event_bytes(event: &StoreEvent) -> usize {
    match event {
        StoreEvent::Put(entry) => entry.key.len() + entry.value.len(),
        StoreEvent::Delete { key, .. } => key.len(),
    }
}

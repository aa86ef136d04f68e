//! Compaction: forgetting what was overwritten or removed before a revision, a little at a time.
//!
//! The revision is written down first, and every read compares itself with it in its own transaction, so it does not
//! matter how far the removal has come, or that its process died: any process goes on where it stopped.

use rusqlite::Connection;

use crate::sqlite::schema::Place;
use crate::sqlite::snapshot;
use crate::sqlite::write::Write;
use crate::{Error, Revision};

/// Changes that are seen to in one commit: so few that whoever commits with them hardly notices.
pub(super) const SWEEP_ROWS: usize = 256;

/// What is left to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Left {
    Nothing,
    Some,
}

/// Decides that everything before `revision` is forgotten. From here on nobody can read it.
pub(super) fn decide(write: &Write<'_>, revision: Revision) -> rusqlite::Result<Result<(), Error>> {
    if revision > write.newest {
        return Ok(Err(Error::Future { requested: revision, current: write.newest }));
    }
    let sql = "UPDATE state SET compacted = ?1 WHERE compacted < ?1";
    write.connection().prepare_cached(sql)?.execute([revision.0])?;
    Ok(Ok(()))
}

/// Removes the rows that `rows` further changes made superfluous.
///
/// Every change up to the compacted revision makes the one before it of the same key superfluous. A removal before the
/// compacted revision is superfluous itself. One at the compacted revision stays until the next time: the newest row
/// of the log is what remembers the current revision.
pub(super) fn sweep(write: &Write<'_>, rows: usize) -> rusqlite::Result<Left> {
    let connection = write.connection();
    let compacted = snapshot::compacted(connection)?;
    let kept = Place::first_of(compacted);
    let swept: Place = connection.prepare_cached("SELECT swept FROM state")?.query_row([], |row| row.get(0))?;
    let changes = changes(connection, swept, Place::first_of(compacted.next()), rows)?;
    for change in &changes {
        if let Some(previous) = change.previous {
            connection.prepare_cached("DELETE FROM log WHERE place = ?1")?.execute([previous])?;
        }
        if change.is_removal && change.place < kept {
            connection.prepare_cached("DELETE FROM log WHERE place = ?1")?.execute([change.place])?;
            let sql = "DELETE FROM latest WHERE key = ?1 AND place = ?2";
            connection.prepare_cached(sql)?.execute((&change.key, change.place))?;
        }
    }
    let (swept, left) = match changes.last() {
        Some(last) if changes.len() == rows && last.place < kept => (last.place.next(), Left::Some),
        Some(_) | None => (kept, Left::Nothing),
    };
    connection.prepare_cached("UPDATE state SET swept = ?1 WHERE swept < ?1")?.execute([swept])?;
    Ok(left)
}

/// How far a compaction has come that is not finished.
pub(super) fn unfinished(connection: &Connection) -> rusqlite::Result<Option<Place>> {
    let swept: Place = connection.prepare_cached("SELECT swept FROM state")?.query_row([], |row| row.get(0))?;
    Ok((swept < Place::first_of(snapshot::compacted(connection)?)).then_some(swept))
}

struct Change {
    place: Place,
    previous: Option<Place>,
    key: Vec<u8>,
    is_removal: bool,
}

fn changes(connection: &Connection, from: Place, before: Place, rows: usize) -> rusqlite::Result<Vec<Change>> {
    let sql = "SELECT place, previous, value IS NULL, iif(value IS NULL, key, x'') FROM log
               WHERE place >= ?1 AND place < ?2 ORDER BY place LIMIT ?3";
    let mut select = connection.prepare_cached(sql)?;
    let changes = select.query_map((from, before, rows), |row| {
        Ok(Change { place: row.get(0)?, previous: row.get(1)?, is_removal: row.get(2)?, key: row.get(3)? })
    })?;
    changes.collect()
}

//! Range reads at one revision, in short chunks.
//!
//! A long read transaction keeps SQLite from reusing its WAL. Every chunk is a transaction of its own instead, and the
//! log lets all of them read the same revision.

use rusqlite::Rows;

use crate::sqlite::fault::SqliteFault;
use crate::sqlite::reader_pool::SqliteReader;
use crate::sqlite::schema::LogPosition;
use crate::sqlite::snapshot::ReadSnapshot;
use crate::{Error, Key, KeyRange, RangePage, Revision, StoreEntry, prefix_end};

/// Limits of a chunk: some milliseconds of reading.
const ROWS_MAX: usize = 2_000;
const BYTES_MAX: usize = 4 << 20;

/// How often a read of the current state restarts because compaction passed its revision. Compaction stays minutes
/// behind, so even one restart is unusual.
const RESTARTS_MAX: usize = 3;

// The left join shows a live key without a log row, so that the damage is detected.
const SELECT: &str = "SELECT latest.place, latest.live, log.value, latest.key FROM latest LEFT JOIN log USING (place)
     WHERE latest.key >= ?1 ORDER BY latest.key";
const SELECT_END: &str =
    "SELECT latest.place, latest.live, log.value, latest.key FROM latest LEFT JOIN log USING (place)
     WHERE latest.key >= ?1 AND latest.key < ?2 ORDER BY latest.key";
const COUNT: &str = "SELECT count(*) FROM latest WHERE live AND place < ?1 AND key >= ?2";
const COUNT_END: &str = "SELECT count(*) FROM latest WHERE live AND place < ?1 AND key >= ?2 AND key < ?3";
const CHANGED: &str = "SELECT place FROM latest WHERE place >= ?1 AND key >= ?2";
const CHANGED_END: &str = "SELECT place FROM latest WHERE place >= ?1 AND key >= ?2 AND key < ?3";

/// Reads a whole page, restarting if compaction passes its revision.
pub(super) fn read_page(reader: &SqliteReader, range: &KeyRange) -> Result<RangePage, SqliteFault> {
    for _ in 0..RESTARTS_MAX {
        match read_once(reader, range) {
            Err(SqliteFault::Store(Error::Compacted { .. })) if range.at_revision.is_none() => {}
            result => return result,
        }
    }
    let reason = "compaction passed the revision of a read three times; raise --etcd-compaction-interval".to_owned();
    Err(Error::Unavailable { reason }.into())
}

fn read_once(reader: &SqliteReader, range: &KeyRange) -> Result<RangePage, SqliteFault> {
    let mut reading = RangeReader::new(range);
    let mut at = range.at_revision;
    loop {
        let snapshot = ReadSnapshot::open(reader)?;
        let revision = snapshot.check_readable(at)?;
        at = Some(revision);
        let count = match reading.read_chunk(&snapshot, revision)? {
            ChunkEnd::More => continue,
            ChunkEnd::Last => 0,
            ChunkEnd::LimitReached => reading.count_remaining(&snapshot, revision)?,
        };
        let count = count + reading.entries.len() as u64;
        return Ok(RangePage { entries: reading.entries, count, revision });
    }
}

#[derive(Debug)]
pub(super) struct RangeReader {
    /// The first key of the next chunk.
    first: Key,
    end: Option<Key>,
    limit: usize,
    pub(super) entries: Vec<StoreEntry>,
}

pub(super) enum ChunkEnd {
    /// The chunk is full; more rows may follow.
    More,
    /// The range is exhausted.
    Last,
    /// The limit is reached; the remaining keys are only counted.
    LimitReached,
}

impl RangeReader {
    pub(super) fn new(range: &KeyRange) -> Self {
        Self {
            first: range.first_key().clone(),
            end: prefix_end(&range.prefix),
            limit: range.limit.unwrap_or(usize::MAX),
            entries: Vec::new(),
        }
    }

    pub(super) fn read_chunk(&mut self, snapshot: &ReadSnapshot<'_>, at: Revision) -> rusqlite::Result<ChunkEnd> {
        let connection = snapshot.connection();
        let mut select = connection.prepare_cached(if self.end.is_some() { SELECT_END } else { SELECT })?;
        let first = self.first.clone();
        let mut rows = match &self.end {
            Some(end) => select.query([&first[..], &end[..]])?,
            None => select.query([&first[..]])?,
        };
        self.read_rows(&mut rows, snapshot, at)
    }

    fn read_rows(
        &mut self,
        rows: &mut Rows<'_>,
        snapshot: &ReadSnapshot<'_>,
        at: Revision,
    ) -> rusqlite::Result<ChunkEnd> {
        let (mut visited, mut bytes) = (0, 0);
        loop {
            if self.entries.len() == self.limit {
                return Ok(ChunkEnd::LimitReached);
            }
            if visited == ROWS_MAX || bytes >= BYTES_MAX {
                return Ok(ChunkEnd::More);
            }
            let Some(row) = rows.next()? else { return Ok(ChunkEnd::Last) };
            visited += 1;
            let key = Key::copy_from_slice(row.get_ref(3)?.as_blob()?);
            self.first = successor(&key);
            if let Some(entry) = snapshot.entry_at(row, key, at)? {
                bytes += entry.value.len();
                self.entries.push(entry);
            }
        }
    }

    /// Counts the keys after the last chunk.
    pub(super) fn count_remaining(&self, snapshot: &ReadSnapshot<'_>, at: Revision) -> rusqlite::Result<u64> {
        let connection = snapshot.connection();
        let after = LogPosition::start_of(at.next());
        let unchanged = match &self.end {
            Some(end) => connection
                .prepare_cached(COUNT_END)?
                .query_row((after, &self.first[..], &end[..]), |row| row.get::<_, u64>(0))?,
            None => {
                connection.prepare_cached(COUNT)?.query_row((after, &self.first[..]), |row| row.get::<_, u64>(0))?
            }
        };
        if at == snapshot.committed_revision {
            return Ok(unchanged);
        }
        let mut select = connection.prepare_cached(if self.end.is_some() { CHANGED_END } else { CHANGED })?;
        let mut rows = match &self.end {
            Some(end) => select.query((after, &self.first[..], &end[..]))?,
            None => select.query((after, &self.first[..]))?,
        };
        let mut changed = 0;
        while let Some(row) = rows.next()? {
            changed += u64::from(snapshot.was_live_before(row.get(0)?, at)?);
        }
        Ok(unchanged + changed)
    }
}

fn successor(key: &Key) -> Key {
    let mut next = Vec::with_capacity(key.len() + 1);
    next.extend_from_slice(key);
    next.push(0);
    next.into()
}

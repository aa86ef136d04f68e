//! What happens inside a write transaction.

use std::time::Duration;

use rusqlite::{Connection, OptionalExtension};

use crate::sqlite::schema::{OPS_MAX, Place};
use crate::sqlite::snapshot::{self, entry, latest};
use crate::{Compare, Entry, Key, Op, Outcome, Revision, Transaction};

/// The state behind all transactions of this commit so far, and the means to change it.
#[derive(Debug)]
pub(super) struct Write<'a> {
    connection: &'a Connection,
    /// The newest revision, also of what is not committed yet.
    pub(super) newest: Revision,
    /// Time since boot.
    now: Duration,
}

impl<'a> Write<'a> {
    /// Only between BEGIN IMMEDIATE and COMMIT.
    pub(super) fn new(connection: &'a Connection, now: Duration) -> rusqlite::Result<Self> {
        Ok(Self { connection, newest: snapshot::newest(connection)?, now })
    }

    pub(super) fn connection(&self) -> &'a Connection {
        self.connection
    }

    /// Compares, then changes.
    pub(super) fn apply(&mut self, transaction: &Transaction) -> rusqlite::Result<Outcome> {
        let mut is_met = true;
        for compare in &transaction.compares {
            is_met &= self.holds(compare)?;
        }
        if !is_met {
            let current = transaction.compares.iter().map(|compare| self.get(&compare.key));
            return Ok(Outcome::Conflict { current: current.collect::<Result<_, _>>()?, revision: self.newest });
        }
        let revision = self.newest.next();
        let mut changes = 0;
        for op in &transaction.ops {
            let place = Place::new(revision, changes);
            let is_change = match op {
                Op::Put { key, value, ttl } => self.put(place, key, value, *ttl)?,
                Op::Delete { key } => self.delete(place, key)?,
            };
            changes += usize::from(is_change);
        }
        if changes > 0 {
            self.newest = revision;
        }
        Ok(Outcome::Committed(self.newest))
    }

    /// Removes what is due, at most one transaction's worth, at one revision. Whoever renews a key before this has moved
    /// its deadline, so the renewal wins. Says whether there may be more.
    pub(super) fn expire(&mut self) -> rusqlite::Result<bool> {
        let sql = "SELECT key FROM latest WHERE deadline IS NOT NULL AND deadline <= ?1 ORDER BY deadline LIMIT ?2";
        let mut select = self.connection.prepare_cached(sql)?;
        let due = select.query_map((milliseconds(self.now), OPS_MAX), |row| row.get::<_, Vec<u8>>(0))?;
        let due = due.map(|key| key.map(Key::from)).collect::<Result<Vec<_>, _>>()?;
        let revision = self.newest.next();
        for (part, key) in due.iter().enumerate() {
            self.delete(Place::new(revision, part), key)?;
        }
        if !due.is_empty() {
            self.newest = revision;
        }
        Ok(due.len() == OPS_MAX)
    }

    fn get(&self, key: &Key) -> rusqlite::Result<Option<Entry>> {
        match latest(self.connection, key)? {
            Some((place, true)) => entry(self.connection, key, place).map(Some),
            Some((_, false)) | None => Ok(None),
        }
    }

    fn holds(&self, compare: &Compare) -> rusqlite::Result<bool> {
        let current = latest(self.connection, &compare.key)?;
        let current = current.and_then(|(place, is_live)| is_live.then(|| place.revision()));
        Ok(current == compare.revision)
    }

    fn put(&self, place: Place, key: &Key, value: &[u8], ttl: Option<Duration>) -> rusqlite::Result<bool> {
        let previous = latest(self.connection, key)?.map(|(place, _)| place);
        self.append(place, previous, key, Some(value))?;
        let ttl = ttl.map(whole_seconds);
        let deadline = ttl.map(|ttl| milliseconds(self.now + ttl));
        let ttl = ttl.map(milliseconds);
        let sql = match previous {
            Some(_) => "UPDATE latest SET place = ?2, live = 1, ttl = ?3, deadline = ?4 WHERE key = ?1",
            None => "INSERT INTO latest (key, place, live, ttl, deadline) VALUES (?1, ?2, 1, ?3, ?4)",
        };
        self.connection.prepare_cached(sql)?.execute((&key[..], place, ttl, deadline))?;
        Ok(true)
    }

    fn delete(&self, place: Place, key: &Key) -> rusqlite::Result<bool> {
        let Some((previous, true)) = latest(self.connection, key)? else { return Ok(false) };
        self.append(place, Some(previous), key, None)?;
        let sql = "UPDATE latest SET place = ?2, live = 0, ttl = NULL, deadline = NULL WHERE key = ?1";
        self.connection.prepare_cached(sql)?.execute((&key[..], place))?;
        Ok(true)
    }

    fn append(&self, place: Place, previous: Option<Place>, key: &Key, value: Option<&[u8]>) -> rusqlite::Result<()> {
        let sql = "INSERT INTO log (place, previous, key, value) VALUES (?1, ?2, ?3, ?4)";
        self.connection.prepare_cached(sql)?.execute((place, previous, &key[..], value))?;
        Ok(())
    }
}

/// When the next key is due, in time since boot.
pub(super) fn next_deadline(connection: &Connection) -> rusqlite::Result<Option<Duration>> {
    let sql = "SELECT deadline FROM latest WHERE deadline IS NOT NULL ORDER BY deadline LIMIT 1";
    let deadline: Option<u64> = connection.prepare_cached(sql)?.query_row([], |row| row.get(0)).optional()?;
    Ok(deadline.map(Duration::from_millis))
}

/// After a restart of the machine, deadlines of the run before mean nothing: all times to live begin anew.
pub(super) fn restart_deadlines(connection: &Connection, boot: &str, now: Duration) -> rusqlite::Result<()> {
    connection.execute("UPDATE latest SET deadline = ttl + ?1 WHERE deadline IS NOT NULL", [milliseconds(now)])?;
    connection.execute("UPDATE state SET boot = ?1", [boot])?;
    Ok(())
}

fn whole_seconds(ttl: Duration) -> Duration {
    let rounded_up = ttl.as_secs() + u64::from(ttl.subsec_nanos() > 0);
    Duration::from_secs(rounded_up.min(TTL_SECONDS_MAX))
}

/// A century: more is for ever, and the sum with the time since boot must stay representable.
const TTL_SECONDS_MAX: u64 = 100 * 365 * 24 * 60 * 60;

fn milliseconds(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

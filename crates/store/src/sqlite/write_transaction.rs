//! The operations inside a SQLite write transaction.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension};

use crate::contract::computed_puts;
use crate::sqlite::computed_history::ComputedHistory;
use crate::sqlite::fault::SqliteFault;
use crate::sqlite::schema::{LogPosition, OPS_MAX};
use crate::sqlite::snapshot::{self, latest_position, read_entry};
use crate::{Compare, ComputedValues, Key, KeyState, Op, Revision, StoreEntry, Transaction, TransactionOutcome};

/// The state after all jobs of this commit so far.
#[derive(Debug)]
pub(super) struct WriteTransaction<'a> {
    connection: &'a Connection,
    /// The newest revision, including uncommitted ones.
    pub(super) newest_revision: Revision,
    /// The time since boot.
    now: Duration,
}

impl<'a> WriteTransaction<'a> {
    /// Requires an open BEGIN IMMEDIATE.
    pub(super) fn new(connection: &'a Connection, now: Duration) -> rusqlite::Result<Self> {
        Ok(Self { connection, newest_revision: snapshot::newest_revision(connection)?, now })
    }

    pub(super) fn connection(&self) -> &'a Connection {
        self.connection
    }

    /// Evaluates the comparisons, then applies the operations at one revision.
    pub(super) fn apply(&mut self, transaction: &Transaction) -> rusqlite::Result<TransactionOutcome> {
        match self.holds(transaction)? {
            true => self.change(transaction.ops.iter()),
            false => self.conflict(transaction),
        }
    }

    /// Like [`Self::apply`], with values that are computed from the state so far.
    pub(super) fn apply_computed(
        &mut self,
        transaction: &Transaction,
        computed: &dyn ComputedValues,
        history: &ComputedHistory,
    ) -> Result<TransactionOutcome, SqliteFault> {
        if !self.holds(transaction)? {
            return Ok(self.conflict(transaction)?);
        }
        let keys = computed.keys();
        let entries = keys.iter().map(|key| self.get(key)).collect::<Result<Vec<_>, _>>()?;
        let current: Vec<Option<KeyState>> =
            entries.into_iter().map(|entry| entry.map(|entry| history.state_of(entry))).collect();
        // A panic, which is logged, must end this transaction alone.
        let Ok(Some(values)) = catch_unwind(AssertUnwindSafe(|| computed.compute(&current))) else {
            return Ok(self.conflict(transaction)?);
        };
        let puts = computed_puts(keys, &current, values)?;
        history.record(keys, &current, &puts, self.newest_revision.next());
        Ok(self.change(transaction.ops.iter().chain(&puts))?)
    }

    fn holds(&self, transaction: &Transaction) -> rusqlite::Result<bool> {
        for compare in &transaction.compares {
            if !self.compare_holds(compare)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn conflict(&self, transaction: &Transaction) -> rusqlite::Result<TransactionOutcome> {
        let current = transaction.compares.iter().map(|compare| self.get(&compare.key));
        Ok(TransactionOutcome::Conflict { current: current.collect::<Result<_, _>>()?, revision: self.newest_revision })
    }

    /// Applies operations at one revision.
    fn change<'o>(&mut self, ops: impl Iterator<Item = &'o Op>) -> rusqlite::Result<TransactionOutcome> {
        let revision = self.newest_revision.next();
        let mut changes = 0;
        for op in ops {
            let position = LogPosition::new(revision, changes);
            let is_change = match op {
                Op::Put { key, value, ttl } => self.put(position, key, value, *ttl)?,
                Op::Delete { key } => self.delete(position, key)?,
            };
            changes += usize::from(is_change);
        }
        if changes > 0 {
            self.newest_revision = revision;
        }
        Ok(TransactionOutcome::Committed(self.newest_revision))
    }

    /// Removes due keys at one revision, at most one transaction's worth. A renewal committed before has moved the
    /// deadline and wins. Returns true if more may be due.
    pub(super) fn expire_due_keys(&mut self) -> rusqlite::Result<bool> {
        let sql = "SELECT key FROM latest WHERE deadline IS NOT NULL AND deadline <= ?1 ORDER BY deadline LIMIT ?2";
        let mut select = self.connection.prepare_cached(sql)?;
        let due = select.query_map((milliseconds(self.now), OPS_MAX), |row| row.get::<_, Vec<u8>>(0))?;
        let due = due.map(|key| key.map(Key::from)).collect::<Result<Vec<_>, _>>()?;
        let revision = self.newest_revision.next();
        for (part, key) in due.iter().enumerate() {
            self.delete(LogPosition::new(revision, part), key)?;
        }
        if !due.is_empty() {
            self.newest_revision = revision;
        }
        Ok(due.len() == OPS_MAX)
    }

    fn get(&self, key: &Key) -> rusqlite::Result<Option<StoreEntry>> {
        match latest_position(self.connection, key)? {
            Some((position, true)) => read_entry(self.connection, key, position).map(Some),
            Some((_, false)) | None => Ok(None),
        }
    }

    fn compare_holds(&self, compare: &Compare) -> rusqlite::Result<bool> {
        let current = latest_position(self.connection, &compare.key)?;
        let current = current.and_then(|(position, is_live)| is_live.then(|| position.revision()));
        Ok(current == compare.revision)
    }

    fn put(&self, position: LogPosition, key: &Key, value: &[u8], ttl: Option<Duration>) -> rusqlite::Result<bool> {
        let previous = latest_position(self.connection, key)?.map(|(position, _)| position);
        self.append(position, previous, key, Some(value))?;
        let ttl = ttl.map(round_up_to_seconds);
        let deadline = ttl.map(|ttl| milliseconds(self.now + ttl));
        let ttl = ttl.map(milliseconds);
        let sql = match previous {
            Some(_) => "UPDATE latest SET place = ?2, live = 1, ttl = ?3, deadline = ?4 WHERE key = ?1",
            None => "INSERT INTO latest (key, place, live, ttl, deadline) VALUES (?1, ?2, 1, ?3, ?4)",
        };
        self.connection.prepare_cached(sql)?.execute((&key[..], position, ttl, deadline))?;
        Ok(true)
    }

    /// Deletes a key; `false` if it is absent.
    fn delete(&self, position: LogPosition, key: &Key) -> rusqlite::Result<bool> {
        let Some((previous, true)) = latest_position(self.connection, key)? else { return Ok(false) };
        self.append(position, Some(previous), key, None)?;
        let sql = "UPDATE latest SET place = ?2, live = 0, ttl = NULL, deadline = NULL WHERE key = ?1";
        self.connection.prepare_cached(sql)?.execute((&key[..], position))?;
        Ok(true)
    }

    fn append(
        &self,
        position: LogPosition,
        previous: Option<LogPosition>,
        key: &Key,
        value: Option<&[u8]>,
    ) -> rusqlite::Result<()> {
        let sql = "INSERT INTO log (place, previous, key, value) VALUES (?1, ?2, ?3, ?4)";
        self.connection.prepare_cached(sql)?.execute((position, previous, &key[..], value))?;
        Ok(())
    }
}

/// The next deadline, as time since boot.
pub(super) fn next_deadline(connection: &Connection) -> rusqlite::Result<Option<Duration>> {
    let sql = "SELECT deadline FROM latest WHERE deadline IS NOT NULL ORDER BY deadline LIMIT 1";
    let deadline: Option<u64> = connection.prepare_cached(sql)?.query_row([], |row| row.get(0)).optional()?;
    Ok(deadline.map(Duration::from_millis))
}

/// Restarts all times to live after a reboot, since deadlines of the previous boot have no meaning.
pub(super) fn restart_deadlines(connection: &Connection, boot: &str, now: Duration) -> rusqlite::Result<()> {
    connection.execute("UPDATE latest SET deadline = ttl + ?1 WHERE deadline IS NOT NULL", [milliseconds(now)])?;
    connection.execute("UPDATE state SET boot = ?1", [boot])?;
    Ok(())
}

fn round_up_to_seconds(ttl: Duration) -> Duration {
    let rounded_up = ttl.as_secs() + u64::from(ttl.subsec_nanos() > 0);
    Duration::from_secs(rounded_up.min(TTL_SECONDS_MAX))
}

/// A century, so that the sum with the time since boot stays representable.
const TTL_SECONDS_MAX: u64 = 100 * 365 * 24 * 60 * 60;

fn milliseconds(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

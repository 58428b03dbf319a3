//! The database behind the disk store: one keyspace of rows and records.

use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use fjall::config::{CompressionPolicy, FilterPolicy};
use fjall::{
    AbstractTree, Database, Keyspace, KeyspaceCreateOptions, OwnedWriteBatch, PersistMode,
    Readable, Slice,
};
use model::{Seqno, VbId};

use super::DiskOptions;
use crate::record::{DecodeError, RowKey, StoredVb, decode_vb, row_key, split_row_key, vb_key};
use crate::{ErrorKind, StoreError};

/// Rows that one journaled batch takes at most; bounds the memory of a commit.
pub(crate) const ROWS_PER_BATCH: usize = 500;

/// Bytes of journals above which old ones are worked off; the least that the database takes.
const JOURNAL_BYTES_MAX: u64 = 64 << 20;

/// Full memtables that may wait to be written while another one is filled.
const SEALED_MEMTABLES_MAX: usize = 1;

/// How often a writer that waits for the database's worker looks again.
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// Files kept open.
const OPEN_FILES_MAX: usize = 128;

/// An open database. Dropping the last handle closes it.
pub(crate) struct Engine {
    pub(crate) rows: Keyspace,
    pub(crate) db: Database,
    memtable_bytes: u64,
}

/// A record that cannot be decoded, or a database that does not answer.
pub(crate) enum EngineError {
    Record(VbId, DecodeError),
    Database(fjall::Error),
}

impl From<fjall::Error> for EngineError {
    fn from(error: fjall::Error) -> Self {
        Self::Database(error)
    }
}

impl EngineError {
    /// The error of a read.
    pub(crate) fn into_store_error(self, during: &'static str) -> StoreError {
        match self {
            Self::Record(vb, error) => StoreError::new(ErrorKind::Corrupt, during)
                .of(vb)
                .because(error),
            Self::Database(error) => read_error(error, during),
        }
    }
}

/// What a failed read of the database means.
pub(crate) fn read_error(error: fjall::Error, during: &'static str) -> StoreError {
    let kind = match &error {
        fjall::Error::Io(_) | fjall::Error::Storage(fjall::LsmError::Io(_)) => ErrorKind::Io,
        _ => ErrorKind::Corrupt,
    };
    StoreError::new(kind, during).because(error)
}

impl Engine {
    /// Opens or makes the database at `path`.
    pub(crate) fn open(path: &Path, options: &DiskOptions) -> Result<Self, fjall::Error> {
        let db = Database::builder(path)
            .worker_threads(1)
            .cache_size(options.cache_bytes)
            .max_cached_files(Some(OPEN_FILES_MAX))
            .max_journaling_size(JOURNAL_BYTES_MAX)
            .manual_journal_persist(true)
            .open()?;
        let rows = db.keyspace("rows", || {
            KeyspaceCreateOptions::default()
                .max_memtable_size(options.memtable_bytes)
                .filter_policy(FilterPolicy::disabled())
                .data_block_compression_policy(CompressionPolicy::disabled())
                .index_block_compression_policy(CompressionPolicy::disabled())
        })?;
        Ok(Self {
            rows,
            db,
            memtable_bytes: options.memtable_bytes,
        })
    }

    /// A batch that is atomic, and durable after [`Engine::sync`].
    pub(crate) fn batch(&self) -> OwnedWriteBatch {
        OwnedWriteBatch::with_capacity(self.db.clone(), 16)
    }

    /// Waits until the memtables take no more than they should.
    ///
    /// The database itself leaves sealing a full one to its worker, and so lets it grow for as
    /// long as that is busy merging tables.
    pub(crate) fn bound_memory(&self) -> Result<(), fjall::Error> {
        if self.rows.tree.active_memtable().size() <= self.memtable_bytes {
            return Ok(());
        }
        self.rows.rotate_memtable()?;
        while self.rows.sealed_memtable_count() > SEALED_MEMTABLES_MAX {
            std::thread::sleep(LOOK_AGAIN);
            // Fails when the worker is dead.
            self.flush_journal()?;
        }
        Ok(())
    }

    /// Hands everything journaled to the operating system; fails when there is no space for it.
    pub(crate) fn flush_journal(&self) -> Result<(), fjall::Error> {
        self.db.persist(PersistMode::Buffer)
    }

    /// Makes everything journaled durable. After a failure nothing is known of what is on disk.
    pub(crate) fn sync(&self) -> Result<(), fjall::Error> {
        self.db.persist(PersistMode::SyncData)
    }

    /// The record of a vBucket as of `view`.
    pub(crate) fn stored_vb(
        &self,
        view: &fjall::Snapshot,
        vb: VbId,
    ) -> Result<Option<StoredVb>, EngineError> {
        let value = view.get(&self.rows, vb_key(vb))?;
        value
            .map(|bytes| decode_vb(vb, &bytes))
            .transpose()
            .map_err(|error| EngineError::Record(vb, error))
    }

    /// Every vBucket with a record. Rows that count for none are removed: they lie above the high
    /// seqno of their record, or have none, because whatever wrote or removed them was cut short.
    ///
    /// Cost: three seeks per vBucket.
    pub(crate) fn recover(&self) -> Result<Vec<(VbId, StoredVb)>, EngineError> {
        let view = self.db.snapshot();
        let mut found = Vec::new();
        let mut next = Some(VbId(0));
        let mut removed = 0;
        while let Some(from) = next {
            let Some(first) = view.range(&self.rows, row_key(from, Seqno::ZERO)..).next() else {
                break;
            };
            let Some((vb, _)) = split_row_key(&first.key()?) else {
                let error = DecodeError::Content("a row key has a wrong length");
                return Err(EngineError::Record(from, error));
            };
            let stored = self.stored_vb(&view, vb)?;
            let end = stored
                .as_ref()
                .map_or(Seqno::ZERO, |one| one.record.high_seqno.next());
            removed += self.remove_rows(&view, row_key(vb, end)..vb_key(vb))?;
            found.extend(stored.map(|one| (vb, one)));
            next = vb.0.checked_add(1).map(VbId);
        }
        if removed > 0 {
            tracing::info!(
                rows = removed,
                "removed rows of commits that were cut short"
            );
            self.sync()?;
        }
        Ok(found)
    }

    /// Removes the rows of `range` as `view` sees them, in batches, not durably; tells how many.
    pub(crate) fn remove_rows(
        &self,
        view: &fjall::Snapshot,
        range: Range<RowKey>,
    ) -> Result<usize, fjall::Error> {
        let mut batch = self.batch();
        let mut removed = 0;
        for row in view.range(&self.rows, range) {
            batch.remove(&self.rows, row.key()?);
            removed += 1;
            if batch.len() >= ROWS_PER_BATCH {
                std::mem::replace(&mut batch, self.batch()).commit()?;
            }
        }
        batch.commit()?;
        Ok(removed)
    }

    /// Adds a row or record to a batch.
    pub(crate) fn put(&self, batch: &mut OwnedWriteBatch, key: RowKey, value: &[u8]) {
        batch.insert(&self.rows, key, Slice::from(value));
    }
}

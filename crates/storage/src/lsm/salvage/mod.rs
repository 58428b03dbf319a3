//! Salvage: copies the readable data of a damaged store into a new one.
//!
//! ```text
//!  manifest  readable states of the vBuckets
//!  logs      whole groups, also those after damage     -> newest row of each name -> commits
//!  runs      undamaged blocks, found without the index
//! ```
//!
//! If the manifest is undamaged and all its files exist, only these are read. Otherwise all
//! existing files are read, and rows that were removed recently may be back.

mod old;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cipher::EncryptionKeys;
use model::{Document, FailoverEntry, Seqno, VbId, VbRecord, VbState, VbUuid};

use super::check::check_files;
use super::damage::Damage;
use super::directory::{OpenError, open_error};
use super::options::DiskOptions;
use super::reading::ReadOnly;
use super::store::DiskStore;
use crate::StoreError;
use crate::port::{KvStore as _, VbBatch};
use old::{Old, SalvagedRows};

/// Maximum documents and bytes of one commit into the new store.
const COMMIT_ROWS: usize = 10_000;
const COMMIT_BYTES: usize = 8 << 20;

/// Result of a salvage.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Salvaged {
    /// Number of vBuckets of which something was copied.
    pub vbuckets: u64,
    /// The highest of these vBuckets.
    pub last: Option<VbId>,
    /// Number of copied rows, including tombstones.
    pub rows: u64,
    /// Damage found by a [`check`](super::check()) of the damaged store. Damaged rows are lost
    /// unless another copy exists. Without the manifest, removed rows may be back.
    pub damaged: Vec<Damage>,
    /// Number of rows that were found but not copied, because their value is lost.
    pub rows_damaged: u64,
    /// vBuckets with a new record, which begin a new history.
    pub without_record: Vec<VbId>,
    /// Number of acknowledged commits that are missing, as far as known.
    pub commits_lost: u64,
    /// Whether the manifest of the collections is damaged or missing; then the new store has none.
    pub manifest_lost: bool,
    /// Number of versions of a history. It is not copied, but begins anew, so that it has no gap.
    pub history_left: u64,
}

impl Salvaged {
    /// Whether no data is known to be damaged or missing.
    pub fn is_whole(&self) -> bool {
        self.damaged.is_empty()
            && self.rows_damaged == 0
            && self.without_record.is_empty()
            && self.commits_lost == 0
            && !self.manifest_lost
            && self.history_left == 0
    }
}

/// Reason why nothing, or not all readable data, was copied.
#[derive(Debug, thiserror::Error)]
pub enum SalvageError {
    /// The old store cannot be read at all.
    #[error("{0}: {1}")]
    Read(PathBuf, io::Error),
    /// The old store is in use, or this release cannot read it.
    #[error("{0}")]
    Refused(OpenError),
    /// The new store cannot be created.
    #[error(transparent)]
    Target(#[from] OpenError),
    /// The place of the copy is not empty; with what it holds.
    #[error("{0} exists: the copy needs a new or an empty directory")]
    Occupied(PathBuf),
    /// The new store cannot be written.
    #[error(transparent)]
    Write(#[from] StoreError),
}

/// Copies every readable row of the store in `from` into a new store in `to`, which must be empty
/// or missing. Changes nothing in `from`. The new store is left as after an unclean stop, so every
/// active vBucket of it begins a new history. With `keys`, which must open the old store, the new
/// one is encrypted.
///
/// # Errors
/// See [`SalvageError`]. Damage is no error.
///
/// Cost: reads the store up to four times. Memory: the rows of one vBucket without the values that
/// are stored apart, and 40 bytes for each row of a log.
pub fn salvage(
    from: &Path,
    to: &Path,
    keys: Option<&Arc<EncryptionKeys>>,
) -> Result<Salvaged, SalvageError> {
    let files = ReadOnly::lock(from, keys).map_err(SalvageError::Refused)?;
    let read = |error: io::Error| match error.kind() {
        io::ErrorKind::Unsupported => SalvageError::Refused(open_error(from, &error)),
        _ => SalvageError::Read(from.to_owned(), error),
    };
    let checked = check_files(&files, &mut |_| {}).map_err(read)?;
    let mut report = Salvaged {
        damaged: checked.damaged,
        ..Salvaged::default()
    };
    report.damaged.extend(files.failures());
    let old = Old::read(&files).map_err(read)?;
    let (store, opened) = DiskStore::open_with_keys(to, DiskOptions::default(), keys)?;
    if !opened.fresh {
        return Err(SalvageError::Occupied(to.to_owned()));
    }
    let Some(mut old) = old else {
        return Ok(report);
    };
    report.commits_lost = old.commits_lost;
    report.manifest_lost = old.text_lost;
    if let Some(text) = &old.text {
        store.set_manifest(text)?;
    }
    for vb in old.vbs() {
        let found = old.rows_of(vb).map_err(read)?;
        if let Some(found) = found {
            copy(&mut old, vb, found, &store, &mut report)?;
        }
    }
    Ok(report)
}

fn copy(
    old: &mut Old<'_>,
    vb: VbId,
    found: SalvagedRows,
    store: &DiskStore,
    report: &mut Salvaged,
) -> Result<(), SalvageError> {
    report.history_left += found.versions;
    if found.record.is_none() && found.rows.is_empty() {
        return Ok(());
    }
    if found.record.is_none() {
        report.without_record.push(vb);
    }
    let record = found.record.unwrap_or_else(|| new_record(vb));
    let record = covering(record, &found.metas);
    let (mut documents, mut bytes) = (Vec::new(), 0);
    for row in found.rows.values() {
        // Its value is lost.
        let Ok(document) = old.document(row) else {
            report.rows_damaged += 1;
            continue;
        };
        bytes += document.key_and_value().len();
        documents.push((document, Seqno::ZERO));
        report.rows += 1;
        if documents.len() >= COMMIT_ROWS || bytes >= COMMIT_BYTES {
            write(store, vb, &record, &documents)?;
            documents.clear();
            bytes = 0;
        }
    }
    write(store, vb, &record, &documents)?;
    report.vbuckets += 1;
    report.last = report.last.max(Some(vb));
    Ok(())
}

/// Returns a record for a vBucket of which only rows are left.
fn new_record(vb: VbId) -> VbRecord {
    // A temporary history: the first start begins a new one.
    let first = FailoverEntry {
        uuid: VbUuid(u64::from(vb.0) + 1),
        seqno: Seqno::ZERO,
    };
    VbRecord::new(VbState::Active, first)
}

/// Returns the record with limits that cover all rows: it may be older than they are.
fn covering(mut record: VbRecord, metas: &old::Highest) -> VbRecord {
    record.high_seqno = record.high_seqno.max(metas.seqno);
    record.max_cas = record.max_cas.max(metas.cas);
    record.max_deleted_rev = record.max_deleted_rev.max(metas.deleted_rev);
    record.snapshot.end = record.snapshot.end.max(record.high_seqno);
    // Rows may be missing.
    record.counts = None;
    record
}

fn write(
    store: &DiskStore,
    vb: VbId,
    record: &VbRecord,
    documents: &[(Document, Seqno)],
) -> Result<(), StoreError> {
    let batch = VbBatch {
        vb,
        record,
        changes: &documents,
    };
    store.commit(&[batch]).map(drop)
}

//! Where a row lies that cannot be read, to be told.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fjall::Readable as _;
use model::{Seqno, VbId};

use super::engine::Engine;
use super::salvage::{BLOB_HEADER_BYTES, damaged_tables};
use super::table_lists::{BLOBS, KEYSPACES};
use crate::disk::journal_files::path_of;
use crate::disk::value_position::ValuePosition;
use crate::port::DamagedRow;
use crate::record::{RowKey, decode_reference, decode_row, row_key, split_row_key};

/// The first row of a vBucket in the tables, behind seqno `after` and up to `high`, that cannot be read.
pub(super) fn locate(
    engine: &Arc<Engine>,
    path: &Path,
    vb: VbId,
    after: Seqno,
    high: Seqno,
) -> DamagedRow {
    let tables = engine.db.snapshot();
    let keys = row_key(vb, after.next())..row_key(vb, high.next());
    for row in tables.range(&engine.rows, keys) {
        let Ok(key) = row.key() else { break };
        let known: Result<&RowKey, _> = (*key).try_into();
        let (Ok(key), Some((_, seqno))) = (known, split_row_key(&key)) else {
            continue;
        };
        let files = match tables.get(&engine.rows, key) {
            Ok(None) => continue,
            Ok(Some(value)) => match decode_reference(key, &value) {
                Ok(None) if decode_row(vb, seqno, &value).is_ok() => continue,
                Ok(Some((generation, place))) => {
                    if is_whole(engine, generation, place, vb, seqno) {
                        continue;
                    }
                    vec![path_of(path, generation)]
                }
                _ => damaged_tables(path),
            },
            Err(_) => match blob_files(path, key) {
                files if files.is_empty() => damaged_tables(path),
                files => files,
            },
        };
        return DamagedRow {
            seqno: Some(seqno),
            files,
        };
    }
    DamagedRow {
        seqno: None,
        files: damaged_tables(path),
    }
}

/// Whether a row that lies in a journal is what was written.
fn is_whole(engine: &Engine, generation: u64, place: u64, vb: VbId, seqno: Seqno) -> bool {
    let files = engine.value_log.files();
    let row = files
        .get(&generation)
        .zip(ValuePosition::of_number(place))
        .and_then(|(file, place)| place.read(file).ok());
    row.is_some_and(|row| decode_row(vb, seqno, &row).is_ok())
}

/// Files beside the tables that hold the row of a key.
fn blob_files(path: &Path, key: &RowKey) -> Vec<PathBuf> {
    let keyspaces = fs::read_dir(path.join("db").join(KEYSPACES));
    let directories = keyspaces.into_iter().flatten().flatten();
    let files = directories.filter_map(|keyspace| fs::read_dir(keyspace.path().join(BLOBS)).ok());
    let mut found: Vec<PathBuf> = files
        .flatten()
        .flatten()
        .map(|file| file.path())
        .filter(|file| holds(file, key))
        .collect();
    found.sort();
    found
}

fn holds(path: &Path, key: &RowKey) -> bool {
    let mut there = *key;
    let read = File::open(path).and_then(|file| file.read_exact_at(&mut there, BLOB_HEADER_BYTES));
    read.is_ok() && there == *key
}

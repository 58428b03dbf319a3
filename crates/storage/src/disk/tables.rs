//! The database of the sorted tables.

use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::sync::Arc;

use fjall::compaction::filter::Factory;
use fjall::config::{
    BloomConstructionPolicy, CompressionPolicy, FilterPolicy, FilterPolicyEntry,
    PartitioningPolicy, PinningPolicy,
};
use fjall::{CompressionType, Database, Keyspace, KeyspaceCreateOptions, KvSeparationOptions};

use super::options::DiskOptions;
use super::value_log::{InlineFactory, ValueLog};

/// Bytes of the tables' own journals above which old ones are worked off; the least that the
/// database takes.
const JOURNAL_BYTES_MAX: u64 = 64 << 20;

/// Bytes of the tables' own memtable; only a store of an earlier format has anything in it.
const MEMTABLE_BYTES: u64 = 4 << 20;

/// Bits of the filter that tells which of these runs a row is not in: one in a hundred is asked
/// in vain. What they were merged into has no filters; a row that is looked for is there.
const FILTER_BITS: f32 = 10.0;

/// Files kept open.
const OPEN_FILES_MAX: usize = 128;

/// Opens or makes the database, whose merges take over rows of the value log.
pub(crate) fn open_tables(
    database: &Path,
    options: &DiskOptions,
    value_log: &Arc<ValueLog>,
) -> Result<(Database, Keyspace), fjall::Error> {
    let taking_over: Arc<dyn Factory> =
        Arc::new(InlineFactory(AssertUnwindSafe(Arc::clone(value_log))));
    let db = Database::builder(database)
        .with_compaction_filter_factories(Arc::new(move |_| Some(Arc::clone(&taking_over))))
        // Its workers would take a failed merge for the end; see `merge`.
        .worker_threads_unchecked(0)
        .cache_size(options.cache_bytes)
        .max_cached_files(Some(OPEN_FILES_MAX))
        .max_journaling_size(JOURNAL_BYTES_MAX)
        .manual_journal_persist(true)
        .open()?;
    let rows = db.keyspace("rows", || {
        KeyspaceCreateOptions::default()
            .max_memtable_size(MEMTABLE_BYTES)
            .filter_policy(filters())
            // Of the indexes only the tops lie in memory; the rest is read through the cache.
            .index_block_pinning_policy(PinningPolicy::new([true, false]))
            .index_block_partitioning_policy(PartitioningPolicy::new([false, true]))
            .data_block_compression_policy(CompressionPolicy::disabled())
            .index_block_compression_policy(CompressionPolicy::disabled())
            .with_kv_separation(Some(key_value_separation(options.blob_bytes_min)))
    })?;
    Ok((db, rows))
}

/// How large rows lie apart from the tables: each in a file, which goes once the row is gone from
/// all tables. So none of these files is ever rewritten for what is left of it.
fn key_value_separation(bytes_min: u32) -> KvSeparationOptions {
    KvSeparationOptions::default()
        .separation_threshold(bytes_min)
        .file_target_size(1)
        .compression(CompressionType::None)
}

/// Filters for the runs that lie side by side. To the database, what it is given as a sorted run
/// is of level 1, wherever it then lies; what was merged is of the level where it lies, which is 1
/// only in stores of many terabytes.
fn filters() -> FilterPolicy {
    let bloom = FilterPolicyEntry::Bloom(BloomConstructionPolicy::BitsPerKey(FILTER_BITS));
    FilterPolicy::new([bloom, bloom, FilterPolicyEntry::None])
}

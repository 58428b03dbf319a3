//! Groups with rows for every vBucket.

use std::num::{IntErrorKind, ParseIntError};

use bucket::Hold;
use model::VbId;
use registry::ServedBucket;
use storage::DiskUsage;

use super::catalogue::{VBUCKETS, VbRow};
use super::figures::VbFigures;
use super::rows::{PART_BYTES, Rows};
use super::scope::StatError;

/// Number of vBuckets in one part.
const PART_VBUCKETS: u16 = 64;

/// Whether a group has rows for every vBucket.
pub(super) fn is_group(name: &str) -> bool {
    matches!(
        name,
        "vbucket"
            | "prev-vbucket"
            | "vbucket-details"
            | "vbucket-seqno"
            | "durability-monitor"
            | "vbucket-durability-state"
            | "failovers"
            | "checkpoint"
            | "hash"
    )
}

/// Writes the next part of a group of vBuckets: of one, or of all on this node from `first` on. Returns the next
/// vBucket.
///
/// Each vBucket is read under its own lock; rows are written without it.
pub(super) fn part(
    group: &str,
    arguments: &[&str],
    served: &ServedBucket,
    first: u16,
    rows: &mut Rows<'_, '_>,
) -> Result<Option<u16>, StatError> {
    let selected = rows_of(group);
    let (mut next, end, all) = match arguments {
        [] => (first, served.bucket.vbuckets(), true),
        [vb] => {
            let id = number(vb)?.0;
            (id, id.saturating_add(1), false)
        }
        _ => return Err(StatError::Argument("one vBucket at most")),
    };
    let full = rows.bytes() + PART_BYTES;
    let last = end.min(next.saturating_add(PART_VBUCKETS));
    while next < last && rows.bytes() < full {
        let id = VbId(next);
        next += 1;
        let found = served
            .bucket
            .with_vbucket_for(Hold::Stat, id, |vb| VbFigures::of(vb, group));
        let Some(mut figures) = found else {
            match served.bucket.quarantined(id) {
                Some(known) => quarantined(group, id, &known.reason, rows),
                None if all => {}
                None => return Err(StatError::NoVbucket),
            }
            continue;
        };
        figures.history = served.bucket.history_kept(id);
        one(group, &selected, &figures, rows);
    }
    Ok((next < end).then_some(next))
}

fn rows_of(group: &str) -> Vec<&'static VbRow> {
    let of_group = |row: &&VbRow| row.about.groups.contains(&group);
    VBUCKETS.iter().filter(of_group).collect()
}

/// The group of each vBucket's disk usage.
const DISK: &str = "diskinfo";

/// Position in the disk usage of vBuckets. All vBuckets share the same files, so each one's usage is estimated by
/// its share of the rows.
pub struct Shares {
    whole: DiskUsage,
    /// Rows of the vBuckets counted so far.
    total: u64,
    /// The next vBucket to count. After the last one, rows are written.
    counted: u16,
    done: u16,
}

impl Shares {
    /// Starts with the disk usage of the whole store.
    pub(super) fn new(whole: DiskUsage) -> Self {
        Self {
            whole,
            total: 0,
            counted: 0,
            done: 0,
        }
    }
}

/// Writes the next part of the disk usage of vBuckets; returns the next position.
pub(super) fn disk(
    mut shares: Shares,
    served: &ServedBucket,
    rows: &mut Rows<'_, '_>,
) -> Option<Shares> {
    let look = |id| {
        served
            .bucket
            .with_vbucket_for(Hold::Stat, VbId(id), |vb| VbFigures::of(vb, DISK))
    };
    let all = served.bucket.vbuckets();
    if shares.counted < all {
        let next = shares.counted.saturating_add(PART_VBUCKETS).min(all);
        let some = (shares.counted..next).filter_map(look);
        shares.total += some.map(|figures| figures.rows()).sum::<u64>();
        shares.counted = next;
        return Some(shares);
    }
    let selected = rows_of(DISK);
    let next = shares.done.saturating_add(PART_VBUCKETS).min(all);
    for mut figures in (shares.done..next).filter_map(look) {
        let part = |bytes| share(bytes, figures.rows(), shares.total);
        figures.disk = DiskUsage {
            data_bytes: part(shares.whole.data_bytes),
            file_bytes: part(shares.whole.file_bytes),
        };
        one(DISK, &selected, &figures, rows);
    }
    shares.done = next;
    (next < all).then_some(shares)
}

/// Returns `bytes * rows / total`; 0 if `total` is 0.
fn share(bytes: u64, rows: u64, total: u64) -> u64 {
    let part = (u128::from(bytes) * u128::from(rows)).checked_div(u128::from(total));
    part.and_then(|part| part.try_into().ok()).unwrap_or(0)
}

/// Parses the number of a vBucket.
pub(super) fn number(word: &str) -> Result<VbId, StatError> {
    let number = word.parse().map_err(|error: ParseIntError| {
        StatError::Argument(match error.kind() {
            IntErrorKind::PosOverflow => "the vBucket is out of range",
            _ => "the vBucket is not a number",
        })
    })?;
    Ok(VbId(number))
}

/// Writes the row of a vBucket that is not loaded because its data in the store is damaged.
fn quarantined(group: &str, id: VbId, reason: &str, rows: &mut Rows<'_, '_>) {
    rows.prefix(id);
    match group {
        "vbucket" | "vbucket-details" | "vbucket-durability-state" => rows.row("", "quarantined"),
        "prev-vbucket" => rows.row("", "dead"),
        _ => {}
    }
    if group == "vbucket-details" {
        rows.row(":quarantine_reason", reason);
    }
}

fn one(group: &str, selected: &[&VbRow], figures: &VbFigures, rows: &mut Rows<'_, '_>) {
    rows.prefix(figures.id);
    match group {
        "vbucket" | "vbucket-details" | "vbucket-durability-state" => {
            rows.row("", figures.state.name());
        }
        "prev-vbucket" => rows.row("", "dead"),
        _ => {}
    }
    rows.prefix(format_args!("{}:", figures.id));
    for row in selected {
        rows.value(row.about.name, &(row.value)(figures));
    }
    match group {
        "failovers" => failovers(figures, rows),
        "checkpoint" => {
            open_checkpoint(figures, rows);
            cursors(figures, rows);
        }
        "durability-monitor" => chains(figures, rows),
        "hash" => {
            for (documents, buckets) in figures.fill.iter().enumerate().filter(|one| *one.1 > 0) {
                rows.row(format_args!("histo_{documents},{}", documents + 1), buckets);
            }
        }
        _ => {}
    }
}

fn chains(figures: &VbFigures, rows: &mut Rows<'_, '_>) {
    for (name, chain) in ["First", "Second"].iter().zip(&figures.durability.chains) {
        rows.row(format_args!("replication_chain_{name}:size"), chain.len());
        for (node, acknowledged) in chain {
            let row = format_args!("replication_chain_{name}:{node}:last_ack_seqno");
            rows.row(row, acknowledged.0);
        }
    }
}

fn failovers(figures: &VbFigures, rows: &mut Rows<'_, '_>) {
    rows.row("num_entries", figures.failovers.len());
    rows.row("num_erroneous_entries_erased", 0_u32);
    for (index, entry) in figures.failovers.iter().enumerate() {
        rows.row(format_args!("{index}:id"), entry.uuid.0);
        rows.row(format_args!("{index}:seq"), entry.seqno);
    }
}

/// Writes one block of rows for each stream that reads this vBucket, under the name of its cursor.
fn cursors(figures: &VbFigures, rows: &mut Rows<'_, '_>) {
    for cursor in &figures.cursors {
        rows.prefix(format_args!("{}:{}:", figures.id, cursor.name));
        rows.row("cursor_checkpoint_id", cursor.checkpoint);
        rows.row("cursor_seqno", cursor.seqno);
        rows.row("num_items_for_cursor", cursor.behind);
        rows.row("pinned_bytes", cursor.pinned_bytes);
    }
}

fn open_checkpoint(figures: &VbFigures, rows: &mut Rows<'_, '_>) {
    let checkpoints = &figures.checkpoints;
    rows.prefix(format_args!("{}:id_{}:", figures.id, checkpoints.open_id));
    rows.row("state", "Open");
    rows.row("type", format_args!("{:?}", checkpoints.open_kind));
    rows.row("snap_start", checkpoints.snapshot_start);
    rows.row("snap_end", checkpoints.snapshot_end);
    rows.row("visible_snap_end", checkpoints.visible_end);
}

//! Groups with rows for every vBucket.

use bucket::Hold;
use model::VbId;
use storage::DiskUsage;

use super::StatError;
use super::catalogue::{VBUCKETS, VbRow};
use super::figures::VbFigures;
use super::rows::Rows;
use crate::served::ServedBucket;

/// A group of vBuckets: of one, or of all that are here.
///
/// Every vBucket is looked at under its own lock; rows are written without it.
pub(super) fn collect(
    group: &str,
    arguments: &[&str],
    served: &ServedBucket,
    rows: &mut Rows<'_, '_>,
) -> Result<(), StatError> {
    let selected: Vec<&VbRow> = VBUCKETS
        .iter()
        .filter(|row| row.about.groups.contains(&group))
        .collect();
    let (wanted, all) = match arguments {
        [] => (0..served.bucket.vbuckets(), true),
        [vb] => {
            let id = number(vb)?.0;
            (id..id.saturating_add(1), false)
        }
        _ => return Err(StatError::Argument("one vBucket at most")),
    };
    for id in wanted.map(VbId) {
        let found = served
            .bucket
            .with_vbucket_for(Hold::Stat, id, |vb| VbFigures::of(vb, group));
        let Some(mut figures) = found else {
            if all {
                continue;
            }
            return Err(StatError::NoVbucket);
        };
        figures.history = served.bucket.history_kept(id);
        one(group, &selected, &figures, rows);
    }
    Ok(())
}

/// What each vBucket takes of the store. All lie in the same files, which nobody counts apart, so
/// it is told by their shares of the rows.
pub(super) fn disk(served: &ServedBucket, whole: DiskUsage, rows: &mut Rows<'_, '_>) {
    const GROUP: &str = "diskinfo";
    let look = |id| {
        served
            .bucket
            .with_vbucket_for(Hold::Stat, id, |vb| VbFigures::of(vb, GROUP))
    };
    let ids = (0..served.bucket.vbuckets()).map(VbId);
    let mut found: Vec<VbFigures> = ids.filter_map(look).collect();
    let total = found.iter().map(VbFigures::rows).sum();
    let of_group = |row: &&VbRow| row.about.groups.contains(&GROUP);
    let selected: Vec<&VbRow> = VBUCKETS.iter().filter(of_group).collect();
    for figures in &mut found {
        let part = |bytes| share(bytes, figures.rows(), total);
        figures.disk = DiskUsage {
            data_bytes: part(whole.data_bytes),
            file_bytes: part(whole.file_bytes),
        };
        one(GROUP, &selected, figures, rows);
    }
}

/// `bytes * rows / total`, 0 without rows.
fn share(bytes: u64, rows: u64, total: u64) -> u64 {
    let part = (u128::from(bytes) * u128::from(rows)).checked_div(u128::from(total));
    part.and_then(|part| part.try_into().ok()).unwrap_or(0)
}

/// A vBucket as an argument.
pub(super) fn number(word: &str) -> Result<VbId, StatError> {
    let number = word
        .parse()
        .map_err(|_| StatError::Argument("the vBucket is not a number"))?;
    Ok(VbId(number))
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
    rows.row("num_erroneous_entries_erased", 0);
    for (index, entry) in figures.failovers.iter().enumerate() {
        rows.row(format_args!("{index}:id"), entry.uuid.0);
        rows.row(format_args!("{index}:seq"), entry.seqno);
    }
}

/// One block for each stream that reads here. How far a cursor is, is in its name's rows.
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
}

//! A merge: the rows of several runs in one order, the newest of each name.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use cipher::SEAL_BYTES;
use model::VbId;

use super::policy::MergePlan;
use crate::lsm::bytes::FileKind;
use crate::lsm::current::{ValueFile, Values};
use crate::lsm::file_draft::FileDraft;
use crate::lsm::flush::ManifestChange;
use crate::lsm::row::{Row, ValuePlace};
use crate::lsm::run::{Cursor, Merged, PARTS, Run, RunWriter, part_of};
use crate::lsm::state::{Lineage, State};
use crate::lsm::writer::{Core, lower};
use crate::per_vb::PerVb;

/// Bytes of values that are written at once.
const BUFFER_BYTES: usize = 256 << 10;
/// Rows between two checks whether the store is closing.
const ROWS_PER_LOOK: u64 = 1024;

/// Writer that moves values into a new file.
struct ValueWriter<'c> {
    core: &'c Core,
    values: Values,
    emptied: &'c BTreeSet<u64>,
    file: Option<(u64, FileDraft)>,
    at: u64,
    buffer: Vec<u8>,
    row: Vec<u8>,
}

impl ValueWriter<'_> {
    /// Returns the row with its value in the new file, if the old file is to be emptied.
    fn moved<'r>(&'r mut self, row: Row<'r>) -> io::Result<Row<'r>> {
        let Some(place) = row
            .place()
            .filter(|place| self.emptied.contains(&place.file))
        else {
            return Ok(row);
        };
        let from = self.buffer.len();
        self.buffer.reserve(place.length as usize + SEAL_BYTES);
        self.buffer.resize(from + place.length as usize, 0);
        if let Err(error) = self.values.read_into(place, &mut self.buffer[from..]) {
            self.buffer.truncate(from);
            // A damaged value stays in its file, for salvage.
            return match error.kind() {
                io::ErrorKind::InvalidData => Ok(row),
                _ => Err(error),
            };
        }
        let number = if let Some((number, _)) = &self.file {
            *number
        } else {
            let number = self.core.next_file.fetch_add(1, Ordering::Relaxed);
            let (made, header) = FileDraft::create(&self.core.files, FileKind::Values, number)?;
            made.file.write_at(&header, 0)?;
            self.at = header.len() as u64;
            self.file = Some((number, made));
            number
        };
        let moved = ValuePlace {
            file: ValuePlace::of_values(number),
            offset: self.at + from as u64,
            ..place
        };
        if let Some((_, made)) = &self.file {
            let at = (moved.offset, &[][..]);
            made.file.seal(&mut self.buffer, from, at)?;
        }
        if self.buffer.len() >= BUFFER_BYTES {
            self.write()?;
        }
        self.row.clear();
        row.moved(moved, &mut self.row);
        Row::of(&self.row)
    }

    fn write(&mut self) -> io::Result<()> {
        if let Some((_, made)) = &self.file {
            made.file.write_at(&self.buffer, self.at)?;
            self.at += self.buffer.len() as u64;
            self.buffer.clear();
            self.buffer.shrink_to(2 * BUFFER_BYTES);
        }
        Ok(())
    }

    /// Makes the values durable, without the name of their file.
    fn finish(mut self) -> io::Result<Option<(u64, ValueFile, FileDraft)>> {
        self.write()?;
        let Some((number, made)) = self.file else {
            return Ok(None);
        };
        made.file.sync()?;
        let values = ValueFile {
            file: Arc::clone(&made.file),
            bytes: self.at,
        };
        Ok(Some((ValuePlace::of_values(number), values, made)))
    }
}

/// Runs to merge.
struct Inputs<'v> {
    /// The runs, the youngest first.
    runs: Vec<Arc<Run>>,
    /// Runs that are older than all of them.
    older: &'v [Arc<Run>],
}

/// Merges the runs of a plan into one, or into one of each part. Returns the number of new runs. Their filters must be
/// loaded later, after those of the inputs are freed.
///
/// # Errors
/// Those of the system, and `Interrupted` if the store is closing: then nothing is changed.
pub(super) fn merge(core: &Core, runs: &[Arc<Run>], plan: &MergePlan) -> io::Result<usize> {
    let dead_before = core.dead_rows.load(Ordering::Relaxed);
    let (values, lineages) = {
        let current = core.current.read();
        let of = |(vb, state): (VbId, &State)| (vb, state.lineage.clone());
        let lineages: PerVb<Lineage> = current.states.iter().map(of).collect();
        (current.values(), lineages)
    };
    let inputs = Inputs {
        runs: plan.runs.iter().map(|at| Arc::clone(&runs[*at])).collect(),
        older: &runs[plan.runs.last().map_or(0, |last| last + 1)..],
    };
    let mut mover = ValueWriter {
        core,
        values,
        emptied: &plan.emptied,
        file: None,
        at: 0,
        buffer: Vec::new(),
        row: Vec::new(),
    };
    let mut merged = Vec::new();
    let mut switch = ManifestChange::default();
    let parts = if plan.splits { PARTS } else { 1 };
    for part in 0..parts {
        let of_part = |vb: VbId| !plan.splits || part_of(vb) == part;
        if let Some((run, made)) = merge_part(core, &inputs, &lineages, of_part, &mut mover)? {
            merged.push(Arc::new(run));
            switch.files.push(made);
        }
    }
    if let Some((file, values, made)) = mover.finish()? {
        switch.new_values.insert(file, values);
        switch.files.push(made);
    }
    let rows = |runs: &[Arc<Run>]| runs.iter().map(|run| run.rows()).sum::<u64>();
    let dropped = rows(&inputs.runs).saturating_sub(rows(&merged));
    let is_input = |run: &Arc<Run>| inputs.runs.iter().any(|input| input.number == run.number);
    let made = merged.len();
    let mut is_exact = false;
    core.switch(switch, |runs| {
        let at = runs.iter().position(is_input).unwrap_or(runs.len());
        runs.retain(|run| !is_input(run));
        runs.splice(at..at, merged);
        let mut vbs = BTreeSet::new();
        let mergeable = runs.iter().filter(|run| !run.is_damaged());
        let mut sections = mergeable.flat_map(|run| run.sections());
        is_exact = sections.all(|section| vbs.insert(section.vb));
    })?;
    // The number of dead rows is an estimate, which becomes exact when no vBucket has rows in two runs
    // that can be merged.
    let dropped = if is_exact { dead_before } else { dropped };
    lower(&core.dead_rows, dropped);
    Ok(made)
}

/// Merges the rows of some vBuckets into a run; `None` if no row is left.
fn merge_part(
    core: &Core,
    inputs: &Inputs<'_>,
    lineages: &PerVb<Lineage>,
    of_part: impl Fn(VbId) -> bool,
    mover: &mut ValueWriter<'_>,
) -> io::Result<Option<(Run, FileDraft)>> {
    let has_rows = |vb| inputs.runs.iter().any(|run| run.section(vb).is_some());
    let vbs = lineages.iter();
    let mut vbs = vbs
        .filter(|(vb, _)| of_part(*vb) && has_rows(*vb))
        .peekable();
    if vbs.peek().is_none() {
        return Ok(None);
    }
    let number = core.next_file.fetch_add(1, Ordering::Relaxed);
    let mut writer = RunWriter::create_large(&core.files, number)?;
    for (vb, lineage) in vbs {
        merge_vb(core, inputs, (vb, lineage), mover, &mut writer)?;
    }
    if writer.rows() == 0 {
        return Ok(None);
    }
    writer.finish().map(Some)
}

fn merge_vb(
    core: &Core,
    inputs: &Inputs<'_>,
    (vb, lineage): (VbId, &Lineage),
    mover: &mut ValueWriter<'_>,
    writer: &mut RunWriter,
) -> io::Result<()> {
    let oldest = inputs.older.iter().all(|run| run.section(vb).is_none());
    let mut cursors = Vec::new();
    for run in &inputs.runs {
        let Some(section) = run.section(vb) else {
            continue;
        };
        if let Some(limit) = lineage.limit(section.epoch) {
            let cursor = Cursor::new(Arc::clone(run), *section, &[])?;
            cursors.push((cursor, limit));
        }
    }
    let mut merged = Merged::new(cursors)?;
    let mut begun = false;
    while let Some(row) = merged.row() {
        if !(oldest && row.is_gone()) {
            if !std::mem::replace(&mut begun, true) {
                writer.begin_section(vb, lineage.epoch)?;
            }
            writer.add(mover.moved(row)?)?;
            if writer.rows().is_multiple_of(ROWS_PER_LOOK) && core.stopping.load(Ordering::Relaxed)
            {
                return Err(io::ErrorKind::Interrupted.into());
            }
        }
        merged.advance()?;
    }
    Ok(())
}

//! A merge: the rows of several runs in one order, the newest of each name.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use model::{Seqno, VbId};

use crate::lsm::bytes::FileKind;
use crate::lsm::current::{ValueFile, Values};
use crate::lsm::flush::Switch;
use crate::lsm::made::Made;
use crate::lsm::row::{Row, ValuePlace};
use crate::lsm::run::{Cursor, Run, RunWriter};
use crate::lsm::state::{Lineage, State};
use crate::lsm::writer::{Core, lower};
use crate::per_vb::PerVb;

/// Bytes of values that are written at once.
const BUFFER_BYTES: usize = 256 << 10;
/// Rows between two checks whether the store is closing.
const ROWS_PER_LOOK: u64 = 1024;

/// Iterator over the rows of one vBucket in several runs, in the order of their names. Of each name
/// it has the newest valid row.
pub(crate) struct Merged {
    cursors: Vec<(Cursor, Seqno)>,
    /// Index of the cursor with the current row.
    at: Option<usize>,
    /// Rows that were skipped.
    pub(crate) dropped: u64,
}

impl Merged {
    /// Creates the iterator from cursors, each with its highest valid seqno, the youngest first.
    ///
    /// # Errors
    /// Those of reading.
    pub(crate) fn new(cursors: Vec<(Cursor, Seqno)>) -> io::Result<Self> {
        let mut merged = Self {
            cursors,
            at: None,
            dropped: 0,
        };
        merged.settle()?;
        Ok(merged)
    }

    /// Returns the current row; `None` at the end. It may be a removal.
    pub(crate) fn row(&self) -> Option<Row<'_>> {
        self.cursors.get(self.at?)?.0.row()
    }

    /// Advances to the next row.
    ///
    /// # Errors
    /// Those of reading.
    pub(crate) fn advance(&mut self) -> io::Result<()> {
        if let Some(at) = self.at {
            self.cursors[at].0.advance()?;
        }
        self.settle()
    }

    /// Advances to the first row whose name is not below `name`.
    ///
    /// # Errors
    /// Those of reading.
    pub(crate) fn seek(&mut self, name: &[u8]) -> io::Result<()> {
        self.cursors
            .iter_mut()
            .try_for_each(|(cursor, _)| cursor.seek(name))?;
        self.settle()
    }

    /// Finds the lowest name and its newest row, and skips the other rows of that name.
    fn settle(&mut self) -> io::Result<()> {
        loop {
            let mut best: Option<usize> = None;
            let mut passed: Option<usize> = None;
            for number in 0..self.cursors.len() {
                let (cursor, limit) = &self.cursors[number];
                let Some(row) = cursor.row() else { continue };
                if row.seqno() > *limit {
                    passed = Some(number);
                    break;
                }
                let Some(other) = best.and_then(|best| self.cursors[best].0.row()) else {
                    best = Some(number);
                    continue;
                };
                match row.name().cmp(other.name()) {
                    std::cmp::Ordering::Less => best = Some(number),
                    std::cmp::Ordering::Greater => {}
                    std::cmp::Ordering::Equal => {
                        let newer = (row.seqno(), row.is_gone()) > (other.seqno(), other.is_gone());
                        passed = if newer { best } else { Some(number) };
                        break;
                    }
                }
            }
            let Some(passed) = passed else {
                self.at = best;
                return Ok(());
            };
            self.dropped += 1;
            self.cursors[passed].0.advance()?;
        }
    }
}

/// Writer that moves values into a new file.
struct Mover<'c> {
    core: &'c Core,
    values: Values,
    emptied: &'c BTreeSet<u64>,
    file: Option<(u64, Made)>,
    at: u64,
    buffer: Vec<u8>,
    row: Vec<u8>,
}

impl Mover<'_> {
    /// Returns the row with its value in the new file, if the old file is to be emptied.
    fn moved<'r>(&'r mut self, row: Row<'r>) -> io::Result<Row<'r>> {
        let Some(place) = row
            .place()
            .filter(|place| self.emptied.contains(&place.file))
        else {
            return Ok(row);
        };
        let value = match self.values.read(place) {
            Ok(value) => value,
            // A damaged value stays in its file, for salvage.
            Err(error) if error.kind() == io::ErrorKind::InvalidData => return Ok(row),
            Err(error) => return Err(error),
        };
        let number = if let Some((number, _)) = &self.file {
            *number
        } else {
            let number = self.core.next_file.fetch_add(1, Ordering::Relaxed);
            let (made, header) = Made::create(&self.core.files, FileKind::Values, number)?;
            self.buffer.extend_from_slice(&header);
            self.file = Some((number, made));
            number
        };
        let from = self.buffer.len();
        let moved = ValuePlace {
            file: ValuePlace::of_values(number),
            offset: self.at + from as u64,
            ..place
        };
        self.buffer.extend_from_slice(&value);
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
        }
        Ok(())
    }

    /// Makes the values durable, without the name of their file.
    fn finish(mut self) -> io::Result<Option<(u64, ValueFile, Made)>> {
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

/// Merges adjacent runs into one, the youngest first. `oldest` is true if no run is older. The
/// filters of the new run must be loaded later, after those of the inputs are freed.
///
/// # Errors
/// Those of the system, and `Interrupted` if the store is closing: then nothing is changed.
pub(crate) fn merge(
    core: &Core,
    inputs: &[Arc<Run>],
    oldest: bool,
    emptied: &BTreeSet<u64>,
) -> io::Result<()> {
    let dead_before = core.dead_rows.load(Ordering::Relaxed);
    let (values, lineages) = {
        let current = core.current.read();
        let of = |(vb, state): (VbId, &State)| (vb, state.lineage.clone());
        let lineages: PerVb<Lineage> = current.states.iter().map(of).collect();
        (current.values(), lineages)
    };
    let number = core.next_file.fetch_add(1, Ordering::Relaxed);
    let mut writer = RunWriter::create_large(&core.files, number)?;
    let mut mover = Mover {
        core,
        values,
        emptied,
        file: None,
        at: 0,
        buffer: Vec::new(),
        row: Vec::new(),
    };
    for (vb, lineage) in lineages.iter() {
        merge_vb(
            core,
            (inputs, oldest),
            (vb, lineage),
            &mut mover,
            &mut writer,
        )?;
    }
    let mut switch = Switch::default();
    if let Some((file, values, made)) = mover.finish()? {
        switch.new_values.insert(file, values);
        switch.files.push(made);
    }
    let before: u64 = inputs.iter().map(|run| run.rows()).sum();
    let dropped = before.saturating_sub(writer.rows());
    let mut merged = None;
    if writer.rows() > 0 {
        let (run, made) = writer.finish()?;
        merged = Some(Arc::new(run));
        switch.files.push(made);
    }
    let is_input = |run: &Arc<Run>| inputs.iter().any(|input| input.number == run.number);
    let mut all = false;
    core.switch(switch, |runs| {
        all = oldest && runs.iter().all(is_input);
        let at = runs.iter().position(is_input).unwrap_or(runs.len());
        runs.retain(|run| !is_input(run));
        runs.splice(at..at, merged);
    })?;
    // The number of dead rows is an estimate, which becomes exact when all runs were merged.
    let dropped = if all { dead_before } else { dropped };
    lower(&core.dead_rows, dropped);
    Ok(())
}

fn merge_vb(
    core: &Core,
    (inputs, oldest): (&[Arc<Run>], bool),
    (vb, lineage): (VbId, &Lineage),
    mover: &mut Mover<'_>,
    writer: &mut RunWriter,
) -> io::Result<()> {
    let mut cursors = Vec::new();
    for run in inputs {
        let Some(section) = run.section(vb) else {
            continue;
        };
        if let Some(limit) = lineage.limit(section.epoch) {
            cursors.push((Cursor::new(Arc::clone(run), *section, &[])?, limit));
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

//! Flush: a full log is written to runs.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use model::VbId;

use super::bytes::damaged;
use super::current::{LogPart, ValueFile, Version, state_bytes, text_bytes};
use super::fault::shortage;
use super::file_draft::FileDraft;
use super::log::{Log, LogRow, read_rows};
use super::manifest::{EncodedStates, Manifest, ManifestContents};
use super::row::{Row, ValuePlace, value_file};
use super::run::{Run, RunWriter};
use super::writer::{Core, lower};
use crate::ErrorKind;
use crate::work::{Next, RunningWorker, Worker};

/// Bytes of rows that are sorted at once. A vBucket with more bytes in the log is split into several runs.
const PIECE_BYTES: usize = 512 << 10;

/// Exponential back-off: pause after the first failure in a row, and the maximum.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// Returns the pause after so many failures in a row.
pub(crate) fn pause_after(failures: u32) -> Duration {
    let doubled = PAUSE_MIN.saturating_mul(1 << failures.saturating_sub(1).min(16));
    doubled.min(PAUSE_MAX)
}

/// Runs being written from one log: mostly one.
struct Runs<'c> {
    core: &'c Core,
    writers: Vec<(RunWriter, Option<VbId>)>,
}

impl Runs<'_> {
    /// Returns a run that can take rows of `vb`: it has none of `vb` or later vBuckets yet.
    fn writer(&mut self, vb: VbId, epoch: u64) -> io::Result<&mut RunWriter> {
        let free = |(_, last): &(RunWriter, Option<VbId>)| last.is_none_or(|last| last < vb);
        let mut at = self.writers.iter().position(free);
        if at.is_none() {
            let number = self.core.next_file.fetch_add(1, Ordering::Relaxed);
            let writer = RunWriter::create(&self.core.files, number)?;
            self.writers.push((writer, None));
            at = self.writers.len().checked_sub(1);
        }
        let at = at.unwrap_or(0);
        let (writer, last) = &mut self.writers[at];
        *last = Some(vb);
        writer.begin_section(vb, epoch)?;
        Ok(writer)
    }
}

/// Rows that are sorted together.
#[derive(Default)]
struct SortedRows {
    rows: Vec<LogRow>,
    bytes: usize,
    arena: Vec<u8>,
}

impl SortedRows {
    /// Reads the rows, sorts those of each vBucket by name, and writes them.
    fn write(&mut self, sealed: &LogPart, runs: &mut Runs<'_>) -> io::Result<()> {
        self.arena.reserve_exact(self.bytes.max(PIECE_BYTES));
        let mut places = read_rows(&sealed.file, &mut self.rows, &mut self.arena)?;
        let arena = &self.arena;
        let row = |place: &(VbId, usize, usize)| Row::of(&arena[place.1..place.1 + place.2]);
        let name = |place: &(VbId, usize, usize)| row(place).map(|row| row.name());
        places.sort_unstable_by(|a, b| {
            let names = || name(a).unwrap_or_default().cmp(name(b).unwrap_or_default());
            a.0.cmp(&b.0).then_with(names)
        });
        for of_one in places.chunk_by(|a, b| a.0 == b.0) {
            let vb = of_one[0].0;
            let writer = runs.writer(vb, sealed.index.epoch(vb))?;
            for place in of_one {
                writer.add(row(place)?)?;
            }
        }
        self.rows.clear();
        self.arena.clear();
        self.bytes = 0;
        Ok(())
    }
}

/// Writes a sealed log to durable runs, which replace the log.
///
/// # Errors
/// Those of the system: then nothing is changed.
pub(crate) fn flush(core: &Core, sealed: &LogPart) -> io::Result<()> {
    let mut runs = Runs {
        core,
        writers: Vec::new(),
    };
    let mut piece = SortedRows::default();
    for (vb, _) in sealed.index.vbs() {
        // Rows and bytes of the vBuckets before it. Two pieces with rows of one vBucket would be two runs.
        let mut before = (piece.rows.len(), piece.bytes);
        for row in sealed.index.rows_of(vb) {
            if piece.bytes + row.place.length() > PIECE_BYTES {
                if before.0 == 0 {
                    before = (piece.rows.len(), piece.bytes);
                }
                let own = piece.rows.split_off(before.0);
                let own_bytes = std::mem::replace(&mut piece.bytes, before.1) - before.1;
                piece.write(sealed, &mut runs)?;
                (piece.rows, piece.bytes, before) = (own, own_bytes, (0, 0));
            }
            piece.bytes += row.place.length();
            piece.rows.push(*row);
        }
    }
    piece.write(sealed, &mut runs)?;
    drop(piece);
    let made = runs.writers.into_iter().map(|(writer, _)| writer.finish());
    let (made, files): (Vec<Run>, Vec<FileDraft>) =
        made.collect::<io::Result<Vec<_>>>()?.into_iter().unzip();
    made.iter().try_for_each(Run::load_filters)?;
    let written: u64 = made.iter().map(Run::rows).sum();
    let change = ManifestChange {
        flushed: Some(sealed),
        files,
        new_values: BTreeMap::new(),
    };
    core.switch(change, |runs| {
        for run in made {
            runs.insert(0, Arc::new(run));
        }
    })?;
    let dropped = (sealed.index.len() as u64).saturating_sub(written);
    lower(&core.dead_rows, dropped);
    Ok(())
}

/// Changes for the next manifest.
#[derive(Default)]
pub(crate) struct ManifestChange<'s> {
    /// The log that was written to runs, if any.
    pub(crate) flushed: Option<&'s LogPart>,
    /// New files.
    pub(crate) files: Vec<FileDraft>,
    /// New files of values.
    pub(crate) new_values: BTreeMap<u64, ValueFile>,
}

impl Core {
    /// Replaces the manifest: with the runs that `change` leaves, and without the flushed log, if
    /// any. `new_values` are files of values that were written for these runs.
    ///
    /// # Errors
    /// Those of the system: then nothing is changed in memory, and files that no manifest refers to are removed.
    pub(crate) fn switch(
        &self,
        switch: ManifestChange<'_>,
        change: impl FnOnce(&mut Vec<Arc<Run>>),
    ) -> io::Result<()> {
        let ManifestChange {
            flushed,
            mut files,
            new_values,
        } = switch;
        let _turn = self.switch.lock();
        let before = Arc::clone(&self.current.read().version);
        let mut runs = before.runs.clone();
        change(&mut runs);
        let mut values = BTreeMap::new();
        for file in runs.iter().flat_map(|run| run.values().keys()) {
            let known = before
                .values
                .get(file)
                .or_else(|| new_values.get(file))
                .cloned();
            let sealed = flushed.filter(|log| ValuePlace::of_log(log.number) == *file);
            let of_log = sealed.map(|log| ValueFile {
                file: log.file.for_values(),
                bytes: log.bytes,
            });
            let found = known.or(of_log);
            let found = found.ok_or_else(|| damaged("a run refers to a file that is not there"))?;
            values.insert(*file, found);
        }
        let old = &before.manifest.contents;
        let contents = ManifestContents {
            number: old.number + 1,
            next_file: self.next_file.load(Ordering::Relaxed),
            next_epoch: self.next_epoch.load(Ordering::Relaxed),
            first_log: flushed.map_or(old.first_log, |log| log.number + 1),
            flushed_group: flushed.map_or(old.flushed_group, |log| log.last_group),
            dead_rows: self.dead_rows.load(Ordering::Relaxed),
            has_history: self.has_history.load(Ordering::Relaxed),
            runs: runs.iter().map(|run| (run.number, run.bytes)).collect(),
            values: values
                .iter()
                .map(|(file, value)| (*file, value.bytes))
                .collect(),
        };
        let parts = parts(&before.manifest, flushed)?;
        // Names of new files are durable before a manifest refers to them.
        self.files.sync_names()?;
        let keep = || files.iter_mut().for_each(FileDraft::keep);
        let manifest = Manifest::write(&*self.files, &contents, &parts, keep)?;
        let version = Arc::new(Version {
            manifest,
            runs,
            values,
        });
        let mut current = self.current.write();
        current.version = Arc::clone(&version);
        if flushed.is_some() {
            current.sealed = None;
        }
        drop(current);
        self.remove_unused(&before, &version, flushed);
        Ok(())
    }

    /// Removes files that the manifest does not refer to. The next opening removes those that could not be removed.
    fn remove_unused(&self, before: &Version, after: &Version, flushed: Option<&LogPart>) {
        let is_left = |run: &Run| after.runs.iter().any(|left| left.number == run.number);
        let runs = before.runs.iter().filter(|run| !is_left(run));
        let mut names: Vec<String> = runs.map(|run| run.name()).collect();
        let files = before.values.keys().copied();
        let log = flushed.map(|log| ValuePlace::of_log(log.number));
        let files = files
            .chain(log)
            .filter(|file| !after.values.contains_key(file));
        names.extend(files.map(value_file_name));
        for name in names {
            if let Err(error) = self.files.remove(&name) {
                tracing::warn!(%error, name, "cannot remove a file of the store");
            }
        }
    }
}

/// Returns the name of a file of values.
pub(crate) fn value_file_name(file: u64) -> String {
    let (kind, number) = value_file(file);
    kind.name(number)
}

/// Returns the states of all vBuckets, and the text: from the manifest, and from a log after it.
fn parts(before: &Manifest, log: Option<&LogPart>) -> io::Result<EncodedStates> {
    let mut vbs: Vec<VbId> = before.vbs().collect();
    if let Some(log) = log {
        vbs.extend(log.index.vbs().map(|(vb, _)| vb));
        vbs.sort_unstable();
        vbs.dedup();
    }
    let mut parts = EncodedStates::default();
    for vb in vbs {
        let bytes = state_bytes(log, before, vb)?;
        parts.states.extend(bytes.map(|bytes| (vb, bytes)));
    }
    parts.text = text_bytes(log, before)?;
    Ok(parts)
}

/// The worker that writes full logs to runs.
pub(crate) struct FlushWorker {
    core: Arc<Core>,
    /// Rung after new runs were made.
    merging: Arc<dyn RunningWorker>,
    failures: u32,
    retry_ns: u64,
}

impl FlushWorker {
    pub(crate) fn new(core: Arc<Core>, merging: Arc<dyn RunningWorker>) -> Self {
        Self {
            core,
            merging,
            failures: 0,
            retry_ns: 0,
        }
    }

    fn failed(&mut self, error: &io::Error, now_ns: u64) -> Next {
        self.failures += 1;
        let failures = self.failures;
        if failures.is_power_of_two() {
            tracing::warn!(%error, failures, "a log did not become a run; trying again");
        }
        self.core.upkeep.lock().runs_failed += 1;
        let kind = shortage(error).unwrap_or(ErrorKind::Io);
        let mut state = self.core.flushing.state.lock();
        state.failed = Some((kind, error.to_string()));
        self.core.flushing.changed.notify_all();
        self.retry_ns = now_ns + pause_after(failures).as_nanos() as u64;
        Next::At(self.retry_ns)
    }

    /// Creates the next log in advance, so that no commit has to wait for it.
    fn make_spare(&self) {
        let number = self.core.current.read().active.number + 1;
        let made = Log::create(&*self.core.files, number, 0, self.core.options.log_bytes);
        match made {
            Ok(spare) => self.core.flushing.state.lock().spare = Some(spare),
            Err(error) => tracing::warn!(%error, "cannot make the next log yet"),
        }
    }
}

impl Worker for FlushWorker {
    fn step(&mut self, now_ns: u64) -> Next {
        if self.core.stopping.load(Ordering::SeqCst) {
            return Next::Done;
        }
        let sealed = self.core.current.read().sealed.clone();
        let Some(sealed) = sealed else {
            return Next::OnSignal;
        };
        // After a failure, a waiting writer clears `failed`, so that the next attempt comes at once.
        let waits = self.core.flushing.state.lock().failed.is_some();
        if self.failures > 0 && waits && now_ns < self.retry_ns {
            return Next::At(self.retry_ns);
        }
        if let Err(error) = flush(&self.core, &sealed) {
            return self.failed(&error, now_ns);
        }
        if self.failures > 0 {
            tracing::info!("logs become runs again");
            self.failures = 0;
        }
        drop(sealed);
        self.make_spare();
        let mut state = self.core.flushing.state.lock();
        (state.waiting, state.failed) = (false, None);
        self.core.flushing.changed.notify_all();
        drop(state);
        self.merging.ring();
        Next::OnSignal
    }
}

//! Opening: reads and checks all files first; only then anything is changed.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use super::bytes::{FileKind, HEADER_BYTES, damaged, named};
use super::current::{Current, LogNote, LogPart, ValueFile, Version, WalkBytes};
use super::files::Files;
use super::flush::value_file_name;
use super::log::{Entry, EntryKind, ExistingLog, Log, LogRow, lacking_commits, lacks_groups};
use super::manifest::{self, EncodedStates, Manifest, ManifestContents};
use super::options::DiskOptions;
use super::row::{self, HISTORY, Row, ValuePlace, value_file};
use super::run::Run;
use super::sealed;
use super::state;
use super::summary;
use super::tail::{self, LastStop, TailFile};
use crate::per_vb::PerVb;

/// Bytes that are read and written at once when a log is rewritten.
const REWRITTEN_BYTES: usize = 256 << 10;

/// Content of an opened store.
pub(crate) struct StoreContent {
    pub(crate) current: Current,
    pub(crate) log: Log,
    pub(crate) tail: TailFile,
    pub(crate) next_epoch: u64,
    pub(crate) dead_rows: u64,
    pub(crate) has_history: bool,
    pub(crate) fresh: bool,
    pub(crate) left: LastStop,
}

/// Whether a name belongs to a store.
pub(crate) fn is_ours(name: &str) -> bool {
    FileKind::of_name(name).is_some()
        || name == tail::NAME
        || name == manifest::NAME
        || name == manifest::DRAFT
}

/// Opens the store, or creates one if there is none.
///
/// # Errors
/// `InvalidData` if a file is damaged or missing: then nothing was changed. Those of the system.
pub(crate) fn open(files: &dyn Files, options: &DiskOptions) -> io::Result<StoreContent> {
    match Manifest::read(files) {
        Ok(manifest) => open_existing(files, manifest),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            check_unfinished(files)?;
            create(files, options)
        }
        Err(error) => Err(error),
    }
}

/// Checks that a store without a manifest is one whose creation was interrupted, so that it never had data.
pub(crate) fn check_unfinished(files: &dyn Files) -> io::Result<()> {
    let names = files.list()?;
    let lost = || damaged(format!("{} is missing", manifest::NAME));
    for name in names.iter().filter(|name| is_ours(name)) {
        let first_log = FileKind::Log.name(1);
        if *name == tail::NAME {
            match TailFile::open(files) {
                Ok(tail) if tail.tail.group == 0 && tail.tail.manifest == 0 => {}
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {}
                Ok(_) => return Err(lost()),
                Err(error) => return Err(error),
            }
        } else if *name == first_log {
            let log = ExistingLog::open(files, 1);
            let groups = log.and_then(|log| log.replay(0, &mut |_| Ok(())));
            match groups {
                Ok(groups) if groups.last_group == 0 => {}
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {}
                Ok(_) => return Err(lost()),
                Err(error) => return Err(error),
            }
        } else if *name != manifest::DRAFT {
            return Err(lost());
        }
    }
    Ok(())
}

/// Creates a store. Cost: five syncs.
fn create(files: &dyn Files, options: &DiskOptions) -> io::Result<StoreContent> {
    let tail = TailFile::make(files)?;
    // The sync of the log's name makes that of the tail durable, too.
    let log = Log::create(files, 1, 0, options.log_bytes)?;
    let contents = ManifestContents {
        number: 1,
        next_file: 1,
        next_epoch: 1,
        first_log: 1,
        ..ManifestContents::default()
    };
    let manifest = Manifest::write(files, &contents, &EncodedStates::default(), || {})?;
    Ok(StoreContent {
        current: Current {
            active: LogPart::empty(Arc::clone(&log.file), 1, 0),
            sealed: None,
            version: Arc::new(Version {
                manifest,
                runs: Vec::new(),
                values: BTreeMap::new(),
            }),
            states: PerVb::default(),
            walks: WalkBytes::default(),
        },
        log,
        tail,
        next_epoch: 1,
        dead_rows: 0,
        has_history: false,
        fresh: true,
        left: LastStop::Clean,
    })
}

fn open_existing(files: &dyn Files, manifest: Manifest) -> io::Result<StoreContent> {
    let mut tail = TailFile::open(files).map_err(|error| missing(tail::NAME, error))?;
    let contents = manifest.contents.clone();
    if contents.number < tail.tail.manifest {
        let reason = format!("{} is older than what was written after it", manifest::NAME);
        return Err(damaged(reason));
    }
    let (runs, values) = (open_runs(files, &contents)?, open_values(files, &contents)?);
    let mut replay = Replay::new(&manifest)?;
    let mut logs = replay.logs(files, &contents)?;
    let last_group = replay.last_group;
    let Some(last) = logs.last() else {
        let name = FileKind::Log.name(contents.first_log);
        return Err(damaged(format!("{name} is missing")));
    };
    if let Some(reason) = lacking_commits((last.number, last_group), tail.tail.group) {
        return Err(named(&FileKind::Log.name(last.number), damaged(reason)));
    }
    // All acknowledged commits exist. From here on files may be changed.
    let left = match tail.tail.left {
        LastStop::Clean if tail.tail.group < last_group => LastStop::Running,
        left => left,
    };
    if left != LastStop::Clean || tail.tail.manifest < contents.number {
        // The manifest must be durable before files of the older one are removed.
        files.sync_names()?;
    }
    if left != LastStop::Clean {
        rewrite(&logs)?;
        cut(last)?;
    }
    let log = Log::at(Arc::clone(&last.file), last.number, last.bytes, last_group);
    let version = Version {
        manifest,
        runs,
        values,
    };
    remove_unnamed(files, &version, &logs)?;
    if tail.tail.group < last_group || tail.tail.manifest < contents.number {
        tail.note_durably(last_group, contents.number, LastStop::Running)?;
    }
    Ok(StoreContent {
        current: Current {
            active: logs.pop().ok_or_else(|| damaged("there is no log"))?,
            sealed: logs.pop().map(Arc::new),
            version: Arc::new(version),
            states: replay.states,
            walks: WalkBytes::default(),
        },
        log,
        tail,
        next_epoch: replay.next_epoch.max(contents.next_epoch),
        dead_rows: contents.dead_rows,
        has_history: replay.has_history || contents.has_history,
        fresh: false,
        left,
    })
}

fn missing(name: &str, error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::NotFound {
        damaged(format!("{name} is missing"))
    } else {
        error
    }
}

fn open_runs(files: &dyn Files, contents: &ManifestContents) -> io::Result<Vec<Arc<Run>>> {
    let open = |(number, bytes): &(u64, u64)| {
        let name = FileKind::Run.name(*number);
        let run = Run::open(files, *number, *bytes);
        run.map(Arc::new).map_err(|error| missing(&name, error))
    };
    contents.runs.iter().map(open).collect()
}

fn open_values(
    files: &dyn Files,
    contents: &ManifestContents,
) -> io::Result<BTreeMap<u64, ValueFile>> {
    let mut values = BTreeMap::new();
    for (number, bytes) in &contents.values {
        let name = value_file_name(*number);
        let (kind, number_of) = value_file(*number);
        let file = sealed::open(files, kind, number_of);
        let file = file.map_err(|error| named(&name, missing(&name, error)))?;
        let length = file.length()?;
        if length < *bytes {
            return Err(damaged(format!(
                "{name} has {length} bytes instead of {bytes}"
            )));
        }
        let bytes = *bytes;
        values.insert(*number, ValueFile { file, bytes });
    }
    Ok(values)
}

/// Result of replaying the logs.
struct Replay {
    states: PerVb<state::State>,
    next_epoch: u64,
    has_history: bool,
    last_group: u64,
}

impl Replay {
    /// Begins with the states of the manifest.
    fn new(manifest: &Manifest) -> io::Result<Self> {
        let mut states = PerVb::default();
        let mut next_epoch = 1;
        for vb in manifest.vbs() {
            let bytes = manifest.state(vb)?;
            let stored = bytes.as_deref().and_then(state::decode);
            let stored = stored.ok_or_else(|| state::no_record(vb))?;
            next_epoch = next_epoch.max(stored.state.lineage.epoch + 1);
            states.insert(vb, stored.state);
        }
        Ok(Self {
            states,
            next_epoch,
            has_history: false,
            last_group: manifest.contents.flushed_group,
        })
    }

    /// Replays the logs after the runs, one after the other.
    fn logs(&mut self, files: &dyn Files, contents: &ManifestContents) -> io::Result<Vec<LogPart>> {
        let mut logs: Vec<LogPart> = Vec::new();
        for number in contents.first_log.. {
            let name = FileKind::Log.name(number);
            let log = match ExistingLog::open(files, number) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => break,
                // The log was unfinished when the process ended: it never had data.
                Err(error)
                    if number > contents.first_log
                        && error.kind() == io::ErrorKind::InvalidData =>
                {
                    break;
                }
                log => log.map_err(|error| named(&name, error))?,
            };
            if let Some(before) = logs.last()
                && log
                    .first_group()?
                    .is_some_and(|first| first > self.last_group + 1)
            {
                return Err(lacks_groups(before.number, before.bytes));
            }
            let part = self.log(&log)?;
            if number > contents.first_log && part.bytes == HEADER_BYTES as u64 {
                // An empty log that was created in advance.
                break;
            }
            logs.push(part);
        }
        Self::check_followers(files, contents.first_log + logs.len() as u64)?;
        Ok(logs)
    }

    /// Checks that no log with groups is out of sequence. Log `next` was checked already: a part of
    /// its first group is no damage.
    fn check_followers(files: &dyn Files, next: u64) -> io::Result<()> {
        for name in files.list()? {
            let later = FileKind::of_name(&name)
                .filter(|(kind, number)| *kind == FileKind::Log && *number > next);
            let Some((_, number)) = later else { continue };
            if let Ok(log) = ExistingLog::open(files, number)
                && log.has_groups()?
            {
                return Err(damaged(format!(
                    "{name} does not follow the logs before it"
                )));
            }
        }
        Ok(())
    }

    fn log(&mut self, log: &ExistingLog) -> io::Result<LogPart> {
        let mut part = LogPart::empty(Arc::clone(&log.file), log.number, self.last_group);
        let mut linked = 0;
        let before = self.last_group;
        let groups = log.replay(before, &mut |entry| {
            self.entry(entry, &mut part, &mut linked)
        })?;
        self.last_group = groups.last_group;
        (part.bytes, part.last_group) = (groups.end, groups.last_group);
        Ok(part)
    }

    fn entry(
        &mut self,
        entry: Entry<'_>,
        part: &mut LogPart,
        linked: &mut usize,
    ) -> io::Result<()> {
        let vb = entry.vb;
        let note = match entry.what {
            EntryKind::Row => {
                let row = Row::of(entry.body)?;
                self.has_history |= row.tag() == HISTORY;
                let of = (row::hash(vb, row.name()), row::class(row.name()));
                let row = LogRow::new((vb, row.seqno()), of, entry.place, row.is_gone());
                part.index.stage(row);
                return Ok(());
            }
            EntryKind::Text => LogNote::Text(entry.place),
            EntryKind::Forget => LogNote::Forget(vb),
            EntryKind::Record => {
                let stored = state::decode(entry.body).ok_or_else(|| state::no_record(vb))?;
                self.next_epoch = self.next_epoch.max(stored.state.lineage.epoch + 1);
                LogNote::State(vb, entry.place, stored.state)
            }
        };
        let from = std::mem::replace(linked, part.index.len());
        part.link(from, &mut self.states, [note]);
        Ok(())
    }
}

/// Rewrites the last log with groups with the bytes that are read, and syncs it. After a failed
/// sync the page cache may have data that never reached the disk, and the system counts it as
/// written. Earlier logs were durable as a whole when this one was begun.
fn rewrite(logs: &[LogPart]) -> io::Result<()> {
    let mut logs = logs.iter().rev();
    let Some(log) = logs.find(|log| log.bytes > HEADER_BYTES as u64) else {
        return Ok(());
    };
    let mut buffer = vec![0; REWRITTEN_BYTES];
    let mut at = 0;
    while at < log.bytes {
        let left = usize::try_from(log.bytes - at).unwrap_or(usize::MAX);
        let piece = &mut buffer[..left.min(REWRITTEN_BYTES)];
        log.file.read_at(piece, at)?;
        log.file.write_at(piece, at)?;
        at += piece.len() as u64;
    }
    log.file.sync()
}

/// Fills the rest of a log after the last whole group with zeros, so that it cannot count as part of a later group.
fn cut(log: &LogPart) -> io::Result<()> {
    let length = log.file.length()?;
    log.file.set_length(log.bytes)?;
    log.file.set_length(length)?;
    log.file.sync()
}

/// Removes files that nothing refers to: unfinished ones, and those whose removal failed.
fn remove_unnamed(files: &dyn Files, version: &Version, logs: &[LogPart]) -> io::Result<()> {
    let mut removed = false;
    for name in files.list()? {
        let named = match FileKind::of_name(&name) {
            Some((FileKind::Run, number)) => version.runs.iter().any(|run| run.number == number),
            Some((FileKind::Values, number)) => {
                version.values.contains_key(&ValuePlace::of_values(number))
            }
            Some((FileKind::Log, number)) => {
                version.values.contains_key(&ValuePlace::of_log(number))
                    || logs.iter().any(|log| log.number == number)
            }
            Some((FileKind::Manifest | FileKind::Events, _)) => true,
            None => name != manifest::DRAFT && name != summary::DRAFT,
        };
        if !named {
            files.remove(&name)?;
            removed = true;
        }
    }
    if removed {
        // Synced before any write that could seem to follow one of them.
        files.sync_names()?;
    }
    Ok(())
}

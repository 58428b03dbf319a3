//! The journals that follow the tables, one after the other.

use std::cell::Cell;
use std::fs::File;
use std::io;
use std::path::Path;

use super::Entry;
use super::replay::Replay;
use crate::disk::segments::path_of;

/// The journals that follow the tables, as far as they count: their ends and last groups, oldest first.
pub(crate) struct Replayed {
    pub(super) drained: u64,
    pub(super) chain: Vec<(Existing, u64, u64)>,
}

impl Replayed {
    /// The last generation that counts, or would.
    pub(crate) fn last(&self) -> u64 {
        let last = self.chain.last().map(|(one, ..)| one.generation);
        last.unwrap_or(self.drained + 1)
    }

    /// The file of a generation.
    pub(crate) fn file(&self, generation: u64) -> Option<&File> {
        let mut journals = self.chain.iter().map(|(one, ..)| one);
        Some(&journals.find(|one| one.generation == generation)?.file)
    }
}

type Each<'a> = &'a mut dyn FnMut(u64, Vec<Entry>);

/// The journals after generation `drained` that count, with their ends and last groups, oldest
/// first; each group is handed on. Those to be written to must be whole as far as they were
/// durable.
pub(super) fn chain(
    directory: &Path,
    drained: u64,
    (writable, each): (bool, Each<'_>),
) -> io::Result<Vec<(Existing, u64, u64)>> {
    let first = Existing::open(directory, drained + 1, writable)?;
    let next = Existing::open(directory, drained + 2, writable)?;
    let mut kept = Vec::new();
    let Some(first) = first else {
        return Ok(kept);
    };
    let mut before = u64::MAX;
    if let Some(next) = &next {
        before = next.replay()?.first_group()?.unwrap_or(before);
    }
    let (end, last_group) = first.read(before, (!writable, each))?;
    let follows = end > 0 && last_group.checked_add(1) == Some(before);
    if writable && before != u64::MAX && !follows {
        // It was durable as a whole when the next one was begun.
        return Err(damaged(directory, first.generation, end));
    }
    let mut missing = (end > 0).then_some(last_group + 1);
    if writable && first.replay()?.is_damaged(end, missing)? {
        return Err(damaged(directory, first.generation, end));
    }
    kept.push((first, end, last_group));
    let Some(next) = next else {
        return Ok(kept);
    };
    let mut end = 0;
    // The next one counts only if nothing between the two is missing.
    if follows || !writable {
        let (next_end, last_group) = next.read(u64::MAX, (!writable, each))?;
        (end, missing) = (next_end, Some(last_group + 1));
    }
    if writable && next.replay()?.is_damaged(end, missing)? {
        return Err(damaged(directory, next.generation, end));
    }
    if let (true, Some(missing)) = (follows || !writable, missing) {
        kept.push((next, end, missing - 1));
    }
    Ok(kept)
}

fn damaged(directory: &Path, generation: u64, at: u64) -> io::Error {
    let path = path_of(directory, generation);
    let reason = format!(
        "{} is damaged at byte {at}, and commits follow it",
        path.display()
    );
    io::Error::new(io::ErrorKind::InvalidData, reason)
}

/// A journal that is there.
pub(super) struct Existing {
    pub(super) file: File,
    pub(super) generation: u64,
    /// How often [`Existing::read`] passed over damage.
    pub(super) damaged: Cell<u64>,
}

impl Existing {
    pub(super) fn open(
        directory: &Path,
        generation: u64,
        writable: bool,
    ) -> io::Result<Option<Self>> {
        let path = path_of(directory, generation);
        match File::options().read(true).write(writable).open(path) {
            Ok(file) => Ok(Some(Self {
                file,
                generation,
                damaged: Cell::new(0),
            })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(super) fn replay(&self) -> io::Result<Replay<'_>> {
        Replay::new(&self.file, self.generation)
    }

    /// Hands all whole groups with numbers below `before` on; tells where they end, and the
    /// number of the last one. Damage ends them, or is passed over.
    fn read(&self, before: u64, (pass_over, each): (bool, Each<'_>)) -> io::Result<(u64, u64)> {
        let mut replay = self.replay()?;
        while replay.last_group + 1 < before {
            match replay.next()? {
                Some(entries) => each(self.generation, entries),
                None if pass_over && replay.skip_damage()? => {
                    self.damaged.set(self.damaged.get() + 1);
                }
                None => break,
            }
        }
        Ok((replay.at, replay.last_group))
    }
}

//! The journals that follow the tables, one after the other.

use std::fs::File;
use std::io;
use std::path::Path;

use super::chunk::Entry;
use super::replay::Replay;
use crate::disk::journal_files::path_of;

/// The journals that follow the tables, as far as they count, oldest first.
pub(crate) struct Replayed {
    pub(super) flushed: u64,
    pub(super) chain: Vec<Existing>,
}

impl Replayed {
    /// The last generation that counts, or would.
    pub(crate) fn last(&self) -> u64 {
        self.chain
            .last()
            .map_or(self.flushed + 1, |one| one.generation)
    }

    /// The file of a generation.
    pub(crate) fn file(&self, generation: u64) -> Option<&File> {
        let mut journals = self.chain.iter();
        Some(&journals.find(|one| one.generation == generation)?.file)
    }
}

type Each<'a> = &'a mut dyn FnMut(u64, Vec<Entry>);

/// The journals after generation `flushed` that count, oldest first; each group is handed on.
/// Those to be written to must be whole as far as they were durable.
pub(super) fn chain(
    directory: &Path,
    flushed: u64,
    writable: bool,
    each: Each<'_>,
) -> io::Result<Vec<Existing>> {
    let first = Existing::open(directory, flushed + 1, writable)?;
    let next = Existing::open(directory, flushed + 2, writable)?;
    let Some(mut first) = first else {
        return Ok(Vec::new());
    };
    let mut before = u64::MAX;
    if let Some(next) = &next {
        before = next.replay()?.first_group()?.unwrap_or(before);
    }
    first.read(before, !writable, each)?;
    let follows = first.end > 0 && first.last_group.checked_add(1) == Some(before);
    if writable && before != u64::MAX && !follows {
        // It was durable as a whole when the next one was begun.
        return Err(first.damage(directory));
    }
    let mut missing = (first.end > 0).then_some(first.last_group + 1);
    if writable && first.replay()?.is_damaged(first.end, missing)? {
        return Err(first.damage(directory));
    }
    let Some(mut next) = next else {
        return Ok(vec![first]);
    };
    // The next one counts only if nothing between the two is missing.
    let counts = follows || !writable;
    if counts {
        next.read(u64::MAX, !writable, each)?;
        missing = Some(next.last_group + 1);
    }
    if writable && next.replay()?.is_damaged(next.end, missing)? {
        return Err(next.damage(directory));
    }
    Ok(if counts {
        vec![first, next]
    } else {
        vec![first]
    })
}

/// A journal that is there.
pub(super) struct Existing {
    pub(super) file: File,
    pub(super) generation: u64,
    /// Where the groups that were read end, ...
    pub(super) end: u64,
    /// ... and the number of the last of them.
    pub(super) last_group: u64,
    /// How often [`Existing::read`] passed over damage.
    pub(super) damaged: u64,
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
                end: 0,
                last_group: 0,
                damaged: 0,
            })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(super) fn replay(&self) -> io::Result<Replay<'_>> {
        Replay::new(&self.file, self.generation)
    }

    /// Hands all whole groups with numbers below `before` on. Damage ends them, or is passed over.
    fn read(&mut self, before: u64, pass_over: bool, each: Each<'_>) -> io::Result<()> {
        let mut damaged = 0;
        let mut replay = self.replay()?;
        while replay.last_group + 1 < before {
            match replay.next()? {
                Some(entries) => each(self.generation, entries),
                None if pass_over && replay.skip_damage()? => damaged += 1,
                None => break,
            }
        }
        (self.end, self.last_group, self.damaged) = (replay.at, replay.last_group, damaged);
        Ok(())
    }

    fn damage(&self, directory: &Path) -> io::Error {
        let path = path_of(directory, self.generation);
        let (path, end) = (path.display(), self.end);
        let reason = format!("{path} is damaged at byte {end}, and commits follow it");
        io::Error::new(io::ErrorKind::InvalidData, reason)
    }
}

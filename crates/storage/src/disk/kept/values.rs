//! Rows as they are, where the tables only tell where they lie.

use std::io;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use fjall::Slice;
use fjall::compaction::filter::{CompactionFilter, Context, Factory, ItemAccessor, Verdict};

use super::{Files, Kept, Living};
use crate::disk::place::{Place, Window};
use crate::record::{DecodeError, RowKey, decode_reference};

/// Reads rows that mostly come in the order of their keys.
#[derive(Default)]
pub(crate) struct Values {
    files: Arc<Files>,
    /// Where the last one was read. One is enough: the rows of a vBucket come journal by journal, and
    /// those of the next one begin anew.
    window: Option<(u64, Window)>,
}

impl Values {
    pub(crate) fn new(files: Arc<Files>) -> Self {
        Self {
            files,
            window: None,
        }
    }

    /// The row of `key`, of which the tables have `value`; `None` when that is the row.
    ///
    /// # Errors
    /// `InvalidData` when it is a reference, and damaged, or to a journal that is not kept.
    pub(crate) fn referred(&mut self, key: &RowKey, value: &[u8]) -> io::Result<Option<Slice>> {
        let Some((generation, place)) = reference(key, value)? else {
            return Ok(None);
        };
        self.row(generation, place).map(Some)
    }

    /// A row of a journal.
    fn row(&mut self, generation: u64, place: Place) -> io::Result<Slice> {
        let Some(file) = self.files.get(&generation) else {
            return Err(not_kept(generation));
        };
        let window = match &mut self.window {
            Some((of, window)) => {
                if *of != generation {
                    window.turn_to(file);
                    *of = generation;
                }
                window
            }
            none => &mut none.insert((generation, Window::new(Arc::clone(file)))).1,
        };
        window.row(place)
    }
}

/// What a reference tells; `None` when it is none.
fn reference(key: &RowKey, value: &[u8]) -> io::Result<Option<(u64, Place)>> {
    let bad = |error: DecodeError| io::Error::new(io::ErrorKind::InvalidData, error);
    let Some((generation, place)) = decode_reference(key, value).map_err(bad)? else {
        return Ok(None);
    };
    let place = Place::of_number(place).ok_or_else(|| bad(DecodeError::Content("the place")))?;
    Ok(Some((generation, place)))
}

fn not_kept(generation: u64) -> io::Error {
    let reason = format!("a row lies in journal {generation}, which is not there");
    io::Error::new(io::ErrorKind::InvalidData, reason)
}

impl Kept {
    /// Whether the journal is there that a value refers to, if it is a reference.
    ///
    /// # Errors
    /// `InvalidData`: it is not.
    pub(crate) fn prove(&self, key: &[u8], value: &[u8]) -> io::Result<()> {
        let Ok(key) = key.try_into() else {
            return Ok(());
        };
        match reference(key, value)? {
            Some((generation, _)) if !self.has(generation) => Err(not_kept(generation)),
            _ => Ok(()),
        }
    }

    /// The row of `key`, which `look` finds in the tables.
    pub(crate) fn look_up(
        &self,
        key: &RowKey,
        look: impl Fn() -> Result<Option<Slice>, fjall::Error>,
    ) -> Result<Option<Slice>, fjall::Error> {
        loop {
            let files = self.files();
            let Some(value) = look()? else {
                return Ok(None);
            };
            let Some((generation, place)) = reference(key, &value)? else {
                return Ok(Some(value));
            };
            if let Some(file) = files.get(&generation) {
                return Ok(Some(place.read(file)?));
            }
            // Its run was added in between, or was merged before the files were looked at.
            if Arc::ptr_eq(&files, &self.files()) {
                return Err(not_kept(generation).into());
            }
        }
    }
}

/// Has merges take rows over.
pub(crate) struct TakingOver(pub(crate) AssertUnwindSafe<Arc<Kept>>);

impl Factory for TakingOver {
    fn name(&self) -> &'static str {
        "rows of journals"
    }

    fn make_filter(&self, _: &Context) -> Box<dyn CompactionFilter> {
        let kept = Arc::clone(&self.0);
        Box::new(TakeOver {
            values: Values::new(kept.files()),
            taken: kept.taken(),
            living: Living::default(),
            last: (0, 0),
            kept,
        })
    }
}

/// Takes over the rows of older journals, and adds up what lives in each.
struct TakeOver {
    values: Values,
    /// The last generation that is taken over.
    taken: u64,
    living: Living,
    /// A generation, and bytes that are not yet among those of it: mostly it is that of the row before.
    last: (u64, u64),
    kept: Arc<Kept>,
}

impl TakeOver {
    fn note_living(&mut self, generation: u64, bytes: usize) {
        if generation != self.last.0 {
            self.settle();
            self.last.0 = generation;
        }
        self.last.1 += bytes as u64;
    }

    fn settle(&mut self) {
        let (generation, bytes) = std::mem::take(&mut self.last);
        if bytes > 0 {
            *self.living.entry(generation).or_default() += bytes;
        }
    }
}

impl CompactionFilter for TakeOver {
    fn filter_item(&mut self, item: ItemAccessor<'_>, _: &Context) -> lsm_tree::Result<Verdict> {
        if self.kept.is_ending() {
            return Err(io::Error::from(io::ErrorKind::Interrupted).into());
        }
        let key: Result<&RowKey, _> = (**item.key()).try_into();
        let Ok(key) = key else {
            return Ok(Verdict::Keep);
        };
        if item.is_indirection() {
            return Ok(Verdict::Keep);
        }
        let Some((generation, place)) = reference(key, &item.value()?)? else {
            return Ok(Verdict::Keep);
        };
        self.note_living(generation, place.length());
        if generation > self.taken {
            return Ok(Verdict::Keep);
        }
        let row = self.values.row(generation, place)?;
        Ok(Verdict::ReplaceValue(row))
    }

    fn finish(mut self: Box<Self>) {
        self.settle();
        self.kept.note_living(self.living);
    }
}

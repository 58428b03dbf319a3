//! Rows as they are, where the tables only tell where they lie.

use std::io;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use fjall::Slice;
use fjall::compaction::filter::{CompactionFilter, Context, Factory, ItemAccessor, Verdict};

use super::log::{LiveBytes, Segments, ValueLog};
use crate::disk::value_position::{ValuePosition, Window};
use crate::record::{DecodeError, RowKey, decode_reference};

/// Reads rows that mostly come in the order of their keys.
#[derive(Default)]
pub(crate) struct ValueReader {
    files: Arc<Segments>,
    /// Where the last one was read. One is enough: the rows of a vBucket come journal by journal, and
    /// those of the next one begin anew.
    window: Option<(u64, Window)>,
}

impl ValueReader {
    pub(crate) fn new(files: Arc<Segments>) -> Self {
        Self {
            files,
            window: None,
        }
    }

    /// The row of `key`, of which the tables have `value`; `None` when that is the row.
    ///
    /// # Errors
    /// `InvalidData` when it is a reference, and damaged, or to a journal that is not in the value log.
    pub(crate) fn referred(&mut self, key: &RowKey, value: &[u8]) -> io::Result<Option<Slice>> {
        let Some((generation, place)) = reference(key, value)? else {
            return Ok(None);
        };
        self.row(generation, place).map(Some)
    }

    /// A row of a journal.
    fn row(&mut self, generation: u64, place: ValuePosition) -> io::Result<Slice> {
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
fn reference(key: &RowKey, value: &[u8]) -> io::Result<Option<(u64, ValuePosition)>> {
    let bad = |error: DecodeError| io::Error::new(io::ErrorKind::InvalidData, error);
    let Some((generation, place)) = decode_reference(key, value).map_err(bad)? else {
        return Ok(None);
    };
    let place =
        ValuePosition::of_number(place).ok_or_else(|| bad(DecodeError::Content("the place")))?;
    Ok(Some((generation, place)))
}

fn not_kept(generation: u64) -> io::Error {
    let reason = format!("a row lies in journal {generation}, which is not there");
    io::Error::new(io::ErrorKind::InvalidData, reason)
}

impl ValueLog {
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
pub(crate) struct InlineFactory(pub(crate) AssertUnwindSafe<Arc<ValueLog>>);

impl Factory for InlineFactory {
    fn name(&self) -> &'static str {
        "rows of journals"
    }

    fn make_filter(&self, _: &Context) -> Box<dyn CompactionFilter> {
        let value_log = Arc::clone(&self.0);
        Box::new(InlineFilter {
            values: ValueReader::new(value_log.files()),
            inlined: value_log.inlined.load(Ordering::Relaxed),
            live: LiveBytes::default(),
            last: (0, 0),
            value_log,
        })
    }
}

/// Takes over the rows of older journals, and adds up what lives in each.
struct InlineFilter {
    values: ValueReader,
    /// The last generation that is taken over.
    inlined: u64,
    live: LiveBytes,
    /// A generation, and bytes that are not yet among those of it: mostly it is that of the row before.
    last: (u64, u64),
    value_log: Arc<ValueLog>,
}

impl InlineFilter {
    fn note_live(&mut self, generation: u64, bytes: usize) {
        if generation != self.last.0 {
            self.settle();
            self.last.0 = generation;
        }
        self.last.1 += bytes as u64;
    }

    fn settle(&mut self) {
        let (generation, bytes) = std::mem::take(&mut self.last);
        if bytes > 0 {
            *self.live.entry(generation).or_default() += bytes;
        }
    }
}

impl CompactionFilter for InlineFilter {
    fn filter_item(&mut self, item: ItemAccessor<'_>, _: &Context) -> lsm_tree::Result<Verdict> {
        if self.value_log.ending.load(Ordering::Relaxed) {
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
        self.note_live(generation, place.length());
        if generation > self.inlined {
            return Ok(Verdict::Keep);
        }
        let row = self.values.row(generation, place)?;
        Ok(Verdict::ReplaceValue(row))
    }

    fn finish(mut self: Box<Self>) {
        self.settle();
        *self.value_log.live.lock() = self.live;
    }
}

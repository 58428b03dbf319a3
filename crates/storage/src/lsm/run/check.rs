//! Check of a whole run: each block, and whether the index finds its rows.

use std::collections::BTreeMap;
use std::path::Path;

use model::{Seqno, VbId};

use super::format::{BLOCK_ALIGN, Section};
use super::open::{Run, rows};
use crate::lsm::bytes::HEADER_BYTES;
use crate::lsm::damage::{Damage, Keys};
use crate::lsm::row::{self, HISTORY, Row};

/// Event of a check.
pub(crate) enum CheckEvent<'a> {
    /// More bytes were read.
    Bytes(u64),
    /// A row is valid.
    Row(VbId, Row<'a>),
    /// A part is damaged.
    Damage(Damage),
}

/// Reads all blocks of an open run, and reports their content to `tell`; `file` is its path, for damage.
pub(crate) fn check(run: &Run, file: &Path, tell: &mut dyn FnMut(CheckEvent<'_>)) {
    let (mut counted, mut gone, mut values) = (0, 0, BTreeMap::<u64, u64>::new());
    let (mut at, mut is_whole) = (HEADER_BYTES as u64, true);
    for section in run.sections() {
        let mut walk = SectionCheck::new(run, section, file);
        is_whole &= walk.blocks(&mut at, &mut |event| {
            if let CheckEvent::Row(_, row) = &event {
                counted += 1;
                gone += u64::from(row.is_gone());
                if let Some(place) = row.place() {
                    *values.entry(place.file).or_default() += u64::from(place.length);
                }
            }
            tell(event);
        });
    }
    let agrees = (counted, gone) == (run.rows(), run.gone()) && values == *run.values();
    if is_whole && !(agrees && at == run.filters_at()) {
        let reason = "its index does not agree with its blocks";
        tell(CheckEvent::Damage(Damage::of(file.to_owned(), reason)));
    }
}

/// A walk over the blocks of a section.
struct SectionCheck<'r> {
    run: &'r Run,
    section: &'r Section,
    file: &'r Path,
    /// The last row that was read.
    last: Option<Vec<u8>>,
    /// Range of damaged blocks at the current position.
    gap: Option<(u64, u64)>,
    gaps: Vec<Damage>,
    rows: u64,
    lowest: Seqno,
    highest: Seqno,
    /// Damage that is reported only once for a section.
    wrong: Option<&'static str>,
}

impl<'r> SectionCheck<'r> {
    fn new(run: &'r Run, section: &'r Section, file: &'r Path) -> Self {
        Self {
            run,
            section,
            file,
            last: None,
            gap: None,
            gaps: Vec::new(),
            rows: 0,
            lowest: Seqno(u64::MAX),
            highest: Seqno::ZERO,
            wrong: None,
        }
    }

    /// Reads all blocks, which should begin at `at`. Returns whether all are undamaged.
    fn blocks(&mut self, at: &mut u64, tell: &mut dyn FnMut(CheckEvent<'_>)) -> bool {
        let section = self.section;
        let mut bytes = Vec::new();
        for block in section.first_block..section.first_block + section.blocks {
            let (from, to) = self.run.index.block(section, block);
            if from != *at {
                self.wrong = Some("its blocks do not follow one another");
            }
            *at = to;
            tell(CheckEvent::Bytes(to.saturating_sub(from)));
            match self.run.read_block_by(true, (section, block), &mut bytes) {
                Ok(()) => self.block(block, &bytes, tell),
                Err(_) => self.gap = Some((self.gap.map_or(from, |(from, _)| from), to)),
            }
        }
        self.end_gap(None);
        let is_whole = self.gaps.is_empty();
        let counts = (self.rows, self.lowest, self.highest);
        if !is_whole {
            let lost = u64::from(section.rows).saturating_sub(self.rows);
            if let [gap] = &mut self.gaps[..] {
                gap.rows = Some(lost);
            }
        } else if counts != (u64::from(section.rows), section.lowest, section.highest) {
            self.wrong = Some("its index does not agree with its rows");
        }
        for gap in self.gaps.drain(..) {
            tell(CheckEvent::Damage(gap));
        }
        if let Some(reason) = self.wrong {
            tell(CheckEvent::Damage(self.damage(reason)));
        }
        is_whole
    }

    /// Ends a gap before the row `next`.
    fn end_gap(&mut self, next: Option<Row<'_>>) {
        let Some((from, to)) = self.gap.take() else {
            return;
        };
        let last = self.last.as_deref().and_then(Row::first_of);
        let key = |row: Option<Row<'_>>| row.map(|row| row.key().to_vec());
        self.gaps.push(Damage {
            keys: Keys::Between(key(last), key(next)),
            ..self.damage(format!("bytes {from} to {to} are damaged"))
        });
    }

    fn damage(&self, reason: impl Into<String>) -> Damage {
        Damage {
            vb: Some(self.section.vb),
            ..Damage::of(self.file.to_owned(), reason)
        }
    }

    fn block(&mut self, block: u32, bytes: &[u8], tell: &mut dyn FnMut(CheckEvent<'_>)) {
        let (vb, mut length) = (self.section.vb, 0);
        for row in rows(bytes) {
            if length == 0 {
                self.end_gap(Some(row));
            }
            length += row.bytes.len();
            self.rows += 1;
            self.lowest = self.lowest.min(row.seqno());
            self.highest = self.highest.max(row.seqno());
            let last = self.last.as_deref().and_then(Row::first_of);
            if last.is_some_and(|last| last.name() >= row.name()) {
                self.wrong = Some("its rows are out of order");
            }
            if !self.is_found(row, block) {
                self.wrong = Some("a row of it is not found by its key");
            }
            if !row.is_gone() && row.meta().is_err() {
                self.wrong = Some("a row of it makes no sense");
            }
            let last = self.last.get_or_insert_default();
            last.clear();
            last.extend_from_slice(row.bytes);
            tell(CheckEvent::Row(vb, row));
        }
        let padding = &bytes[length..];
        if padding.len() >= BLOCK_ALIGN || padding.iter().any(|byte| *byte != 0) {
            self.wrong = Some("a block of it makes no sense");
        }
    }

    /// Whether index and filter find a row.
    fn is_found(&self, row: Row<'_>, block: u32) -> bool {
        let name = row.name();
        if row.tag() == HISTORY {
            return self.run.index.block_of(self.section, name) == block;
        }
        let hash = row::hash(self.section.vb, name);
        self.run.may_have(self.section, name, hash) == Some(block)
    }
}

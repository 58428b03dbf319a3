//! A view of a vBucket's rows.

use std::cmp::Reverse;
use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;

use model::{CollectionId, Document, Seqno, VbId};

use crate::StoreError;
use crate::key_range::KeyRange;
use crate::lsm::current::{Current, Values, WalkBytes};
use crate::lsm::fault::read_error_of;
use crate::lsm::log::{LogRow, Ordered};
use crate::lsm::row::{self, Row};
use crate::lsm::run::{Cursor, Merged, Run, Section};
use crate::lsm::sealed::StoreFile;
use crate::lsm::state::Lineage;

/// A range of names.
pub(crate) struct NameRange {
    from: Vec<u8>,
    /// End (exclusive).
    to: Vec<u8>,
}

impl NameRange {
    /// Returns the range of a tag.
    pub(crate) fn of_tag(tag: u8) -> Self {
        Self::of_keys(tag, &KeyRange::default())
    }

    /// Returns the range of a tag with keys in a range.
    pub(crate) fn of_keys(tag: u8, keys: &KeyRange) -> Self {
        let to = keys.to.as_ref();
        Self {
            from: row::name(tag, &keys.from),
            to: to.map_or_else(|| vec![tag + 1], |key| row::name(tag, key)),
        }
    }

    fn contains(&self, name: &[u8]) -> bool {
        name >= &*self.from && name < &*self.to
    }

    /// Whether names of a class may be in it.
    fn may_have(&self, class: u8) -> bool {
        let tag = [class, class + 1];
        let events = [
            CollectionId::SYSTEM.0 as u8,
            CollectionId::SYSTEM.0 as u8 + 1,
        ];
        let events = events.map(|first| [row::DOCUMENT, first]);
        let [from, to] = if class == row::EVENT {
            events.each_ref().map(|name| &name[..])
        } else {
            [&tag[..1], &tag[1..]]
        };
        &*self.from < to && from < &*self.to
    }
}

/// A view of a vBucket's rows at one moment.
pub(crate) struct RowView {
    pub(super) vb: VbId,
    pub(crate) lineage: Lineage,
    pub(crate) values: Values,
    pub(super) walks: WalkBytes,
    /// Valid rows of the logs with their files, sorted by hash.
    pub(super) logged: Vec<(LogRow, Arc<StoreFile>)>,
    /// Known order of each log.
    orders: Vec<(Arc<Ordered>, Arc<StoreFile>)>,
}

impl RowView {
    /// Opens a view of the current rows.
    ///
    /// Cost: a copy of the vBucket's rows in the index of the logs, 40 bytes a row.
    pub(crate) fn open(current: &Current, vb: VbId, lineage: Lineage) -> Self {
        let (mut logged, mut orders) = (Vec::new(), Vec::new());
        for log in current.logs() {
            let rows = log.rows_of(vb, &lineage);
            logged.extend(rows.map(|row| (*row, Arc::clone(&log.file))));
            orders.push((log.order.known(), Arc::clone(&log.file)));
        }
        logged.sort_unstable_by_key(|(row, _)| row.hash);
        Self {
            vb,
            lineage,
            values: current.values(),
            walks: current.walks.clone(),
            logged,
            orders,
        }
    }

    /// Iterates over the runs with valid rows.
    pub(crate) fn sections(&self) -> impl Iterator<Item = (&Arc<Run>, &Section, Seqno)> {
        self.values.version.sections(self.vb, &self.lineage)
    }

    /// Returns the rows of the logs with a hash.
    pub(super) fn logged_of(&self, hash: u64) -> &[(LogRow, Arc<StoreFile>)] {
        let from = self.logged.partition_point(|(row, _)| row.hash < hash);
        let rest = &self.logged[from..];
        &rest[..rest.partition_point(|(row, _)| row.hash == hash)]
    }

    /// Whether a row of the logs has the same name and is newer; for a row that is not
    /// `in_log` itself also one of the same seqno.
    pub(super) fn is_hidden(&self, row: Row<'_>, in_log: bool) -> io::Result<bool> {
        if self.logged.is_empty() {
            return Ok(false);
        }
        let mut bytes = Vec::new();
        for (other, file) in self.logged_of(row::hash(self.vb, row.name())) {
            let newer = (other.seqno, other.gone) > (row.seqno(), row.is_gone())
                || !in_log && other.seqno == row.seqno();
            if !newer {
                continue;
            }
            other.read(file, &mut bytes)?;
            if Row::of(&bytes)?.name() == row.name() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Iterates over the rows of the runs from a name on, and over those of the logs in `logged`.
    /// Runs without a seqno from `lowest` on are skipped.
    pub(super) fn merged(&self, logged: Vec<u8>, from: &[u8], lowest: Seqno) -> io::Result<Merged> {
        let mut cursors = vec![(Cursor::of_rows(logged)?, Seqno(u64::MAX))];
        for (run, section, limit) in self.sections() {
            if section.highest >= lowest {
                let cursor = Cursor::new(Arc::clone(run), *section, from)?;
                cursors.push((cursor, limit));
            }
        }
        Merged::new(cursors)
    }

    /// Passes the rows from seqno `lowest` on with names in some ranges to `f`, in the order of names, until it
    /// breaks. The ranges ascend. Files that have only lower seqnos are not read.
    ///
    /// Cost: mostly a block of each run for each range and those in the ranges, and the rows of the
    /// logs in them (see [`LogOrder`](crate::lsm::log::LogOrder)).
    pub(crate) fn by_name(
        &self,
        lowest: Seqno,
        ranges: &[NameRange],
        f: &mut dyn FnMut(Row<'_>) -> Result<ControlFlow<()>, StoreError>,
        during: &'static str,
    ) -> Result<(), StoreError> {
        let io = read_error_of(self.vb, during);
        let Some(first) = ranges.first() else {
            return Ok(());
        };
        let logged = self.logged_by_name(lowest, ranges).map_err(&io)?;
        let mut rows = self.merged(logged, &first.from, lowest).map_err(&io)?;
        for range in ranges {
            rows.seek(&range.from).map_err(&io)?;
            while let Some(row) = rows.row().filter(|row| range.contains(row.name())) {
                if !row.is_gone() && row.seqno() >= lowest && f(row)?.is_break() {
                    return Ok(());
                }
                rows.advance().map_err(&io)?;
            }
        }
        Ok(())
    }

    /// See `Snapshot::beside_documents`; events from seqno `events` on, or none.
    pub(crate) fn beside_documents(
        &self,
        events: Option<Seqno>,
    ) -> Result<Vec<Document>, StoreError> {
        let during = "reading events and durable writes";
        let io = read_error_of(self.vb, during);
        let keys = KeyRange::of_collection(CollectionId::SYSTEM);
        let (keys, prepared) = (
            NameRange::of_keys(row::DOCUMENT, &keys),
            NameRange::of_tag(row::PREPARED),
        );
        let mut found = Vec::new();
        let take = &mut |row: Row<'_>| {
            found.push(self.values.document(row).map_err(&io)?);
            Ok(ControlFlow::Continue(()))
        };
        match events {
            Some(Seqno(0 | 1)) => self.by_name(Seqno::ZERO, &[keys, prepared], take, during)?,
            Some(lowest) => {
                self.by_name(lowest, &[keys], take, during)?;
                self.by_name(Seqno::ZERO, &[prepared], take, during)?;
            }
            None => self.by_name(Seqno::ZERO, &[prepared], take, during)?,
        }
        found.sort_by_key(Document::seqno);
        Ok(found)
    }

    /// Returns the rows of the logs from seqno `lowest` on with names in some ranges, by name, the newest of each.
    fn logged_by_name(&self, lowest: Seqno, ranges: &[NameRange]) -> io::Result<Vec<u8>> {
        let mut rows = Vec::new();
        for (order, file) in &self.orders {
            for range in ranges {
                let range = (&*range.from, &*range.to);
                order.range((&**file, self.vb), range, &mut |place, bytes| {
                    let row = Row::of(&bytes)?;
                    // Rows outside of the view are invalid.
                    let of_name = self.logged_of(row::hash(self.vb, row.name()));
                    let is_valid = of_name
                        .iter()
                        .any(|(row, of)| row.place == place && Arc::ptr_eq(of, file));
                    if is_valid && row.seqno() >= lowest {
                        rows.push(bytes);
                    }
                    Ok(())
                })?;
            }
        }
        let classes: u8 = (0..row::CLASSES)
            .filter(|class| ranges.iter().any(|range| range.may_have(*class)))
            .map(|class| 1 << class)
            .sum();
        for (row, file) in &self.logged {
            let is_ordered = |(order, of): &(Arc<Ordered>, Arc<StoreFile>)| {
                order.has(row) && Arc::ptr_eq(of, file)
            };
            if row.seqno < lowest
                || classes & 1 << row.class() == 0
                || self.orders.iter().any(is_ordered)
            {
                continue;
            }
            let mut bytes = Vec::new();
            row.read(file, &mut bytes)?;
            let name = Row::of(&bytes)?.name();
            if ranges.iter().any(|range| range.contains(name)) {
                rows.push(bytes);
            }
        }
        rows.sort_by(|a, b| rank(a).cmp(&rank(b)));
        // Both logs may have a row of a name.
        rows.dedup_by(|row, newer| rank(row).map(|row| row.0) == rank(newer).map(|row| row.0));
        Ok(rows.concat())
    }
}

/// Returns the order of rows: by name, of each name the newest first.
fn rank(bytes: &[u8]) -> Option<(&[u8], Reverse<Seqno>, bool)> {
    let row = Row::first_of(bytes)?;
    Some((row.name(), Reverse(row.seqno()), !row.is_gone()))
}

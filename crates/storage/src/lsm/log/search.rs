//! Search for the undamaged parts of a log.

use std::io;

use super::chunk::Entry;
use super::replay::{ExistingLog, Groups};
use crate::lsm::bytes::{FileKind, HEADER_BYTES};
use crate::lsm::files::Files;
use crate::lsm::sealed;

/// Groups of a log that are missing or incomplete, although others follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Missing {
    /// Their expected range of offsets.
    pub(crate) from: u64,
    pub(crate) to: u64,
    /// Their number.
    pub(crate) groups: u64,
}

/// Result of a search.
#[derive(Debug)]
pub(crate) struct Searched {
    /// Position after the last whole group.
    pub(crate) groups: Groups,
    pub(crate) missing: Vec<Missing>,
}

impl ExistingLog {
    /// Opens a log, even one with a damaged header.
    pub(crate) fn open_any(files: &dyn Files, number: u64) -> io::Result<Self> {
        Self::of(sealed::open_any(files, FileKind::Log, number)?, number)
    }

    /// Passes the entries of all whole groups to `each`, also those after damage. `last` is the
    /// group before the first one of the log, if known.
    ///
    /// Cost: reads the file.
    pub(crate) fn search(
        &self,
        last: Option<u64>,
        each: &mut dyn FnMut(Entry<'_>) -> io::Result<()>,
    ) -> io::Result<Searched> {
        let mut groups = Groups {
            end: HEADER_BYTES as u64,
            last_group: last.unwrap_or(0),
        };
        let (mut any, mut missing) = (false, Vec::new());
        loop {
            if self.pass_group(&mut groups, each)? {
                any = true;
                continue;
            }
            let Some(next) = self.next_whole(groups)? else {
                break;
            };
            let is_known = any || last.is_some();
            if is_known || next.end > groups.end {
                let between = next.last_group - groups.last_group;
                missing.push(Missing {
                    from: groups.end,
                    to: next.end,
                    groups: if is_known { between } else { 1 },
                });
            }
            groups = next;
        }
        Ok(Searched { groups, missing })
    }

    /// Returns the position of the next whole group with a higher number.
    fn next_whole(&self, groups: Groups) -> io::Result<Option<Groups>> {
        self.find_header(groups, usize::MAX, |at, header| {
            let next = Groups {
                end: at,
                last_group: header.group - 1,
            };
            let is_next = header.chunk == 0 && self.group(next)?.is_some();
            Ok(is_next.then_some(next))
        })
    }
}

//! The lines on standard output: one for each change.

use std::io::{self, Write as _};

use changes::{Change, cloud_rollback, void_after};
use model::{Seqno, VbId, VbUuid};

use crate::exit::{Failure, Sysexit};

/// Number of waiting bytes that triggers a write, so that a burst does not pile up.
const PIECE_BYTES: usize = 256 * 1024;

/// Format of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Format {
    /// One JSON object per line
    Json,
    /// One CloudEvent (1.0, JSON) per line
    Cloudevents,
}

/// Lines for standard output.
#[derive(Debug)]
pub(super) struct Lines {
    format: Format,
    /// Source of CloudEvents.
    source: String,
    waiting: Vec<u8>,
    changes: u64,
}

/// Reason why no more lines are written.
#[derive(Debug)]
pub(super) enum Unwritten {
    /// The reader of standard output went away (`settee tail | head`): not a failure.
    ReaderGone,
    /// Standard output cannot be written.
    Failed(Failure),
}

impl Lines {
    /// Creates lines without content.
    pub(super) fn new(format: Format, bucket: &str) -> Self {
        Self {
            format,
            source: format!("/buckets/{bucket}"),
            waiting: Vec::new(),
            changes: 0,
        }
    }

    /// Number of changes so far.
    pub(super) fn changes(&self) -> u64 {
        self.changes
    }

    /// Whether the waiting lines should be written before more changes are taken.
    pub(super) fn is_full(&self) -> bool {
        self.waiting.len() >= PIECE_BYTES
    }

    /// Appends a change; `uuid` is the UUID of its history.
    pub(super) fn change(&mut self, change: &Change<'_>, uuid: VbUuid) {
        match self.format {
            Format::Json => change.write_json(&mut self.waiting),
            Format::Cloudevents => change.write_cloud_event(&self.source, uuid, &mut self.waiting),
        }
        self.waiting.push(b'\n');
        self.changes += 1;
    }

    /// Appends a rollback: changes of a vBucket after this seqno are void.
    pub(super) fn rollback(&mut self, vbucket: VbId, seqno: Seqno) {
        match self.format {
            Format::Json => void_after(vbucket, seqno, &mut self.waiting),
            Format::Cloudevents => {
                cloud_rollback(&self.source, vbucket, seqno, &mut self.waiting);
            }
        }
        self.waiting.push(b'\n');
    }

    /// Writes the waiting lines; blocks while their reader does not read.
    ///
    /// # Errors
    /// As in [`Unwritten`]; the waiting lines are lost.
    pub(super) fn flush(&mut self) -> Result<(), Unwritten> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        let mut stdout = io::stdout().lock();
        let written = stdout
            .write_all(&self.waiting)
            .and_then(|()| stdout.flush());
        self.waiting.clear();
        written.map_err(|error| {
            if error.kind() == io::ErrorKind::BrokenPipe {
                return Unwritten::ReaderGone;
            }
            let reason = format!("standard output: {error}");
            Unwritten::Failed(Failure::new(Sysexit::Os, reason))
        })
    }
}

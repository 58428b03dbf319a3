//! What goes to standard output: one line for each change.

use std::io::{self, Write as _};

use changes::{Change, cloud_rollback, void_after};
use model::{Seqno, VbId, VbUuid};

use crate::exit::{Failure, Sysexit};

/// When this much is waiting it is written, so that a burst does not pile up.
const PIECE_BYTES: usize = 256 * 1024;

/// How a change is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Format {
    /// One JSON object a line
    Json,
    /// One CloudEvent (1.0, JSON) a line
    Cloudevents,
}

/// Lines on their way to standard output.
#[derive(Debug)]
pub(super) struct Lines {
    format: Format,
    /// What the source of a CloudEvent is called.
    source: String,
    waiting: Vec<u8>,
    changes: u64,
}

/// Why nothing more is written.
#[derive(Debug)]
pub(super) enum Unwritten {
    /// Its reader went away (`settee tail | head`): no failure.
    ReaderGone,
    /// It cannot be written.
    Failed(Failure),
}

impl Lines {
    /// Nothing written yet.
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

    /// Whether so much waits that it should be written before more is taken.
    pub(super) fn is_full(&self) -> bool {
        self.waiting.len() >= PIECE_BYTES
    }

    /// Appends a change; `uuid` is the history that it belongs to.
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

    /// Writes what waits; this blocks while its reader does not read.
    ///
    /// # Errors
    /// As [`Unwritten`] says; what waits is lost.
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

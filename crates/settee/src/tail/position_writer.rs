//! Decides when the position is stored.

use std::time::{Duration, Instant};

use changes::Streams;

use super::state::TailStateFile;
use crate::exit::Failure;

/// Largest age of the stored position after a kill or a power cut; later changes are written again.
const INTERVAL: Duration = Duration::from_millis(200);

/// Stores the position of written changes, if the user wants it.
#[derive(Debug)]
pub(super) struct PositionWriter {
    file: Option<TailStateFile>,
    kept_at: Option<Instant>,
}

impl PositionWriter {
    /// Creates a writer that stores the position in `file`.
    pub(super) fn new(file: Option<TailStateFile>) -> Self {
        Self {
            file,
            kept_at: None,
        }
    }

    /// Stores the position, unless it was stored a moment ago. Everything up to it must be written already.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn keep(&mut self, streams: &Streams) -> Result<(), Failure> {
        let now = Instant::now();
        let due = self.kept_at.is_none_or(|last| now - last >= INTERVAL);
        if due {
            self.write(streams, now)
        } else {
            Ok(())
        }
    }

    /// Stores the last position.
    ///
    /// # Errors
    /// As [`PositionWriter::keep`].
    pub(super) fn finish(&mut self, streams: &Streams) -> Result<(), Failure> {
        self.write(streams, Instant::now())
    }

    fn write(&mut self, streams: &Streams, now: Instant) -> Result<(), Failure> {
        let Some(file) = &self.file else {
            return Ok(());
        };
        file.save(&streams.position())?;
        self.kept_at = Some(now);
        Ok(())
    }
}

//! When the position is written down.

use std::time::{Duration, Instant};

use changes::Streams;

use super::state::StateFile;
use crate::exit::Failure;

/// Longest age of the position after a kill or a power cut; later changes are written again.
const INTERVAL: Duration = Duration::from_millis(200);

/// Keeps the position of what was written, if the user wants it kept.
#[derive(Debug)]
pub(super) struct Keeper {
    file: Option<StateFile>,
    kept_at: Option<Instant>,
}

impl Keeper {
    /// Keeps the position in `file`.
    pub(super) fn new(file: Option<StateFile>) -> Self {
        Self {
            file,
            kept_at: None,
        }
    }

    /// Writes the position down unless that was done a moment ago. Everything up to it must have
    /// left the process.
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

    /// Writes the position down for good.
    ///
    /// # Errors
    /// As [`Keeper::keep`].
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

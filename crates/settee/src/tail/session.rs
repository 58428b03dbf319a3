//! A tail from its first change to its last.

use super::interrupt::Interrupt;
use super::lines::{Lines, Unwritten};
use super::position_writer::PositionWriter;
use crate::exit::Failure;
use crate::stream::{Source, StreamEvent, TICK};

/// Reason why a tail ended.
#[derive(Debug)]
pub(super) enum Ended {
    /// The user requested an end.
    Interrupted,
    /// All requested changes were written.
    Complete,
    /// The reader of standard output went away.
    ReaderGone,
}

/// Receives the changes of a tail.
pub(super) struct Tail {
    /// The output.
    pub(super) lines: Lines,
    /// Stores the position.
    pub(super) position_writer: PositionWriter,
    /// The user's request to end.
    pub(super) interrupt: Interrupt,
    /// Number of changes after which the tail ends.
    pub(super) changes_max: u64,
    /// Whether lines have no values.
    pub(super) keys_only: bool,
}

impl Tail {
    /// Writes changes until the tail ends.
    ///
    /// # Errors
    /// As [`Source::turn`]; standard output or the state file cannot be written.
    pub(super) fn run(&mut self, source: &mut Source) -> Result<Ended, Failure> {
        loop {
            let mut unwritten = None;
            let turned = source.turn(TICK, |event| {
                self.tell(&event);
                if self.lines.is_full() {
                    unwritten = self.lines.flush().err();
                }
                Ok(unwritten.is_none() && self.lines.changes() < self.changes_max)
            });
            match unwritten.map_or_else(|| self.lines.flush(), Err) {
                Ok(()) => {}
                Err(Unwritten::ReaderGone) => return Ok(Ended::ReaderGone),
                Err(Unwritten::Failed(failure)) => return Err(failure),
            }
            if let Err(broken) = turned {
                self.position_writer.finish(source.streams())?;
                return Err(broken.into());
            }
            self.position_writer.keep(source.streams())?;
            source.acknowledge()?;
            if source.streams().all_done() || self.lines.changes() >= self.changes_max {
                return Ok(Ended::Complete);
            }
            if self.interrupt.is_asked() {
                return Ok(Ended::Interrupted);
            }
        }
    }

    fn tell(&mut self, event: &StreamEvent<'_>) {
        match *event {
            StreamEvent::Change {
                change,
                names,
                history,
                ..
            } => {
                let mut change = change.named(names);
                if self.keys_only {
                    change = change.without_value();
                }
                self.lines.change(&change, history);
            }
            StreamEvent::Rollback(vbucket, to) => self.lines.rollback(vbucket, to),
            StreamEvent::System => {}
        }
    }
}

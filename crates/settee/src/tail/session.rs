//! One connection of a tail, from its streams' requests to its end.

use std::time::{Duration, Instant};

use changes::{self, Collections, StreamMessage, Streams};
use client::{Feed, Outgoing};
use wire::Frame;
use wire::dcp::flow_bytes_of;

use super::interrupt::Interrupt;
use super::keeper::Keeper;
use super::lines::{Lines, Unwritten};
use crate::stream::{Asking, Broken, TICK, Window, silent, violation};

/// Without a byte for so long the connection is dead: noops come three times as often.
const SILENCE: Duration = Duration::from_mins(1);

/// How a session ended.
#[derive(Debug)]
pub(super) enum Ended {
    /// The user wants an end.
    Interrupted,
    /// Everything that was asked for was written.
    Complete,
    /// The reader of standard output went away.
    ReaderGone,
}

/// What outlives a connection.
pub(super) struct Tail {
    /// Where every stream is.
    pub(super) streams: Streams,
    /// Output.
    pub(super) lines: Lines,
    /// Where the position is kept.
    pub(super) keeper: Keeper,
    /// Whether the user wants an end.
    pub(super) interrupt: Interrupt,
    /// Changes to tell before it ends.
    pub(super) changes_max: u64,
    /// Bytes that a producer may send without an acknowledgement.
    pub(super) window_bytes: u32,
    /// Lines have no values.
    pub(super) keys_only: bool,
}

/// A connection that was opened for streams.
pub(super) struct Session<'a> {
    tail: &'a mut Tail,
    collections: Collections,
    /// Keys carry the identifier of their collection.
    keyed: bool,
    asking: Asking,
    window: Window,
}

impl<'a> Session<'a> {
    /// A session of a connection on which nothing was asked for yet.
    pub(super) fn new(
        tail: &'a mut Tail,
        collections: Collections,
        keyed: bool,
        filter: String,
    ) -> Self {
        tail.streams.reconnect();
        let window = Window::new(tail.window_bytes as usize / 4);
        Self {
            tail,
            collections,
            keyed,
            asking: Asking::new(filter),
            window,
        }
    }

    /// Streams until there is nothing more to tell.
    ///
    /// # Errors
    /// The connection broke, or the server refuses.
    pub(super) fn run(mut self, feed: &mut Feed) -> Result<Ended, Broken> {
        let mut heard = Instant::now();
        loop {
            self.asking.ask(&mut self.tail.streams, feed.output())?;
            feed.flush()?;
            let came = feed.wait(TICK)?;
            if came {
                heard = Instant::now();
            } else if heard.elapsed() > SILENCE {
                return Err(silent(SILENCE));
            }
            while !self.is_complete() {
                let taken = feed.take(|frame, out| self.on_frame(frame, out))?;
                if taken.is_none() {
                    break;
                }
                if self.tail.lines.is_full()
                    && let Some(ended) = self.write()?
                {
                    return Ok(ended);
                }
            }
            if let Some(ended) = self.write()? {
                return Ok(ended);
            }
            self.tail.keeper.keep(&self.tail.streams)?;
            self.window.acknowledge(feed.output(), !came)?;
            if self.is_complete() {
                return Ok(Ended::Complete);
            }
            if self.tail.interrupt.is_asked() {
                return Ok(Ended::Interrupted);
            }
        }
    }

    fn is_complete(&self) -> bool {
        self.tail.streams.all_done() || self.tail.lines.changes() >= self.tail.changes_max
    }

    fn write(&mut self) -> Result<Option<Ended>, Broken> {
        match self.tail.lines.flush() {
            Ok(()) => Ok(None),
            Err(Unwritten::ReaderGone) => Ok(Some(Ended::ReaderGone)),
            Err(Unwritten::Failed(failure)) => Err(failure.into()),
        }
    }

    fn on_frame(&mut self, frame: &Frame<'_>, out: &mut Outgoing) -> Result<(), Broken> {
        let magic = frame.header.magic;
        if magic.is_client_response() {
            return self.on_answer(frame);
        }
        if !magic.is_client_request() {
            // Pushes about the cluster map.
            return Ok(());
        }
        self.window.add(flow_bytes_of(frame));
        self.on_message(frame, out)
    }

    fn on_answer(&mut self, frame: &Frame<'_>) -> Result<(), Broken> {
        if let Some((vbucket, to)) = self.asking.on_answer(frame, &mut self.tail.streams)? {
            self.tail.lines.rollback(vbucket, to);
        }
        Ok(())
    }

    fn on_message(&mut self, frame: &Frame<'_>, out: &mut Outgoing) -> Result<(), Broken> {
        let told = changes::take(frame, &mut self.tail.streams, self.keyed).map_err(violation)?;
        match told {
            StreamMessage::Change(change) => {
                let history = self.tail.streams.history(change.vbucket());
                let names = self.collections.names(change.collection);
                let mut change = change.named(names);
                if self.tail.keys_only {
                    change = change.without_value();
                }
                self.tail.lines.change(&change, history);
            }
            StreamMessage::System(event) => self.collections.learn(&event),
            other => self.asking.on_other(&other, frame, out)?,
        }
        Ok(())
    }
}

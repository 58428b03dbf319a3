//! One connection of a tail, from its streams' requests to its end.

use std::time::{Duration, Instant};

use changes::{self, Collections, StreamMessage, Streams};
use client::{Feed, Outgoing};
use wire::dcp::{EndReason, flow_bytes_of, parse_rollback};
use wire::response::FailoverEntries;
use wire::{Frame, Opcode, Response, Status};

use super::interrupt::Interrupt;
use super::keeper::Keeper;
use super::lines::{Lines, Unwritten};
use crate::exit::{Failure, Sysexit};
use crate::stream::{Asking, Broken, Window, malformed, refused, silent, vbucket_of, violation};

/// How long one wait for bytes is; an interrupt is noticed that late.
const TICK: Duration = Duration::from_millis(100);
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
        if frame.header.opcode != Opcode::DCP_STREAM_REQ {
            return Ok(());
        }
        let vbucket = vbucket_of(frame.header.opaque);
        match frame.status() {
            Status::SUCCESS => {
                let log = FailoverEntries::parse(frame.value).map_err(malformed)?;
                self.tail
                    .streams
                    .granted(vbucket, log.iter())
                    .map_err(violation)
            }
            Status::ROLLBACK => {
                let to = parse_rollback(frame.value).map_err(malformed)?;
                let to = self
                    .tail
                    .streams
                    .rolled_back(vbucket, to)
                    .map_err(violation)?;
                self.tail.lines.rollback(vbucket, to);
                self.asking.soon(Duration::ZERO);
                Ok(())
            }
            Status::ETMPFAIL | Status::ENOMEM | Status::EBUSY => {
                self.tail.streams.want_again(vbucket);
                self.asking.soon(TICK);
                Ok(())
            }
            status => Err(refused(vbucket, status)),
        }
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
            StreamMessage::Ended { reason, .. } if reason == EndReason::LOST_PRIVILEGES => {
                let lost = "the user may no longer read this bucket";
                return Err(Failure::new(Sysexit::NoPerm, lost).into());
            }
            StreamMessage::Ended { again: true, .. } => self.asking.soon(TICK),
            StreamMessage::Nothing | StreamMessage::Ended { .. } => {}
            StreamMessage::Noop => {
                let answer = Response::new(Opcode::DCP_NOOP, frame.header.opaque, Status::SUCCESS);
                out.answer(&answer);
            }
        }
        Ok(())
    }
}

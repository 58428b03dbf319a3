//! A connection with streams to one node.

use std::time::{Duration, Instant};

use changes::Collections;
use client::{Client, ClientError, Feed, Request};
use wire::Opcode;
use wire::dcp::{OpenFlags, flow_bytes_of};

use super::broken::{Unread, silent};
use super::part::CollectionPart;
use super::reading::{Reading, Told};
use super::window::Window;

/// How long one wait for bytes is; an interrupt is noticed that late.
pub(crate) const TICK: Duration = Duration::from_millis(100);
/// Without a byte for so long the connection is dead: noops come three times as often.
const SILENCE: Duration = Duration::from_mins(1);

/// How connections with streams are opened.
pub(crate) struct Opening {
    /// Begins the names of the connections.
    pub(crate) name: &'static str,
    pub(crate) flags: OpenFlags,
    /// Switches that are set; a server that does not know one of them tells the same with fewer words.
    pub(crate) switches: &'static [&'static str],
    /// Bytes that a node may send ahead.
    pub(crate) window_bytes: u32,
    /// What is streamed; `None` for the whole bucket.
    pub(crate) part: Option<CollectionPart>,
    /// How long a stream that cannot be had is asked for again.
    pub(crate) patience: Duration,
}

/// A connection that was opened for streams.
pub(super) struct NodeLink {
    pub(super) node: usize,
    pub(super) feed: Feed,
    window: Window,
    heard: Instant,
    /// Bytes came in the last turn.
    is_busy: bool,
    /// Streams have told something on it.
    pub(super) has_told: bool,
}

impl NodeLink {
    /// Makes a connection one for streams.
    ///
    /// # Errors
    /// The server refuses, or the connection broke.
    pub(super) fn new(
        node: usize,
        mut client: Client,
        opening: &Opening,
    ) -> Result<Self, ClientError> {
        client.open_streams(opening.name, opening.flags, opening.window_bytes)?;
        for name in opening.switches {
            let (name, value) = (name.as_bytes(), b"true");
            client.request(&Request::with(Opcode::DCP_CONTROL, name, value))?;
        }
        Ok(Self {
            node,
            feed: Feed::new(client),
            window: Window::new(opening.window_bytes),
            heard: Instant::now(),
            is_busy: false,
            has_told: false,
        })
    }

    /// Takes what has come, if anything has; returns whether the command wants more.
    ///
    /// # Errors
    /// The connection is lost, or what [`Reading::take`] returns.
    pub(super) fn read(
        &mut self,
        is_ready: bool,
        reading: &mut Reading,
        on: &mut impl FnMut(Told<'_>) -> Result<bool, Unread>,
    ) -> Result<bool, Unread> {
        self.is_busy = is_ready && self.feed.wait(TICK)?;
        if self.is_busy {
            self.heard = Instant::now();
        } else if self.heard.elapsed() > SILENCE {
            return Err(Unread::Lost(silent(SILENCE)));
        }
        let (node, window, has_told) = (self.node, &mut self.window, &mut self.has_told);
        loop {
            let taken = self.feed.take(|frame, out| {
                if frame.header.magic.is_client_request() {
                    window.add(flow_bytes_of(frame));
                    *has_told = true;
                }
                reading.take(frame, out, node, on)
            })?;
            match taken {
                Some(true) => {}
                Some(false) => return Ok(false),
                None => return Ok(true),
            }
        }
    }

    /// Is done with all that was taken.
    pub(super) fn acknowledge(&mut self) -> Result<(), ClientError> {
        self.window.acknowledge(self.feed.output(), !self.is_busy)
    }

    /// Nothing was read, though there may be something.
    pub(super) fn rest(&mut self) {
        self.heard = Instant::now();
    }
}

/// The collections of the selected bucket, as far as the connection knows of any but the default one.
///
/// # Errors
/// The server refuses, or the connection broke.
pub(crate) fn collections_of(client: &mut Client) -> Result<Collections, ClientError> {
    if !client.key_form().collections {
        return Ok(Collections::only_default());
    }
    let answer = client.expect_success(&Request::new(Opcode::COLLECTIONS_GET_MANIFEST))?;
    Collections::of_manifest(&answer.value)
        .ok_or_else(|| ClientError::broken("COLLECTIONS_GET_MANIFEST", &"no manifest"))
}

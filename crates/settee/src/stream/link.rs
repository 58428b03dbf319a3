//! A connection with streams to one node.

use std::time::{Duration, Instant};

use changes::Collections;
use client::{Client, ClientError, Feed, Request};
use wire::Opcode;
use wire::dcp::{OpenFlags, flow_bytes_of};

use super::broken::{Unread, silent};
use super::part::CollectionPart;
use super::reading::{Reading, StreamEvent};
use super::window::Window;

/// Longest wait for bytes, and so the longest delay of an interrupt.
pub(crate) const TICK: Duration = Duration::from_millis(100);
/// Longest time without a byte; then the connection counts as lost. The interval of noops is a third of it.
const SILENCE: Duration = Duration::from_mins(1);

/// Options of connections with streams.
pub(crate) struct StreamOpening {
    /// Prefix of the connections' names.
    pub(crate) name: &'static str,
    pub(crate) flags: OpenFlags,
    /// DCP controls to set to `true`. A server that does not know one sends the same changes in less detail.
    pub(crate) switches: &'static [&'static str],
    /// Bytes that a node may send without an acknowledgement.
    pub(crate) window_bytes: u32,
    /// Streamed scope or collection; `None` for the whole bucket.
    pub(crate) part: Option<CollectionPart>,
    /// Time limit of retries of a stream that no node grants.
    pub(crate) patience: Duration,
}

/// A connection with streams to one node.
pub(super) struct NodeLink {
    pub(super) node: usize,
    pub(super) feed: Feed,
    window: Window,
    heard: Instant,
    /// Whether bytes came in the last turn.
    is_busy: bool,
    /// Whether the node has sent any message: of a stream, or a noop.
    pub(super) has_told: bool,
}

impl NodeLink {
    /// Opens a connection for streams.
    ///
    /// # Errors
    /// The server refuses, or the connection broke.
    pub(super) fn new(
        node: usize,
        mut client: Client,
        opening: &StreamOpening,
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

    /// Reads received bytes, if any, and handles the frames; returns whether the command wants more.
    ///
    /// # Errors
    /// The connection is lost, or the error of [`Reading::take`].
    pub(super) fn read(
        &mut self,
        is_ready: bool,
        reading: &mut Reading,
        on: &mut impl FnMut(StreamEvent<'_>) -> Result<bool, Unread>,
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

    /// Acknowledges all handled messages.
    pub(super) fn acknowledge(&mut self) -> Result<(), ClientError> {
        self.window.acknowledge(self.feed.output(), !self.is_busy)
    }

    /// Restarts the time limit for silence: the command has not read on purpose.
    pub(super) fn restart_silence(&mut self) {
        self.heard = Instant::now();
    }
}

/// Reads the collections of the selected bucket; only the default one if the connection has no collections.
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

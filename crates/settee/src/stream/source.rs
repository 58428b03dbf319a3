//! Reader of the changes of a bucket, from all of its nodes.
//!
//! It has one thread, and a connection to each node with active vBuckets. It requests a stream from its last position
//! at the node that has the vBucket by the newest map: also after the stream ended, after its connection was lost, and
//! after the node refused it. During a connect, the other connections wait.

use std::time::Duration;

use changes::Streams;
use client::{Client, Nodes, wait_for_any};
use wire::dcp::StreamRequest;

use super::broken::{Broken, Unread};
use super::connect_retries::ConnectRetries;
use super::link::{NodeLink, StreamOpening, collections_of};
use super::reading::{Reading, StreamEvent, stream_envelope};
use crate::exit::{Failure, Sysexit};
use crate::stderr::note;

/// Reader of a bucket's streams.
pub(crate) struct Source {
    reading: Reading,
    opening: StreamOpening,
    /// Value of every stream request: the filter of scope or collection.
    filter: String,
    links: Vec<NodeLink>,
    retries: ConnectRetries,
}

impl Source {
    /// Creates a reader without connections.
    ///
    /// # Errors
    /// `streams` are of a bucket with another number of vBuckets.
    pub(crate) fn new(
        nodes: Nodes,
        streams: Streams,
        opening: StreamOpening,
    ) -> Result<Self, Failure> {
        let source = Self {
            reading: Reading::new(nodes, streams),
            opening,
            filter: String::new(),
            links: Vec::new(),
            retries: ConnectRetries::default(),
        };
        source.is_of_bucket()?;
        Ok(source)
    }

    /// Returns the streams with their positions.
    pub(crate) fn streams(&self) -> &Streams {
        &self.reading.streams
    }

    /// Requests wanted streams, waits for changes, but not longer than `at_most`, and calls `on` for each until it
    /// returns `false`.
    ///
    /// # Errors
    /// A server refuses, no node grants a stream within the time limit, or the error of `on`.
    pub(crate) fn turn(
        &mut self,
        at_most: Duration,
        mut on: impl FnMut(StreamEvent<'_>) -> Result<bool, Broken>,
    ) -> Result<(), Broken> {
        for node in self.reading.cut_off() {
            self.lose(node, self.moved_away(node));
        }
        if self.reading.is_due() {
            self.ask()?;
        }
        self.each(|link, _| Ok(link.feed.flush()?))?;
        let ready = wait_for_any(self.links.iter().map(|link| &link.feed), at_most)?;
        let mut ready = ready.into_iter();
        let mut on = |event: StreamEvent<'_>| on(event).map_err(Unread::from);
        let mut wants_more = true;
        self.each(|link, reading| {
            let is_ready = ready.next().unwrap_or(false);
            wants_more = wants_more && link.read(is_ready, reading, &mut on)?;
            Ok(())
        })
    }

    /// Acknowledges all handled messages, so that the nodes send more.
    ///
    /// # Errors
    /// The acknowledgement cannot be made.
    pub(crate) fn acknowledge(&mut self) -> Result<(), Broken> {
        self.each(|link, _| Ok(link.acknowledge()?))
    }

    /// Restarts the time limit for silence: the command has not read on purpose.
    pub(crate) fn restart_silence(&mut self) {
        self.links.iter_mut().for_each(NodeLink::restart_silence);
    }

    /// Calls `act` for each connection, and drops lost connections.
    fn each(
        &mut self,
        mut act: impl FnMut(&mut NodeLink, &mut Reading) -> Result<(), Unread>,
    ) -> Result<(), Broken> {
        let mut lost = Vec::new();
        for link in &mut self.links {
            match act(link, &mut self.reading) {
                Ok(()) => {}
                Err(Unread::Lost(failure)) => lost.push((link.node, failure)),
                Err(Unread::Broken(broken)) => return Err(broken),
            }
        }
        for (node, failure) in lost {
            self.lose(node, failure);
        }
        Ok(())
    }

    /// Requests the wanted streams, and connects to their nodes.
    fn ask(&mut self) -> Result<(), Failure> {
        self.is_of_bucket()?;
        let wanted = self.reading.wanted_nodes(self.opening.patience)?;
        let reading = &self.reading;
        self.links
            .retain(|link| wanted.contains(&link.node) || reading.has_streams(link.node));
        for node in wanted {
            if !self.links.iter().any(|link| link.node == node) {
                self.connect(node)?;
            }
        }
        let links = &mut self.links;
        let requests = self
            .reading
            .requests(|node| links.iter().any(|link| link.node == node));
        for (node, vbucket, request) in requests {
            let request = StreamRequest {
                value: self.filter.as_bytes(),
                ..request
            };
            if let Some(link) = links.iter_mut().find(|link| link.node == node) {
                link.feed
                    .output()
                    .post(&request, &stream_envelope(vbucket))?;
            }
        }
        Ok(())
    }

    /// Connects to a node, unless its back-off runs.
    fn connect(&mut self, node: usize) -> Result<(), Failure> {
        if !self.retries.is_due(node) {
            return Ok(());
        }
        let opened = self.reading.nodes.open(node);
        let lost = match opened {
            Ok(client) => match self.link(node, client) {
                Ok(()) => return Ok(()),
                Err(Unread::Lost(failure)) => failure,
                Err(Unread::Broken(broken)) => return Err(broken.failure),
            },
            Err(error) => error.into(),
        };
        self.reading.note(lost);
        Ok(self.retries.failed(&mut self.reading.nodes, node)?)
    }

    /// Opens a connection for streams. The first one also reads the collections; after that, the streams report new
    /// collections.
    fn link(&mut self, node: usize, mut client: Client) -> Result<(), Unread> {
        let reading = &mut self.reading;
        if self.links.is_empty() {
            reading.keyed = client.key_form().collections;
            reading.collections = collections_of(&mut client)?;
            self.filter = match &self.opening.part {
                None => String::new(),
                Some(part) => part.filter(&reading.collections)?,
            };
        }
        self.links.push(NodeLink::new(node, client, &self.opening)?);
        Ok(())
    }

    fn lose(&mut self, node: usize, failure: Failure) {
        note(format_args!("{failure}; trying again"));
        // A connection that has sent any message was useful.
        let was_good = self
            .links
            .iter()
            .any(|link| link.node == node && link.has_told);
        self.retries.lost(node, was_good);
        self.links.retain(|link| link.node != node);
        self.reading.leave(node, failure);
    }

    fn moved_away(&self, node: usize) -> Failure {
        let address = self.reading.nodes.address(node);
        let reason = format!("{address} goes on with streams of vBuckets that moved away");
        Failure::new(Sysexit::Unavailable, reason)
    }

    fn is_of_bucket(&self) -> Result<(), Failure> {
        let (known, there) = (self.streams().vbuckets(), self.reading.nodes.vbuckets());
        if known == usize::from(there) {
            return Ok(());
        }
        let reason =
            format!("the position is of a bucket with {known} vBuckets, this one has {there}");
        Err(Failure::new(Sysexit::Data, reason))
    }
}

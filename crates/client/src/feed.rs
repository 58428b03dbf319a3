//! A connection on which a server sends without being asked each time: a change stream.

use std::io::{self, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use wire::{Envelope, Frame, Message, Response};

use crate::connection::Client;
use crate::error::ClientError;
use crate::input::Input;
use crate::link::Link;

/// Errors name this as what the connection did.
const DURING: &str = "streaming";

/// A connection whose frames are taken one after the other, answers and messages alike.
#[derive(Debug)]
pub struct Feed {
    stream: Link<TcpStream>,
    input: Input,
    output: Outgoing,
    /// Longest wait of a read, as the socket has it.
    patience: Option<Duration>,
}

/// What is to be sent; posting does not touch the socket.
#[derive(Debug, Default)]
pub struct Outgoing(Vec<u8>);

impl Outgoing {
    /// Appends a message.
    ///
    /// # Errors
    /// A part of it is too long for a frame.
    pub fn post<'m>(
        &mut self,
        message: &impl Message<'m>,
        envelope: &Envelope<'_>,
    ) -> Result<(), ClientError> {
        Ok(message.encode(envelope, &mut self.0)?)
    }

    /// Appends an answer.
    pub fn answer(&mut self, response: &Response<'_>) {
        response.encode(&mut self.0);
    }

    /// What was posted and not sent yet.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl Feed {
    /// Takes over a connection on which no answer is outstanding.
    pub fn new(client: Client) -> Self {
        let (stream, input) = client.into_parts();
        Self {
            stream,
            input,
            output: Outgoing::default(),
            patience: None,
        }
    }

    /// Where messages are posted while no frame is being looked at.
    pub fn output(&mut self) -> &mut Outgoing {
        &mut self.output
    }

    /// Sends what was posted.
    ///
    /// # Errors
    /// The connection broke.
    pub fn flush(&mut self) -> Result<(), ClientError> {
        if !self.output.0.is_empty() {
            self.stream.write_all(&self.output.0).map_err(lost)?;
            self.output.0.clear();
        }
        Ok(())
    }

    /// Sends bytes at once, before what was posted.
    ///
    /// # Errors
    /// The connection broke.
    pub fn send(&mut self, bytes: &[u8]) -> Result<(), ClientError> {
        self.stream.write_all(bytes).map_err(lost)
    }

    /// Waits for bytes, but not longer than `at_most`; whether any came.
    ///
    /// # Errors
    /// The connection broke.
    pub fn wait(&mut self, at_most: Duration) -> Result<bool, ClientError> {
        if self.patience != Some(at_most) {
            let socket = self.stream.socket();
            socket.set_read_timeout(Some(at_most)).map_err(lost)?;
            self.patience = Some(at_most);
        }
        match self.input.fill(&mut self.stream) {
            Ok(_) => Ok(true),
            Err(error) if is_timeout(&error) => Ok(false),
            Err(error) => Err(lost(error)),
        }
    }

    /// Waits for bytes, but not longer than `at_most`, and takes all whole frames; whether any
    /// bytes came.
    ///
    /// # Errors
    /// As [`Feed::wait`] and [`Feed::take`].
    pub fn receive<E: From<ClientError>>(
        &mut self,
        at_most: Duration,
        mut on: impl FnMut(&Frame<'_>, &mut Outgoing) -> Result<(), E>,
    ) -> Result<bool, E> {
        let came = self.wait(at_most)?;
        while self.take(&mut on)?.is_some() {}
        Ok(came)
    }

    /// Takes the next whole frame, if there is one; `on` may post messages.
    ///
    /// # Errors
    /// The server sent no frame, or what `on` returns.
    pub fn take<T, E: From<ClientError>>(
        &mut self,
        on: impl FnOnce(&Frame<'_>, &mut Outgoing) -> Result<T, E>,
    ) -> Result<Option<T>, E> {
        let broken = |error| ClientError::broken(DURING, &error);
        match self.input.next().map_err(broken)? {
            None => Ok(None),
            Some(frame) => on(&frame, &mut self.output).map(Some),
        }
    }
}

/// Waits until one of some connections has bytes to read, but not longer than `at_most`; returns which of them have.
///
/// # Errors
/// The system cannot wait.
pub fn wait_for_any<'f>(
    feeds: impl Iterator<Item = &'f Feed>,
    at_most: Duration,
) -> Result<Vec<bool>, ClientError> {
    let sockets = feeds.map(|feed| PollFd::new(feed.stream.socket(), PollFlags::IN));
    let mut sockets: Vec<_> = sockets.collect();
    let at_most = Timespec::try_from(at_most).ok();
    match poll(&mut sockets, at_most.as_ref()) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(error) => return Err(lost(error.into())),
    }
    Ok(sockets
        .iter()
        .map(|socket| !socket.revents().is_empty())
        .collect())
}

fn lost(source: io::Error) -> ClientError {
    ClientError::Lost {
        during: DURING,
        source,
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted
    )
}

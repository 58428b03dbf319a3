//! A connection on which a server sends without being asked each time: a change stream.

use std::io::{self, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use wire::{Envelope, Frame, Message, Response};

use super::{Client, ClientError, Input, Link};

/// What goes wrong while frames come in is told with this word.
const DURING: &str = "streaming";

/// A connection whose frames are taken one after the other, answers and messages alike.
#[derive(Debug)]
pub(crate) struct Feed {
    stream: Link<TcpStream>,
    input: Input,
    output: Outgoing,
}

/// What is to be sent; posting does not touch the socket.
#[derive(Debug, Default)]
pub(crate) struct Outgoing(Vec<u8>);

impl Outgoing {
    /// Appends a message.
    ///
    /// # Errors
    /// A part of it is too long for a frame.
    pub(crate) fn post<'m>(
        &mut self,
        message: &impl Message<'m>,
        envelope: &Envelope<'_>,
    ) -> Result<(), ClientError> {
        Ok(message.encode(envelope, &mut self.0)?)
    }

    /// Appends an answer.
    pub(crate) fn answer(&mut self, response: &Response<'_>) {
        response.encode(&mut self.0);
    }
}

impl Feed {
    /// Takes over a connection on which no answer is outstanding.
    pub(crate) fn new(client: Client) -> Self {
        Self {
            stream: client.stream,
            input: client.input,
            output: Outgoing::default(),
        }
    }

    /// Where messages are posted while no frame is being looked at.
    pub(crate) fn output(&mut self) -> &mut Outgoing {
        &mut self.output
    }

    /// Sends what was posted.
    ///
    /// # Errors
    /// The connection broke.
    pub(crate) fn flush(&mut self) -> Result<(), ClientError> {
        if !self.output.0.is_empty() {
            self.stream.write_all(&self.output.0).map_err(lost)?;
            self.output.0.clear();
        }
        Ok(())
    }

    /// Waits for bytes, but not longer than `at_most`; whether any came.
    ///
    /// # Errors
    /// The connection broke.
    pub(crate) fn wait(&mut self, at_most: Duration) -> Result<bool, ClientError> {
        let socket = self.stream.socket();
        socket.set_read_timeout(Some(at_most)).map_err(lost)?;
        match self.input.fill(&mut self.stream) {
            Ok(()) => Ok(true),
            Err(error) if is_timeout(&error) => Ok(false),
            Err(error) => Err(lost(error)),
        }
    }

    /// Takes the next whole frame, if there is one; `on` may post messages.
    ///
    /// # Errors
    /// The server sent no frame, or what `on` returns.
    pub(crate) fn take<T, E: From<ClientError>>(
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

//! A connection of change streams: the server sends frames without a request for each.

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

/// Activity that errors name.
const DURING: &str = "streaming";

/// A connection of change streams. It returns answers and messages in the order of their arrival.
#[derive(Debug)]
pub struct Feed {
    stream: Link<TcpStream>,
    input: Input,
    output: Outgoing,
    /// Whether the link (TLS) may hold written bytes that it has not flushed to the socket.
    is_unflushed: bool,
    /// Read timeout that is set on the socket.
    patience: Option<Duration>,
}

/// Buffer of frames to send; posting does not touch the socket.
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

    /// Returns the bytes that were posted and not sent yet.
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
            is_unflushed: false,
            patience: None,
        }
    }

    /// Returns the send buffer, for posting outside of [`Feed::take`].
    pub fn output(&mut self) -> &mut Outgoing {
        &mut self.output
    }

    /// Sends posted bytes until the socket would block; later calls send the rest.
    ///
    /// # Errors
    /// The connection broke.
    pub fn flush(&mut self) -> Result<(), ClientError> {
        if self.has_unsent() {
            let posted = std::mem::take(&mut self.output.0);
            let sent = self.write_ready(&posted)?;
            self.output.0 = posted;
            self.output.0.drain(..sent);
        }
        Ok(())
    }

    /// Sends frames after what was posted, as far as the connection takes them now; the rest is posted.
    ///
    /// # Errors
    /// The connection broke.
    pub fn offer(&mut self, frames: &[u8]) -> Result<(), ClientError> {
        self.flush()?;
        let sent = if self.has_unsent() {
            0
        } else {
            self.write_ready(frames)?
        };
        self.output
            .0
            .extend_from_slice(frames.get(sent..).unwrap_or_default());
        Ok(())
    }

    fn has_unsent(&self) -> bool {
        self.is_unflushed || !self.output.0.is_empty()
    }

    /// Returns how many of the bytes the connection took.
    fn write_ready(&mut self, bytes: &[u8]) -> Result<usize, ClientError> {
        self.stream.socket().set_nonblocking(true).map_err(lost)?;
        let mut sent = 0;
        let ended = loop {
            let rest = bytes.get(sent..).unwrap_or_default();
            if rest.is_empty() {
                break self.stream.flush();
            }
            match self.stream.write(rest) {
                Ok(0) => break Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => sent += count,
                Err(error) => break Err(error),
            }
        };
        self.stream.socket().set_nonblocking(false).map_err(lost)?;
        self.is_unflushed = ended.is_err();
        match ended {
            Err(error) if !is_timeout(&error) => Err(lost(error)),
            _ => Ok(sent),
        }
    }

    /// Sends bytes at once, before all posted bytes.
    ///
    /// # Errors
    /// The connection broke.
    pub fn send(&mut self, bytes: &[u8]) -> Result<(), ClientError> {
        self.stream.write_all(bytes).map_err(lost)
    }

    /// Waits for bytes, but not longer than `at_most`; returns whether any came.
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

    /// Waits for bytes, but not longer than `at_most`, and takes all whole frames; returns whether any
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
    /// The bytes are no frame, or the error of `on`.
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

/// Waits until a connection has bytes to read, or can send more posted bytes, but not longer than `at_most`.
/// Returns for each connection whether it has bytes.
///
/// # Errors
/// The system cannot wait.
pub fn wait_for_any<'f>(
    feeds: impl Iterator<Item = &'f Feed>,
    at_most: Duration,
) -> Result<Vec<bool>, ClientError> {
    let sockets = feeds.map(|feed| {
        let mut awaited = PollFlags::IN;
        awaited.set(PollFlags::OUT, feed.has_unsent());
        PollFd::new(feed.stream.socket(), awaited)
    });
    let mut sockets: Vec<_> = sockets.collect();
    let at_most = Timespec::try_from(at_most).ok();
    match poll(&mut sockets, at_most.as_ref()) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(error) => return Err(lost(error.into())),
    }
    Ok(sockets
        .iter()
        .map(|socket| !socket.revents().difference(PollFlags::OUT).is_empty())
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

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::net::{Ipv4Addr, TcpListener};

    use super::*;

    #[test]
    fn unsent_bytes_stay_in_the_buffer_and_are_sent_later() {
        const BYTES: usize = 32 << 20;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut other, _) = listener.accept().unwrap();
        let mut feed = Feed {
            stream: Link::Plain(stream),
            input: Input::new(16),
            output: Outgoing((0..BYTES).map(|at| (at % 251) as u8).collect()),
            is_unflushed: false,
            patience: None,
        };
        let mut posted = feed.output.0.clone();
        feed.flush().unwrap();
        let rest = feed.output.bytes().len();
        assert!((1..BYTES).contains(&rest), "{rest} bytes are left");
        assert_eq!(
            wait_for_any([&feed].into_iter(), Duration::ZERO).unwrap(),
            [false]
        );
        feed.offer(b"behind").unwrap();
        posted.extend_from_slice(b"behind");
        let reader = std::thread::spawn(move || {
            let mut came = Vec::new();
            other.read_to_end(&mut came).unwrap();
            came
        });
        while feed.has_unsent() {
            wait_for_any([&feed].into_iter(), Duration::from_secs(10)).unwrap();
            feed.flush().unwrap();
        }
        feed.offer(b"at once").unwrap();
        posted.extend_from_slice(b"at once");
        assert!(!feed.has_unsent());
        drop(feed);
        assert!(reader.join().unwrap() == posted, "all of it, in order");
    }
}

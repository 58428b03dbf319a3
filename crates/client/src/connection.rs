//! One connection: requests and their answers.

use std::io::{self, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use model::VbId;
use rustls::ClientConfig;
use wire::response::CollectionIdReply;
use wire::{Frame, Magic, Opaque, Opcode, Status};

use crate::address::Address;
use crate::error::ClientError;
use crate::input::Input;
use crate::link::Link;
use crate::map::BucketMap;
use crate::message::{Answer, Request};

/// Bytes of a fresh receive buffer.
const INPUT_BYTES: usize = 256 * 1024;

/// How to connect to a server.
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    /// The server, user and bucket.
    pub address: Address,
    /// The certificates to trust; `None` for a connection without TLS.
    pub tls: Option<Arc<ClientConfig>>,
    /// How long to wait for a connection and for each answer.
    pub timeout: Duration,
    /// Whether to ask that values may go compressed (Snappy), both ways.
    pub compressed: bool,
}

/// How keys are sent on a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyForm {
    /// Keys carry the identifier of their collection.
    pub collections: bool,
    /// Number of vBuckets; `None` where the server has no such thing.
    pub vbuckets: Option<u16>,
}

impl KeyForm {
    /// The vBucket of a user's key.
    pub fn vbucket(self, key: &[u8]) -> VbId {
        self.vbuckets
            .map_or(VbId(0), |count| VbId::of_key(key, count))
    }

    /// What stands before a user's key on the wire: the default collection, or nothing.
    pub fn prefix(self) -> &'static [u8] {
        if self.collections { &[0] } else { &[] }
    }
}

/// One connection to a server.
#[derive(Debug)]
pub struct Client {
    stream: Link<TcpStream>,
    input: Input,
    output: Vec<u8>,
    next_opaque: u32,
    pub(crate) key_form: KeyForm,
    /// The map of the bucket when the client connected.
    pub(crate) map: Option<BucketMap>,
    /// Whether values may go compressed.
    pub(crate) compressed: bool,
    /// Whether there is a certificate to show if the server asks.
    pub(crate) certified: bool,
    /// Of a collection that was chosen: what stands before a user's key.
    collection: Option<Vec<u8>>,
}

impl Client {
    /// Connects, without login.
    ///
    /// # Errors
    /// [`ClientError::Unreachable`].
    pub(crate) fn open(options: &ConnectOptions) -> Result<Self, ClientError> {
        let stream = open(options).map_err(|source| ClientError::Unreachable {
            address: options.address.to_string(),
            source,
        })?;
        Ok(Self {
            stream,
            input: Input::new(INPUT_BYTES),
            output: Vec::new(),
            next_opaque: 1,
            key_form: KeyForm::default(),
            map: None,
            compressed: options.compressed,
            certified: shows_certificate(options),
            collection: None,
        })
    }

    /// How keys are sent on this connection.
    pub fn key_form(&self) -> KeyForm {
        self.key_form
    }

    /// Whether values may go compressed: it was asked for, and the server agreed.
    pub fn is_compressed(&self) -> bool {
        self.compressed
    }

    /// The socket of the client, on which no answer is outstanding.
    pub fn into_stream(self) -> Link<TcpStream> {
        self.stream
    }

    /// The same with what was read and not taken.
    pub(crate) fn into_parts(self) -> (Link<TcpStream>, Input) {
        (self.stream, self.input)
    }

    /// Asks and waits for the answer, whatever its status.
    ///
    /// # Errors
    /// The connection broke, or the server broke the protocol.
    pub fn request(&mut self, message: &Request<'_>) -> Result<Answer, ClientError> {
        let opaque = self.send(message)?;
        self.receive(message.opcode, opaque)
    }

    /// Asks and waits for the answer; any status but success is an error.
    ///
    /// # Errors
    /// As [`Client::request`], and [`ClientError::Refused`].
    pub fn expect_success(&mut self, message: &Request<'_>) -> Result<Answer, ClientError> {
        let answer = self.request(message)?;
        // The mechanism of a login is its key, and tells nothing.
        let about: &[u8] = match message.opcode {
            Opcode::SASL_AUTH | Opcode::SASL_STEP | Opcode::HELLO => &[],
            _ => message.key,
        };
        accept(message.opcode, about, answer)
    }

    /// Selects the collection, `SCOPE.COLLECTION`, of the documents of later requests.
    ///
    /// # Errors
    /// As [`Client::expect_success`]: there is no such collection.
    pub fn use_collection(&mut self, path: &str) -> Result<(), ClientError> {
        let asked = Request::with(Opcode::COLLECTIONS_GET_ID, b"", path.as_bytes());
        let answer = self.expect_success(&asked)?;
        let reply = CollectionIdReply::parse(&answer.extras);
        let reply =
            reply.map_err(|error| ClientError::broken("COLLECTIONS_GET_ID", &error.reason))?;
        let mut prefix = Vec::new();
        model::push_leb128(reply.id.0, &mut prefix);
        self.collection = Some(prefix);
        Ok(())
    }

    /// A request about a document of the default collection, or of the one that was chosen, by
    /// the user's key.
    ///
    /// # Errors
    /// As [`Client::expect_success`].
    pub fn document_request(&mut self, message: &Request<'_>) -> Result<Answer, ClientError> {
        let prefix = self.collection.as_deref();
        let prefix = prefix.unwrap_or(self.key_form.prefix());
        let key = [prefix, message.key].concat();
        let vbucket = self.key_form.vbucket(message.key);
        let answer = self.request(&Request {
            key: &key,
            vbucket,
            ..*message
        })?;
        accept(message.opcode, message.key, answer)
    }

    /// Asks everything at once and waits for the answers, in order and whatever their status.
    ///
    /// # Errors
    /// As [`Client::request`].
    pub fn request_all(&mut self, messages: &[Request<'_>]) -> Result<Vec<Answer>, ClientError> {
        let mut asked = Vec::with_capacity(messages.len());
        for message in messages {
            asked.push((message.opcode, self.send(message)?));
        }
        asked
            .into_iter()
            .map(|(opcode, opaque)| self.receive(opcode, opaque))
            .collect()
    }

    /// Statistics of a group, one call of `row` for each name and value as they arrive. When `row` refuses one, the
    /// connection is of no use any more.
    ///
    /// Cost: nothing is allocated or copied for a row.
    ///
    /// # Errors
    /// As [`Client::expect_success`], and that of `row`; rows that came before an error were delivered.
    pub fn stat<E: From<ClientError>>(
        &mut self,
        group: &str,
        mut row: impl FnMut(&[u8], &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let about = group.as_bytes();
        let opaque = self.send(&Request::with(Opcode::STAT, about, b""))?;
        loop {
            let broken = |error| ClientError::broken(Opcode::STAT.name(), &error);
            while let Some(frame) = self.input.next().map_err(broken)? {
                if !is_answer(&frame, Opcode::STAT, opaque)? {
                    continue;
                }
                if frame.status() != Status::SUCCESS {
                    accept(Opcode::STAT, about, Answer::of(&frame))?;
                }
                if frame.key.is_empty() && frame.value.is_empty() {
                    return Ok(());
                }
                row(frame.key, frame.value)?;
            }
            self.fill(Opcode::STAT)?;
        }
    }

    /// The same for rows whose values are whole numbers; others are left out.
    ///
    /// # Errors
    /// As [`Client::expect_success`].
    pub fn stat_numbers(
        &mut self,
        group: &str,
        mut row: impl FnMut(&[u8], u64),
    ) -> Result<(), ClientError> {
        self.stat(group, |name, value| {
            if let Some(number) = str::from_utf8(value)
                .ok()
                .and_then(|text| text.parse().ok())
            {
                row(name, number);
            }
            Ok(())
        })
    }

    fn send(&mut self, message: &Request<'_>) -> Result<Opaque, ClientError> {
        let during = message.opcode.name();
        let opaque = Opaque(self.next_opaque.to_be_bytes());
        self.next_opaque = self.next_opaque.wrapping_add(1);
        self.output.clear();
        message.encode(opaque, &mut self.output)?;
        let sent = self.stream.write_all(&self.output);
        sent.map_err(|source| ClientError::Lost { during, source })?;
        Ok(opaque)
    }

    /// Reads on until an answer is whole; what servers push unasked is skipped.
    fn receive(&mut self, opcode: Opcode, opaque: Opaque) -> Result<Answer, ClientError> {
        loop {
            let broken = |error| ClientError::broken(opcode.name(), &error);
            while let Some(frame) = self.input.next().map_err(broken)? {
                if is_answer(&frame, opcode, opaque)? {
                    return Ok(Answer::of(&frame));
                }
            }
            self.fill(opcode)?;
        }
    }

    fn fill(&mut self, during: Opcode) -> Result<(), ClientError> {
        let during = during.name();
        let filled = self.input.fill(&mut self.stream);
        filled.map_err(|source| ClientError::Lost { during, source })?;
        Ok(())
    }
}

/// Whether a frame is the answer to a request; `false` for what servers push unasked.
fn is_answer(frame: &Frame<'_>, opcode: Opcode, opaque: Opaque) -> Result<bool, ClientError> {
    let (header, during) = (&frame.header, opcode.name());
    if header.magic == Magic::ServerRequest {
        return Ok(false);
    }
    if !header.magic.is_client_response() {
        let kind = format!("a frame of kind {:?}", header.magic);
        return Err(ClientError::broken(during, &kind));
    }
    if header.opaque != opaque || header.opcode != opcode {
        return Err(ClientError::broken(during, &"an answer to another request"));
    }
    Ok(true)
}

fn accept(opcode: Opcode, about: &[u8], answer: Answer) -> Result<Answer, ClientError> {
    if answer.status == Status::SUCCESS {
        return Ok(answer);
    }
    let status = answer.status;
    let context = match status {
        Status::NOT_MY_VBUCKET => Some("another node owns the document".to_owned()),
        _ => answer
            .context()
            .filter(|context| context != status.description()),
    };
    Err(ClientError::Refused {
        during: opcode.name(),
        about: String::from_utf8_lossy(about).into_owned(),
        status,
        context,
    })
}

fn shows_certificate(options: &ConnectOptions) -> bool {
    let tls = options.tls.as_ref();
    tls.is_some_and(|tls| tls.client_auth_cert_resolver.has_certs())
}

/// A connected socket without delay and with time limits; the host's addresses are tried in turn.
fn open(options: &ConnectOptions) -> io::Result<Link<TcpStream>> {
    let (host, timeout) = (&options.address.host, options.timeout);
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for candidate in options.address.host_port().to_socket_addrs()? {
        match TcpStream::connect_timeout(&candidate, timeout) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(timeout))?;
                stream.set_write_timeout(Some(timeout))?;
                return match &options.tls {
                    None => Ok(Link::Plain(stream)),
                    Some(config) => Link::seal(stream, host, Arc::clone(config)),
                };
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

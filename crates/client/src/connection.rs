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

/// Options of a connection to a server.
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    /// The server, user and bucket.
    pub address: Address,
    /// TLS configuration with the trusted certificates; `None` for a connection without TLS.
    pub tls: Option<Arc<ClientConfig>>,
    /// Time limit of the connect, and of each read and write.
    pub timeout: Duration,
    /// Whether to ask for compressed values (Snappy) in both directions.
    pub compressed: bool,
}

/// Form of the keys on a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyForm {
    /// Whether keys carry the identifier of their collection.
    pub collections: bool,
    /// Number of vBuckets; `None` where the server has none.
    pub vbuckets: Option<u16>,
}

impl KeyForm {
    /// Returns the vBucket of a user's key.
    pub fn vbucket(self, key: &[u8]) -> VbId {
        self.vbuckets
            .map_or(VbId(0), |count| VbId::of_key(key, count))
    }

    /// Returns the prefix of a user's key on the wire: the default collection, or nothing.
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
    /// Whether values may be sent compressed.
    pub(crate) compressed: bool,
    /// Whether the client has a certificate to present if the server asks.
    pub(crate) certified: bool,
    /// Key prefix of the selected collection; `None` for the default collection.
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

    /// Returns the form of the keys on this connection.
    pub fn key_form(&self) -> KeyForm {
        self.key_form
    }

    /// Returns whether values may be sent compressed: the client asked, and the server agreed.
    pub fn is_compressed(&self) -> bool {
        self.compressed
    }

    /// Returns the socket. No answer is outstanding on it.
    pub fn into_stream(self) -> Link<TcpStream> {
        self.stream
    }

    /// Returns the socket, and the buffer with bytes that were read and not taken.
    pub(crate) fn into_parts(self) -> (Link<TcpStream>, Input) {
        (self.stream, self.input)
    }

    /// Sends a request and waits for the answer, whatever its status.
    ///
    /// # Errors
    /// The connection broke, or the server broke the protocol.
    pub fn request(&mut self, message: &Request<'_>) -> Result<Answer, ClientError> {
        let opaque = self.send(message)?;
        self.receive(message.opcode, opaque)
    }

    /// Sends a request and waits for the answer; any status but success is an error.
    ///
    /// # Errors
    /// As [`Client::request`], and [`ClientError::Refused`].
    pub fn expect_success(&mut self, message: &Request<'_>) -> Result<Answer, ClientError> {
        let answer = self.request(message)?;
        // The key of a login request is its mechanism, that of HELLO a name of the client: no use in an error.
        let about: &[u8] = match message.opcode {
            Opcode::SASL_AUTH | Opcode::SASL_STEP | Opcode::HELLO => &[],
            _ => message.key,
        };
        accept(message.opcode, about, answer)
    }

    /// Selects the collection (`SCOPE.COLLECTION`) of later document requests.
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

    /// Sends a request about a document of the selected collection, or of the default one, by the user's key.
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

    /// Sends all requests at once and waits for the answers, in order and whatever their status.
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

    /// Reads the statistics of a group and calls `row` for each name and value as they arrive. After an error of `row`,
    /// the connection cannot be used.
    ///
    /// Cost: nothing is allocated or copied for a row.
    ///
    /// # Errors
    /// As [`Client::expect_success`], and the error of `row`; rows in front of an error were delivered.
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

    /// Reads the statistics of a group as [`Client::stat`], but only rows whose values are whole numbers.
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

    /// Reads until an answer is whole; skips requests that the server pushes.
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

/// Returns whether a frame is the answer to a request; `false` for a request that the server pushes.
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

/// Connects a socket without delay (`TCP_NODELAY`) and with time limits; tries the host's addresses in turn.
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

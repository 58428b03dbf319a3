//! A small blocking client: one connection, one request at a time.
//!
//! It serves the commands for hands (`stat`, `get`, `set`, `del`) and opens the connections of
//! `bench`. It speaks to Couchbase servers and, without login and collections, to memcached.

mod address;
mod error;
mod feed;
mod input;
mod link;
mod login;
mod message;

use std::io::{self, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

use model::VbId;
use server::Trust;
use wire::response::CollectionIdReply;
use wire::{Frame, Magic, Opaque, Opcode, Status};

pub(crate) use address::Address;
pub(crate) use error::{ClientError, code_of_status};
pub(crate) use feed::{Feed, Outgoing};
pub(crate) use identity::SaltedCache;
pub(crate) use input::ANSWER_LIMITS;
use input::Input;
pub(crate) use link::Link;
pub(crate) use message::{Answer, Message};

/// Variable of the environment that holds the password of an address without one.
const PASSWORD_VARIABLE: &str = "SETTEE_CONNECT_PASSWORD";

/// Flags that every client command takes.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ConnectArgs {
    /// Server: couchbase://USER:PASSWORD@HOST:PORT/BUCKET (parts percent-encoded), the same with
    /// couchbases:// over TLS,
    /// memcached://HOST:PORT, or HOST:PORT, which means memcached. Without :PASSWORD it is that of
    /// --password-file or of the environment's SETTEE_CONNECT_PASSWORD; there process lists do not show it
    #[arg(
        long,
        env = "SETTEE_CONNECT",
        hide_env_values = true,
        value_name = "ADDRESS",
        default_value = "couchbase://Administrator:password@127.0.0.1:11210/default"
    )]
    pub(crate) connect: Address,
    /// File with the password of the user, in its first line; for an address without one
    #[arg(long, env = "SETTEE_CONNECT_PASSWORD_FILE", value_name = "FILE")]
    pub(crate) password_file: Option<PathBuf>,
    /// With couchbases://: certificates to trust, a PEM file [default: what the system trusts]
    #[arg(long, env = "SETTEE_CA", value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,
    /// With couchbases://: trust anybody
    #[arg(long, env = "SETTEE_INSECURE", conflicts_with = "ca")]
    pub(crate) insecure: bool,
    /// How long to wait for a connection and for each answer, in seconds
    #[arg(long, env = "SETTEE_TIMEOUT", value_name = "SECONDS", default_value_t = 10,
          value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub(crate) timeout: u64,
}

impl ConnectArgs {
    /// Connects as the flags say.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub(crate) fn connect(&self) -> Result<Client, ClientError> {
        Client::connect(
            &self.address()?,
            self.timeout(),
            &mut SaltedCache::default(),
        )
    }

    /// Where to connect, as whom, and whom to trust there.
    ///
    /// # Errors
    /// The password is missing, or cannot be read.
    pub(crate) fn address(&self) -> Result<Address, ClientError> {
        self.trusting(&self.connect)
    }

    fn password(&self) -> Result<Option<String>, ClientError> {
        let Some(path) = &self.password_file else {
            let variable = std::env::var(PASSWORD_VARIABLE);
            return Ok(variable.ok().filter(|password| !password.is_empty()));
        };
        let text = std::fs::read_to_string(path);
        let text =
            text.map_err(|error| ClientError::Password(format!("{}: {error}", path.display())))?;
        Ok(Some(first_line(&text).to_owned()))
    }

    /// Another address, with the same trust and the same password, if it has none.
    ///
    /// # Errors
    /// As [`ConnectArgs::address`].
    pub(crate) fn trusting(&self, address: &Address) -> Result<Address, ClientError> {
        let trust = || Trust {
            ca: self.ca.clone(),
            insecure: self.insecure,
        };
        let address = address.clone().with_password(self.password()?);
        let address = address.map_err(|error| {
            let hint =
                "write USER:PASSWORD@HOST, or give --password-file or SETTEE_CONNECT_PASSWORD";
            ClientError::Password(format!("{error}: {hint}"))
        })?;
        Ok(Address {
            tls: address.tls.as_ref().map(|_| trust()),
            ..address
        })
    }

    /// The time that the user is willing to wait.
    pub(crate) fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout)
    }
}

/// What a file that holds a password holds: its first line.
pub(crate) fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

/// How keys are sent on a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct KeyForm {
    /// Keys carry the identifier of their collection.
    pub(crate) collections: bool,
    /// Number of vBuckets; `None` where the server has no such thing.
    pub(crate) vbuckets: Option<u16>,
}

impl KeyForm {
    /// The vBucket of a user's key.
    pub(crate) fn vbucket(self, key: &[u8]) -> VbId {
        self.vbuckets
            .map_or(VbId(0), |count| VbId::of_key(key, count))
    }

    /// What stands before a user's key on the wire: the default collection, or nothing.
    pub(crate) fn prefix(self) -> &'static [u8] {
        if self.collections { &[0] } else { &[] }
    }
}

/// One connection to a server.
#[derive(Debug)]
pub(crate) struct Client {
    stream: Link<TcpStream>,
    input: Input,
    output: Vec<u8>,
    next_opaque: u32,
    key_form: KeyForm,
    /// Of a collection that was chosen: what stands before a user's key.
    collection: Option<Vec<u8>>,
}

impl Client {
    /// Connects; to a Couchbase server also logs in, selects the bucket and asks for its map.
    ///
    /// # Errors
    /// Every [`ClientError`]: not reachable, login refused, no such bucket.
    pub(crate) fn connect(
        address: &Address,
        timeout: Duration,
        cache: &mut SaltedCache,
    ) -> Result<Self, ClientError> {
        let stream = open(address, timeout).map_err(|source| ClientError::Unreachable {
            address: address.to_string(),
            source,
        })?;
        let mut client = Self {
            stream,
            input: Input::default(),
            output: Vec::new(),
            next_opaque: 1,
            key_form: KeyForm::default(),
            collection: None,
        };
        if let Some(login) = &address.login {
            client.key_form = login::bootstrap(&mut client, login, cache)?;
        }
        Ok(client)
    }

    /// How keys are sent on this connection.
    pub(crate) fn key_form(&self) -> KeyForm {
        self.key_form
    }

    /// Gives up the client for its socket, on which no answer is outstanding.
    pub(crate) fn into_stream(self) -> Link<TcpStream> {
        self.stream
    }

    /// Asks and waits for the answer, whatever its status.
    ///
    /// # Errors
    /// The connection broke, or the server broke the protocol.
    pub(crate) fn request(&mut self, message: &Message<'_>) -> Result<Answer, ClientError> {
        let opaque = self.send(message)?;
        self.receive(message.opcode, opaque)
    }

    /// Asks and waits for the answer; any status but success is an error.
    ///
    /// # Errors
    /// As [`Client::request`], and [`ClientError::Refused`].
    pub(crate) fn expect_success(&mut self, message: &Message<'_>) -> Result<Answer, ClientError> {
        let answer = self.request(message)?;
        // The mechanism of a login is its key, and tells nothing.
        let about: &[u8] = match message.opcode {
            Opcode::SASL_AUTH | Opcode::SASL_STEP | Opcode::HELLO => &[],
            _ => message.key,
        };
        accept(message.opcode, about, answer)
    }

    /// From now on documents are those of this collection, `SCOPE.COLLECTION`.
    ///
    /// # Errors
    /// As [`Client::expect_success`]: there is no such collection.
    pub(crate) fn use_collection(&mut self, path: &str) -> Result<(), ClientError> {
        let asked = Message::with(Opcode::COLLECTIONS_GET_ID, b"", path.as_bytes());
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
    pub(crate) fn document_request(
        &mut self,
        message: &Message<'_>,
    ) -> Result<Answer, ClientError> {
        let prefix = self.collection.as_deref();
        let prefix = prefix.unwrap_or(self.key_form.prefix());
        let key = [prefix, message.key].concat();
        let vbucket = self.key_form.vbucket(message.key);
        let answer = self.request(&Message {
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
    pub(crate) fn request_all(
        &mut self,
        messages: &[Message<'_>],
    ) -> Result<Vec<Answer>, ClientError> {
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
    pub(crate) fn stat<E: From<ClientError>>(
        &mut self,
        group: &str,
        mut row: impl FnMut(&[u8], &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let about = group.as_bytes();
        let opaque = self.send(&Message::with(Opcode::STAT, about, b""))?;
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

    fn send(&mut self, message: &Message<'_>) -> Result<Opaque, ClientError> {
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
        filled.map_err(|source| ClientError::Lost { during, source })
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

/// A connected socket without delay and with time limits; the host's addresses are tried in turn.
fn open(address: &Address, timeout: Duration) -> io::Result<Link<TcpStream>> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for candidate in address.host_port().to_socket_addrs()? {
        match TcpStream::connect_timeout(&candidate, timeout) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(timeout))?;
                stream.set_write_timeout(Some(timeout))?;
                return match &address.tls {
                    None => Ok(Link::Plain(stream)),
                    Some(trust) => Link::seal(stream, &address.host, trust),
                };
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

#[cfg(test)]
mod tests;

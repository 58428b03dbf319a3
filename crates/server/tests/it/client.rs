//! A client that sends exactly the bytes of a test. It encodes frames itself, so that it does not share a mistake with
//! `wire`.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use model::VbId;
use rustls::crypto::ring;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, ClientConnection};
use wire::{Decoded, Feature, Limits, Opcode, Response, Status, decode};

/// Time limit of an answer: a test fails instead of hanging.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);
/// Time limit of what a test waits for.
const PATIENCE: Duration = Duration::from_mins(1);
pub(crate) const USER: &str = "Administrator";
pub(crate) const PASSWORD: &str = "secret word";

/// Waits until `holds`. Fails with `what` after [`PATIENCE`].
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::yield_now();
    }
}

/// One request; parts that are not set are empty.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) opcode: Opcode,
    pub(crate) vbucket: u16,
    pub(crate) cas: u64,
    pub(crate) datatype: u8,
    pub(crate) infos: Vec<u8>,
    pub(crate) extras: Vec<u8>,
    pub(crate) key: Vec<u8>,
    pub(crate) value: Vec<u8>,
    pub(crate) opaque: u32,
}

impl Request {
    pub(crate) fn new(opcode: Opcode) -> Self {
        Self {
            opcode,
            vbucket: 0,
            cas: 0,
            datatype: 0,
            infos: Vec::new(),
            extras: Vec::new(),
            key: Vec::new(),
            value: Vec::new(),
            opaque: 0,
        }
    }

    /// Creates a request for a document, in its own vBucket, with the prefix of the default collection.
    pub(crate) fn of(opcode: Opcode, key: &str) -> Self {
        let request = Self::new(opcode).vbucket(VbId::of_key(key.as_bytes(), 1024).0);
        request.key([b"\0", key.as_bytes()].concat())
    }

    pub(crate) fn vbucket(mut self, vbucket: u16) -> Self {
        self.vbucket = vbucket;
        self
    }

    pub(crate) fn cas(mut self, cas: u64) -> Self {
        self.cas = cas;
        self
    }

    pub(crate) fn datatype(mut self, datatype: u8) -> Self {
        self.datatype = datatype;
        self
    }

    pub(crate) fn infos(mut self, infos: &[u8]) -> Self {
        self.infos = infos.to_vec();
        self
    }

    pub(crate) fn extras(mut self, extras: &[u8]) -> Self {
        self.extras = extras.to_vec();
        self
    }

    pub(crate) fn key(mut self, key: impl AsRef<[u8]>) -> Self {
        self.key = key.as_ref().to_vec();
        self
    }

    pub(crate) fn value(mut self, value: impl AsRef<[u8]>) -> Self {
        self.value = value.as_ref().to_vec();
        self
    }

    pub(crate) fn opaque(mut self, opaque: u32) -> Self {
        self.opaque = opaque;
        self
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let body = self.infos.len() + self.extras.len() + self.key.len() + self.value.len();
        let key_length = u16::try_from(self.key.len())
            .expect("a short key")
            .to_be_bytes();
        let mut out = Vec::with_capacity(24 + body);
        if self.infos.is_empty() {
            out.extend([0x80, self.opcode.0, key_length[0], key_length[1]]);
        } else {
            out.extend([0x08, self.opcode.0, self.infos.len() as u8, key_length[1]]);
        }
        out.extend([self.extras.len() as u8, self.datatype]);
        out.extend(self.vbucket.to_be_bytes());
        out.extend(u32::try_from(body).expect("a short body").to_be_bytes());
        out.extend(self.opaque.to_be_bytes());
        out.extend(self.cas.to_be_bytes());
        for part in [&self.infos, &self.extras, &self.key, &self.value] {
            out.extend_from_slice(part);
        }
        out
    }
}

/// One answer, or a request that the server pushed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) magic: u8,
    pub(crate) opcode: Opcode,
    pub(crate) status: Status,
    pub(crate) datatype: u8,
    pub(crate) opaque: u32,
    pub(crate) cas: u64,
    pub(crate) duration: Option<u16>,
    pub(crate) extras: Vec<u8>,
    pub(crate) key: Vec<u8>,
    pub(crate) value: Vec<u8>,
    pub(crate) bytes: Vec<u8>,
}

impl Answer {
    /// Parses the value as JSON.
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.value)
            .unwrap_or_else(|error| panic!("{error} in {:?}", self.text()))
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.value).into_owned()
    }

    /// Returns the seqno of a mutation token.
    pub(crate) fn seqno(&self) -> u64 {
        assert_eq!(self.extras.len(), 16, "{self:?}");
        u64::from_be_bytes(self.extras[8..].try_into().unwrap())
    }

    /// Returns the vBucket UUID of a mutation token.
    pub(crate) fn uuid(&self) -> u64 {
        assert_eq!(self.extras.len(), 16, "{self:?}");
        u64::from_be_bytes(self.extras[..8].try_into().unwrap())
    }

    /// Checks that the answer is a success, and returns it.
    #[track_caller]
    pub(crate) fn ok(self) -> Self {
        self.is(Status::SUCCESS)
    }

    /// Checks the status of the answer, and returns it. A refusal has neither extras nor key nor CAS.
    #[track_caller]
    pub(crate) fn is(self, status: Status) -> Self {
        assert_eq!(self.status, status, "{:?} {}", self.opcode, self.text());
        if status != Status::SUCCESS && status != Status::AUTH_CONTINUE {
            assert!(self.extras.is_empty() && self.key.is_empty() && self.cas == 0);
        }
        self
    }

    /// Returns the text of a refusal, which must have one.
    #[track_caller]
    pub(crate) fn context(&self) -> String {
        let context = &self.json()["error"]["context"];
        context.as_str().expect("an error context").to_owned()
    }
}

/// Ports that are replaced by ports with TLS, with the trusted authority.
static SEALED: Mutex<BTreeMap<u16, (u16, Arc<ClientConfig>)>> = Mutex::new(BTreeMap::new());

/// Makes each further connection to `port` use this port with TLS, trusting this certificate.
pub(crate) fn seal(port: u16, (sealed, pem): (u16, &str)) {
    let tls = Arc::new(trusting(pem, rustls::ALL_VERSIONS));
    let mut ports = SEALED.lock().unwrap();
    ports.insert(port, (sealed, tls));
}

/// Returns the TLS configuration of a client that trusts this certificate.
pub(crate) fn trusting(
    pem: &str,
    versions: &[&'static rustls::SupportedProtocolVersion],
) -> ClientConfig {
    let mut roots = rustls::RootCertStore::empty();
    let root = CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
    roots.add(root).unwrap();
    ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(versions)
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth()
}

/// A connection to a node.
pub(crate) struct Client {
    stream: TcpStream,
    tls: Option<Box<ClientConnection>>,
    input: Vec<u8>,
    /// Number of bytes of `input` that were returned as answers already.
    read: usize,
    opaque: u32,
}

impl Client {
    /// Opens a connection without sending anything; over TLS if [`seal`] was called for its port.
    pub(crate) fn connect(port: u16) -> Self {
        let sealed = SEALED.lock().unwrap().get(&port).cloned();
        if let Some((port, tls)) = sealed {
            let name = "127.0.0.1".try_into().unwrap();
            return Self::sealed(port, ClientConnection::new(tls, name).unwrap());
        }
        Self::open(port)
    }

    /// Opens a connection without TLS.
    pub(crate) fn open(port: u16) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).expect("the node listens");
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(ANSWER_LIMIT)).unwrap();
        stream.set_write_timeout(Some(ANSWER_LIMIT)).unwrap();
        Self {
            stream,
            tls: None,
            input: Vec::new(),
            read: 0,
            opaque: 0,
        }
    }

    /// Creates a connection over TLS; the first write does the handshake.
    pub(crate) fn sealed(port: u16, tls: ClientConnection) -> Self {
        Self {
            tls: Some(tls.into()),
            ..Self::open(port)
        }
    }

    /// Connects, negotiates features and logs in, without a bucket.
    pub(crate) fn logged_in(port: u16, features: &[Feature]) -> Self {
        let mut client = Self::connect(port);
        client.hello(features).ok();
        client.log_in().ok();
        client
    }

    /// Connects like an SDK without compression: ready for documents of `default`.
    pub(crate) fn ready(port: u16) -> Self {
        Self::with(port, &SDK)
    }

    /// Connects to a node with a store, and waits until no document returns to memory on its own account: the refill
    /// after a start, also an empty one, may take what left meanwhile.
    pub(crate) fn refilled(port: u16) -> Self {
        let mut client = Self::ready(port);
        until("the refill goes on", || {
            client.stats("")["ep_warmup_refill"] == "done"
        });
        client
    }

    /// Connects with these features: ready for documents of `default`.
    pub(crate) fn with(port: u16, features: &[Feature]) -> Self {
        let mut client = Self::logged_in(port, features);
        client.select("default").ok();
        client
    }

    pub(crate) fn hello(&mut self, features: &[Feature]) -> Answer {
        self.call(&hello(features))
    }

    pub(crate) fn log_in(&mut self) -> Answer {
        self.call(&plain(USER, PASSWORD))
    }

    pub(crate) fn select(&mut self, bucket: &str) -> Answer {
        self.call(&Request::new(Opcode::SELECT_BUCKET).key(bucket))
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        let written = match &mut self.tls {
            Some(tls) => rustls::Stream::new(&mut **tls, &mut self.stream).write_all(bytes),
            None => self.stream.write_all(bytes),
        };
        written.expect("the node reads");
    }

    /// Sends all requests in one write.
    pub(crate) fn pipeline(&mut self, requests: &[Request]) {
        let bytes: Vec<u8> = requests.iter().flat_map(Request::bytes).collect();
        self.send(&bytes);
    }

    /// Sends a request and returns its answer.
    #[track_caller]
    pub(crate) fn call(&mut self, request: &Request) -> Answer {
        self.opaque += 1;
        let request = request.clone().opaque(0x5e77_0000 + self.opaque);
        self.send(&request.bytes());
        let answer = self.answer();
        assert_eq!(answer.opaque, request.opaque, "{request:?} {answer:?}");
        assert_eq!(answer.opcode, request.opcode, "{request:?} {answer:?}");
        answer
    }

    /// Sends requests of which the first one waits, and returns once it waits.
    #[track_caller]
    pub(crate) fn pipeline_and_wait(&mut self, requests: &[Request]) {
        // One small write is read at once and run in one turn, whose answers are sent together: the answer to NOOP
        // arrives after the request behind it was tried.
        let noop = Request::new(Opcode::NOOP);
        self.pipeline(&[&[noop], requests].concat());
        assert_eq!(self.answer().ok().opcode, Opcode::NOOP);
    }

    /// Returns the next answer.
    #[track_caller]
    pub(crate) fn answer(&mut self) -> Answer {
        self.next().expect("an answer, not the end")
    }

    /// Returns the next `count` answers.
    #[track_caller]
    pub(crate) fn answers(&mut self, count: usize) -> Vec<Answer> {
        (0..count).map(|_| self.answer()).collect()
    }

    /// Returns the next frame; `None` when the node closed the connection.
    #[track_caller]
    pub(crate) fn next(&mut self) -> Option<Answer> {
        loop {
            if let Some((answer, length)) = first(&self.input[self.read..]) {
                self.read += length;
                return Some(answer);
            }
            self.input.drain(..self.read);
            self.read = 0;
            let start = self.input.len();
            self.input.resize(start + (256 << 10), 0);
            let room = &mut self.input[start..];
            let count = match &mut self.tls {
                Some(tls) => rustls::Stream::new(&mut **tls, &mut self.stream).read(room),
                None => self.stream.read(room),
            };
            self.input.truncate(start + *count.as_ref().unwrap_or(&0));
            match count {
                Ok(0) => {
                    assert!(self.input.is_empty(), "the end lies within a frame");
                    return None;
                }
                Ok(_) => {}
                // The node closed the connection with unread input, or without the TLS notice.
                Err(error)
                    if matches!(
                        error.kind(),
                        ErrorKind::ConnectionReset | ErrorKind::UnexpectedEof
                    ) =>
                {
                    return None;
                }
                Err(error) => panic!("no answer: {error}"),
            }
        }
    }

    /// Checks that the node closes the connection without another frame.
    #[track_caller]
    pub(crate) fn expect_end(&mut self) {
        assert_eq!(self.next(), None);
    }

    /// Checks that no answer is pending: the next one is that of this NOOP.
    #[track_caller]
    pub(crate) fn expect_silence(&mut self) {
        self.call(&Request::new(Opcode::NOOP)).ok();
    }

    /// Returns the connection itself, and the bytes that were read but not parsed.
    pub(crate) fn into_parts(self) -> (TcpStream, Vec<u8>) {
        let Self {
            stream,
            input,
            read,
            tls,
            ..
        } = self;
        assert!(tls.is_none(), "a socket alone does not do");
        (stream, input[read..].to_vec())
    }

    /// Closes the sending direction.
    pub(crate) fn end_output(&mut self) {
        self.stream.shutdown(Shutdown::Write).unwrap();
    }

    /// Returns the rows of a group of statistics.
    pub(crate) fn stats(&mut self, group: &str) -> BTreeMap<String, String> {
        self.pipeline(&[Request::new(Opcode::STAT).key(group)]);
        let mut rows = BTreeMap::new();
        loop {
            let row = self.answer().ok();
            if row.key.is_empty() {
                return rows;
            }
            let [name, value] = [row.key, row.value].map(|text| String::from_utf8(text).unwrap());
            rows.insert(name, value);
        }
    }

    pub(crate) fn set(&mut self, key: &str, value: impl AsRef<[u8]>) -> Answer {
        self.call(&set(key, value))
    }

    pub(crate) fn get(&mut self, key: &str) -> Answer {
        self.call(&Request::of(Opcode::GET, key))
    }
}

fn first(input: &[u8]) -> Option<(Answer, usize)> {
    match decode(input, Limits::AUTHENTICATED).expect("a frame of the protocol") {
        Decoded::Incomplete { .. } => None,
        Decoded::Frame { frame, consumed } => {
            let duration = Response::parse(&frame).ok().and_then(|r| r.server_duration);
            let answer = Answer {
                magic: input[0],
                opcode: frame.header.opcode,
                status: frame.status(),
                datatype: frame.header.datatype.0,
                opaque: u32::from_be_bytes(frame.header.opaque.0),
                cas: frame.header.cas.0,
                duration,
                extras: frame.extras.to_vec(),
                key: frame.key.to_vec(),
                value: frame.value.to_vec(),
                bytes: input[..consumed].to_vec(),
            };
            Some((answer, consumed))
        }
    }
}

/// Features that SDKs request and this node grants, without compression and tracing.
pub(crate) const SDK: [Feature; 12] = [
    Feature::TCP_NODELAY,
    Feature::MUTATION_SEQNO,
    Feature::XATTR,
    Feature::XERROR,
    Feature::SELECT_BUCKET,
    Feature::JSON,
    Feature::DUPLEX,
    Feature::ALT_REQUEST_SUPPORT,
    Feature::COLLECTIONS,
    Feature::PRESERVE_TTL,
    Feature::GET_CLUSTER_CONFIG_WITH_KNOWN_VERSION,
    Feature::DEDUPE_NOT_MY_VBUCKET_CLUSTERMAP,
];

/// Returns [`SDK`] with more features.
pub(crate) fn sdk_and(more: &[Feature]) -> Vec<Feature> {
    SDK.iter().chain(more).copied().collect()
}

/// Returns [`SDK`] without one feature.
pub(crate) fn sdk_without(one: Feature) -> Vec<Feature> {
    SDK.into_iter().filter(|feature| *feature != one).collect()
}

pub(crate) fn hello(features: &[Feature]) -> Request {
    let list: Vec<u8> = features.iter().flat_map(|f| f.0.to_be_bytes()).collect();
    Request::new(Opcode::HELLO).key("it").value(list)
}

pub(crate) fn plain(user: &str, password: &str) -> Request {
    let value = format!("\0{user}\0{password}");
    Request::new(Opcode::SASL_AUTH).key("PLAIN").value(value)
}

pub(crate) fn set(key: &str, value: impl AsRef<[u8]>) -> Request {
    store(Opcode::SET, key, value, 0, 0)
}

pub(crate) fn store(
    opcode: Opcode,
    key: &str,
    value: impl AsRef<[u8]>,
    flags: u32,
    expiry: u32,
) -> Request {
    let extras = [flags.to_be_bytes(), expiry.to_be_bytes()].concat();
    Request::of(opcode, key).extras(&extras).value(value)
}

/// Returns INCREMENT or DECREMENT, with the initial value and the expiry of a missing document.
pub(crate) fn count(opcode: Opcode, key: &str, delta: u64, initial: u64, expiry: u32) -> Request {
    let numbers = [delta.to_be_bytes(), initial.to_be_bytes()].concat();
    let extras = [numbers.as_slice(), &expiry.to_be_bytes()].concat();
    Request::of(opcode, key).extras(&extras)
}

/// Decodes hexadecimal text.
pub(crate) fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<char> = text.chars().collect();
    let pair = |pair: &[char]| {
        let text: String = pair.iter().collect();
        u8::from_str_radix(&text, 16).expect("hexadecimal digits")
    };
    digits.chunks(2).map(pair).collect()
}

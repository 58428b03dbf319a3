//! A small fake server for tests: it stores documents, and misbehaves on demand.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use model::Cas;
use wire::{Decoded, Frame, Limits, Opcode, Response, Status, decode};

use crate::address::Address;
use crate::connection::ConnectOptions;

/// Password that the server accepts.
pub const PASSWORD: &str = "pass:word";
const VBUCKETS: usize = 64;

/// Misbehaviour of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// No misbehaviour.
    None,
    /// Every read returns the first revision of the document, with its CAS.
    OldRevision,
    /// Every read returns the first value of the document, with the newest CAS.
    OldValue,
    /// Every read returns the same document.
    OtherKey,
    /// Every read returns a value with one bit flipped.
    FlippedBit,
    /// Every second write gets a temporary failure.
    TemporaryFailure,
    /// Every write is refused as too large.
    TooBig,
    /// The opaque comes back changed.
    WrongOpaque,
    /// The connection is closed instead of the first read's answer.
    Close,
    /// vBuckets with odd numbers have moved to the server at this loopback port; each refusal carries the map.
    Moved(u16),
}

#[derive(Clone, Debug)]
struct Revision {
    cas: u64,
    extras: Vec<u8>,
    value: Vec<u8>,
}

/// A running server; it ends with the test process.
#[derive(Debug)]
pub struct FakeServer {
    address: SocketAddr,
    state: Arc<ServerState>,
}

#[derive(Debug)]
struct ServerState {
    fault: Fault,
    login: bool,
    documents: Mutex<HashMap<Vec<u8>, Vec<Revision>>>,
    next_cas: AtomicU64,
    writes: AtomicU64,
}

impl FakeServer {
    /// Starts a server on a free port. With `login`, it requires a login, and keys carry a collection.
    pub fn start(login: bool, fault: Fault) -> Self {
        let listener =
            TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback has a free port");
        let address = listener.local_addr().expect("a listener has an address");
        let state = Arc::new(ServerState {
            fault,
            login,
            documents: Mutex::default(),
            next_cas: AtomicU64::new(1),
            writes: AtomicU64::new(0),
        });
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let state = Arc::clone(&shared);
                std::thread::spawn(move || state.serve(stream));
            }
        });
        Self { address, state }
    }

    /// Returns the connect string, with user and password if the server requires a login.
    pub fn connect_string(&self) -> String {
        if self.state.login {
            format!("couchbase://user:pass%3Aword@{}/travel", self.address)
        } else {
            self.address.to_string()
        }
    }

    /// Returns the options of a client of this server.
    pub fn options(&self) -> ConnectOptions {
        options(&self.connect_string())
    }

    /// Returns the port of the server.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Returns the number of stored documents.
    pub fn documents(&self) -> usize {
        self.state.documents().len()
    }
}

/// Returns the options of a client without TLS.
pub fn options(connect_string: &str) -> ConnectOptions {
    let address: Address = connect_string.parse().expect("a test knows its server");
    ConnectOptions {
        address,
        tls: None,
        timeout: Duration::from_secs(10),
        compressed: false,
    }
}

/// Returns the map of a server that has all vBuckets, or whose odd vBuckets are on the server at a port.
fn map(moved_to: Option<u16>) -> String {
    let (rows, rev, others) = match moved_to {
        None => (["[0]"; 2], 1, String::new()),
        Some(port) => (
            ["[0]", "[1]"],
            2,
            format!(r#",{{"services":{{"kv":{port}}}}}"#),
        ),
    };
    let rows = vec![rows.join(","); VBUCKETS / 2].join(",");
    format!(
        r#"{{"rev":{rev},"nodesExt":[{{"services":{{}},"thisNode":true}}{others}],"vBucketServerMap":{{"vBucketMap":[{rows}]}}}}"#
    )
}

/// Answers with three rows for every group but `bad`.
fn statistics(frame: &Frame<'_>, response: &Response<'_>, out: &mut Vec<u8>) {
    if frame.key == b"bad" {
        let status = Status::KEY_ENOENT;
        return Response {
            status,
            ..*response
        }
        .encode(out);
    }
    for (key, value) in [("group", frame.key), ("", b"{}"), ("count", b"7")] {
        let key = key.as_bytes();
        Response {
            key,
            value,
            ..*response
        }
        .encode(out);
    }
    response.encode(out);
}

impl ServerState {
    fn documents(&self) -> MutexGuard<'_, HashMap<Vec<u8>, Vec<Revision>>> {
        let documents = self.documents.lock();
        documents.unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self, mut stream: TcpStream) {
        let mut input = Vec::new();
        let mut chunk = [0; 4_096];
        loop {
            let mut out = Vec::new();
            while let Decoded::Frame { frame, consumed } =
                decode(&input, Limits::AUTHENTICATED).expect("clients send frames")
            {
                if !self.answer(&frame, &mut out) {
                    return;
                }
                input.drain(..consumed);
            }
            let read = stream
                .write_all(&out)
                .and_then(|()| stream.read(&mut chunk));
            match read {
                Ok(0) | Err(_) => return,
                Ok(count) => input.extend_from_slice(&chunk[..count]),
            }
        }
    }

    /// Returns the map to send if the vBucket of a document has moved.
    fn moved(&self, frame: &Frame<'_>) -> Option<String> {
        let Fault::Moved(port) = self.fault else {
            return None;
        };
        let opcode = frame.header.opcode;
        let is_about_document = matches!(opcode, Opcode::GET | Opcode::SET | Opcode::DELETE);
        (is_about_document && frame.vbucket().0 % 2 == 1).then(|| map(Some(port)))
    }

    /// Appends the answer; `false` closes the connection.
    fn answer(&self, frame: &Frame<'_>, out: &mut Vec<u8>) -> bool {
        let opcode = frame.header.opcode;
        let mut opaque = frame.header.opaque;
        if self.fault == Fault::WrongOpaque && opcode == Opcode::GET {
            opaque.0[0] ^= 0x80;
        }
        let response = Response::new(opcode, opaque, Status::SUCCESS);
        if let Some(map) = self.moved(frame) {
            let (status, value) = (Status::NOT_MY_VBUCKET, map.as_bytes());
            Response {
                status,
                value,
                ..response
            }
            .encode(out);
            return true;
        }
        let refuse = |status| Response { status, ..response };
        match opcode {
            Opcode::GET if self.fault == Fault::Close => return false,
            Opcode::GET => match self.read(frame.key) {
                Some(found) => {
                    let (extras, value) = (&found.extras[..4], found.value.as_slice());
                    Response {
                        cas: Cas(found.cas),
                        extras,
                        value,
                        ..response
                    }
                    .encode(out);
                }
                None => Response {
                    value: b"Not found",
                    ..refuse(Status::KEY_ENOENT)
                }
                .encode(out),
            },
            Opcode::SET => match self.write(frame) {
                Ok(cas) => Response {
                    cas: Cas(cas),
                    ..response
                }
                .encode(out),
                Err(status) => refuse(status).encode(out),
            },
            Opcode::DELETE => {
                let mut documents = self.documents();
                let existed = documents.remove(frame.key).is_some();
                let status = if existed {
                    Status::SUCCESS
                } else {
                    Status::KEY_ENOENT
                };
                refuse(status).encode(out);
            }
            Opcode::STAT => statistics(frame, &response, out),
            _ => self.log_in(frame, &response, out),
        }
        true
    }

    fn log_in(&self, frame: &Frame<'_>, response: &Response<'_>, out: &mut Vec<u8>) {
        let map = map(None);
        let plain = format!("\0user\0{PASSWORD}");
        let (status, value) = match frame.header.opcode {
            _ if !self.login => (Status::UNKNOWN_COMMAND, &b""[..]),
            Opcode::HELLO => (Status::SUCCESS, frame.value),
            Opcode::SASL_LIST_MECHS => (Status::SUCCESS, &b"OAUTHBEARER PLAIN"[..]),
            Opcode::SASL_AUTH if frame.key == b"PLAIN" && frame.value == plain.as_bytes() => {
                (Status::SUCCESS, &b""[..])
            }
            Opcode::SASL_AUTH => (Status::AUTH_ERROR, &b""[..]),
            Opcode::SELECT_BUCKET if frame.key == b"travel" => (Status::SUCCESS, &b""[..]),
            Opcode::SELECT_BUCKET => (
                Status::EACCESS,
                &br#"{"error":{"context":"no such bucket"}}"#[..],
            ),
            Opcode::GET_CLUSTER_CONFIG => (Status::SUCCESS, map.as_bytes()),
            _ => (Status::UNKNOWN_COMMAND, &b""[..]),
        };
        Response {
            status,
            value,
            ..*response
        }
        .encode(out);
    }

    fn read(&self, key: &[u8]) -> Option<Revision> {
        let documents = self.documents();
        let revisions = match self.fault {
            Fault::OtherKey => documents.iter().min_by_key(|(key, _)| *key)?.1,
            _ => documents.get(key)?,
        };
        let newest = revisions.last()?;
        Some(match self.fault {
            Fault::OldRevision => revisions[0].clone(),
            Fault::OldValue => Revision {
                cas: newest.cas,
                ..revisions[0].clone()
            },
            Fault::FlippedBit => {
                let mut found = newest.clone();
                *found.value.last_mut()? ^= 1;
                found
            }
            _ => newest.clone(),
        })
    }

    fn write(&self, frame: &Frame<'_>) -> Result<u64, Status> {
        let nth = self.writes.fetch_add(1, Ordering::Relaxed);
        match self.fault {
            Fault::TemporaryFailure if nth.is_multiple_of(2) => return Err(Status::ETMPFAIL),
            Fault::TooBig => return Err(Status::E2BIG),
            _ => {}
        }
        // Checks the request: the client must send the key and vBucket correctly.
        let user_key = if self.login {
            &frame.key[1..]
        } else {
            frame.key
        };
        let vbuckets = if self.login { VBUCKETS as u16 } else { 1 };
        if frame.vbucket() != model::VbId::of_key(user_key, vbuckets) {
            return Err(Status::NOT_MY_VBUCKET);
        }
        let mut documents = self.documents();
        let revisions = documents.entry(frame.key.to_vec()).or_default();
        let expected = frame.header.cas.0;
        if expected != 0 && revisions.last().is_none_or(|newest| newest.cas != expected) {
            return Err(Status::KEY_EEXISTS);
        }
        let cas = self.next_cas.fetch_add(1, Ordering::Relaxed);
        let (extras, value) = (frame.extras.to_vec(), frame.value.to_vec());
        revisions.push(Revision { cas, extras, value });
        Ok(cas)
    }
}

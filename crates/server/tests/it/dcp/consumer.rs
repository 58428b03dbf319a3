//! A consumer of the change protocol that sends exactly the messages of a test.

use wire::{Feature, Opcode, Status};

use crate::client::{Answer, Client, Request, SDK};

pub(crate) const PRODUCER: u32 = 1;
pub(crate) const XATTRS: u32 = 4;
pub(crate) const NO_VALUE: u32 = 8;
pub(crate) const DELETE_TIMES: u32 = 0x20;
pub(crate) const SKIP_DELETES: u32 = 0x200;
pub(crate) const END: u64 = u64::MAX;

/// A message of a stream, with the fields that tests check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    Marker {
        start: u64,
        end: u64,
        flags: u32,
    },
    Mutation {
        seqno: u64,
        key: String,
        value: Vec<u8>,
    },
    Deletion {
        seqno: u64,
        key: String,
    },
    Expiration {
        seqno: u64,
        key: String,
    },
    Advanced(u64),
    State(u8),
    End(u32),
    Noop,
}

impl Message {
    pub(crate) fn mutation(seqno: u64, key: &str, value: &str) -> Self {
        Self::Mutation {
            seqno,
            key: key.into(),
            value: value.into(),
        }
    }
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(bytes[at..at + 8].try_into().unwrap())
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap())
}

/// Parses a message; the key loses the prefix of the default collection, if it has one.
pub(crate) fn read(frame: &Answer) -> Message {
    let key = || {
        let key = frame.key.strip_prefix(b"\0").unwrap_or(&frame.key);
        String::from_utf8(key.to_vec()).unwrap()
    };
    let extras = &frame.extras;
    match frame.opcode {
        Opcode::DCP_SNAPSHOT_MARKER => {
            let body = if extras.len() == 20 {
                extras
            } else {
                &frame.value
            };
            Message::Marker {
                start: u64_at(body, 0),
                end: u64_at(body, 8),
                flags: u32_at(body, 16),
            }
        }
        Opcode::DCP_MUTATION => Message::Mutation {
            seqno: u64_at(extras, 0),
            key: key(),
            value: frame.value.clone(),
        },
        Opcode::DCP_DELETION => Message::Deletion {
            seqno: u64_at(extras, 0),
            key: key(),
        },
        Opcode::DCP_EXPIRATION => Message::Expiration {
            seqno: u64_at(extras, 0),
            key: key(),
        },
        Opcode::DCP_SEQNO_ADVANCED => Message::Advanced(u64_at(extras, 0)),
        Opcode::DCP_SET_VBUCKET_STATE => Message::State(extras[0]),
        Opcode::DCP_STREAM_END => Message::End(u32_at(extras, 0)),
        Opcode::DCP_NOOP => Message::Noop,
        other => panic!("an unexpected message {other}"),
    }
}

/// One stream request.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) vb: u16,
    pub(crate) flags: u32,
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) uuid: u64,
    pub(crate) snapshot: (u64, u64),
    pub(crate) value: String,
}

impl Ask {
    /// Asks for everything, without end.
    pub(crate) fn all(vb: u16) -> Self {
        Self {
            vb,
            flags: 0,
            start: 0,
            end: END,
            uuid: 0,
            snapshot: (0, 0),
            value: String::new(),
        }
    }

    /// Asks for the changes after `seqno`.
    pub(crate) fn after(vb: u16, uuid: u64, seqno: u64) -> Self {
        Self {
            start: seqno,
            uuid,
            snapshot: (seqno, seqno),
            ..Self::all(vb)
        }
    }

    pub(crate) fn until(mut self, end: u64) -> Self {
        self.end = end;
        self
    }

    pub(crate) fn flags(mut self, flags: u32) -> Self {
        self.flags = flags;
        self
    }

    pub(crate) fn value(mut self, value: &str) -> Self {
        self.value = value.into();
        self
    }

    pub(crate) fn request(&self) -> Request {
        let mut extras = Vec::new();
        extras.extend(self.flags.to_be_bytes());
        extras.extend([0; 4]);
        let (start, end) = self.snapshot;
        for number in [self.start, self.end, self.uuid, start, end] {
            extras.extend(number.to_be_bytes());
        }
        Request::new(Opcode::DCP_STREAM_REQ)
            .vbucket(self.vb)
            .extras(&extras)
            .value(&self.value)
    }
}

pub(crate) fn open(name: &str, flags: u32) -> Request {
    let extras = [[0; 4], flags.to_be_bytes()].concat();
    Request::new(Opcode::DCP_OPEN).extras(&extras).key(name)
}

pub(crate) fn control(name: &str, value: &str) -> Request {
    Request::new(Opcode::DCP_CONTROL).key(name).value(value)
}

pub(crate) fn buffer_ack(bytes: u32) -> Request {
    Request::new(Opcode::DCP_BUFFER_ACK).extras(&bytes.to_be_bytes())
}

/// A client whose connection is a producer's.
pub(crate) struct Consumer {
    pub(crate) client: Client,
}

impl Consumer {
    /// Opens a consumer with noops, like real ones.
    pub(crate) fn open(port: u16, name: &str, flags: u32) -> Self {
        Self::with(port, name, flags, &SDK)
    }

    pub(crate) fn with(port: u16, name: &str, flags: u32, features: &[Feature]) -> Self {
        let mut client = Client::with(port, features);
        client.call(&open(name, flags)).ok();
        let mut consumer = Self { client };
        consumer.control("enable_noop", "true").ok();
        consumer
    }

    #[track_caller]
    pub(crate) fn control(&mut self, name: &str, value: &str) -> Answer {
        self.client.call(&control(name, value))
    }

    /// Requests a stream; returns the failover log, newest first.
    #[track_caller]
    pub(crate) fn stream(&mut self, ask: &Ask) -> Vec<(u64, u64)> {
        let answer = self.client.call(&ask.request()).ok();
        let entries = answer.value.chunks(16);
        entries
            .map(|entry| (u64_at(entry, 0), u64_at(entry, 8)))
            .collect()
    }

    /// Requests a stream that is refused.
    #[track_caller]
    pub(crate) fn refused(&mut self, ask: &Ask, status: Status) -> Answer {
        self.client.call(&ask.request()).is(status)
    }

    /// Returns the next frame of a stream, of any kind.
    #[track_caller]
    pub(crate) fn frame(&mut self) -> Answer {
        let frame = self.client.answer();
        assert_eq!(
            frame.magic & 0x7f,
            frame.magic & 0x08,
            "{frame:?}: no request"
        );
        frame
    }

    #[track_caller]
    pub(crate) fn message(&mut self) -> Message {
        read(&self.frame())
    }

    #[track_caller]
    pub(crate) fn messages(&mut self, count: usize) -> Vec<Message> {
        (0..count).map(|_| self.message()).collect()
    }

    /// Returns the messages up to the end of the stream, including it.
    #[track_caller]
    pub(crate) fn until_end(&mut self) -> Vec<Message> {
        let mut messages = Vec::new();
        loop {
            messages.push(self.message());
            if matches!(messages.last(), Some(Message::End(_))) {
                return messages;
            }
        }
    }

    /// Checks that no stream message comes before the answer to a request.
    #[track_caller]
    pub(crate) fn expect_silence(&mut self) {
        self.client.expect_silence();
    }
}

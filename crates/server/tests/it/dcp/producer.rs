//! A producer of the change protocol that sends exactly the messages of a test, on a connection that it opened as the
//! node's consumer.

use wire::{Opcode, Status};

use super::consumer::open;
use crate::client::{Answer, Client, Request};

pub(crate) const UUID: u64 = 0xfeed;
pub(crate) const REPLICA: u8 = 2;
pub(crate) const MEMORY: u32 = 1;
pub(crate) const ACK: u32 = 8;

/// The fields of a stream request of the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) opaque: u32,
    pub(crate) vb: u16,
    pub(crate) flags: u32,
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) uuid: u64,
    pub(crate) snapshot: (u64, u64),
}

/// A connection on which the node is the consumer.
pub(crate) struct Producer {
    pub(crate) client: Client,
    /// Settings that the node sent.
    pub(crate) controls: Vec<(String, String)>,
    /// Names of settings that the producer refuses.
    pub(crate) refuses: &'static [&'static str],
    /// Bytes that the node acknowledged.
    pub(crate) acked: u64,
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(bytes[at..at + 8].try_into().unwrap())
}

pub(crate) fn add_stream(vb: u16, flags: u32) -> Request {
    Request::new(Opcode::DCP_ADD_STREAM)
        .vbucket(vb)
        .extras(&flags.to_be_bytes())
        .opaque(0xadd)
}

pub(crate) fn marker(vb: u16, opaque: u32, range: (u64, u64), flags: u32) -> Request {
    let mut extras = range.0.to_be_bytes().to_vec();
    extras.extend(range.1.to_be_bytes());
    extras.extend(flags.to_be_bytes());
    Request::new(Opcode::DCP_SNAPSHOT_MARKER)
        .vbucket(vb)
        .extras(&extras)
        .opaque(opaque)
}

pub(crate) fn mutation(vb: u16, opaque: u32, seqno: u64, key: &str) -> Request {
    let mut extras = seqno.to_be_bytes().to_vec();
    extras.extend(1_u64.to_be_bytes());
    extras.extend([0; 15]);
    Request::new(Opcode::DCP_MUTATION)
        .vbucket(vb)
        .extras(&extras)
        .key([b"\0", key.as_bytes()].concat())
        .value("v")
        .cas(0x1000 + seqno)
        .opaque(opaque)
}

pub(crate) fn state(vb: u16, opaque: u32, state: u8) -> Request {
    Request::new(Opcode::DCP_SET_VBUCKET_STATE)
        .vbucket(vb)
        .extras(&[state])
        .opaque(opaque)
}

impl Producer {
    pub(crate) fn open(port: u16, name: &str) -> Self {
        Self::opened(port, &open(name, 0))
    }

    pub(crate) fn opened(port: u16, request: &Request) -> Self {
        Self::on(Client::ready(port), request)
    }

    pub(crate) fn on(mut client: Client, request: &Request) -> Self {
        client.call(request).ok();
        Self {
            client,
            controls: Vec::new(),
            refuses: &[],
            acked: 0,
        }
    }

    pub(crate) fn send(&mut self, request: &Request) {
        self.client.send(&request.bytes());
    }

    pub(crate) fn answer(&mut self, to: &Answer, status: Status, value: &[u8]) {
        let mut bytes = Request::new(to.opcode).value(value).bytes();
        bytes[0] = 0x81;
        bytes[6..8].copy_from_slice(&status.0.to_be_bytes());
        bytes[12..16].copy_from_slice(&to.opaque.to_be_bytes());
        self.client.send(&bytes);
    }

    /// Returns the next frame that is not about settings or acknowledgements; `None` at the end.
    #[track_caller]
    pub(crate) fn next(&mut self) -> Option<Answer> {
        loop {
            let frame = self.client.next()?;
            match (frame.magic, frame.opcode) {
                (0x80, Opcode::DCP_CONTROL) => {
                    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
                    let control = (text(&frame.key), text(&frame.value));
                    let refused = self.refuses.contains(&control.0.as_str());
                    self.controls.push(control);
                    let status = if refused {
                        Status::EINVAL
                    } else {
                        Status::SUCCESS
                    };
                    self.answer(&frame, status, b"");
                }
                (0x80, Opcode::DCP_BUFFER_ACK) => {
                    let bytes = frame.extras.as_slice().try_into().unwrap();
                    self.acked += u64::from(u32::from_be_bytes(bytes));
                }
                _ => return Some(frame),
            }
        }
    }

    #[track_caller]
    pub(crate) fn frame(&mut self) -> Answer {
        self.next().expect("a frame, not the end")
    }

    /// Returns the answer to the message that was sent with this opcode.
    #[track_caller]
    pub(crate) fn answered(&mut self, opcode: Opcode) -> Answer {
        let frame = self.frame();
        assert_eq!((frame.magic, frame.opcode), (0x81, opcode), "{frame:?}");
        frame
    }

    /// Returns the next frame, which must be a stream request.
    #[track_caller]
    pub(crate) fn asked(&mut self) -> (Answer, Asked) {
        let frame = self.frame();
        assert_eq!((frame.magic, frame.opcode), (0x80, Opcode::DCP_STREAM_REQ));
        let extras = &frame.extras;
        let asked = Asked {
            opaque: frame.opaque,
            vb: frame.status.0,
            flags: u32::from_be_bytes(extras[..4].try_into().unwrap()),
            start: u64_at(extras, 8),
            end: u64_at(extras, 16),
            uuid: u64_at(extras, 24),
            snapshot: (u64_at(extras, 32), u64_at(extras, 40)),
        };
        (frame, asked)
    }

    /// Starts a stream from the very beginning; returns its opaque.
    #[track_caller]
    pub(crate) fn stream(&mut self, vb: u16, flags: u32) -> u32 {
        self.send(&add_stream(vb, flags));
        let (request, asked) = self.asked();
        assert_eq!((asked.vb, asked.flags), (vb, flags));
        self.grant(&request, &[(UUID, 0)]);
        asked.opaque
    }

    /// Grants a stream, and takes the answer to `ADD_STREAM`.
    #[track_caller]
    pub(crate) fn grant(&mut self, request: &Answer, log: &[(u64, u64)]) {
        let entries = log.iter().flat_map(|(uuid, seqno)| [uuid, seqno]);
        let value: Vec<u8> = entries.flat_map(|number| number.to_be_bytes()).collect();
        self.answer(request, Status::SUCCESS, &value);
        let added = self.answered(Opcode::DCP_ADD_STREAM).ok();
        assert_eq!(added.opaque, 0xadd);
        assert_eq!(added.extras, request.opaque.to_be_bytes());
    }

    /// Sends a message that is refused.
    #[track_caller]
    pub(crate) fn refused(&mut self, request: &Request, status: Status) {
        self.send(request);
        let answer = self.answered(request.opcode).is(status);
        assert_eq!(answer.opaque, request.opaque);
    }

    /// Checks that all messages were accepted without an answer.
    #[track_caller]
    pub(crate) fn expect_silence(&mut self) {
        self.send(&Request::new(Opcode::NOOP));
        self.answered(Opcode::NOOP).ok();
    }
}

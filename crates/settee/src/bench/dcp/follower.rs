//! A connection with a stream of every vBucket, and how far each of them came.

use std::net::TcpStream;
use std::time::{Duration, Instant};

use model::{Seqno, SnapshotRange, VbId, VbUuid};
use wire::dcp::{
    BufferAck, DcpControl, MarkerFlags, OpenFlags, SnapshotMarker, StreamEnd, StreamFlags,
    StreamRequest, flow_bytes_of,
};
use wire::{Decoded, Envelope, Frame, Message as _, Opaque, Opcode, Response, Status};

use crate::bench::connection::Input;
use crate::bench::random_run;
use crate::client::{ANSWER_LIMITS, Client, ClientError, Link, Message, code_of_status};
use crate::exit::{Failure, Sysexit};

/// Bytes that are read at once.
const INPUT_BYTES: usize = 256 * 1024;
/// How long one wait for bytes is.
const TICK: Duration = Duration::from_millis(100);

/// Bytes and messages that came.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Figures {
    /// Changes of documents.
    pub(super) changes: u64,
    /// Those of them that came in snapshots of the store.
    pub(super) from_disk: u64,
    /// Snapshots that were announced.
    pub(super) snapshots: u64,
    /// Bytes of all messages.
    pub(super) bytes: u64,
}

/// One stream.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    reached: Seqno,
    wanted: Seqno,
    disk: bool,
}

/// The streams of one connection.
pub(super) struct Follower {
    stream: Link<TcpStream>,
    input: Input,
    output: Vec<u8>,
    places: Vec<Place>,
    /// Streams that have not reached what is wanted of them.
    behind: usize,
    /// Streams that were asked for and not granted yet.
    unanswered: usize,
    window: u32,
    unacknowledged: usize,
    timeout: Duration,
    figures: Figures,
}

impl Follower {
    /// Makes a connection one for streams.
    pub(super) fn open(
        mut client: Client,
        window: u32,
        timeout: Duration,
    ) -> Result<Self, Failure> {
        let Some(vbuckets) = client.key_form().vbuckets else {
            let reason = "--dcp: memcached has no change streams; use couchbase://";
            return Err(Failure::usage(reason));
        };
        let name = format!("settee-bench:{:08x}", random_run()?);
        let flags = u64::from(OpenFlags::PRODUCER.0).to_be_bytes();
        client.expect_success(&Message {
            extras: &flags,
            ..Message::with(Opcode::DCP_OPEN, name.as_bytes(), b"")
        })?;
        let window_text = window.to_string();
        for (name, value) in [
            ("enable_noop", "true"),
            ("set_noop_interval", "20"),
            ("connection_buffer_size", &window_text),
        ] {
            let (name, value) = (name.as_bytes(), value.as_bytes());
            client.expect_success(&Message::with(Opcode::DCP_CONTROL, name, value))?;
        }
        let stream = client.into_stream();
        stream.socket().set_read_timeout(Some(TICK)).map_err(lost)?;
        Ok(Self {
            stream,
            input: Input::new(INPUT_BYTES),
            output: Vec::new(),
            places: vec![Place::default(); usize::from(vbuckets)],
            behind: 0,
            unanswered: 0,
            window,
            unacknowledged: 0,
            timeout,
            figures: Figures::default(),
        })
    }

    /// How many streams there are.
    pub(super) fn streams(&self) -> usize {
        self.places.len()
    }

    /// What came so far.
    pub(super) fn figures(&self) -> Figures {
        self.figures
    }

    /// Asks for all streams, from the beginning and without an end.
    pub(super) fn request_all(&mut self) -> Result<(), Failure> {
        for index in 0..self.places.len() {
            let request = StreamRequest {
                flags: StreamFlags(0),
                start: Seqno::ZERO,
                end: Seqno(u64::MAX),
                uuid: VbUuid(0),
                snapshot: SnapshotRange {
                    start: Seqno::ZERO,
                    end: Seqno::ZERO,
                },
                value: b"",
            };
            let envelope = Envelope {
                vbucket: VbId(index as u16),
                opaque: Opaque((index as u32).to_be_bytes()),
                ..Envelope::default()
            };
            request
                .encode(&envelope, &mut self.output)
                .map_err(ClientError::from)?;
        }
        self.unanswered = self.places.len();
        self.flush()
    }

    /// Lets the server send without acknowledgements from now on.
    pub(super) fn open_window(&mut self) -> Result<(), Failure> {
        let control = DcpControl {
            name: b"connection_buffer_size",
            value: b"0",
        };
        control
            .encode(&Envelope::default(), &mut self.output)
            .map_err(ClientError::from)?;
        self.window = 0;
        self.flush()
    }

    /// Reads until every stream is granted.
    pub(super) fn follow_to_grants(&mut self) -> Result<(), Failure> {
        self.read_until(|follower| follower.unanswered == 0, &mut |_, _| {})
    }

    /// Reads until every stream has come as far as `wanted` says.
    pub(super) fn follow_to(&mut self, wanted: &[(VbId, Seqno)]) -> Result<(), Failure> {
        self.follow_to_with(wanted, &mut |_, _| {})
    }

    /// The same; `on_mutation` gets key and value of every mutation.
    pub(super) fn follow_to_with(
        &mut self,
        wanted: &[(VbId, Seqno)],
        on_mutation: &mut impl FnMut(&[u8], &[u8]),
    ) -> Result<(), Failure> {
        self.behind = 0;
        for (vb, seqno) in wanted {
            if let Some(place) = self.places.get_mut(usize::from(vb.0)) {
                place.wanted = *seqno;
                self.behind += usize::from(place.reached < *seqno);
            }
        }
        self.read_until(|follower| follower.behind == 0, on_mutation)
    }

    fn read_until(
        &mut self,
        done: impl Fn(&Self) -> bool,
        on_mutation: &mut impl FnMut(&[u8], &[u8]),
    ) -> Result<(), Failure> {
        let mut heard = Instant::now();
        while !done(self) {
            if self.read(on_mutation)? {
                heard = Instant::now();
            } else if heard.elapsed() > self.timeout {
                let reason = format!("the streams stand still for {:?}", self.timeout);
                return Err(Failure::new(Sysexit::Unavailable, reason));
            }
        }
        Ok(())
    }

    /// Reads once, waiting a little, and takes all messages; `on_mutation` gets key and
    /// value of every mutation. Whether anything came.
    pub(super) fn read(
        &mut self,
        on_mutation: &mut impl FnMut(&[u8], &[u8]),
    ) -> Result<bool, Failure> {
        let before = self.input.bytes().len();
        self.input.fill(&mut self.stream).map_err(lost)?;
        let came = self.input.bytes().len() > before;
        let mut consumed = 0;
        let missing = loop {
            let bytes = &self.input.bytes()[consumed..];
            let decoded = wire::decode(bytes, ANSWER_LIMITS);
            match decoded.map_err(|error| ClientError::broken("streaming", &error))? {
                Decoded::Incomplete { more } => break more,
                Decoded::Frame {
                    frame,
                    consumed: length,
                } => {
                    consumed += length;
                    let mut taker = Taker {
                        places: &mut self.places,
                        figures: &mut self.figures,
                        output: &mut self.output,
                        behind: &mut self.behind,
                        unanswered: &mut self.unanswered,
                    };
                    taker.take(&frame, on_mutation)?;
                    self.unacknowledged += flow_bytes_of(&frame);
                }
            }
        };
        self.input.consume(consumed);
        self.input.make_room(missing);
        self.acknowledge()?;
        self.flush()?;
        Ok(came)
    }

    fn acknowledge(&mut self) -> Result<(), Failure> {
        if self.window == 0 || self.unacknowledged < self.window as usize / 2 {
            return Ok(());
        }
        let bytes = u32::try_from(self.unacknowledged).unwrap_or(u32::MAX);
        self.unacknowledged -= bytes as usize;
        let ack = BufferAck { bytes };
        ack.encode(&Envelope::default(), &mut self.output)
            .map_err(ClientError::from)?;
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Failure> {
        if !self.output.is_empty() {
            std::io::Write::write_all(&mut self.stream, &self.output).map_err(lost)?;
            self.output.clear();
        }
        Ok(())
    }
}

/// What a message changes.
struct Taker<'a> {
    places: &'a mut [Place],
    figures: &'a mut Figures,
    output: &'a mut Vec<u8>,
    behind: &'a mut usize,
    unanswered: &'a mut usize,
}

impl Taker<'_> {
    fn take(
        &mut self,
        frame: &Frame<'_>,
        on_mutation: &mut impl FnMut(&[u8], &[u8]),
    ) -> Result<(), Failure> {
        let header = frame.header;
        if header.magic.is_client_response() {
            return self.take_answer(frame);
        }
        if !header.magic.is_client_request() {
            return Ok(());
        }
        self.figures.bytes += frame.wire_bytes() as u64;
        match header.opcode {
            Opcode::DCP_NOOP => {
                let answer = Response::new(Opcode::DCP_NOOP, header.opaque, Status::SUCCESS);
                answer.encode(self.output);
                Ok(())
            }
            Opcode::DCP_MUTATION => {
                on_mutation(frame.key, frame.value);
                self.change(frame)
            }
            Opcode::DCP_DELETION | Opcode::DCP_EXPIRATION => self.change(frame),
            Opcode::DCP_SNAPSHOT_MARKER => self.snapshot(frame),
            Opcode::DCP_STREAM_END => Err(ended(frame)),
            Opcode::DCP_SYSTEM_EVENT | Opcode::DCP_SEQNO_ADVANCED => self.reach(frame),
            _ => Ok(()),
        }
    }

    fn take_answer(&mut self, frame: &Frame<'_>) -> Result<(), Failure> {
        match frame.status() {
            Status::SUCCESS => {}
            status => {
                let reason = format!("{}: {}", frame.header.opcode.name(), status.description());
                return Err(Failure::new(code_of_status(status), reason));
            }
        }
        if frame.header.opcode == Opcode::DCP_STREAM_REQ {
            *self.unanswered = self.unanswered.saturating_sub(1);
        }
        Ok(())
    }

    fn place(&mut self, frame: &Frame<'_>) -> Result<&mut Place, Failure> {
        let index = u32::from_be_bytes(frame.header.opaque.0) as usize;
        let place = self.places.get_mut(index);
        place.ok_or_else(|| broken("a message of an unknown stream"))
    }

    fn change(&mut self, frame: &Frame<'_>) -> Result<(), Failure> {
        self.figures.changes += 1;
        let from_disk = self.place(frame)?.disk;
        self.figures.from_disk += u64::from(from_disk);
        self.reach(frame)
    }

    fn reach(&mut self, frame: &Frame<'_>) -> Result<(), Failure> {
        let seqno = seqno_of(frame)?;
        let place = self.place(frame)?;
        if seqno <= place.reached {
            return Err(broken("seqnos do not ascend"));
        }
        let arrives = place.reached < place.wanted && seqno >= place.wanted;
        place.reached = seqno;
        *self.behind -= usize::from(arrives);
        Ok(())
    }

    fn snapshot(&mut self, frame: &Frame<'_>) -> Result<(), Failure> {
        self.figures.snapshots += 1;
        let marker = SnapshotMarker::read(frame).map_err(|error| broken(&error.to_string()))?;
        self.place(frame)?.disk = marker.flags.contains(MarkerFlags::DISK);
        Ok(())
    }
}

/// The number that such a message begins with.
fn seqno_of(frame: &Frame<'_>) -> Result<Seqno, Failure> {
    let first = frame.extras.first_chunk();
    let first = first.ok_or_else(|| broken("a change without a seqno"))?;
    Ok(Seqno(u64::from_be_bytes(*first)))
}

/// Streams without an end have none, unless the server has a reason.
fn ended(frame: &Frame<'_>) -> Failure {
    match StreamEnd::read(frame) {
        Ok(end) => broken(&format!("a stream ended: {}", end.reason.name())),
        Err(error) => broken(&error.to_string()),
    }
}

pub(super) fn broken(reason: &str) -> Failure {
    ClientError::broken("streaming", &reason).into()
}

#[expect(clippy::needless_pass_by_value, reason = "the form that map_err takes")]
pub(super) fn lost(error: std::io::Error) -> Failure {
    Failure::new(Sysexit::Unavailable, format!("streaming: {error}"))
}

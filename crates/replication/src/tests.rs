//! Tests of the consumer against a scripted producer.

use std::cell::{Cell, RefCell};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use consumer::{
    ConsumerOptions, NotTaken, ReplicaPosition, Resolved, StandingOptions, Target, Violation,
};
use identity::{Administrator, Identity, SaslSession, SaslStep, Secrets};
use model::{
    Cas, Document, FailoverEntry, FailoverLog, Seqno, SnapshotRange, VbId, VbState, VbUuid,
};
use proptest::prelude::*;
use registry::{NotThere, Progress, Stage};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};
use wire::dcp::{
    Abort, BufferAck, Commit, Deletion, EndReason, Expiration, MarkerFlags, MarkerVersion,
    Mutation, Prepare, SeqnoAcknowledged, SeqnoAdvanced, SnapshotMarker, StreamEnd, StreamRequest,
};
use wire::{
    Decoded, DurabilityLevel, Envelope, Frame, Limits, Magic, Message, Opaque, Opcode, RawParts,
    Response, Status, decode, encode_raw,
};

use super::broken::Broken;
use super::consumer::Consumer;
use super::setup::{Introduction, Setup};

const SECOND_NS: u64 = 1_000_000_000;
const UUID: VbUuid = VbUuid(0xaaaa);

fn log(entries: &[(u64, u64)]) -> FailoverLog {
    let entry = |&(uuid, seqno): &(u64, u64)| FailoverEntry {
        uuid: VbUuid(uuid),
        seqno: Seqno(seqno),
    };
    FailoverLog::from_entries(entries.iter().map(entry).collect()).expect("entries")
}

/// A target with one vBucket that records each call.
struct Fake {
    position: RefCell<Option<ReplicaPosition>>,
    done: RefCell<Vec<String>>,
    room: Cell<bool>,
    refuse: Cell<bool>,
    prepared: Cell<u64>,
    idle_timeout: Cell<Option<Duration>>,
}

impl Fake {
    fn at(high: u64, snapshot: (u64, u64), entries: &[(u64, u64)]) -> Self {
        let position = ReplicaPosition {
            high: Seqno(high),
            snapshot: SnapshotRange {
                start: Seqno(snapshot.0),
                end: Seqno(snapshot.1),
            },
            log: log(entries),
        };
        Self {
            position: RefCell::new(Some(position)),
            done: RefCell::default(),
            room: Cell::new(true),
            refuse: Cell::new(false),
            prepared: Cell::new(0),
            idle_timeout: Cell::new(None),
        }
    }

    fn note(&self, text: String) {
        self.done.borrow_mut().push(text);
    }

    fn taken(&self) -> Vec<String> {
        self.done.take()
    }
}

impl Target for Fake {
    fn users_question(&self) -> Option<String> {
        Some("7".to_owned())
    }

    fn take_users(&self, told: &[u8]) -> Result<(), String> {
        self.note(format!("users {}", String::from_utf8_lossy(told)));
        Ok(())
    }

    fn vbuckets(&self) -> u16 {
        1
    }

    fn position(&self, _: VbId) -> Option<ReplicaPosition> {
        self.position.borrow().clone()
    }

    fn adopt(&self, _: VbId, log: FailoverLog) -> Result<(), NotTaken> {
        self.note(format!("adopt {:x}", log.newest().uuid.0));
        Ok(())
    }

    fn begin(&self, _: VbId, marker: &SnapshotMarker) -> Result<(), NotTaken> {
        self.note(format!("{}..{}", marker.range.start, marker.range.end));
        Ok(())
    }

    fn apply(&self, _: VbId, document: Document) -> Result<(), NotTaken> {
        if self.refuse.get() {
            return Err(NotTaken::NotReplica);
        }
        let (kind, seqno) = (document.kind(), document.seqno());
        let key = String::from_utf8_lossy(&document.key()[1..]).into_owned();
        self.note(format!("{kind:?} {key}@{seqno}"));
        Ok(())
    }

    fn decide(&self, _: VbId, resolved: &Resolved<'_>) -> Result<(), NotTaken> {
        if self.refuse.get() {
            return Err(NotTaken::Incomplete);
        }
        let (prepare, at) = (resolved.prepare, resolved.at);
        let what = if resolved.committed {
            "commit"
        } else {
            "abort"
        };
        self.note(format!("{what} {prepare} at {at}"));
        Ok(())
    }

    fn high_prepared(&self, _: VbId) -> Seqno {
        Seqno(self.prepared.get())
    }

    fn roll_back(&self, _: VbId, to: Seqno) -> Result<(), NotTaken> {
        self.note(format!("roll back {to}"));
        let mut position = self.position.borrow_mut();
        let position = position.as_mut().expect("a position");
        position.high = to;
        position.snapshot = SnapshotRange { start: to, end: to };
        Ok(())
    }

    fn loses(&self, _: VbId, _: Seqno) -> Result<bool, NotTaken> {
        Ok(false)
    }

    fn take_over(&self, _: VbId, state: VbState) -> Result<(), NotTaken> {
        self.note(format!("{state:?}"));
        Ok(())
    }

    fn has_memory(&self) -> bool {
        self.room.get()
    }

    fn idle_timeout(&self) -> Option<Duration> {
        self.idle_timeout.get()
    }

    fn registered(&self, answer: &[u8]) -> Result<Result<(), String>, NotThere> {
        let answer = String::from_utf8_lossy(answer);
        self.note(format!("registered {answer}"));
        let full = answer.contains("refuse settings");
        Ok(if full { Err("full".into()) } else { Ok(()) })
    }
}

fn introduction() -> Introduction {
    Introduction {
        user: "u".into(),
        password: "p".into(),
        nonce: "nonce".into(),
        bucket: "b".into(),
        name: "replica:1".into(),
        wishes: ConsumerOptions {
            window_bytes: 1000,
            consumer: "c".into(),
            bucket_uuid: String::new(),
        },
        about: "{}".into(),
        certified: false,
        must_register: false,
        tells: false,
        streams: StandingOptions::default(),
    }
}

/// One answer of the consumer.
type Said = (Opcode, Opaque, Status);

/// Splits the consumer's output into its requests and its answers.
fn said(out: &mut Vec<u8>) -> (Vec<Vec<u8>>, Vec<Said>) {
    let bytes = std::mem::take(out);
    let (mut requests, mut answers) = (Vec::new(), Vec::new());
    let mut rest = &bytes[..];
    while !rest.is_empty() {
        let Ok(Decoded::Frame { frame, consumed }) = decode(rest, Limits::AUTHENTICATED) else {
            panic!("no whole frame: {rest:?}");
        };
        if frame.header.magic == Magic::ClientResponse {
            answers.push((frame.header.opcode, frame.header.opaque, frame.status()));
        } else {
            requests.push(rest[..consumed].to_vec());
        }
        rest = &rest[consumed..];
    }
    (requests, answers)
}

fn frame_of(bytes: &[u8]) -> Frame<'_> {
    let Ok(Decoded::Frame { frame, .. }) = decode(bytes, Limits::AUTHENTICATED) else {
        panic!("no whole frame");
    };
    frame
}

/// Parses the bytes as a request of type `M`; `None` if they are another message.
fn parsed<'a, M: Message<'a>>(bytes: &'a [u8]) -> Option<M> {
    M::parse(&frame_of(bytes)).ok()
}

fn answer(opcode: Opcode, opaque: Opaque, status: Status, value: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let answer = Response {
        value,
        ..Response::new(opcode, opaque, status)
    };
    answer.encode(&mut out);
    out
}

/// A consumer with a connection that is set up, and its stream request.
struct Set<'a> {
    consumer: Consumer<'a, Fake>,
    progress: Arc<Progress>,
    out: Vec<u8>,
    opaque: Opaque,
    asked: (u64, u64, (u64, u64)),
}

impl<'a> Set<'a> {
    /// Answers every step of the introduction; `refused` names the step that fails.
    fn up(fake: &'a Fake, about: &'a Introduction, refused: Option<&str>) -> Result<Self, Broken> {
        let progress = Arc::new(Progress::new(1));
        let mut out = Vec::new();
        let mut consumer = Consumer::new(fake, about, Arc::clone(&progress), 0, &mut out)?;
        let user = Administrator {
            name: "u".into(),
            password: "p".into(),
        };
        let identity = Identity::with_iterations(user, Secrets::alike([1; 32]), 16);
        let mut sasl = SaslSession::default();
        for _ in 0..64 {
            let (requests, _) = said(&mut out);
            let frame = frame_of(&requests[0]);
            let (opcode, opaque) = (frame.header.opcode, frame.header.opaque);
            if opcode == Opcode::DCP_STREAM_REQ {
                let mut set = Self {
                    consumer,
                    progress,
                    out,
                    opaque,
                    asked: (0, 0, (0, 0)),
                };
                set.note_asked(&requests);
                return Ok(set);
            }
            assert_eq!(requests.len(), 1, "one step at a time");
            let name = match opcode {
                Opcode::DCP_CONTROL => String::from_utf8_lossy(frame.key).into_owned(),
                other => other.name().to_owned(),
            };
            let (granted, ok): (Vec<u8>, _) = match opcode {
                Opcode::HELLO => (frame.value.to_vec(), Status::SUCCESS),
                Opcode::SASL_STEP => match sasl.step(&identity, frame.key, frame.value) {
                    SaslStep::Done { payload, .. } => (payload, Status::SUCCESS),
                    _ => (Vec::new(), Status::AUTH_ERROR),
                },
                Opcode::SASL_AUTH => {
                    let mut random = |bytes: &mut [u8]| bytes.fill(1);
                    match sasl.start(&identity, frame.key, frame.value, &mut random) {
                        SaslStep::Continue(payload) => (payload, Status::AUTH_CONTINUE),
                        _ => (Vec::new(), Status::AUTH_ERROR),
                    }
                }
                _ => (b"said".to_vec(), Status::SUCCESS),
            };
            let status = if refused == Some(name.as_str()) {
                Status::EINVAL
            } else {
                ok
            };
            let answer = answer(opcode, opaque, status, &granted);
            assert_eq!(consumer.receive(&answer, 0, &mut out)?, answer.len());
        }
        panic!("the introduction does not end");
    }

    /// Hears that nothing of the history it asked with is there; the history that it asks with next, and what was done.
    fn rolled_to_zero(&mut self, fake: &Fake) -> (u64, Vec<String>) {
        let (question, zero) = (Opcode::DCP_STREAM_REQ, [0; 8]);
        let refusal = answer(question, self.opaque, Status::ROLLBACK, &zero);
        self.hears(&refusal, 0).expect("a rollback");
        let (requests, _) = said(&mut self.out);
        self.note_asked(&requests);
        (self.asked.1, fake.taken())
    }

    fn note_asked(&mut self, requests: &[Vec<u8>]) {
        for bytes in requests {
            if let Some(StreamRequest {
                start,
                uuid,
                snapshot,
                ..
            }) = parsed(bytes)
            {
                self.opaque = frame_of(bytes).header.opaque;
                self.asked = (start.0, uuid.0, (snapshot.start.0, snapshot.end.0));
            }
        }
    }

    fn hears(&mut self, bytes: &[u8], now_ns: u64) -> Result<(), Broken> {
        let consumed = self.consumer.receive(bytes, now_ns, &mut self.out)?;
        assert_eq!(consumed, bytes.len());
        Ok(())
    }

    fn granted(&mut self) {
        let mut log = UUID.0.to_be_bytes().to_vec();
        log.extend([0; 8]);
        let answer = answer(Opcode::DCP_STREAM_REQ, self.opaque, Status::SUCCESS, &log);
        self.hears(&answer, 0).expect("a grant");
    }

    fn push<'m, M: Message<'m>>(&mut self, message: &M) -> Result<(), Broken> {
        let mut bytes = Vec::new();
        let head = envelope(self.opaque, Cas(9));
        message.encode(&head, &mut bytes).expect("short parts");
        self.hears(&bytes, 0)
    }
}

fn envelope(opaque: Opaque, cas: Cas) -> Envelope<'static> {
    Envelope {
        opaque,
        cas,
        ..Envelope::default()
    }
}

fn marker(start: u64, end: u64, flags: MarkerFlags) -> SnapshotMarker {
    SnapshotMarker {
        range: SnapshotRange {
            start: Seqno(start),
            end: Seqno(end),
        },
        flags,
        version: MarkerVersion::V1,
    }
}

fn mutation(seqno: u64, key: &'static [u8]) -> Mutation<'static> {
    Mutation {
        seqno: Seqno(seqno),
        rev: 1,
        flags: 0,
        expiry: 0,
        lock_time: 0,
        heat: 200,
        key,
        value: b"v",
    }
}

#[test]
fn stream_is_negotiated_granted_and_applied() {
    let (fake, about) = (Fake::at(0, (0, 0), &[(1, 0)]), introduction());
    let mut set = Set::up(&fake, &about, None).expect("a connection");
    assert_eq!(set.progress.stage(), Stage::Streaming);
    assert_eq!(set.asked, (0, 0, (0, 0)), "no history from the very start");
    set.granted();
    set.push(&marker(0, 3, MarkerFlags::DISK))
        .expect("a marker");
    set.push(&mutation(1, b"\0a")).expect("a mutation");
    let deletion = Deletion {
        seqno: Seqno(2),
        rev: 2,
        delete_time: Some(7),
        key: b"\0b",
        value: b"",
    };
    set.push(&deletion).expect("a deletion");
    let expiration = Expiration {
        seqno: Seqno(3),
        rev: 2,
        delete_time: 7,
        key: b"\0c",
        value: b"",
    };
    set.push(&expiration).expect("an expiration");
    let expected = [
        "registered said",
        "adopt aaaa",
        "0..3",
        "Mutation a@1",
        "Deletion b@2",
        "Expiration c@3",
    ];
    assert_eq!(fake.taken(), expected);
    assert_eq!(set.progress.changes.load(Ordering::Relaxed), 3);
    assert_eq!(set.progress.peer_seqno(VbId(0)), Seqno(3));
}

/// Levels of the lines that are logged.
#[derive(Clone, Default)]
struct LogLevels(Arc<Mutex<Vec<Level>>>);

impl Subscriber for LogLevels {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn event(&self, event: &Event<'_>) {
        self.0
            .lock()
            .expect("a lock")
            .push(*event.metadata().level());
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[test]
fn settings_that_cannot_be_kept_are_logged_once_and_once_when_they_are() {
    let (fake, about) = (Fake::at(0, (0, 0), &[(UUID.0, 0)]), introduction());
    let mut set = Set::up(&fake, &about, None).expect("a connection");
    let levels = LogLevels::default();
    tracing::subscriber::with_default(levels.clone(), || {
        for told in ["refuse settings", "refuse settings", "said", "said"] {
            let registration = Opaque([0, 0, 0xff, 0xfe]);
            let (opcode, ok) = (Opcode::IOCTL_SET, Status::SUCCESS);
            let answer = answer(opcode, registration, ok, told.as_bytes());
            set.hears(&answer, 0).expect("the connection stays");
        }
    });
    assert_eq!(*levels.0.lock().unwrap(), [Level::WARN, Level::INFO]);
}

#[test]
fn a_login_may_be_left_out_where_a_certificate_was_shown() {
    for certified in [false, true] {
        let about = Introduction {
            certified,
            ..introduction()
        };
        let mut setup = Setup::new(&about);
        let granted = [0, 0x12, 0, 0x0b];
        setup.answered(Status::SUCCESS, &granted).unwrap();
        let answered = setup.answered(Status::NOT_SUPPORTED, b"");
        assert_eq!(answered.is_ok(), certified);
        let opaque = Opaque(3_u32.to_be_bytes());
        assert_eq!(setup.expects(Opcode::SELECT_BUCKET, opaque), certified);
    }
}

#[test]
fn a_bucket_that_the_other_node_lacks_is_named_as_the_reason() {
    let about = Introduction {
        certified: true,
        ..introduction()
    };
    let mut setup = Setup::new(&about);
    let granted = [0, 0x12, 0, 0x0b];
    setup.answered(Status::SUCCESS, &granted).unwrap();
    setup.answered(Status::NOT_SUPPORTED, b"").unwrap();
    let why = setup.answered(Status::EACCESS, b"").unwrap_err();
    assert!(why.contains("does not have the bucket yet"), "{why}");
}

#[test]
fn setup_ends_connection_unless_refused_step_is_optional() {
    let about = introduction();
    for step in [
        "HELLO",
        "SASL_AUTH",
        "SASL_STEP",
        "SELECT_BUCKET",
        "DCP_OPEN",
        "enable_noop",
        "connection_buffer_size",
    ] {
        let fake = Fake::at(0, (0, 0), &[(1, 0)]);
        let refused = Set::up(&fake, &about, Some(step)).err();
        assert!(matches!(refused, Some(Broken::Refused(_))), "{step}");
    }
    for step in ["IOCTL_SET", "max_marker_version", "set_priority"] {
        let fake = Fake::at(0, (0, 0), &[(1, 0)]);
        assert!(Set::up(&fake, &about, Some(step)).is_ok(), "{step}");
    }
}

#[test]
fn a_stream_resumes_where_the_vbucket_stands() {
    let about = introduction();
    for (high, snapshot, expected) in [
        (9, (9, 9), (9, 9)),
        (9, (5, 20), (5, 20)),
        (9, (9, 20), (9, 9)),
        (9, (3, 9), (9, 9)),
    ] {
        let fake = Fake::at(high, snapshot, &[(2, 8), (1, 0)]);
        let set = Set::up(&fake, &about, None).expect("a connection");
        assert_eq!(set.asked, (high, 2, expected), "{snapshot:?}");
    }
}

#[test]
fn a_rollback_is_made_and_the_stream_asked_for_again() {
    let (fake, about) = (Fake::at(9, (9, 9), &[(2, 5), (1, 0)]), introduction());
    let mut set = Set::up(&fake, &about, None).expect("a connection");
    let _registered = fake.taken();
    let to = 4_u64.to_be_bytes();
    let answer = answer(Opcode::DCP_STREAM_REQ, set.opaque, Status::ROLLBACK, &to);
    set.hears(&answer, 0).expect("a rollback");
    assert_eq!(fake.taken(), ["roll back 4"]);
    let before = set.opaque;
    let (requests, _) = said(&mut set.out);
    set.note_asked(&requests);
    assert_ne!(set.opaque, before);
    assert_eq!(set.asked, (4, 2, (4, 4)));
    assert_eq!(set.progress.rollbacks.load(Ordering::Relaxed), 1);
}

#[test]
fn rollback_retries_without_newest_unused_history() {
    let (fake, about) = (Fake::at(9, (9, 9), &[(2, 9), (1, 0)]), introduction());
    let mut set = Set::up(&fake, &about, None).expect("a connection");
    let _registered = fake.taken();
    assert_eq!(set.asked, (9, 2, (9, 9)));
    assert_eq!(set.rolled_to_zero(&fake), (1, vec![]));
    assert_eq!(set.rolled_to_zero(&fake), (0, vec!["roll back 0".into()]));
}

#[test]
fn rollback_keeps_changes_before_unknown_history() {
    // The vBucket has no change of history 3. Its changes from 6 on belong to history 2, which the producer lacks.
    let (fake, about) = (
        Fake::at(8, (5, 8), &[(3, 10), (2, 6), (1, 0)]),
        introduction(),
    );
    let mut set = Set::up(&fake, &about, None).expect("a connection");
    let _registered = fake.taken();
    assert_eq!(set.asked.1, 3);
    assert_eq!(set.rolled_to_zero(&fake), (2, vec![]));
    assert_eq!(set.rolled_to_zero(&fake), (1, vec![]));
    assert_eq!(set.asked, (6, 1, (6, 6)));
    set.granted();
    assert_eq!(fake.taken(), ["roll back 6"]);
    let (requests, _) = said(&mut set.out);
    set.note_asked(&requests);
    assert_eq!(set.asked, (6, 3, (6, 6)));
}

/// The producer knows every history, but purged tombstones after the last change here.
#[test]
fn purged_tombstones_leave_the_vbucket_as_it_is_until_all_history_is_asked_for() {
    let (fake, about) = (Fake::at(8, (8, 8), &[(2, 6), (1, 0)]), introduction());
    let mut set = Set::up(&fake, &about, None).expect("a connection");
    let _registered = fake.taken();
    assert_eq!(set.rolled_to_zero(&fake), (1, vec![]));
    assert_eq!(set.asked, (6, 1, (6, 6)));
    assert_eq!(set.rolled_to_zero(&fake), (0, vec!["roll back 0".into()]));
}

/// Changes of history 1 up to 8 may be missing: the snapshot's changes of history 2 have replaced them.
#[test]
fn incomplete_snapshot_beyond_unknown_history_is_dropped() {
    let (fake, about) = (Fake::at(8, (5, 12), &[(2, 10), (1, 0)]), introduction());
    let mut set = Set::up(&fake, &about, None).expect("a connection");
    let _registered = fake.taken();
    assert_eq!(set.rolled_to_zero(&fake), (1, vec![]));
    assert_eq!(set.asked, (5, 1, (5, 5)));
    set.granted();
    assert_eq!(fake.taken(), ["roll back 5"]);
}

#[test]
fn a_refused_or_ended_stream_is_asked_for_again_later() {
    let (fake, about) = (Fake::at(0, (0, 0), &[(1, 0)]), introduction());
    let mut set = Set::up(&fake, &about, None).expect("a connection");
    let refusal = answer(Opcode::DCP_STREAM_REQ, set.opaque, Status::ETMPFAIL, b"");
    set.hears(&refusal, 0).expect("a refusal");
    assert_eq!(said(&mut set.out).0.len(), 0, "not at once");
    let old = set.opaque;
    set.consumer.tick(SECOND_NS, &mut set.out).expect("time");
    let (requests, _) = said(&mut set.out);
    set.note_asked(&requests);
    assert_ne!(set.opaque, old);
    set.granted();
    let end = StreamEnd {
        reason: EndReason::STATE_CHANGED,
    };
    set.push(&end).expect("an end");
    set.consumer
        .tick(3 * SECOND_NS, &mut set.out)
        .expect("time");
    let (requests, _) = said(&mut set.out);
    let again = requests
        .iter()
        .filter(|bytes| parsed::<StreamRequest<'_>>(bytes).is_some());
    assert_eq!(again.count(), 1);
}

#[test]
fn a_turned_stream_is_closed_and_asked_for_again_at_once() {
    let (fake, about) = (Fake::at(0, (0, 0), &[(1, 0)]), introduction());
    let mut set = Set::up(&fake, &about, None).expect("a connection");
    set.granted();
    let old = set.opaque;
    said(&mut set.out);
    set.consumer.turn(VbId(0), &mut set.out);
    let (requests, _) = said(&mut set.out);
    let opcodes = requests.iter().map(|bytes| frame_of(bytes).header.opcode);
    let expected = [Opcode::DCP_CLOSE_STREAM, Opcode::DCP_STREAM_REQ];
    assert_eq!(opcodes.collect::<Vec<_>>(), expected);
    set.note_asked(&requests);
    assert_ne!(set.opaque, old);
    let due = set.consumer.due_in();
    assert_eq!(due, Duration::from_secs(2), "only the seqnos are due");
}

#[test]
fn a_link_of_a_cluster_is_due_only_for_what_it_waits_for() {
    let (fake, mut about) = (Fake::at(0, (0, 0), &[(1, 0)]), introduction());
    about.about.clear();
    about.streams.poll = None;
    let mut set = Set::up(&fake, &about, None).expect("a connection");
    set.granted();
    let silence = Duration::from_mins(1);
    assert_eq!(set.consumer.due_in(), silence);
    let position = fake.position.take();
    set.consumer.turn(VbId(0), &mut set.out);
    assert_eq!(set.consumer.due_in(), silence, "it is no replica");
    said(&mut set.out);
    fake.position.replace(position);
    set.consumer.turn(VbId(0), &mut set.out);
    let (requests, _) = said(&mut set.out);
    set.note_asked(&requests);
    set.granted();
    set.push(&marker(1, 9, MarkerFlags::MEMORY))
        .expect("a marker");
    let late_ack = Duration::from_secs(5);
    assert_eq!(set.consumer.due_in(), late_ack, "bytes are processed");
    fake.room.set(false);
    set.push(&mutation(1, b"\0k")).expect("a mutation");
    let look = Duration::from_millis(100);
    assert_eq!(set.consumer.due_in(), look, "memory is short");
}

#[test]
fn the_next_request_for_a_refused_stream_is_not_late() {
    let (fake, mut about) = (Fake::at(0, (0, 0), &[(1, 0)]), introduction());
    about.streams.retry = Duration::from_millis(25);
    let mut set = Set::up(&fake, &about, None).expect("a connection");
    let refusal = answer(
        Opcode::DCP_STREAM_REQ,
        set.opaque,
        Status::NOT_MY_VBUCKET,
        b"",
    );
    set.hears(&refusal, 0).expect("a refusal");
    said(&mut set.out);
    assert_eq!(set.consumer.due_in(), about.streams.retry);
    let due_ns = set.consumer.due_in().as_nanos() as u64;
    set.consumer.tick(due_ns, &mut set.out).expect("time");
    let old = set.opaque;
    let (requests, _) = said(&mut set.out);
    set.note_asked(&requests);
    assert_ne!(set.opaque, old);
}

#[test]
fn bytes_are_acknowledged_unless_memory_is_short() {
    let (fake, about) = (Fake::at(0, (0, 0), &[(1, 0)]), introduction());
    let mut set = Set::up(&fake, &about, None).expect("a connection");
    set.granted();
    let _before = said(&mut set.out);
    let acked = |out: &mut Vec<u8>| -> Vec<u32> {
        let (requests, _) = said(out);
        let ack = |bytes: &Vec<u8>| parsed(bytes).map(|ack: BufferAck| ack.bytes);
        requests.iter().filter_map(ack).collect()
    };
    fake.room.set(false);
    set.push(&marker(1, 9, MarkerFlags::MEMORY))
        .expect("a marker");
    for seqno in 1..=4 {
        set.push(&mutation(seqno, b"\0k")).expect("a mutation");
    }
    assert_eq!(acked(&mut set.out), Vec::<u32>::new());
    assert_eq!(fake.taken().len(), 7, "all of it was taken");
    assert_eq!(set.progress.pauses.load(Ordering::Relaxed), 1);
    fake.room.set(true);
    set.consumer.tick(1, &mut set.out).expect("time");
    let all = 44 + 4 * (24 + 31 + 2 + 1);
    assert_eq!(acked(&mut set.out), [all]);
}

/// Each message returns its bytes to the window exactly once, even if it belongs to no stream.
#[test]
fn every_byte_is_acknowledged_once_for_any_message() {
    let (fake, about) = (Fake::at(0, (0, 0), &[(1, 0)]), introduction());
    let mut set = Set::up(&fake, &about, None).expect("a connection");
    set.granted();
    let _before = said(&mut set.out);
    let marker_bytes = 44;
    let mutation_bytes = 24 + 31 + 2 + 1;
    fake.room.set(false);
    set.push(&marker(1, 9, MarkerFlags::MEMORY))
        .expect("a marker");
    set.push(&mutation(1, b"\0k")).expect("a mutation");
    fake.refuse.set(true);
    set.push(&mutation(2, b"\0k"))
        .expect("its stream is closed for it");
    set.push(&mutation(3, b"\0k"))
        .expect("its stream is no more");
    let mut acked = 0;
    for (room, now_ns) in [(false, 1), (true, 2), (true, 3), (false, 4), (true, 6)] {
        fake.room.set(room);
        let tick = set.consumer.tick(now_ns * SECOND_NS, &mut set.out);
        tick.expect("time");
        for request in said(&mut set.out).0 {
            if let Some(BufferAck { bytes }) = parsed(&request) {
                assert_ne!(bytes, 0, "nothing is no news");
                acked += bytes;
            }
        }
    }
    assert_eq!(acked, marker_bytes + 3 * mutation_bytes);
}

#[test]
fn noops_and_snapshot_ends_are_answered() {
    let (fake, about) = (Fake::at(0, (0, 0), &[(1, 0)]), introduction());
    let mut set = Set::up(&fake, &about, None).expect("a connection");
    set.granted();
    let _before = said(&mut set.out);
    let opaque = Opaque([1, 2, 3, 4]);
    let mut noop = Vec::new();
    let head = envelope(opaque, Cas(0));
    encode_raw(Opcode::DCP_NOOP, &head, RawParts::default(), &mut noop).expect("a no-op");
    set.hears(&noop, 0).expect("a no-op");
    let answered = (Opcode::DCP_NOOP, opaque, Status::SUCCESS);
    assert_eq!(said(&mut set.out).1, [answered]);
    let flags = MarkerFlags::MEMORY.with(MarkerFlags::ACK);
    set.push(&marker(1, 2, flags)).expect("a marker");
    set.push(&mutation(1, b"\0k")).expect("a mutation");
    assert_eq!(said(&mut set.out).1, []);
    set.push(&mutation(2, b"\0l")).expect("a mutation");
    let answered = (Opcode::DCP_SNAPSHOT_MARKER, set.opaque, Status::SUCCESS);
    assert_eq!(said(&mut set.out).1, [answered]);
}

#[test]
fn vbucket_that_is_not_replica_loses_only_its_stream() {
    let (fake, about) = (Fake::at(0, (0, 0), &[(1, 0)]), introduction());
    let mut set = Set::up(&fake, &about, None).expect("a connection");
    set.granted();
    set.push(&marker(1, 9, MarkerFlags::MEMORY))
        .expect("a marker");
    let _before = said(&mut set.out);
    fake.refuse.set(true);
    set.push(&mutation(1, b"\0k"))
        .expect("the connection stays");
    let (requests, _) = said(&mut set.out);
    assert_eq!(
        frame_of(&requests[0]).header.opcode,
        Opcode::DCP_CLOSE_STREAM
    );
    set.push(&mutation(2, b"\0k"))
        .expect("what was under way is ignored");
}

#[test]
fn protocol_violation_closes_connection() {
    let about = introduction();
    let case = |seed: &dyn Fn(&mut Set<'_>) -> Result<(), Broken>, expected| {
        let fake = Fake::at(5, (5, 5), &[(1, 0)]);
        let mut set = Set::up(&fake, &about, None).expect("a connection");
        set.granted();
        let broken = seed(&mut set).expect_err("a violation");
        assert_eq!(broken, Broken::Violation(Some(VbId(0)), expected));
    };
    let memory = MarkerFlags::MEMORY;
    case(
        &|set| set.push(&mutation(6, b"\0k")),
        Violation::OutsideSnapshot,
    );
    case(&|set| set.push(&marker(1, 5, memory)), Violation::OldMarker);
    case(&|set| set.push(&marker(9, 8, memory)), Violation::Range);
    case(
        &|set| {
            set.push(&marker(6, 9, memory))?;
            set.push(&marker(6, 9, memory))
        },
        Violation::MarkerInSnapshot,
    );
    case(
        &|set| {
            set.push(&marker(6, 9, memory))?;
            set.push(&mutation(5, b"\0k"))
        },
        Violation::OutOfOrder,
    );
    for key in [b"" as &'static [u8], b"\0", &[0xff; 9], &[0; 252]] {
        if key.is_empty() {
            continue;
        }
        case(
            &|set| {
                set.push(&marker(6, 9, memory))?;
                set.push(&mutation(6, key))
            },
            Violation::Malformed,
        );
    }
    let advanced = SeqnoAdvanced { seqno: Seqno(6) };
    case(&|set| set.push(&advanced), Violation::Unexpected);
}

#[test]
fn malformed_bytes_and_silence_end_connection() {
    let (fake, about) = (Fake::at(0, (0, 0), &[(1, 0)]), introduction());
    let mut set = Set::up(&fake, &about, None).expect("a connection");
    assert!(matches!(set.hears(&[0x11; 24], 0), Err(Broken::Refused(_))));
    let mut set = Set::up(&fake, &about, None).expect("a connection");
    assert_eq!(set.consumer.tick(60 * SECOND_NS, &mut set.out), Ok(()));
    let silent = set.consumer.tick(61 * SECOND_NS, &mut set.out);
    assert_eq!(silent, Err(Broken::Silent));
    // Silence after half of a message is silence, too.
    let mut set = Set::up(&fake, &about, None).expect("a connection");
    let whole = answer(
        Opcode::GET_ALL_VB_SEQNOS,
        Opaque::default(),
        Status::SUCCESS,
        &[0; 100],
    );
    for (bytes, heard_s) in [(50, 1), (60, 59)] {
        let heard = set
            .consumer
            .receive(&whole[..bytes], heard_s * SECOND_NS, &mut set.out);
        assert_eq!(heard, Ok(0));
        fake.idle_timeout.set(Some(Duration::from_secs(2)));
        let soon = set.consumer.tick((heard_s + 2) * SECOND_NS, &mut set.out);
        assert_eq!(soon, Ok(()));
        let late = set.consumer.tick((heard_s + 3) * SECOND_NS, &mut set.out);
        assert_eq!(late, Err(Broken::Silent));
        fake.idle_timeout.set(None);
        let unchanged = set.consumer.tick((heard_s + 60) * SECOND_NS, &mut set.out);
        assert_eq!(unchanged, Ok(()));
    }
    let mut set = Set::up(&fake, &about, None).expect("a connection");
    let opaque = set.opaque;
    let odd = answer(Opcode::DCP_STREAM_REQ, opaque, Status::SUCCESS, &[0; 15]);
    assert!(set.hears(&odd, 0).is_err(), "a failover log of 15 bytes");
    let mut set = Set::up(&fake, &about, None).expect("a connection");
    let none = answer(Opcode::DCP_STREAM_REQ, set.opaque, Status::SUCCESS, &[]);
    assert!(set.hears(&none, 0).is_err(), "no failover log");
}

fn prepare(seqno: u64) -> Prepare<'static> {
    Prepare {
        seqno: Seqno(seqno),
        rev: 1,
        flags: 0,
        expiry: 0,
        lock_time: 0,
        heat: 0,
        deleted: seqno.is_multiple_of(2),
        level: DurabilityLevel::Majority,
        key: b"\0k",
        value: b"",
    }
}

fn acknowledged(out: &mut Vec<u8>) -> Vec<u64> {
    let (requests, _) = said(out);
    let ack = |bytes: &Vec<u8>| parsed(bytes).map(|ack: SeqnoAcknowledged| ack.prepared.0);
    requests.iter().filter_map(ack).collect()
}

#[test]
fn prepares_are_taken_decided_and_acknowledged_once() {
    let (fake, about) = (Fake::at(0, (0, 0), &[(1, 0)]), introduction());
    fake.prepared.set(3);
    let mut set = Set::up(&fake, &about, None).expect("a connection");
    set.granted();
    assert_eq!(acknowledged(&mut set.out), [3], "what it has already");
    let _before = fake.taken();
    set.push(&marker(4, 9, MarkerFlags::MEMORY))
        .expect("a marker");
    set.push(&prepare(4)).expect("a prepare");
    set.push(&prepare(5)).expect("a prepare");
    let (prepared, key) = (Seqno(4), b"\0k");
    let commit = Commit {
        prepared,
        seqno: Seqno(6),
        key,
    };
    set.push(&commit).expect("a commit");
    let given_up = Abort {
        prepared: Seqno(5),
        seqno: Seqno(7),
        key,
    };
    set.push(&given_up).expect("an abort");
    let expected = [
        "4..9",
        "PrepareDeletion k@4",
        "Prepare k@5",
        "commit 4 at 6",
        "abort 5 at 7",
    ];
    assert_eq!(fake.taken(), expected);
    for (high, acked) in [(5, vec![5]), (5, vec![]), (4, vec![]), (8, vec![8])] {
        fake.prepared.set(high);
        set.consumer.acknowledge_prepares(VbId(0), &mut set.out);
        assert_eq!(acknowledged(&mut set.out), acked);
    }
}

#[test]
fn prepares_come_only_when_agreed_on() {
    let (fake, about) = (Fake::at(0, (0, 0), &[(1, 0)]), introduction());
    fake.prepared.set(3);
    let mut set = Set::up(&fake, &about, Some("enable_sync_writes")).expect("a connection");
    set.granted();
    assert!(acknowledged(&mut set.out).is_empty());
    set.push(&marker(4, 9, MarkerFlags::MEMORY))
        .expect("a marker");
    let unexpected = Broken::Violation(Some(VbId(0)), Violation::Unexpected);
    assert_eq!(set.push(&prepare(4)), Err(unexpected));
}

#[test]
fn decision_without_prepare_empties_vbucket() {
    let (fake, about) = (Fake::at(5, (5, 5), &[(1, 0)]), introduction());
    let mut set = Set::up(&fake, &about, None).expect("a connection");
    set.granted();
    set.push(&marker(6, 9, MarkerFlags::MEMORY))
        .expect("a marker");
    let _before = fake.taken();
    fake.refuse.set(true);
    let commit = Commit {
        prepared: Seqno(3),
        seqno: Seqno(6),
        key: b"\0k",
    };
    set.push(&commit).expect("the connection stays");
    assert_eq!(fake.taken(), ["roll back 0"]);
}

/// A message of a random producer; most numbers are small.
#[derive(Clone, Debug)]
enum Says {
    Marker(u64, u64),
    Change(u64),
    /// A change of a stream that is not the newest.
    Late(u64),
    Advance(u64),
    Prepare(u64),
    Noop,
    End,
    Bytes(Vec<u8>),
    /// A message with one byte changed.
    Damaged(usize, u8),
}

fn says() -> impl Strategy<Value = Says> {
    let seqno = || prop_oneof![20 => 0..14_u64, 1 => any::<u64>()];
    prop_oneof![
        6 => (seqno(), seqno()).prop_map(|(one, other)| Says::Marker(one.min(other), one.max(other))),
        1 => (seqno(), seqno()).prop_map(|(start, end)| Says::Marker(start, end)),
        12 => seqno().prop_map(Says::Change),
        1 => seqno().prop_map(Says::Late),
        1 => seqno().prop_map(Says::Advance),
        2 => (1..14_u64).prop_map(Says::Prepare),
        1 => Just(Says::Noop),
        1 => Just(Says::End),
        1 => prop::collection::vec(any::<u8>(), 0..60).prop_map(Says::Bytes),
        2 => (0..70_usize, any::<u8>()).prop_map(|(at, to)| Says::Damaged(at, to)),
    ]
}

impl Says {
    fn bytes(&self, opaque: Opaque) -> Vec<u8> {
        let mut bytes = Vec::new();
        let head = envelope(opaque, Cas(9));
        let encoded = match self {
            Self::Marker(start, end) => {
                marker(*start, *end, MarkerFlags::MEMORY).encode(&head, &mut bytes)
            }
            Self::Change(seqno) => mutation(*seqno, b"\0k").encode(&head, &mut bytes),
            Self::Late(seqno) => {
                let head = envelope(Opaque([7; 4]), Cas(9));
                mutation(*seqno, b"\0k").encode(&head, &mut bytes)
            }
            Self::Advance(seqno) => {
                let seqno = Seqno(*seqno);
                SeqnoAdvanced { seqno }.encode(&head, &mut bytes)
            }
            Self::Prepare(seqno) => prepare(*seqno).encode(&head, &mut bytes),
            Self::Noop => encode_raw(Opcode::DCP_NOOP, &head, RawParts::default(), &mut bytes),
            Self::End => {
                let reason = EndReason::STATE_CHANGED;
                StreamEnd { reason }.encode(&head, &mut bytes)
            }
            Self::Bytes(any) => {
                bytes.extend(any);
                Ok(())
            }
            Self::Damaged(at, to) => {
                let encoded = mutation(3, b"\0k").encode(&head, &mut bytes);
                if let Some(byte) = bytes.get_mut(*at) {
                    *byte = *to;
                }
                encoded
            }
        };
        encoded.expect("short parts");
        bytes
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..Default::default() })]

    /// The consumer applies the messages of any producer in order, or ends the conversation. It applies no change
    /// outside of an announced snapshot, and acknowledges no more bytes than were sent.
    #[test]
    fn random_producer_messages_are_applied_in_order_or_end_conversation(
        all in prop::collection::vec(says(), 1..60),
    ) {
        let (fake, about) = (Fake::at(0, (0, 0), &[(1, 0)]), introduction());
        let mut set = Set::up(&fake, &about, None).expect("a connection");
        set.granted();
        let _before = fake.taken();
        let (mut sent, mut acked, mut pending) = (0, 0, Vec::new());
        for (second, one) in all.iter().enumerate() {
            let bytes = one.bytes(set.opaque);
            sent += bytes.len();
            pending.extend(bytes);
            let now_ns = second as u64 * SECOND_NS;
            let Ok(done) = set.consumer.receive(&pending, now_ns, &mut set.out) else { break };
            pending.drain(..done);
            let (requests, _) = said(&mut set.out);
            for request in &requests {
                if let Some(BufferAck { bytes }) = parsed(request) {
                    acked += bytes as usize;
                }
            }
            if requests.iter().any(|one| parsed::<StreamRequest<'_>>(one).is_some()) {
                set.note_asked(&requests);
                set.granted();
            }
        }
        // Prepares count two bytes more than their frames have.
        prop_assert!(acked <= sent + 2 * all.len(), "{acked} of {sent}");
        let (mut last, mut range) = (0, 0..=0);
        for note in fake.taken() {
            if let Some((start, end)) = note.split_once("..") {
                range = start.parse().unwrap()..=end.parse().unwrap();
            } else if note.starts_with("adopt") {
                // A new stream starts at the vBucket's position, which is zero.
                (last, range) = (0, 0..=0);
            } else if let Some((_, seqno)) = note.split_once('@') {
                let seqno: u64 = seqno.parse().unwrap();
                prop_assert!(seqno > last && range.contains(&seqno), "{note} after {last} in {range:?}");
                last = seqno;
            }
        }
    }
}

//! The connection to the bucket that is written: batches of quiet writes, each closed by a NOOP.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use client::{Client, ClientError, Feed, Request};
use model::{Datatype, Seqno, VbId, VbUuid};
use wire::request::{ObserveSeqno, WithMeta};
use wire::response::{FailoverEntries, ObserveSeqnoReply};
use wire::{
    Decoded, Envelope, Frame, Limits, Message as _, Opaque, Opcode, RawParts, Status, encode_raw,
};

use super::counts::Counts;
use crate::exit::{Failure, Sysexit, code_of_status};
use crate::stream::Broken;

/// Bytes after which a batch is closed.
const BATCH_BYTES: usize = 256 * 1024;
/// Bytes of writes that may be on their way.
const WINDOW_BYTES: usize = 4 * 1024 * 1024;
/// Pauses before what was refused for the moment is tried again.
const PAUSE_MIN: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// Pause between two questions whether everything is on disk.
const OBSERVE_PAUSE: Duration = Duration::from_millis(20);
/// Without an answer for so long the connection is dead.
const SILENCE: Duration = Duration::from_mins(1);

/// Writes that were sent together.
#[derive(Debug, Default)]
struct Batch {
    number: u64,
    /// The frames: some of them may have to be sent again.
    frames: Vec<u8>,
}

/// What is asked about one vBucket until its changes are on disk.
#[derive(Debug, Default)]
struct Unpersisted {
    wanted: Option<Seqno>,
    asked: bool,
}

/// The side that is written.
#[derive(Debug)]
pub(super) struct Writer<'a> {
    feed: Feed,
    counts: &'a Counts,
    histories: HashMap<VbId, VbUuid>,
    building: Batch,
    outstanding: VecDeque<Batch>,
    outstanding_bytes: usize,
    refused: Vec<u8>,
    pause: Duration,
    next_opaque: u32,
    /// vBuckets that were written since the last question.
    touched: HashMap<VbId, Unpersisted>,
    observed: HashMap<VbId, Unpersisted>,
    observe_at: Option<Instant>,
    heard: Instant,
    tells_conflicts: bool,
}

impl<'a> Writer<'a> {
    /// A connection on which nothing was written yet.
    ///
    /// # Errors
    /// It broke.
    pub(super) fn new(
        mut client: Client,
        counts: &'a Counts,
        tells_conflicts: bool,
    ) -> Result<Self, ClientError> {
        let vbuckets = client.key_form().vbuckets.unwrap_or(0);
        let asked: Vec<Request<'_>> = (0..vbuckets)
            .map(|vbucket| Request {
                vbucket: VbId(vbucket),
                ..Request::new(Opcode::GET_FAILOVER_LOG)
            })
            .collect();
        let mut histories = HashMap::new();
        for (vbucket, log) in (0..).zip(client.request_all(&asked)?) {
            let known = FailoverEntries::parse(&log.value).ok();
            let known = known.filter(|_| log.status == Status::SUCCESS);
            if let Some(newest) = known.and_then(|log| log.iter().next()) {
                histories.insert(VbId(vbucket), newest.uuid);
            }
        }
        Ok(Self {
            feed: Feed::new(client),
            counts,
            histories,
            building: Batch {
                number: 1,
                ..Batch::default()
            },
            outstanding: VecDeque::new(),
            outstanding_bytes: 0,
            refused: Vec::new(),
            pause: PAUSE_MIN,
            next_opaque: 1,
            touched: HashMap::new(),
            observed: HashMap::new(),
            observe_at: None,
            heard: Instant::now(),
            tells_conflicts,
        })
    }

    /// Whether more may be taken from the stream.
    pub(super) fn has_room(&self) -> bool {
        self.outstanding_bytes < WINDOW_BYTES && self.refused.is_empty()
    }

    /// Whether nothing is on its way.
    pub(super) fn is_idle(&self) -> bool {
        self.outstanding.is_empty() && self.observed.is_empty()
    }

    /// Number of the batch to which the next write belongs.
    pub(super) fn batch(&self) -> u64 {
        self.building.number
    }

    /// Whether everything before this batch is done.
    pub(super) fn is_done_before(&self, number: u64) -> bool {
        let mut waiting = self.outstanding.iter();
        waiting.all(|batch| batch.number >= number)
    }

    /// The history of a vBucket, as it was when the connection was made.
    pub(super) fn history(&self, vbucket: VbId) -> VbUuid {
        self.histories.get(&vbucket).copied().unwrap_or(VbUuid(0))
    }

    /// A change of this vBucket is there already; it counts once it is on disk there.
    pub(super) fn skip(&mut self, vbucket: VbId) {
        self.touched.entry(vbucket).or_default();
    }

    /// Appends a write.
    ///
    /// # Errors
    /// It does not fit a frame, or the connection broke.
    pub(super) fn write(
        &mut self,
        change: &WithMeta<'_>,
        vbucket: VbId,
        datatype: Datatype,
    ) -> Result<(), ClientError> {
        let envelope = Envelope {
            vbucket,
            opaque: self.opaque(),
            datatype,
            ..Envelope::default()
        };
        change.encode(&envelope, &mut self.building.frames)?;
        self.touched.entry(vbucket).or_default();
        Counts::add(&self.counts.sent);
        if self.building.frames.len() >= BATCH_BYTES {
            self.send()?;
        }
        Ok(())
    }

    /// Sends what was appended.
    ///
    /// # Errors
    /// The connection broke.
    pub(super) fn send(&mut self) -> Result<(), ClientError> {
        if self.building.frames.is_empty() {
            return Ok(());
        }
        let next = Batch {
            number: self.building.number + 1,
            ..Batch::default()
        };
        let batch = std::mem::replace(&mut self.building, next);
        self.post(batch)
    }

    fn post(&mut self, batch: Batch) -> Result<(), ClientError> {
        let mut noop = Vec::new();
        let envelope = Envelope {
            opaque: self.opaque(),
            ..Envelope::default()
        };
        encode_raw(Opcode::NOOP, &envelope, RawParts::default(), &mut noop)?;
        self.feed.send(&batch.frames)?;
        self.feed.send(&noop)?;
        self.outstanding_bytes += batch.frames.len();
        self.outstanding.push_back(batch);
        Ok(())
    }

    fn opaque(&mut self) -> Opaque {
        let opaque = Opaque(self.next_opaque.to_be_bytes());
        self.next_opaque = self.next_opaque.wrapping_add(1);
        opaque
    }

    /// Begins to ask whether everything that was written so far is on disk.
    pub(super) fn begin_observing(&mut self) {
        self.observed = std::mem::take(&mut self.touched);
        self.observe_at = Some(Instant::now());
    }

    /// Whether everything is on disk that was asked about.
    pub(super) fn is_persisted(&self) -> bool {
        self.observed.is_empty()
    }

    /// Waits for answers, but not longer than `at_most`.
    ///
    /// # Errors
    /// The connection broke, or a write was refused for good.
    pub(super) fn receive(&mut self, at_most: Duration) -> Result<(), Broken> {
        self.observe()?;
        self.feed.flush()?;
        let idle = self.is_idle();
        if self.feed.wait(at_most)? || idle {
            self.heard = Instant::now();
        } else if self.heard.elapsed() > SILENCE {
            return Err(silent().into());
        }
        loop {
            // The answer is looked at while the buffer that it lies in is borrowed.
            let taken = self.feed.take(|frame, _| Answered::of(frame))?;
            match taken {
                None => break,
                Some(answered) => self.on_answer(&answered)?,
            }
        }
        Ok(())
    }

    fn observe(&mut self) -> Result<(), ClientError> {
        if self.observe_at.is_none_or(|at| at > Instant::now()) {
            return Ok(());
        }
        self.observe_at = None;
        for (vbucket, state) in &mut self.observed {
            state.asked = true;
            let uuid = self.histories.get(vbucket).copied().unwrap_or(VbUuid(0));
            let envelope = Envelope {
                vbucket: *vbucket,
                ..Envelope::default()
            };
            self.feed.output().post(&ObserveSeqno { uuid }, &envelope)?;
        }
        Ok(())
    }

    fn on_answer(&mut self, answered: &Answered) -> Result<(), Broken> {
        match answered {
            Answered::Nothing => Ok(()),
            Answered::Noop => {
                if let Some(batch) = self.outstanding.pop_front() {
                    self.outstanding_bytes -= batch.frames.len();
                    if !self.refused.is_empty() {
                        // What is tried again keeps the place of its batch.
                        let again = Batch {
                            number: batch.number,
                            frames: std::mem::take(&mut self.refused),
                        };
                        std::thread::sleep(self.pause);
                        self.pause = (self.pause * 2).min(PAUSE_MAX);
                        self.post(again)?;
                    } else if batch.number > 0 {
                        self.pause = PAUSE_MIN;
                    }
                }
                Ok(())
            }
            Answered::Persisted(reply) => {
                self.on_persisted(reply);
                Ok(())
            }
            Answered::Refused { opaque, status } => self.on_refused(*opaque, *status),
        }
    }

    fn on_persisted(&mut self, reply: &ObserveSeqnoReply) {
        if let Some(state) = self.observed.get_mut(&reply.vbucket) {
            state.asked = false;
            let wanted = *state.wanted.get_or_insert(reply.current);
            if reply.persisted >= wanted {
                self.observed.remove(&reply.vbucket);
            }
        }
        let all_told = self.observed.values().all(|state| !state.asked);
        if !self.observed.is_empty() && all_told {
            self.observe_at = Some(Instant::now() + OBSERVE_PAUSE);
        }
    }

    fn on_refused(&mut self, opaque: Opaque, status: Status) -> Result<(), Broken> {
        match status {
            Status::KEY_EEXISTS => {
                Counts::add(&self.counts.not_newer);
                if self.tells_conflicts {
                    let what = self.described(opaque);
                    eprintln!("settee: not newer than what is there: {what}");
                }
                Ok(())
            }
            Status::ETMPFAIL
            | Status::ENOMEM
            | Status::EBUSY
            | Status::LOCKED
            | Status::SYNC_WRITE_IN_PROGRESS
            | Status::SYNC_WRITE_RE_COMMIT_IN_PROGRESS => {
                let batch = self.outstanding.front();
                let frame = batch.and_then(|batch| frame_of(&batch.frames, opaque));
                self.refused.extend_from_slice(frame.unwrap_or_default());
                Counts::add(&self.counts.retried);
                Ok(())
            }
            status => {
                let what = self.described(opaque);
                let reason = format!(
                    "a write was refused: {}, status 0x{:02x}: {what}",
                    status.description(),
                    status.0
                );
                Err(Failure::new(code_of_status(status), reason).into())
            }
        }
    }
}

impl Writer<'_> {
    /// A write on its way, for people.
    fn described(&self, opaque: Opaque) -> String {
        let batch = self.outstanding.front();
        let frame = batch.and_then(|batch| frame_of(&batch.frames, opaque));
        let Some(Ok(Decoded::Frame { frame, .. })) = frame.map(|frame| wire::decode(frame, LIMITS))
        else {
            return String::new();
        };
        let Ok(change) = WithMeta::parse(&frame) else {
            return String::new();
        };
        let key = model::split_key(change.key).map_or(change.key, |(_, key)| key);
        let key = String::from_utf8_lossy(key);
        format!("{key:?}, rev {}, CAS {}", change.rev, change.cas.0)
    }
}

fn silent() -> ClientError {
    ClientError::Lost {
        during: "writing",
        source: std::io::Error::other(format!("silent for {SILENCE:?}")),
    }
}

const LIMITS: Limits = Limits::AUTHENTICATED;

/// What an answer means.
#[derive(Debug)]
enum Answered {
    Nothing,
    Noop,
    Persisted(ObserveSeqnoReply),
    Refused { opaque: Opaque, status: Status },
}

impl Answered {
    fn of(frame: &Frame<'_>) -> Result<Self, Broken> {
        if !frame.header.magic.is_client_response() {
            return Ok(Self::Nothing);
        }
        Ok(match frame.header.opcode {
            Opcode::NOOP => Self::Noop,
            Opcode::OBSERVE_SEQNO if frame.status() == Status::SUCCESS => {
                let reply = ObserveSeqnoReply::parse(frame.value);
                let broken = |error| ClientError::broken("OBSERVE_SEQNO", &error);
                let reply = reply.map_err(broken)?;
                if reply.failover.is_some() {
                    return Err(new_history());
                }
                Self::Persisted(reply)
            }
            Opcode::OBSERVE_SEQNO => return Err(new_history()),
            _ if frame.status() == Status::SUCCESS => Self::Nothing,
            _ => Self::Refused {
                opaque: frame.header.opaque,
                status: frame.status(),
            },
        })
    }
}

/// The node that is written began anew: what was not on disk may be lost, and is sent again.
fn new_history() -> Broken {
    Broken {
        failure: Failure::new(
            Sysexit::Unavailable,
            "the bucket that is written began anew",
        ),
        again: true,
    }
}

/// The frame with this opaque.
fn frame_of(mut frames: &[u8], opaque: Opaque) -> Option<&[u8]> {
    while let Ok(Decoded::Frame { frame, consumed }) = wire::decode(frames, LIMITS) {
        let (this, rest) = frames.split_at(consumed);
        if frame.header.opaque == opaque {
            return Some(this);
        }
        frames = rest;
    }
    None
}

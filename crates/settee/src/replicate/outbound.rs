//! The connection to one node of the target. It sends batches of quiet writes; each ends with a request for the seqnos
//! of the node's active vBuckets. A vBucket that is missing in the answer has moved.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use client::{Client, ClientError, Feed};
use model::{Seqno, VbId, VbState, VbUuid};
use wire::request::GetAllVbSeqnos;
use wire::response::{FailoverEntries, ObserveSeqnoReply, VbSeqnos};
use wire::{Envelope, Frame, Malformed, Opaque, Opcode, RawParts, Status, encode_raw};

use super::batch::Batch;
use crate::stream::TICK;

/// Bytes after which a batch is closed.
const BATCH_BYTES: usize = 512 * 1024;
/// Bytes of writes that may be on their way.
const WINDOW_BYTES: usize = 4 * 1024 * 1024;
/// Longest wait of an open batch for more writes while other batches are unanswered.
const GATHER: Duration = Duration::from_millis(5);
/// Longest wait for an answer; then the connection counts as lost.
const SILENCE: Duration = Duration::from_mins(1);

/// A connection to one node.
#[derive(Debug)]
pub(super) struct Outbound {
    pub(super) feed: Feed,
    /// Batches to send; the last one takes new writes.
    unsent: VecDeque<Batch>,
    sent: VecDeque<Batch>,
    sent_bytes: usize,
    sent_at: Instant,
    heard: Instant,
    /// Newest histories of vBuckets; `None` until the node answers.
    pub(super) histories: BTreeMap<VbId, Option<VbUuid>>,
    /// Whether the node has answered a batch.
    pub(super) was_of_use: bool,
}

impl Outbound {
    /// Creates a connection without writes.
    pub(super) fn new(client: Client) -> Self {
        Self {
            feed: Feed::new(client),
            unsent: VecDeque::new(),
            sent: VecDeque::new(),
            sent_bytes: 0,
            sent_at: Instant::now(),
            heard: Instant::now(),
            histories: BTreeMap::new(),
            was_of_use: false,
        }
    }

    /// Appends a write that was made after a mark; returns whether it is the first one of its vBucket in its batch.
    ///
    /// # Errors
    /// It, or a question, does not fit a frame.
    pub(super) fn append(
        &mut self,
        vbucket: VbId,
        mark: u64,
        write: impl FnOnce(&mut Vec<u8>) -> Result<(), ClientError>,
    ) -> Result<bool, ClientError> {
        let open = self.unsent.back();
        if open.is_none_or(|batch| batch.frames.len() >= BATCH_BYTES) {
            self.unsent.push_back(Batch {
                mark,
                ..Batch::default()
            });
        }
        let Some(batch) = self.unsent.back_mut() else {
            return Ok(false);
        };
        batch.mark = batch.mark.min(mark);
        write(&mut batch.frames)?;
        let is_first = batch.vbuckets.insert(vbucket);
        if is_first && let Entry::Vacant(unknown) = self.histories.entry(vbucket) {
            unknown.insert(None);
            let (envelope, parts) = (asking(vbucket), RawParts::default());
            encode_raw(Opcode::GET_FAILOVER_LOG, &envelope, parts, &mut batch.asks)?;
        }
        Ok(is_first)
    }

    /// Returns the bytes of unanswered writes.
    pub(super) fn bytes(&self) -> usize {
        let unsent = self.unsent.iter().map(|batch| batch.frames.len());
        self.sent_bytes + unsent.sum::<usize>()
    }

    /// Returns whether all writes are answered.
    pub(super) fn is_idle(&self) -> bool {
        self.sent.is_empty() && self.unsent.is_empty()
    }

    /// Returns whether all writes before this mark are answered.
    pub(super) fn is_done_before(&self, mark: u64) -> bool {
        let mut batches = self.sent.iter().chain(&self.unsent);
        batches.all(|batch| batch.mark >= mark)
    }

    /// Returns the batch that the node answers next.
    pub(super) fn answered(&mut self) -> Option<&mut Batch> {
        self.sent.front_mut()
    }

    /// Removes the batch that the node has answered.
    pub(super) fn take_answered(&mut self) -> Option<Batch> {
        let batch = self.sent.pop_front()?;
        self.sent_bytes -= batch.frames.len();
        self.was_of_use = true;
        Some(batch)
    }

    /// Returns all unanswered batches.
    pub(super) fn into_unanswered(self) -> impl Iterator<Item = Batch> {
        self.sent.into_iter().chain(self.unsent)
    }

    /// Sends due batches within the window.
    ///
    /// # Errors
    /// The connection broke.
    pub(super) fn send(&mut self) -> Result<(), ClientError> {
        let question = GetAllVbSeqnos {
            state: Some(VbState::Active),
            collection: None,
        };
        while self.sent_bytes < WINDOW_BYTES && self.is_due() {
            let Some(batch) = self.unsent.pop_front() else {
                break;
            };
            if self.sent.is_empty() {
                self.heard = Instant::now();
            }
            self.sent_bytes += batch.frames.len();
            self.sent_at = Instant::now();
            // It is among those that are sent again if the connection breaks here.
            self.sent.push_back(batch);
            if let Some(batch) = self.sent.back() {
                self.feed.offer(&batch.asks)?;
                self.feed.offer(&batch.frames)?;
            }
            self.feed.output().post(&question, &Envelope::default())?;
        }
        self.feed.flush()
    }

    fn is_due(&self) -> bool {
        let is_full = self.unsent.len() > 1
            || self
                .unsent
                .front()
                .is_some_and(|batch| batch.frames.len() >= BATCH_BYTES);
        is_full || self.sent.is_empty() || self.sent_at.elapsed() >= GATHER
    }

    /// Reads if the socket is ready; checks the silence of the node otherwise.
    ///
    /// # Errors
    /// The connection is lost.
    pub(super) fn read(&mut self, is_ready: bool) -> Result<(), ClientError> {
        if is_ready && self.feed.wait(TICK)? {
            self.heard = Instant::now();
        } else if !self.sent.is_empty() && self.heard.elapsed() > SILENCE {
            let source = std::io::Error::other(format!("silent for {SILENCE:?}"));
            let during = "writing";
            return Err(ClientError::Lost { during, source });
        }
        Ok(())
    }
}

/// Returns the envelope of a request about a vBucket; the answer has the same opaque.
pub(super) fn asking(vbucket: VbId) -> Envelope<'static> {
    Envelope {
        vbucket,
        opaque: Opaque(u32::from(vbucket.0).to_be_bytes()),
        ..Envelope::default()
    }
}

/// Meaning of a received frame.
#[derive(Debug)]
pub(super) enum Reply {
    /// No meaning for the writer.
    Nothing,
    /// Answer to a batch: the seqnos of the node's active vBuckets.
    Batch(Vec<(VbId, Seqno)>),
    /// Newest history of a vBucket.
    History(VbId, VbUuid),
    /// Seqnos of a copy, in memory and on disk.
    Observed(ObserveSeqnoReply),
    /// A copy does not know the requested history.
    OtherHistory(VbId),
    /// A copy refused the request for its seqnos.
    NotObserved(VbId),
    /// The node refused a write.
    Refused { opaque: Opaque, status: Status },
}

impl Reply {
    /// Classifies a frame.
    ///
    /// # Errors
    /// The frame violates the protocol.
    pub(super) fn of(frame: &Frame<'_>) -> Result<Self, ClientError> {
        if !frame.header.magic.is_client_response() {
            return Ok(Self::Nothing);
        }
        let (opcode, status) = (frame.header.opcode, frame.status());
        let broken = |error: Malformed| ClientError::broken(opcode.name(), &error);
        let is_success = status == Status::SUCCESS;
        let Opaque([_, _, high, low]) = frame.header.opaque;
        let vbucket = VbId(u16::from_be_bytes([high, low]));
        Ok(match opcode {
            Opcode::GET_ALL_VB_SEQNOS if is_success => {
                let seqnos = VbSeqnos::parse(frame.value).map_err(broken)?;
                Self::Batch(seqnos.iter().collect())
            }
            Opcode::GET_ALL_VB_SEQNOS if is_for_the_moment(status) => Self::Batch(Vec::new()),
            Opcode::GET_FAILOVER_LOG => {
                let log = FailoverEntries::parse(frame.value).ok();
                let newest = log.filter(|_| is_success).and_then(|log| log.iter().next());
                newest.map_or(Self::Nothing, |newest| Self::History(vbucket, newest.uuid))
            }
            Opcode::OBSERVE_SEQNO if is_success => {
                Self::Observed(ObserveSeqnoReply::parse(frame.value).map_err(broken)?)
            }
            Opcode::OBSERVE_SEQNO if status == Status::KEY_ENOENT => Self::OtherHistory(vbucket),
            Opcode::OBSERVE_SEQNO => Self::NotObserved(vbucket),
            _ if is_success => Self::Nothing,
            _ => Self::Refused {
                opaque: frame.header.opaque,
                status,
            },
        })
    }
}

/// Returns whether a refusal is temporary: the request is to be sent again.
pub(super) fn is_for_the_moment(status: Status) -> bool {
    matches!(
        status,
        Status::ETMPFAIL
            | Status::ENOMEM
            | Status::EBUSY
            | Status::LOCKED
            | Status::NOT_MY_VBUCKET
            | Status::SYNC_WRITE_IN_PROGRESS
            | Status::SYNC_WRITE_RE_COMMIT_IN_PROGRESS
    )
}

#[cfg(test)]
mod tests {
    use client::Nodes;
    use client::testing::{FakeServer, Fault};

    use super::*;

    #[test]
    fn changes_under_way_when_the_connection_breaks_are_not_answered() {
        let server = FakeServer::start(true, Fault::Close);
        let (_, client) = Nodes::connect(&server.options()).unwrap();
        let mut link = Outbound::new(client);
        let mut appended = 0;
        loop {
            let append = |frames: &mut Vec<u8>| {
                let before = frames.len();
                // The server closes the connection at the first of them.
                let parts = RawParts {
                    key: b"\0key",
                    ..RawParts::default()
                };
                encode_raw(Opcode::GET, &Envelope::default(), parts, frames)?;
                appended += frames.len() - before;
                Ok(())
            };
            link.append(VbId(1), 0, append).unwrap();
            if link.send().is_err() {
                break;
            }
        }
        let unanswered = link.into_unanswered().map(|batch| batch.frames.len());
        assert_eq!(unanswered.sum::<usize>(), appended);
    }
}

//! The streams of a connection, and one step of a stream.

use std::sync::Arc;

use bucket::{
    Backfill, BackfillBuffer, BackfillChunk, BackfillNews, Bucket, ReadBatching, WantedRows,
};
use engine::dcp::{FillResult, FlowControl, StoreRows, Stream, StreamEnd};
use model::{Document, VbId, VbState};
use registry::dcp::{NegotiatedSettings, OsoBackfill, StreamKey, Totals};
use registry::{Env, Store};
use wire::Opaque;

use super::filter::Limit;
use super::sink::{EventSink, EventStream};

/// A stream with its state outside the engine.
pub(super) struct OpenStream {
    pub(super) stream: Stream,
    pub(super) opaque: Opaque,
    /// Epoch of the vBucket at the opening of the stream.
    pub(super) epoch: u64,
    /// Collections or scope to which the stream is limited, if any.
    pub(super) limit: Option<Box<Limit>>,
    pub(super) backfill: Option<Backfill>,
    pub(super) batching: ReadBatching,
}

/// Resources that a stream needs for a step.
pub(super) struct StreamTurn<'a, S> {
    pub(super) bucket: &'a Bucket<Store>,
    pub(super) env: &'a dyn Env,
    pub(super) buffer: &'a Arc<BackfillBuffer>,
    pub(super) agreed: &'a NegotiatedSettings,
    pub(super) oso: OsoBackfill,
    pub(super) flow: &'a mut FlowControl,
    pub(super) totals: &'a mut Totals,
    pub(super) sink: &'a mut S,
    /// Start of the turn, monotonic.
    pub(super) now_ns: u64,
}

/// Result of a visit to a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Visited {
    /// Nothing to send until its vBucket is marked again.
    Idle,
    /// The stream lets changes collect; visit it again in the next turn.
    Waits,
    /// It had more to send than there was room for.
    Unfinished,
    /// The stream is over.
    Over,
}

/// Result of a look for more events.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PollResult {
    /// Another look may find more.
    More,
    /// Nothing more until the vBucket is marked again.
    Last,
}

struct ChunkRows(BackfillChunk);

impl StoreRows for ChunkRows {
    fn documents(&self) -> &[Document] {
        &self.0.documents
    }
}

impl OpenStream {
    /// Sends events until the sink has `limit` bytes.
    pub(super) fn drive<S: EventSink>(
        &mut self,
        key: StreamKey,
        name: &str,
        limit: usize,
        turn: &mut StreamTurn<'_, S>,
    ) -> Visited {
        if turn.bucket.epoch(key.vb) != self.epoch {
            self.backfill = None;
            self.stream.finish(StreamEnd::StateChanged);
        }
        let stream = EventStream {
            vb: key.vb,
            opaque: self.opaque,
            id: (key.id != 0).then_some(key.id),
        };
        if !self
            .batching
            .is_due(|| turn.bucket.newest(key.vb), turn.now_ns)
        {
            return Visited::Waits;
        }
        let mut last_look = PollResult::More;
        loop {
            while turn.has_room(limit) {
                let Some(event) = self.stream.next_event() else {
                    break;
                };
                turn.send(&event, stream);
                if turn.sink.ends_turn() {
                    self.stream.shed();
                }
            }
            if self.stream.is_over() {
                return Visited::Over;
            }
            if !turn.has_room(limit) {
                return Visited::Unfinished;
            }
            // A change since the last look has marked the vBucket again.
            if last_look == PollResult::More {
                last_look = self.look(key, name, turn);
            } else {
                return Visited::Idle;
            }
        }
    }

    /// Looks for more events to send.
    fn look<S>(&mut self, key: StreamKey, name: &str, turn: &StreamTurn<'_, S>) -> PollResult {
        if self.backfill.is_some() {
            return if self.look_into_backfill(key, name, turn) {
                PollResult::More
            } else {
                PollResult::Last
            };
        }
        match self.locked(key.vb, turn, |stream, vb| stream.fill(vb, name)) {
            Some(FillResult::Ready) | None => PollResult::More,
            Some(FillResult::Latest | FillResult::Idle) => PollResult::Last,
            Some(FillResult::Backfill(range)) => {
                let rows = if self.stream.wants_versions() {
                    WantedRows::Versions
                } else {
                    let rows = self.stream.only_rows();
                    WantedRows::Newest(rows.map(|rows| turn.oso.choose(rows)))
                };
                let backfill = turn.bucket.backfill(key.vb, range, rows, turn.buffer);
                self.backfill = Some(backfill);
                PollResult::More
            }
            Some(FillResult::HandOver) => {
                self.hand_over(key.vb, turn);
                PollResult::More
            }
        }
    }

    fn look_into_backfill<S>(
        &mut self,
        key: StreamKey,
        name: &str,
        turn: &StreamTurn<'_, S>,
    ) -> bool {
        let Some(backfill) = &self.backfill else {
            return false;
        };
        match backfill.take() {
            BackfillNews::Nothing => return false,
            BackfillNews::Opened(view) => {
                self.locked(key.vb, turn, |stream, vb| {
                    ((), stream.backfill_opened(&view, vb, name))
                });
            }
            BackfillNews::Chunk(chunk) => self.stream.backfill_rows(Box::new(ChunkRows(chunk))),
            BackfillNews::Done => {
                self.backfill = None;
                self.stream.backfill_done();
            }
            BackfillNews::Failed => {
                self.backfill = None;
                self.stream.finish(StreamEnd::BackfillFailed);
            }
        }
        true
    }

    /// Runs `f` under the vBucket's lock, if the vBucket is still the one on which the stream was opened;
    /// otherwise ends the stream. The garbage of `f` is freed after the lock.
    fn locked<T, S>(
        &mut self,
        vb: VbId,
        turn: &StreamTurn<'_, S>,
        f: impl FnOnce(&mut Stream, &mut engine::VBucket) -> (T, engine::Garbage),
    ) -> Option<T> {
        let (bucket, epoch, stream) = (turn.bucket, self.epoch, &mut self.stream);
        let done = bucket.with_vbucket_spinning(vb, |vbucket| {
            (bucket.epoch(vb) == epoch).then(|| f(stream, vbucket))
        });
        let Some((result, garbage)) = done.flatten() else {
            self.backfill = None;
            self.stream.finish(StreamEnd::StateChanged);
            return None;
        };
        drop(garbage);
        Some(result)
    }

    /// Makes the vBucket dead here: the peer took it over.
    fn hand_over<S>(&mut self, vb: VbId, turn: &StreamTurn<'_, S>) {
        let uuid = turn.env.random_vb_uuid();
        match turn.bucket.set_vbucket(vb, VbState::Dead, None, uuid) {
            Ok(()) => {
                self.epoch = turn.bucket.epoch(vb);
                self.stream.handed_over();
            }
            Err(_) => self.stream.finish(StreamEnd::StateChanged),
        }
    }

    /// Releases the stream's backfill and its cursor in the vBucket.
    pub(super) fn release(&mut self, vb: VbId, bucket: &Bucket<Store>) {
        self.backfill = None;
        if let Some(cursor) = self.stream.take_cursor() {
            // Freed outside the lock.
            let garbage = bucket.with_vbucket(vb, |vbucket| vbucket.remove_cursor(cursor));
            drop(garbage);
        }
    }
}

impl<S: EventSink> StreamTurn<'_, S> {
    /// Whether another event may be sent, with up to `limit` bytes in the sink.
    fn has_room(&self, limit: usize) -> bool {
        self.sink.bytes() < limit && self.flow.has_room() && !self.sink.ends_turn()
    }

    fn send(&mut self, event: &engine::dcp::Event<'_>, of: EventStream) {
        let before = self.sink.bytes();
        if let Some(counted) = self.sink.event(event, of, self.agreed) {
            self.flow.sent(counted);
            self.totals.count(event, self.sink.bytes() - before);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::OpenStream;

    /// A connection may have 1,024 idle streams, and a node many connections.
    #[test]
    fn an_idle_stream_is_small() {
        assert!(
            size_of::<OpenStream>() <= 232,
            "{}",
            size_of::<OpenStream>()
        );
    }
}

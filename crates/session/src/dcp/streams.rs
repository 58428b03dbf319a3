//! The streams of a connection, and one step of one of them.

use std::sync::Arc;

use bucket::{
    Backfill, BackfillBuffer, BackfillChunk, BackfillNews, Bucket, ReadBatching, WantedRows,
};
use engine::dcp::{Filled, FlowControl, Rows, Stream, StreamEnd};
use model::{Document, VbId, VbState};
use registry::dcp::{Agreed, OsoBackfill, StreamKey, Totals};
use registry::{Env, Store};
use wire::Opaque;

use super::filter::Limit;
use super::sink::{EventSink, EventStream};

/// One stream, and what it needs from outside of the engine.
pub(super) struct Entry {
    pub(super) stream: Stream,
    pub(super) opaque: Opaque,
    /// Of the vBucket when the stream was opened.
    pub(super) epoch: u64,
    /// What it was limited to, if it was.
    pub(super) limit: Option<Box<Limit>>,
    pub(super) backfill: Option<Backfill>,
    pub(super) batching: ReadBatching,
}

/// What a stream needs to get on.
pub(super) struct Turn<'a, S> {
    pub(super) bucket: &'a Bucket<Store>,
    pub(super) env: &'a dyn Env,
    pub(super) buffer: &'a Arc<BackfillBuffer>,
    pub(super) agreed: &'a Agreed,
    pub(super) oso: OsoBackfill,
    pub(super) flow: &'a mut FlowControl,
    pub(super) totals: &'a mut Totals,
    pub(super) sink: &'a mut S,
    /// When the turn began, monotonic.
    pub(super) now_ns: u64,
}

/// How far a stream came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Visited {
    /// It has nothing until its vBucket is marked again.
    Idle,
    /// It leaves what there is to become more; to be visited again in the next turn.
    Waits,
    /// It had more to send than there was room for.
    Unfinished,
    /// It is over.
    Over,
}

/// What came of looking for more.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Look {
    /// Another look may find more.
    More,
    /// There is nothing beyond what was found until the vBucket is marked again.
    Last,
}

struct ChunkRows(BackfillChunk);

impl Rows for ChunkRows {
    fn documents(&self) -> &[Document] {
        &self.0.documents
    }
}

impl Entry {
    /// Sends what there is, until the sink has `limit` bytes.
    pub(super) fn drive<S: EventSink>(
        &mut self,
        key: StreamKey,
        name: &str,
        limit: usize,
        turn: &mut Turn<'_, S>,
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
        let mut last_look = Look::More;
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
            // What was changed since the last look has marked the vBucket again.
            if last_look == Look::More {
                last_look = self.look(key, name, turn);
            } else {
                return Visited::Idle;
            }
        }
    }

    /// Looks for more to send.
    fn look<S>(&mut self, key: StreamKey, name: &str, turn: &Turn<'_, S>) -> Look {
        if self.backfill.is_some() {
            return if self.look_into_backfill(key, name, turn) {
                Look::More
            } else {
                Look::Last
            };
        }
        match self.locked(key.vb, turn, |stream, vb| stream.fill(vb, name)) {
            Some(Filled::Ready) | None => Look::More,
            Some(Filled::Latest | Filled::Idle) => Look::Last,
            Some(Filled::Backfill(range)) => {
                let rows = if self.stream.wants_versions() {
                    WantedRows::Versions
                } else {
                    let rows = self.stream.only_rows();
                    WantedRows::Newest(rows.map(|rows| turn.oso.choose(rows)))
                };
                let backfill = turn.bucket.backfill(key.vb, range, rows, turn.buffer);
                self.backfill = Some(backfill);
                Look::More
            }
            Some(Filled::HandOver) => {
                self.hand_over(key.vb, turn);
                Look::More
            }
        }
    }

    fn look_into_backfill<S>(&mut self, key: StreamKey, name: &str, turn: &Turn<'_, S>) -> bool {
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

    /// Runs `f` under the vBucket's lock, if it is still the one that the stream was opened on;
    /// else the stream ends. What `f` leaves to be freed is freed after the lock.
    fn locked<T, S>(
        &mut self,
        vb: VbId,
        turn: &Turn<'_, S>,
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

    /// The peer took over: this node's vBucket is not served any more.
    fn hand_over<S>(&mut self, vb: VbId, turn: &Turn<'_, S>) {
        let uuid = turn.env.random_vb_uuid();
        match turn.bucket.set_vbucket(vb, VbState::Dead, None, uuid) {
            Ok(()) => {
                self.epoch = turn.bucket.epoch(vb);
                self.stream.handed_over();
            }
            Err(_) => self.stream.finish(StreamEnd::StateChanged),
        }
    }

    /// Gives back what the stream holds of its vBucket.
    pub(super) fn release(&mut self, vb: VbId, bucket: &Bucket<Store>) {
        self.backfill = None;
        if let Some(cursor) = self.stream.take_cursor() {
            // Freed outside of the lock.
            let garbage = bucket.with_vbucket(vb, |vbucket| vbucket.remove_cursor(cursor));
            drop(garbage);
        }
    }
}

impl<S: EventSink> Turn<'_, S> {
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
    use super::Entry;

    /// A connection may have 1,024 streams that have nothing to do, and a node many connections.
    #[test]
    fn an_idle_stream_is_small() {
        assert!(size_of::<Entry>() <= 232, "{}", size_of::<Entry>());
    }
}

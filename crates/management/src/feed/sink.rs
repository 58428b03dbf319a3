//! The events of a producer as news for the reader of a feed.

use std::borrow::Cow;

use changes::{Change, Collections, Event as ChangeEvent, Shown, Streams, Violation};
use collections::{CollectionChange, SystemEvent};
use engine::dcp::Event;
use model::{Datatype, Document, Kind, Seqno, VbId, body_at, split_key};
use registry::dcp::Agreed;
use session::dcp::{EventSink, EventStream, end_reason};

use super::large::{LARGE_BYTES, LargeValue};

/// What an event counts for beside its key and value: about the header and the extras of a message.
const EVENT_BYTES: usize = 55;

/// Something to tell.
#[derive(Clone, Copy, Debug)]
pub enum News<'a> {
    /// A document changed.
    Change(Change<'a>),
    /// A document changed, whose large value comes apart ([`super::Feed::take_large`]) and is shown so.
    Large(Change<'a>, Shown),
    /// What was told of a vBucket after a seqno did not last.
    Rollback(VbId, Seqno),
}

/// Takes the events of one turn: follows the streams, and tells the changes of documents.
pub(super) struct NewsSink<'f, F> {
    streams: &'f mut Streams,
    collections: &'f mut Collections,
    keys_only: bool,
    tell: F,
    bytes: usize,
    /// The value of the change told last, where that is large.
    pub(super) large: Option<LargeValue>,
    /// Whether a stream ended that is to be asked for again.
    pub(super) ask_again: bool,
    /// Why the streams make no sense.
    pub(super) violation: Option<Violation>,
}

impl<'f, F: FnMut(News<'_>)> NewsSink<'f, F> {
    pub(super) fn new(
        streams: &'f mut Streams,
        collections: &'f mut Collections,
        keys_only: bool,
        tell: F,
    ) -> Self {
        Self {
            streams,
            collections,
            keys_only,
            tell,
            bytes: 0,
            large: None,
            ask_again: false,
            violation: None,
        }
    }

    fn take(&mut self, event: &Event<'_>, vb: VbId) -> Result<(), Violation> {
        match *event {
            Event::Snapshot(snapshot) => self.streams.snapshot(vb, snapshot.range),
            Event::Advanced(seqno) => self.streams.reached(vb, seqno),
            Event::Change(document) => {
                self.streams.reached(vb, document.seqno())?;
                if SystemEvent::is_key(document.key()) {
                    self.learn(document);
                    return Ok(());
                }
                self.change(document, vb)
            }
            Event::End(end) => {
                self.ask_again |= self.streams.ended(vb, end_reason(end))?;
                Ok(())
            }
            Event::OutOfOrder { .. } | Event::State(_) => Err(format!("an unexpected {event:?}")),
        }
    }

    fn learn(&mut self, document: &Document) {
        let (key, value) = (document.key(), document.value());
        let event = SystemEvent::parse(key, document.kind(), value);
        match event.map(|event| event.change) {
            Some(CollectionChange::Begun(info)) => {
                self.collections
                    .collection_begun(info.id, info.scope, info.name);
            }
            Some(CollectionChange::ScopeBegun { scope, name }) => {
                self.collections.scope_begun(scope, name);
            }
            _ => {}
        }
    }

    fn change(&mut self, document: &Document, vb: VbId) -> Result<(), Violation> {
        let event = match document.kind().plain() {
            Kind::Mutation => ChangeEvent::Mutation,
            Kind::Deletion => ChangeEvent::Deletion,
            Kind::Expiration => ChangeEvent::Expiration,
            other => return Err(format!("an unexpected {other:?}")),
        };
        let (collection, key) = split_key(document.key()).ok_or("a key without a collection")?;
        let told = event == ChangeEvent::Mutation && !self.keys_only;
        let (value, datatype) = if told {
            plain_value(document)
        } else {
            (Cow::Borrowed(&[][..]), Datatype::RAW)
        };
        self.bytes += key.len();
        let change = Change {
            event,
            names: self.collections.names(collection),
            vbucket: vb,
            seqno: document.seqno(),
            cas: document.cas(),
            rev: document.rev(),
            flags: document.flags(),
            time_s: document.expiry(),
            key,
            value: told.then_some(&value),
            datatype,
        };
        if value.len() < LARGE_BYTES {
            (self.tell)(News::Change(change));
            self.bytes += value.len();
        } else {
            (self.tell)(News::Large(change, Shown::of(&value, datatype)));
            self.large = Some(LargeValue::of(document, value));
        }
        Ok(())
    }
}

impl<F: FnMut(News<'_>)> EventSink for NewsSink<'_, F> {
    fn bytes(&self) -> usize {
        self.bytes
    }

    fn ends_turn(&self) -> bool {
        self.large.is_some() || self.violation.is_some()
    }

    fn event(&mut self, event: &Event<'_>, of: EventStream, _: &Agreed) -> Option<usize> {
        self.bytes += EVENT_BYTES;
        if let Err(violation) = self.take(event, of.vb) {
            self.violation = Some(violation);
            return None;
        }
        // The reader takes each turn by itself: there is no window.
        Some(0)
    }

    fn noop(&mut self) -> bool {
        true
    }
}

/// The value as a reader gets it: inflated, without extended attributes.
fn plain_value(document: &Document) -> (Cow<'_, [u8]>, Datatype) {
    let (value, datatype) = (document.value(), document.datatype());
    let body = &value[body_at(value, datatype)..];
    value::inflated(Cow::Borrowed(body), datatype)
}

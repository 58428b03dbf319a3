//! Conversion of a producer's events to news for the reader of a feed.

use std::borrow::Cow;

use changes::{Change, ChangeKind, Collections, Shown, Streams, Violation};
use collections::{CollectionChange, SystemEvent};
use engine::dcp::Event;
use model::{Datatype, Document, Kind, Seqno, VbId, body_at, split_key};
use registry::dcp::NegotiatedSettings;
use session::dcp::{EventSink, EventStream, end_reason};

use super::large::{LARGE_BYTES, LargeValue};

/// Size of an event beside its key and value, bytes: about the header and the extras of a message.
const EVENT_BYTES: usize = 55;

/// An event for the reader.
#[derive(Clone, Copy, Debug)]
pub enum FeedEvent<'a> {
    /// A document changed.
    Change(Change<'a>),
    /// A document changed. Its large value comes separately ([`super::Feed::take_large`]), in this form.
    Large(Change<'a>, Shown),
    /// Changes of a vBucket after this seqno are void.
    Rollback(VbId, Seqno),
}

/// Sink of the events of one turn: it follows the streams, and reports changes of documents.
pub(super) struct NewsSink<'f, F> {
    streams: &'f mut Streams,
    collections: &'f mut Collections,
    keys_only: bool,
    tell: F,
    bytes: usize,
    /// Value of the last change, if it is large.
    pub(super) large: Option<LargeValue>,
    /// Whether a stream ended that must be requested again.
    pub(super) ask_again: bool,
    /// Violation of the stream protocol, if there was one.
    pub(super) violation: Option<Violation>,
}

impl<'f, F: FnMut(FeedEvent<'_>)> NewsSink<'f, F> {
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
            Kind::Mutation => ChangeKind::Mutation,
            Kind::Deletion => ChangeKind::Deletion,
            Kind::Expiration => ChangeKind::Expiration,
            other => return Err(format!("an unexpected {other:?}")),
        };
        let (collection, key) = split_key(document.key()).ok_or("a key without a collection")?;
        let has_value = event == ChangeKind::Mutation && !self.keys_only;
        let (value, datatype) = if has_value {
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
            value: has_value.then_some(&value),
            datatype,
        };
        if value.len() < LARGE_BYTES {
            (self.tell)(FeedEvent::Change(change));
            self.bytes += value.len();
        } else {
            (self.tell)(FeedEvent::Large(change, Shown::of(&value, datatype)));
            self.large = Some(LargeValue::of(document, value));
        }
        Ok(())
    }
}

impl<F: FnMut(FeedEvent<'_>)> EventSink for NewsSink<'_, F> {
    fn bytes(&self) -> usize {
        self.bytes
    }

    fn ends_turn(&self) -> bool {
        self.large.is_some() || self.violation.is_some()
    }

    fn event(
        &mut self,
        event: &Event<'_>,
        of: EventStream,
        _: &NegotiatedSettings,
    ) -> Option<usize> {
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

/// Returns the value for a reader: inflated, without extended attributes.
fn plain_value(document: &Document) -> (Cow<'_, [u8]>, Datatype) {
    let (value, datatype) = (document.value(), document.datatype());
    let body = &value[body_at(value, datatype)..];
    value::inflated(Cow::Borrowed(body), datatype)
}

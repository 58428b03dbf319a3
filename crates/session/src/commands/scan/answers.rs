//! Answers to RANGE_SCAN_CONTINUE, built from rows.

use audit::Event;
use bucket::ScanRequest;
use model::{Datatype, Document, split_key};
use storage::KeyRow;
use wire::response::{ScanContent, ScanDocument, push_scan_document, push_scan_key};
use wire::{Feature, Frame, Status};

use crate::context::Context;
use crate::outcome::{CommandOutcome, Refusal};
use crate::reply::Reply;

/// Bytes at which an answer is sent.
const ANSWER_BYTES: usize = 8 << 10;

/// Rows that are not answered yet.
pub(super) struct Answers {
    content: ScanContent,
    attributes: bool,
    value: Vec<u8>,
}

impl Answers {
    pub(super) fn new(ask: &ScanRequest) -> Self {
        let content = if ask.keys_only {
            ScanContent::Keys
        } else {
            ScanContent::Documents
        };
        Self {
            content,
            attributes: ask.attributes,
            value: Vec::new(),
        }
    }

    /// Adds a row, and appends an answer if it is full. Returns the bytes of key and value.
    pub(super) fn add(
        &mut self,
        context: &mut Context<'_>,
        frame: &Frame<'_>,
        row: &KeyRow,
    ) -> Result<usize, Refusal> {
        let stored = match row {
            KeyRow::Key(key) => key,
            KeyRow::Whole(document) => document.key(),
        };
        let now = context.now;
        let read = Event::DocumentRead;
        context.session.record_document(read, stored, now);
        let bytes = match row {
            KeyRow::Key(key) => {
                let key = user_key(key);
                push_scan_key(key, &mut self.value);
                key.len()
            }
            KeyRow::Whole(document) => self.add_document(context, document)?,
        };
        if self.value.len() >= ANSWER_BYTES {
            self.flush(context, frame);
        }
        Ok(bytes)
    }

    fn add_document(
        &mut self,
        context: &Context<'_>,
        document: &Document,
    ) -> Result<usize, Refusal> {
        let keeps_attributes = self.attributes && context.session.has(Feature::XATTR);
        let (value, mut datatype) = context.shown_value(document, keeps_attributes)?;
        if !context.session.has(Feature::JSON) {
            datatype = datatype.without(Datatype::JSON);
        }
        let key = user_key(document.key());
        push_scan_document(
            &ScanDocument {
                flags: document.flags(),
                expiry: document.expiry(),
                seqno: document.seqno(),
                cas: document.cas(),
                datatype,
                key,
                value: &value,
            },
            &mut self.value,
        );
        Ok(key.len() + value.len())
    }

    /// Appends an answer with the rows so far, if there are any.
    pub(super) fn flush(&mut self, context: &mut Context<'_>, frame: &Frame<'_>) {
        if !self.value.is_empty() {
            self.last(context, frame, Status::SUCCESS);
        }
    }

    /// Appends an answer with the rows so far.
    pub(super) fn last(
        &mut self,
        context: &mut Context<'_>,
        frame: &Frame<'_>,
        status: Status,
    ) -> CommandOutcome {
        let extras = self.content.to_bytes();
        let done = context.reply(
            frame,
            &Reply {
                status,
                extras: &extras,
                ..Reply::value(&self.value)
            },
        );
        self.value.clear();
        done
    }
}

/// Returns a key without its collection prefix.
fn user_key(stored: &[u8]) -> &[u8] {
    split_key(stored).map_or(stored, |(_, key)| key)
}

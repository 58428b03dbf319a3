//! Prefetch: the cache lines of the documents of pipelined requests are loaded before the requests run.

use std::sync::Arc;

use model::VbId;
use registry::ServedBucket;
use wire::text::{TextDecoded, TextPlace};
use wire::{Decoded, Feature, Magic};

use crate::key::StoredKey;
use crate::session::Session;

/// vBucket and key of a document.
type DocumentLocation<'a> = (VbId, StoredKey<'a>);

/// Number of requests whose documents are prefetched together. These documents must still be in the nearest
/// cache when the last of the requests runs.
const TOGETHER: usize = 8;

impl Session {
    /// Prefetches the documents of the first requests of `input`, unless there is only one.
    /// Returns the length of these requests.
    pub(super) fn prefetch_documents(&self, input: &[u8]) -> usize {
        let mut documents = [const { None }; TOGETHER];
        let mut looked_at = 0;
        let mut count = 0;
        let mut text = self.text.as_ref().map(|text| text.place());
        for place in &mut documents {
            let Some((document, length)) = self.first_document(&input[looked_at..], &mut text)
            else {
                break;
            };
            looked_at += length;
            *place = document;
            count += 1;
        }
        if count > 1
            && let Some(served) = &self.bucket
        {
            prefetch(served, &documents);
        }
        looked_at
    }

    /// Prefetches the document of the first request of each conversation, as far as it is in the first
    /// conversation's bucket. Considers at most [`TOGETHER`] conversations.
    pub fn prefetch_first_documents<'a>(inputs: impl Iterator<Item = (&'a Self, &'a [u8])>) {
        let mut documents = [const { None }; TOGETHER];
        let mut bucket: Option<&Arc<ServedBucket>> = None;
        for (place, (session, input)) in documents.iter_mut().zip(inputs) {
            let Some(served) = &session.bucket else {
                continue;
            };
            if Arc::ptr_eq(bucket.get_or_insert(served), served) {
                let mut text = session.text.as_ref().map(|text| text.place());
                *place = session
                    .first_document(input, &mut text)
                    .and_then(|(document, _)| document);
            }
        }
        if let Some(served) = bucket {
            prefetch(served, &documents);
        }
    }

    /// Returns the location of the first request's document, if it has one, and the request's length; `None`
    /// if the request is incomplete. `text` is the place in a text conversation; it moves behind the request.
    fn first_document<'a>(
        &self,
        input: &'a [u8],
        text: &mut Option<TextPlace>,
    ) -> Option<(Option<DocumentLocation<'a>>, usize)> {
        if let Some(place) = text {
            return self.first_document_of_text(input, place);
        }
        let Ok(Decoded::Frame { frame, consumed }) = wire::decode(input, self.limits()) else {
            return None;
        };
        let magic = frame.header.magic;
        let asks = matches!(magic, Magic::ClientRequest | Magic::AltClientRequest);
        if !asks || frame.key.is_empty() {
            return Some((None, consumed));
        }
        let key = StoredKey::of(frame.key, self.has(Feature::COLLECTIONS));
        let document = key
            .ok()
            .map(|(_, key)| (self.vbucket_of(&frame, &key), key));
        Some((document, consumed))
    }

    fn first_document_of_text<'a>(
        &self,
        input: &'a [u8],
        place: &mut TextPlace,
    ) -> Option<(Option<DocumentLocation<'a>>, usize)> {
        if self.text.as_ref()?.skips() {
            return None;
        }
        let Ok(TextDecoded::Request {
            request,
            consumed,
            place: next,
        }) = self.decode_text(input, *place)
        else {
            return None;
        };
        *place = next;
        let served = self.bucket.as_ref()?;
        let located = |key| {
            let (_, key) = StoredKey::of(key, false).ok()?;
            Some((VbId::of_key(key.user_key(), served.bucket.vbuckets()), key))
        };
        Some((request.key().and_then(located), consumed))
    }
}

fn prefetch(served: &ServedBucket, documents: &[Option<DocumentLocation<'_>>]) {
    let documents = documents.iter().flatten();
    let documents = documents.map(|(vb, key): &DocumentLocation<'_>| (*vb, key.bytes()));
    served.bucket.prefetch(&documents);
}

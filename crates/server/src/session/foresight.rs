//! What requests that have come will look at is asked for before they are worked on.

use model::VbId;
use wire::{Decoded, Feature, Magic};

use super::{Session, StoredKey};

/// Requests that are looked at together: their documents must still be in the nearest cache when
/// the last of them is worked on.
const TOGETHER: usize = 8;

impl Session {
    /// Asks for the memory of the documents of the first requests of `input`, unless there is
    /// only one. Gives the length of the requests that it looked at.
    pub(super) fn foresee(&self, input: &[u8]) -> usize {
        let mut documents = [const { None }; TOGETHER];
        let mut looked_at = 0;
        let mut count = 0;
        for place in &mut documents {
            let Ok(Decoded::Frame { frame, consumed }) =
                wire::decode(&input[looked_at..], self.limits())
            else {
                break;
            };
            looked_at += consumed;
            if matches!(
                frame.header.magic,
                Magic::ClientRequest | Magic::AltClientRequest
            ) && !frame.key.is_empty()
                && let Ok((_, key)) = StoredKey::of(frame.key, self.has(Feature::COLLECTIONS))
            {
                *place = Some((self.vbucket_of(&frame, &key), key));
                count += 1;
            }
        }
        if count > 1
            && let Some(served) = &self.bucket
        {
            let documents = documents.iter().flatten();
            let documents = documents.map(|(vb, key): &(VbId, StoredKey<'_>)| (*vb, key.bytes()));
            served.bucket.foresee(&documents);
        }
        looked_at
    }
}

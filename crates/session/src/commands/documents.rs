//! Helpers of the document commands.

use std::borrow::Cow;
use std::time::Duration;

use bucket::{Counters, Purpose};
use engine::{GetResult, OpError, Outcome, VBucket};
use model::{Datatype, Document, Now, VbId, body_at, is_stale};
use registry::ServedBucket;
use wire::response::ItemFlags;
use wire::{Frame, Status};

use crate::context::Context;
use crate::outcome::{CommandOutcome, Refusal};
use crate::reply::Reply;
use crate::session::Session;

/// Expiries up to this many seconds are relative; larger ones are Unix seconds.
const RELATIVE_EXPIRY_MAX: u32 = 30 * 24 * 60 * 60;
/// Runs of a read whose value must be fetched, at most.
const FETCH_RUNS_MAX: u32 = 8;
/// Longest wait for one fetch.
const FETCH_WAIT: Duration = Duration::from_secs(10);

/// Returns the absolute expiry of a request. A time in the past stays in the past; it never becomes "no expiry".
///
/// # Errors
/// `ExpiryOverflow` beyond the year 2106.
pub(crate) fn absolute_expiry(expiry: u32, now: Now) -> Result<u32, Refusal> {
    if expiry == 0 || expiry > RELATIVE_EXPIRY_MAX {
        return Ok(expiry);
    }
    now.expiry_after(expiry)
        .ok_or_else(|| Status::EXPIRY_OVERFLOW.into())
}

impl Session {
    /// Runs an operation on a vBucket for a request that had arrived at `now`, after the documents that were fetched for it
    /// are restored in the same hold.
    fn run<T>(
        &self,
        (bucket, vb): (&ServedBucket, VbId),
        now: Now,
        f: impl FnOnce(&mut VBucket) -> Result<T, OpError>,
    ) -> Result<T, OpError> {
        let fetches = self.park.as_ref().map_or(&[][..], |park| &park.fetches);
        bucket.bucket.run_at(vb, now.mono_ns, |vbucket| {
            for fetch in fetches {
                bucket.bucket.restore(fetch, vbucket);
            }
            f(vbucket)
        })
    }

    /// Like [`Session::run`], for reading a document; cheaper if it is in memory.
    pub(crate) fn read<T>(
        &self,
        (bucket, vb): (&ServedBucket, VbId),
        now: Now,
        f: impl FnOnce(&mut VBucket) -> Result<Outcome<T>, OpError>,
    ) -> Result<Outcome<T>, OpError> {
        match &self.park {
            None => bucket.bucket.read(vb, now.mono_ns, f),
            Some(_) => self.run((bucket, vb), now, f),
        }
    }
}

impl Context<'_> {
    /// [`Session::run`] for the running command.
    pub(super) fn run<T>(
        &self,
        bucket: &ServedBucket,
        vb: VbId,
        f: impl FnOnce(&mut VBucket) -> Result<T, OpError>,
    ) -> Result<T, OpError> {
        self.session.run((bucket, vb), self.now, f)
    }

    /// [`Session::read`] for the running command.
    pub(super) fn read<T>(
        &self,
        bucket: &ServedBucket,
        vb: VbId,
        f: impl FnOnce(&mut VBucket) -> Result<Outcome<T>, OpError>,
    ) -> Result<Outcome<T>, OpError> {
        self.session.read((bucket, vb), self.now, f)
    }

    /// Parks the read if its value must be fetched first.
    pub(super) fn settle<T>(
        &mut self,
        bucket: &ServedBucket,
        vb: VbId,
        outcome: Outcome<T>,
    ) -> Result<T, Refusal> {
        let before = self.session.park.is_some();
        let settled = self.settle_write(bucket, vb, outcome);
        if !before && matches!(settled, Err(Refusal::Parked(_))) {
            Counters::add(&bucket.bucket.counters().reads_waited, 1);
        }
        settled
    }

    /// Parks the write if the document that it changes must be fetched first.
    pub(super) fn settle_write<T>(
        &mut self,
        bucket: &ServedBucket,
        vb: VbId,
        outcome: Outcome<T>,
    ) -> Result<T, Refusal> {
        match outcome {
            Outcome::Done(value) | Outcome::Prepared(value) => Ok(value),
            Outcome::NeedsFetch(key) => {
                self.admit(Purpose::Fetch, 0)?;
                let waker = self.session.waker();
                let park = self.session.note_park(self.now);
                if park.runs > FETCH_RUNS_MAX {
                    return Err(Refusal::not_now(
                        "the value could not be read from the store",
                    ));
                }
                if !park.fetches.iter().any(|fetch| fetch.awaits(vb, &key)) {
                    park.fetches.push(bucket.bucket.fetch(vb, key, waker));
                }
                Err(Refusal::Parked(FETCH_WAIT))
            }
        }
    }

    /// Answers with a document; `key` is the key as the peer sent it if the answer repeats it.
    pub(super) fn reply_document(
        &mut self,
        frame: &Frame<'_>,
        got: &GetResult,
        key: &[u8],
    ) -> CommandOutcome {
        let (value, datatype) = match self.plain_value(&got.document) {
            Ok(plain) => plain,
            Err(status) => {
                return self.reply_loudly(frame, &Reply::status(status));
            }
        };
        let apart = self.session.send_apart(&got.document, &value);
        let extras = ItemFlags(got.document.flags()).to_bytes();
        let reply = Reply {
            cas: got.cas,
            datatype,
            extras: &extras,
            key,
            value: &value,
            apart,
            expiry: got.document.expiry(),
            stale: self.session.text.is_some() && is_stale(&got.document),
            ..Reply::EMPTY
        };
        self.reply_loudly(frame, &reply)
    }

    /// Returns the body, or the whole value if `attributes`, in a form that the peer reads.
    pub(super) fn shown_value<'d>(
        &self,
        document: &'d Document,
        attributes: bool,
    ) -> Result<(Cow<'d, [u8]>, Datatype), Status> {
        let datatype = document.datatype();
        if attributes && datatype.contains(Datatype::XATTR) {
            return Ok((Cow::Borrowed(document.value()), datatype));
        }
        self.plain_value(document)
    }

    /// Returns the body in a form that the peer reads.
    fn plain_value<'d>(&self, document: &'d Document) -> Result<(Cow<'d, [u8]>, Datatype), Status> {
        let datatype = document.datatype();
        if datatype.contains(Datatype::XATTR) {
            let value = document.value();
            let body = &value[body_at(value, datatype)..];
            return Ok((Cow::Borrowed(body), datatype.without(Datatype::XATTR)));
        }
        if !datatype.contains(Datatype::SNAPPY) || self.session.takes_snappy() {
            return Ok((Cow::Borrowed(document.value()), datatype));
        }
        let plain = value::inflate(document.value()).map_err(|_| Status::EINTERNAL)?;
        Ok((Cow::Owned(plain), datatype.without(Datatype::SNAPPY)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relative_expiries_become_absolute() {
        let now = Now {
            unix_ns: 1_700_000_000_000_000_000,
            mono_ns: 0,
        };
        let absolute = |expiry| absolute_expiry(expiry, now).ok();
        assert_eq!(absolute(0), Some(0));
        let later = Now {
            unix_ns: now.unix_ns + 1,
            mono_ns: 0,
        };
        assert_eq!(absolute_expiry(1, later).ok(), Some(1_700_000_002));
        assert_eq!(absolute(1), Some(1_700_000_001));
        assert_eq!(absolute(2_592_000), Some(1_702_592_000));
        assert_eq!(absolute(2_592_001), Some(2_592_001), "a time long past");
        assert_eq!(absolute(u32::MAX), Some(u32::MAX));
        let late = Now {
            unix_ns: u64::from(u32::MAX) * 1_000_000_000,
            mono_ns: 0,
        };
        assert!(absolute_expiry(1, late).is_err());
    }
}

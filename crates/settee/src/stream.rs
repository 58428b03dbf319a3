//! What commands that follow streams of changes have in common.

use std::time::{Duration, Instant};

use changes::{Collections, StreamMessage, Streams};
use client::{Client, ClientError, Outgoing, Request};
use model::{Seqno, VbId};
use wire::dcp::{BufferAck, EndReason, StreamRequest, parse_rollback};
use wire::response::FailoverEntries;
use wire::{Envelope, Frame, Malformed, Opaque, Opcode, Response, Status};

use crate::exit::{Failure, Sysexit, code_of_status};

/// How long one wait for bytes is, and the delay before a stream is asked for again; an interrupt is noticed that late.
pub(crate) const TICK: Duration = Duration::from_millis(100);

/// Why a session broke off.
#[derive(Debug)]
pub(crate) struct Broken {
    /// The reason.
    pub(crate) failure: Failure,
    /// Whether another connection may go better.
    pub(crate) again: bool,
}

impl From<ClientError> for Broken {
    fn from(error: ClientError) -> Self {
        let again = error.is_lost();
        Self {
            failure: error.into(),
            again,
        }
    }
}

impl From<Broken> for Failure {
    fn from(broken: Broken) -> Self {
        broken.failure
    }
}

impl From<Failure> for Broken {
    fn from(failure: Failure) -> Self {
        Self {
            failure,
            again: false,
        }
    }
}

/// The server says what the protocol does not allow.
pub(crate) fn violation(reason: impl AsRef<str>) -> Broken {
    ClientError::broken("streaming", &reason.as_ref()).into()
}

/// A message cannot be read.
pub(crate) fn malformed(error: Malformed) -> Broken {
    violation(error.to_string())
}

/// Nothing came for so long, not even a noop.
pub(crate) fn silent(silence: Duration) -> Broken {
    let source = std::io::Error::other(format!("silent for {silence:?}"));
    let during = "streaming";
    ClientError::Lost { during, source }.into()
}

/// A stream was not granted.
fn refused(vbucket: VbId, status: Status) -> Broken {
    let (vbucket, reason, number) = (vbucket.0, status.description(), status.0);
    let reason = format!("stream of vBucket {vbucket}: {reason}, status 0x{number:02x}");
    Broken {
        failure: Failure::new(code_of_status(status), reason),
        again: status == Status::NOT_MY_VBUCKET,
    }
}

/// Refuses a bucket whose vBuckets are active on several nodes: a connection has the streams of one.
pub(crate) fn is_on_one_node(client: &Client) -> Result<(), Failure> {
    let nodes = client.active_nodes();
    if nodes < 2 {
        return Ok(());
    }
    let reason = format!(
        "the bucket is active on {nodes} nodes of a cluster; this command follows and writes buckets of one node"
    );
    Err(Failure::new(Sysexit::Config, reason))
}

/// The collections of the selected bucket, as far as the connection knows of any but the default one.
///
/// # Errors
/// The server refuses, or the connection broke.
pub(crate) fn collections_of(client: &mut Client) -> Result<Collections, ClientError> {
    if !client.key_form().collections {
        return Ok(Collections::only_default());
    }
    let answer = client.expect_success(&Request::new(Opcode::COLLECTIONS_GET_MANIFEST))?;
    Collections::of_manifest(&answer.value)
        .ok_or_else(|| ClientError::broken("COLLECTIONS_GET_MANIFEST", &"no manifest"))
}

/// The envelope of a stream request; its opaque comes back with the answer.
fn stream_envelope(vbucket: VbId) -> Envelope<'static> {
    let [high, low] = vbucket.0.to_be_bytes();
    Envelope {
        vbucket,
        opaque: Opaque([0, 0, high, low]),
        ..Envelope::default()
    }
}

/// The vBucket of a stream request, by its opaque.
fn vbucket_of(Opaque([_, _, high, low]): Opaque) -> VbId {
    VbId(u16::from_be_bytes([high, low]))
}

/// When streams are asked for, and with which filter.
pub(crate) struct Asking {
    /// The value of every stream request.
    filter: String,
    at: Option<Instant>,
}

impl Asking {
    /// At once.
    pub(crate) fn new(filter: String) -> Self {
        let at = Some(Instant::now());
        Self { filter, at }
    }

    /// Asks for the streams that are wanted, once it is time.
    pub(crate) fn ask(&mut self, streams: &mut Streams, out: &mut Outgoing) -> Result<(), Broken> {
        if self.at.is_none_or(|at| at > Instant::now()) {
            return Ok(());
        }
        self.at = None;
        for (vbucket, request) in streams.requests() {
            let request = StreamRequest {
                value: self.filter.as_bytes(),
                ..request
            };
            out.post(&request, &stream_envelope(vbucket))?;
        }
        Ok(())
    }

    /// Takes the answer to a request. Returns the vBucket and the seqno to which it was rolled back, if it was.
    pub(crate) fn on_answer(
        &mut self,
        frame: &Frame<'_>,
        streams: &mut Streams,
    ) -> Result<Option<(VbId, Seqno)>, Broken> {
        if frame.header.opcode != Opcode::DCP_STREAM_REQ {
            return Ok(None);
        }
        let vbucket = vbucket_of(frame.header.opaque);
        match frame.status() {
            Status::SUCCESS => {
                let log = FailoverEntries::parse(frame.value).map_err(malformed)?;
                streams.granted(vbucket, log.iter()).map_err(violation)?;
                Ok(None)
            }
            Status::ROLLBACK => {
                let to = parse_rollback(frame.value).map_err(malformed)?;
                let to = streams.rolled_back(vbucket, to).map_err(violation)?;
                self.soon(Duration::ZERO);
                Ok(Some((vbucket, to)))
            }
            Status::ETMPFAIL | Status::ENOMEM | Status::EBUSY => {
                streams.want_again(vbucket);
                self.soon(TICK);
                Ok(None)
            }
            status => Err(refused(vbucket, status)),
        }
    }

    /// Takes a message that is no change.
    pub(crate) fn on_other(
        &mut self,
        told: &StreamMessage<'_>,
        frame: &Frame<'_>,
        out: &mut Outgoing,
    ) -> Result<(), Broken> {
        match told {
            StreamMessage::Ended { reason, .. } if *reason == EndReason::LOST_PRIVILEGES => {
                let lost = "the user may no longer read this bucket";
                return Err(Failure::new(Sysexit::NoPerm, lost).into());
            }
            StreamMessage::Ended { again: true, .. } => self.soon(TICK),
            StreamMessage::Noop => {
                let answer = Response::new(Opcode::DCP_NOOP, frame.header.opaque, Status::SUCCESS);
                out.answer(&answer);
            }
            _ => {}
        }
        Ok(())
    }

    /// Asks after this time, if not before.
    fn soon(&mut self, delay: Duration) {
        let at = Instant::now() + delay;
        self.at = Some(self.at.map_or(at, |before| before.min(at)));
    }
}

/// Bytes that are done with and not acknowledged (flow control).
pub(crate) struct Window {
    unacknowledged: usize,
    /// So many are acknowledged at once.
    part: usize,
}

impl Window {
    pub(crate) fn new(part: usize) -> Self {
        Self {
            unacknowledged: 0,
            part,
        }
    }

    /// Is done with so many more.
    pub(crate) fn add(&mut self, bytes: usize) {
        self.unacknowledged += bytes;
    }

    /// Acknowledges them, so that the producer sends more; few of them only when idle.
    pub(crate) fn acknowledge(&mut self, out: &mut Outgoing, idle: bool) -> Result<(), Broken> {
        if self.unacknowledged > 0 && (self.unacknowledged >= self.part || idle) {
            let bytes = u32::try_from(self.unacknowledged).unwrap_or(u32::MAX);
            out.post(&BufferAck { bytes }, &Envelope::default())?;
            self.unacknowledged -= bytes as usize;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_known_by_its_opaque() {
        for vbucket in [0, 1, 255, 256, 1023, 65535].map(VbId) {
            assert_eq!(vbucket_of(stream_envelope(vbucket).opaque), vbucket);
        }
    }
}

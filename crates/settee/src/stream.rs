//! What commands that follow streams of changes have in common.

use std::time::{Duration, Instant};

use changes::{Collections, Streams};
use client::{Client, ClientError, Outgoing, Request};
use model::VbId;
use wire::dcp::{BufferAck, StreamRequest};
use wire::{Envelope, Malformed, Opaque, Opcode, Status};

use crate::exit::{Failure, code_of_status};

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
pub(crate) fn refused(vbucket: VbId, status: Status) -> Broken {
    let (vbucket, reason, number) = (vbucket.0, status.description(), status.0);
    let reason = format!("stream of vBucket {vbucket}: {reason}, status 0x{number:02x}");
    Broken {
        failure: Failure::new(code_of_status(status), reason),
        again: status == Status::NOT_MY_VBUCKET,
    }
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
pub(crate) fn vbucket_of(Opaque([_, _, high, low]): Opaque) -> VbId {
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

    /// Asks after this time, if not before.
    pub(crate) fn soon(&mut self, delay: Duration) {
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

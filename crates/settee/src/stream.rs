//! What commands that follow streams of changes have in common.

use std::time::Duration;

use changes::Collections;
use client::{Client, ClientError, Request};
use model::VbId;
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
pub(crate) fn stream_envelope(vbucket: VbId) -> Envelope<'static> {
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

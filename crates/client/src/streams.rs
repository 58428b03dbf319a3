//! Requests that prepare change streams.

use model::{Seqno, VbId};
use wire::dcp::OpenFlags;
use wire::response::VbSeqnos;
use wire::{Malformed, Opcode};

use crate::connection::Client;
use crate::error::ClientError;
use crate::message::Request;
use crate::random::random_u64;

impl Client {
    /// Opens the connection for change streams, with keep-alive messages. Appends random digits to `name`. The server
    /// may send `window_bytes` without an acknowledgement; 0 means any number.
    ///
    /// # Errors
    /// As [`Client::expect_success`].
    pub fn open_streams(
        &mut self,
        name: &str,
        flags: OpenFlags,
        window_bytes: u32,
    ) -> Result<(), ClientError> {
        let name = format!("{name}:{:016x}", random_u64()?);
        let extras = u64::from(flags.with(OpenFlags::PRODUCER).0).to_be_bytes();
        self.expect_success(&Request {
            extras: &extras,
            ..Request::with(Opcode::DCP_OPEN, name.as_bytes(), b"")
        })?;
        for (name, value) in [
            ("enable_noop", "true"),
            ("set_noop_interval", "20"),
            ("connection_buffer_size", &window_bytes.to_string()),
        ] {
            let (name, value) = (name.as_bytes(), value.as_bytes());
            self.expect_success(&Request::with(Opcode::DCP_CONTROL, name, value))?;
        }
        Ok(())
    }

    /// Returns the highest seqno of every active vBucket.
    ///
    /// # Errors
    /// As [`Client::expect_success`].
    pub fn high_seqnos(&mut self) -> Result<Vec<(VbId, Seqno)>, ClientError> {
        let active = 1_u32.to_be_bytes();
        let answer = self.expect_success(&Request {
            extras: &active,
            ..Request::new(Opcode::GET_ALL_VB_SEQNOS)
        })?;
        let broken = |error: Malformed| ClientError::broken("GET_ALL_VB_SEQNOS", &error);
        let seqnos = VbSeqnos::parse(&answer.value).map_err(broken)?;
        Ok(seqnos.iter().collect())
    }
}

//! Dispatch of a frame to its command, with the checks that all commands share, in the protocol's order.

use std::sync::Arc;
use std::time::Duration;

use engine::OpError;
use model::{Datatype, Now};
use registry::timings::CountedResult;
use wire::{Feature, Frame, Magic, OpcodeSupport, RequestInfos, ServerOpcode, Status};

use crate::commands::{self, Command, Scope};
use crate::context::Context;
use crate::outcome::{CommandOutcome, Refusal, value_refusal};
use crate::reply::Reply;
use crate::session::{Port, Session};

impl Session {
    /// Runs one frame and appends its answer, if it has one.
    pub(super) fn execute(
        &mut self,
        frame: &Frame<'_>,
        now: Now,
        output: &mut Vec<u8>,
    ) -> CommandOutcome {
        match frame.header.magic {
            Magic::ClientRequest | Magic::AltClientRequest => {}
            // A client's answer to a notice of this node; no request waits for it.
            Magic::ServerResponse => return CommandOutcome::Next,
            Magic::ServerRequest => return self.refuse_server_request(frame, now, output),
            Magic::ClientResponse | Magic::AltClientResponse => {
                return self.take_answer(frame, now, output);
            }
        }
        if let Some(producer) = &self.dcp {
            producer.lock().heard(now);
        }
        if let Some(inbound) = &mut self.inbound {
            inbound.heard(now);
        }
        let before = output.len();
        self.refresh_access();
        let done = match self.judge(frame, now) {
            Ok((command, infos)) => {
                let quiet = frame
                    .header
                    .opcode
                    .info()
                    .is_some_and(|info| info.quiet.is_some());
                let mut context = Context {
                    session: self,
                    output,
                    now,
                    infos,
                    quiet,
                    privileges: command.privileges,
                };
                let done = (command.run)(&mut context, frame);
                if self.node.audit.is_on() {
                    self.record_command((command, frame), &done, &output[before..], now);
                }
                done
            }
            Err(refusal) => {
                if let Some(inbound) = &mut self.inbound {
                    inbound.missed(frame, output);
                }
                Err(refusal)
            }
        };
        self.end_impersonation();
        match done {
            Ok(
                done @ (CommandOutcome::Parked(_) | CommandOutcome::More | CommandOutcome::Owed),
            ) => done,
            Ok(done) => {
                let answer = CountedResult::of_done(frame.header.opcode, output.len() > before);
                self.timings.answered(frame.header.opcode.0, answer);
                done
            }
            Err(Refusal::Op(OpError::WouldBlockPending)) => self.await_active(frame, now, output),
            Err(Refusal::NoMemoryYet(limit) | Refusal::Parked(limit)) => {
                CommandOutcome::Parked(limit)
            }
            Err(refusal) => {
                self.note_refusal(&refusal);
                self.refuse(frame, damaged_value_first(frame, refusal), now, output)
            }
        }
    }

    /// Takes an answer of the peer: only a session with change streams sends requests.
    fn take_answer(&mut self, frame: &Frame<'_>, now: Now, output: &mut Vec<u8>) -> CommandOutcome {
        if let Some(inbound) = &mut self.inbound {
            inbound.heard(now);
            if inbound.answered(frame, output) {
                return CommandOutcome::Next;
            }
            // Other connections may take over its streams at once.
            self.inbound = None;
            return CommandOutcome::Close;
        }
        let Some(producer) = &self.dcp else {
            return CommandOutcome::Close;
        };
        let header = &frame.header;
        let mut producer = producer.lock();
        producer.heard(now);
        if producer.answered(header.opcode, frame.status(), header.opaque) {
            return CommandOutcome::Next;
        }
        tracing::debug!(connection = self.info.id, opcode = %header.opcode, "refused; closing");
        CommandOutcome::Close
    }

    /// Parks a request for a pending vBucket until the vBucket is active. A change of the vBucket's state
    /// wakes all sessions.
    fn await_active(
        &mut self,
        frame: &Frame<'_>,
        now: Now,
        output: &mut Vec<u8>,
    ) -> CommandOutcome {
        let limit = self.node.waits.pending;
        let since_ns = self.note_park(now).since_ns;
        let waited = Duration::from_nanos(now.mono_ns.saturating_sub(since_ns));
        if waited < limit {
            return CommandOutcome::Parked(limit.saturating_sub(waited));
        }
        let refusal = Refusal::not_now("the vBucket is pending");
        self.refuse(frame, refusal, now, output)
    }

    /// Makes the checks that precede every command.
    fn judge<'f>(
        &mut self,
        frame: &Frame<'f>,
        now: Now,
    ) -> Result<(&'static Command, RequestInfos<'f>), Refusal> {
        let opcode = frame.header.opcode;
        let command = commands::find(opcode);
        if !self.is_authenticated() && command.is_none_or(|command| !command.before_login) {
            return Err(Status::EACCESS.into());
        }
        if self.port != Port::Couchbase && !command.is_some_and(|row| row.memcached) {
            return Err(Refusal::because(
                Status::EACCESS,
                "the memcached port serves documents and statistics of one bucket",
            ));
        }
        let info = opcode.info().ok_or(Status::UNKNOWN_COMMAND)?;
        if info.standing == OpcodeSupport::Removed {
            return Err(Status::NOT_SUPPORTED.into());
        }
        let command = command.ok_or_else(|| {
            let reason = commands::reason(opcode);
            let reason = reason.unwrap_or("this command is not served by this node");
            Refusal::because(Status::NOT_SUPPORTED, reason)
        })?;
        if command.scope != Scope::Node && self.bucket.is_none() {
            self.select_late(now)?;
        }
        info.check(frame)?;
        self.check_negotiated(frame.header.datatype)?;
        let infos = RequestInfos::parse(frame.frame_infos)?;
        infos.check(info)?;
        if infos.durability.is_some() && !info.writes_durably() {
            return Err(Refusal::because(
                Status::NOT_SUPPORTED,
                "this command does not write durably",
            ));
        }
        if !frame.frame_infos.is_empty() {
            self.impersonate(&infos, command.scope)?;
        }
        self.check_access(command)?;
        if self.node.connections.refuse_writes() && command.writes() {
            return Err(Refusal::not_now("the node stops"));
        }
        Ok((command, infos))
    }

    /// Selects the bucket of a memcached port that a node of a cluster did not have when the connection began.
    fn select_late(&mut self, now: Now) -> Result<(), Refusal> {
        let in_cluster = self.node.cluster.get().is_some() && self.port != Port::Couchbase;
        let node = Arc::clone(&self.node);
        let port = node.memcached.as_ref().filter(|_| in_cluster);
        let port = port.ok_or(Status::NO_BUCKET)?;
        if let Some(wait) = self.bucket_wait(&port.bucket, now) {
            return Err(Refusal::Parked(wait));
        }
        self.park = None;
        let bucket = node.bucket(&port.bucket).ok_or(Status::NO_BUCKET)?;
        self.select(Some(bucket));
        Ok(())
    }

    fn check_negotiated(&self, datatype: Datatype) -> Result<(), Refusal> {
        let bits = [
            (
                Datatype::JSON,
                Feature::JSON,
                "JSON datatype was not negotiated",
            ),
            (
                Datatype::SNAPPY,
                Feature::SNAPPY,
                "Snappy datatype was not negotiated",
            ),
            (
                Datatype::XATTR,
                Feature::XATTR,
                "extended attributes were not negotiated",
            ),
        ];
        for (bit, feature, context) in bits {
            let negotiated = self.has(feature)
                || (bit == Datatype::SNAPPY && self.has(Feature::SNAPPY_EVERYWHERE));
            if datatype.contains(bit) && !negotiated {
                return Err(Refusal::invalid(context));
            }
        }
        Ok(())
    }

    fn refuse_server_request(
        &self,
        frame: &Frame<'_>,
        now: Now,
        output: &mut Vec<u8>,
    ) -> CommandOutcome {
        let known = ServerOpcode(frame.header.opcode.0).name().is_some();
        let status = if known {
            Status::NOT_SUPPORTED
        } else {
            Status::UNKNOWN_COMMAND
        };
        self.answer(frame, &Reply::status(status), now, output);
        CommandOutcome::Next
    }
}

/// Checks the compressed value if the refusal concerns frame infos or the key: a damaged value is reported first.
///
/// Source: protocol section 2. Test: `order::snappy_comes_before_frame_infos_and_keys`.
fn damaged_value_first(frame: &Frame<'_>, refusal: Refusal) -> Refusal {
    let later = match &refusal {
        Refusal::UnknownCollection => true,
        Refusal::Status(status, _) => matches!(
            *status,
            Status::UNKNOWN_FRAME_INFO | Status::DURABILITY_INVALID_LEVEL | Status::NOT_SUPPORTED
        ),
        Refusal::Op(_)
        | Refusal::Last(..)
        | Refusal::MissingPrivileges(_)
        | Refusal::NoMemoryYet(_)
        | Refusal::Parked(_) => false,
    };
    let served = commands::find(frame.header.opcode).is_some();
    if !later || !served || !frame.header.datatype.contains(Datatype::SNAPPY) {
        return refusal;
    }
    match value::inflate(frame.value) {
        Ok(_) => refusal,
        Err(error) => value_refusal(error),
    }
}

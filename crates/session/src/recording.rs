//! Recording of a conversation's audit events.

use std::sync::Arc;

use audit::{Event, Line, Origin, User};
use identity::{Privilege, PrivilegeSet};
use model::{Now, split_key};
use wire::request::Sasl;
use wire::{Feature, Frame, Opcode, Status};

use crate::audit_lines::Name;
use crate::commands::{Command, Scope};
use crate::key::StoredKey;
use crate::outcome::{CommandOutcome, CommandResult, Refusal};
use crate::session::Session;

/// Bytes of a packet's header, which holds no secrets.
const HEADER_BYTES: usize = 24;
const READ: PrivilegeSet = PrivilegeSet::of(&[Privilege::Read]);

impl Session {
    /// Records an event of the peer, if events of this kind and this user are recorded.
    pub(crate) fn record(
        &mut self,
        event: Event,
        now: Now,
        fill: impl FnOnce(Line<'_>) -> Line<'_>,
    ) {
        if !self.node.audit.wants(event) {
            return;
        }
        let name = |user: &Option<identity::AuthenticatedUser>| {
            user.as_ref().map(|user| Arc::clone(&user.name))
        };
        let acting = name(&self.user);
        // During an impersonation, the peer's own user is the real user.
        let users = match &self.impersonator {
            Some(own) => (name(&own.user), acting),
            None => (acting, None),
        };
        self.append(event, now, users, fill);
    }

    fn append(
        &mut self,
        event: Event,
        now: Now,
        (real, effective): (Name, Name),
        fill: impl FnOnce(Line<'_>) -> Line<'_>,
    ) {
        let unknown = User {
            domain: "unknown",
            name: "",
        };
        let user = real.as_deref().map_or(unknown, local);
        if !self.node.audit.wants_of(event, user.domain, user.name) {
            return;
        }
        let audit_lines = &mut self.audit_lines;
        let known = audit_lines
            .origin
            .as_ref()
            .is_some_and(|known| known.0 == real);
        if effective.is_some() || !known {
            let ends = (Some(self.info.peer()), Some(self.info.local()));
            let made = Origin::new(ends, user, effective.as_deref().map(local));
            audit_lines.origin = Some((real, made));
        }
        if let Some((_, origin)) = &audit_lines.origin {
            let at = (&mut audit_lines.stamp, now.unix_ns);
            fill(Line::begin(&mut audit_lines.lines, event, at, origin)).end();
            audit_lines.events += 1;
        }
        if effective.is_some() {
            audit_lines.origin = None;
        }
    }

    /// Submits the recorded events, of many requests at a time.
    pub(crate) fn hand_on_trail(&mut self) {
        if self.audit_lines.events > 0 {
            let lines = std::mem::take(&mut self.audit_lines.lines);
            let events = std::mem::take(&mut self.audit_lines.events);
            self.node.audit.submit(lines, events);
        }
    }

    /// Records the effect of a command on a document after the command. `answer` is its answer.
    pub(crate) fn record_command(
        &mut self,
        (command, frame): (&Command, &Frame<'_>),
        done: &CommandResult,
        answer: &[u8],
        now: Now,
    ) {
        let Some(event) = document_event(command).filter(|event| self.node.audit.wants(*event))
        else {
            return;
        };
        match done {
            Ok(CommandOutcome::Next) if was_done(event, answer) => {
                self.record_key(event, frame.key, now);
            }
            Ok(CommandOutcome::Owed) => {
                let (start, events) = (self.audit_lines.lines.len(), self.audit_lines.events);
                self.record_key(event, frame.key, now);
                let line = self.audit_lines.lines.split_off(start);
                self.audit_lines.events = events;
                if let Some(owed) = self.owed.last_mut() {
                    owed.record = line;
                }
            }
            _ => {}
        }
    }

    /// Records an event about a document, by the key as it was sent.
    fn record_key(&mut self, event: Event, key: &[u8], now: Now) {
        let collections = self.has(Feature::COLLECTIONS);
        if let Ok((_, stored)) = StoredKey::of(key, collections) {
            self.record_document(event, stored.bytes(), now);
        }
    }

    /// Records an event about a document, by its stored key.
    pub(crate) fn record_document(&mut self, event: Event, stored: &[u8], now: Now) {
        let Some((collection, key)) = split_key(stored).filter(|_| self.node.audit.wants(event))
        else {
            return;
        };
        let bucket = self.bucket.clone();
        let name = bucket.as_ref().map_or("", |served| served.name());
        self.record(event, now, |line| {
            let line = line.text("bucket", name.as_bytes());
            line.collection(collection.0).text("key", key)
        });
    }

    /// Records an event about the selected bucket.
    pub(crate) fn record_in_bucket(&mut self, event: Event, now: Now) {
        let bucket = self.bucket.clone();
        let name = bucket.as_ref().map_or("", |served| served.name());
        self.record(event, now, |line| line.text("bucket", name.as_bytes()));
    }

    /// Returns the user name of a login before the login is checked.
    pub(crate) fn tried_name(&self, login: &Sasl<'_>) -> Name {
        if !self.node.audit.is_on() {
            return None;
        }
        let plain = login.mechanism.eq_ignore_ascii_case(b"PLAIN") && !login.step;
        if !plain {
            return self.sasl.tried().map(Into::into);
        }
        let name = login.payload.split(|byte| *byte == 0).nth(1)?;
        Some(String::from_utf8_lossy(name).into())
    }

    /// Records a failed login.
    pub(crate) fn record_failed_login(&mut self, name: Name, reason: &str, now: Now) {
        let users = (name, None);
        self.append(Event::AuthFailed, now, users, |line| {
            line.text("reason", reason.as_bytes())
        });
    }

    /// Notes whether a command is refused because the user lacks the privilege.
    pub(crate) fn note_refusal(&mut self, refusal: &Refusal) {
        let forbidden = matches!(
            refusal,
            Refusal::MissingPrivileges(_) | Refusal::Status(Status::EACCESS, _)
        );
        self.audit_lines.refused = forbidden && self.is_authenticated();
    }

    /// Records the packet of a command that was refused for missing privileges.
    pub(crate) fn record_refused(&mut self, packet: &[u8], now: Now) {
        if std::mem::take(&mut self.audit_lines.refused) {
            self.record_packet(Event::AccessFailure, packet, now);
        }
    }

    /// Records an invalid packet, which ends the conversation.
    pub(crate) fn record_invalid(&mut self, packet: &[u8], now: Now) {
        self.audit_lines.ends = Some("invalid packet");
        self.record_packet(Event::InvalidPacket, packet, now);
    }

    /// Records a packet. Of a login it records only the header.
    fn record_packet(&mut self, event: Event, packet: &[u8], now: Now) {
        let opcode = packet.get(1).map(|opcode| Opcode(*opcode));
        let is_login = matches!(opcode, Some(Opcode::SASL_AUTH | Opcode::SASL_STEP));
        let secret = is_login || !self.is_authenticated();
        let shown = if secret {
            packet.len().min(HEADER_BYTES)
        } else {
            packet.len()
        };
        self.record(event, now, |line| line.packet(&packet[..shown]));
    }

    /// Records the end of a user's conversation.
    pub(crate) fn record_end(&mut self) {
        if self.user.is_some() && self.node.audit.wants(Event::SessionEnded) {
            let reason = self.audit_lines.ends.unwrap_or("the connection was closed");
            let now = self.node.clock.now();
            self.record(Event::SessionEnded, now, |line| {
                line.text("reason_for_termination", reason.as_bytes())
            });
        }
        self.hand_on_trail();
    }
}

fn local(name: &str) -> User<'_> {
    User {
        domain: "local",
        name,
    }
}

/// Returns the audit event of a command on a document.
fn document_event(command: &Command) -> Option<Event> {
    if command.scope != Scope::Document {
        return None;
    }
    match command.opcode {
        Opcode::UNLOCK_KEY => None,
        Opcode::GET_LOCKED => Some(Event::DocumentLocked),
        Opcode::DELETE | Opcode::DELETEQ | Opcode::DEL_WITH_META | Opcode::DELQ_WITH_META => {
            Some(Event::DocumentDeleted)
        }
        _ if command.privileges == READ => Some(Event::DocumentRead),
        // A command that returns the value and sets an expiry changes the document.
        _ => Some(Event::DocumentModified),
    }
}

/// Whether a command that was not refused had the effect of its event. A quiet read without an answer found
/// nothing; a quiet write without an answer succeeded; a command with several parts answers with the part
/// that failed.
fn was_done(event: Event, answer: &[u8]) -> bool {
    let status = answer
        .get(6..8)
        .map(|bytes| u16::from_be_bytes([bytes[0], bytes[1]]));
    match status.map(Status) {
        None => event != Event::DocumentRead,
        Some(Status::SUBDOC_MULTI_PATH_FAILURE | Status::SUBDOC_MULTI_PATH_FAILURE_DELETED) => {
            event == Event::DocumentRead
        }
        Some(status) => matches!(status, Status::SUCCESS | Status::SUBDOC_SUCCESS_DELETED),
    }
}

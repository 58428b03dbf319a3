//! Statistics, timings, audit events.

use crate::Opcode;
use crate::message::message;

/// STAT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat<'a> {
    /// Name of the group with its argument, separated by a space; empty for the default group.
    pub group: &'a [u8],
    /// Arguments as JSON; mostly empty.
    pub arguments: &'a [u8],
}

message! { Stat<'a> = STAT; key: group; value: arguments; }

/// `AUDIT_PUT`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuditPut<'a> {
    /// Number of the event.
    pub event: u32,
    /// Its fields, a JSON object.
    pub fields: &'a [u8],
}

message! { AuditPut<'a> = AUDIT_PUT; extras: event; value: fields; }

/// `GET_CMD_TIMER`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GetCmdTimer<'a> {
    /// Opcode whose timings are requested.
    pub timed: Opcode,
    /// Name of a bucket; empty for the selected one, `/all/` for the sum of all.
    pub bucket: &'a [u8],
}

message! { GetCmdTimer<'a> = GET_CMD_TIMER; extras: timed; key: bucket; }

//! Commands of the audit log.

use wire::request::AuditPut;
use wire::{Frame, Message};

use crate::context::Context;
use crate::outcome::{CommandResult, Refusal};
use crate::reply::Reply;

/// AUDIT_PUT: records an event of a client.
pub(super) fn put(context: &mut Context<'_>, frame: &Frame<'_>) -> CommandResult {
    let request = AuditPut::read(frame)?;
    let taken = audit::put(&context.session.node.audit, request.event, request.fields);
    taken.map_err(|error| Refusal::invalid(error.to_string()))?;
    Ok(context.reply(frame, &Reply::EMPTY))
}

/// AUDIT_CONFIG_RELOAD: reads the configuration file again.
pub(super) fn reload(context: &mut Context<'_>, frame: &Frame<'_>) -> CommandResult {
    let reloaded = context.session.node.env.reload_audit(context.now.unix_ns);
    reloaded.map_err(Refusal::invalid)?;
    Ok(context.reply(frame, &Reply::EMPTY))
}

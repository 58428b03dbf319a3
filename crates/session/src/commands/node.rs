//! Commands about the node itself.

use model::Datatype;
use registry::COMPATIBLE_VERSION;
use registry::timings::{Merged, Timings};
use stats::{StatError, StatScope, Walk, collect_part};
use wire::request::{GetCmdTimer, Message, Quit, Stat};
use wire::response::StatRow;
use wire::{Feature, Frame, Opcode, Response, Status};

use crate::context::Context;
use crate::outcome::{CommandOutcome, Refusal};
use crate::reply::Reply;

/// NOOP.
pub(super) fn noop(
    context: &mut Context<'_>,
    frame: &Frame<'_>,
) -> Result<CommandOutcome, Refusal> {
    Ok(context.reply(frame, &Reply::EMPTY))
}

/// VERSION.
pub(super) fn version(
    context: &mut Context<'_>,
    frame: &Frame<'_>,
) -> Result<CommandOutcome, Refusal> {
    Ok(context.reply(frame, &Reply::value(COMPATIBLE_VERSION.as_bytes())))
}

/// VERBOSITY: accepted; what is logged is set when the node starts.
pub(super) fn verbosity(
    context: &mut Context<'_>,
    frame: &Frame<'_>,
) -> Result<CommandOutcome, Refusal> {
    Ok(context.reply(frame, &Reply::EMPTY))
}

/// QUIT, QUITQ.
pub(super) fn quit(
    context: &mut Context<'_>,
    frame: &Frame<'_>,
) -> Result<CommandOutcome, Refusal> {
    if !Quit::read(frame)?.quiet {
        context.reply(frame, &Reply::EMPTY);
    }
    Ok(CommandOutcome::Close)
}

/// STAT: one answer per row, then an empty one. Long groups are given in parts, each after the
/// one before it was sent.
pub(super) fn stat(
    context: &mut Context<'_>,
    frame: &Frame<'_>,
) -> Result<CommandOutcome, Refusal> {
    let request = Stat::read(frame)?;
    let text = std::str::from_utf8(request.group)
        .map_err(|_| Refusal::because(Status::EINVAL, "the group is no UTF-8 text"))?;
    if !stats::allows(context.session.role, text) {
        return Err(Refusal::because(
            Status::EACCESS,
            "the memcached port does not tell this group of statistics",
        ));
    }
    let (node, bucket) = (context.session.node.clone(), context.session.bucket.clone());
    let scope = StatScope {
        node: &node,
        bucket: bucket.as_deref(),
        connection: Some(context.session.info.id),
    };
    let walk = match context.session.walk.take() {
        Some(Walk::Begin) => None,
        // Others first, and only one connection of a thread goes on at a time: see `net::rounds`.
        None => {
            context.session.walk = Some(Walk::Begin);
            return Ok(CommandOutcome::More);
        }
        walk => walk,
    };
    let start = context.output.len();
    let json = if context.session.has(Feature::JSON) {
        Datatype::JSON
    } else {
        Datatype::RAW
    };
    // The rows of a part tell the same duration: there may be millions of them.
    let answer = Response {
        server_duration: context.session.server_duration(context.now.mono_ns),
        ..Response::new(Opcode::STAT, frame.header.opaque, Status::SUCCESS)
    };
    let mut row = |key: &str, value: &str| {
        let row = StatRow {
            key: key.as_bytes(),
            value: value.as_bytes(),
        };
        let datatype = if key.is_empty() { json } else { Datatype::RAW };
        let row = row.in_response(Response { datatype, ..answer });
        row.encode(context.output);
    };
    match collect_part(text, &scope, walk, &mut row) {
        Ok(None) => Ok(context.reply(frame, &Reply::EMPTY)),
        Ok(walk) => {
            context.session.walk = walk;
            Ok(CommandOutcome::More)
        }
        Err(error) => {
            context.output.truncate(start);
            Err(match error {
                StatError::UnknownGroup => Refusal::because(
                    Status::KEY_ENOENT,
                    "no such group of statistics, or no such document",
                ),
                StatError::NoBucket => Status::NO_BUCKET.into(),
                StatError::UnknownCollection => Refusal::UnknownCollection,
                StatError::UnknownScope => Status::UNKNOWN_SCOPE.into(),
                StatError::NoVbucket => Status::NOT_MY_VBUCKET.into(),
                StatError::Argument(reason) => Refusal::because(Status::EINVAL, reason),
            })
        }
    }
}

/// GET_CMD_TIMER: the histogram of one opcode, of all buckets together.
pub(super) fn cmd_timer(
    context: &mut Context<'_>,
    frame: &Frame<'_>,
) -> Result<CommandOutcome, Refusal> {
    let request = GetCmdTimer::read(frame)?;
    let named = std::str::from_utf8(request.bucket).unwrap_or_default();
    let node = context.session.node.clone();
    let all = named.is_empty() || named == "/all/";
    if !all && node.bucket(named).is_none() {
        return Err(Refusal::because(Status::KEY_ENOENT, "no such bucket"));
    }
    let Opcode(opcode) = request.timed;
    let timings = node.timings.iter().map(|timings| -> &Timings { timings });
    let json = Merged::of(timings, opcode).to_json().to_string();
    Ok(context.reply(frame, &Reply::json(&json)))
}

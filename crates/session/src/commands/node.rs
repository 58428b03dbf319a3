//! Commands about the node itself.

use identity::{Privilege, PrivilegeSet};
use model::Datatype;
use registry::timings::{Merged, Timings};
use registry::{COMPATIBLE_VERSION, FlushError};
use stats::{StatError, StatNeeds, StatPlace, StatScope, Walk, collect_part};
use wire::request::{DropPrivilege, GetCmdTimer, Stat};
use wire::response::StatRow;
use wire::{Feature, Frame, Message, Opcode, Response, Status};

use crate::access::check;
use crate::context::Context;
use crate::outcome::{CommandOutcome, CommandResult, Refusal};
use crate::reply::Reply;
use crate::session::{Port, Session};
use crate::text::TextConversation;

/// NOOP.
pub(super) fn noop(context: &mut Context<'_>, frame: &Frame<'_>) -> CommandResult {
    Ok(context.reply(frame, &Reply::EMPTY))
}

/// VERSION.
pub(super) fn version(context: &mut Context<'_>, frame: &Frame<'_>) -> CommandResult {
    Ok(context.reply(frame, &Reply::value(COMPATIBLE_VERSION.as_bytes())))
}

/// VERBOSITY: accepted without effect; the log level is set when the node starts.
pub(super) fn verbosity(context: &mut Context<'_>, frame: &Frame<'_>) -> CommandResult {
    Ok(context.reply(frame, &Reply::EMPTY))
}

/// FLUSH, FLUSHQ: removes every document of the bucket, for clients of memcached. It waits for the disk.
pub(super) fn flush(context: &mut Context<'_>, frame: &Frame<'_>) -> CommandResult {
    if !context.session.classic {
        return Err(Refusal::because(
            Status::NOT_SUPPORTED,
            "only clients of memcached flush over KV; others do over HTTP",
        ));
    }
    if frame.extras.iter().any(|byte| *byte != 0) {
        return Err(Refusal::invalid(
            "a flush later than at once is not supported",
        ));
    }
    let served = context.bucket()?;
    let flushed = context.session.node.env.flush(&served);
    flushed.map_err(|error| {
        let status = match error {
            FlushError::Disabled | FlushError::Follows => Status::NOT_SUPPORTED,
            FlushError::Failed(_) => Status::ETMPFAIL,
        };
        Refusal::because(status, error.to_string())
    })?;
    context.session.node.wake_all();
    Ok(context.reply(frame, &Reply::EMPTY))
}

/// `ISASL_REFRESH`, `RBAC_REFRESH`: without effect. Only the node changes its users, at once in memory and on disk.
pub(super) fn refresh(context: &mut Context<'_>, frame: &Frame<'_>) -> CommandResult {
    Ok(context.reply(frame, &Reply::EMPTY))
}

/// QUIT, QUITQ.
pub(super) fn quit(context: &mut Context<'_>, frame: &Frame<'_>) -> CommandResult {
    context.reply(frame, &Reply::EMPTY);
    Ok(CommandOutcome::Close)
}

/// STAT: one answer per row, then an empty one. Long groups are sent in parts, each after the part before it
/// was sent.
pub(super) fn stat(context: &mut Context<'_>, frame: &Frame<'_>) -> CommandResult {
    let request = Stat::read(frame)?;
    let text = std::str::from_utf8(request.group)
        .map_err(|_| Refusal::invalid("the group is no UTF-8 text"))?;
    if context.session.port != Port::Couchbase && !stats::is_of_memcached(text) {
        return Err(Refusal::because(
            Status::EACCESS,
            "the memcached port does not tell this group of statistics",
        ));
    }
    let (node, bucket) = (context.session.node.clone(), context.session.bucket.clone());
    check_group(context.session, text)?;
    let walk = match context.session.walk.take() {
        Some(Walk::Begin) => None,
        // Other connections run first, and only one connection of a thread continues at a time: see `net::rounds`.
        None => {
            context.session.walk = Some(Walk::Begin);
            return Ok(CommandOutcome::More);
        }
        walk => walk,
    };
    let session = &*context.session;
    let access = |privilege, collection| {
        let checked = session.check_collection(collection, PrivilegeSet::of(&[privilege]));
        checked.map_err(|refusal| match refusal {
            Refusal::MissingPrivileges(missing) => StatError::MissingPrivileges(missing),
            _ => StatError::UnknownCollection,
        })
    };
    let scope = StatScope {
        access: Some(&access),
        node: &node,
        bucket: bucket.as_deref(),
        connection: Some(context.session.info.id),
    };
    let start = context.output.len();
    let json = if context.session.has(Feature::JSON) {
        Datatype::JSON
    } else {
        Datatype::RAW
    };
    // All rows of a part carry the same duration: there may be millions of rows.
    let answer = Response {
        server_duration: context.session.server_duration(context.now.mono_ns),
        ..Response::new(Opcode::STAT, frame.header.opaque, Status::SUCCESS)
    };
    let in_text = context.session.text.is_some();
    let mut row = |key: &str, value: &str| {
        if in_text {
            return TextConversation::row(key, value, context.output);
        }
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
            Err(refusal(error))
        }
    }
}

/// Returns the refusal for an error of the statistics.
fn refusal(error: StatError) -> Refusal {
    match error {
        StatError::UnknownGroup => Refusal::because(
            Status::KEY_ENOENT,
            "no such group of statistics, or no such document",
        ),
        StatError::NothingToTell(reason) => Refusal::because(Status::KEY_ENOENT, reason),
        StatError::MissingPrivileges(missing) => Refusal::MissingPrivileges(missing),
        StatError::NoBucket => Status::NO_BUCKET.into(),
        StatError::UnknownCollection => Refusal::UnknownCollection,
        StatError::UnknownScope => Status::UNKNOWN_SCOPE.into(),
        StatError::NoVbucket => Status::NOT_MY_VBUCKET.into(),
        StatError::Argument(reason) => Refusal::invalid(reason),
    }
}

/// Checks whether the peer may ask for a group of statistics.
fn check_group(session: &Session, group: &str) -> Result<(), Refusal> {
    let Some(StatNeeds { privileges, within }) = stats::needs_of(group) else {
        return Ok(());
    };
    match within {
        StatPlace::Node => check(privileges, session.access.node()),
        // Without a bucket, the group itself refuses the request.
        StatPlace::Bucket | StatPlace::Collections if session.bucket.is_none() => Ok(()),
        StatPlace::Bucket | StatPlace::NodeOrBucket => session.check_bucket(privileges),
        StatPlace::Collections => session.check_anywhere(privileges),
    }
}

/// DROP_PRIVILEGE: drops a privilege until the next login of the connection.
pub(super) fn drop_privilege(context: &mut Context<'_>, frame: &Frame<'_>) -> CommandResult {
    let request = DropPrivilege::read(frame)?;
    let unknown = || Refusal::invalid("unknown privilege");
    let privilege = Privilege::named(request.name).ok_or_else(unknown)?;
    let dropped = PrivilegeSet::of(&[privilege]);
    context.session.drop_privileges(dropped);
    Ok(context.reply(frame, &Reply::EMPTY))
}

/// GET_CMD_TIMER: the latency histogram of one opcode, over all buckets.
pub(super) fn cmd_timer(context: &mut Context<'_>, frame: &Frame<'_>) -> CommandResult {
    let request = GetCmdTimer::read(frame)?;
    let named = std::str::from_utf8(request.bucket).unwrap_or_default();
    let node = context.session.node.clone();
    let all = named.is_empty() || named == "/all/";
    let user = context.session.user.as_ref();
    let visible = user.is_some_and(|user| !user.access.within_bucket(named).is_empty());
    if !all && (!visible || node.bucket(named).is_none()) {
        return Err(Refusal::because(Status::KEY_ENOENT, "no such bucket"));
    }
    let Opcode(opcode) = request.timed;
    let timings = node.timings.iter().map(|timings| -> &Timings { timings });
    let json = Merged::of(timings, opcode).to_json().to_string();
    Ok(context.reply(frame, &Reply::json(&json)))
}

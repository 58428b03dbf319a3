//! Commands that a client sends before its first document: features, login, bucket, maps.

use audit::Event;
use identity::{AuthenticatedUser, MECHANISMS, Privilege, PrivilegeSet, SaslStep};
use model::Datatype;
use registry::cluster::CLUSTER_USER;
use registry::cluster_map::MapRevision;
use registry::heard_of_epoch;
use wire::push::ConfigRev;
use wire::request::{GetClusterConfig, GetErrorMap, Hello, Sasl, SelectBucket};
use wire::{FeatureSet, Frame, Message, Status};

use crate::access::{SessionAccess, check};
use crate::context::Context;
use crate::features::grant;
use crate::login::LoginStep;
use crate::outcome::{CommandOutcome, CommandResult, Refusal};
use crate::reply::Reply;
use crate::session::{Port, Session};

/// Bytes of an agent's text that are kept.
const AGENT_BYTES_MAX: usize = 256;
/// Reason for a failed login.
const FAILED: &str = "authentication failed";
/// Reason for a login that is refused without a check.
const TOO_MANY_FAILED: &str = "too many logins from this address failed; try again later";
/// Reason why a connection with a user's certificate takes no other login.
const CERTIFIED: &str = "the connection is that of its certificate's user";
/// Bucket name that deselects the bucket of a connection.
const NO_BUCKET_NAME: &[u8] = b"@no bucket@";

/// HELLO: replaces the negotiated features by those that the client asks for and the node supports.
pub(super) fn hello(context: &mut Context<'_>, frame: &Frame<'_>) -> CommandResult {
    let request = Hello::read(frame)?;
    let mut asked = FeatureSet::EMPTY;
    for feature in request.features.iter() {
        asked.insert(feature);
    }
    asked
        .check()
        .map_err(|conflict| Refusal::invalid(conflict.to_string()))?;
    let granted = grant(asked);
    let session = &mut *context.session;
    session.features = granted;
    if session.classic && session.port == Port::Couchbase {
        // The client speaks Couchbase after all, and selects its bucket itself.
        session.select(None);
    }
    session.classic = false;
    note_agent(session, request.agent);
    session.map_host = takes_maps_literally(request.agent)
        .then(|| session.info.local().ip().to_canonical().to_string().into());
    session.info.note(|about| about.features = Some(granted));
    let mut value = Vec::new();
    granted.encode(&mut value);
    Ok(context.reply(frame, &Reply::value(&value)))
}

/// Whether a client fails to replace the placeholder `$HOST` in maps by the host that it used. The Java DCP
/// client (seen in 0.56.0) fails to do so, and connects to a host of that name.
fn takes_maps_literally(agent: &[u8]) -> bool {
    const NAME: &[u8] = b"java-dcp-client";
    agent.windows(NAME.len()).any(|part| part == NAME)
}

fn note_agent(session: &Session, agent: &[u8]) {
    let text = String::from_utf8_lossy(&agent[..agent.len().min(AGENT_BYTES_MAX)]);
    let described = serde_json::from_str::<serde_json::Value>(&text).ok();
    let field = |name: &str| {
        let value = described.as_ref().and_then(|json| json.get(name));
        value.and_then(|value| value.as_str()).map(str::to_owned)
    };
    let (agent, connection) = (field("a"), field("i"));
    session.info.note(|about| {
        about.agent = agent.unwrap_or_else(|| text.into_owned());
        about.connection_id = connection.unwrap_or_default();
    });
}

/// SASL_LIST_MECHS.
pub(super) fn list_mechanisms(context: &mut Context<'_>, frame: &Frame<'_>) -> CommandResult {
    refuse_certified(context.session)?;
    Ok(context.reply(frame, &Reply::value(MECHANISMS.as_bytes())))
}

/// SASL_AUTH, SASL_STEP.
pub(super) fn sasl(context: &mut Context<'_>, frame: &Frame<'_>) -> CommandResult {
    let request = Sasl::read(frame)?;
    if request.mechanism.eq_ignore_ascii_case(b"OAUTHBEARER") {
        let reason = "OAUTHBEARER is not served: no provider of tokens is known here";
        return Err(Refusal::because(Status::AUTH_ERROR, reason));
    }
    let session = &mut *context.session;
    // In a cluster, other nodes log in by SASL whatever certificate they showed.
    let peers_only = session.login.certified;
    if peers_only && (session.node.cluster.get().is_none() || request.step && !is_peer(session)) {
        refuse_certified(session)?;
    }
    let node = std::sync::Arc::clone(&session.node);
    let peer = session.info.peer().ip();
    let tried = session.tried_name(&request);
    let step = if request.step {
        session
            .sasl
            .step(&node.identity, request.mechanism, request.payload)
    } else {
        // One login turn per exchange: a SASL step has waited for its turn already.
        let turn = || node.login_turn(peer);
        match session.login.step(context.now.mono_ns, turn) {
            LoginStep::Judge => {}
            LoginStep::Wait(wait) => return Ok(CommandOutcome::Parked(wait)),
            LoginStep::Refuse => {
                node.note_login(peer, false);
                session.record_failed_login(tried, TOO_MANY_FAILED, context.now);
                return Err(Refusal::Last(Status::AUTH_ERROR, TOO_MANY_FAILED));
            }
        }
        let mut random = |bytes: &mut [u8]| node.env.fill_random(bytes);
        session.sasl.start(
            &node.identity,
            request.mechanism,
            request.payload,
            &mut random,
        )
    };
    if peers_only && !request.step && !is_peer(session) {
        refuse_certified(session)?;
    }
    match step {
        SaslStep::Continue(payload) => {
            let reply = Reply {
                status: Status::AUTH_CONTINUE,
                ..Reply::value(&payload)
            };
            Ok(context.reply(frame, &reply))
        }
        SaslStep::Done { user, payload } => {
            log_in(session, user);
            session.record(Event::AuthSucceeded, context.now, |line| line);
            Ok(context.reply(frame, &Reply::value(&payload)))
        }
        SaslStep::Failed => {
            session.record_failed_login(tried, FAILED, context.now);
            session.user = None;
            session.work_out_access();
            node.note_login(peer, false);
            if session.login.failed() {
                return Err(Refusal::Last(Status::AUTH_ERROR, FAILED));
            }
            Err(Refusal::because(Status::AUTH_ERROR, FAILED))
        }
        SaslStep::Invalid(reason) => Err(Refusal::invalid(reason)),
    }
}

/// Whether the current exchange is the login of another node.
fn is_peer(session: &Session) -> bool {
    session.sasl.tried() == Some(CLUSTER_USER)
}

/// Refuses a SASL login on a connection that was logged in by a certificate.
fn refuse_certified(session: &Session) -> Result<(), Refusal> {
    if session.login.certified {
        return Err(Refusal::because(Status::NOT_SUPPORTED, CERTIFIED));
    }
    Ok(())
}

fn log_in(session: &mut Session, user: AuthenticatedUser) {
    let peer = session.info.peer().ip();
    session.node.note_login(peer, true);
    session.login.succeeded();
    // Dropped privileges belong to the former login.
    session.access = SessionAccess::default();
    session
        .info
        .note(|about| about.user = Some(user.name.clone()));
    // A client that logs in without HELLO knows no buckets: it gets the bucket with its user name, or
    // `default`. A client of the memcached port has its bucket already.
    if session.port == Port::Couchbase && session.features.is_empty() && session.bucket.is_none() {
        let node = std::sync::Arc::clone(&session.node);
        let bucket = node.bucket(&user.name).or_else(|| node.bucket("default"));
        let bucket = bucket.filter(|served| !user.access.within_bucket(served.name()).is_empty());
        session.classic = bucket.is_some();
        session.user = Some(user);
        return session.select(bucket);
    }
    session.user = Some(user);
    session.work_out_access();
}

/// SELECT_BUCKET. It waits for a bucket of the cluster that this node is about to make: when a bucket is flushed, clients
/// come back before each node has replaced it, and take a refusal for a lasting one.
pub(super) fn select_bucket(context: &mut Context<'_>, frame: &Frame<'_>) -> CommandResult {
    let request = SelectBucket::read(frame)?;
    let session = &mut *context.session;
    if session.is_dcp() {
        return Err(Refusal::because(
            Status::NOT_SUPPORTED,
            "a connection that streams changes stays with its bucket",
        ));
    }
    if request.name == NO_BUCKET_NAME {
        session.select(None);
        return Ok(context.reply(frame, &Reply::EMPTY));
    }
    let name = std::str::from_utf8(request.name).unwrap_or_default();
    let user = session.user.as_ref();
    let visible = user.is_some_and(|user| !user.access.within_bucket(name).is_empty());
    if visible && let Some(wait) = session.bucket_wait(name, context.now) {
        return Ok(CommandOutcome::Parked(wait));
    }
    let Some(bucket) = session.node.bucket(name).filter(|_| visible) else {
        return Err(Refusal::because(
            Status::EACCESS,
            "no such bucket, or no access to it",
        ));
    };
    session.classic = false;
    session.select(Some(bucket));
    session.record_in_bucket(Event::BucketSelected, context.now);
    Ok(context.reply(frame, &Reply::EMPTY))
}

/// LIST_BUCKETS.
pub(super) fn list_buckets(context: &mut Context<'_>, frame: &Frame<'_>) -> CommandResult {
    let session = &context.session;
    let mut names = session.node.bucket_names();
    let user = session.user.as_ref();
    names.retain(|name| user.is_some_and(|user| !user.access.within_bucket(name).is_empty()));
    Ok(context.reply(frame, &Reply::value(names.join(" ").as_bytes())))
}

/// GET_ERROR_MAP.
pub(super) fn error_map(context: &mut Context<'_>, frame: &Frame<'_>) -> CommandResult {
    let request = GetErrorMap::read(frame)?;
    let map = wire::error_map(request.version)
        .ok_or_else(|| Refusal::because(Status::KEY_ENOENT, "no such version of the error map"))?;
    Ok(context.reply(frame, &Reply::json(&map)))
}

/// GET_CLUSTER_CONFIG, with or without a selected bucket.
pub(super) fn cluster_config(context: &mut Context<'_>, frame: &Frame<'_>) -> CommandResult {
    let request = GetClusterConfig::read(frame)?;
    let session = &mut *context.session;
    let administers = session.access.node().has(Privilege::NodeSupervisor);
    if session.bucket.is_some() {
        session.check_membership()?;
    } else {
        let needed = PrivilegeSet::of(&[Privilege::SystemSettings]);
        check(needed, session.access.node())?;
    }
    if let (Some(bucket), Some(known), true) = (&session.bucket, request.known, administers) {
        heard_of_epoch(&session.node, bucket, known.epoch);
    }
    let map = match &session.bucket {
        Some(bucket) => bucket.map(),
        None => session.node.global_map(),
    };
    let known = |ConfigRev { epoch, rev }: ConfigRev| MapRevision { epoch, rev } >= map.revision;
    if session.bucket.is_some() {
        session.known_map = Some(map.revision);
    }
    if request.known.is_some_and(known) {
        return Ok(context.reply(frame, &Reply::EMPTY));
    }
    let text = session.map_text(&map.json);
    let reply = Reply {
        datatype: Datatype::JSON,
        ..Reply::value(text.as_bytes())
    };
    Ok(context.reply(frame, &reply))
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::Feature;

    #[test]
    fn hello_prefers_brief_notices_and_ignores_unknown_features() {
        let mut asked = FeatureSet::EMPTY;
        for feature in [0x01, 0x02, 0x05, 0x06, 0x0c, 0x0d, 0x1f, 0x15] {
            asked.insert(Feature(feature));
        }
        let granted: Vec<u16> = grant(asked).iter().map(|feature| feature.0).collect();
        assert_eq!(granted, [0x06, 0x0c, 0x15, 0x1f]);
    }
}

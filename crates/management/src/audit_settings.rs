//! `/settings/audit`: the recorded events, and the place of the log.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use audit::{Event, Settings, UserId};
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::get;
use serde_json::{Value, json};

use super::answers::{self, HandlerResult};
use super::form::{FieldErrors, fields, flag, words};
use super::state::HttpState;

const ROTATE_INTERVAL_S: std::ops::RangeInclusive<u64> = 900..=604_800;
const ROTATE_SIZE: std::ops::RangeInclusive<u64> = 1_048_576..=524_288_000;
const PRUNE_AGE_S: std::ops::RangeInclusive<u64> = 0..=35_791_394;
/// Range of event ids over all parts of the reference server.
const EVENT_IDS: std::ops::Range<u32> = 4096..61_440;

pub(super) fn routes() -> Router<HttpState> {
    let path = "/settings/audit";
    Router::new()
        .route(path, get(show).post(change))
        .route(
            &format!("{path}/descriptors"),
            get(async || descriptors(true)),
        )
        .route(
            &format!("{path}/nonFilterableDescriptors"),
            get(async || descriptors(false)),
        )
}

/// Returns the events that can be disabled, or those that cannot.
fn descriptors(filterable: bool) -> Response {
    let events = Event::all().iter();
    let events = events.filter(|one| one.filterable == filterable);
    let of = |one: &audit::Descriptor| {
        json!({
            "id": one.id,
            "name": one.name,
            "module": one.module(),
            "description": one.description,
        })
    };
    answers::ok(&Value::Array(events.map(of).collect()))
}

async fn show(State(state): State<HttpState>) -> Response {
    let settings = state.view.audit().settings();
    let users = settings.disabled_users.iter().flatten();
    let users = users.map(|user| json!({ "name": user.user, "domain": user.domain }));
    answers::ok(&json!({
        "auditdEnabled": settings.enabled,
        "disabled": disabled(&settings),
        "disabledUsers": users.collect::<Vec<_>>(),
        "logPath": settings.log_path,
        "pruneAge": settings.prune_age_s,
        "rotateInterval": settings.rotate_interval_s,
        "rotateSize": settings.rotate_size,
        "uid": settings.uuid,
    }))
}

/// Returns the disabled events, including events of parts that this node does not have.
fn disabled(settings: &Settings) -> BTreeSet<u32> {
    let own = Event::all()
        .iter()
        .filter(|one| !settings.records(one.event));
    let others = settings.states.iter().filter(|(_, on)| !**on);
    own.map(|one| one.id)
        .chain(others.map(|(id, _)| *id))
        .collect()
}

async fn change(State(state): State<HttpState>, body: Bytes) -> HandlerResult {
    let view = Arc::clone(&state.view);
    let done = state.audit_turn.run(move || {
        let mut wrong = FieldErrors::new();
        let settings = read(&body, &view.audit().settings(), &mut wrong);
        let changed = if wrong.is_empty() {
            view.change_audit(settings)
        } else {
            Ok(())
        };
        (wrong, changed)
    });
    let (wrong, changed) = done.await?;
    answers::check_fields(&wrong)?;
    changed.map_err(|text| answers::refusal(StatusCode::INTERNAL_SERVER_ERROR, &text))?;
    Ok(answers::ok(&json!([])))
}

/// Reads a form that changes the configuration. Checks the directory on the disk.
fn read(body: &[u8], before: &Settings, wrong: &mut FieldErrors) -> Settings {
    let mut settings = before.clone();
    for (field, value) in fields(body) {
        let done = set(&mut settings, &field, &value);
        if let Err(why) = done {
            wrong.insert(field, why.into());
        }
    }
    let moved = settings.log_path != before.log_path;
    if settings.enabled && settings.log_path.as_os_str().is_empty() {
        let text = "The value must name a directory: the node has no data directory.";
        wrong.insert("logPath".into(), text.into());
    } else if moved && !settings.log_path.is_dir() {
        let text = "The value of logPath must be an existing directory";
        wrong.insert("logPath".into(), text.into());
    }
    settings
}

fn set(settings: &mut Settings, field: &str, value: &str) -> Result<(), String> {
    let number = |allowed: std::ops::RangeInclusive<u64>| {
        let number = value
            .parse::<u64>()
            .ok()
            .filter(|one| allowed.contains(one));
        number.ok_or_else(|| {
            let (least, most) = (allowed.start(), allowed.end());
            format!("The value of {field} must be in range from {least} to {most}")
        })
    };
    match field {
        "auditdEnabled" => settings.enabled = flag(value)?,
        "logPath" => {
            let path = PathBuf::from(value);
            if !path.is_absolute() {
                return Err("The value of logPath must be an absolute path".into());
            }
            settings.log_path = path;
        }
        "rotateInterval" => {
            let seconds = number(ROTATE_INTERVAL_S)?;
            if seconds % 60 != 0 {
                return Err("Value must not be a fraction of minute".into());
            }
            settings.rotate_interval_s = seconds;
        }
        "rotateSize" => settings.rotate_size = number(ROTATE_SIZE)?,
        "pruneAge" => settings.prune_age_s = number(PRUNE_AGE_S)?,
        "disabled" => disable(settings, value)?,
        "disabledUsers" => {
            settings.disabled_users = Some(users(value)?);
            settings.enabled_users = None;
            settings.filtering = true;
        }
        _ => return Err("Unsupported key".into()),
    }
    Ok(())
}

/// Disables exactly these events.
fn disable(settings: &mut Settings, value: &str) -> Result<(), String> {
    let mut ids = BTreeSet::new();
    let mut odd = Vec::new();
    for text in words(value) {
        let id = text.parse().ok().filter(|id| EVENT_IDS.contains(id));
        let event = id.and_then(Event::of_id);
        match id {
            Some(id) if event.is_none_or(|event| event.descriptor().filterable) => {
                ids.insert(id);
            }
            _ => odd.push(text),
        }
    }
    if !odd.is_empty() {
        let odd = odd.join(",");
        return Err(format!("These are no events that can be disabled: [{odd}]"));
    }
    let filterable = Event::all().iter().filter(|one| one.filterable);
    settings.states.retain(|_, on| *on);
    settings.states.extend(filterable.map(|one| (one.id, true)));
    settings
        .states
        .extend(ids.into_iter().map(|id| (id, false)));
    Ok(())
}

/// Parses `NAME/DOMAIN`, separated by commas.
fn users(value: &str) -> Result<BTreeSet<UserId>, String> {
    let of = |text: &str| {
        let (user, domain) = text.rsplit_once('/')?;
        let known = audit::DOMAINS.contains(&domain) && !user.is_empty();
        known.then(|| UserId {
            domain: domain.to_owned(),
            user: user.to_owned(),
        })
    };
    let users: Option<BTreeSet<UserId>> = words(value).map(of).collect();
    users.ok_or_else(|| {
        "The value must be users as NAME/local or NAME/external, separated by commas".into()
    })
}

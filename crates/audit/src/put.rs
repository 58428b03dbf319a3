//! Events that clients bring.

use serde_json::{Value, json};

use crate::event::Event;
use crate::recorder::Recorder;
use crate::settings::{DOMAINS, UserId};

/// What every event has.
const MANDATORY: [&str; 2] = ["real_userid", "timestamp"];

/// Why an event is not taken. `Display` of it is for the client.
#[derive(Debug, PartialEq, Eq)]
pub enum PutError {
    /// There is no such event.
    UnknownEvent,
    /// It is no JSON object.
    NotJson,
    /// The user is no user.
    User,
    /// Fields are missing.
    Missing(Vec<&'static str>),
}

impl std::fmt::Display for PutError {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::UnknownEvent => to.write_str("Unknown event id"),
            Self::NotJson => to.write_str("the event is no JSON object"),
            Self::User => to.write_str("real_userid must have a domain and a user"),
            Self::Missing(names) => write!(to, "{}", json!({ "missing_elements": names })),
        }
    }
}

/// Records an event that a client brought, if it is recorded at all.
///
/// # Errors
/// It is not an event; which is not looked at while the audit is off, or the event disabled.
pub fn put(recorder: &Recorder, id: u32, value: &[u8]) -> Result<(), PutError> {
    if !recorder.is_on() {
        return Ok(());
    }
    let event = Event::of_id(id).ok_or(PutError::UnknownEvent)?;
    if !recorder.wants(event) {
        return Ok(());
    }
    let mut value: Value = serde_json::from_slice(value).map_err(|_| PutError::NotJson)?;
    let fields = value.as_object_mut().ok_or(PutError::NotJson)?;
    let missing = MANDATORY
        .into_iter()
        .filter(|name| !fields.contains_key(*name));
    let missing: Vec<&str> = missing.collect();
    if !missing.is_empty() {
        return Err(PutError::Missing(missing));
    }
    let user: Option<UserId> = serde_json::from_value(fields["real_userid"].clone()).ok();
    let known = |user: &UserId| DOMAINS.contains(&&*user.domain);
    let user = user.filter(known).ok_or(PutError::User)?;
    if !recorder.wants_of(event, &user.domain, &user.user) {
        return Ok(());
    }
    let about = event.descriptor();
    fields.insert("id".into(), about.id.into());
    fields.insert("name".into(), about.name.into());
    fields.insert("description".into(), about.description.into());
    recorder.submit(format!("{value}\n").into_bytes(), 1);
    Ok(())
}

//! Events sent by clients.

use serde_json::{Value, json};

use crate::event::Event;
use crate::recorder::Recorder;
use crate::settings::{DOMAINS, UserId};

/// Required fields of every event.
const MANDATORY: [&str; 2] = ["real_userid", "timestamp"];

/// Reason why an event is refused. Its `Display` text goes to the client.
#[derive(Debug, PartialEq, Eq)]
pub enum PutError {
    /// The event does not exist.
    UnknownEvent,
    /// The value is not a JSON object.
    NotJson,
    /// The field of the user is not valid.
    User,
    /// Required fields are missing.
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

/// Records an event of a client, if the event is enabled.
///
/// # Errors
/// The event is not valid. This is not checked while the audit is off or the event disabled.
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

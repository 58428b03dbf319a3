//! `/settings/clientCertAuth`: the use of client certificates, and the rules that find their users.
//!
//! Shape: `{"state":"enable","prefixes":[{"path":"subject.cn","prefix":"www.","delimiter":".,;"}]}`.

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use identity::{CertificateSettings, CertificateState, NamePath, NameRule};
use serde::Deserialize as _;
use serde_json::{Map, Value, json};

use super::answers::{self, HandlerResult};
use super::form::FieldErrors;
use super::node_settings;
use crate::state::HttpState;
use crate::view::ClusterChange;

/// Largest number of rules, as in the reference server.
const RULES_MAX: usize = 10;
/// Longest prefix or delimiter, bytes.
const TEXT_BYTES_MAX: usize = 256;

/// Returns the routes. Readers of security settings may read it; only full administrators may change it.
pub(super) fn routes() -> Router<HttpState> {
    Router::new().route("/settings/clientCertAuth", get(show).post(change))
}

async fn show(State(state): State<HttpState>) -> Response {
    answers::ok(&json!(state.view.identity().certificates()))
}

async fn change(State(state): State<HttpState>, body: Bytes) -> HandlerResult {
    let mut wrong = FieldErrors::new();
    let settings = read(&body, &mut wrong);
    answers::check_fields(&wrong)?;
    let change = ClusterChange {
        client_certificates: Some(settings),
        ..ClusterChange::default()
    };
    node_settings::change(&state, change).await?;
    Ok(StatusCode::OK.into_response())
}

fn read(body: &[u8], wrong: &mut FieldErrors) -> CertificateSettings {
    let mut settings = CertificateSettings::default();
    let Ok(Value::Object(fields)) = serde_json::from_slice(body) else {
        wrong.insert("_".into(), "The body must be a JSON object".into());
        return settings;
    };
    refuse_unknown("", &fields, &["prefixes", "state"], wrong);
    match fields.get("state").map(CertificateState::deserialize) {
        Some(Ok(state)) => settings.state = state,
        Some(Err(_)) => {
            let text = "The value must be one of the following: [disable, enable, mandatory]";
            wrong.insert("state".into(), text.into());
        }
        None => {
            wrong.insert("state".into(), "The value must be supplied".into());
        }
    }
    match fields.get("prefixes") {
        Some(Value::Array(rules)) if rules.len() <= RULES_MAX => {
            let rules = rules.iter().enumerate();
            settings.prefixes = rules
                .filter_map(|(at, rule)| read_rule(at, rule, wrong))
                .collect();
        }
        Some(Value::Array(_)) => {
            let text = format!("There may be {RULES_MAX} of them");
            wrong.insert("prefixes".into(), text.into());
        }
        Some(_) => {
            wrong.insert("prefixes".into(), "The value must be a list".into());
        }
        None if settings.state == CertificateState::Disable => {}
        None => {
            wrong.insert("prefixes".into(), "The value must be supplied".into());
        }
    }
    if wrong.is_empty() {
        check(&settings, wrong);
    }
    settings
}

/// Adds errors of rules that are valid one by one, but not together.
fn check(settings: &CertificateSettings, wrong: &mut FieldErrors) {
    let rules = &settings.prefixes;
    let same =
        |one: &NameRule, other: &NameRule| (one.path, &one.prefix) == (other.path, &other.prefix);
    let twice = |at: usize| rules[..at].iter().any(|other| same(&rules[at], other));
    let text = if settings.state != CertificateState::Disable && rules.is_empty() {
        "There must be one at least, unless the state is disable"
    } else if (0..rules.len()).any(twice) {
        "No two of them may have the same path and the same prefix"
    } else {
        return;
    };
    wrong.insert("prefixes".into(), text.into());
}

fn read_rule(at: usize, rule: &Value, wrong: &mut FieldErrors) -> Option<NameRule> {
    let within = format!("prefixes[{at}]");
    let Value::Object(fields) = rule else {
        wrong.insert(within, "The value must be a JSON object".into());
        return None;
    };
    refuse_unknown(
        &format!("{within}."),
        fields,
        &["delimiter", "path", "prefix"],
        wrong,
    );
    let path = fields.get("path").map(NamePath::deserialize);
    let path = path.and_then(Result::ok);
    if path.is_none() {
        let text =
            "The value must be one of the following: [subject.cn, san.dns, san.email, san.uri]";
        wrong.insert(format!("{within}.path"), text.into());
    }
    let mut text = |name: &str| {
        let given = fields.get(name).and_then(Value::as_str);
        let fits = |text: &&str| text.len() <= TEXT_BYTES_MAX && !text.contains(char::is_control);
        let fitting = given.filter(fits);
        if fitting.is_none() {
            let text = format!(
                "The value must be a text of at most {TEXT_BYTES_MAX} bytes, without control characters"
            );
            wrong.insert(format!("{within}.{name}"), text.into());
        }
        fitting.map(str::to_owned)
    };
    let (prefix, delimiter) = (text("prefix"), text("delimiter"));
    Some(NameRule {
        path: path?,
        prefix: prefix?,
        delimiter: delimiter?,
    })
}

fn refuse_unknown(
    within: &str,
    fields: &Map<String, Value>,
    known: &[&str],
    wrong: &mut FieldErrors,
) {
    for name in fields.keys().filter(|name| !known.contains(&&***name)) {
        wrong.insert(format!("{within}{name}"), "Unsupported key".into());
    }
}

//! `/settings/autoCompaction`, and the compaction settings of buckets.

use std::str::FromStr;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use registry::{AutoCompaction, CompactionHours, FragmentationLimit};
use serde_json::{Value, json};

use crate::answers::{self, HandlerResult};
use crate::form::{Form, fields};
use crate::node_settings;
use crate::state::HttpState;
use crate::view::ClusterChange;

const DAY_S: f64 = 86_400.0;
/// Allowed ages of tombstones, days.
const PURGE_DAYS: std::ops::RangeInclusive<f64> = 0.04..=60.0;
const UNDEFINED: &str = "undefined";

/// Names of the fields that are read, without brackets.
pub(super) const READ: [&str; 6] = [
    "parallelDBAndViewCompaction",
    "databaseFragmentationThreshold",
    "viewFragmentationThreshold",
    "magmaFragmentationPercentage",
    "allowedTimePeriod",
    "purgeInterval",
];
/// Fields of services that Settee does not have: every value is accepted.
const PASSED_OVER: [&str; 3] = [
    "indexCompactionMode",
    "indexCircularCompaction",
    "indexFragmentationThreshold",
];

/// Returns the routes for the settings of the node.
pub(super) fn routes() -> Router<HttpState> {
    Router::new()
        .route("/settings/autoCompaction", get(current).post(set))
        .route("/controller/setAutoCompaction", post(set))
}

async fn current(State(state): State<HttpState>) -> Response {
    let node = state.view.node();
    let settings = node.cluster.auto_compaction.unwrap_or_default();
    answers::ok(&json!({
        "autoCompactionSettings": to_json(&settings),
        "purgeInterval": days(settings.purge_s.unwrap_or(node.purge_age_s)),
    }))
}

async fn set(State(state): State<HttpState>, body: Bytes) -> HandlerResult {
    let mut form = Form::new(&body);
    let known = |name: &str| READ.contains(&name) || PASSED_OVER.contains(&name);
    for (name, _) in fields(&body).filter(|(name, _)| !known(base(name))) {
        form.complain(&name, "Unsupported key");
    }
    let settings = read(&mut form);
    answers::check_fields(&form.wrong)?;
    let change = ClusterChange {
        auto_compaction: Some(settings),
        ..ClusterChange::default()
    };
    node_settings::change(&state, change).await?;
    Ok(StatusCode::OK.into_response())
}

/// Returns a field's name without the part in brackets.
pub(super) fn base(name: &str) -> &str {
    name.split('[').next().unwrap_or_default()
}

/// Converts seconds to days, as clients set and read them.
#[expect(clippy::cast_precision_loss, reason = "days for display")]
fn days(seconds: u64) -> f64 {
    seconds as f64 / DAY_S
}

/// Returns the JSON form for clients, without the age of tombstones.
fn to_json(settings: &AutoCompaction) -> Value {
    let limit = |limit: &FragmentationLimit| {
        let or_undefined = |number: Option<u64>| number.map_or(json!(UNDEFINED), Value::from);
        json!({
            "percentage": or_undefined(limit.percent.map(u64::from)),
            "size": or_undefined(limit.bytes),
        })
    };
    let mut answer = json!({
        "parallelDBAndViewCompaction": settings.parallel,
        "databaseFragmentationThreshold": limit(&settings.database),
        "viewFragmentationThreshold": limit(&settings.views),
        "magmaFragmentationPercentage": settings.magma_percent,
    });
    if let Some(hours) = &settings.hours {
        answer["allowedTimePeriod"] = json!({
            "fromHour": hours.from.0,
            "fromMinute": hours.from.1,
            "toHour": hours.to.0,
            "toMinute": hours.to.1,
            "abortOutside": hours.abort_outside,
        });
    }
    answer
}

/// Reads a form. A missing limit means no limit; a missing age of tombstones means the default.
pub(super) fn read(form: &mut Form<'_>) -> AutoCompaction {
    let parallel = "parallelDBAndViewCompaction";
    if form.text(parallel).is_none() {
        form.complain(parallel, "parallelDBAndViewCompaction is missing");
    }
    let magma = "Magma fragmentation percentage must be an integer between 10 and 100";
    let purge = "Metadata purge interval must be a number between 0.04 and 60";
    let days = number(form, "purgeInterval", purge, |days| {
        PURGE_DAYS.contains(days)
    });
    let usual = AutoCompaction::default();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "days from 0.04 to 60"
    )]
    let seconds = |days: f64| (days * DAY_S).round() as u64;
    AutoCompaction {
        parallel: form.flag(parallel, false),
        database: limit(form, "databaseFragmentationThreshold"),
        views: limit(form, "viewFragmentationThreshold"),
        magma_percent: number(form, "magmaFragmentationPercentage", magma, |percent| {
            (10..=100).contains(percent)
        })
        .unwrap_or(usual.magma_percent),
        hours: hours(form),
        purge_s: days.map(seconds),
    }
}

/// Reads a field that is present and not `undefined`; `what` describes the allowed values in the complaint.
fn number<T: FromStr>(
    form: &mut Form<'_>,
    name: &str,
    what: &str,
    may_be: impl Fn(&T) -> bool,
) -> Option<T> {
    form.choice(name, None, what, |text| match text {
        UNDEFINED => Some(None),
        text => text.parse().ok().filter(&may_be).map(Some),
    })
}

fn limit(form: &mut Form<'_>, name: &str) -> FragmentationLimit {
    let percent = "Fragmentation percentage must be an integer between 2 and 100";
    let bytes = "Fragmentation size must be an integer of at least 1";
    FragmentationLimit {
        percent: number(form, &format!("{name}[percentage]"), percent, |value| {
            (2..=100).contains(value)
        }),
        bytes: number(form, &format!("{name}[size]"), bytes, |value| *value > 0),
    }
}

/// Reads all fields of the period, or none.
fn hours(form: &mut Form<'_>) -> Option<CompactionHours> {
    let given = fields(form.body).any(|(name, _)| base(&name) == "allowedTimePeriod");
    if !given {
        return None;
    }
    let mut time = |name: &str, most: u8| {
        let name = format!("allowedTimePeriod[{name}]");
        let what = format!("It must be an integer between 0 and {most}");
        let value = number(form, &name, &what, |value| *value <= most);
        if form.text(&name).is_none() {
            form.complain(&name, "It is missing");
        }
        value.unwrap_or_default()
    };
    let from = (time("fromHour", 23), time("fromMinute", 59));
    let to = (time("toHour", 23), time("toMinute", 59));
    Some(CompactionHours {
        from,
        to,
        abort_outside: form.flag("allowedTimePeriod[abortOutside]", false),
    })
}

/// Adds the settings of a bucket to its document, or that it has none.
pub(super) fn add_to_bucket(answer: &mut Value, own: Option<&AutoCompaction>) {
    answer["autoCompactionSettings"] = own.map_or(Value::Bool(false), to_json);
    if let Some(seconds) = own.and_then(|own| own.purge_s) {
        answer["purgeInterval"] = days(seconds).into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_shown_as_they_were_set() {
        let body = b"parallelDBAndViewCompaction=true&databaseFragmentationThreshold[percentage]=40\
                     &databaseFragmentationThreshold[size]=undefined&viewFragmentationThreshold[size]=1048576\
                     &magmaFragmentationPercentage=60&purgeInterval=0.5&allowedTimePeriod[fromHour]=1\
                     &allowedTimePeriod[fromMinute]=2&allowedTimePeriod[toHour]=3&allowedTimePeriod[toMinute]=4\
                     &allowedTimePeriod[abortOutside]=true";
        let mut form = Form::new(body);
        let settings = read(&mut form);
        assert!(form.wrong.is_empty(), "{:?}", form.wrong);
        assert_eq!(settings.purge_s, Some(43_200));
        let expected = json!({
            "parallelDBAndViewCompaction": true,
            "databaseFragmentationThreshold": { "percentage": 40, "size": "undefined" },
            "viewFragmentationThreshold": { "percentage": "undefined", "size": 1_048_576 },
            "magmaFragmentationPercentage": 60,
            "allowedTimePeriod": {
                "fromHour": 1, "fromMinute": 2, "toHour": 3, "toMinute": 4, "abortOutside": true,
            },
        });
        assert_eq!(to_json(&settings), expected);
    }

    #[test]
    fn each_wrong_field_has_its_reason() {
        for (body, field) in [
            ("purgeInterval=3", "parallelDBAndViewCompaction"),
            (
                "parallelDBAndViewCompaction=maybe",
                "parallelDBAndViewCompaction",
            ),
            (
                "parallelDBAndViewCompaction=true&purgeInterval=61",
                "purgeInterval",
            ),
            (
                "parallelDBAndViewCompaction=true&purgeInterval=NaN",
                "purgeInterval",
            ),
            (
                "parallelDBAndViewCompaction=true&databaseFragmentationThreshold[percentage]=1",
                "databaseFragmentationThreshold[percentage]",
            ),
            (
                "parallelDBAndViewCompaction=true&allowedTimePeriod[fromHour]=1",
                "allowedTimePeriod[toHour]",
            ),
            (
                "parallelDBAndViewCompaction=true&magmaFragmentationPercentage=9",
                "magmaFragmentationPercentage",
            ),
        ] {
            let mut form = Form::new(body.as_bytes());
            read(&mut form);
            assert!(form.wrong.contains_key(field), "{body}: {:?}", form.wrong);
        }
    }
}

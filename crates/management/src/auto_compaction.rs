//! `/settings/autoCompaction` and what buckets say of compaction.

use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use registry::{AutoCompaction, CompactionHours, FragmentationLimit};
use serde_json::{Value, json};

use crate::answers;
use crate::form::{FieldErrors, field, fields};
use crate::state::HttpState;
use crate::view::ClusterChange;

const DAY_S: f64 = 86_400.0;
/// Days that tombstones may be kept for.
const PURGE_DAYS: std::ops::RangeInclusive<f64> = 0.04..=60.0;
const UNDEFINED: &str = "undefined";

/// Fields that are read, without what stands in brackets.
pub(super) const READ: [&str; 6] = [
    "parallelDBAndViewCompaction",
    "databaseFragmentationThreshold",
    "viewFragmentationThreshold",
    "magmaFragmentationPercentage",
    "allowedTimePeriod",
    "purgeInterval",
];
/// Of services that are not here: whatever is said of their files is right.
const PASSED_OVER: [&str; 3] = [
    "indexCompactionMode",
    "indexCircularCompaction",
    "indexFragmentationThreshold",
];

/// Of the node as a whole.
pub(super) fn routes() -> Router<HttpState> {
    Router::new()
        .route("/settings/autoCompaction", get(told).post(set))
        .route("/controller/setAutoCompaction", post(set))
}

/// What the node as a whole does.
fn of_node(state: &HttpState) -> AutoCompaction {
    let node = state.view.node();
    let set = node.cluster.auto_compaction;
    set.unwrap_or_else(|| AutoCompaction::with_purge_age(node.purge_age_s))
}

async fn told(State(state): State<HttpState>) -> Response {
    let settings = of_node(&state);
    answers::ok(&json!({
        "autoCompactionSettings": to_json(&settings),
        "purgeInterval": purge_days(&settings),
    }))
}

async fn set(State(state): State<HttpState>, body: Bytes) -> Response {
    let mut wrong = FieldErrors::new();
    let known = |name: &str| READ.contains(&name) || PASSED_OVER.contains(&name);
    for (name, _) in fields(&body).filter(|(name, _)| !known(base(name))) {
        wrong.insert(name, "Unsupported key".into());
    }
    let settings = read(&body, &of_node(&state), &mut wrong);
    if let Some(refused) = answers::wrong_fields(&wrong) {
        return refused;
    }
    let change = ClusterChange {
        auto_compaction: Some(settings),
        ..ClusterChange::default()
    };
    let view = Arc::clone(&state.view);
    let done = state.users_turn.run(move || view.change_cluster(change));
    match done.await {
        Some(Ok(())) => StatusCode::OK.into_response(),
        Some(Err(error)) => {
            wrong.insert("_".into(), error.to_string().into());
            answers::wrong_fields(&wrong).unwrap_or_else(answers::not_found)
        }
        None => StatusCode::SERVICE_UNAVAILABLE.into_response(),
    }
}

/// A field's name without what stands in brackets.
pub(super) fn base(name: &str) -> &str {
    name.split('[').next().unwrap_or_default()
}

/// Days, as clients set and read them.
#[expect(clippy::cast_precision_loss, reason = "days for display")]
pub(super) fn purge_days(settings: &AutoCompaction) -> f64 {
    settings.purge_s as f64 / DAY_S
}

/// As clients read it, but for the age.
pub(super) fn to_json(settings: &AutoCompaction) -> Value {
    let limit = |limit: &FragmentationLimit| {
        let or_undefined = |number: Option<u64>| number.map_or(json!(UNDEFINED), Value::from);
        json!({
            "percentage": or_undefined(limit.percent.map(u64::from)),
            "size": or_undefined(limit.bytes),
        })
    };
    let mut told = json!({
        "parallelDBAndViewCompaction": settings.parallel,
        "databaseFragmentationThreshold": limit(&settings.database),
        "viewFragmentationThreshold": limit(&settings.views),
        "magmaFragmentationPercentage": settings.magma_percent,
    });
    if let Some(hours) = &settings.hours {
        told["allowedTimePeriod"] = json!({
            "fromHour": hours.from.0,
            "fromMinute": hours.from.1,
            "toHour": hours.to.0,
            "toMinute": hours.to.1,
            "abortOutside": hours.abort_outside,
        });
    }
    told
}

/// Reads a form: what it does not say has no limit, or stays as it is `now`.
pub(super) fn read(body: &[u8], now: &AutoCompaction, wrong: &mut FieldErrors) -> AutoCompaction {
    let mut form = Reader { body, wrong };
    let flag = |text: &str| text.parse().ok();
    let what = "The value must be either true or false";
    let parallel = form.number("parallelDBAndViewCompaction", what, flag);
    if parallel.is_none() {
        let missing = "parallelDBAndViewCompaction is missing";
        let name = "parallelDBAndViewCompaction".to_owned();
        form.wrong.entry(name).or_insert(missing.into());
    }
    let what = "Magma fragmentation percentage must be an integer between 10 and 100";
    let magma = form.number("magmaFragmentationPercentage", what, |text| {
        text.parse()
            .ok()
            .filter(|percent| (10..=100).contains(percent))
    });
    let what = "Metadata purge interval must be a number between 0.04 and 60";
    let purge = form.number("purgeInterval", what, |text| {
        text.parse().ok().filter(|days| PURGE_DAYS.contains(days))
    });
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "days from 0.04 to 60"
    )]
    let seconds = |days: f64| (days * DAY_S).round() as u64;
    AutoCompaction {
        parallel: parallel.unwrap_or_default(),
        database: form.limit("databaseFragmentationThreshold"),
        views: form.limit("viewFragmentationThreshold"),
        magma_percent: magma.unwrap_or(now.magma_percent),
        hours: form.hours(),
        purge_s: purge.map_or(now.purge_s, seconds),
    }
}

/// A form, and what is wrong with it.
struct Reader<'a> {
    body: &'a [u8],
    wrong: &'a mut FieldErrors,
}

impl Reader<'_> {
    /// A field that is there, not empty and not `undefined`; `what` says what it may be.
    fn number<T>(&mut self, name: &str, what: &str, read: impl Fn(&str) -> Option<T>) -> Option<T> {
        let text = field(self.body, name)?;
        if text.is_empty() || text == UNDEFINED {
            return None;
        }
        let value = read(&text);
        if value.is_none() {
            self.wrong.insert(name.into(), what.into());
        }
        value
    }

    fn limit(&mut self, name: &str) -> FragmentationLimit {
        let percent = "Fragmentation percentage must be an integer between 2 and 100";
        let bytes = "Fragmentation size must be an integer of at least 1";
        FragmentationLimit {
            percent: self.number(&format!("{name}[percentage]"), percent, |text| {
                text.parse().ok().filter(|value| (2..=100).contains(value))
            }),
            bytes: self.number(&format!("{name}[size]"), bytes, |text| {
                text.parse().ok().filter(|value| *value > 0)
            }),
        }
    }

    /// All of its fields, or none.
    fn hours(&mut self) -> Option<CompactionHours> {
        let given = fields(self.body).any(|(name, _)| base(&name) == "allowedTimePeriod");
        if !given {
            return None;
        }
        let mut time = |name: &str, most: u8| {
            let name = format!("allowedTimePeriod[{name}]");
            let what = format!("It must be an integer between 0 and {most}");
            let value = self.number(&name, &what, |text| {
                text.parse().ok().filter(|value| *value <= most)
            });
            if value.is_none() {
                self.wrong.entry(name).or_insert("It is missing".into());
            }
            value.unwrap_or_default()
        };
        let from = (time("fromHour", 23), time("fromMinute", 59));
        let to = (time("toHour", 23), time("toMinute", 59));
        let what = "The value must be either true or false";
        let abort = self.number("allowedTimePeriod[abortOutside]", what, |text| {
            text.parse().ok()
        });
        Some(CompactionHours {
            from,
            to,
            abort_outside: abort.unwrap_or_default(),
        })
    }
}

/// What a bucket tells: its own settings, or that it has none.
pub(super) fn add_to_bucket(told: &mut Value, own: Option<&AutoCompaction>) {
    told["autoCompactionSettings"] = own.map_or(Value::Bool(false), to_json);
    if let Some(own) = own {
        told["purgeInterval"] = purge_days(own).into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> AutoCompaction {
        AutoCompaction::with_purge_age(259_200)
    }

    #[test]
    fn what_is_set_is_told() {
        let body = b"parallelDBAndViewCompaction=true&databaseFragmentationThreshold[percentage]=40\
                     &databaseFragmentationThreshold[size]=undefined&viewFragmentationThreshold[size]=1048576\
                     &magmaFragmentationPercentage=60&purgeInterval=0.5&allowedTimePeriod[fromHour]=1\
                     &allowedTimePeriod[fromMinute]=2&allowedTimePeriod[toHour]=3&allowedTimePeriod[toMinute]=4\
                     &allowedTimePeriod[abortOutside]=true";
        let mut wrong = FieldErrors::new();
        let settings = read(body, &now(), &mut wrong);
        assert!(wrong.is_empty(), "{wrong:?}");
        assert_eq!(settings.purge_s, 43_200);
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
                "parallelDBAndViewCompaction=1",
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
            let mut wrong = FieldErrors::new();
            read(body.as_bytes(), &now(), &mut wrong);
            assert!(wrong.contains_key(field), "{body}: {wrong:?}");
        }
    }
}

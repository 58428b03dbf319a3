//! The page `docs/stats.md`.

use std::fmt::Write as _;

use super::bucket::STATES;
use super::dcp::{CONSUMERS, PREFIX_SUMS, PRODUCERS, STREAMS, TOTALS};
use super::groups::GROUPS;
use super::left_out::LEFT_OUT;
use super::lists::{all, bucket_rows};
use super::node::NODE;
use super::others::OTHERS;
use super::row::{About, Metric, Unit};
use super::vbuckets::VBUCKETS;

/// The page `docs/stats.md`: every group of statistics, every row, every metric.
#[must_use]
pub fn stats_page() -> String {
    let mut page = String::from(include_str!("head.md"));
    groups(&mut page);
    for group in GROUPS.iter().filter(|group| group.name != "reset") {
        let title = if group.name.is_empty() {
            "The general group"
        } else {
            group.name
        };
        add(&mut page, format_args!("\n## {title}\n\n{}.\n", group.help));
        add(
            &mut page,
            format_args!("\n| Key | Unit | Meaning |\n|---|---|---|\n"),
        );
        for (name, about) in rows_of(group.name) {
            let unit = about.unit.name();
            add(
                &mut page,
                format_args!("| `{name}` | {unit} | {} |\n", about.help),
            );
        }
    }
    left_out(&mut page);
    metrics(&mut page);
    page
}

fn left_out(page: &mut String) {
    add(page, format_args!("{}", include_str!("left_out_head.md")));
    for reason in LEFT_OUT {
        let keys: Vec<String> = reason.keys.iter().map(|key| format!("`{key}`")).collect();
        add(
            page,
            format_args!("| {} | {} |\n", keys.join(", "), reason.why),
        );
    }
}

fn groups(page: &mut String) {
    add(page, format_args!("\n## Groups\n\n"));
    add(
        page,
        format_args!(
            "| Group | Arguments | Needs a bucket | memcached port | Rows |\n|---|---|---|---|---|\n"
        ),
    );
    for group in GROUPS {
        let name = if group.name.is_empty() {
            "(none)".to_owned()
        } else {
            format!("`{}`", group.name)
        };
        let bucket = if group.of_bucket { "yes" } else { "no" };
        let memcached = if group.memcached { "yes" } else { "" };
        let (arguments, help) = (group.arguments, group.help);
        add(
            page,
            format_args!("| {name} | {arguments} | {bucket} | {memcached} | {help} |\n"),
        );
    }
}

/// Keys of a group as the page shows them.
pub(crate) fn rows_of(group: &str) -> Vec<(String, About)> {
    let in_group = |about: &About| about.groups.contains(&group);
    let plain = |about: About| (about.name.to_owned(), about);
    let mut rows = Vec::new();
    rows.extend(OTHERS.iter().copied().filter(in_group).map(plain));
    let bucket = bucket_rows().map(|row| row.about);
    rows.extend(bucket.filter(in_group).map(plain));
    let states = STATES.iter().map(|row| row.about).filter(in_group);
    rows.extend(states.map(|about| (format!("vb_STATE_{}", about.name), about)));
    let node = NODE.iter().map(|row| row.about);
    rows.extend(node.filter(in_group).map(plain));
    let vbuckets = VBUCKETS.iter().map(|row| row.about).filter(in_group);
    rows.extend(vbuckets.map(|about| (format!("vb_N:{}", about.name), about)));
    rows.extend(dcp_rows().filter(|(_, about)| in_group(about)));
    rows
}

fn dcp_rows() -> impl Iterator<Item = (String, About)> {
    let named =
        |prefix: &'static str| move |about: About| (format!("{prefix}{}", about.name), about);
    let producers = PRODUCERS.iter().map(|row| row.about);
    let consumers = CONSUMERS.iter().map(|row| row.about);
    let streams = STREAMS.iter().map(|row| row.about);
    let totals = TOTALS.iter().map(|row| row.about);
    let sums = PREFIX_SUMS.iter().map(|row| row.about);
    producers
        .map(named("eq_dcpq:NAME:"))
        .chain(consumers.map(named("eq_dcpq:CONSUMER:")))
        .chain(streams.map(named("eq_dcpq:NAME:stream_N_")))
        .chain(totals.map(named("")))
        .chain(sums.map(named("NAME:")))
}

fn metrics(page: &mut String) {
    add(page, format_args!("{}", include_str!("metrics_head.md")));
    for (about, metric) in all() {
        let Some(metric) = metric else { continue };
        let (kind, name) = match metric {
            Metric::Counter(name) => ("counter", full_name(name, about.unit, true)),
            Metric::Gauge(name) => ("gauge", full_name(name, about.unit, false)),
        };
        let labels = match metric {
            Metric::Gauge("bucket_vbuckets") => "`bucket`, `state`",
            Metric::Counter(name) | Metric::Gauge(name) if name.starts_with("bucket_") => {
                "`bucket`"
            }
            _ => "",
        };
        add(
            page,
            format_args!("| `{name}` | {kind} | {labels} | {} |\n", about.help),
        );
    }
}

fn full_name(name: &str, unit: Unit, counter: bool) -> String {
    let unit = match unit {
        Unit::Bytes => "_bytes",
        Unit::Seconds | Unit::Millis | Unit::Micros | Unit::Nanos => "_seconds",
        _ => "",
    };
    format!("settee_{name}{unit}{}", if counter { "_total" } else { "" })
}

fn add(page: &mut String, text: std::fmt::Arguments<'_>) {
    page.write_fmt(text).expect("a string takes everything");
}

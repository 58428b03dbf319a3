//! The generator of the page `docs/stats.md`.

use std::fmt::Write as _;

use super::bucket::STATES;
use super::cluster::CLUSTER;
use super::dcp::{CONSUMERS, PREFIX_SUMS, PRODUCERS, STREAMS, TOTALS};
use super::groups::{GROUPS, GROUPS_LEFT_OUT};
use super::left_out::{LEFT_OUT, LeftOut};
use super::lists::bucket_rows;
use super::node::NODE;
use super::others::OTHERS;
use super::row::{About, Metric, Statistic, Unit};
use super::vbuckets::VBUCKETS;
use crate::scope::StatPlace;

macro_rules! add {
    ($page:ident, $($text:tt)*) => {
        write!($page, $($text)*).expect("a string takes everything")
    };
}

/// Returns the page `docs/stats.md`: all groups of statistics, all rows, all metrics.
pub fn stats_page() -> String {
    let mut page = String::from(include_str!("head.md"));
    groups(&mut page);
    groups_left_out(&mut page);
    for group in GROUPS.iter().filter(|group| group.name != "reset") {
        let title = match group.name {
            "" => "The general group",
            name => name,
        };
        add!(page, "\n## {title}\n\n{}.\n", group.help);
        page += "\n| Key | Unit | Meaning |\n|---|---|---|\n";
        for (name, about) in rows_of(group.name) {
            add!(
                page,
                "| `{name}` | {} | {} |\n",
                about.unit.name(),
                about.help
            );
        }
    }
    page += include_str!("left_out_head.md");
    reasons(&mut page, LEFT_OUT);
    metrics(&mut page);
    page
}

fn reasons(page: &mut String, left_out: &[LeftOut]) {
    for LeftOut { why, keys } in left_out {
        let keys: Vec<String> = keys.iter().map(|key| format!("`{key}`")).collect();
        add!(page, "| {} | {why} |\n", keys.join(", "));
    }
}

fn groups(page: &mut String) {
    *page += "\n## Groups\n\n";
    *page += "| Group | Arguments | Needs a bucket | Privilege | memcached port | Rows |\n|---|---|---|---|---|---|\n";
    for group in GROUPS {
        let name = match group.name {
            "" => "(none)".to_owned(),
            name => format!("`{name}`"),
        };
        let bucket = if group.of_bucket { "yes" } else { "no" };
        let memcached = if group.memcached { "yes" } else { "" };
        let (arguments, help) = (group.arguments, group.help);
        let privilege = match group.place() {
            StatPlace::Node => format!("{}, on the node", group.privilege()),
            StatPlace::Collections => format!("{}, in the collection", group.privilege()),
            StatPlace::NodeOrBucket | StatPlace::Bucket => group.privilege().to_string(),
        };
        add!(
            page,
            "| {name} | {arguments} | {bucket} | {privilege} | {memcached} | {help} |\n"
        );
    }
}

fn groups_left_out(page: &mut String) {
    *page += "\nGroups of the reference for which there is nothing to tell; a request for one is refused with the reason.\n\n";
    *page += "| Groups | Why |\n|---|---|\n";
    reasons(page, GROUPS_LEFT_OUT);
}

/// Returns the rows of a group, with their keys as on the page.
pub(crate) fn rows_of(group: &str) -> Vec<(String, About)> {
    let others = OTHERS.iter().map(|about| (about.name.to_owned(), *about));
    others
        .chain(named("", bucket_rows()))
        .chain(named("vb_STATE_", STATES))
        .chain(named("", NODE))
        .chain(named("", CLUSTER))
        .chain(named("vb_N:", VBUCKETS))
        .chain(named("eq_dcpq:NAME:", PRODUCERS))
        .chain(named("eq_dcpq:CONSUMER:", CONSUMERS))
        .chain(named("eq_dcpq:NAME:stream_N_", STREAMS))
        .chain(named("", TOTALS))
        .chain(named("NAME:", PREFIX_SUMS))
        .filter(|(_, about)| about.groups.contains(&group))
        .collect()
}

fn named<F: 'static>(
    prefix: &str,
    rows: impl IntoIterator<Item = &'static Statistic<F>>,
) -> impl Iterator<Item = (String, About)> {
    let name = move |about: About| (format!("{prefix}{}", about.name), about);
    rows.into_iter().map(move |row| name(row.about))
}

fn metrics(page: &mut String) {
    fn with_name<F: 'static>(
        rows: impl IntoIterator<Item = &'static Statistic<F>>,
    ) -> impl Iterator<Item = (About, Metric)> {
        let rows = rows.into_iter();
        rows.filter_map(|row| Some((row.about, row.metric?)))
    }
    *page += include_str!("metrics_head.md");
    let bucket = with_name(bucket_rows()).chain(with_name(STATES));
    let node = with_name(NODE).chain(with_name(CLUSTER));
    for (about, metric) in bucket.chain(node) {
        let (kind, name, total) = match metric {
            Metric::Counter(name) => ("counter", name, "_total"),
            Metric::Gauge(name) => ("gauge", name, ""),
        };
        let labels = match name {
            "bucket_vbuckets" => "`bucket`, `state`",
            name if name.starts_with("bucket_") => "`bucket`",
            _ => "",
        };
        let unit = match about.unit {
            Unit::Bytes => "_bytes",
            Unit::Seconds | Unit::Millis | Unit::Micros | Unit::Nanos => "_seconds",
            _ => "",
        };
        add!(
            page,
            "| `settee_{name}{unit}{total}` | {kind} | {labels} | {} |\n",
            about.help
        );
    }
}

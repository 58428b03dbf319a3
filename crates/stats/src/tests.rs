//! Tests of the catalogue against the answers of the reference, and against the page.

use std::collections::BTreeSet;

use crate::catalogue::{GROUPS, GROUPS_LEFT_OUT, LEFT_OUT, rows_of};
use crate::rows::{Hex, Rows};
use crate::scope::StatError;
use crate::stats_page;
use crate::vbuckets::number;

/// Returns group and key of all answers of a reference server of 2021 in groups of this node, in the form of the
/// catalogue.
fn reference() -> Vec<(&'static str, &'static str)> {
    let (mut group, mut found) = ("", Vec::new());
    for line in include_str!("reference.txt").lines() {
        match line.strip_prefix("# ") {
            Some("(none)") => group = "",
            Some(name) => group = name,
            None => found.extend(line.split(", ").map(|key| (group, key))),
        }
    }
    found
}

/// Whether a pattern of [`LEFT_OUT`] matches a key of a group.
fn covers(pattern: &str, group: &str, key: &str) -> bool {
    let pattern = match pattern.split_once(' ') {
        Some((only, _)) if only != group => return false,
        Some((_, pattern)) => pattern,
        None => pattern,
    };
    match (pattern.strip_prefix('*'), pattern.strip_suffix('*')) {
        (Some(end), _) => key.ends_with(end),
        (None, Some(beginning)) => key.starts_with(beginning),
        (None, None) => key == pattern,
    }
}

#[test]
fn reference_keys_are_served_or_left_out_with_reason() {
    let patterns = || LEFT_OUT.iter().flat_map(|reason| reason.keys);
    let mut used: BTreeSet<&str> = BTreeSet::new();
    let served: BTreeSet<(&str, String)> = GROUPS
        .iter()
        .flat_map(|group| {
            rows_of(group.name)
                .into_iter()
                .map(|row| (group.name, row.0))
        })
        .collect();
    for (group, key) in reference() {
        assert!(
            GROUPS.iter().any(|one| one.name == group),
            "no group {group}"
        );
        let excuses: Vec<_> = patterns()
            .filter(|pattern| covers(pattern, group, key))
            .collect();
        let answered = served.contains(&(group, key.to_owned()));
        assert!(
            excuses.len() + usize::from(answered) == 1,
            "`{group}` {key}: answered {answered}, left out by {excuses:?}"
        );
        used.extend(excuses);
    }
    for pattern in patterns() {
        assert!(used.contains(pattern), "{pattern} is about nothing");
    }
}

#[test]
fn stats_page_is_up_to_date() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/stats.md");
    let written = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        written == stats_page(),
        "run: cargo run -p settee -- stats-catalogue > docs/stats.md"
    );
}

#[test]
fn known_groups_are_served_or_left_out_with_reason() {
    // Groups that `cbstats` and other tools request.
    let asked = "audit bucket_details connections client_connection_details clocks json_validate \
        snappy_decompress subdoc_execute responses tracing allocator scopes scopes-byid scopes-details \
        collections collections-byid collections-details manifest tasks-all external-auth-timings uuid dcpagg dcp \
        encryption-key-ids eviction hash vbucket prev-vbucket vbucket-durability-state vbucket-details \
        vbucket-seqno checkpoint durability-monitor timings frequency-counters dispatcher tasks scheduler runtimes \
        memory key key-byid vkey vkey-byid kvtimings kvstore warmup info config dcp-vbtakeover workload failovers \
        diskinfo disk-failures disk-slowness range-scans stat-timings threads settings worker_thread_info tap \
        tapagg slabs sizes items detail cachedump";
    for name in asked.split_whitespace() {
        let served = GROUPS.iter().filter(|group| group.name == name);
        let left_out = GROUPS_LEFT_OUT.iter();
        let left_out = left_out.filter(|reason| reason.keys.contains(&name));
        assert_eq!(served.count() + left_out.count(), 1, "{name}");
    }
}

#[test]
fn vbuckets_out_of_range_are_told_from_words() {
    let refused = [
        ("65536", "the vBucket is out of range"),
        ("99999", "the vBucket is out of range"),
        ("-1", "the vBucket is not a number"),
        ("x", "the vBucket is not a number"),
    ];
    for (word, reason) in refused {
        assert_eq!(number(word), Err(StatError::Argument(reason)), "{word}");
    }
    assert_eq!(number("1024").map(|vb| vb.0), Ok(1024));
}

#[test]
fn rows_are_prefix_name_and_value() {
    let mut told = Vec::new();
    let mut sink = |key: &str, value: &str| told.push(format!("{key}={value}"));
    let mut rows = Rows::new(&mut sink);
    rows.prefix(("vb_", 1023_u16, ":", Hex(0x3ef), ":"));
    rows.row("scope", Hex(0));
    rows.row("items", 9_u64);
    rows.row((Hex(u32::MAX), ":", Hex(0x10)), 10_u64);
    rows.prefix("");
    rows.row("name", "");
    let expected = [
        "vb_1023:0x3ef:scope=0x0",
        "vb_1023:0x3ef:items=9",
        "vb_1023:0x3ef:0xffffffff:0x10=10",
        "name=",
    ];
    assert_eq!(told, expected);
}

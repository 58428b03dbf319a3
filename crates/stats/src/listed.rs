//! Writes the rows of the catalogue.

use model::VbState;

use crate::catalogue::{BucketRow, NODE, NodeRow, STATES, bucket_rows as all_bucket_rows};
use crate::figures::{BucketFigures, NodeFigures};
use crate::rows::Rows;

/// Writes the rows of a bucket in a group.
pub(crate) fn bucket_rows(group: &str, figures: &BucketFigures<'_>, rows: &mut Rows<'_, '_>) {
    let in_group = |row: &&BucketRow| row.about.groups.contains(&group);
    for row in all_bucket_rows().filter(in_group) {
        rows.value(row.about.name, &(row.value)(figures));
    }
}

/// Writes the rows of the node in a group.
pub(crate) fn node_rows(group: &str, figures: &NodeFigures<'_>, rows: &mut Rows<'_, '_>) {
    let in_group = |row: &&NodeRow| row.about.groups.contains(&group);
    for row in NODE.iter().filter(in_group) {
        rows.value(row.about.name, &(row.value)(figures));
    }
}

/// Writes the rows of all vBuckets by state, except dead ones.
pub(crate) fn state_rows(figures: &BucketFigures<'_>, rows: &mut Rows<'_, '_>) {
    let states = figures.sums().states().into_iter();
    for (state, sums) in states.filter(|(state, _)| *state != VbState::Dead.name()) {
        rows.prefix(format_args!("vb_{state}_"));
        for row in STATES {
            rows.value(row.about.name, &(row.value)(sums));
        }
    }
    rows.prefix("");
}

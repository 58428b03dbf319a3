//! Style as a test: what the documents promise about the source, checked.
//!
//! Each check looks at one promise, counts what it looked at and says every breach by itself, so
//! that one run shows all of them.

mod circles;
mod conformance;
mod dependencies;
mod documents;
mod doors;
mod findings;
mod graph;
mod orphans;
mod sizes;
mod text;
mod words;

use anyhow::Result;

use crate::workspace::Workspace;
use findings::Findings;

type Check = fn(&Workspace, &mut Findings) -> Result<()>;

const CHECKS: [(&str, Check); 15] = [
    ("sizes", sizes::check),
    ("crate graph", graph::check),
    ("crate rules", graph::check_rules),
    ("module circles", circles::check),
    ("upward imports", circles::check_upward),
    ("dependencies", dependencies::check),
    ("no unsafe code", text::check_unsafe),
    ("source text", text::check_text),
    ("doors", doors::check),
    ("orphan files", orphans::check),
    ("decision records", documents::check_records),
    ("performance page", documents::check_performance),
    ("documents", documents::check_links),
    ("conformance", conformance::check),
    ("words", words::check),
];

/// Runs all checks and prints them; `true` when every promise holds.
pub(crate) fn run(workspace: &Workspace) -> Result<bool> {
    let (passed, failed) = count(workspace)?;
    println!("tidy: {passed} passed, {failed} failed");
    Ok(failed == 0)
}

/// The same, for a caller that adds up: how many checks passed and failed.
pub(crate) fn count(workspace: &Workspace) -> Result<(usize, usize)> {
    let mut failed = 0;
    for (name, check) in CHECKS {
        let mut findings = Findings::default();
        check(workspace, &mut findings)?;
        let held = findings.breaches.is_empty();
        println!(
            "{} {name}: {}",
            if held { "ok  " } else { "FAIL" },
            findings.summary
        );
        for breach in &findings.breaches {
            println!("     {breach}");
        }
        failed += usize::from(!held);
    }
    Ok((CHECKS.len() - failed, failed))
}

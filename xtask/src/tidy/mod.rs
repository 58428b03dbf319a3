//! Style as a test: checks the promises of the documents about the source.
//!
//! Each check verifies one promise, counts the checked items and prints every breach, so that one run shows all
//! breaches.

mod circles;
mod conformance;
mod dependencies;
mod documents;
mod doors;
mod findings;
mod graph;
mod names;
mod orphans;
mod sizes;
mod text;
mod words;

use anyhow::Result;

use crate::workspace::Workspace;
use findings::Findings;

type Check = fn(&Workspace, &mut Findings) -> Result<()>;

const CHECKS: [(&str, Check); 16] = [
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
    ("names of types", names::check),
];

/// Runs all checks and prints the results; returns `true` if all pass.
pub(crate) fn run(workspace: &Workspace) -> Result<bool> {
    let (passed, failed) = count(workspace)?;
    println!("tidy: {passed} passed, {failed} failed");
    Ok(failed == 0)
}

/// Runs all checks and prints the results; returns the numbers of passed and failed checks.
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

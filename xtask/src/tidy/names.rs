//! Names of types that a search finds: one type of a name in a crate, two in the workspace at most.

use std::collections::BTreeMap;

use anyhow::Result;

use super::findings::Findings;
use super::sizes::{is_test_file, lines_without_tests};
use crate::workspace::Workspace;

/// Number of types in the workspace that may have the same name.
const SAME_NAME_MAX: usize = 2;

/// Checks the names of all structures, enumerations and traits outside of tests.
pub(super) fn check(workspace: &Workspace, findings: &mut Findings) -> Result<()> {
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for path in workspace.files(&["rs"])? {
        let file = path.to_string_lossy().into_owned();
        if !file.starts_with("crates/") || is_test_file(&file) {
            continue;
        }
        let source = workspace.read(&path)?;
        let lines = source.lines().take(lines_without_tests(&source));
        for name in lines.filter_map(defined_type) {
            places
                .entry(name.to_owned())
                .or_default()
                .push(file.clone());
        }
    }
    for (name, files) in &places {
        let crate_of = |file: &String| file.split('/').nth(1).map(str::to_owned);
        let mut crates: Vec<_> = files.iter().map(crate_of).collect();
        crates.dedup();
        if files.len() > SAME_NAME_MAX || crates.len() < files.len() {
            findings.breach(format!("{name}: {}", files.join(", ")));
        }
    }
    findings.summary(format!("{} names of types", places.len()));
    Ok(())
}

/// Returns the name of the type that a line begins to define.
fn defined_type(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let visible = line.strip_prefix("pub").map_or(line, |rest| {
        let restricted = rest.strip_prefix('(').and_then(|rest| rest.split_once(')'));
        restricted.map_or(rest, |(_, rest)| rest).trim_start()
    });
    let (keyword, rest) = visible.split_once(' ')?;
    let name = rest.split(|c: char| !c.is_alphanumeric()).next()?;
    matches!(keyword, "struct" | "enum" | "trait").then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definitions_of_types_are_found() {
        assert_eq!(defined_type("pub(super) struct Row<'a> {"), Some("Row"));
        assert_eq!(defined_type("    enum Part {"), Some("Part"));
        assert_eq!(defined_type("pub trait Env: Send {"), Some("Env"));
        assert_eq!(defined_type("/// struct Row"), None);
        assert_eq!(defined_type("type Row = [i16; 4];"), None);
        assert_eq!(defined_type("impl Row {"), None);
    }
}

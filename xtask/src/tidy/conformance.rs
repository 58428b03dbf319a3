//! Checks that the tests exist that the pages on conformance and `docs/bugs.md` name.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;

use super::findings::Findings;
use crate::workspace::Workspace;

const PAGES: [&str; 4] = [
    "docs/conformance.md",
    "docs/conformance-faults.md",
    "docs/conformance-clusters.md",
    "docs/bugs.md",
];

/// Folder of the test scripts; the names of these tests are the file names.
const SCRIPTS: &str = "crates/engine/tests/it/scripts";

/// Checks that every name in the second column of a table is a test.
pub(super) fn check(workspace: &Workspace, findings: &mut Findings) -> Result<()> {
    let tests = Tests::collect(workspace)?;
    let (mut lines, mut names) = (0, 0);
    for page in PAGES {
        let text = workspace.read(page)?;
        let rows = text.lines().filter(|line| line.starts_with("| "));
        for row in rows.filter(|row| !row.ends_with("| Shown by |")) {
            lines += 1;
            let Some((what, shown)) = row.trim_matches(['|', ' ']).split_once(" | ") else {
                findings.breach(format!("{page}: not two columns: {row}"));
                continue;
            };
            let quotes = quoted(shown);
            let excused = ["not built", "does not apply"]
                .iter()
                .any(|excuse| shown.starts_with(excuse));
            if quotes.is_empty() && !excused {
                findings.breach(format!("{page}: no test for: {what}"));
            }
            names += quotes.len();
            let unknown = quotes.into_iter().filter(|name| !tests.has(name));
            unknown.for_each(|name| findings.breach(format!("{page}: there is no test {name}")));
        }
    }
    if lines == 0 {
        findings.breach("no line names a test");
    }
    findings.summary(format!("{lines} lines, {names} tests"));
    Ok(())
}

/// Returns the texts between backquotes.
fn quoted(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

/// Names of all tests, by the prefix before `::`.
#[derive(Default)]
struct Tests(BTreeMap<String, BTreeSet<String>>);

impl Tests {
    fn collect(workspace: &Workspace) -> Result<Self> {
        let mut tests = Self::default();
        for path in workspace.files(&["rs", "py", "go", "mjs", "java", "txt"])? {
            let mut folders = path
                .components()
                .map(|part| part.as_os_str().to_string_lossy());
            let (Some(top), Some(owner)) = (folders.next(), folders.next()) else {
                continue;
            };
            if path.starts_with(SCRIPTS) {
                let name = path.file_stem().unwrap_or_default().to_string_lossy();
                tests.add("script", &name);
            } else if &*top == "crates" && path.extension().is_some_and(|e| e == "rs") {
                let text = workspace.read(&path)?;
                rust_tests(&text).for_each(|name| tests.add(&owner, name));
            } else if &*top == "conformance" {
                let text = workspace.read(&path)?;
                suite_tests(&text).for_each(|name| tests.add(&owner, name));
            }
        }
        Ok(tests)
    }

    fn add(&mut self, owner: &str, name: &str) {
        self.0
            .entry(owner.to_owned())
            .or_default()
            .insert(name.to_owned());
    }

    /// Whether the test, or the suite, exists.
    fn has(&self, name: &str) -> bool {
        match name.split_once("::") {
            Some((owner, test)) => self.0.get(owner).is_some_and(|tests| tests.contains(test)),
            None => self.0.contains_key(name),
        }
    }
}

/// Returns the names of functions with `#[test]`.
fn rust_tests(text: &str) -> impl Iterator<Item = &str> {
    let mut marked = false;
    text.lines().filter_map(move |line| {
        let line = line.trim();
        if line.starts_with("#[") {
            marked |= line.contains("test]") || line.contains("::test");
            return None;
        }
        let name = line.split("fn ").nth(1)?.split(['(', '<']).next()?;
        std::mem::take(&mut marked).then_some(name)
    })
}

/// Returns the names of tests in suites: `def name(` in Python, `async name(` in JavaScript, `"name"` elsewhere.
fn suite_tests(text: &str) -> impl Iterator<Item = &str> {
    text.lines().flat_map(|line| {
        let function = line
            .strip_prefix("def ")
            .or(line.trim_start().strip_prefix("async "))
            .and_then(|rest| rest.split('(').next());
        function
            .into_iter()
            .chain(line.split('"').skip(1).step_by(2))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_found_by_their_mark() {
        let text = "#[test]\n#[ignore]\nfn one() {}\nfn helper() {}\n  #[tokio::test]\n  async fn two() {}";
        assert_eq!(rust_tests(text).collect::<Vec<_>>(), ["one", "two"]);
        let text = "def a_test(world):\n\t{\"another\", f},\n  async third({ c }) {";
        let names: Vec<_> = suite_tests(text).collect();
        assert_eq!(names, ["a_test", "another", "third"]);
        assert_eq!(quoted("see `a` and `b::c`."), ["a", "b::c"]);
    }
}

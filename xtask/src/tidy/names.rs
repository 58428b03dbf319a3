//! Names on disk: one module creates, renames and removes them, because it syncs their directories.

use std::path::Path;

use anyhow::Result;

use super::Findings;
use crate::workspace::Workspace;

/// The module.
const MODULE: &str = "crates/storage/src/disk/names.rs";

/// Files that may do it by themselves: nothing depends on what they make after a power cut.
const EXCEPTIONS: [&str; 2] = [
    "crates/settee/src/serve/ports_file.rs",
    "crates/storage/src/disk/links.rs",
];

/// What changes names.
const CHANGES: [&str; 10] = [
    "fs::rename(",
    "fs::write(",
    "fs::copy(",
    "fs::hard_link(",
    "symlink(",
    "fs::create_dir",
    "fs::remove_",
    "File::create",
    ".create(true)",
    ".create_new(true)",
];

/// Outside of tests, nothing but [`MODULE`] changes names.
pub(super) fn check(workspace: &Workspace, findings: &mut Findings) -> Result<()> {
    let mut looked = 0;
    for path in workspace.files(&["rs"])? {
        let name = path.to_string_lossy();
        if name == MODULE || EXCEPTIONS.contains(&name.as_ref()) || !is_product(&path) {
            continue;
        }
        looked += 1;
        let text = workspace.read(&path)?;
        for (number, change) in changes(&text) {
            findings.breach(format!(
                "{name}:{number}: `{change}`: `storage::names` does that"
            ));
        }
    }
    findings.summary(format!("{looked} files, {} may", EXCEPTIONS.len() + 1));
    Ok(())
}

fn is_product(path: &Path) -> bool {
    let name = path.to_string_lossy();
    let in_source = name.starts_with("crates/") && name.contains("/src/");
    in_source
        && !name.contains("/tests/")
        && !name.ends_with("/tests.rs")
        && !name.contains("/testing")
}

/// Lines of the product that change names. A test module is the last thing in a file.
fn changes(text: &str) -> Vec<(usize, &'static str)> {
    let product = text.lines().take_while(|line| *line != "#[cfg(test)]");
    let found = product.enumerate().filter_map(|(at, line)| {
        let code = line.split("//").next().unwrap_or_default();
        let change = CHANGES.into_iter().find(|change| code.contains(change))?;
        Some((at + 1, change))
    });
    found.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_outside_of_tests_are_found() {
        let text = "fn a() {\n    fs::rename(a, b)?; // fs::write(\n}\n#[cfg(test)]\nmod tests { fs::write(a) }";
        assert_eq!(changes(text), [(2, "fs::rename(")]);
        assert!(is_product(Path::new("crates/server/src/node/data_dir.rs")));
        assert!(!is_product(Path::new(
            "crates/server/src/node/tests/mod.rs"
        )));
    }
}

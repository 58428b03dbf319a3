//! Checks that every source file is compiled.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::Result;

use super::findings::Findings;
use crate::workspace::Workspace;

/// Checks that every `.rs` file is the root of a target, or is declared as a module by a file that is compiled.
pub(super) fn check(workspace: &Workspace, findings: &mut Findings) -> Result<()> {
    let mut reached = BTreeSet::new();
    for package in workspace.members() {
        for target in &package.targets {
            reach(target.src_path.as_std_path(), true, &mut reached)?;
        }
    }
    let stores = workspace.root.join("bench/stores/src/main.rs");
    reach(&stores, true, &mut reached)?;
    let fuzz_manifest = workspace.read("fuzz/Cargo.toml").unwrap_or_default();
    let files = workspace.files(&["rs"])?;
    for relative in &files {
        let path = workspace.root.join(relative);
        let fuzz = relative
            .strip_prefix("fuzz")
            .is_ok_and(|inside| fuzz_manifest.contains(&*inside.to_string_lossy()));
        if !reached.contains(&path) && !fuzz {
            findings.breach(format!(
                "{}: nothing compiles this file",
                relative.display()
            ));
        }
    }
    findings.summary(format!("{} files", files.len()));
    Ok(())
}

/// Follows the module declarations of `file`.
fn reach(file: &Path, is_root: bool, reached: &mut BTreeSet<PathBuf>) -> Result<()> {
    if !reached.insert(file.to_path_buf()) {
        return Ok(());
    }
    let source = std::fs::read_to_string(file)?;
    let parent = file.parent().unwrap_or(Path::new(""));
    let folder = if is_root || file.file_name().is_some_and(|name| name == "mod.rs") {
        parent.to_path_buf()
    } else {
        file.with_extension("")
    };
    let mut path_attribute: Option<PathBuf> = None;
    for line in source.lines().map(str::trim) {
        if let Some(path) = between(line, "#[path = \"", "\"]") {
            path_attribute = Some(parent.join(path));
        } else if let Some(module) = declared_module(line) {
            let candidates = path_attribute.take().map_or_else(
                || {
                    vec![
                        folder.join(format!("{module}.rs")),
                        folder.join(module).join("mod.rs"),
                    ]
                },
                |path| vec![path],
            );
            for candidate in candidates.iter().filter(|candidate| candidate.is_file()) {
                reach(candidate, false, reached)?;
            }
        }
    }
    Ok(())
}

/// Returns the name in `mod NAME;`, with any visibility.
fn declared_module(line: &str) -> Option<&str> {
    let (before, after) = line.split_once("mod ")?;
    let visibility = before.trim();
    let visible = visibility.is_empty() || visibility.starts_with("pub");
    visible.then(|| after.strip_suffix(';')).flatten()
}

fn between<'a>(text: &'a str, start: &str, end: &str) -> Option<&'a str> {
    text.strip_prefix(start)?.strip_suffix(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn module_declarations_are_found() {
        assert_eq!(declared_module("mod a;"), Some("a"));
        assert_eq!(declared_module("pub(crate) mod a_b;"), Some("a_b"));
        assert_eq!(declared_module("mod tests {"), None);
        assert_eq!(declared_module("let x = 1;"), None);
    }
}

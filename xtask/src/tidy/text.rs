//! Checks the text of sources: ASCII, no notes to self, no unsafe code.

use std::path::Path;

use anyhow::Result;

use super::findings::Findings;
use crate::workspace::Workspace;

/// Extensions of source files, which must be ASCII. Tests write other characters as escapes.
const SOURCE: [&str; 8] = ["rs", "py", "go", "java", "mjs", "js", "toml", "sh"];

/// Notes that belong in an issue or a decision record. Split in halves, since this file is checked too.
const NOTES: [&str; 3] = [
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("XX", "X:"),
];

/// Checks that no file has unsafe code.
pub(super) fn check_unsafe(workspace: &Workspace, findings: &mut Findings) -> Result<()> {
    let mut files = workspace.files(&["rs"])?;
    // The benchmarks of other stores are not part of the node, and map files into memory.
    files.retain(|path| !path.starts_with("bench"));
    for path in &files {
        for (index, line) in workspace.read(path)?.lines().enumerate() {
            if holds_unsafe(line) {
                findings.breach(format!("{}:{}: unsafe code", path.display(), index + 1));
            }
        }
    }
    findings.summary(format!("{} files", files.len()));
    Ok(())
}

/// Whether a line of code opens an unsafe block, function, implementation or attribute.
fn holds_unsafe(line: &str) -> bool {
    const WORD: &str = concat!("uns", "afe");
    let code = line.split("//").next().unwrap_or_default();
    code.match_indices(WORD).any(|(at, _)| {
        let before = code[..at].chars().next_back();
        let after = code[at + WORD.len()..].trim_start();
        let starts = before.is_none_or(|c| !c.is_alphanumeric() && c != '_' && c != '"');
        let opens = ["{", "fn ", "impl ", "trait ", "extern ", "("]
            .iter()
            .any(|o| after.starts_with(o));
        starts && opens
    })
}

/// Checks that sources are ASCII and have no notes to self.
pub(super) fn check_text(workspace: &Workspace, findings: &mut Findings) -> Result<()> {
    let files = workspace.files(&SOURCE)?;
    for path in &files {
        let text = workspace.read(path)?;
        for (index, line) in text.lines().enumerate() {
            if let Some(what) = offence(line) {
                findings.breach(format!("{}:{}: {what}", path.display(), index + 1));
            }
        }
        if path.extension().is_some_and(|e| e == "rs") {
            require_crate_docs(path, &text, findings);
        }
    }
    findings.summary(format!("{} files", files.len()));
    Ok(())
}

fn offence(line: &str) -> Option<String> {
    if let Some(strange) = line.chars().find(|c| !c.is_ascii()) {
        return Some(format!("`{strange}` is not ASCII"));
    }
    let note = NOTES.iter().find(|note| line.contains(*note))?;
    Some(format!(
        "a {} belongs into an issue",
        note.trim_end_matches(':')
    ))
}

/// Checks that a crate or module begins with a sentence of documentation.
fn require_crate_docs(path: &Path, text: &str, findings: &mut Findings) {
    let name = path.to_string_lossy();
    let of_crate = name.starts_with("crates/") && name.contains("/src/");
    let is_tests = name.ends_with("/tests.rs") || name.contains("/tests/");
    if of_crate && !is_tests && !text.trim_start().starts_with("//!") {
        findings.breach(format!(
            "{name}: opens without a `//!` sentence on what it is"
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsafe_is_code_not_a_word() {
        assert!(holds_unsafe(concat!("    uns", "afe { *p }")));
        assert!(holds_unsafe(concat!("pub uns", "afe fn f() {}")));
        assert!(!holds_unsafe(concat!("// uns", "afe { }")));
        assert!(!holds_unsafe(concat!("uns", "afe_code = forbid")));
    }

    #[test]
    fn notes_and_strange_characters_offend() {
        assert!(offence("plain").is_none());
        assert!(offence(NOTES[0]).is_some());
        assert!(offence("caf\u{e9}").is_some());
    }
}

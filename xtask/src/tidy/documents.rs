//! Documents that must keep a form or agree with the program.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use super::findings::Findings;
use crate::bench::{page, results};
use crate::workspace::Workspace;

/// Headings of a decision record, in this order.
const RECORD_HEADINGS: [&str; 5] = [
    "Context",
    "Decision",
    "Consequences",
    "Alternatives",
    "Revisit when",
];

/// A decision record is one page.
const RECORD_LINES_MAX: usize = 70;

/// The page of figures is a few tables, not a diary.
const PERFORMANCE_LINES_MAX: usize = 200;

/// Every decision record has its number and its headings, and fits a page.
pub(super) fn check_records(workspace: &Workspace, findings: &mut Findings) -> Result<()> {
    let records: Vec<PathBuf> = workspace
        .files(&["md"])?
        .into_iter()
        .filter(|path| path.starts_with("docs/adr"))
        .collect();
    for (index, path) in records.iter().enumerate() {
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let number = index + 1;
        if !name.starts_with(&format!("{number:04}-")) {
            findings.breach(format!(
                "{name}: record {number:04} is expected here; numbers have no gaps"
            ));
        }
        let text = workspace.read(path)?;
        if !text.starts_with(&format!("# {number}. ")) {
            findings.breach(format!("{name}: opens with `# {number}. Title`"));
        }
        let headings: Vec<&str> = text
            .lines()
            .filter_map(|line| line.strip_prefix("## "))
            .collect();
        if headings != RECORD_HEADINGS {
            findings.breach(format!(
                "{name}: headings are {headings:?}, expected {RECORD_HEADINGS:?}"
            ));
        }
        let lines = text.lines().count();
        if lines > RECORD_LINES_MAX {
            findings.breach(format!("{name}: {lines} lines, at most {RECORD_LINES_MAX}"));
        }
    }
    if records.is_empty() {
        findings.breach("docs/adr holds no decision record");
    }
    findings.summary(format!("{} records", records.len()));
    Ok(())
}

/// `docs/compatibility.md` is what the program's opcode table generates.
pub(super) fn check_compatibility(workspace: &Workspace, findings: &mut Findings) -> Result<()> {
    let path = Path::new("docs/compatibility.md");
    if !workspace.root.join(path).is_file() {
        findings.summary("no table");
        findings.breach(
            "docs/compatibility.md is missing: `settee compat-table > docs/compatibility.md`",
        );
        return Ok(());
    }
    let written = workspace.read(path)?;
    let rows = written
        .lines()
        .filter(|line| line.starts_with("| 0x") || line.starts_with("| `0x"));
    let rows = rows.count();
    let binary = workspace.debug_binary();
    if !binary.is_file() {
        findings.summary(format!(
            "{rows} opcodes; not compared, there is no {}",
            binary.display()
        ));
        return Ok(());
    }
    let generated = Command::new(&binary).arg("compat-table").output()?;
    if !generated.status.success() {
        findings.breach(format!(
            "`settee compat-table` failed: {}",
            generated.status
        ));
    } else if generated.stdout != written.as_bytes() {
        findings.breach(
            "docs/compatibility.md is stale: `settee compat-table > docs/compatibility.md`",
        );
    }
    if rows == 0 {
        findings.breach("docs/compatibility.md lists no opcode");
    }
    findings.summary(format!("{rows} opcodes, as the program has them"));
    Ok(())
}

/// `docs/performance.md` is what `bench/results` generates.
pub(super) fn check_performance(workspace: &Workspace, findings: &mut Findings) -> Result<()> {
    let areas = results::read(workspace)?;
    areas
        .iter()
        .flat_map(results::faults)
        .for_each(|fault| findings.breach(format!("bench/results: {fault}")));
    let generated = page::of(&areas);
    if workspace.read(page::PATH)? != generated {
        findings.breach(format!(
            "{} is stale: `cargo xtask bench --page`",
            page::PATH
        ));
    }
    let lines = generated.lines().count();
    if lines > PERFORMANCE_LINES_MAX {
        findings.breach(format!(
            "{}: {lines} lines, at most {PERFORMANCE_LINES_MAX}",
            page::PATH
        ));
    }
    let rows: usize = areas.iter().map(|area| area.rows.len()).sum();
    findings.summary(format!("{rows} rows in {} areas", areas.len()));
    Ok(())
}

/// A link from one document to a file of the repository leads somewhere.
pub(super) fn check_links(workspace: &Workspace, findings: &mut Findings) -> Result<()> {
    let documents = workspace.files(&["md"])?;
    let mut links = 0;
    for path in &documents {
        let folder = path.parent().unwrap_or(Path::new(""));
        for target in link_targets(&workspace.read(path)?) {
            let outside =
                target.contains("://") || target.starts_with('#') || target.starts_with("mailto:");
            if outside {
                continue;
            }
            links += 1;
            let file = target.split('#').next().unwrap_or_default();
            if !workspace.root.join(folder).join(file).exists() {
                findings.breach(format!(
                    "{}: link to {target} leads nowhere",
                    path.display()
                ));
            }
        }
    }
    for name in ["README.md", "ARCHITECTURE.md", "LICENSE", "deny.toml"] {
        if !workspace.root.join(name).is_file() {
            findings.breach(format!("{name} is missing"));
        }
    }
    findings.summary(format!("{} documents, {links} links", documents.len()));
    Ok(())
}

/// Targets of the inline links of a Markdown text.
fn link_targets(text: &str) -> Vec<String> {
    let mut targets = Vec::new();
    for part in text.split("](").skip(1) {
        if let Some((target, _)) = part.split_once(')') {
            targets.push(target.to_owned());
        }
    }
    targets
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_found() {
        assert_eq!(
            link_targets("see [a](b.md) and [c](d/e.md#f)."),
            ["b.md", "d/e.md#f"]
        );
        assert!(link_targets("no [link] (here)").is_empty());
    }
}

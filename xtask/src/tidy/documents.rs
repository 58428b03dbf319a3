//! Checks documents that must keep a form or agree with the program.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::Result;

use super::findings::Findings;
use crate::bench::{page, results};
use crate::workspace::Workspace;

/// Headings of a decision record, in order.
const RECORD_HEADINGS: [&str; 5] = [
    "Context",
    "Decision",
    "Consequences",
    "Alternatives",
    "Revisit when",
];

/// Largest number of lines of a decision record: one page.
const RECORD_LINES_MAX: usize = 70;

/// Largest number of lines of the page of figures: a few tables.
const PERFORMANCE_LINES_MAX: usize = 200;

/// Folder of the decision records; its `README.md` is their index.
const RECORDS: &str = "docs/adr";

/// Checks that every decision record has its number, a status and its headings, fits a page, and is in the index.
pub(super) fn check_records(workspace: &Workspace, findings: &mut Findings) -> Result<()> {
    let index = Path::new(RECORDS).join("README.md");
    let mut records = Vec::new();
    for path in workspace.files(&["md"])? {
        if path.starts_with(RECORDS) && path != index {
            records.push((file_name(&path), workspace.read(&path)?));
        }
    }
    let names: BTreeSet<&str> = records.iter().map(|(name, _)| name.as_str()).collect();
    let mut rows = Vec::new();
    for (name, text) in &records {
        let lines = text.lines().count();
        if lines > RECORD_LINES_MAX {
            findings.breach(format!("{name}: {lines} lines, at most {RECORD_LINES_MAX}"));
        }
        match record_row(name, text, &names) {
            Ok(row) => rows.push(row),
            Err(wrong) => findings.breach(format!("{name}: {wrong}")),
        }
    }
    let written = workspace.read(&index)?;
    let written: Vec<&str> = written.lines().filter(|l| l.starts_with("| [")).collect();
    for row in rows.iter().filter(|row| !written.contains(&row.as_str())) {
        findings.breach(format!("{} lacks `{row}`", index.display()));
    }
    if written.len() > records.len() {
        findings.breach(format!("{} lists more than there is", index.display()));
    }
    findings.summary(format!("{} records", records.len()));
    Ok(())
}

fn file_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// Returns the row of a record in the index, or the fault of its form. Merged records leave gaps in the numbers.
fn record_row(name: &str, text: &str, names: &BTreeSet<&str>) -> Result<String, String> {
    let (number, _) = name.split_once('-').unwrap_or_default();
    let number: u16 = number.parse().map_err(|_| "is not named `NNNN-title.md`")?;
    let title = text
        .lines()
        .next()
        .and_then(|line| line.strip_prefix(&format!("# {number}. ")))
        .ok_or_else(|| format!("opens with `# {number}. Title`"))?;
    let status = text
        .lines()
        .nth(2)
        .and_then(|line| line.strip_prefix("Status: "))
        .ok_or("has no `Status: ...` below its title")?;
    let later = ["superseded by ", "superseded in part by "]
        .iter()
        .find_map(|prefix| status.strip_prefix(prefix));
    let known = match later {
        None => status == "accepted",
        Some(links) => links.split(", ").all(|link| {
            let parts = link.strip_prefix('[').and_then(|l| l.split_once("]("));
            parts.is_some_and(|(number, file)| {
                let file = file.trim_end_matches(')');
                names.contains(file) && file.starts_with(&format!("{number:0>4}-"))
            })
        }),
    };
    if !known {
        return Err(format!(
            "status `{status}` is neither `accepted` nor `superseded [in part] by [N](NNNN-title.md)`"
        ));
    }
    let headings: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("## "))
        .collect();
    if headings != RECORD_HEADINGS {
        return Err(format!(
            "headings are {headings:?}, expected {RECORD_HEADINGS:?}"
        ));
    }
    Ok(format!("| [{number}]({name}) | {title} | {status} |"))
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

/// Checks that the links from documents to files of the repository have targets.
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

/// Returns the targets of the inline links in a Markdown text.
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

    #[test]
    fn a_record_has_a_number_a_status_and_its_headings() {
        let names = BTreeSet::from(["0007-new.md"]);
        let row = |status: &str| {
            let headings: String = RECORD_HEADINGS.map(|h| format!("## {h}\n")).concat();
            let text = format!("# 3. Old\n\nStatus: {status}\n\n{headings}");
            record_row("0003-old.md", &text, &names)
        };
        let expected = "| [3](0003-old.md) | Old | accepted |";
        assert_eq!(row("accepted").as_deref(), Ok(expected));
        assert!(row("superseded in part by [7](0007-new.md)").is_ok());
        assert!(row("superseded by [8](0008-gone.md)").is_err());
        assert!(row("superseded by [8](0007-new.md)").is_err());
        assert!(row("proposed").is_err());
        assert!(record_row("0003-old.md", "# 3. Old\n", &names).is_err());
    }
}

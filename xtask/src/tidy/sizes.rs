//! Checks the sizes of files. Small files are easy to read.

use anyhow::Result;

use super::findings::Findings;
use crate::workspace::Workspace;

/// Number of lines above which the report names a file.
const LINES_SOFT: usize = 400;
/// Number of lines above which a file fails.
const LINES_HARD: usize = 600;

/// Checks and reports the sizes of files, without tests.
pub(super) fn check(workspace: &Workspace, findings: &mut Findings) -> Result<()> {
    let mut sizes = Vec::new();
    for path in workspace.files(&["rs"])? {
        let name = path.to_string_lossy().into_owned();
        if is_test_file(&name) {
            continue;
        }
        sizes.push((lines_without_tests(&workspace.read(&path)?), name));
    }
    sizes.sort();
    for (lines, name) in sizes.iter().rev() {
        if *lines > LINES_HARD {
            findings.breach(format!(
                "{name}: {lines} lines without tests, at most {LINES_HARD}"
            ));
        } else if *lines > LINES_SOFT {
            println!("note sizes: {name}: {lines} lines, better under {LINES_SOFT}");
        }
    }
    findings.summary(summarize(&sizes));
    Ok(())
}

fn summarize(sizes: &[(usize, String)]) -> String {
    let Some((largest, name)) = sizes.last() else {
        return "no source".to_owned();
    };
    let total: usize = sizes.iter().map(|(lines, _)| lines).sum();
    let at = |per_cent: usize| sizes[(sizes.len() - 1) * per_cent / 100].0;
    format!(
        "{} files, {total} lines, median {}, p90 {}, largest {largest} ({name})",
        sizes.len(),
        at(50),
        at(90)
    )
}

/// Whether a whole file is test or benchmark, which has no size limit.
pub(super) fn is_test_file(name: &str) -> bool {
    ["/tests/", "/benches/"]
        .iter()
        .any(|folder| name.contains(folder))
        || name.ends_with("/tests.rs")
        || name.starts_with("fuzz/")
}

/// Returns the number of lines before the test module at the end of a file.
pub(super) fn lines_without_tests(source: &str) -> usize {
    let lines: Vec<&str> = source.lines().collect();
    let opens_module = |line: &str| {
        let declared = line.trim_start_matches("pub(crate) ");
        declared.starts_with("mod ") && declared.trim_end().ends_with('{')
    };
    let inline_tests = (0..lines.len()).find(|at| {
        let mut behind = lines[at + 1..].iter();
        lines[*at].trim_end() == "#[cfg(test)]"
            && behind
                .find(|line| !line.starts_with("#["))
                .is_some_and(|line| opens_module(line))
    });
    inline_tests.unwrap_or(lines.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_module_does_not_count() {
        assert_eq!(
            lines_without_tests("a\nb\n#[cfg(test)]\nmod tests {\n}\n"),
            2
        );
        assert_eq!(lines_without_tests("a\n#[cfg(test)]\nmod tests;\n"), 3);
        let attributes = "a\n#[cfg(test)]\n#[cfg(unix)]\npub(crate) mod tests {\n}\n";
        assert_eq!(lines_without_tests(attributes), 1);
    }

    #[test]
    fn test_files_are_recognized_by_path() {
        assert!(is_test_file("crates/engine/src/vbucket/tests.rs"));
        assert!(is_test_file("crates/engine/tests/it/main.rs"));
        assert!(!is_test_file("crates/engine/src/contests.rs"));
    }
}

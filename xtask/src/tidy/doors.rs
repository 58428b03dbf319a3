//! Checks doors: actions that only one module may do, so that no other module forgets a part of them.

use std::path::Path;

use anyhow::Result;

use super::findings::Findings;
use crate::workspace::Workspace;

struct Door {
    /// Path of the module.
    module: &'static str,
    /// Folder in which no other module may do the action.
    within: &'static str,
    /// Files that may do it too.
    exceptions: &'static [&'static str],
    /// Code that does the action.
    acts: &'static [&'static str],
}

const DOORS: [Door; 2] = [
    // The module that creates, renames and removes files also syncs their directories.
    Door {
        module: "crates/storage/src/names.rs",
        within: "crates/",
        // These files need not survive a power cut.
        exceptions: &[
            "crates/audit/src/log.rs",
            "crates/settee/src/serve/ports_file.rs",
        ],
        acts: &[
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
        ],
    },
    // One place changes the seqno of a vBucket, and logs, counts and announces the change.
    Door {
        module: "crates/engine/src/vbucket/change.rs",
        within: "crates/engine/src/vbucket/",
        exceptions: &[],
        acts: &["self.high_seqno = ", "checkpoints.append("],
    },
];

/// Checks that only the door's module does its action, outside of tests.
pub(super) fn check(workspace: &Workspace, findings: &mut Findings) -> Result<()> {
    let mut looked = 0;
    for path in workspace.files(&["rs"])? {
        let name = path.to_string_lossy();
        if !is_product(&path) {
            continue;
        }
        looked += 1;
        let text = workspace.read(&path)?;
        let closed = |door: &&Door| {
            let may = name == door.module || door.exceptions.contains(&name.as_ref());
            name.starts_with(door.within) && !may
        };
        for door in DOORS.iter().filter(closed) {
            for (number, act) in acts(&text, door.acts) {
                findings.breach(format!(
                    "{name}:{number}: `{act}`: {} does that",
                    door.module
                ));
            }
        }
    }
    findings.summary(format!("{} doors, {looked} files", DOORS.len()));
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

/// Returns the lines outside of tests that contain one of `those`. A test module is at the end of its file.
fn acts(text: &str, those: &[&'static str]) -> Vec<(usize, &'static str)> {
    let product = text.lines().take_while(|line| *line != "#[cfg(test)]");
    let found = product.enumerate().filter_map(|(at, line)| {
        let code = line.split("//").next().unwrap_or_default();
        let act = those.iter().find(|act| code.contains(**act))?;
        Some((at + 1, *act))
    });
    found.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_outside_of_tests_are_found() {
        let text = "fn a() {\n    fs::rename(a, b)?; // fs::write(\n}\n#[cfg(test)]\nmod tests { fs::write(a) }";
        assert_eq!(acts(text, DOORS[0].acts), [(2, "fs::rename(")]);
        assert!(is_product(Path::new("crates/server/src/node/data_dir.rs")));
        assert!(!is_product(Path::new(
            "crates/server/src/node/tests/mod.rs"
        )));
    }
}

//! Doors: what one module alone does, so that nothing that belongs to it is forgotten elsewhere.

use std::path::Path;

use anyhow::Result;

use super::findings::Findings;
use crate::workspace::Workspace;

struct Door {
    /// The module.
    module: &'static str,
    /// Where it is the only one.
    within: &'static str,
    /// Files that may do it by themselves.
    exceptions: &'static [&'static str],
    /// Texts of the code that do it.
    acts: &'static [&'static str],
}

const DOORS: [Door; 2] = [
    // Names on disk are created, renamed and removed by the module that syncs their directories.
    Door {
        module: "crates/storage/src/names.rs",
        within: "crates/",
        // Nothing depends on what they make after a power cut.
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
    // What advances the order of a vBucket is logged, counted and told in one place.
    Door {
        module: "crates/engine/src/vbucket/change.rs",
        within: "crates/engine/src/vbucket/",
        exceptions: &[],
        acts: &["self.high_seqno = ", "checkpoints.append("],
    },
];

/// Outside of tests, nothing but a door's module does what it is for.
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

/// Lines of the product that do one of `those`. A test module is the last thing in a file.
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

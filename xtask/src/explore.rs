//! Runs the property tests with new random inputs, round after round.
//!
//! A round runs every property test of the workspace with a new seed. Proptest shrinks a failing input, prints
//! it, and writes its seed below `proptest-regressions/` beside the sources. Every later run of the test begins
//! with that seed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, bail};

use crate::process;
use crate::workspace::Workspace;

const USAGE: &str = "usage: cargo xtask explore [--minutes N] [--seed N] [FILTER]";

struct Options {
    /// Minutes in which new rounds start; without it rounds never end.
    minutes: Option<u64>,
    /// Seed of the first round. Each following round adds one.
    seed: u64,
    /// Text that `package::name` of the selected tests contains.
    filter: String,
}

/// Runs rounds until the time is over or all tests have failed; returns `false` if one failed.
pub(crate) fn run(workspace: &Workspace, arguments: &[String]) -> Result<bool> {
    let options = parse(arguments)?;
    let mut tests = property_tests(workspace)?;
    tests.retain(|package, names| {
        names.retain(|name| format!("{package}::{name}").contains(&options.filter));
        !names.is_empty()
    });
    if tests.is_empty() {
        bail!("no property test has `{}` in its name", options.filter);
    }
    let started = Instant::now();
    let time = options
        .minutes
        .map(|minutes| Duration::from_secs(60 * minutes));
    let mut failed = Vec::new();
    let mut seed = options.seed;
    while !tests.is_empty() && time.is_none_or(|time| started.elapsed() < time) {
        println!("seed {seed}, {} s", started.elapsed().as_secs());
        for (package, names) in &mut tests {
            for name in round(workspace, package, names, seed)? {
                println!("{package}::{name} failed with seed {seed}");
                names.remove(&name);
                failed.push((format!("{package}::{name}"), seed));
            }
        }
        tests.retain(|_, names| !names.is_empty());
        seed = seed.wrapping_add(1);
    }
    println!(
        "{} rounds in {} s, seeds {} to {}, {} tests failed",
        seed.wrapping_sub(options.seed),
        started.elapsed().as_secs(),
        options.seed,
        seed.wrapping_sub(1),
        failed.len()
    );
    for (name, seed) in &failed {
        println!(
            "  {name}: PROPTEST_RNG_SEED={seed}; commit what was written below proptest-regressions/"
        );
    }
    Ok(failed.is_empty())
}

fn parse(arguments: &[String]) -> Result<Options> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let mut options = Options {
        minutes: None,
        seed: now.context("the clock stands before 1970")?.as_secs(),
        filter: String::new(),
    };
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let mut number = || -> Result<u64> {
            let text = rest
                .next()
                .with_context(|| format!("{argument} takes a number"))?;
            text.parse()
                .with_context(|| format!("{argument} takes a number, not `{text}`"))
        };
        match argument.as_str() {
            "--minutes" => options.minutes = Some(number()?),
            "--seed" => options.seed = number()?,
            flag if flag.starts_with('-') => bail!("unknown option `{flag}`\n{USAGE}"),
            filter if options.filter.is_empty() => filter.clone_into(&mut options.filter),
            more => bail!("`{more}`: one filter is enough\n{USAGE}"),
        }
    }
    Ok(options)
}

/// Runs `names` of `package` once; returns the failed ones.
fn round(
    workspace: &Workspace,
    package: &str,
    names: &BTreeSet<String>,
    seed: u64,
) -> Result<Vec<String>> {
    let mut command = process::cargo(&workspace.root);
    command
        .env("PROPTEST_RNG_SEED", seed.to_string())
        // With a little optimization a minute has several times the cases, still with every assertion.
        .env("CARGO_PROFILE_DEV_OPT_LEVEL", "1")
        .args(["test", "--quiet", "--no-fail-fast", "--lib", "--tests"])
        .args(["--package", package, "--"])
        .args(names);
    let ran = process::stream(&mut command, |_| {})?;
    if ran.success {
        return Ok(Vec::new());
    }
    ran.lines.iter().for_each(|line| println!("{line}"));
    let failed = |name: &&String| {
        let ending = format!("::{name}");
        ran.lines
            .iter()
            .any(|line| line.starts_with("    ") && line.ends_with(&ending))
    };
    let failed: Vec<String> = names.iter().filter(failed).cloned().collect();
    if failed.is_empty() {
        bail!("the tests of {package} did not run");
    }
    Ok(failed)
}

/// Returns the names of the tests in `proptest!` blocks, by package.
fn property_tests(workspace: &Workspace) -> Result<BTreeMap<String, BTreeSet<String>>> {
    let mut tests = BTreeMap::new();
    for package in workspace.members() {
        let folder = package.manifest_path.parent().context("a folder")?;
        let folder = folder
            .strip_prefix(&workspace.root)
            .context("below the root")?;
        let mut names = BTreeSet::new();
        for file in workspace.files(&["rs"])? {
            if file.starts_with(folder) {
                names.extend(names_in(&workspace.read(file)?));
            }
        }
        if !names.is_empty() {
            tests.insert(package.name.to_string(), names);
        }
    }
    Ok(tests)
}

fn names_in(source: &str) -> Vec<String> {
    let mut names = Vec::new();
    // Text of the line that ends the block: a brace with the indentation of its first line.
    let mut end: Option<String> = None;
    for line in source.lines() {
        if end.as_deref() == Some(line) {
            end = None;
        } else if end.is_some() {
            let name = line.trim_start().strip_prefix("fn ");
            names.extend(
                name.and_then(|rest| rest.split('(').next())
                    .map(str::to_owned),
            );
        } else if line.trim_start().ends_with("proptest! {") {
            let indent = line.len() - line.trim_start().len();
            end = Some(" ".repeat(indent) + "}");
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_inside_of_proptest_blocks_are_found() {
        let source = "fn helper(x: u8) {}\nproptest! {\n    #[test]\n    fn one(a in 0..3u8) {\n        \
                      run(a);\n    }\n\n    #[test]\n    fn two(\n        b in 1..2u8,\n    ) {\n    }\n}\nfn other() {}\n    proptest::proptest! {\n        fn three(c in 0..1u8) {\n        }\n    }\n    fn more() {}\n";
        assert_eq!(names_in(source), ["one", "two", "three"]);
    }

    #[test]
    fn options_are_checked() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let options = parse(&words("--minutes 3 --seed 7 engine")).expect("all is known");
        assert_eq!((options.minutes, options.seed), (Some(3), 7));
        assert_eq!(options.filter, "engine");
        assert!(parse(&words("--minutes")).is_err());
        assert!(parse(&words("--minutes two")).is_err());
        assert!(parse(&words("--hours 2")).is_err());
        assert!(parse(&words("a b")).is_err());
    }
}

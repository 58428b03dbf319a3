//! Checks the rules of `deny.toml` for dependencies: licences, bans and sources.
//!
//! `cargo deny check` checks the same and more; this check needs no tool that takes minutes to build.

use anyhow::{Context, Result};
use toml::Table;

use super::findings::Findings;
use crate::workspace::Workspace;

pub(super) fn check(workspace: &Workspace, findings: &mut Findings) -> Result<()> {
    let rules: Table = workspace.read("deny.toml")?.parse().context("deny.toml")?;
    let licences = texts(&rules, "licenses", "allow");
    let registries = texts(&rules, "sources", "allow-registry");
    let banned = banned(&rules);
    let packages = &workspace.metadata.packages;
    for package in packages {
        let about = format!("{} {}", package.name, package.version);
        let licence = package.license.as_deref().unwrap_or_default();
        if !permits(licence, &licences) {
            findings.breach(format!(
                "{about}: licence `{licence}` is not among those allowed"
            ));
        }
        if banned.contains(&package.name.as_str()) {
            findings.breach(format!("{about}: banned"));
        }
        let source = package.source.as_ref().map(|source| source.repr.as_str());
        let known = |source: &str| {
            let registry = source.strip_prefix("registry+");
            registry.is_some_and(|registry| registries.contains(&registry))
        };
        if source.is_some_and(|source| !known(source)) {
            findings.breach(format!(
                "{about}: comes from {}",
                source.unwrap_or_default()
            ));
        }
        let wild = package
            .dependencies
            .iter()
            .filter(|one| one.req.comparators.is_empty());
        if source.is_none() {
            for one in wild.filter(|one| one.path.is_none()) {
                findings.breach(format!("{about}: takes any version of {}", one.name));
            }
        }
    }
    findings.summary(format!(
        "{} packages, {} licences allowed, {} packages banned",
        packages.len(),
        licences.len(),
        banned.len()
    ));
    Ok(())
}

/// Returns a list of texts in `deny.toml`.
fn texts<'a>(rules: &'a Table, section: &str, name: &str) -> Vec<&'a str> {
    let list = rules
        .get(section)
        .and_then(|section| section.get(name)?.as_array());
    list.into_iter()
        .flatten()
        .filter_map(toml::Value::as_str)
        .collect()
}

fn banned(rules: &Table) -> Vec<&str> {
    let list = rules
        .get("bans")
        .and_then(|bans| bans.get("deny")?.as_array());
    let all = list.into_iter().flatten();
    all.filter_map(|one| one.get("crate")?.as_str()).collect()
}

/// Whether the allowed licences satisfy an SPDX expression. `/` is an old form of `OR`.
fn permits(expression: &str, allowed: &[&str]) -> bool {
    let spaced = expression
        .replace('(', " ( ")
        .replace(')', " ) ")
        .replace('/', " OR ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut rest = &words[..];
    any_of(&mut rest, allowed) == Some(true) && rest.is_empty()
}

fn any_of(words: &mut &[&str], allowed: &[&str]) -> Option<bool> {
    let mut one = all_of(words, allowed)?;
    while let Some(rest) = words.strip_prefix(&["OR"]) {
        *words = rest;
        one |= all_of(words, allowed)?;
    }
    Some(one)
}

fn all_of(words: &mut &[&str], allowed: &[&str]) -> Option<bool> {
    let mut all = term(words, allowed)?;
    while let Some(rest) = words.strip_prefix(&["AND"]) {
        *words = rest;
        all &= term(words, allowed)?;
    }
    Some(all)
}

fn term(words: &mut &[&str], allowed: &[&str]) -> Option<bool> {
    let (first, mut rest) = words.split_first()?;
    if *first == "(" {
        let inner = any_of(&mut rest, allowed)?;
        *words = rest.strip_prefix(&[")"])?;
        return Some(inner);
    }
    let (name, rest) = match rest {
        ["WITH", exception, rest @ ..] => (format!("{first} WITH {exception}"), rest),
        _ => ((*first).to_owned(), rest),
    };
    *words = rest;
    Some(allowed.contains(&&*name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn licence_expressions_are_parsed() {
        let allowed = [
            "MIT",
            "Apache-2.0",
            "Unicode-3.0",
            "Apache-2.0 WITH LLVM-exception",
        ];
        for (expression, expected) in [
            ("MIT", true),
            ("GPL-3.0-only", false),
            ("MIT OR GPL-3.0-only", true),
            ("GPL-2.0-only/MIT", true),
            ("MIT AND GPL-3.0-only", false),
            ("(MIT OR GPL-3.0-only) AND Unicode-3.0", true),
            ("(MIT OR Apache-2.0) AND OpenSSL", false),
            ("MIT AND GPL-3.0-only OR Apache-2.0", true),
            ("Apache-2.0 WITH LLVM-exception", true),
            ("MIT WITH LLVM-exception", false),
            ("MIT)", false),
            ("(MIT", false),
            ("", false),
        ] {
            assert_eq!(permits(expression, &allowed), expected, "{expression}");
        }
    }
}

//! Plain words: comments and documents name the code's elements, not persons, and comments name their subject first.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Result;

use super::findings::Findings;
use crate::workspace::Workspace;

/// Words for persons. Split in halves, since this file is checked too.
const WORDS: [&str; 7] = [
    concat!("wh", "o"),
    concat!("who", "ever"),
    concat!("who", "m"),
    concat!("no", "body"),
    concat!("some", "body"),
    concat!("every", "body"),
    concat!("any", "body"),
];

/// First words of comments that hide their subject: "What it holds." instead of "Bytes held.".
const OPENINGS: [&str; 8] = [
    "What", "How", "Whose", "That", "Gives", "Says", "Tells", "Told",
];

/// Checks that no place contains any of the words, and that no comment begins with one of the openings.
pub(super) fn check(workspace: &Workspace, findings: &mut Findings) -> Result<()> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for path in workspace.files(&["rs", "md"])? {
        let Some(place) = place_of(&path) else {
            continue;
        };
        let text = workspace.read(&path)?;
        *counts.entry(place).or_default() += count(&text, is_code(&path));
        if is_code(&path) {
            for line in openings(&text) {
                let place = format!("{}:{line}", path.display());
                findings.breach(format!(
                    "{place}: the comment does not begin with its subject"
                ));
            }
        }
    }
    for (place, found) in counts.iter().filter(|(_, found)| **found > 0) {
        findings.breach(format!(
            "{place}: {found} words for persons ({})",
            WORDS.join(", ")
        ));
    }
    findings.summary(format!("{} places", counts.len()));
    Ok(())
}

/// Returns the crate of a file, `docs`, or the name of the document; `None` if the file is not checked.
fn place_of(path: &Path) -> Option<String> {
    let name = path.to_string_lossy();
    let parts: Vec<&str> = name.split('/').collect();
    match parts.as_slice() {
        ["crates", name, ..] if is_code(path) => Some((*name).to_owned()),
        ["xtask", ..] if is_code(path) => Some("xtask".to_owned()),
        ["docs", "log", ..] => None,
        ["docs", ..] => Some("docs".to_owned()),
        [name @ ("README.md" | "ARCHITECTURE.md")] => Some((*name).to_owned()),
        _ => None,
    }
}

fn is_code(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "rs")
}

/// Returns the number of forbidden words: in comments of code, in all of a document. A name with `_` or `-` is
/// one word.
fn count(text: &str, code: bool) -> usize {
    let prose = |line| if code { comment(line) } else { line };
    let words = |line| prose(line).split(|c: char| !c.is_alphanumeric() && !"_-".contains(c));
    text.lines()
        .flat_map(words)
        .filter(|word| WORDS.iter().any(|w| word.eq_ignore_ascii_case(w)))
        .count()
}

/// Returns the numbers of the lines on which a comment begins with one of [`OPENINGS`].
fn openings(text: &str) -> Vec<usize> {
    let words = |line: &'_ str| {
        let comment = line.trim_start().strip_prefix("//")?;
        Some(comment.trim_start_matches(['/', '!']).trim().to_owned())
    };
    let comments: Vec<Option<String>> = text.lines().map(words).collect();
    let first = |index: usize| {
        let before = index.checked_sub(1).and_then(|at| comments[at].as_ref());
        before.is_none_or(String::is_empty)
    };
    let begins = |comment: &Option<String>| {
        let word = comment
            .as_ref()?
            .split(|c: char| !c.is_alphanumeric())
            .next()?;
        OPENINGS.contains(&word).then_some(())
    };
    (0..comments.len())
        .filter(|index| begins(&comments[*index]).is_some() && first(*index))
        .map(|index| index + 1)
        .collect()
}

/// Returns the comment of a line of code. The `//` of an address in a string does not begin one.
fn comment(line: &str) -> &str {
    let start = line
        .match_indices("//")
        .find(|(at, _)| !line[..*at].ends_with(':'));
    start.map_or("", |(at, _)| &line[at..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_counted_in_comments_and_documents() {
        let word = WORDS[0];
        let line = format!("let {word} = 1; // {word}, {word}le; \"{}\"", WORDS[3]);
        assert_eq!(count(&line, true), 2);
        assert_eq!(count(&line, false), 3);
        assert_eq!(count(&format!("get(\"http://{word}\")"), true), 0);
        assert_eq!(
            count(&format!("/// N{}.\n/// fine", &WORDS[3][1..]), true),
            1
        );
    }

    #[test]
    fn comments_begin_with_their_subject() {
        let text = "//! What it is.\n\n/// Bytes of\n/// What it holds.\n///\n/// How it works.\nfn what() {}\n    // Whatever.\n";
        assert_eq!(openings(text), [1, 6]);
    }

    #[test]
    fn a_file_belongs_to_its_crate_or_to_the_documents() {
        let place = |path: &str| place_of(Path::new(path));
        assert_eq!(place("crates/wire/src/frame.rs").as_deref(), Some("wire"));
        assert_eq!(place("docs/protocol/dcp.md").as_deref(), Some("docs"));
        assert_eq!(place("README.md").as_deref(), Some("README.md"));
        assert_eq!(place("conformance/lib/wire.rs"), None);
    }
}

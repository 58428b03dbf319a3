//! Checks the dependencies between modules of a crate: no cycles, and no imports from the file of a parent module.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::findings::Findings;
use super::sizes;
use crate::workspace::Workspace;

/// Checks that no modules of a crate depend on each other in a cycle.
pub(super) fn check(workspace: &Workspace, findings: &mut Findings) -> Result<()> {
    let members = workspace.members();
    for package in &members {
        let name = package.name.as_str();
        for circle in source_of(package.manifest_path.as_std_path())?.circles() {
            findings.breach(format!("{name}: circle of {}", circle.join(", ")));
        }
    }
    findings.summary(format!("{} crates", members.len()));
    Ok(())
}

/// Checks that no module imports an item that the file of a parent module defines.
pub(super) fn check_upward(workspace: &Workspace, findings: &mut Findings) -> Result<()> {
    let members = workspace.members();
    for package in &members {
        let name = package.name.as_str();
        for (module, item) in source_of(package.manifest_path.as_std_path())?.upward_imports() {
            findings.breach(format!(
                "{name}: {module} uses {item} of a parent's own file: move it into a module below both"
            ));
        }
    }
    findings.summary(format!("{} crates", members.len()));
    Ok(())
}

fn source_of(manifest: &Path) -> Result<Modules> {
    let package = manifest.parent().context("a manifest lies in a folder")?;
    Modules::read(&package.join("src"))
}

/// Code of each module of a crate, without comments and tests, by its path (`lsm::log`; empty for the root).
struct Modules(BTreeMap<String, String>);

impl Modules {
    /// Reads a crate from its `src` folder.
    fn read(source: &Path) -> Result<Self> {
        let mut modules = Self(BTreeMap::new());
        modules.read_folder(source, &[])?;
        Ok(modules)
    }

    fn read_folder(&mut self, folder: &Path, module: &[String]) -> Result<()> {
        let entries =
            fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))?;
        for entry in entries {
            let path = entry?.path();
            let stem = path.file_stem().unwrap_or_default().to_string_lossy();
            let child = [module, &[stem.to_string()]].concat();
            if path.is_dir() {
                if !["tests", "suite"].contains(&&*stem) {
                    self.read_folder(&path, &child)?;
                }
            } else if path.extension().is_some_and(|kind| kind == "rs") && stem != "tests" {
                let is_folder = ["lib", "main", "mod"].contains(&&*stem);
                let name = if is_folder { module } else { &child };
                let text = fs::read_to_string(&path)
                    .with_context(|| format!("cannot read {}", path.display()))?;
                let code = self.0.entry(name.join("::")).or_default();
                *code += &code_of(&text);
            }
        }
        Ok(())
    }

    /// Returns the module that a path names or leads into, and the next segment of the path.
    fn resolve<'a>(&self, path: &'a [String]) -> (String, Option<&'a str>) {
        let known = |length: &usize| self.0.contains_key(&path[..*length].join("::"));
        let length = (0..=path.len()).rev().find(known).unwrap_or(0);
        let behind = path.get(length).map(String::as_str);
        (path[..length].join("::"), behind)
    }

    /// Returns the modules that each module names, without the root.
    fn graph(&self) -> BTreeMap<&str, BTreeSet<String>> {
        let edges = self.0.iter().map(|(module, code)| {
            let targets = uses(module, code)
                .into_iter()
                .map(|path| self.resolve(&path).0);
            let targets = targets.filter(|target| !target.is_empty() && target != module);
            (module.as_str(), targets.collect())
        });
        edges.collect()
    }

    /// Returns groups of two or more modules in which each module reaches all others.
    fn circles(&self) -> Vec<Vec<String>> {
        let graph = self.graph();
        let reached: BTreeMap<&str, BTreeSet<&str>> = graph
            .keys()
            .map(|module| (*module, reachable(&graph, module)))
            .collect();
        let mut circles = BTreeSet::new();
        for (module, targets) in &reached {
            let circle: Vec<String> = targets
                .iter()
                .filter(|target| reached[*target].contains(module))
                .map(ToString::to_string)
                .collect();
            if circle.len() > 1 {
                circles.insert(circle);
            }
        }
        circles.into_iter().collect()
    }

    /// Returns each module with the items that it imports from the file of a parent module.
    fn upward_imports(&self) -> BTreeSet<(String, String)> {
        let defined: BTreeMap<&str, BTreeSet<&str>> = self
            .0
            .iter()
            .map(|(module, code)| (module.as_str(), defined_items(code)))
            .collect();
        let mut found = BTreeSet::new();
        for (module, code) in &self.0 {
            for path in uses(module, code) {
                let (target, Some(item)) = self.resolve(&path) else {
                    continue;
                };
                let is_above = target.is_empty() && !module.is_empty()
                    || module.starts_with(&format!("{target}::"));
                if is_above && (item == "*" || defined[target.as_str()].contains(item)) {
                    found.insert((module.clone(), format!("{target}::{item}")));
                }
            }
        }
        found
    }
}

/// Returns the modules that `start` reaches in one step or more.
fn reachable<'a>(graph: &'a BTreeMap<&str, BTreeSet<String>>, start: &'a str) -> BTreeSet<&'a str> {
    let mut seen = BTreeSet::new();
    let mut open = vec![start];
    while let Some(module) = open.pop() {
        for target in &graph[module] {
            if seen.insert(target.as_str()) {
                open.push(target);
            }
        }
    }
    seen
}

/// Returns a file without comments and without the test module at its end.
fn code_of(text: &str) -> String {
    let lines = text.lines().take(sizes::lines_without_tests(text));
    let code = lines.filter_map(|line| line.split("//").next());
    code.flat_map(|line| [line, "\n"]).collect()
}

/// Returns the paths that `code` names by `crate::` or `super::`, from the root of the crate.
fn uses(module: &str, code: &str) -> Vec<Vec<String>> {
    let tokens = tokens(code);
    let here: Vec<String> = module.split("::").map(str::to_owned).collect();
    let parent = &here[..here.len() - 1];
    let mut found = Vec::new();
    for (index, token) in tokens.iter().enumerate() {
        let from = match *token {
            "crate" => &[],
            "super" => parent,
            _ => continue,
        };
        let starts = index == 0 || tokens[index - 1] != "::";
        if starts && tokens.get(index + 1) == Some(&"::") {
            use_tree(&tokens, index + 2, from, &mut found);
        }
    }
    found
}

/// Splits a text into words, `::` and single signs, without white space.
fn tokens(code: &str) -> Vec<&str> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut tokens = Vec::new();
    let mut rest = code.trim_start();
    while let Some(first) = rest.chars().next() {
        let length = if is_word(first) {
            rest.find(|c| !is_word(c)).unwrap_or(rest.len())
        } else if rest.starts_with("::") {
            2
        } else {
            first.len_utf8()
        };
        tokens.push(&rest[..length]);
        rest = rest[length..].trim_start();
    }
    tokens
}

/// Adds every path of the use tree that begins at a token; returns the index of the token after the tree.
fn use_tree(
    tokens: &[&str],
    start: usize,
    prefix: &[String],
    found: &mut Vec<Vec<String>>,
) -> usize {
    let mut path = prefix.to_vec();
    let mut at = start;
    while let Some(token) = tokens.get(at) {
        at += 1;
        match *token {
            "{" => {
                while tokens.get(at).is_some_and(|token| *token != "}") {
                    at = use_tree(tokens, at, &path, found);
                }
                return at + 1;
            }
            "super" => drop(path.pop()),
            "self" => {}
            "*" => path.push("*".to_owned()),
            word if word.starts_with(|c: char| c.is_alphanumeric() || c == '_') => {
                path.push(word.to_owned());
            }
            _ => break,
        }
        if tokens.get(at) != Some(&"::") {
            break;
        }
        at += 1;
    }
    if path.len() > prefix.len() || at > start + 1 {
        found.push(path);
    }
    at
}

/// Returns the names of the items that a file defines outside of blocks.
fn defined_items(code: &str) -> BTreeSet<&str> {
    const KINDS: [&str; 8] = [
        "fn",
        "struct",
        "enum",
        "trait",
        "type",
        "static",
        "const",
        "macro_rules",
    ];
    const BEFORE: [&str; 8] = ["pub", "(", "crate", "super", "in", ")", "async", "::"];
    let items = code.lines().filter(|line| !line.starts_with(' '));
    let items = items.filter_map(|line| {
        let words = tokens(line);
        let mut words = words.iter().skip_while(|word| BEFORE.contains(word));
        let kind = words.next().filter(|word| KINDS.contains(word))?;
        let mut rest = words.skip_while(|word| ["!", "async"].contains(word));
        let name = rest.next()?;
        let is_function = *kind == "const" && *name == "fn";
        if is_function { rest.next() } else { Some(name) }.copied()
    });
    items.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates a crate of these files in a temporary folder, and removes the folder.
    fn modules(files: &[(&str, &str)]) -> Modules {
        use std::sync::atomic::{AtomicUsize, Ordering};
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let root = std::env::temp_dir().join(format!("circles-{}-{number}", std::process::id()));
        for (name, text) in files {
            let path = root.join(name);
            fs::create_dir_all(path.parent().expect("it has a folder")).expect("it is ours");
            fs::write(path, text).expect("it is ours");
        }
        let modules = Modules::read(&root).expect("it was written just now");
        fs::remove_dir_all(&root).expect("it is ours");
        modules
    }

    #[test]
    fn a_circle_over_nested_braces_and_inline_paths_is_found() {
        let tree = modules(&[
            ("lib.rs", "mod a;\nmod b;\nmod c;\n"),
            ("a.rs", "use crate::{b::{self, Two}, c::Three};\n"),
            ("b/mod.rs", "mod d;\nfn f() -> u8 { crate::c::three() }\n"),
            ("b/d.rs", "use super::super::a::One;\n"),
            ("c.rs", "use super::b::d::Four as Five;\n"),
        ]);
        assert_eq!(tree.circles(), [["a", "b", "b::d", "c"]]);
    }

    #[test]
    fn tests_comments_and_the_root_make_no_circle() {
        let tree = modules(&[
            ("lib.rs", "mod a;\nmod b;\nuse crate::a::One;\n"),
            ("a.rs", "use crate::{Root, b::Two};\n"),
            (
                "b.rs",
                "// use crate::a::One;\n#[cfg(test)]\nmod tests {\n    use crate::a::One;\n}\n",
            ),
            ("b/tests.rs", "use crate::a::One;\n"),
            ("tests/mod.rs", "use crate::a::One;\n"),
        ]);
        assert_eq!(tree.circles(), [[""; 0]; 0]);
    }

    #[test]
    fn an_item_of_the_parent_itself_is_an_upward_import() {
        let tree = modules(&[
            (
                "lib.rs",
                "mod a;\npub use a::Sibling;\npub(crate) const fn root() {}\n",
            ),
            (
                "a/mod.rs",
                "mod b;\nmod c;\npub use c::Other;\npub struct Own;\nimpl Own {\n    fn method() {}\n}\n",
            ),
            (
                "a/b.rs",
                "use super::{Other, Own, c::Third};\nuse crate::{Sibling, root};\n",
            ),
            ("a/c.rs", "fn f() { super::method() }\n"),
        ]);
        let found: Vec<_> = tree.upward_imports().into_iter().collect();
        let expected = [("a::b", "::root"), ("a::b", "a::Own")];
        assert_eq!(found, expected.map(|(a, b)| (a.to_owned(), b.to_owned())));
    }

    #[test]
    fn item_definitions_are_recognized_by_keyword() {
        let code = "pub(crate) async fn one() {}\nconst TWO: u8 = 1;\nconst fn three() {}\nmacro_rules! four {\nimpl Five {}\npub type Six = fn();\n";
        let names: Vec<_> = defined_items(code).into_iter().collect();
        assert_eq!(names, ["Six", "TWO", "four", "one", "three"]);
    }
}

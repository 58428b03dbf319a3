//! Installs real clients below `target/conformance`, once per change of their lock file.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::process;
use crate::workspace::Workspace;

/// Creates a virtual environment with the Python clients; returns its interpreter.
pub(super) fn python(workspace: &Workspace) -> Result<PathBuf> {
    let home = home(workspace, "python")?;
    let interpreter = home.join("bin/python3");
    let requirements = workspace.root.join("conformance/python/requirements.txt");
    once(&home, &[&requirements], || {
        process::must(
            Command::new("python3")
                .args(["-m", "venv", "--clear"])
                .arg(&home),
        )?;
        let mut pip = Command::new(&interpreter);
        pip.args([
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--requirement",
        ]);
        process::must(pip.arg(&requirements))
    })?;
    Ok(interpreter)
}

/// Builds a Go suite; returns the program. Go has its own caches and detects stale ones.
pub(super) fn go(workspace: &Workspace, module: &str) -> Result<PathBuf> {
    let program = home(workspace, module)?.join("suite");
    let mut build = Command::new("go");
    build.current_dir(workspace.root.join("conformance").join(module));
    process::must(
        build
            .args(["build", "-mod=readonly", "-o"])
            .arg(&program)
            .arg("."),
    )?;
    Ok(program)
}

/// Creates a folder with the Node client. Scripts of packages do not run, since the client is prebuilt.
pub(super) fn node(workspace: &Workspace) -> Result<PathBuf> {
    let home = home(workspace, "node")?;
    let source = workspace.root.join("conformance/node");
    let files = ["package.json", "package-lock.json"].map(|name| source.join(name));
    once(&home, &[&files[0], &files[1]], || {
        for file in &files {
            fs::copy(
                file,
                home.join(file.file_name().context("a file has a name")?),
            )?;
        }
        // `npm ci` is not used: it requires the binaries of platforms that the registry may not have.
        let mut npm = Command::new("npm");
        npm.args([
            "install",
            "--ignore-scripts",
            "--no-audit",
            "--no-fund",
            "--loglevel=error",
        ]);
        process::must(npm.current_dir(&home))
    })?;
    Ok(home)
}

/// Returns the class path of a Java suite: the libraries from Maven, and the compiled sources of the suite and of
/// all Java suites.
pub(super) fn java(workspace: &Workspace, module: &str) -> Result<OsString> {
    let home = home(workspace, module)?;
    let source = workspace.root.join("conformance").join(module);
    let libraries = home.join("libraries");
    let project = source.join("pom.xml");
    once(&libraries, &[&project], || {
        let mut maven = Command::new("mvn");
        maven.args(["--quiet", "--batch-mode", "dependency:copy-dependencies"]);
        maven.arg(format!("-DoutputDirectory={}", libraries.display()));
        process::must(maven.arg("--file").arg(&project))
    })?;
    let mut files = java_sources(&source)?;
    files.extend(java_sources(&workspace.root.join("conformance/lib"))?);
    files.sort();
    let classes = home.join("classes");
    once(&classes, &files.iter().collect::<Vec<_>>(), || {
        let mut compiler = Command::new("javac");
        compiler.arg("-d").arg(&classes);
        compiler.arg("-cp").arg(libraries.join("*")).args(&files);
        process::must(&mut compiler)
    })?;
    std::env::join_paths([classes, libraries.join("*")]).context("the target folder has a colon")
}

fn java_sources(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let entries = fs::read_dir(folder);
    for entry in entries.with_context(|| format!("cannot read {}", folder.display()))? {
        let path = entry?.path();
        if path
            .extension()
            .is_some_and(|extension| extension == "java")
        {
            files.push(path);
        }
    }
    Ok(files)
}

fn home(workspace: &Workspace, name: &str) -> Result<PathBuf> {
    let home = workspace.target.join("conformance").join(name);
    fs::create_dir_all(&home).with_context(|| format!("cannot create {}", home.display()))?;
    Ok(home)
}

/// Runs `install` unless it ran before with the same `inputs`.
fn once(home: &Path, inputs: &[&PathBuf], install: impl FnOnce() -> Result<()>) -> Result<()> {
    let mut wanted = String::new();
    for input in inputs {
        let text = fs::read_to_string(input);
        wanted.push_str(&text.with_context(|| format!("cannot read {}", input.display()))?);
    }
    let stamp = home.join("installed");
    if fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted) {
        return Ok(());
    }
    fs::create_dir_all(home).with_context(|| format!("cannot create {}", home.display()))?;
    install()?;
    fs::write(&stamp, wanted).with_context(|| format!("cannot write {}", stamp.display()))
}

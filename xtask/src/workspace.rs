//! The workspace: cargo's metadata and the files.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use cargo_metadata::{Metadata, MetadataCommand, Package, Target};

/// Folders without source of this project, at any depth.
const SKIPPED: [&str; 5] = [
    ".git",
    "target",
    "node_modules",
    "__pycache__",
    "settee-data",
];

/// The workspace: cargo's metadata and its folders.
pub(crate) struct Workspace {
    /// Folder of the root `Cargo.toml`.
    pub(crate) root: PathBuf,
    /// Cargo's target folder. The suites install their clients below it.
    pub(crate) target: PathBuf,
    pub(crate) metadata: Metadata,
}

impl Workspace {
    /// Reads the workspace in which this program was built.
    pub(crate) fn load() -> Result<Self> {
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../Cargo.toml");
        let metadata = MetadataCommand::new()
            .manifest_path(manifest)
            .other_options(vec!["--locked".to_owned()])
            .exec()
            .context("cargo metadata")?;
        Ok(Self {
            root: metadata.workspace_root.clone().into_std_path_buf(),
            target: metadata.target_directory.clone().into_std_path_buf(),
            metadata,
        })
    }

    /// Packages of the workspace, sorted by name.
    pub(crate) fn members(&self) -> Vec<&Package> {
        let mut members = self.metadata.workspace_packages();
        members.sort_by(|a, b| a.name.cmp(&b.name));
        members
    }

    /// Benchmarks of the workspace, each with its package.
    pub(crate) fn benches(&self) -> impl Iterator<Item = (&Package, &Target)> {
        self.members().into_iter().flat_map(|package| {
            let benches = package.targets.iter().filter(|target| target.is_bench());
            benches.map(move |target| (package, target))
        })
    }

    /// Returns the files below the root with one of `extensions`, sorted, as relative paths.
    pub(crate) fn files(&self, extensions: &[&str]) -> Result<Vec<PathBuf>> {
        let mut found = Vec::new();
        collect(&self.root, extensions, &mut found)?;
        let mut relative: Vec<PathBuf> = found
            .into_iter()
            .filter_map(|path| path.strip_prefix(&self.root).map(Path::to_path_buf).ok())
            .collect();
        relative.sort();
        Ok(relative)
    }

    /// Returns the text of a file below the root.
    pub(crate) fn read(&self, relative: impl AsRef<Path>) -> Result<String> {
        let path = self.root.join(relative);
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
    }

    /// Path of the product's debug build, which the suites run.
    pub(crate) fn debug_binary(&self) -> PathBuf {
        self.target.join("debug").join("settee")
    }
}

fn collect(folder: &Path, extensions: &[&str], found: &mut Vec<PathBuf>) -> Result<()> {
    let entries =
        fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))?;
    for entry in entries {
        let entry = entry?;
        let path = entry.path();
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if entry.file_type()?.is_dir() {
            let skipped = SKIPPED.contains(&name.as_ref()) || name.starts_with("target-");
            if !skipped {
                collect(&path, extensions, found)?;
            }
        } else if path
            .extension()
            .is_some_and(|e| extensions.iter().any(|wanted| e == *wanted))
        {
            found.push(path);
        }
    }
    Ok(())
}

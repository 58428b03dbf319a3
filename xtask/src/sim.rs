//! Runs simulated clusters by their seeds.

use anyhow::{Context, Result, bail};

use crate::process;
use crate::workspace::Workspace;

const USAGE: &str = "usage: cargo xtask sim cluster [--seed N] [--seeds COUNT]";

/// Runs the requested seeds one after the other, from `--seed` on. A single seed also prints the events.
pub(crate) fn run(workspace: &Workspace, arguments: &[String]) -> Result<bool> {
    let Some(("cluster", options)) = arguments.split_first().map(|(what, rest)| (&**what, rest))
    else {
        bail!("{USAGE}");
    };
    let mut command = process::cargo(&workspace.root);
    command
        .args([
            "test",
            "--quiet",
            "--package",
            "copies",
            "--test",
            "sim",
            "--",
        ])
        .args(["clusters_keep_their_promises", "--nocapture"]);
    for option in options.chunks(2) {
        let [flag, number] = option else {
            bail!("{} takes a number\n{USAGE}", option[0]);
        };
        let number: u64 = number
            .parse()
            .with_context(|| format!("{flag} takes a number, not `{number}`"))?;
        let variable = match flag.as_str() {
            "--seed" => "SETTEE_SEED",
            "--seeds" => "SETTEE_SEEDS",
            _ => bail!("unknown option `{flag}`\n{USAGE}"),
        };
        command.env(variable, number.to_string());
    }
    let ran = process::stream(&mut command, |line| println!("{line}"))?;
    Ok(ran.success)
}

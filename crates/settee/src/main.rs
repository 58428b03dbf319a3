//! The `settee` binary: the node (`serve`) and the client commands.
//!
//! This crate may not hide logic that a library crate should own. The node is in `server`, the protocol in
//! `wire`, connections in `client`, load in `bench`; flags, exit codes and output are here.

mod bench;
mod cert;
mod check;
mod cluster;
mod collections;
mod compact;
mod connect;
mod ctl;
mod encryption;
mod exit;
mod kv;
mod management;
mod output;
mod promote;
mod replicate;
mod salvage;
mod serve;
mod stat;
mod state_file;
mod stderr;
mod stream;
mod tail;
mod user;

use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};
use clap_complete::Shell;

use exit::{Failure, Sysexit};

#[cfg(feature = "mimalloc")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A small couch: a memory-first document node that speaks the Couchbase KV protocol, and its
/// tools.
#[derive(Debug, Parser)]
#[command(name = "settee", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a node
    Serve(Box<serve::ServeArgs>),
    Stat(stat::StatArgs),
    Promote(promote::PromoteArgs),
    Compact(compact::CompactArgs),
    Ctl(ctl::CtlArgs),
    Check(check::CheckArgs),
    Salvage(salvage::SalvageArgs),
    Encryption(encryption::EncryptionArgs),
    Cert(cert::CertArgs),
    Get(kv::GetArgs),
    Set(kv::SetArgs),
    Del(kv::DelArgs),
    Collections(collections::CollectionsArgs),
    User(user::UserArgs),
    Tail(tail::TailArgs),
    Replicate(replicate::ReplicateArgs),
    Cluster(cluster::ClusterArgs),
    Bench(bench::BenchArgs),
    /// Print a completion script for a shell
    ///
    /// For bash: settee completion bash > ~/.local/share/bash-completion/completions/settee
    Completion {
        /// The shell
        shell: Shell,
    },
    /// Print docs/opcodes.md
    #[command(hide = true)]
    CompatTable,
    /// Print docs/stats.md
    #[command(hide = true)]
    StatsCatalogue,
}

/// Ends the process at a panic of any thread, in debug builds as in release builds: none goes on without a part.
fn end_at_panics() {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        print(panic);
        std::process::abort();
    }));
}

fn main() -> ExitCode {
    end_at_panics();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return explain(&error),
    };
    let result = match cli.command {
        Command::Serve(args) => return serve::run(*args),
        Command::Stat(args) => stat::run(&args),
        Command::Promote(args) => promote::run(&args),
        Command::Compact(args) => compact::run(&args),
        Command::Ctl(args) => ctl::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Salvage(args) => salvage::run(&args),
        Command::Encryption(args) => encryption::run(&args),
        Command::Cert(args) => cert::run(&args),
        Command::Get(args) => kv::get(&args),
        Command::Set(args) => kv::set(&args),
        Command::Del(args) => kv::del(&args),
        Command::Collections(args) => collections::run(&args),
        Command::User(args) => user::run(&args),
        Command::Tail(args) => tail::run(&args),
        Command::Replicate(args) => replicate::run(&args),
        Command::Cluster(args) => cluster::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Completion { shell } => completion(shell),
        Command::CompatTable => output::print(server::opcodes_page().as_bytes()),
        Command::StatsCatalogue => output::print(server::stats_page().as_bytes()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

/// Reports an error of clap. Help and version are answers; everything else is a usage error.
fn explain(error: &clap::Error) -> ExitCode {
    let printed = error.print();
    if error.use_stderr() {
        return ExitCode::from(Sysexit::Usage as u8);
    }
    match output::ended(printed) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

fn completion(shell: Shell) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "settee", &mut script);
    output::print(&script)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_flag_has_help() {
        let mut commands = vec![Cli::command()];
        while let Some(command) = commands.pop() {
            for arg in command.get_arguments().filter(|arg| !arg.is_hide_set()) {
                assert!(
                    arg.get_help().is_some(),
                    "{} {}",
                    command.get_name(),
                    arg.get_id()
                );
            }
            commands.extend(command.get_subcommands().cloned());
        }
    }
}

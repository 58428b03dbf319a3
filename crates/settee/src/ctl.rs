//! `settee ctl`: settings of a running bucket.

use client::Request;
use model::VbId;
use wire::Opcode;

use crate::connect::ConnectArgs;
use crate::exit::Failure;
use crate::output;

/// Change settings of a running bucket.
///
/// They apply until the node stops. Current values are shown by: settee stat config
#[derive(Debug, clap::Args)]
pub(crate) struct CtlArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Set one setting
    ///
    /// flush_param: max_size, mem_low_wat, mem_high_wat (bytes), mem_low_wat_percent, mem_high_wat_percent,
    /// mutation_mem_ratio (0 to 1), backfill_mem_threshold (percent), exp_pager_enabled (true or false),
    /// exp_pager_stime (seconds). checkpoint_param: checkpoint_memory_ratio,
    /// checkpoint_memory_recovery_upper_mark, checkpoint_memory_recovery_lower_mark (0 to 1). dcp_param:
    /// dcp_oso_backfill (auto, enabled or disabled), dcp_backfill_byte_limit, dcp_flow_control_buffer_size
    /// (bytes), dcp_backfill_in_progress_per_connection_limit, dcp_consumer_buffer_ratio (0 to 1),
    /// dcp_idle_timeout (seconds), dcp_noop_mandatory_for_v5_features (true or false). vbucket_param: max_cas (a
    /// number). Other servers have other settings.
    Set {
        /// Family of the setting
        #[arg(value_enum)]
        family: SettingFamily,
        /// Name of the setting
        name: String,
        /// New value
        value: String,
        /// The vBucket of a vbucket_param
        #[arg(long, value_name = "VB", required_if_eq("family", "vbucket_param"))]
        vbucket: Option<u16>,
        #[command(flatten)]
        connect: ConnectArgs,
    },
}

/// Families of settings, numbered as in the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum SettingFamily {
    /// Memory, flush and expiry
    #[value(name = "flush_param")]
    Flush = 1,
    /// Checkpoints
    #[value(name = "checkpoint_param")]
    Checkpoint = 3,
    /// Change streams
    #[value(name = "dcp_param")]
    Dcp = 4,
    /// One vBucket, which --vbucket names
    #[value(name = "vbucket_param")]
    VBucket = 5,
    /// Any setting shown by: settee stat config
    #[value(name = "config_param")]
    Config = 6,
}

/// Runs the command.
///
/// # Errors
/// The server cannot be asked, does not know the setting, or refuses the value.
pub(crate) fn run(args: &CtlArgs) -> Result<(), Failure> {
    let Action::Set {
        family,
        name,
        value,
        vbucket,
        connect,
    } = &args.action;
    let extras = (*family as u32).to_be_bytes();
    connect.connect()?.expect_success(&Request {
        extras: &extras,
        vbucket: VbId(vbucket.unwrap_or(0)),
        ..Request::with(Opcode::SET_PARAM, name.as_bytes(), value.as_bytes())
    })?;
    output::print(format!("set {name} to {value}\n").as_bytes())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Wrapper {
        #[command(flatten)]
        args: CtlArgs,
    }

    #[test]
    fn families_have_the_names_of_other_tools() {
        for (name, number) in [
            ("flush_param", 1),
            ("checkpoint_param", 3),
            ("dcp_param", 4),
            ("vbucket_param", 5),
        ] {
            let words = ["ctl", "set", name, "max_size", "100", "--vbucket", "7"];
            let Action::Set { family, .. } = Wrapper::try_parse_from(words).unwrap().args.action;
            assert_eq!(family as u32, number, "{name}");
        }
        for words in [
            ["ctl", "set", "other", "a", "b"],
            ["ctl", "set", "vbucket_param", "max_cas", "1"],
        ] {
            assert!(Wrapper::try_parse_from(words).is_err(), "{words:?}");
        }
    }
}

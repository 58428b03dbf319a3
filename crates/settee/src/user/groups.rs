//! `settee user group`: groups of users, over the HTTP management of a node.

use hyper::Method;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

use super::records::{self, UserGroup};
use crate::connect::ConnectArgs;
use crate::exit::Failure;
use crate::management::{Management, parse};
use crate::output;

const GROUPS: &str = "/settings/rbac/groups";

#[derive(Debug, clap::Subcommand)]
pub(super) enum GroupAction {
    Add(AddGroupArgs),
    /// Print every group with description and roles
    List {
        /// Print the answer of the HTTP management, JSON
        #[arg(long, env = "SETTEE_JSON")]
        json: bool,
        #[command(flatten)]
        connect: ConnectArgs,
    },
    /// Delete a group; its users lose its roles at once
    ///
    /// Exit code 66 when there is no such group.
    Del {
        /// Name of the group
        group: String,
        #[command(flatten)]
        connect: ConnectArgs,
    },
}

/// Add a group, or replace roles and description of a group
///
/// Users join it with `settee user add USER --group GROUP`.
#[derive(Debug, clap::Args)]
pub(super) struct AddGroupArgs {
    /// Name of the group
    group: String,
    /// A role, as `settee user list --roles` names them; may be repeated
    #[arg(long = "role", value_name = "ROLE")]
    roles: Vec<String>,
    /// Description of the group
    #[arg(long, value_name = "TEXT", default_value = "")]
    description: String,
    #[command(flatten)]
    connect: ConnectArgs,
}

/// Runs `user group`.
///
/// # Errors
/// The node cannot be asked, or refuses.
pub(super) fn run(what: &GroupAction) -> Result<(), Failure> {
    match what {
        GroupAction::Add(args) => {
            let roles = args.roles.join(",");
            let form = [("roles", &*roles), ("description", &*args.description)];
            let management = Management::find(&args.connect)?;
            management.ask(Method::PUT, &path(&args.group), &form)?;
            output::print(format!("saved {}\n", args.group).as_bytes())
        }
        GroupAction::List { json, connect } => {
            let answer = Management::find(connect)?.ask(Method::GET, GROUPS, &[])?;
            if *json {
                return output::print_json(&parse::<Value>(&answer)?);
            }
            let groups = parse::<Vec<UserGroup>>(&answer)?;
            output::print(records::table_of_groups(&groups).as_bytes())
        }
        GroupAction::Del { group, connect } => {
            Management::find(connect)?.ask(Method::DELETE, &path(group), &[])?;
            output::print(format!("deleted {group}\n").as_bytes())
        }
    }
}

fn path(group: &str) -> String {
    let group = utf8_percent_encode(group, NON_ALPHANUMERIC);
    format!("{GROUPS}/{group}")
}

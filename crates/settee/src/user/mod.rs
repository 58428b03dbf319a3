//! `settee user`: users and their roles, over the HTTP management of a node.

mod groups;
mod records;

use std::io::Read as _;
use std::path::{Path, PathBuf};

use hyper::Method;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

use self::groups::GroupAction;
use self::records::{UserRecord, UserRole};
use crate::connect::{ConnectArgs, first_line};
use crate::exit::Failure;
use crate::management::{Management, parse};
use crate::output;

/// Environment variable with the new password of a user.
const NEW_PASSWORD_VARIABLE: &str = "SETTEE_NEW_PASSWORD";
const LOCAL_USERS: &str = "/settings/rbac/users/local";

/// Add, list and delete users and groups of users, and change passwords.
///
/// The management port is read from the cluster map of the node at the address of --connect. The administrator
/// with which `settee serve` was started is not in the list.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  settee user add ana --role 'data_reader[shop]' --new-password-file ana.txt
  settee user add bo --role 'data_reader[shop:sales:orders],data_writer[shop:sales:orders]' \\
                     --new-password-file - < bo.txt
  settee user list
  settee user passwd ana --new-password-file ana.txt
  settee user del ana
  settee user group add readers --role 'data_reader[shop]'
  settee user add cy --group readers --new-password-file cy.txt")]
pub(crate) struct UserArgs {
    #[command(subcommand)]
    what: UserAction,
}

#[derive(Debug, clap::Subcommand)]
enum UserAction {
    Add(AddArgs),
    /// Print every user with name, roles (those of groups too) and groups
    List {
        /// Print the existing roles instead
        #[arg(long)]
        roles: bool,
        /// Print the answer of the HTTP management, JSON
        #[arg(long, env = "SETTEE_JSON")]
        json: bool,
        #[command(flatten)]
        connect: ConnectArgs,
    },
    /// Delete a user; open connections of the user can do nothing more
    ///
    /// Exit code 66 when there is no such user.
    Del {
        /// Name of the user
        user: String,
        #[command(flatten)]
        connect: ConnectArgs,
    },
    /// Change the password of a user
    Passwd {
        /// Name of the user [default: the user of --connect]
        user: Option<String>,
        #[command(flatten)]
        new_password: NewPasswordArgs,
        #[command(flatten)]
        connect: ConnectArgs,
    },
    /// Add, list and delete groups, whose users get their roles
    Group {
        #[command(subcommand)]
        what: GroupAction,
    },
}

/// Add a user, or replace roles, groups and name of a user
///
/// A new user needs a password. An existing user keeps the password unless a new one is given.
#[derive(Debug, clap::Args)]
struct AddArgs {
    /// Name of the user
    user: String,
    /// A role, as `settee user list --roles` names them: data_reader[BUCKET], data_reader[BUCKET:SCOPE],
    /// data_reader[BUCKET:SCOPE:COLLECTION], data_reader[*], admin; may be repeated
    #[arg(long = "role", value_name = "ROLE")]
    roles: Vec<String>,
    /// A group that the user belongs to, whose roles the user gets; may be repeated
    #[arg(long = "group", value_name = "GROUP")]
    groups: Vec<String>,
    /// Full name of the user
    #[arg(long, value_name = "TEXT", default_value = "")]
    name: String,
    #[command(flatten)]
    new_password: NewPasswordArgs,
    #[command(flatten)]
    connect: ConnectArgs,
}

/// The new password of a user.
#[derive(Debug, clap::Args)]
struct NewPasswordArgs {
    /// File with the new password of the user in its first line; - reads standard input. Without it, the
    /// environment variable SETTEE_NEW_PASSWORD may hold the password
    #[arg(long, env = "SETTEE_NEW_PASSWORD_FILE", value_name = "FILE")]
    new_password_file: Option<PathBuf>,
}

impl NewPasswordArgs {
    fn read(&self) -> Result<Option<String>, Failure> {
        let Some(path) = &self.new_password_file else {
            let variable = std::env::var(NEW_PASSWORD_VARIABLE);
            return Ok(variable.ok().filter(|password| !password.is_empty()));
        };
        let mut text = String::new();
        let read = if path == Path::new("-") {
            std::io::stdin().read_to_string(&mut text).map(|_| text)
        } else {
            std::fs::read_to_string(path)
        };
        let usage =
            |why: &str| Failure::usage(format!("--new-password-file {}: {why}", path.display()));
        let text = read.map_err(|error| usage(&error.to_string()))?;
        match first_line(&text) {
            "" => Err(usage("its first line is empty")),
            password => Ok(Some(password.to_owned())),
        }
    }
}

/// Runs `user`.
///
/// # Errors
/// The node cannot be asked, or refuses.
pub(crate) fn run(args: &UserArgs) -> Result<(), Failure> {
    match &args.what {
        UserAction::Add(args) => add(args),
        UserAction::Group { what } => groups::run(what),
        UserAction::List {
            roles,
            json,
            connect,
        } => list(&Management::find(connect)?, *roles, *json),
        UserAction::Del { user, connect } => {
            let management = Management::find(connect)?;
            management.ask(Method::DELETE, &path(user), &[])?;
            output::print(format!("deleted {user}\n").as_bytes())
        }
        UserAction::Passwd {
            user,
            new_password,
            connect,
        } => {
            let Some(password) = new_password.read()? else {
                let why = format!("give --new-password-file or {NEW_PASSWORD_VARIABLE}");
                return Err(Failure::usage(why));
            };
            change_password(&Management::find(connect)?, user.as_deref(), &password)
        }
    }
}

fn add(args: &AddArgs) -> Result<(), Failure> {
    let (roles, groups) = (args.roles.join(","), args.groups.join(","));
    let password = args.new_password.read()?;
    let mut form = vec![
        ("name", &*args.name),
        ("roles", &roles),
        ("groups", &groups),
    ];
    form.extend(password.iter().map(|password| ("password", &**password)));
    let management = Management::find(&args.connect)?;
    management.ask(Method::PUT, &path(&args.user), &form)?;
    output::print(format!("saved {}\n", args.user).as_bytes())
}

fn list(management: &Management, roles: bool, json: bool) -> Result<(), Failure> {
    let path = if roles {
        "/settings/rbac/roles"
    } else {
        LOCAL_USERS
    };
    let answer = management.ask(Method::GET, path, &[])?;
    if json {
        return output::print_json(&parse::<Value>(&answer)?);
    }
    let table = if roles {
        records::table_of_roles(&parse::<Vec<UserRole>>(&answer)?)
    } else {
        records::table_of_users(&parse::<Vec<UserRecord>>(&answer)?)
    };
    output::print(table.as_bytes())
}

/// Changes the password. The HTTP management replaces a user as a whole, so everything else is sent unchanged.
fn change_password(
    management: &Management,
    user: Option<&str>,
    password: &str,
) -> Result<(), Failure> {
    let user = user.unwrap_or(management.user());
    if user == management.user() {
        let form = [("password", password)];
        management.ask(Method::POST, "/controller/changePassword", &form)?;
    } else {
        let record: UserRecord = parse(&management.ask(Method::GET, &path(user), &[])?)?;
        let (roles, groups) = (record.own_roles(), record.groups());
        let form = [
            ("name", record.name()),
            ("roles", &roles),
            ("groups", &groups),
            ("password", password),
        ];
        management.ask(Method::PUT, &path(user), &form)?;
    }
    output::print(format!("changed the password of {user}\n").as_bytes())
}

fn path(user: &str) -> String {
    let user = utf8_percent_encode(user, NON_ALPHANUMERIC);
    format!("{LOCAL_USERS}/{user}")
}

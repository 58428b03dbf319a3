//! `settee collections`: scopes and collections, over the HTTP management of a node.

use std::fmt::Write as _;

use hyper::Method;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use serde_json::Value;

use crate::connect::ConnectArgs;
use crate::exit::{Failure, Sysexit};
use crate::management::{Form, Management, parse};
use crate::output;

/// List, create and drop scopes and collections.
///
/// The management port is read from the cluster map of the node at the address of --connect.
#[derive(Debug, clap::Args)]
pub(crate) struct CollectionsArgs {
    #[command(subcommand)]
    what: CollectionsAction,
}

#[derive(Debug, clap::Subcommand)]
enum CollectionsAction {
    /// Print every collection with its scope, its number and its limit of the time to live
    List {
        #[command(flatten)]
        connect: ConnectArgs,
        /// Print the manifest as JSON
        #[arg(long, env = "SETTEE_JSON")]
        json: bool,
    },
    /// Create a scope, or a collection (and its scope, if it is missing)
    Create {
        /// SCOPE or SCOPE.COLLECTION
        path: String,
        /// Longest time to live of documents of the collection, seconds; 0 for no limit
        #[arg(long, env = "SETTEE_MAX_TTL", value_name = "SECONDS")]
        max_ttl: Option<u32>,
        #[command(flatten)]
        connect: ConnectArgs,
    },
    /// Drop a scope with everything in it, or a collection
    Drop {
        /// SCOPE or SCOPE.COLLECTION
        path: String,
        #[command(flatten)]
        connect: ConnectArgs,
    },
}

/// A manifest, as far as it is printed.
#[derive(Deserialize)]
struct ManifestRecord {
    scopes: Vec<ScopeRecord>,
}

#[derive(Deserialize)]
struct ScopeRecord {
    name: String,
    collections: Vec<CollectionRecord>,
}

#[derive(Deserialize)]
struct CollectionRecord {
    name: String,
    uid: String,
    /// 0 for the limit of the bucket, -1 for none.
    #[serde(rename = "maxTTL")]
    max_ttl: i64,
}

/// Runs `collections`.
///
/// # Errors
/// The server cannot be asked, or refuses.
pub(crate) fn run(args: &CollectionsArgs) -> Result<(), Failure> {
    match &args.what {
        CollectionsAction::List { connect, json } => list(&Management::find(connect)?, *json),
        CollectionsAction::Create {
            path,
            max_ttl,
            connect,
        } => create(&Management::find(connect)?, path, *max_ttl),
        CollectionsAction::Drop { path, connect } => {
            let management = Management::find(connect)?;
            let below = match path.split_once('.') {
                Some((scope, name)) => format!("{}/{}", collections(scope), encoded(name)),
                None => format!("/{}", encoded(path)),
            };
            change(&management, Method::DELETE, &below, &[])
        }
    }
}

fn list(management: &Management, json: bool) -> Result<(), Failure> {
    let answer = management.ask(Method::GET, &scopes(management), &[])?;
    if json {
        return output::print_json(&parse::<Value>(&answer)?);
    }
    let mut text = String::new();
    for scope in parse::<ManifestRecord>(&answer)?.scopes {
        for collection in &scope.collections {
            let ttl = match collection.max_ttl {
                0 => String::new(),
                ttl => format!(" max-ttl {}", ttl.max(0)),
            };
            let (scope, name, id) = (&scope.name, &collection.name, &collection.uid);
            let _infallible = writeln!(text, "{scope}.{name} 0x{id}{ttl}");
        }
        if scope.collections.is_empty() {
            let _infallible = writeln!(text, "{}.", scope.name);
        }
    }
    output::print(text.as_bytes())
}

/// Creates the named scope or collection; a missing scope is created too.
fn create(management: &Management, path: &str, max_ttl: Option<u32>) -> Result<(), Failure> {
    let Some((scope, name)) = path.split_once('.') else {
        return change(management, Method::POST, "", &[("name", path)]);
    };
    let ttl = match max_ttl {
        None => 0,
        Some(0) => -1,
        Some(ttl) => i64::from(ttl),
    };
    let ttl = ttl.to_string();
    let form = [("name", name), ("maxTTL", &*ttl)];
    let collection = || change(management, Method::POST, &collections(scope), &form);
    match collection() {
        Err(missing) if missing.code() == Sysexit::NoInput => {
            let path = scopes(management);
            let made = management.ask(Method::POST, &path, &[("name", scope)]);
            // Another client may have made the scope meanwhile.
            collection().map_err(|later| made.err().unwrap_or(later))
        }
        done => done,
    }
}

/// Asks for a change at a path below that of the scopes, and prints the number of the new manifest.
fn change(
    management: &Management,
    method: Method,
    below: &str,
    form: &Form<'_>,
) -> Result<(), Failure> {
    let answer = management.ask(method, &format!("{}{below}", scopes(management)), form)?;
    let answer = parse::<Value>(&answer)?;
    let uid = answer["uid"].as_str().unwrap_or_default();
    output::print(format!("manifest {uid}\n").as_bytes())
}

/// Returns the path of the scopes of the bucket.
fn scopes(management: &Management) -> String {
    format!(
        "/pools/default/buckets/{}/scopes",
        encoded(management.bucket())
    )
}

/// Returns the path of the collections of a scope, below that of the scopes.
fn collections(scope: &str) -> String {
    format!("/{}/collections", encoded(scope))
}

fn encoded(name: &str) -> String {
    utf8_percent_encode(name, NON_ALPHANUMERIC).to_string()
}

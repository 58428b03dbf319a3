//! `settee collections`: scopes and collections, over the KV protocol.

use std::fmt::Write as _;

use client::{Client, Request};
use collections::{CollectionSettings, Manifest, ManifestError};
use server::collections::{of_json, to_json};
use wire::{Opcode, Status};

use crate::connect::ConnectArgs;
use crate::exit::{Failure, Sysexit};
use crate::output;

/// Number of attempts to change the manifest when other clients change it meanwhile.
const TRIES: usize = 10;

/// List, create and drop scopes and collections.
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

/// Runs `collections`.
///
/// # Errors
/// The server cannot be asked, or refuses.
pub(crate) fn run(args: &CollectionsArgs) -> Result<(), Failure> {
    match &args.what {
        CollectionsAction::List { connect, json } => list(&mut connect.connect()?, *json),
        CollectionsAction::Create {
            path,
            max_ttl,
            connect,
        } => {
            let settings = CollectionSettings {
                max_ttl_s: *max_ttl,
                history: false,
            };
            let edit = |now: &Manifest| create(now, path, settings);
            change(&mut connect.connect()?, &edit)
        }
        CollectionsAction::Drop { path, connect } => {
            let edit = |now: &Manifest| match path.split_once('.') {
                Some((scope, name)) => now.without_collection(scope, name),
                None => now.without_scope(path),
            };
            change(&mut connect.connect()?, &edit)
        }
    }
}

/// Returns a manifest with the named scope or collection added; a missing scope is created too.
fn create(
    now: &Manifest,
    path: &str,
    settings: CollectionSettings,
) -> Result<Manifest, ManifestError> {
    let Some((scope, name)) = path.split_once('.') else {
        return now.with_scope(path);
    };
    if now.scope_named(scope).is_some() {
        return now.with_collection(scope, name, settings);
    }
    now.with_scope(scope)?
        .with_collection(scope, name, settings)
}

fn manifest(client: &mut Client) -> Result<Manifest, Failure> {
    let asked = Request::with(Opcode::COLLECTIONS_GET_MANIFEST, b"", b"");
    let answer = client.expect_success(&asked)?;
    let broken = |error: ManifestError| Failure::new(Sysexit::Protocol, error.to_string());
    of_json(&answer.value).map_err(broken)
}

fn list(client: &mut Client, json: bool) -> Result<(), Failure> {
    let manifest = manifest(client)?;
    if json {
        return output::print_json(&to_json(&manifest));
    }
    let mut text = String::new();
    for scope in manifest.scopes() {
        for collection in &scope.collections {
            let ttl = match collection.settings.max_ttl_s {
                None => String::new(),
                Some(ttl) => format!(" max-ttl {ttl}"),
            };
            let (scope, name, id) = (&scope.name, &collection.name, collection.id.0);
            let _infallible = writeln!(text, "{scope}.{name} 0x{id:x}{ttl}");
        }
        if scope.collections.is_empty() {
            let _infallible = writeln!(text, "{}.", scope.name);
        }
    }
    output::print(text.as_bytes())
}

fn change(
    client: &mut Client,
    edit: &dyn Fn(&Manifest) -> Result<Manifest, ManifestError>,
) -> Result<(), Failure> {
    let mut tries = 0;
    loop {
        let next = edit(&manifest(client)?);
        let next = next.map_err(|error| Failure::new(Sysexit::Data, error.to_string()))?;
        let text = to_json(&next).to_string();
        let message = Request::with(Opcode::COLLECTIONS_SET_MANIFEST, b"", text.as_bytes());
        let answer = client.request(&message)?;
        tries += 1;
        if answer.status == Status::CANNOT_APPLY_COLLECTIONS_MANIFEST && tries < TRIES {
            continue;
        }
        if answer.status != Status::SUCCESS {
            let context = answer.context();
            let why = context.unwrap_or_else(|| answer.status.description().to_owned());
            return Err(Failure::new(Sysexit::Unavailable, why));
        }
        return output::print(format!("manifest {:x}\n", next.uid().0).as_bytes());
    }
}

//! The users of a group of nodes are those of its active node: the others ask it for them.

use identity::Roster;

use crate::registry::Registry;

/// Path of the setting with which a node that follows this one asks for its users; the value is the edition that it
/// has. The answer is empty if that is the one in force, else the roster.
pub const USERS: &[u8] = b"replication.users";

/// Longest roster that is told: an answer has to fit into a frame.
const TOLD_BYTES_MAX: usize = 16 << 20;

/// What a node that follows this one asks with.
pub fn users_question(node: &Registry) -> String {
    node.identity.edition().to_string()
}

/// The answer to one that has the users of an edition. Cost: some 10 ms for 10,000 users if it has others.
///
/// # Errors
/// Why there is none.
pub fn tell_users(node: &Registry, has: &[u8]) -> Result<Vec<u8>, &'static str> {
    let has = std::str::from_utf8(has)
        .ok()
        .and_then(|text| text.parse().ok());
    let has: u64 = has.ok_or("an edition of users is a number")?;
    let roster = node.identity.roster();
    if roster.edition == has {
        return Ok(Vec::new());
    }
    let told = serde_json::to_vec(&roster).map_err(|_| "the users cannot be told")?;
    if told.len() > TOLD_BYTES_MAX {
        return Err("the users are too many to be told");
    }
    Ok(told)
}

/// Takes the users that the active node told. They hold for every command that arrives.
///
/// # Errors
/// They make no sense, or could not be written; why. They are as before.
pub fn take_users(node: &Registry, told: &[u8]) -> Result<(), String> {
    if told.is_empty() {
        return Ok(());
    }
    let roster: Roster = serde_json::from_slice(told).map_err(|error| error.to_string())?;
    let (users, edition) = (roster.directory.users.all().len(), roster.edition);
    if node.identity.edition() == edition {
        return Ok(());
    }
    node.env.follow_users(roster)?;
    tracing::info!(users, edition, "the users are those of the active node");
    node.users_changed();
    Ok(())
}

//! The users of a group of nodes are those of its active node: the other nodes ask it for them.

use identity::Roster;

use crate::registry::Registry;

/// Path of the setting with which a following node asks this one for its users. The value is the edition of users that
/// the asking node has. The answer is empty if that edition is current, else it is the roster.
pub const USERS: &[u8] = b"replication.users";

/// Longest roster that is sent, bytes: an answer must fit a frame.
const ROSTER_BYTES_MAX: usize = 16 << 20;

/// Builds the question that a following node sends. Users that are in force and not on disk are asked for again.
pub fn users_question(node: &Registry) -> String {
    node.identity.kept_edition().to_string()
}

/// Answers a node that has the users of edition `has`. Cost: some 10 ms for 10,000 users if the edition differs.
///
/// # Errors
/// The reason why there is no answer.
pub fn tell_users(node: &Registry, has: &[u8]) -> Result<Vec<u8>, &'static str> {
    let has = std::str::from_utf8(has)
        .ok()
        .and_then(|text| text.parse().ok());
    let has: u64 = has.ok_or("an edition of users is a number")?;
    let roster = node.identity.roster();
    if roster.edition == has {
        return Ok(Vec::new());
    }
    let encoded = serde_json::to_vec(&roster).map_err(|_| "the users cannot be told")?;
    if encoded.len() > ROSTER_BYTES_MAX {
        return Err("the users are too many to be told");
    }
    Ok(encoded)
}

/// Takes the users that the active node sent. They apply to every command that arrives from here on, also while they are
/// being written and if they cannot be: a removed user must not be let in meanwhile. Blocks for the disk.
///
/// # Errors
/// The users are not valid, and stay as they were, or could not be written; with the reason.
pub fn take_users(node: &Registry, encoded: &[u8]) -> Result<(), String> {
    if encoded.is_empty() {
        return Ok(());
    }
    let roster: Roster = serde_json::from_slice(encoded).map_err(|error| error.to_string())?;
    let (users, edition) = (roster.directory.users.all().len(), roster.edition);
    if node.identity.kept_edition() == edition {
        return Ok(());
    }
    if node.identity.edition() != edition {
        node.identity.replace_roster(roster.clone());
        tracing::info!(users, edition, "the users are taken over from another node");
        node.users_changed();
    }
    node.env.keep_users(&roster)
}

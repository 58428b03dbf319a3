//! The user that reads a feed.

use std::sync::Arc;

use identity::{AuthenticatedUser, Identity, Privilege, PrivilegeSet};

const NEEDED: PrivilegeSet = PrivilegeSet::of(&[Privilege::DcpProducer, Privilege::DcpStream]);

/// The scope or the collection of a feed.
#[derive(Debug)]
pub(super) struct FeedPart {
    pub(super) scope: String,
    /// `None` for the whole scope.
    pub(super) collection: Option<String>,
}

/// The user that reads a feed, with its current rights.
#[derive(Debug)]
pub struct FeedReader {
    identity: Arc<Identity>,
    user: AuthenticatedUser,
}

impl FeedReader {
    /// Creates the reader of a user that is logged in.
    pub fn new(identity: Arc<Identity>, user: AuthenticatedUser) -> Self {
        Self { identity, user }
    }

    /// Checks whether the user may stream the changes of a bucket, or of a part of it. Cost: a comparison and a look at
    /// the user's grants; more after a change of any user.
    pub(super) fn may_read(&mut self, bucket: &str, part: Option<&FeedPart>) -> bool {
        if self.user.revision != self.identity.revision() {
            match self.identity.look_up(&self.user.name) {
                Some(now) => self.user = now,
                None => return false,
            }
        }
        let access = &self.user.access;
        let given = match part {
            None => access.of_bucket(bucket),
            Some(part) => access.of_part(bucket, &part.scope, part.collection.as_deref()),
        };
        given.contains(NEEDED)
    }
}

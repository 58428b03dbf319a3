//! Whether the peer of a connection may do what it asks for.

use identity::{Access, Privilege, PrivilegeSet};
use model::CollectionId;
use wire::Status;

use crate::access::{SessionAccess, check};
use crate::commands::{Command, Scope, Where};
use crate::dcp::Limit;
use crate::outcome::Refusal;
use crate::session::{Port, Session};

impl Session {
    /// Looks at the user's grants again if those of any user have changed since.
    pub(crate) fn refresh_access(&mut self) {
        let revision = self.node.identity.revision();
        if self.access.is_of(revision, self.bucket.as_deref()) {
            return;
        }
        self.work_out_access();
        self.end_lost_streams();
    }

    /// Gives up privileges for as long as the connection lives, or until it logs in again.
    pub(crate) fn drop_privileges(&mut self, dropped: PrivilegeSet) {
        let dropped = self.access.dropped().with(dropped);
        let revision = self.access.revision();
        self.access = std::mem::take(&mut self.access).at(revision, dropped);
        self.end_lost_streams();
    }

    /// Ends the streams of changes that the peer may not have any more.
    fn end_lost_streams(&self) {
        if let Some(producer) = &self.dcp {
            producer
                .lock()
                .end_unless(&|limit| self.check_stream(limit));
        }
    }

    /// Whether the peer may have a stream of changes with these limits.
    ///
    /// # Errors
    /// As [`Session::check_collection`] does.
    pub(crate) fn check_stream(&self, limit: Option<&Limit>) -> Result<(), Refusal> {
        const STREAMS: PrivilegeSet = PrivilegeSet::of(&[Privilege::DcpStream]);
        if self.access.bucket().contains(STREAMS) {
            return Ok(());
        }
        match limit {
            None => self.check_bucket(STREAMS),
            Some(Limit::Collections(ids)) => ids
                .iter()
                .try_for_each(|id| self.check_collection(*id, STREAMS)),
            Some(Limit::Scope(id)) => {
                let (Some(served), Some(user)) = (&self.bucket, &self.user) else {
                    return self.check_bucket(STREAMS);
                };
                let manifest = served.bucket.manifest();
                let scope = manifest.scope(*id).ok_or(Status::UNKNOWN_SCOPE)?;
                let given = user.access.of_part(served.name(), &scope.name, None);
                if given.is_empty() {
                    return Err(Status::UNKNOWN_SCOPE.into());
                }
                check(STREAMS, given.without(self.access.dropped()))
            }
        }
    }

    /// Works out what the peer may do in the selected bucket.
    pub(crate) fn work_out_access(&mut self) {
        // Read first: what changes in between is looked at once more.
        let revision = self.node.identity.revision();
        if let Some(user) = &mut self.user
            && user.revision != revision
        {
            match self.node.identity.look_up(&user.name) {
                Some(now) => *user = now,
                // Removed: may do nothing any more.
                None => user.access = Access::default().into(),
            }
        }
        let access = match &self.user {
            Some(user) => SessionAccess::of_user(&user.access, self.bucket.as_deref()),
            None => SessionAccess::without_user(self.port == Port::Memcached),
        };
        self.access = access.at(revision, self.access.dropped());
    }

    /// Whether the peer may send a command at all.
    ///
    /// # Errors
    /// A privilege is missing; which one.
    pub(crate) fn check_access(&self, command: &Command) -> Result<(), Refusal> {
        let given = match command.within {
            // That of its collection counts.
            Where::Document => return Ok(()),
            Where::Anywhere => self.access.anywhere(),
            Where::Whole => self.access.bucket(),
        };
        check(command.privileges, given)?;
        if command.scope != Scope::Node {
            self.check_membership()?;
        }
        Ok(())
    }

    /// Whether the peer has any privilege in the selected bucket.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn check_membership(&self) -> Result<(), Refusal> {
        if self.access.sees_bucket() {
            Ok(())
        } else {
            Err(Refusal::MissingPrivileges(PrivilegeSet::EMPTY))
        }
    }

    /// Whether the peer has privileges in the whole of the bucket.
    ///
    /// # Errors
    /// One is missing; which one.
    pub(crate) fn check_bucket(&self, needed: PrivilegeSet) -> Result<(), Refusal> {
        check(needed, self.access.bucket())
    }

    /// Whether the peer has privileges in one collection at least.
    ///
    /// # Errors
    /// One is missing; which one.
    pub(crate) fn check_anywhere(&self, needed: PrivilegeSet) -> Result<(), Refusal> {
        check(needed, self.access.anywhere())
    }

    /// Whether the peer has privileges in a collection that exists.
    ///
    /// # Errors
    /// One is missing; a user with none there does not learn that the collection exists.
    pub(crate) fn check_collection(
        &self,
        id: CollectionId,
        needed: PrivilegeSet,
    ) -> Result<(), Refusal> {
        let given = self.access.collection(id);
        if given.contains(needed) {
            return Ok(());
        }
        // Without any privilege left, clients would look for the collection until their timeout.
        self.check_membership()?;
        if !self.access.sees_collection(id) {
            return Err(Refusal::UnknownCollection);
        }
        check(needed, given)
    }

    /// Whether the peer may know of a scope of the selected bucket, or of a collection in it.
    pub(crate) fn sees(&self, scope: &str, collection: Option<&str>) -> bool {
        let (Some(served), Some(user)) = (&self.bucket, &self.user) else {
            return self.port == Port::Memcached;
        };
        user.access.sees(served.name(), scope, collection)
    }
}

//! Checks whether the peer of a connection has the privileges for a request.

use identity::{Access, Privilege, PrivilegeSet};
use model::CollectionId;
use wire::Status;

use crate::access::{SessionAccess, check};
use crate::commands::{Command, PrivilegeScope, Scope};
use crate::dcp::Limit;
use crate::outcome::Refusal;
use crate::session::{Port, Session};

impl Session {
    /// Computes the peer's privileges again if the grants of any user have changed.
    pub(crate) fn refresh_access(&mut self) {
        let revision = self.node.identity.revision();
        if !self.access.is_of(revision, self.bucket.as_deref()) {
            self.work_out_access();
        }
    }

    /// Drops privileges for the lifetime of the connection, or until its next login.
    pub(crate) fn drop_privileges(&mut self, dropped: PrivilegeSet) {
        let dropped = self.access.dropped().with(dropped);
        let revision = self.access.revision();
        self.access = std::mem::take(&mut self.access).at(revision, dropped);
        self.end_lost_streams();
    }

    /// Ends the change streams for which the peer has lost the privilege.
    fn end_lost_streams(&self) {
        if let Some(producer) = &self.dcp {
            producer
                .lock()
                .end_unless(&|limit| self.check_stream(limit));
        }
    }

    /// Checks whether the peer may have a change stream with these limits.
    ///
    /// # Errors
    /// The same as [`Session::check_collection`].
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

    /// Computes the peer's privileges in the selected bucket, and ends the change streams that they forbid.
    pub(crate) fn work_out_access(&mut self) {
        // Read the revision first: a change during the computation leads to another one.
        let revision = self.node.identity.revision();
        if let Some(user) = &mut self.user
            && user.revision != revision
        {
            match self.node.identity.look_up(&user.name) {
                Some(now) => *user = now,
                // The user was removed: it has no privileges.
                None => user.access = Access::default().into(),
            }
        }
        let access = match &self.user {
            Some(user) => SessionAccess::of_user(&user.access, self.bucket.as_deref()),
            None => SessionAccess::without_user(self.port == Port::Memcached),
        };
        self.access = access.at(revision, self.access.dropped());
        self.end_lost_streams();
    }

    /// Checks whether the peer may send this command at all.
    ///
    /// # Errors
    /// The missing privilege.
    pub(crate) fn check_access(&self, command: &Command) -> Result<(), Refusal> {
        let given = match command.within {
            // The privileges in its collection decide; they are checked later.
            PrivilegeScope::Document => return Ok(()),
            PrivilegeScope::Anywhere => self.access.anywhere(),
            PrivilegeScope::Whole => self.access.bucket(),
        };
        check(command.privileges, given)?;
        if command.scope != Scope::Node {
            self.check_membership()?;
        }
        Ok(())
    }

    /// Checks whether the peer has any privilege in the selected bucket.
    ///
    /// # Errors
    /// The peer has none.
    pub(crate) fn check_membership(&self) -> Result<(), Refusal> {
        if self.access.sees_bucket() {
            Ok(())
        } else {
            Err(Refusal::MissingPrivileges(PrivilegeSet::EMPTY))
        }
    }

    /// Checks whether the peer has privileges in the whole bucket.
    ///
    /// # Errors
    /// The missing privilege.
    pub(crate) fn check_bucket(&self, needed: PrivilegeSet) -> Result<(), Refusal> {
        check(needed, self.access.bucket())
    }

    /// Checks whether the peer has privileges in at least one collection.
    ///
    /// # Errors
    /// The missing privilege.
    pub(crate) fn check_anywhere(&self, needed: PrivilegeSet) -> Result<(), Refusal> {
        check(needed, self.access.anywhere())
    }

    /// Checks whether the peer has privileges in a collection that exists.
    ///
    /// # Errors
    /// The missing privilege. A user without any privilege in the collection gets "unknown collection" instead.
    pub(crate) fn check_collection(
        &self,
        id: CollectionId,
        needed: PrivilegeSet,
    ) -> Result<(), Refusal> {
        let given = self.access.collection(id);
        if given.contains(needed) {
            return Ok(());
        }
        // Without this check, clients of a peer without privileges would look for the collection until their timeout.
        self.check_membership()?;
        if !self.access.sees_collection(id) {
            return Err(Refusal::UnknownCollection);
        }
        check(needed, given)
    }

    /// Whether the peer may know that a scope of the selected bucket exists, or a collection in it.
    pub(crate) fn sees(&self, scope: &str, collection: Option<&str>) -> bool {
        let (Some(served), Some(user)) = (&self.bucket, &self.user) else {
            return self.port == Port::Memcached;
        };
        user.access.sees(served.name(), scope, collection)
    }
}

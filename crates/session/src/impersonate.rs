//! Requests on behalf of another user.

use std::sync::Arc;

use identity::{AuthenticatedUser, Privilege, PrivilegeSet};
use wire::{RequestInfos, Status};

use crate::access::{Impersonator, SessionAccess, check};
use crate::commands::Scope;
use crate::outcome::Refusal;
use crate::session::Session;

impl Session {
    /// Makes the peer act as the user that a request names, until [`Session::end_impersonation`].
    ///
    /// The request has the privileges that both users have. Extra privileges count as privileges of the other user.
    ///
    /// # Errors
    /// The peer may not impersonate, or the user or a privilege does not exist.
    pub(crate) fn impersonate(
        &mut self,
        infos: &RequestInfos<'_>,
        scope: Scope,
    ) -> Result<(), Refusal> {
        let mut extra = PrivilegeSet::EMPTY;
        for name in infos.extra_privileges.iter() {
            let one = Privilege::named(name).ok_or(Refusal::invalid("unknown privilege"))?;
            extra = extra.with(PrivilegeSet::of(&[one]));
        }
        if infos.impersonate.is_none() && infos.auth_token_id.is_none() && extra.is_empty() {
            return Ok(());
        }
        let needed = PrivilegeSet::of(&[Privilege::Impersonate]);
        check(needed, self.access.node())?;
        if infos.auth_token_id.is_some() {
            let reason = "there are no registered tokens";
            return Err(Refusal::because(Status::EACCESS, reason));
        }
        let (Some(name), Some(own)) = (infos.impersonate, &self.user) else {
            return Ok(());
        };
        if scope == Scope::Node {
            let reason = "this command does not run on behalf of another user";
            return Err(Refusal::because(Status::NOT_SUPPORTED, reason));
        }
        // A name with `^` is of the external domain, which has no users. No local name contains `^`.
        let name = str::from_utf8(name).unwrap_or_default();
        let other = self.node.identity.look_up(name);
        let unknown = || Refusal::because(Status::EACCESS, "no such user to impersonate");
        let other = other.ok_or_else(unknown)?;
        let common = own.access.common(&other.access, extra);
        let access = SessionAccess::of_user(&common, self.bucket.as_deref());
        let access = access.at(own.revision, self.access.dropped());
        let user = AuthenticatedUser {
            access: Arc::new(common),
            ..other
        };
        self.impersonator = Some(Box::new(Impersonator {
            user: self.user.replace(user),
            access: std::mem::replace(&mut self.access, access),
        }));
        Ok(())
    }

    /// Restores the peer's own user and privileges.
    pub(crate) fn end_impersonation(&mut self) {
        if let Some(own) = self.impersonator.take() {
            self.user = own.user;
            self.access = own.access;
        }
    }
}

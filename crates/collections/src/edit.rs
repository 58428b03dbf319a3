//! Manifests that are made from another one: one more scope, a collection less, other settings.

use model::{CollectionId, ManifestUid, ScopeId};

use super::manifest::{
    Collection, CollectionSettings, Manifest, ManifestError, SYSTEM, Scope, is_valid_name,
};

/// Distance between the ids of scopes and collections and the manifest's UID.
const FIRST_NUMBERS: u64 = CollectionId::USER_MIN.0 as u64 - 1;
/// Collections that clients of the system scope expect in it.
const SYSTEM_COLLECTIONS: [&str; 2] = ["_mobile", "_query"];
const SYSTEM_SCOPE_STAYS: &str = "The _system scope is not changed";
const NO_DEFAULT_SCOPE: &str = "Deleting _default scope is not allowed";

/// A scope of a wanted manifest, by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedScope {
    /// Its name.
    pub name: Box<str>,
    /// Its collections.
    pub collections: Vec<WantedCollection>,
}

/// A collection of a wanted manifest, by name. Settings that are not given stay unchanged, or are
/// those of a new collection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedCollection {
    /// Its name.
    pub name: Box<str>,
    /// As [`CollectionSettings::max_ttl_s`].
    pub max_ttl_s: Option<Option<u32>>,
    /// As [`CollectionSettings::history`].
    pub history: Option<bool>,
}

impl Manifest {
    /// Returns the UID of the next manifest. It is ahead of every id assigned here, so that
    /// [`Manifest::next_number`] never reuses an id, wherever that was assigned.
    fn next_uid(&self) -> ManifestUid {
        let passed = u64::from(self.last_number()).saturating_sub(FIRST_NUMBERS - 1);
        ManifestUid(self.uid().0.saturating_add(1).max(passed))
    }

    /// Returns an id that no scope or collection ever had: ids follow the manifest's UID.
    fn next_number(&self) -> u32 {
        u32::try_from(self.next_uid().0.saturating_add(FIRST_NUMBERS)).unwrap_or(u32::MAX)
    }

    /// Refuses the system scope.
    fn check_users(&self, index: usize) -> Result<(), ManifestError> {
        if self.scopes()[index].is_system() {
            return Err(ManifestError::Invalid(SYSTEM_SCOPE_STAYS));
        }
        Ok(())
    }

    fn index_of(&self, scope: &str) -> Result<usize, ManifestError> {
        let found = self.scopes().iter().position(|one| &*one.name == scope);
        found.ok_or_else(|| ManifestError::UnknownScope(scope.into()))
    }

    fn edited(&self, edit: impl FnOnce(&mut Vec<Scope>)) -> Result<Self, ManifestError> {
        let mut scopes = self.scopes().to_vec();
        edit(&mut scopes);
        Self::new(self.next_uid(), scopes)
    }

    /// Returns the next manifest, with one more scope.
    ///
    /// # Errors
    /// `ScopeExists`, `Invalid`.
    pub fn with_scope(&self, name: &str) -> Result<Self, ManifestError> {
        check_user_name(name)?;
        if self.index_of(name).is_ok() {
            return Err(ManifestError::ScopeExists(name.into()));
        }
        let scope = Scope {
            id: ScopeId(self.next_number()),
            name: name.into(),
            collections: Vec::new(),
        };
        self.edited(|scopes| scopes.push(scope))
    }

    /// Returns the next manifest, with the system scope and its collections; `None` if they all
    /// exist.
    ///
    /// # Errors
    /// `Invalid`, if no id is left.
    pub fn with_system_scope(&self) -> Result<Option<Self>, ManifestError> {
        let there = self.scopes().iter().position(Scope::is_system);
        let has = |name: &&str| {
            let mut collections = there.iter().flat_map(|at| &self.scopes()[*at].collections);
            collections.any(|one| *one.name == **name)
        };
        let missing = SYSTEM_COLLECTIONS.into_iter().filter(|name| !has(name));
        let first = self.next_number();
        let missing = missing.zip(first..).map(|(name, id)| Collection {
            id: CollectionId(id),
            name: name.into(),
            settings: CollectionSettings::default(),
        });
        let missing: Vec<_> = missing.collect();
        if missing.is_empty() {
            return Ok(None);
        }
        let edited = self.edited(|scopes| match there {
            Some(at) => scopes[at].collections.extend(missing),
            None => scopes.push(Scope {
                id: ScopeId(first),
                name: SYSTEM.into(),
                collections: missing,
            }),
        });
        edited.map(Some)
    }

    /// Returns the next manifest, without a scope and its collections.
    ///
    /// # Errors
    /// `UnknownScope`; `Invalid` for the default scope and the system scope.
    pub fn without_scope(&self, name: &str) -> Result<Self, ManifestError> {
        let index = self.index_of(name)?;
        if self.scopes()[index].id == ScopeId::DEFAULT {
            return Err(ManifestError::Invalid(NO_DEFAULT_SCOPE));
        }
        self.check_users(index)?;
        self.edited(|scopes| {
            scopes.remove(index);
        })
    }

    /// Returns the next manifest, with one more collection.
    ///
    /// # Errors
    /// `UnknownScope`, `CollectionExists`, `Invalid`.
    pub fn with_collection(
        &self,
        scope: &str,
        name: &str,
        settings: CollectionSettings,
    ) -> Result<Self, ManifestError> {
        let index = self.index_of(scope)?;
        self.check_users(index)?;
        check_user_name(name)?;
        let there = &self.scopes()[index].collections;
        if there.iter().any(|one| &*one.name == name) {
            return Err(ManifestError::CollectionExists(scope.into(), name.into()));
        }
        let collection = Collection {
            id: CollectionId(self.next_number()),
            name: name.into(),
            settings,
        };
        self.edited(|scopes| scopes[index].collections.push(collection))
    }

    /// Returns the next manifest, without a collection.
    ///
    /// # Errors
    /// `UnknownScope`, `UnknownCollection`; `Invalid` in the system scope.
    pub fn without_collection(&self, scope: &str, name: &str) -> Result<Self, ManifestError> {
        let (index, at) = self.place_of(scope, name)?;
        self.check_users(index)?;
        self.edited(|scopes| {
            scopes[index].collections.remove(at);
        })
    }

    /// Returns the next manifest, with changed settings of a collection.
    ///
    /// # Errors
    /// `UnknownScope`, `UnknownCollection`; `Invalid` in the system scope.
    pub fn with_settings(
        &self,
        scope: &str,
        name: &str,
        change: impl FnOnce(&mut CollectionSettings),
    ) -> Result<Self, ManifestError> {
        let (index, at) = self.place_of(scope, name)?;
        self.check_users(index)?;
        self.edited(|scopes| change(&mut scopes[index].collections[at].settings))
    }

    /// Returns the next manifest, with exactly these scopes and the system scope. Existing names
    /// keep their ids and settings; others are new, and new collections have the settings `new`.
    /// Settings in `wanted` take precedence. Returns the same manifest if nothing changes.
    ///
    /// # Errors
    /// `Invalid`, also without the default scope, and for a dropped default collection.
    pub fn with_scopes(
        &self,
        wanted: &[WantedScope],
        new: CollectionSettings,
    ) -> Result<Self, ManifestError> {
        let mut next_number = self.next_number();
        let mut number = || {
            next_number = next_number.saturating_add(1);
            next_number - 1
        };
        let mut scopes = Vec::with_capacity(wanted.len());
        scopes.extend(self.scopes().iter().filter(|is| is.is_system()).cloned());
        for scope in wanted.iter().filter(|scope| &*scope.name != SYSTEM) {
            let there = self.scopes().iter().find(|is| is.name == scope.name);
            let id = match there {
                Some(is) => is.id,
                None => ScopeId(check_user_name(&scope.name).map(|()| number())?),
            };
            let mut collections = Vec::with_capacity(scope.collections.len());
            for collection in &scope.collections {
                let mut all = there.iter().flat_map(|is| &is.collections);
                let is = all.find(|is| is.name == collection.name);
                let id = match is {
                    Some(is) => is.id,
                    None => CollectionId(check_user_name(&collection.name).map(|()| number())?),
                };
                let settings = is.map_or(new, |is| is.settings);
                collections.push(Collection {
                    id,
                    name: collection.name.clone(),
                    settings: CollectionSettings {
                        max_ttl_s: collection.max_ttl_s.unwrap_or(settings.max_ttl_s),
                        history: collection.history.unwrap_or(settings.history),
                    },
                });
            }
            let name = scope.name.clone();
            scopes.push(Scope {
                id,
                name,
                collections,
            });
        }
        if !scopes.iter().any(|scope| scope.id == ScopeId::DEFAULT) {
            return Err(ManifestError::Invalid(NO_DEFAULT_SCOPE));
        }
        let next = Self::new(self.next_uid(), scopes)?;
        if next.scopes() == self.scopes() {
            return Ok(self.clone());
        }
        Ok(next)
    }

    fn place_of(&self, scope: &str, name: &str) -> Result<(usize, usize), ManifestError> {
        let index = self.index_of(scope)?;
        let there = &self.scopes()[index].collections;
        let at = there.iter().position(|one| &*one.name == name);
        let unknown = || ManifestError::UnknownCollection(scope.into(), name.into());
        Ok((index, at.ok_or_else(unknown)?))
    }
}

fn check_user_name(name: &str) -> Result<(), ManifestError> {
    if !is_valid_name(name) || name.starts_with('_') {
        return Err(ManifestError::Invalid(
            "the name may have 1 to 251 characters A-Z, a-z, 0-9, _, - and %, and may not begin with _ or %",
        ));
    }
    Ok(())
}

//! The manifest: the scopes and collections of a bucket.

use std::fmt;

use model::{CollectionId, ManifestUid, ScopeId};

/// Maximum number of scopes in a bucket, without the system scope.
pub const SCOPES_MAX: usize = 1000;
/// Maximum number of collections in a bucket, without those of the system scope.
pub const COLLECTIONS_MAX: usize = 1000;
/// Maximum length of a scope's or a collection's name, in bytes.
pub const NAME_BYTES_MAX: usize = 251;

/// Name of the initial scope and collection of every bucket.
const DEFAULT: &str = "_default";
/// Name of the system scope.
pub(crate) const SYSTEM: &str = "_system";
/// Settings of a collection that may change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CollectionSettings {
    /// Longest time to live of its documents in seconds; 0 for no limit, also if the bucket has
    /// one; `None` for the bucket's limit.
    pub max_ttl_s: Option<u32>,
    /// Whether replaced versions are kept as history, if the bucket keeps any.
    pub history: bool,
}

/// A collection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collection {
    /// Its id, used in keys.
    pub id: CollectionId,
    /// Its name, unique in its scope.
    pub name: Box<str>,
    /// Its settings.
    pub settings: CollectionSettings,
}

/// A scope.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scope {
    /// Its id.
    pub id: ScopeId,
    /// Its name, unique in the bucket.
    pub name: Box<str>,
    /// Its collections, ordered by id.
    pub collections: Vec<Collection>,
}

impl Scope {
    /// Whether it is the system scope: users neither create nor drop it.
    pub(crate) fn is_system(&self) -> bool {
        &*self.name == SYSTEM
    }
}

/// The scopes and collections of a bucket at one time. Always valid; scopes and collections are
/// ordered by id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    uid: ManifestUid,
    scopes: Vec<Scope>,
    /// Place of every collection, ordered by id: index of the scope, index in the scope.
    places: Vec<(CollectionId, u32, u32)>,
}

/// Reason for which a manifest is invalid, or cannot follow the current one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ManifestError {
    /// It is inconsistent, or exceeds a limit.
    Invalid(&'static str),
    /// It is valid, but cannot follow the current one.
    NoSuccessor(&'static str),
    /// There is no scope of this name.
    UnknownScope(Box<str>),
    /// There is no collection of this name in the scope.
    UnknownCollection(Box<str>, Box<str>),
    /// A scope of this name exists already.
    ScopeExists(Box<str>),
    /// A collection of this name exists already in the scope.
    CollectionExists(Box<str>, Box<str>),
}

impl fmt::Display for ManifestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(reason) | Self::NoSuccessor(reason) => f.write_str(reason),
            Self::UnknownScope(scope) => write!(f, "Scope with name \"{scope}\" is not found"),
            Self::UnknownCollection(scope, collection) => write!(
                f,
                "Collection with name \"{collection}\" in scope \"{scope}\" is not found"
            ),
            Self::ScopeExists(scope) => {
                write!(f, "Scope with name \"{scope}\" already exists")
            }
            Self::CollectionExists(scope, collection) => write!(
                f,
                "Collection with name \"{collection}\" in scope \"{scope}\" already exists"
            ),
        }
    }
}

impl std::error::Error for ManifestError {}

/// Whether the name is valid for a scope or a collection: 1 to 251 characters of `A-Za-z0-9_%-`,
/// not beginning with `%`; names that begin with `_` belong to the system.
pub fn is_valid_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_%-".contains(&byte);
    (1..=NAME_BYTES_MAX).contains(&name.len())
        && !name.starts_with('%')
        && name.bytes().all(allowed)
}

impl Default for Manifest {
    /// Returns the initial manifest of a bucket: the default collection in the default scope.
    fn default() -> Self {
        let collection = Collection {
            id: CollectionId::DEFAULT,
            name: DEFAULT.into(),
            settings: CollectionSettings::default(),
        };
        let scope = Scope {
            id: ScopeId::DEFAULT,
            name: DEFAULT.into(),
            collections: vec![collection],
        };
        Self {
            uid: ManifestUid(0),
            scopes: vec![scope],
            places: vec![(CollectionId::DEFAULT, 0, 0)],
        }
    }
}

impl Manifest {
    /// Checks the scopes, and makes a manifest of them.
    ///
    /// # Errors
    /// `Invalid`: bad or duplicate names or ids; too many; no default scope.
    ///
    /// Cost: O(n log n).
    pub fn new(uid: ManifestUid, mut scopes: Vec<Scope>) -> Result<Self, ManifestError> {
        let invalid = |reason| Err(ManifestError::Invalid(reason));
        if scopes.iter().filter(|scope| !scope.is_system()).count() > SCOPES_MAX {
            return invalid("there are too many scopes");
        }
        scopes.sort_unstable_by_key(|scope| scope.id);
        for scope in &mut scopes {
            check_number(scope.id.0, &scope.name)?;
            scope.collections.sort_unstable_by_key(|one| one.id);
            for collection in &scope.collections {
                check_number(collection.id.0, &collection.name)?;
                if collection.id == CollectionId::DEFAULT && scope.id != ScopeId::DEFAULT {
                    return invalid("the default collection is in another scope");
                }
            }
            if any_twice(scope.collections.iter().map(|one| &*one.name)) {
                return invalid("two collections of a scope have the same name");
            }
        }
        if any_twice(scopes.iter().map(|scope| &*scope.name)) {
            return invalid("two scopes have the same name");
        }
        if scopes.first().map(|scope| scope.id) != Some(ScopeId::DEFAULT) {
            return invalid("there is no default scope");
        }
        if scopes.windows(2).any(|two| two[0].id == two[1].id) {
            return invalid("two scopes have the same uid");
        }
        let places = places(&scopes);
        let of_users = scopes.iter().filter(|scope| !scope.is_system());
        let of_users = of_users.map(|scope| scope.collections.len());
        if of_users.sum::<usize>() > COLLECTIONS_MAX {
            return invalid("there are too many collections");
        }
        if places.windows(2).any(|two| two[0].0 == two[1].0) {
            return invalid("two collections have the same uid");
        }
        Ok(Self {
            uid,
            scopes,
            places,
        })
    }

    /// Returns the highest id of a scope or a collection.
    pub(crate) fn last_number(&self) -> u32 {
        let scopes = self.scopes.last().map_or(0, |scope| scope.id.0);
        scopes.max(self.places.last().map_or(0, |place| place.0.0))
    }

    /// Returns the manifest with only the collections for which `keep` is true, without empty
    /// scopes.
    #[must_use]
    pub fn only(&self, keep: &dyn Fn(CollectionId) -> bool) -> Self {
        let mut scopes = self.scopes.clone();
        for scope in &mut scopes {
            scope.collections.retain(|one| keep(one.id));
        }
        scopes.retain(|scope| !scope.collections.is_empty());
        Self {
            uid: self.uid,
            places: places(&scopes),
            scopes,
        }
    }

    /// UID of the manifest; every change increases it.
    pub fn uid(&self) -> ManifestUid {
        self.uid
    }

    /// All scopes.
    pub fn scopes(&self) -> &[Scope] {
        &self.scopes
    }

    /// All collections ordered by id, with their scopes.
    pub fn collections(&self) -> impl Iterator<Item = (&Scope, &Collection)> {
        self.collections_from(CollectionId::DEFAULT)
    }

    /// Collections with ids from `first` on, ordered by id, with their scopes.
    pub fn collections_from(
        &self,
        first: CollectionId,
    ) -> impl Iterator<Item = (&Scope, &Collection)> {
        let from = self.places.partition_point(|place| place.0 < first);
        self.places[from..].iter().map(|&(_, scope, index)| {
            let scope = &self.scopes[scope as usize];
            (scope, &scope.collections[index as usize])
        })
    }

    /// Returns a collection by id, with its scope.
    pub fn collection(&self, id: CollectionId) -> Option<(&Scope, &Collection)> {
        let at = self
            .places
            .binary_search_by_key(&id, |place| place.0)
            .ok()?;
        let (_, scope, index) = self.places[at];
        let scope = &self.scopes[scope as usize];
        Some((scope, &scope.collections[index as usize]))
    }

    /// Returns a scope by id.
    pub fn scope(&self, id: ScopeId) -> Option<&Scope> {
        let at = self
            .scopes
            .binary_search_by_key(&id, |scope| scope.id)
            .ok()?;
        Some(&self.scopes[at])
    }

    /// Returns a scope by name; the empty name means `_default`.
    pub fn scope_named(&self, name: &str) -> Option<&Scope> {
        let name = if name.is_empty() { DEFAULT } else { name };
        self.scopes.iter().find(|scope| &*scope.name == name)
    }

    /// Whether `next` may replace `self`; `false` if both are equal.
    ///
    /// # Errors
    /// `NoSuccessor`, with the reason.
    pub fn check_successor(&self, next: &Self) -> Result<bool, ManifestError> {
        let refused = |reason| Err(ManifestError::NoSuccessor(reason));
        if next.uid < self.uid {
            return refused("the manifest is older than the current one");
        }
        if next.uid == self.uid {
            return if next == self {
                Ok(false)
            } else {
                refused("the manifest differs from the current one of the same uid")
            };
        }
        for scope in &self.scopes {
            if next.scope(scope.id).is_some_and(|is| is.name != scope.name) {
                return refused("a scope has another name");
            }
        }
        for (scope, collection) in self.collections() {
            let Some((now_in, is)) = next.collection(collection.id) else {
                continue;
            };
            if now_in.id != scope.id || is.name != collection.name {
                return refused("a collection has another name or scope");
            }
        }
        let default = CollectionId::DEFAULT;
        if self.collection(default).is_none() && next.collection(default).is_some() {
            return refused("the default collection does not come back");
        }
        Ok(true)
    }
}

fn places(scopes: &[Scope]) -> Vec<(CollectionId, u32, u32)> {
    let mut places = Vec::new();
    for (scope, of) in scopes.iter().enumerate() {
        let collections = of.collections.iter().enumerate();
        places.extend(collections.map(|(index, one)| (one.id, scope as u32, index as u32)));
    }
    places.sort_unstable();
    places
}

fn any_twice<'a>(names: impl Iterator<Item = &'a str>) -> bool {
    let mut names: Vec<_> = names.collect();
    names.sort_unstable();
    names.windows(2).any(|two| two[0] == two[1])
}

/// Checks name and id: the default name belongs to id 0 only; 1 to 7 are reserved.
fn check_number(number: u32, name: &str) -> Result<(), ManifestError> {
    if !is_valid_name(name) {
        return Err(ManifestError::Invalid("a name is not allowed"));
    }
    if (1..CollectionId::USER_MIN.0).contains(&number) {
        return Err(ManifestError::Invalid("a uid is reserved"));
    }
    if (number == 0) != (name == DEFAULT) {
        return Err(ManifestError::Invalid(
            "uid 0 and the name _default belong together",
        ));
    }
    Ok(())
}

//! Results of checks of stores.

/// A refused opening.
#[derive(Debug)]
pub(crate) struct Refused {
    /// Whether files are damaged; otherwise the file system failed.
    pub(crate) damage: bool,
    pub(crate) text: String,
}

/// A fault of the store.
#[derive(Debug)]
pub(crate) struct Failed(pub(crate) String);

impl Failed {
    pub(crate) fn of(text: &str) -> Self {
        Self(text.to_owned())
    }
}

/// Totals of the checks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stats {
    pub(crate) steps: u64,
    pub(crate) steps_of_workers: u64,
    /// Number of times that the workers did not rest.
    pub(crate) restless: u64,
    pub(crate) images: u64,
    pub(crate) openings: u64,
    /// Failed calls.
    pub(crate) refused: u64,
    pub(crate) poisoned: u64,
    pub(crate) damages: u64,
    /// Damages that an opening refused, and those that a read reported.
    pub(crate) refused_openings: u64,
    pub(crate) told: u64,
}

impl std::ops::AddAssign for Stats {
    fn add_assign(&mut self, other: Self) {
        self.steps += other.steps;
        self.steps_of_workers += other.steps_of_workers;
        self.restless += other.restless;
        self.images += other.images;
        self.openings += other.openings;
        self.refused += other.refused;
        self.poisoned += other.poisoned;
        self.damages += other.damages;
        self.refused_openings += other.refused_openings;
        self.told += other.told;
    }
}

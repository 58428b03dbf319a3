//! A new password of a user, for a change that may be tried several times.

use identity::{Identity, Verifier};

/// Secret of the salts that a verifier depends on.
type Salts = [u8; 32];

/// A new password of a user.
pub(super) struct NewPassword {
    user: String,
    text: String,
    /// The last verifier, with its salts.
    derived: Option<(Salts, Verifier)>,
}

impl NewPassword {
    pub(super) fn new(user: &str, text: String) -> Self {
        Self {
            user: user.to_owned(),
            text,
            derived: None,
        }
    }

    /// Returns the verifier for the salts in force.
    pub(super) fn verifier(&mut self, identity: &Identity) -> Verifier {
        self.verifier_by(identity.roster().salts, |user, text| {
            identity.verifier(user, text.as_bytes())
        })
    }

    /// Derives the verifier, some 30 ms, unless the last one is for the same salts.
    fn verifier_by(&mut self, salts: Salts, derive: impl Fn(&str, &str) -> Verifier) -> Verifier {
        let known = self.derived.take().filter(|(of, _)| *of == salts);
        let derived = known.unwrap_or_else(|| (salts, derive(&self.user, &self.text)));
        self.derived.insert(derived).1.clone()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn a_verifier_is_derived_once_for_the_same_salts() {
        let mut password = NewPassword::new("ada", "secret".to_owned());
        let derived = Cell::new(0);
        let mut verifier = |salts| {
            password.verifier_by([salts; 32], |user, text| {
                assert_eq!((user, text), ("ada", "secret"));
                derived.set(derived.get() + 1);
                Verifier::from_bytes(&[salts; Verifier::BYTES]).expect("the length is right")
            })
        };
        for (salts, times) in [(1, 1), (1, 1), (2, 2), (2, 2)] {
            let expected = [salts; Verifier::BYTES];
            assert_eq!(verifier(salts).as_bytes(), expected);
            assert_eq!(derived.get(), times);
        }
    }
}

//! Compression modes of a bucket.

/// Treatment of compressed and compressible values in a bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CompressionMode {
    /// Values are stored and sent uncompressed.
    Off,
    /// Values stay as their clients sent them.
    #[default]
    Passive,
    /// As [`CompressionMode::Passive`]; values that were not used recently are compressed in
    /// memory.
    Active,
}

impl CompressionMode {
    const ALL: [Self; 3] = [Self::Off, Self::Passive, Self::Active];

    /// Name in settings and in HTTP answers.
    pub fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Passive => "passive",
            Self::Active => "active",
        }
    }

    /// Returns the mode with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.name() == name)
    }

    /// Returns the mode with this number (`as u8`); passive if there is none.
    pub fn of_number(number: u8) -> Self {
        let found = Self::ALL.into_iter().find(|mode| *mode as u8 == number);
        found.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers() {
        for mode in CompressionMode::ALL {
            assert_eq!(CompressionMode::from_name(mode.name()), Some(mode));
            assert_eq!(CompressionMode::of_number(mode as u8), mode);
        }
        assert_eq!(CompressionMode::from_name(""), None);
    }
}

//! Keys of requests, depending on the features of the connection.

use model::{CollectionId, split_key};

use crate::Malformed;

const LOGICAL_BYTES_MAX: usize = 250;
const LOGICAL_BYTES_MAX_NAMED: usize = 246;

/// Splits the key of a request into its collection and the user's key.
///
/// Shape: with `collections`, the key starts with a canonical LEB128 collection id; without, it is
/// the user's key in the default collection. The user's key has 1 to 250 bytes in the default
/// collection, 1 to 246 in others.
///
/// # Errors
/// The key is too short or too long, its prefix is not canonical, or the id is reserved (1 to 7).
///
/// Source: protocol section 2, section 4.8. Test: `key::tests`.
pub fn document_key(key: &[u8], collections: bool) -> Result<(CollectionId, &[u8]), Malformed> {
    let (collection, logical) = if collections {
        split_key(key).ok_or(Malformed::new(
            "collection id of the key is not valid LEB128",
        ))?
    } else {
        (CollectionId::DEFAULT, key)
    };
    if (1..8).contains(&collection.0) {
        return Err(Malformed::new("collection id of the key is reserved"));
    }
    if logical.is_empty() {
        return Err(Malformed::new("key is empty"));
    }
    let default = collection == CollectionId::DEFAULT;
    let bytes_max = if default {
        LOGICAL_BYTES_MAX
    } else {
        LOGICAL_BYTES_MAX_NAMED
    };
    if logical.len() > bytes_max {
        return Err(Malformed::new("key is too long"));
    }
    Ok((collection, logical))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(prefix: &[u8], logical_len: usize) -> Vec<u8> {
        let mut key = prefix.to_vec();
        key.resize(prefix.len() + logical_len, b'k');
        key
    }

    #[test]
    fn lengths_at_their_boundaries() {
        assert!(document_key(&key(&[], 1), false).is_ok());
        assert!(document_key(&key(&[], 250), false).is_ok());
        assert!(document_key(&key(&[], 251), false).is_err());
        assert!(document_key(&key(&[], 0), false).is_err());
        assert!(document_key(&key(&[0], 250), true).is_ok());
        assert!(document_key(&key(&[0], 251), true).is_err());
        assert!(document_key(&key(&[8], 246), true).is_ok());
        assert!(document_key(&key(&[8], 247), true).is_err());
        assert!(document_key(&key(&[0xff, 0xff, 0xff, 0xff, 0x0f], 246), true).is_ok());
    }

    #[test]
    fn document_key_refuses_bad_prefixes() {
        for id in 1..8 {
            assert!(document_key(&key(&[id], 3), true).is_err(), "reserved {id}");
        }
        assert!(document_key(&key(&[0], 0), true).is_err(), "no user's key");
        assert!(
            document_key(&key(&[0x80, 0x00], 3), true).is_err(),
            "not canonical"
        );
        assert!(document_key(&[0xff; 6], true).is_err(), "no stop byte");
        assert!(document_key(&[], true).is_err());
    }
}

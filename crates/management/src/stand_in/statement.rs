//! The statements that the stand-in for queries can answer.

/// A statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Statement {
    /// Checks whether there is a bucket; `column` is the name of the answer's column.
    KeyspacePresent { column: String, bucket: String },
    /// Checks whether the bucket has a primary index.
    PrimaryOnline { column: String, bucket: String },
    /// Creates a primary index.
    CreatePrimary { bucket: String },
}

impl Statement {
    /// Parses a statement; `None` for any other one. Keywords may have any case, with any space between them.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let text = words.join(" ");
        let text = text.trim_end_matches([';', ' ']);
        if let Some(rest) = after(text, "create primary index on ") {
            let (bucket, rest) = quoted(rest, '`')?;
            return rest.is_empty().then(|| Self::CreatePrimary {
                bucket: bucket.into(),
            });
        }
        let rest = after(text, "select count(*) > 0 as ")?;
        let (column, rest) = rest.split_once(' ')?;
        let column = column.to_owned();
        if let Some(rest) = after(rest, "from system:keyspaces where name = ") {
            let (bucket, rest) = quoted(rest, '"')?;
            let bucket = bucket.into();
            return rest
                .is_empty()
                .then_some(Self::KeyspacePresent { column, bucket });
        }
        let rest = after(rest, "from system:indexes where keyspace_id = ")?;
        let (bucket, rest) = quoted(rest, '"')?;
        let bucket = bucket.into();
        rest.eq_ignore_ascii_case(" and is_primary = true and state = \"online\"")
            .then_some(Self::PrimaryOnline { column, bucket })
    }
}

/// Returns the text after these words.
fn after<'a>(text: &'a str, words: &str) -> Option<&'a str> {
    let (head, rest) = text.split_at_checked(words.len())?;
    head.eq_ignore_ascii_case(words).then_some(rest)
}

/// Returns a name between quotes, and the text after it.
fn quoted(text: &str, quote: char) -> Option<(&str, &str)> {
    text.strip_prefix(quote)?.split_once(quote)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_of_the_modules_are_known_and_no_others() {
        let (column, bucket) = ("present".to_owned(), "my bucket".to_owned());
        let present =
            "SELECT COUNT(*) > 0 as present FROM system:keyspaces WHERE name = \"my bucket\"";
        let keyspace = Statement::KeyspacePresent {
            column,
            bucket: bucket.clone(),
        };
        assert_eq!(Statement::parse(present), Some(keyspace));
        let create = Statement::CreatePrimary {
            bucket: bucket.clone(),
        };
        for text in [
            "CREATE PRIMARY INDEX on `my bucket`",
            " create  primary\nindex ON `my bucket` ; ",
        ] {
            assert_eq!(Statement::parse(text).as_ref(), Some(&create), "{text}");
        }
        let online = "SELECT count(*) > 0 AS online FROM system:indexes where keyspace_id = \
                      \"my bucket\" and is_primary = true and state = \"online\"";
        let column = "online".to_owned();
        assert_eq!(
            Statement::parse(online),
            Some(Statement::PrimaryOnline { column, bucket })
        );
        for text in [
            "",
            "SELECT 1",
            "SELECT * FROM `my bucket`",
            "CREATE PRIMARY INDEX on `my bucket",
            "CREATE PRIMARY INDEX on my bucket",
            "CREATE PRIMARY INDEX on `b`.`s`.`c`",
            "CREATE PRIMARY INDEX on `b` USING GSI",
            "SELECT COUNT(*) > 0 as x FROM system:keyspaces WHERE name = \"b\" OR true",
            "SELECT count(*) > 0 AS online FROM system:indexes where keyspace_id = \"b\"",
        ] {
            assert_eq!(Statement::parse(text), None, "{text}");
        }
    }
}

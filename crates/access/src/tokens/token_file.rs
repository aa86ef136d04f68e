//! The static token file: one user per line, `token,name,uid,"group1,group2"`.

use std::collections::HashMap;
use std::sync::Arc;

use super::csv::{CsvError, parse_records};
use super::{TokenDigest, token_digest};
use crate::user::User;

/// The users of a token file. Tokens are stored as digests, so that lookup time reveals nothing about them.
#[derive(Debug, Default)]
pub struct TokenFile {
    users: HashMap<TokenDigest, Arc<User>>,
    warnings: Vec<String>,
}

/// The token file cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenFileError {
    /// The file is not valid CSV.
    #[error(transparent)]
    Csv(#[from] CsvError),
    /// A line has fewer than 3 columns.
    #[error("line {line}: at least 3 columns are needed (token, user name, user uid), found {columns}")]
    TooFewColumns {
        /// Counted from 1.
        line: usize,
        /// The number of columns found.
        columns: usize,
    },
}

impl TokenFile {
    /// Parses the content of a token file.
    pub fn parse(text: &str) -> Result<Self, TokenFileError> {
        let mut file = Self::default();
        for record in parse_records(text)? {
            let line = record.line;
            let [token, name, uid, rest @ ..] = record.fields.as_slice() else {
                return Err(TokenFileError::TooFewColumns { line, columns: record.fields.len() });
            };
            if token.is_empty() {
                file.warnings.push(format!("line {line}: empty token; the line is ignored"));
                continue;
            }
            let groups = rest.first().map(|groups| groups.split(',').map(str::to_owned).collect()).unwrap_or_default();
            let user = User { name: name.clone(), uid: uid.clone(), groups, ..User::default() };
            if file.users.insert(token_digest(token), Arc::new(user.with_authenticated_group())).is_some() {
                file.warnings.push(format!("line {line}: duplicate token; this line takes precedence"));
            }
        }
        Ok(file)
    }

    /// Adds a user with a token that is not in the file, valid until the process ends.
    pub fn add(&mut self, token: &str, user: User) {
        self.users.insert(token_digest(token), Arc::new(user.with_authenticated_group()));
    }

    /// Returns the user that a token belongs to.
    pub fn find_user(&self, token: &str) -> Option<&Arc<User>> {
        if self.users.is_empty() {
            return None;
        }
        self.users.get(&token_digest(token))
    }

    /// Returns warnings about ignored and overridden lines, for the log.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_file_line_becomes_user() {
        let file =
            TokenFile::parse("t1,alice,u1,\"dev,ops\"\nt2,bob,u2\nt3,carol,u3,\nt4,dan,,solo,ignored\n").unwrap();
        let user = |token: &str| {
            let user = file.find_user(token)?;
            Some((user.name.as_str(), user.uid.as_str(), user.groups.join("+")))
        };
        assert_eq!(user("t1"), Some(("alice", "u1", "dev+ops+system:authenticated".to_owned())));
        assert_eq!(user("t2"), Some(("bob", "u2", "system:authenticated".to_owned())));
        assert_eq!(
            file.find_user("t3").unwrap().groups,
            ["", "system:authenticated"],
            "Kubernetes keeps the empty group"
        );
        assert_eq!(user("t4"), Some(("dan", "", "solo+system:authenticated".to_owned())));
        assert_eq!(user("t"), None);
        assert_eq!(user(""), None);
        assert!(file.warnings().is_empty());
        assert_eq!(TokenFile::parse("").unwrap().find_user("t1"), None);
    }

    #[test]
    fn added_token_authenticates_like_file_token() {
        let mut file = TokenFile::parse("t1,alice,u1").unwrap();
        file.add("t2", User::service_account("kube-system", "a", ""));
        assert_eq!(file.find_user("t1").unwrap().name, "alice");
        let added = file.find_user("t2").unwrap();
        assert_eq!(added.name, "system:serviceaccount:kube-system:a");
        assert!(added.groups.contains(&"system:authenticated".to_owned()));
    }

    #[test]
    fn token_file_warns_about_empty_and_duplicate_tokens() {
        let file = TokenFile::parse(",eve,1\nt1,alice,1\nt1,bob,2").unwrap();
        assert_eq!(file.find_user("t1").unwrap().name, "bob");
        assert_eq!(file.find_user(""), None);
        assert_eq!(
            file.warnings(),
            ["line 1: empty token; the line is ignored", "line 3: duplicate token; this line takes precedence"]
        );
    }

    #[test]
    fn token_file_rejects_short_lines_and_unclosed_quotes() {
        for (text, expected) in [
            ("t1,alice,1\nt2,bob", "line 2: at least 3 columns are needed (token, user name, user uid), found 2"),
            ("t1,\"alice,1", "line 1: quoted field without a closing quote"),
        ] {
            assert_eq!(TokenFile::parse(text).unwrap_err().to_string(), expected);
        }
    }
}

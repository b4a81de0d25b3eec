//! Checks of credentials.

use crate::Auth;

impl Auth {
    /// Returns `true` if the credentials are right. The time of the check does not reveal how much
    /// of them was right.
    pub fn admits(&self, username: &[u8], password: &[u8]) -> bool {
        let name = same(self.username.as_bytes(), username);
        let word = same(self.password.as_bytes(), password);
        name & word
    }
}

/// Compares secrets in a time that depends on their lengths alone.
pub fn same(ours: &[u8], theirs: &[u8]) -> bool {
    let differences = ours.iter().zip(theirs).fold(0, |sum, (a, b)| sum | (a ^ b));
    (ours.len() == theirs.len()) & (differences == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_both_together_admit() {
        let auth = Auth { username: "crew".into(), password: "word".into() };
        assert!(auth.admits(b"crew", b"word"));
        for (name, word) in [("crew", "wor"), ("crew", "words"), ("cre", "word"), ("", "")] {
            assert!(!auth.admits(name.as_bytes(), word.as_bytes()));
        }
    }
}

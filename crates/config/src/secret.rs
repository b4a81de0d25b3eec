//! Secrets in configuration files, which no message may show.

/// Settings whose values are omitted from messages, also if they are misspelt.
const NAMES: [&str; 10] = [
    "auth",
    "password",
    "password-file",
    "secret",
    "secret-key",
    "token",
    "token-hash",
    "key",
    "private-key",
    "private-key-file",
];

/// Words in a line that make it secret, also if they are misspelt.
const WORDS: [&str; 3] = ["password", "secret", "token"];

/// Settings like one of [`NAMES`] that hold no secret: three have the name of a file.
const NOT_SECRET: [&str; 4] = ["keep", "private-key-file", "password-file", "token-file"];

/// Maximum edit distance at which a misspelt name still counts as one of [`NAMES`].
const MAX_SLIPS: usize = 2;

/// Characters of a key in base64 before its padding.
const KEY_CHARACTERS: usize = 43;

/// Placeholder for an omitted value.
const OMITTED: &str = "…";

/// Returns a line, counted from zero, as a message may show it: without secrets.
pub fn shown(text: &str, line: usize) -> String {
    let raw = text.lines().nth(line).unwrap_or_default().trim();
    if !may_hold_secret(text, line) {
        return without_keys(raw);
    }
    // The start of a line is shown only if it certainly is a name and not a part of a secret.
    match raw.split_once('=').map(|(name, _)| name.trim()) {
        Some(name) if is_secret_name(name) => format!("{name} = {OMITTED}"),
        _ => String::new(),
    }
}

/// Returns whether the line may hold a secret. It may if one of these contains a secret's name: the
/// line itself, the key that it continues, or its table.
pub fn may_hold_secret(text: &str, line: usize) -> bool {
    let before: Vec<&str> = text.lines().take(line + 1).collect();
    let is_table = |line: &&str| line.trim_start().starts_with('[');
    let key = before.iter().rev().find(|line| line.contains('=') || is_table(line));
    let table = before.iter().rev().find(|line| is_table(line));
    let names_secret = |line: &&str| {
        if setting_names(line).all(|name| NOT_SECRET.contains(&name)) && line.contains('=') {
            return false;
        }
        let mut words = line.split(|c: char| !c.is_ascii_alphabetic()).map(str::to_ascii_lowercase);
        let is_word = |word: String| WORDS.iter().any(|secret| resembles(&word, secret));
        words.any(is_word) || setting_names(line).any(is_secret_name)
    };
    before.last().into_iter().chain(key).any(names_secret)
        || table.is_some_and(|line| line.contains("auth"))
}

/// Returns `said` without anything that may be a key: 43 characters of base64 and the padding.
/// Somebody may have written a private key in the place of a public key or of a file's name.
pub fn without_keys(said: &str) -> String {
    let mut kept = String::with_capacity(said.len());
    for (number, part) in said.split('=').enumerate() {
        if number > 0 {
            let is_base64 = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '+' | '/');
            let key = kept.chars().rev().take_while(is_base64).count();
            if key >= KEY_CHARACTERS {
                kept.truncate(kept.len() - KEY_CHARACTERS);
                kept.push_str(OMITTED);
            } else {
                kept.push('=');
            }
        }
        kept.push_str(part);
    }
    kept
}

/// Names that a line, or an inline table in it, gives values to.
fn setting_names(line: &str) -> impl Iterator<Item = &str> {
    line.split(['{', ',']).filter_map(|part| Some(part.split_once('=')?.0.trim()))
}

fn is_secret_name(name: &str) -> bool {
    let name = name.trim_matches(['"', '\'']).to_ascii_lowercase().replace('_', "-");
    !NOT_SECRET.contains(&&*name) && NAMES.iter().any(|secret| resembles(&name, secret))
}

fn resembles(word: &str, secret: &str) -> bool {
    strsim::damerau_levenshtein(word, secret) <= MAX_SLIPS
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

    #[test]
    fn values_of_secrets_and_of_misspelt_secrets_are_omitted() {
        for (line, expected) in [
            (format!("private-key = \"{KEY}\""), "private-key = …"),
            ("privat-kye = \"hidden\"".to_owned(), "privat-kye = …"),
            ("private_key = 'hidden'".to_owned(), "private_key = …"),
            ("\"Private-Key\" = 'hidden'".to_owned(), "\"Private-Key\" = …"),
            ("autth = \"crew:hidden\"".to_owned(), "autth = …"),
            ("tokn-hash = \"hidden\"".to_owned(), "tokn-hash = …"),
            ("keys = \"hidden\"".to_owned(), "keys = …"),
            ("a = 1, x = { key = \"hidden\" }".to_owned(), ""),
            ("the word is passwd = hidden".to_owned(), ""),
            (format!("peer-public-key = \"{KEY}\""), "peer-public-key = \"…\""),
            (format!("rate = \"{KEY}\" # = 1"), "rate = \"…\" # = 1"),
            ("keep = \"30\"".to_owned(), "keep = \"30\""),
            ("password-file = \"a.txt\"".to_owned(), "password-file = \"a.txt\""),
            ("private-key-file = \"a.key\"".to_owned(), "private-key-file = \"a.key\""),
            (format!("private-key-file = \"{KEY}\""), "private-key-file = \"…\""),
            ("rtt = 4".to_owned(), "rtt = 4"),
        ] {
            assert_eq!(shown(&line, 0), expected, "{line}");
        }
    }

    #[test]
    fn keys_are_omitted_wherever_they_are() {
        let file = format!("the private key in /etc/bentpipe/{KEY} cannot be read: /{KEY}.state");
        let said = without_keys(&file);
        assert_eq!(said, "the private key in /etc/bentpipe/… cannot be read: /….state");
        for said in ["", "a = b == c", "x=", "é=ü"] {
            assert_eq!(without_keys(said), said);
        }
    }
}

//! Assignments to `document.cookie` in inline scripts.

/// The property that a script assigns.
const PROPERTY: &[u8] = b"document.cookie";

/// Finds an assignment to `document.cookie` in a script, in one pass. Comments and strings count as
/// code: a wrong result only costs pushes.
#[derive(Debug, Default)]
pub(super) struct CookieScanner {
    /// Number of matched bytes of the property.
    matched: usize,
    /// `true` after the property and one `=`.
    is_equal: bool,
    is_found: bool,
}

impl CookieScanner {
    /// Scans the next bytes. Returns `true` if they contain the first assignment.
    pub(super) fn push(&mut self, bytes: &[u8]) -> bool {
        !self.is_found && bytes.iter().any(|byte| self.step(*byte))
    }

    fn step(&mut self, byte: u8) -> bool {
        if self.is_equal {
            // `==` is a comparison.
            (self.is_equal, self.matched) = (false, 0);
            self.is_found = byte != b'=';
            return self.is_found;
        }
        match PROPERTY.get(self.matched) {
            Some(next) if *next == byte => self.matched += 1,
            None if byte.is_ascii_whitespace() => {}
            None if byte == b'=' => self.is_equal = true,
            // The first byte of the property does not occur in it again.
            _ => self.matched = usize::from(byte == PROPERTY[0]),
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_assignments_are_found() {
        let finds = |script: &str| {
            let halves = script.split_at(script.len() / 2);
            let mut scanner = CookieScanner::default();
            let is_found = scanner.push(halves.0.as_bytes()) | scanner.push(halves.1.as_bytes());
            assert_eq!(CookieScanner::default().push(script.as_bytes()), is_found);
            is_found
        };
        assert!(finds("document.cookie='a=b';") && finds("ddocument.cookie = \"a=b\";"));
        for other in
            ["x=document.cookie;", "document.cookie==y", "document.cookies = 1", "cookie = 1"]
        {
            assert!(!finds(other), "{other}");
        }
        let mut scanner = CookieScanner::default();
        assert!(
            scanner.push(b"document.cookie=1;") && !scanner.push(b"document.cookie=1;"),
            "once"
        );
    }
}

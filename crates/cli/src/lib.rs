//! Code shared by the commands `bentpipe` and `bentpipe-lab`.
//!
//! | module | contents |
//! |---|---|
//! | [`out`] | standard output, which may be closed early |
//! | [`log`] | the log on standard error |
//! | [`sibling`] | the place of the other program |
//! | [`pages`] | man pages and completions |
//! | this page | the version |

#![forbid(unsafe_code)]

pub mod log;
pub mod out;
pub mod pages;
pub mod sibling;

/// Release and commit of this build: `0.1.0 (0123456789ab)`.
pub const VERSION: &str = env!("BENTPIPE_VERSION");

#[cfg(test)]
mod tests {
    use super::VERSION;

    #[test]
    fn the_version_begins_with_the_release() {
        let rest = VERSION.strip_prefix(env!("CARGO_PKG_VERSION")).unwrap();
        let commit = rest.strip_prefix(" (").and_then(|rest| rest.strip_suffix(')'));
        assert!(rest.is_empty() || commit.is_some_and(|commit| !commit.is_empty()), "{VERSION}");
    }
}

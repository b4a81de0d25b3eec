//! Referrer of an object's request, as in browsers (W3C Referrer Policy, and HTML section 4.2.5.1
//! for the names that `<meta>` still knows).

use http::HeaderMap;
use http::header::REFERRER_POLICY;

use crate::address::Address;

/// Referrer policy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ReferrerPolicy {
    /// Nothing.
    NoReferrer,
    /// All, but nothing without TLS of what came with it.
    NoReferrerWhenDowngrade,
    /// The origin.
    Origin,
    /// All to the origin itself, its name to others.
    OriginWhenCrossOrigin,
    /// All to the origin itself, nothing to others.
    SameOrigin,
    /// The origin, but nothing without TLS of what came with it.
    StrictOrigin,
    /// Default of browsers: the whole URL to the origin itself, its name to others, and nothing
    /// without TLS of what came with it.
    #[default]
    StrictOriginWhenCrossOrigin,
    /// All, to everybody.
    UnsafeUrl,
}

impl ReferrerPolicy {
    /// One by its name, as in the attribute `referrerpolicy`; the empty name and others say nothing.
    pub fn named(name: &str) -> Option<Self> {
        Some(match &name.to_ascii_lowercase()[..] {
            "no-referrer" => Self::NoReferrer,
            "no-referrer-when-downgrade" => Self::NoReferrerWhenDowngrade,
            "origin" => Self::Origin,
            "origin-when-cross-origin" => Self::OriginWhenCrossOrigin,
            "same-origin" => Self::SameOrigin,
            "strict-origin" => Self::StrictOrigin,
            "strict-origin-when-cross-origin" => Self::StrictOriginWhenCrossOrigin,
            "unsafe-url" => Self::UnsafeUrl,
            _ => return None,
        })
    }

    /// The same of the content of a `<meta name="referrer">`, which knows older names too.
    pub fn in_meta(content: &str) -> Option<Self> {
        match &content.to_ascii_lowercase()[..] {
            "never" => Some(Self::NoReferrer),
            "default" => Some(Self::default()),
            "always" => Some(Self::UnsafeUrl),
            "origin-when-crossorigin" => Some(Self::OriginWhenCrossOrigin),
            name => Self::named(name),
        }
    }

    /// Policy of an answer: the last valid name in its `Referrer-Policy`. `None` if there is none.
    pub fn of(headers: &HeaderMap) -> Option<Self> {
        let lines = headers.get_all(REFERRER_POLICY).iter();
        let names = lines.flat_map(|line| line.to_str().unwrap_or_default().split(','));
        names.rev().find_map(|name| Self::named(name.trim_ascii()))
    }

    /// `Referer` of a request for `address` from the document at `from`.
    pub fn referer(self, from: &Address, address: &Address) -> Option<String> {
        let is_own = from.origin() == address.origin();
        let is_downgrade = from.is_secure() && !address.is_secure();
        let whole = || Some(from.as_str().to_owned());
        let origin = || {
            let scheme = if from.is_secure() { "https" } else { "http" };
            Some(format!("{scheme}://{}/", from.authority()))
        };
        match self {
            Self::NoReferrer => None,
            Self::Origin => origin(),
            Self::UnsafeUrl => whole(),
            Self::SameOrigin if is_own => whole(),
            Self::SameOrigin => None,
            Self::OriginWhenCrossOrigin if is_own => whole(),
            Self::OriginWhenCrossOrigin => origin(),
            _ if is_downgrade => None,
            Self::StrictOriginWhenCrossOrigin if is_own => whole(),
            Self::NoReferrerWhenDowngrade => whole(),
            Self::StrictOrigin | Self::StrictOriginWhenCrossOrigin => origin(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    #[test]
    fn as_much_is_told_as_the_policy_says() {
        let url = |text: &str| Address::parse(text).unwrap();
        let told = |policy: &str, from: &str, to: &str| {
            let policy = ReferrerPolicy::named(policy).unwrap();
            policy.referer(&url(from), &url(to)).unwrap_or_default()
        };
        let (plain, secure) = ("http://a.test:8080/x?y", "https://a.test/x");
        // To the page's own origin, to another, and from TLS to one without.
        for (policy, own, other, downgrade) in [
            ("no-referrer", "", "", ""),
            ("no-referrer-when-downgrade", plain, plain, ""),
            ("origin", "http://a.test:8080/", "http://a.test:8080/", "https://a.test/"),
            ("origin-when-cross-origin", plain, "http://a.test:8080/", "https://a.test/"),
            ("same-origin", plain, "", ""),
            ("Strict-Origin", "http://a.test:8080/", "http://a.test:8080/", ""),
            ("strict-origin-when-cross-origin", plain, "http://a.test:8080/", ""),
            ("unsafe-url", plain, plain, secure),
        ] {
            assert_eq!(told(policy, plain, "http://a.test:8080/o.png"), own, "{policy}");
            assert_eq!(told(policy, plain, "http://a.test/o.png"), other, "{policy}");
            assert_eq!(told(policy, secure, "http://a.test/o.png"), downgrade, "{policy}");
        }
    }

    #[test]
    fn the_last_name_that_is_one_counts() {
        let of = |lines: &[&'static str]| {
            let line = |text: &&'static str| (REFERRER_POLICY, HeaderValue::from_static(text));
            ReferrerPolicy::of(&lines.iter().map(line).collect())
        };
        assert_eq!(of(&[]), None);
        assert_eq!(of(&["", "some-day"]), None);
        assert_eq!(of(&["no-referrer, origin ,new-policy"]), Some(ReferrerPolicy::Origin));
        assert_eq!(of(&["origin", "no-referrer"]), Some(ReferrerPolicy::NoReferrer));
        assert_eq!(of(&["never"]), None, "that is a word of pages");
        assert_eq!(ReferrerPolicy::in_meta("Never"), Some(ReferrerPolicy::NoReferrer));
        assert_eq!(ReferrerPolicy::in_meta(""), None);
    }
}

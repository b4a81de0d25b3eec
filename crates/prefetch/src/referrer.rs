//! `Referer` of an object's request, as in browsers (W3C Referrer Policy, and HTML section 4.2.5.1
//! for the older names in `<meta>`).

use http::HeaderMap;
use http::header::REFERRER_POLICY;

use crate::address::Address;

/// Referrer policy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ReferrerPolicy {
    /// Send nothing.
    NoReferrer,
    /// Send the full URL, but nothing from TLS to no TLS.
    NoReferrerWhenDowngrade,
    /// Send the origin.
    Origin,
    /// Send the full URL to the same origin, and the origin to others.
    OriginWhenCrossOrigin,
    /// Send the full URL to the same origin, and nothing to others.
    SameOrigin,
    /// Send the origin, but nothing from TLS to no TLS.
    StrictOrigin,
    /// Send the full URL to the same origin, the origin to others, and nothing from TLS to no TLS.
    /// The default of browsers.
    #[default]
    StrictOriginWhenCrossOrigin,
    /// Always send the full URL.
    UnsafeUrl,
}

impl ReferrerPolicy {
    /// Parses a policy as in the attribute `referrerpolicy`. Returns `None` for empty and unknown
    /// names.
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

    /// Parses the content of a `<meta name="referrer">`, which may have an older name.
    pub fn in_meta(content: &str) -> Option<Self> {
        match &content.to_ascii_lowercase()[..] {
            "never" => Some(Self::NoReferrer),
            "default" => Some(Self::default()),
            "always" => Some(Self::UnsafeUrl),
            "origin-when-crossorigin" => Some(Self::OriginWhenCrossOrigin),
            name => Self::named(name),
        }
    }

    /// Policy of a response: the last valid name in `Referrer-Policy`.
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
    fn referer_follows_the_policy() {
        let url = |text: &str| Address::parse(text).unwrap();
        let told = |policy: &str, from: &str, to: &str| {
            let policy = ReferrerPolicy::named(policy).unwrap();
            policy.referer(&url(from), &url(to)).unwrap_or_default()
        };
        let (plain, secure) = ("http://a.test:8080/x?y", "https://a.test/x");
        // To the page's own origin, to another, and from TLS to none.
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
    fn the_last_valid_policy_counts() {
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

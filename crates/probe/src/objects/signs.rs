//! The fields that proxies and caches add to a response. The one nearest to the client comes last in each.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// Maximum number of bytes of a field. The end of a longer one is kept, because the nearest proxy is there.
const MAX_FIELD: usize = 300;

/// Fields of proxies and caches. Several fields of one name are joined by commas.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signs {
    /// `Via` (RFC 9110).
    pub via: Option<String>,
    /// `X-Cache`.
    pub x_cache: Option<String>,
    /// `Cache-Status` (RFC 9211).
    pub cache_status: Option<String>,
    /// `Age` in seconds.
    pub age_s: Option<u64>,
}

impl Signs {
    /// Takes the fields of a response. `field` returns all values of a name.
    pub fn of<'v>(field: impl Fn(&str) -> Vec<&'v str>) -> Self {
        let joined = |name: &str| {
            let text = field(name).join(", ");
            let clean: String = text.chars().filter(|c| !c.is_control()).collect();
            let mut start = clean.len().saturating_sub(MAX_FIELD);
            while !clean.is_char_boundary(start) {
                start += 1;
            }
            (!clean.is_empty()).then(|| clean[start..].to_owned())
        };
        let age_s = field("age").last().and_then(|text| text.trim().parse().ok());
        let (via, x_cache) = (joined("via"), joined("x-cache"));
        Self { via, x_cache, cache_status: joined("cache-status"), age_s }
    }

    /// Host of the last proxy, if its address is private: it is in the aircraft, as the paper has it. An outer
    /// proxy with a public address or a name says nothing about the flight.
    pub fn private_proxy(&self) -> Option<IpAddr> {
        let host = self.last_host()?;
        let bare = host.strip_prefix('[').and_then(|rest| rest.split_once(']')).map(|(v6, _)| v6);
        let address = match bare {
            Some(v6) => v6.parse().ok()?,
            // A port follows an IPv4 address.
            None => match host.parse() {
                Ok(address) => address,
                Err(_) => host.rsplit_once(':')?.0.parse().ok()?,
            },
        };
        (crate::target::side(address) == crate::target::Side::Near).then_some(address)
    }

    /// Host of the last entry of `Via`: `1.0 172.19.134.2:3128 (squid/2.6.STABLE14)`.
    fn last_host(&self) -> Option<&str> {
        let last = entries(self.via.as_deref()?).pop()?;
        last.split_whitespace().nth(1)
    }

    /// Returns `true` for a hit and `false` for a miss of the last proxy of `Via`, by its own word. An outer cache's
    /// hit is not its own.
    pub fn nearest_hit(&self) -> Option<bool> {
        let host = self.last_host()?;
        let vias = entries(self.via.as_deref()?).len();
        self.by_cache_status(host, vias).or_else(|| self.by_x_cache(host, vias))
    }

    /// `ExampleCache; hit; ttl=376`, `squid.plane; fwd=miss`.
    fn by_cache_status(&self, host: &str, vias: usize) -> Option<bool> {
        let members = entries(self.cache_status.as_deref()?);
        let last = members.last()?;
        let mut parts = last.split(';').map(str::trim);
        let name = parts.next()?.trim_matches('"');
        let own = same_host(name, host) || members.len() == vias;
        own.then(|| parts.any(|part| part == "hit" || part == "hit=?1"))
    }

    /// `MISS from squid.plane`, as Squid writes it; other caches write `HIT` alone.
    fn by_x_cache(&self, host: &str, vias: usize) -> Option<bool> {
        let members = entries(self.x_cache.as_deref()?);
        let last = members.last()?.to_ascii_lowercase();
        let named = last.split_once(" from ").map(|(_, name)| same_host(name, host));
        // Without a name, the entries belong together if both fields have as many.
        if !named.unwrap_or(members.len() == vias) {
            return None;
        }
        let hit = last.contains("hit");
        (hit != last.contains("miss")).then_some(hit)
    }
}

/// Members of a list, without commas in quotes and comments.
fn entries(list: &str) -> Vec<&str> {
    let (mut found, mut start, mut depth, mut quoted) = (Vec::new(), 0, 0i32, false);
    for (at, c) in list.char_indices() {
        match c {
            '"' => quoted = !quoted,
            '(' if !quoted => depth += 1,
            ')' if !quoted => depth -= 1,
            ',' if !quoted && depth <= 0 => {
                found.push(&list[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    found.push(&list[start..]);
    found.into_iter().map(str::trim).filter(|entry| !entry.is_empty()).collect()
}

/// Compares hosts without their ports: Squid writes the port in `Via` or not.
fn same_host(a: &str, b: &str) -> bool {
    let bare = |host: &str| match host.trim().rsplit_once(':') {
        Some((name, port)) if !name.contains(':') && port.bytes().all(|b| b.is_ascii_digit()) => {
            name.to_ascii_lowercase()
        }
        _ => host.trim().to_ascii_lowercase(),
    };
    bare(a) == bare(b)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signs(via: &str, x_cache: &str, cache_status: &str) -> Signs {
        let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        Signs {
            via: text(via),
            x_cache: text(x_cache),
            cache_status: text(cache_status),
            age_s: None,
        }
    }

    #[test]
    fn only_a_private_last_proxy_is_in_the_aircraft() {
        let proxy =
            |via: &str| signs(via, "", "").private_proxy().map(|address| address.to_string());
        let paper = "1.0 172.19.134.2:3128 (squid/2.6.STABLE14)";
        assert_eq!(proxy(paper).as_deref(), Some("172.19.134.2"));
        assert_eq!(proxy(&format!("1.1 varnish, {paper}")).as_deref(), Some("172.19.134.2"));
        assert_eq!(
            proxy(&format!("{paper}, 1.1 203.0.113.9")),
            None,
            "a proxy on the ground comes after it"
        );
        assert_eq!(proxy("1.1 [fd00::1]:3128 (a, b)").as_deref(), Some("fd00::1"));
        assert_eq!(proxy("1.1 vegur"), None);
        assert_eq!(proxy("1.1 fd00::1").as_deref(), Some("fd00::1"));
        assert_eq!(proxy("nonsense"), None);
    }

    #[test]
    fn an_outer_hit_behind_an_inner_miss() {
        let squid = "1.1 varnish, 1.1 10.0.0.1 (squid/5.7)";
        assert_eq!(signs(squid, "HIT, MISS from 10.0.0.1", "").nearest_hit(), Some(false));
        assert_eq!(signs(squid, "MISS, HIT from 10.0.0.1:3128", "").nearest_hit(), Some(true));
        assert_eq!(signs(squid, "HIT from cdn.example", "").nearest_hit(), None, "another's");
        assert_eq!(signs(squid, "HIT", "").nearest_hit(), None, "one entry for two proxies");
        assert_eq!(signs("1.1 10.0.0.1", "HIT", "").nearest_hit(), Some(true));
        let both = "cdn.example; hit; ttl=30, 10.0.0.1; fwd=uri-miss; stored";
        assert_eq!(signs(squid, "", both).nearest_hit(), Some(false));
        assert_eq!(signs(squid, "", "cdn.example; hit").nearest_hit(), None);
        assert_eq!(signs("1.1 10.0.0.1", "", "\"10.0.0.1\"; hit").nearest_hit(), Some(true));
        assert_eq!(signs("", "HIT", "").nearest_hit(), None);
    }

    #[test]
    fn fields_are_bounded_and_clean() {
        let long = "x, ".repeat(5000) + "1.1 10.0.0.1";
        let found = Signs::of(|name| match name {
            "via" => vec![long.as_str()],
            "x-cache" => vec!["HIT\u{1b}[2J", "MISS"],
            "age" => vec!["17"],
            _ => Vec::new(),
        });
        assert!(found.via.as_ref().unwrap().len() <= MAX_FIELD);
        assert!(found.private_proxy().is_some(), "the end is kept");
        assert_eq!(found.x_cache.as_deref(), Some("HIT[2J, MISS"));
        assert_eq!(found.age_s, Some(17));
    }
}

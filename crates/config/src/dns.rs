//! `[dns]` of `air.toml`: the on-board resolver.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use bentpipe_dns::{FakeIpPool, Settings};
use bentpipe_units::{ByteSize, Span};
use ipnet::{Ipv4Net, Ipv6Net};
use schemars::JsonSchema;
use serde::Deserialize;

use super::encrypted_dns::EncryptedTable;
use super::{ConfigError, Encrypted, Placed, Source, seconds};

/// Burst of queries that one passenger may send, in seconds of the average rate.
const STRETCH: u64 = 4;

/// Minimum cache memory: enough for the names of more than one page.
const MIN_MEMORY: ByteSize = ByteSize::from_bytes(64 << 10);

/// Maximum warm start: the ground gateway counts 512 names, whose answers take about 100 KiB.
const MAX_WARM_START: ByteSize = ByteSize::from_bytes(1 << 20);

/// On-board resolver. If absent, passengers' queries cross the link like other traffic.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(super) struct DnsTable {
    /// Addresses of the resolver for passengers, over UDP and TCP; not `0.0.0.0`.
    #[schemars(title = "list of addresses")]
    listen: Vec<Placed<SocketAddr>>,
    /// Answers queries of intercepted passengers to other resolvers too.
    intercept: bool,
    /// File that keeps answers over restarts. The file and its folder must be writable. A running
    /// gateway holds a file ending in `.lock` next to it.
    #[schemars(title = "path")]
    cache_file: Option<PathBuf>,
    /// Limit for answers, at least 64 KiB.
    memory: Placed<ByteSize>,
    /// Minimum lifetime of answers.
    min_ttl: Span,
    /// Maximum lifetime of answers.
    max_ttl: Placed<Span>,
    /// Maximum lifetime of denials (no such name or record).
    max_negative_ttl: Span,
    /// Time for which an expired answer is given at once, and refreshed in the background; `"0 s"`:
    /// never.
    max_stale: Span,
    /// Lifetime of a failure, doubled after each further one, up to 300 s.
    failure_ttl: Placed<Span>,
    /// Number of queries within a lifetime for which a name is refreshed before the lifetime ends;
    /// 0: none.
    prefetch_hits: u32,
    /// Limit for such refreshes, on average; bursts of twice as many.
    prefetches_per_second: u32,
    /// Limit for answers that the ground pushes once, when a gateway starts with an empty cache:
    /// this aircraft's usual names. At most 1 MiB; 0: nothing. The ground needs `push-rate`.
    warm_start: Placed<ByteSize>,
    /// Limit for one passenger (an address), on average; bursts of four times as many. All of one
    /// /64 of IPv6: 64 times that, and as much again for addresses that the ground has not answered
    /// recently (docs/dns.md#quotas).
    queries_per_second_per_passenger: Placed<u32>,
    /// Questions to the ground at once. If all are taken, the heaviest user gives one up.
    max_questions: Placed<usize>,
    /// Fake-IP addresses, which stand for names; needs `cache-file`.
    instant_names: Option<Placed<InstantNames>>,
    /// DNS over TLS and HTTPS.
    encrypted: Option<EncryptedTable>,
}

/// Fake-IP addresses: private addresses that stand for names.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct InstantNames {
    /// Addresses: `"100.64.0.0/10"`; a prefix of /15 or shorter that nothing else uses.
    #[schemars(with = "String", title = "network")]
    v4: Ipv4Net,
    /// Addresses for IPv6: `"fd5c:8b2a:1::/64"`; /96 or shorter.
    #[schemars(with = "Option<String>", title = "network")]
    v6: Option<Ipv6Net>,
    /// Names that get such addresses, with all names below them; empty: every name.
    #[serde(default)]
    #[schemars(title = "names")]
    domains: Vec<String>,
}

/// On-board resolver.
#[derive(Debug, Clone)]
pub struct AirDns {
    /// Addresses of the resolver, for example to announce to passengers by DHCP.
    pub listen: Vec<SocketAddr>,
    /// `true` if queries that passengers send to other resolvers are answered here too.
    pub intercept: bool,
    /// File that preserves the cache across restarts.
    pub cache_file: Option<PathBuf>,
    /// Lifetimes of answers, and query limits.
    pub settings: Settings,
    /// Fake-IP addresses, if configured.
    pub instant_names: Option<InstantNames>,
    /// DNS over TLS and HTTPS, if offered.
    pub encrypted: Option<Encrypted>,
}

impl Default for DnsTable {
    fn default() -> Self {
        let defaults = Settings::default();
        let size = |bytes| Placed::nowhere(ByteSize::from_bytes(bytes));
        Self {
            listen: Vec::new(),
            intercept: true,
            cache_file: None,
            memory: size(defaults.memory_bytes as u64),
            min_ttl: Span::new(defaults.min_ttl),
            max_ttl: Placed::nowhere(Span::new(defaults.max_ttl)),
            max_negative_ttl: Span::new(defaults.max_negative_ttl),
            max_stale: Span::new(defaults.max_stale),
            failure_ttl: Placed::nowhere(Span::new(defaults.failure_ttl)),
            prefetch_hits: defaults.prefetch_hits,
            prefetches_per_second: defaults.prefetch_per_second as u32,
            warm_start: size(defaults.warm_start_bytes.into()),
            queries_per_second_per_passenger: Placed::nowhere(defaults.client_per_second as u32),
            max_questions: Placed::nowhere(defaults.max_asks),
            instant_names: None,
            encrypted: None,
        }
    }
}

impl DnsTable {
    /// Checks the table of a gateway that intercepts passengers if `is_intercepting`.
    pub fn check(self, source: &Source<'_>, is_intercepting: bool) -> Result<AirDns, ConfigError> {
        self.check_listeners(source, is_intercepting)?;
        self.check_numbers(source)?;
        let settings = self.settings();
        let encrypted = self.encrypted.map(|encrypted| encrypted.check(source)).transpose()?;
        if let Some(instant) = &self.instant_names {
            if self.cache_file.is_none() {
                let why = "instant names would lead elsewhere after a restart";
                let help = "write cache-file = \"/var/lib/bentpipe/dns.cache\" under [dns], where \
                            they are remembered";
                return Err(instant.error(source, why, help));
            }
            instant.pool(0).map_err(|error| {
                let help = "write v4 = \"100.64.0.0/10\", and domains without dots at their ends";
                instant.error(source, error.to_string(), help)
            })?;
        }
        Ok(AirDns {
            listen: self.listen.into_iter().map(Placed::into_inner).collect(),
            intercept: self.intercept,
            cache_file: self.cache_file.map(|path| source.beside(&path)),
            settings,
            instant_names: self.instant_names.map(Placed::into_inner),
            encrypted,
        })
    }

    fn check_listeners(
        &self,
        source: &Source<'_>,
        is_intercepting: bool,
    ) -> Result<(), ConfigError> {
        if let Some(address) = self.listen.iter().find(|address| address.ip().is_unspecified()) {
            let why = "answers must come from the address that was asked";
            let help = "write each address that passengers are told: listen = [\"10.0.0.1:53\"]";
            return Err(address.error(source, why, help));
        }
        let intercepts = self.intercept && is_intercepting;
        if self.listen.is_empty() && !intercepts && self.encrypted.is_none() {
            let help = "write listen = [\"10.0.0.1:53\"], or intercept passengers by tproxy under \
                        [listen]";
            return Err(ConfigError::at(source, None, "[dns] has nowhere to be asked", help));
        }
        Ok(())
    }

    fn check_numbers(&self, source: &Source<'_>) -> Result<(), ConfigError> {
        let failure = self.failure_ttl.duration();
        let can_fail = (seconds(1).duration()..=seconds(300).duration()).contains(&failure);
        let (memory, max_ttl) = (&self.memory, &self.max_ttl);
        let queries = &self.queries_per_second_per_passenger;
        let (why, help, place) = if **memory < MIN_MEMORY {
            ("this holds hardly a page's names", "write at least \"64 KiB\"", &memory.place)
        } else if max_ttl.duration() < self.min_ttl.duration() {
            ("max-ttl is below min-ttl", "raise one or lower the other", &max_ttl.place)
        } else if !can_fail {
            let help = "write \"1 s\" to \"300 s\": RFC 9520 section 3.2";
            ("failures cannot be kept like this", help, &self.failure_ttl.place)
        } else if *self.warm_start > MAX_WARM_START {
            let why = "the ground counts no names for so much";
            (why, "write at most \"1 MiB\"", &self.warm_start.place)
        } else if **queries == 0 {
            ("nobody could ask anything", "write 100, or leave out [dns]", &queries.place)
        } else if !(1..=65_535).contains(&*self.max_questions) {
            let why = "questions have ids of 16 bits";
            (why, "write 1 to 65535", &self.max_questions.place)
        } else {
            return Ok(());
        };
        Err(ConfigError::at(source, Some(place.clone()), why, help))
    }

    /// Settings of the resolver, for a checked table.
    fn settings(&self) -> Settings {
        let per_second = u64::from(*self.queries_per_second_per_passenger);
        Settings {
            memory_bytes: usize::try_from(self.memory.bytes()).unwrap_or(usize::MAX),
            min_ttl: self.min_ttl.into(),
            max_ttl: self.max_ttl.duration(),
            max_negative_ttl: self.max_negative_ttl.into(),
            max_stale: self.max_stale.into(),
            failure_ttl: self.failure_ttl.duration(),
            prefetch_hits: self.prefetch_hits,
            prefetch_per_second: self.prefetches_per_second.into(),
            // At most MAX_WARM_START.
            warm_start_bytes: self.warm_start.bytes() as u32,
            client_per_second: per_second,
            client_burst: STRETCH * per_second,
            max_asks: *self.max_questions,
            ..Settings::default()
        }
    }
}

impl Default for AirDns {
    fn default() -> Self {
        let table = DnsTable::default();
        Self {
            settings: table.settings(),
            listen: Vec::new(),
            intercept: table.intercept,
            cache_file: None,
            instant_names: None,
            encrypted: None,
        }
    }
}

impl InstantNames {
    /// Pool of the addresses. Allocation begins at `start` if no state was saved. A checked
    /// configuration gives no error.
    pub fn pool(&self, start: u32) -> Result<FakeIpPool, bentpipe_dns::PoolError> {
        let v4: (Ipv4Addr, u8) = (self.v4.network(), self.v4.prefix_len());
        let v6: Option<(Ipv6Addr, u8)> = self.v6.map(|it| (it.network(), it.prefix_len()));
        FakeIpPool::new(v4, v6, &self.domains, start)
    }
}

/// Names and networks of the pool.
impl std::fmt::Display for InstantNames {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names = match self.domains.len() {
            0 => "any name".to_owned(),
            _ => self.domains.join(", "),
        };
        write!(f, "{names} from {}", self.v4)?;
        self.v6.map_or(Ok(()), |v6| write!(f, " and {v6}"))
    }
}

//! `[dns]` of `air.toml`: the on-board resolver.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use bentpipe_classify::Name;
use bentpipe_dns::{FakeIpPool, Settings};
use bentpipe_units::{ByteSize, Span};
use ipnet::{Ipv4Net, Ipv6Net};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::ParsedCertificate;
use serde::Deserialize;
use toml::Spanned;

use super::{ConfigError, Source, Tproxy, seconds};

/// Burst of queries that one passenger may send, in seconds of the average rate.
const STRETCH: u64 = 4;

/// Minimum cache memory: enough for the names of more than one page.
const MIN_MEMORY: ByteSize = ByteSize::from_bytes(64 << 10);

/// Maximum warm start: the ground gateway counts 512 names, whose answers take about 100 KiB.
const MAX_WARM_START: ByteSize = ByteSize::from_bytes(1 << 20);

/// On-board resolver. If absent, passengers' queries cross the link like other traffic.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct AirDns {
    #[serde(rename = "listen")]
    written_listen: Vec<Spanned<SocketAddr>>,
    /// `true` if queries that passengers send to other resolvers are answered here too.
    pub intercept: bool,
    #[serde(rename = "cache-file")]
    written_cache_file: Option<PathBuf>,
    /// File that preserves the cache across restarts.
    #[serde(skip)]
    pub cache_file: Option<PathBuf>,
    memory: Spanned<ByteSize>,
    min_ttl: Span,
    max_ttl: Spanned<Span>,
    max_negative_ttl: Span,
    max_stale: Span,
    failure_ttl: Spanned<Span>,
    prefetch_hits: u32,
    prefetches_per_second: u32,
    warm_start: Spanned<ByteSize>,
    queries_per_second_per_passenger: Spanned<u32>,
    max_questions: Spanned<usize>,
    instant_names: Option<Spanned<InstantNames>>,
    /// DNS over TLS and HTTPS, if offered.
    pub encrypted: Option<Encrypted>,
}

/// DNS over TLS and HTTPS, with the operator's certificate.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Encrypted {
    /// Addresses of DNS over TLS (RFC 7858).
    #[serde(default)]
    pub tls: Vec<SocketAddr>,
    /// Addresses of DNS over HTTPS (RFC 8484), at `/dns-query`.
    #[serde(default)]
    pub https: Vec<SocketAddr>,
    name: Option<Spanned<String>>,
    /// Certificate chain, PEM.
    certificate: Spanned<PathBuf>,
    /// Private key of the certificate, PEM.
    key: Spanned<PathBuf>,
    #[serde(skip)]
    loaded: Option<Arc<ServerConfig>>,
    #[serde(skip)]
    parsed_name: Option<Name>,
}

/// Fake-IP addresses: private addresses that stand for names.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct InstantNames {
    v4: Ipv4Net,
    v6: Option<Ipv6Net>,
    #[serde(default)]
    domains: Vec<String>,
}

impl Default for AirDns {
    fn default() -> Self {
        let defaults = Settings::default();
        let span = |time| Span::new(time);
        Self {
            written_listen: Vec::new(),
            intercept: true,
            written_cache_file: None,
            cache_file: None,
            memory: unplaced(ByteSize::from_bytes(defaults.memory_bytes as u64)),
            min_ttl: span(defaults.min_ttl),
            max_ttl: unplaced(span(defaults.max_ttl)),
            max_negative_ttl: span(defaults.max_negative_ttl),
            max_stale: span(defaults.max_stale),
            failure_ttl: unplaced(span(defaults.failure_ttl)),
            prefetch_hits: defaults.prefetch_hits,
            prefetches_per_second: defaults.prefetch_per_second as u32,
            warm_start: unplaced(ByteSize::from_bytes(defaults.warm_start_bytes.into())),
            queries_per_second_per_passenger: unplaced(defaults.client_per_second as u32),
            max_questions: unplaced(defaults.max_asks),
            instant_names: None,
            encrypted: None,
        }
    }
}

fn unplaced<T>(value: T) -> Spanned<T> {
    Spanned::new(0..0, value)
}

impl AirDns {
    /// Addresses of the resolver, for example to announce to passengers by DHCP.
    pub fn listen(&self) -> impl Iterator<Item = SocketAddr> {
        self.written_listen.iter().map(|address| *address.get_ref())
    }

    /// Resolver settings: lifetimes of answers, and query limits.
    pub fn settings(&self) -> Settings {
        let per_second = u64::from(*self.queries_per_second_per_passenger.get_ref());
        Settings {
            memory_bytes: usize::try_from(self.memory.get_ref().bytes()).unwrap_or(usize::MAX),
            min_ttl: self.min_ttl.into(),
            max_ttl: (*self.max_ttl.get_ref()).into(),
            max_negative_ttl: self.max_negative_ttl.into(),
            max_stale: self.max_stale.into(),
            failure_ttl: (*self.failure_ttl.get_ref()).into(),
            prefetch_hits: self.prefetch_hits,
            prefetch_per_second: self.prefetches_per_second.into(),
            // check rejects values above MAX_WARM_START.
            warm_start_bytes: self.warm_start.get_ref().bytes() as u32,
            client_per_second: per_second,
            client_burst: STRETCH * per_second,
            max_asks: *self.max_questions.get_ref(),
            ..Settings::default()
        }
    }

    /// Pool of fake-IP addresses, if configured. Allocation begins at `start` if no state was
    /// saved.
    pub fn pool(&self, start: u32) -> Option<FakeIpPool> {
        // AirDns::check has built this pool once without an error.
        self.instant_names.as_ref()?.get_ref().pool(start).ok()
    }

    /// Names and networks of the fake-IP pool, as text.
    pub fn pool_networks(&self) -> Option<String> {
        let InstantNames { v4, v6, domains } = self.instant_names.as_ref()?.get_ref();
        let v6 = v6.map_or(String::new(), |v6| format!(" and {v6}"));
        let names = match domains.len() {
            0 => "any name".to_owned(),
            _ => domains.join(", "),
        };
        Some(format!("{names} from {v4}{v6}"))
    }

    pub(super) fn check(
        &mut self,
        source: &Source<'_>,
        tproxy: Option<&Tproxy>,
    ) -> Result<(), ConfigError> {
        self.cache_file = self.written_cache_file.as_ref().map(|path| source.beside(path));
        let at = |span, why: &str, help: &str| {
            Err(ConfigError::at(source, Some(span), why.to_owned(), help.to_owned()))
        };
        for address in &self.written_listen {
            if address.get_ref().ip().is_unspecified() {
                let why = "answers must come from the address that was asked";
                let help =
                    "write each address that passengers are told: listen = [\"10.0.0.1:53\"]";
                return at(address.span(), why, help);
            }
        }
        let intercepts = self.intercept && tproxy.is_some();
        if self.written_listen.is_empty() && !intercepts && self.encrypted.is_none() {
            let why = "[dns] has nowhere to be asked".to_owned();
            let help = "write listen = [\"10.0.0.1:53\"], or intercept passengers by \
                        tproxy under [listen]";
            return Err(ConfigError::at(source, None, why, help.to_owned()));
        }
        if *self.memory.get_ref() < MIN_MEMORY {
            return at(
                self.memory.span(),
                "this holds hardly a page's names",
                "write at least \"64 KiB\"",
            );
        }
        if self.max_ttl.get_ref().duration() < self.min_ttl.duration() {
            return at(
                self.max_ttl.span(),
                "max-ttl is below min-ttl",
                "raise one or lower the other",
            );
        }
        let failure = self.failure_ttl.get_ref().duration();
        if failure < seconds(1).duration() || failure > seconds(300).duration() {
            let help = "write \"1 s\" to \"300 s\": RFC 9520 section 3.2";
            return at(self.failure_ttl.span(), "failures cannot be kept like this", help);
        }
        if *self.warm_start.get_ref() > MAX_WARM_START {
            let why = "the ground counts no names for so much";
            return at(self.warm_start.span(), why, "write at most \"1 MiB\"");
        }
        if *self.queries_per_second_per_passenger.get_ref() == 0 {
            let span = self.queries_per_second_per_passenger.span();
            return at(span, "nobody could ask anything", "write 100, or leave out [dns]");
        }
        if !(1..=65_535).contains(self.max_questions.get_ref()) {
            return at(
                self.max_questions.span(),
                "questions have ids of 16 bits",
                "write 1 to 65535",
            );
        }
        if let Some(encrypted) = &mut self.encrypted {
            encrypted.load(source)?;
        }
        if let Some(instant) = &self.instant_names {
            if self.cache_file.is_none() {
                let why = "instant names would lead elsewhere after a restart";
                let help = "write cache-file = \"/var/lib/bentpipe/dns.cache\" under [dns], where \
                            they are remembered";
                return at(instant.span(), why, help);
            }
            if let Err(error) = instant.get_ref().pool(0) {
                let help = "write v4 = \"100.64.0.0/10\", and domains without dots at their ends";
                return at(instant.span(), &error.to_string(), help);
            }
        }
        Ok(())
    }
}

impl Encrypted {
    /// Name of the resolver for discovery of its encrypted endpoints, if configured.
    pub fn name(&self) -> Option<&Name> {
        self.parsed_name.as_ref()
    }

    /// TLS configuration of a server that speaks one of `protocols` (RFC 7301).
    pub fn server(&self, protocols: &[&str]) -> Arc<ServerConfig> {
        // AirConfig::parse, the only constructor, has set it.
        let loaded = self.loaded.as_ref().expect("a parsed config holds its certificate");
        let mut server = ServerConfig::clone(loaded);
        server.alpn_protocols = protocols.iter().map(|it| it.as_bytes().to_vec()).collect();
        Arc::new(server)
    }

    fn load(&mut self, source: &Source<'_>) -> Result<(), ConfigError> {
        if self.tls.is_empty() && self.https.is_empty() {
            let why = "nobody is shown this certificate".to_owned();
            let help = "write tls = [\"10.0.0.1:853\"] or https = [\"10.0.0.1:443\"], or leave out \
                        [dns.encrypted]";
            let place = Some(self.certificate.span());
            return Err(ConfigError::at(source, place, why, help.to_owned()));
        }
        let (chain, key) = (source.pem(&self.certificate)?, source.pem_key(&self.key)?);
        let server = server(&chain, &key).map_err(|why| {
            let help = "certificate is a PEM file of certificates, its own first; key one of the \
                        private key that belongs to it";
            ConfigError::at(source, Some(self.certificate.span()), why, help.to_owned())
        })?;
        self.loaded = Some(Arc::new(server));
        self.parsed_name =
            self.name.as_ref().map(|name| named(source, name, &chain)).transpose()?;
        Ok(())
    }
}

/// Parses `name` and checks that the certificate covers it.
fn named(source: &Source<'_>, name: &Spanned<String>, chain: &[u8]) -> Result<Name, ConfigError> {
    let wrong = |why: String| {
        let help = "write the name that the certificate is for, or leave it out: devices are told of the \
                    encrypted resolver by it";
        ConfigError::at(source, Some(name.span()), why, help.to_owned())
    };
    let parsed: Name = name.get_ref().parse().map_err(|error| wrong(format!("{error}")))?;
    let for_name = ServerName::try_from(parsed.as_str().to_owned());
    let for_name = for_name.map_err(|error| wrong(error.to_string()))?;
    let own = CertificateDer::pem_slice_iter(chain).find_map(Result::ok);
    let is_for_name = own.is_some_and(|own| {
        ParsedCertificate::try_from(&own)
            .and_then(|parsed| rustls::client::verify_server_name(&parsed, &for_name))
            .is_ok()
    });
    if !is_for_name {
        return Err(wrong(format!("the certificate is not for {}", parsed.as_str())));
    }
    Ok(parsed)
}

fn server(chain: &[u8], key: &[u8]) -> Result<ServerConfig, String> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(chain).collect();
    let chain = chain.map_err(|error| format!("reading the certificate: {error}"))?;
    if chain.is_empty() {
        return Err("there is no CERTIFICATE in the certificate's file".to_owned());
    }
    let key = PrivateKeyDer::from_pem_slice(key);
    let key = key.map_err(|error| format!("reading the certificate's key: {error}"))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
        .map_err(|error| error.to_string())
}

impl InstantNames {
    fn pool(&self, start: u32) -> Result<FakeIpPool, bentpipe_dns::PoolError> {
        let v4: (Ipv4Addr, u8) = (self.v4.network(), self.v4.prefix_len());
        let v6: Option<(Ipv6Addr, u8)> = self.v6.map(|it| (it.network(), it.prefix_len()));
        FakeIpPool::new(v4, v6, &self.domains, start)
    }
}

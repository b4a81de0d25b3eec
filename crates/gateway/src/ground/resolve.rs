//! Names to addresses: the config's own table, the hosts file, then the name servers.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use bentpipe_link::ResetCode;
use futures_util::future::BoxFuture;
use hickory_resolver::TokioResolver;
use hickory_resolver::config::{
    ConnectionConfig, NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts,
};
use hickory_resolver::net::{NetError, runtime::TokioRuntimeProvider};
use hickory_resolver::proto::rr::RecordType;
use hickory_resolver::system_conf;

use super::eyeballs::{Family, Resolve};
use crate::config;
use crate::net::StartError;

/// Time limit for one name server; each is asked twice, within the dial's deadline.
const QUERY_TIMEOUT: Duration = Duration::from_secs(2);

/// Answers kept, at roughly 1 KiB each: 8 MiB.
const CACHED_ANSWERS: u64 = 8192;

/// The ground's resolver.
pub struct Dns {
    table: RwLock<Table>,
    resolver: TokioResolver,
}

type Table = HashMap<String, Vec<IpAddr>>;

impl Dns {
    /// Asks `servers`, or the system's where there are none, for what is not in `table`.
    pub fn new(
        servers: &config::Dns,
        table: &BTreeMap<String, config::HostAddresses>,
    ) -> Result<Self, StartError> {
        let wrong = |error: NetError| StartError::Dns(error.to_string());
        let mut builder = if servers.servers.is_empty() {
            TokioResolver::builder_tokio().map_err(wrong)?
        } else {
            let servers = servers.servers.iter().map(|server| name_server(*server)).collect();
            let config = ResolverConfig::from_parts(None, Vec::new(), servers);
            TokioResolver::builder_with_config(config, TokioRuntimeProvider::default())
        };
        tune(builder.options_mut());
        let table = RwLock::new(prepared(table));
        Ok(Self { table, resolver: builder.build().map_err(wrong)? })
    }

    /// From now on these are answered without asking.
    pub fn set_table(&self, table: &BTreeMap<String, config::HostAddresses>) {
        *self.table.write().unwrap_or_else(PoisonError::into_inner) = prepared(table);
    }

    /// Addresses in the table for `name`, which is in lower case and has no dot at its end.
    pub fn known(&self, name: &str) -> Option<Vec<IpAddr>> {
        // Nothing in here panics half-way.
        self.table.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }
}

/// The addresses of `config`'s name servers, or of the system's where it has none.
pub fn servers(config: &config::Dns) -> Result<Vec<SocketAddr>, StartError> {
    if !config.servers.is_empty() {
        return Ok(config.servers.iter().map(|server| server.0).collect());
    }
    let read = system_conf::read_system_conf();
    let (system, _) = read.map_err(|error| StartError::Dns(error.to_string()))?;
    let port = |server: &NameServerConfig| server.connections.first().map_or(53, |it| it.port);
    let address = |server: &NameServerConfig| SocketAddr::new(server.ip, port(server));
    let mut servers: Vec<_> = system.name_servers().iter().map(address).collect();
    servers.dedup();
    Ok(servers)
}

fn prepared(table: &BTreeMap<String, config::HostAddresses>) -> Table {
    table.iter().map(|(name, ips)| (plain(name), ips.as_slice().to_vec())).collect()
}

fn name_server(server: config::NameServer) -> NameServerConfig {
    let [mut udp, mut tcp] = [ConnectionConfig::udp(), ConnectionConfig::tcp()];
    udp.port = server.0.port();
    tcp.port = server.0.port();
    NameServerConfig::new(server.0.ip(), true, vec![udp, tcp])
}

fn tune(options: &mut ResolverOpts) {
    options.timeout = QUERY_TIMEOUT;
    options.attempts = 1;
    options.cache_size = CACHED_ANSWERS;
    options.use_hosts_file = ResolveHosts::Always;
}

/// Names compare without case and without the dot at their end.
fn plain(name: &str) -> String {
    name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase()
}

impl Resolve for Dns {
    fn resolve(
        &self,
        name: String,
        family: Family,
    ) -> BoxFuture<'_, Result<Vec<IpAddr>, ResetCode>> {
        Box::pin(async move {
            let name = plain(&name);
            let of_family = |ip: &IpAddr| ip.is_ipv4() == (family == Family::V4);
            if let Some(ips) = self.known(&name) {
                return Ok(ips.into_iter().filter(of_family).collect());
            }
            let record = match family {
                Family::V4 => RecordType::A,
                Family::V6 => RecordType::AAAA,
            };
            // The dot keeps the hub's own search domains out of passengers' names.
            let answer = self.resolver.lookup(format!("{name}."), record).await;
            let answer = answer.map_err(|error| code_of(&error))?;
            let ips = answer.answers().iter().filter_map(|record| record.data.ip_addr());
            Ok(ips.filter(of_family).collect())
        })
    }
}

fn code_of(error: &NetError) -> ResetCode {
    match error {
        NetError::Timeout => ResetCode::Timeout,
        error if error.is_no_records_found() => ResetCode::NameNotFound,
        _ => ResetCode::Unreachable,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_table_answers_first_and_whole() {
        let table = toml::from_str::<BTreeMap<String, config::HostAddresses>>(
            "\"Dual.Test\" = [\"192.0.2.7\", \"2001:db8::7\"]\n\"four.test\" = \"192.0.2.4\"",
        );
        let servers =
            config::Dns { servers: vec!["127.0.0.1:9".parse().unwrap()], ..Default::default() };
        let dns = Dns::new(&servers, &table.unwrap()).unwrap();
        let ask = |name: &str, family| dns.resolve(name.to_owned(), family);
        assert_eq!(ask("dual.test.", Family::V4).await, Ok(vec!["192.0.2.7".parse().unwrap()]));
        assert_eq!(ask("DUAL.test", Family::V6).await, Ok(vec!["2001:db8::7".parse().unwrap()]));
        assert_eq!(ask("four.test", Family::V6).await, Ok(vec![]));
        let table = toml::from_str("\"four.test\" = \"192.0.2.5\"").unwrap();
        dns.set_table(&table);
        assert_eq!(ask("four.test", Family::V4).await, Ok(vec!["192.0.2.5".parse().unwrap()]));
    }
}

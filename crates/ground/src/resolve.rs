//! Names whose addresses are known without a query: the configured table, then the hosts file.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use hickory_resolver::config::NameServerConfig;
use hickory_resolver::system_conf;
use parking_lot::RwLock;

use crate::error::StartError;

/// The system's hosts file, see hosts(5).
const HOSTS_FILE: &str = "/etc/hosts";

/// Last labels of names that do not exist (RFC 6761 section 6.4, RFC 7686).
const NEVER_QUERIED: [&str; 2] = ["invalid", "onion"];

/// Names and addresses that need no query.
pub struct KnownNames {
    table: RwLock<Table>,
    hosts: Table,
}

type Table = HashMap<String, Vec<IpAddr>>;

impl KnownNames {
    /// Uses `table`, and the hosts file as it is now.
    pub fn new(table: &BTreeMap<String, bentpipe_config::HostAddresses>) -> Self {
        let hosts = std::fs::read_to_string(HOSTS_FILE).unwrap_or_default();
        Self { table: RwLock::new(prepared(table)), hosts: parsed(&hosts) }
    }

    /// Replaces the table.
    pub fn set_table(&self, table: &BTreeMap<String, bentpipe_config::HostAddresses>) {
        *self.table.write() = prepared(table);
    }

    /// Addresses in the table for `name`, which must be in lower case without the final dot.
    pub fn in_table(&self, name: &str) -> Option<Vec<IpAddr>> {
        self.table.read().get(name).cloned()
    }

    /// Addresses of the host called `name`: those of the table or of the hosts file, loopback for
    /// `localhost`, and none for names that must not be queried.
    pub fn of_host(&self, name: &str) -> Option<Vec<IpAddr>> {
        let name = plain(name);
        let known = self.in_table(&name).or_else(|| self.hosts.get(&name).cloned());
        known.or_else(|| match name.rsplit('.').next() {
            Some("localhost") => Some(vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()]),
            Some(last) if NEVER_QUERIED.contains(&last) => Some(Vec::new()),
            _ => None,
        })
    }
}

/// Addresses of the name servers in `config`, or of the system's if it has none.
pub fn servers(config: &bentpipe_config::Dns) -> Result<Vec<SocketAddr>, StartError> {
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

fn prepared(table: &BTreeMap<String, bentpipe_config::HostAddresses>) -> Table {
    table.iter().map(|(name, ips)| (plain(name), ips.as_slice().to_vec())).collect()
}

/// Reads a hosts file. Lines that cannot be read are skipped.
fn parsed(hosts: &str) -> Table {
    let mut table = Table::new();
    for line in hosts.lines() {
        let line = line.split('#').next().unwrap_or_default();
        let mut words = line.split_whitespace();
        let Some(Ok(ip)) = words.next().map(str::parse) else { continue };
        for name in words {
            table.entry(plain(name)).or_default().push(ip);
        }
    }
    table
}

/// Normalizes a name: lower case, without the final dot.
fn plain(name: &str) -> String {
    name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_comes_first_then_the_hosts_file() {
        let table = toml::from_str::<BTreeMap<String, bentpipe_config::HostAddresses>>(
            "\"Dual.Test\" = [\"192.0.2.7\", \"2001:db8::7\"]\n\"four.test\" = \"192.0.2.4\"",
        );
        let mut names = KnownNames::new(&table.unwrap());
        names.hosts = parsed("# a comment\n192.0.2.9 four.test Other.test # more\nnone x.test\n");
        let of = |name: &str| {
            names.of_host(name).map(|ips| ips.iter().map(|ip| ip.to_string()).collect())
        };
        let are = |ips: &[&str]| Some(ips.iter().map(|ip| ip.to_string()).collect::<Vec<_>>());
        assert_eq!(of("dual.TEST."), are(&["192.0.2.7", "2001:db8::7"]));
        assert_eq!(of("four.test"), are(&["192.0.2.4"]));
        assert_eq!(of("other.test"), are(&["192.0.2.9"]));
        assert_eq!(of("a.localhost"), are(&["127.0.0.1", "::1"]));
        assert_eq!((of("a.invalid"), of("b.Onion.")), (are(&[]), are(&[])), "without a query");
        assert_eq!((of("x.test"), names.in_table("other.test")), (None, None));
        let table = toml::from_str("\"four.test\" = \"192.0.2.5\"").unwrap();
        names.set_table(&table);
        assert_eq!(names.in_table("four.test"), Some(vec!["192.0.2.5".parse().unwrap()]));
    }
}

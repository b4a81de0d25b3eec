//! The rules of transparent interception: an nftables table, and a policy route
//! that delivers the marked packets locally.
//!
//! All of it carries this gateway's own names and numbers. Whatever a crashed run
//! left behind is replaced at the next start. Only what *comes in* by the named
//! interfaces is intercepted, so nothing the gateway itself sends can loop.

use std::io::{self, Write};
use std::process::{Command, Output, Stdio};

use super::capture::GROUP;

/// The nftables table; one air gateway per network namespace.
pub const TABLE: &str = "bentpipe_air";

/// The mark of intercepted packets, "bp" in ASCII, and with it the number and
/// priority of the routing table they use: before the main one's 32766.
pub const MARK: u32 = 0x6270;

/// Rules of one kind that a crashed run can have left; more than one only by hand.
const MAX_LEFTOVERS: usize = 8;

/// Why the rules could not be put in force.
#[derive(Debug, thiserror::Error)]
pub enum RulesError {
    /// The process may not change the network.
    #[error(
        "transparent interception needs CAP_NET_ADMIN: run as root, set \
         AmbientCapabilities=CAP_NET_ADMIN in the systemd unit, or leave tproxy out of [listen] \
         and let clients use socks5 or http-proxy"
    )]
    Permission,
    /// A program is not installed.
    #[error(
        "transparent interception needs the program `{0}`: install nftables and iproute2, or \
         leave tproxy out of [listen]"
    )]
    Missing(&'static str),
    /// A program failed.
    #[error(
        "`{command}` failed: {said}\ntransparent interception needs a kernel with nftables \
         TPROXY and policy routing (nft_tproxy, IP_MULTIPLE_TABLES)"
    )]
    Failed {
        /// What was run.
        command: String,
        /// What it said.
        said: String,
    },
}

/// What is intercepted besides TCP.
#[derive(Debug, Clone, Copy)]
pub struct Leads {
    /// UDP.
    pub udp: bool,
    /// What is neither TCP nor UDP: copied to `capture::GROUP`.
    pub others: bool,
}

/// Rules in force; dropping removes them.
pub struct Rules {
    v6: bool,
}

impl Rules {
    /// Leads TCP that comes in by `interfaces`, and what `leads` says, to `port` on loopback.
    pub fn install(
        port: u16,
        interfaces: &[&str],
        v6: bool,
        leads: Leads,
    ) -> Result<Self, RulesError> {
        // From here on dropping removes whatever was done before a failure.
        let rules = Self { v6 };
        rules.remove_routes();
        for family in rules.families() {
            let table = MARK.to_string();
            ip(&[family, "route", "replace", "local", "default", "dev", "lo", "table", &table])?;
            ip(&[&[family, "rule", "add"][..], &rule()].concat())?;
        }
        nft(&script(port, interfaces, v6, leads))?;
        Ok(rules)
    }

    fn families(&self) -> impl Iterator<Item = &'static str> {
        ["-4", "-6"].into_iter().take(if self.v6 { 2 } else { 1 })
    }

    fn remove_routes(&self) {
        let table = MARK.to_string();
        for family in self.families() {
            for _ in 0..MAX_LEFTOVERS {
                if ip(&[&[family, "rule", "del"][..], &rule()].concat()).is_err() {
                    break;
                }
            }
            // Fails where there is nothing to remove.
            let _ = ip(&[family, "route", "flush", "table", &table]);
        }
    }
}

impl Drop for Rules {
    fn drop(&mut self) {
        match nft(&format!("table inet {TABLE} {{}}\ndelete table inet {TABLE}\n")) {
            // Without nft there was never a table.
            Ok(()) | Err(RulesError::Missing(_)) => {}
            Err(error) => {
                tracing::warn!(%error, "the rules stay: `nft delete table inet {TABLE}`");
            }
        }
        self.remove_routes();
    }
}

fn rule() -> [&'static str; 6] {
    // MARK, as the priority too.
    ["fwmark", "0x6270", "lookup", "25200", "priority", "25200"]
}

/// One transaction: the old table goes and the new one comes at once.
///
/// Whatever is for this machine or its neighbours alone stays: its own addresses, broadcast and
/// multicast (DHCP, neighbour discovery, mDNS, LLMNR, SSDP among them), link-local addresses, and
/// DHCP and DHCPv6 to a server elsewhere. Only TCP has a handshake, so a source that packets of others
/// would not go back to by the interface they came in by is an invented one. Of what is neither TCP
/// nor UDP the gateway gets copies, see `capture.rs`; the packets themselves go nowhere.
fn script(port: u16, interfaces: &[&str], v6: bool, leads: Leads) -> String {
    let interfaces = interfaces.iter().map(|name| format!("\"{name}\"")).collect::<Vec<_>>();
    let interfaces = interfaces.join(", ");
    let mut lead = String::new();
    for (family, loopback) in
        [("ip", "127.0.0.1"), ("ip6", "[::1]")].iter().take(1 + usize::from(v6))
    {
        let version = if *family == "ip" { "ipv4" } else { "ipv6" };
        for protocol in ["tcp", "udp"].iter().take(1 + usize::from(leads.udp)) {
            lead += &format!(
                "meta nfproto {version} meta l4proto {protocol} \
                 tproxy {family} to {loopback}:{port} meta mark set {MARK:#x} accept\n"
            );
        }
    }
    let others = if leads.others {
        format!("meta l4proto != {{ tcp, udp }} log group {GROUP} drop\n")
    } else {
        String::new()
    };
    format!(
        "table inet {TABLE} {{}}\n\
         delete table inet {TABLE}\n\
         table inet {TABLE} {{\n\
           chain prerouting {{\n\
             type filter hook prerouting priority mangle; policy accept;\n\
             iifname != {{ {interfaces} }} return\n\
             fib daddr type {{ local, broadcast, anycast, multicast }} return\n\
             ip daddr {{ 127.0.0.0/8, 169.254.0.0/16, 224.0.0.0/4, 255.255.255.255 }} return\n\
             ip6 daddr {{ ::1, fe80::/10, ff00::/8 }} return\n\
             udp dport {{ 67, 68, 546, 547 }} return\n\
             meta l4proto != tcp fib saddr . iif oif missing counter drop\n\
             {lead}{others}\
           }}\n\
         }}\n"
    )
}

fn nft(script: &str) -> Result<(), RulesError> {
    run("nft", &["-f", "-"], script)
}

fn ip(arguments: &[&str]) -> Result<(), RulesError> {
    run("ip", arguments, "")
}

fn run(program: &'static str, arguments: &[&str], input: &str) -> Result<(), RulesError> {
    let output = output(program, arguments, input).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => RulesError::Missing(program),
        io::ErrorKind::PermissionDenied => RulesError::Permission,
        _ => failed(program, arguments, &error.to_string()),
    })?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    if said.contains("Operation not permitted") {
        return Err(RulesError::Permission);
    }
    Err(failed(program, arguments, said.trim()))
}

fn failed(program: &str, arguments: &[&str], said: &str) -> RulesError {
    RulesError::Failed { command: format!("{program} {}", arguments.join(" ")), said: said.into() }
}

fn output(program: &str, arguments: &[&str], input: &str) -> io::Result<Output> {
    // Users' PATHs often lack the folders that hold both programs.
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    let mut child = Command::new(program)
        .args(arguments)
        .env("PATH", path)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        // A program that stops reading says why on its way out.
        let _ = stdin.write_all(input.as_bytes());
    }
    child.wait_with_output()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mark_is_written_one_way() {
        assert_eq!(rule()[1], format!("{MARK:#x}"));
        assert_eq!((rule()[3], rule()[5]), (&*MARK.to_string(), &*MARK.to_string()));
    }

    #[test]
    fn the_script_names_the_interfaces() {
        let none = Leads { udp: false, others: false };
        let text = script(1081, &["eth1", "wlan0.2"], false, none);
        assert!(!text.contains("log group"), "{text}");
        assert!(text.contains("iifname != { \"eth1\", \"wlan0.2\" } return"), "{text}");
        assert!(!text.contains("tproxy ip6") && !text.contains("l4proto udp tproxy"), "{text}");
        let all = script(1081, &["eth1"], true, Leads { udp: true, others: true });
        assert_eq!(all.matches("log group 25200 drop").count(), 1, "{all}");
        assert_eq!(all.matches("l4proto udp tproxy").count(), 2, "{all}");
        assert_eq!(all.matches("l4proto tcp tproxy").count(), 2, "{all}");
    }
}

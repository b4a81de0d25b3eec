//! Descriptors: the limits of flows, queries and pages that fit into the process's limit.
//!
//! | entry | descriptors |
//! |---|---|
//! | TCP flow | 2: its connection, and another attempt while it connects |
//! | flow of UDP, ICMP echo or another protocol | 1 |
//! | page of Split HTTP | 1 for each fetch at once |
//! | pending DNS query | 3: a socket for each name server |
//!
//! Queries keep at least a quarter of the descriptors, however many flows there may be.

use bentpipe_config::GroundConfig;
use bentpipe_net::descriptors::{self, Pool};

use crate::fleet::FlowLimits;
use crate::names::{DESCRIPTORS_OF_QUERY, MAX_ASKED};

/// Divisor for the part of the descriptors that DNS may use.
const DNS_PART: usize = 4;

/// Limits that fit.
#[derive(Debug, Clone)]
pub struct Fitted {
    /// Flows of all aircraft.
    pub flows: FlowLimits,
    /// Pending DNS queries of all aircraft.
    pub questions: usize,
    /// Pages at once.
    pub pages: usize,
    /// Warning, if a limit is lower than configured.
    pub shortage: Option<String>,
}

impl Fitted {
    /// Limits of `config` for a process that may open `limit` descriptors.
    pub fn of(config: &GroundConfig, limit: usize) -> Self {
        let open = limit - descriptors::reserved(limit);
        let asked = Pool { name: "DNS queries", most: MAX_ASKED, each: DESCRIPTORS_OF_QUERY };
        let [questions] = descriptors::fit([asked], open / DNS_PART);
        let open = open - questions.most * questions.each;
        let (limits, pages) = (&config.limits, config.split_http.as_ref());
        let wanted = [
            Pool { name: "limits.max-flows", most: limits.max_flows, each: 2 },
            Pool { name: "limits.udp.max-flows", most: limits.udp.max_flows, each: 1 },
            Pool { name: "limits.ip.max-flows", most: limits.ip.max_flows, each: 1 },
            Pool {
                name: "split-http.pages",
                most: pages.map_or(0, |pages| pages.pages.get()),
                each: pages.map_or(0, |pages| pages.concurrency.get()),
            },
        ];
        let fitted = descriptors::fit(wanted, open);
        let [streams, datagrams, ip, pages] = fitted.map(|pool| pool.most);
        let all = |of: [Pool; 4], first| [first, of[0], of[1], of[2], of[3]];
        Self {
            flows: FlowLimits { streams, datagrams, ip },
            questions: questions.most,
            pages,
            shortage: descriptors::shortage(&all(wanted, asked), &all(fitted, questions), limit),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// Limits of the default configuration with `limit` descriptors.
    fn fitted(limit: usize) -> Fitted {
        let folder = tempfile::tempdir().unwrap();
        let key = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
        std::fs::write(folder.path().join("g.key"), key).unwrap();
        let text = "[link]\nprivate-key-file = \"g.key\"\nlisten = \"127.0.0.1:0\"\n";
        let file = folder.path().join(Path::new("ground.toml"));
        Fitted::of(&GroundConfig::parse(&file, text).unwrap(), limit)
    }

    #[test]
    fn all_limits_together_leave_the_reserve() {
        for limit in [64, 256, 1_024, 4_096, 65_536, 524_288] {
            let Fitted { flows, questions, pages, shortage } = fitted(limit);
            let FlowLimits { streams, datagrams, ip } = flows;
            let open = 2 * streams + datagrams + ip + 3 * questions;
            assert!(open <= limit - descriptors::reserved(limit), "{limit}: {open}");
            assert!(streams > 0 && datagrams > 0 && ip > 0 && questions > 0, "{limit}");
            assert_eq!((pages, shortage.is_some()), (0, limit < 524_288), "{limit}");
        }
    }

    #[test]
    fn a_lowered_limit_says_what_to_do() {
        let shortage = fitted(1_024).shortage.unwrap();
        for part in ["limits.max-flows 134 instead of 65536", "DNS queries 42", "LimitNOFILE="] {
            assert!(shortage.contains(part), "{shortage}");
        }
    }
}

//! Bound on the new source addresses of one device.
//!
//! The rules cannot recognise an invented address inside the cabin's own subnet. The kernel looks
//! for each as a neighbour before it answers, and its table of neighbours has room for
//! `gc_thresh3` of them. So each hardware address may use only a few new sources a second. Packets
//! from sources beyond that are dropped; sources in use are not affected.
//!
//! The rules apply to interfaces with Ethernet headers. On others, sources need no neighbour.

use netlink_packet_netfilter::nftables::{
    Expressions, SetAttribute, SetDescription, SetFlags, SetMessage,
};

use super::terms::TABLE;
use super::words;

/// New sources of one device per second.
pub const NEW_PER_SECOND: u64 = 8;

/// Burst of new sources of one device. A router has as many as the devices behind it: with 300, the
/// last appears after 22 s.
const BURST: u32 = 128;

/// Time for which the kernel looks for an invented source: it repeats the answer to a handshake 5
/// times, and looks for 3 s each time.
const LOOKED_FOR_SECONDS: u64 = 15;

/// Entries that one device can occupy with invented sources: 8 × 15 + 128 = 248 of 1,024.
pub const ENTRIES_OF_INVENTED: u64 = NEW_PER_SECOND * LOOKED_FOR_SECONDS + BURST as u64;

/// Time for which an idle source is remembered.
const SOURCE_MS: u64 = 300_000;

/// Time for which an idle device is remembered: longer than its burst takes to refill, which is
/// 128 / 8 = 16 s.
const DEVICE_MS: u64 = 60_000;

/// Maximum number of remembered sources of each family: 65,536 × about 128 bytes = 8 MiB. Beyond
/// that, each packet of a further source counts as a new source. Filling the set takes 26 invented
/// hardware addresses; five fill the kernel's table itself, which shuts newcomers out altogether.
const MAX_SOURCES: u32 = 65_536;

/// Maximum number of remembered devices: 8,192 × about 256 bytes = 2 MiB. Devices beyond that are
/// not limited; only invented hardware addresses are as many.
const MAX_DEVICES: u32 = 8_192;

/// Data types of nft, for `nft list` (`enum datatypes`, with `TYPE_BITS` for each part).
const TYPE_IPV4: u32 = 7;
const TYPE_IPV6: u32 = 8;
const TYPE_ETHER: u32 = 9;
const TYPE_BITS: u32 = 6;

/// Bytes of a hardware address in a key, which consists of 32-bit words.
const ETHER_BYTES: u32 = 8;

const DEVICES: &str = "devices";

/// Sources of one address family.
struct Sources {
    family: u8,
    set: &'static str,
    data_type: u32,
    bytes: u32,
}

const FAMILIES: [Sources; 2] = [
    Sources { family: words::IPV4, set: "sources4", data_type: TYPE_IPV4, bytes: 4 },
    Sources { family: words::IPV6, set: "sources6", data_type: TYPE_IPV6, bytes: 16 },
];

/// Sets that the rules use.
pub fn sets() -> Vec<SetMessage> {
    let of_sources = FAMILIES.iter().map(|it| Set {
        name: it.set,
        key_type: TYPE_ETHER << TYPE_BITS | it.data_type,
        key_bytes: ETHER_BYTES + it.bytes,
        most: MAX_SOURCES,
        timeout_ms: SOURCE_MS,
    });
    let of_devices = Set {
        name: DEVICES,
        key_type: TYPE_ETHER,
        // The length of the address itself: only parts of a longer key are padded.
        key_bytes: 6,
        most: MAX_DEVICES,
        timeout_ms: DEVICE_MS,
    };
    of_sources.chain([of_devices]).zip(1..).map(|(set, id)| set.message(id)).collect()
}

struct Set {
    name: &'static str,
    key_type: u32,
    key_bytes: u32,
    most: u32,
    timeout_ms: u64,
}

impl Set {
    fn message(&self, id: u32) -> SetMessage {
        let attributes = vec![
            SetAttribute::Table(TABLE.into()),
            SetAttribute::Name(self.name.into()),
            SetAttribute::Flags(SetFlags::Timeout | SetFlags::Eval),
            SetAttribute::KeyType(self.key_type),
            SetAttribute::KeyLen(self.key_bytes),
            SetAttribute::Id(id),
            SetAttribute::Timeout(self.timeout_ms),
            SetAttribute::Description(vec![SetDescription::Size(self.most)]),
        ];
        SetMessage { attributes }
    }
}

/// Rules of the chain: sources in use return, those beyond the rate are dropped, and the others are
/// remembered.
pub fn rules() -> Vec<Vec<Expressions>> {
    let key = |it: &Sources| {
        let key = [words::family(it.family), words::hardware_source()];
        [key.concat(), words::source_after_hardware(it.family)].concat()
    };
    let known = FAMILIES.iter().map(|it| {
        let refreshed = vec![words::is_in(it.set), words::refresh(it.set, SOURCE_MS)];
        [key(it), refreshed, vec![words::leave()]].concat()
    });
    let beyond = vec![
        words::beyond_rate(DEVICES, DEVICE_MS, (NEW_PER_SECOND, BURST)),
        words::count(),
        words::discard(),
    ];
    let limited = [words::hardware_source(), beyond].concat();
    let new = FAMILIES.iter().map(|it| [key(it), vec![words::refresh(it.set, SOURCE_MS)]].concat());
    known.chain([limited]).chain(new).collect()
}

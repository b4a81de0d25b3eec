//! Frames of a TUN device with the virtio-net header, and their segments.
//!
//! A kernel hands over a burst of one flow as a single frame of up to 64 KiB. The network card
//! (here: the link) has to divide it into packets. The link model sees every packet. The frame is
//! passed on undivided only if all its packets cross at once. Layout: `struct virtio_net_hdr`
//! (virtio 1.2, 5.1.6).

/// Bytes of header before the IP packet in every frame.
pub const HEADER_BYTES: usize = 10;

/// The largest frame: the header and the largest IP packet.
pub const FRAME_BYTES: usize = HEADER_BYTES + 65_535;

const NEEDS_CHECKSUM: u8 = 1;
const GSO_NONE: u8 = 0;
const GSO_TCP4: u8 = 1;
const GSO_TCP6: u8 = 4;
const GSO_UDP: u8 = 5;
const GSO_ECN: u8 = 0x80;

const TCP_FLAGS: usize = 13;
const TCP_CWR: u8 = 0x80;
const TCP_FIN_PSH: u8 = 0x09;

/// Division of a frame into packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segments {
    /// Bytes of IP and transport header, repeated in every packet.
    header_bytes: usize,
    /// Payload bytes in every packet except the last.
    payload_bytes: usize,
    /// Offset of the transport header.
    transport: usize,
    /// Offset of the checksum in the transport header.
    checksum: usize,
    tcp: bool,
    frame_bytes: usize,
}

impl Segments {
    /// Reads the division of `frame` into packets. Returns `None` if the frame is a single packet.
    pub fn of(frame: &[u8]) -> Option<Self> {
        let (header, packet) = frame.split_at_checked(HEADER_BYTES)?;
        let field = |at: usize| usize::from(u16::from_le_bytes([header[at], header[at + 1]]));
        let tcp = match header[1] & !GSO_ECN {
            GSO_TCP4 | GSO_TCP6 => true,
            GSO_UDP => false,
            _ => return None,
        };
        // The header's own length field counts the bytes that happen to be linear in the kernel's
        // memory.
        let transport = field(6);
        let header_bytes = if tcp {
            transport + usize::from(packet.get(transport + 12)? >> 4) * 4
        } else {
            transport + 8
        };
        let payload_bytes = field(4);
        let cut = payload_bytes > 0 && header_bytes < packet.len() && transport >= 20;
        cut.then_some(Self {
            header_bytes,
            payload_bytes,
            transport,
            checksum: field(8),
            tcp,
            frame_bytes: packet.len(),
        })
    }

    /// Number of packets.
    pub fn count(&self) -> usize {
        (self.frame_bytes - self.header_bytes).div_ceil(self.payload_bytes)
    }

    /// IP bytes of packet `index`.
    pub fn packet_bytes(&self, index: usize) -> usize {
        let before = self.header_bytes + index * self.payload_bytes;
        self.header_bytes + self.payload_bytes.min(self.frame_bytes - before)
    }

    /// Writes packet `index` of `frame` into `out` as a separate frame.
    ///
    /// Its transport checksum stays partial, as the sending kernel left it.
    pub fn cut(&self, frame: &[u8], index: usize, out: &mut Vec<u8>) {
        let packet = &frame[HEADER_BYTES..];
        let from = self.header_bytes + index * self.payload_bytes;
        let bytes = self.packet_bytes(index);
        out.clear();
        out.extend_from_slice(&[NEEDS_CHECKSUM, GSO_NONE, 0, 0, 0, 0]);
        out.extend_from_slice(&frame[6..HEADER_BYTES]);
        out.extend_from_slice(&packet[..self.header_bytes]);
        out.extend_from_slice(&packet[from..from + bytes - self.header_bytes]);

        let ip = &mut out[HEADER_BYTES..];
        let pseudo = if ip[0] >> 4 == 4 {
            set_u16(ip, 2, bytes as u16);
            let id = u16::from_be_bytes([ip[4], ip[5]]).wrapping_add(index as u16);
            set_u16(ip, 4, id);
            set_u16(ip, 10, 0);
            let sum = fold(sum(&ip[..self.transport]));
            set_u16(ip, 10, !sum);
            sum32(&ip[12..20], ip[9], bytes - self.transport)
        } else {
            set_u16(ip, 4, (bytes - 40) as u16);
            let protocol = if self.tcp { 6 } else { 17 };
            sum32(&ip[8..40], protocol, bytes - self.transport)
        };
        let last = index + 1 == self.count();
        let transport = &mut ip[self.transport..];
        if self.tcp {
            let seq = u32::from_be_bytes([transport[4], transport[5], transport[6], transport[7]]);
            let seq = seq.wrapping_add((index * self.payload_bytes) as u32);
            transport[4..8].copy_from_slice(&seq.to_be_bytes());
            let keep_cwr = if index == 0 { 0xff } else { !TCP_CWR };
            let keep_end = if last { 0xff } else { !TCP_FIN_PSH };
            transport[TCP_FLAGS] &= keep_cwr & keep_end;
        } else {
            let length = transport.len() as u16;
            set_u16(transport, 4, length);
        }
        set_u16(transport, self.checksum, fold(pseudo));
    }
}

fn set_u16(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

/// Sum of the pseudo-header (RFC 9293, 3.1; RFC 8200, 8.1).
fn sum32(addresses: &[u8], protocol: u8, length: usize) -> u32 {
    sum(addresses) + u32::from(protocol) + length as u32
}

fn sum(bytes: &[u8]) -> u32 {
    let (pairs, rest) = bytes.as_chunks::<2>();
    let even: u32 = pairs.iter().map(|pair| u32::from(u16::from_be_bytes(*pair))).sum();
    even + rest.first().map_or(0, |last| u32::from(*last) << 8)
}

fn fold(mut sum: u32) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A TCP/IPv4 frame with 2,500 payload bytes and a segment size of 1,000.
    fn tcp4() -> Vec<u8> {
        let mut frame = vec![NEEDS_CHECKSUM, GSO_TCP4, 40, 0, 232, 3, 20, 0, 16, 0];
        let mut packet = vec![0u8; 40 + 2500];
        packet[0] = 0x45;
        packet[5] = 7;
        packet[9] = 6;
        packet[12..20].copy_from_slice(&[198, 18, 1, 2, 198, 18, 3, 2]);
        packet[24..28].copy_from_slice(&u32::MAX.to_be_bytes());
        packet[32] = 5 << 4;
        packet[33] = TCP_CWR | TCP_FIN_PSH | 0x10;
        for (at, byte) in packet[40..].iter_mut().enumerate() {
            *byte = (at / 1000) as u8 + 1;
        }
        frame.extend(packet);
        frame
    }

    #[test]
    fn a_frame_is_cut_into_the_packets_the_card_would_have_sent() {
        let frame = tcp4();
        let segments = Segments::of(&frame).expect("a frame to be cut");
        assert_eq!(segments.count(), 3);
        let mut out = Vec::new();
        let expected = [(1040, 0x80 | 0x10, u32::MAX), (1040, 0x10, 999), (540, 0x19, 1999)];
        for (index, (bytes, flags, seq)) in expected.into_iter().enumerate() {
            assert_eq!(segments.packet_bytes(index), bytes);
            segments.cut(&frame, index, &mut out);
            assert_eq!(Segments::of(&out), None);
            let ip = &out[HEADER_BYTES..];
            assert_eq!(ip.len(), bytes);
            assert_eq!(usize::from(u16::from_be_bytes([ip[2], ip[3]])), bytes);
            assert_eq!(fold(sum(&ip[..20])), 0xffff, "the IPv4 header's checksum");
            assert_eq!(ip[5], 7 + index as u8);
            assert_eq!(ip[24..28], seq.to_be_bytes());
            assert_eq!(ip[33], flags);
            assert!(ip[40..].iter().all(|byte| *byte == index as u8 + 1));
        }
    }

    #[test]
    fn a_frame_that_promises_too_much_is_one_packet() {
        let mut frame = tcp4();
        frame[4..6].copy_from_slice(&[0, 0]);
        assert_eq!(Segments::of(&frame), None);
        assert_eq!(Segments::of(&tcp4()[..HEADER_BYTES + 30]), None);
        assert_eq!(Segments::of(&[]), None);
    }
}

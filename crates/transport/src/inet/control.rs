//! Control messages: segment sizes of UDP, congestion marks.

use landfall_placement::Ecn;

/// Room for the control messages of one call: the segment size and the traffic
/// class, and as much again, so that none is ever cut off.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Control([u8; Self::LEN]);

/// What the kernel said about a receive.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Received {
    /// The length of each unit, if there are several (UDP_GRO).
    pub(crate) unit_len: Option<usize>,
    pub(crate) ecn: Ecn,
}

impl Control {
    pub(crate) const LEN: usize = 128;

    pub(crate) const fn empty() -> Self {
        Self([0; Self::LEN])
    }

    pub(crate) fn as_mut_ptr(&mut self) -> *mut libc::c_void {
        self.0.as_mut_ptr().cast()
    }

    /// Writes what a send needs and gives the length of it; zero for nothing.
    pub(crate) fn for_send(&mut self, unit_len: Option<u16>, ecn: Ecn, ipv6: bool) -> usize {
        let mut len = 0;
        if let Some(unit_len) = unit_len {
            len += self.append(len, libc::SOL_UDP, libc::UDP_SEGMENT, &unit_len.to_ne_bytes());
        }
        if ecn != Ecn::NotCapable {
            let class = libc::c_int::from(ecn as u8).to_ne_bytes();
            let (level, kind) = if ipv6 {
                (libc::IPPROTO_IPV6, libc::IPV6_TCLASS)
            } else {
                (libc::IPPROTO_IP, libc::IP_TOS)
            };
            len += self.append(len, level, kind, &class);
        }
        len
    }

    fn append(&mut self, at: usize, level: i32, kind: i32, data: &[u8]) -> usize {
        // A header is a length, a level and a type; data follows aligned to a word.
        const HEADER: usize = size_of::<libc::cmsghdr>();
        let word = size_of::<usize>();
        let space = HEADER + data.len().next_multiple_of(word);
        let into = &mut self.0[at..at + space];
        into.fill(0);
        into[..word].copy_from_slice(&(HEADER + data.len()).to_ne_bytes());
        into[word..word + 4].copy_from_slice(&level.to_ne_bytes());
        into[word + 4..HEADER].copy_from_slice(&kind.to_ne_bytes());
        into[HEADER..HEADER + data.len()].copy_from_slice(data);
        space
    }

    /// Reads what the kernel said in the first `len` bytes.
    pub(crate) fn received(&self, len: usize) -> Received {
        const HEADER: usize = size_of::<libc::cmsghdr>();
        let word = size_of::<usize>();
        let mut received = Received::default();
        let mut rest = &self.0[..len.min(Self::LEN)];
        while let Some((header, _)) = rest.split_at_checked(HEADER) {
            let int = |at: usize| {
                let bytes = header[at..at + 4].try_into().unwrap_or_default();
                i32::from_ne_bytes(bytes)
            };
            let total = usize::from_ne_bytes(header[..word].try_into().unwrap_or_default());
            let Some(data) = rest.get(HEADER..total) else { break };
            match (int(word), int(word + 4), data) {
                (libc::SOL_UDP, libc::UDP_GRO, [a, b, c, d, ..]) => {
                    let size = i32::from_ne_bytes([*a, *b, *c, *d]);
                    received.unit_len = usize::try_from(size).ok().filter(|size| *size > 0);
                }
                (libc::IPPROTO_IP, libc::IP_TOS, [class, ..])
                | (libc::IPPROTO_IPV6, libc::IPV6_TCLASS, [class, ..]) => {
                    received.ecn = Ecn::from_bits(*class);
                }
                _ => {}
            }
            rest = rest.get(total.next_multiple_of(word)..).unwrap_or_default();
        }
        received
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_can_be_read() {
        let mut control = Control::empty();
        assert_eq!(control.for_send(None, Ecn::NotCapable, false), 0);
        let len = control.for_send(None, Ecn::CongestionExperienced, false);
        assert_eq!(control.received(len).ecn, Ecn::CongestionExperienced);
        let len = control.append(0, libc::SOL_UDP, libc::UDP_GRO, &1064i32.to_ne_bytes());
        let more = control.append(len, libc::IPPROTO_IPV6, libc::IPV6_TCLASS, &2i32.to_ne_bytes());
        let received = control.received(len + more);
        assert_eq!((received.unit_len, received.ecn), (Some(1064), Ecn::Capable0));
    }

    #[test]
    fn cut_and_senseless_messages_are_passed_over() {
        let mut control = Control::empty();
        let len = control.append(0, libc::SOL_UDP, libc::UDP_GRO, &1064i32.to_ne_bytes());
        for cut in 0..len - 4 {
            assert_eq!(control.received(cut).unit_len, None, "{cut}");
        }
        control.0[..8].copy_from_slice(&usize::MAX.to_ne_bytes());
        assert_eq!(control.received(len).unit_len, None);
        control.0[..8].copy_from_slice(&0usize.to_ne_bytes());
        assert_eq!(control.received(len).unit_len, None);
    }
}

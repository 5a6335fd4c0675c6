//! The first segment of a connection says how long the others may be that come back
//! (RFC 9293, 3.7.1). Where TCP is to fit into the frames of the link below, it is told that
//! link's length, as routers do it.
//!
//! Only what leaves is changed: how long the segments of the other end are is for this one to say,
//! and the length of ours for the other.

use landfall_inet::{ethernet, ipv4, ipv6, protocol, tcp};

const END: u8 = 0;
const NOTHING: u8 = 1;
const MSS: u8 = 2;
const MSS_LEN: usize = 4;

/// Lowers the option in a frame whose first bytes these are to what fits into packets of
/// `mtu` bytes. Returns whether it was lowered; a finished checksum is right again if it was, and
/// an unfinished one does not know of it.
pub(super) fn lower(head: &mut [u8], mtu: u16, is_finished: bool) -> bool {
    let Some((start, headers)) = segment_of(head) else { return false };
    let Some(segment) = head.get_mut(start..) else { return false };
    let Some((header, _)) = segment.split_first_chunk::<{ tcp::LEN }>() else { return false };
    let header = tcp::Header::view(header);
    let len = header.header_len();
    if !header.flags.contains(tcp::Flags::SYN) || len < tcp::LEN || segment.len() < len {
        return false;
    }
    let most = mtu.saturating_sub(headers + tcp::LEN as u16);
    let Some(at) = option_of(&segment[..len]) else { return false };
    let told = u16::from_be_bytes([segment[at], segment[at + 1]]);
    if told <= most {
        return false;
    }
    if !is_finished {
        segment[at..at + 2].copy_from_slice(&most.to_be_bytes());
        return true;
    }
    // An option may begin anywhere: the words of the sum that it lies in are at most two.
    let words = at & !1..(at + 2).next_multiple_of(2);
    let before = words_of(&segment[words.clone()]);
    segment[at..at + 2].copy_from_slice(&most.to_be_bytes());
    let after = words_of(&segment[words]);
    let sum = usize::from(tcp::SUM_OFFSET);
    let old = u16::from_be_bytes([segment[sum], segment[sum + 1]]);
    segment[sum..sum + 2].copy_from_slice(&replaced(old, before, after).to_be_bytes());
    true
}

/// Where the TCP header of a whole packet begins, and how long the header of IP is that others
/// of the connection have.
fn segment_of(head: &[u8]) -> Option<(usize, u16)> {
    let (link, network) = ethernet::read(head).ok()?;
    let (protocol, len, usual) = match link.ethertype.get() {
        ethernet::IPV4 => {
            let (header, len) = ipv4::read(network).ok()?;
            (header.protocol, len, (!header.is_fragment()).then_some(ipv4::LEN)?)
        }
        ethernet::IPV6 => (ipv6::read(network).ok()?.next_header, ipv6::LEN, ipv6::LEN),
        _ => return None,
    };
    (protocol == protocol::TCP).then_some((ethernet::LEN + len, usual as u16))
}

/// Where the value of the option is in a header of TCP.
fn option_of(header: &[u8]) -> Option<usize> {
    let mut at = tcp::LEN;
    while let Some(&kind) = header.get(at) {
        let len = match kind {
            END => return None,
            NOTHING => 1,
            _ => usize::from(*header.get(at + 1)?).max(2),
        };
        if kind == MSS {
            return (len == MSS_LEN && header.len() >= at + len).then_some(at + 2);
        }
        at += len;
    }
    None
}

/// The sum of some words, not folded.
fn words_of(bytes: &[u8]) -> u32 {
    bytes.as_chunks::<2>().0.iter().map(|word| u32::from(u16::from_be_bytes(*word))).sum()
}

/// A checksum of which some words were replaced (RFC 1624, equation 3).
const fn replaced(sum: u16, before: u32, after: u32) -> u16 {
    // At most two words were added: their complement is counted as often.
    let mut all = !sum as u32 + (2 * 0xffff - before) + after;
    while all > 0xffff {
        all = (all & 0xffff) + (all >> 16);
    }
    !(all as u16)
}

#[cfg(test)]
mod tests {
    use landfall_inet::checksum;
    use landfall_placement::InternetSum;
    use proptest::prelude::*;

    use super::*;

    /// The first segment of a connection with these options, its checksum finished.
    fn syn(is_ipv4: bool, options: &[u8]) -> Vec<u8> {
        let len = tcp::LEN + options.len().next_multiple_of(4);
        let mut segment = vec![0; len];
        segment[..12].copy_from_slice(&[0x80, 1, 0x1b, 0x58, 9, 8, 7, 6, 0, 0, 0, 0]);
        (segment[12], segment[13], segment[14]) = ((len / 4 * 16) as u8, 2, 0xfa);
        segment[tcp::LEN..][..options.len()].copy_from_slice(options);
        let mut frame = vec![2; 12];
        if is_ipv4 {
            frame.extend([8, 0, 0x45, 0, 0, (20 + len) as u8, 0, 1, 0x40, 0, 64, 6, 0, 0]);
            frame.extend([10, 9, 0, 1, 10, 9, 0, 2]);
        } else {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, len as u8, 6, 64]);
            frame.extend([0xfd; 16]);
            frame.extend([0xfc; 16]);
        }
        let start = frame.len();
        frame.extend(segment);
        let sum = sum_of(&frame, start);
        frame[start + 16..start + 18].copy_from_slice(&sum.to_be_bytes());
        frame
    }

    /// The checksum of what is there: zero if it has the right one.
    fn sum_of(frame: &[u8], start: usize) -> u16 {
        let (protocol, len) = (protocol::TCP, (frame.len() - start) as u32);
        let pair = |at: usize, each: usize| -> [std::net::IpAddr; 2] {
            [at, at + each].map(|at| match each {
                4 => <[u8; 4]>::try_from(&frame[at..at + 4]).unwrap().into(),
                _ => <[u8; 16]>::try_from(&frame[at..at + 16]).unwrap().into(),
            })
        };
        let [from, to] = if start == 34 { pair(26, 4) } else { pair(22, 16) };
        let mut sum: InternetSum = checksum::pseudo_header(from, to, protocol);
        sum.add_word(len as u16);
        sum.add(&frame[start..]);
        sum.checksum()
    }

    #[test]
    fn what_is_announced_fits_the_link() {
        for (is_ipv4, start, fits) in [(true, 34, 1460_u16), (false, 54, 1440)] {
            for before in 0..5 {
                let mss = [2, 4, 0x22, 0xd8];
                let options = [&[NOTHING; 5][..before], &mss, &[4, 2, 3, 3, 7]].concat();
                let mut frame = syn(is_ipv4, &options);
                assert_eq!(sum_of(&frame, start), 0);
                assert!(lower(&mut frame, 1500, true));
                let at = start + tcp::LEN + before + 2;
                assert_eq!(frame[at..at + 2], fits.to_be_bytes());
                assert_eq!(sum_of(&frame, start), 0, "{before}");
                assert!(!lower(&mut frame, 1500, true), "once is enough");
                let mut unfinished = syn(is_ipv4, &options);
                let sum = unfinished[start + 16..start + 18].to_vec();
                assert!(lower(&mut unfinished, 1500, false));
                assert_eq!(unfinished[at..at + 2], fits.to_be_bytes());
                assert_eq!(unfinished[start + 16..start + 18], sum);
            }
        }
    }

    #[test]
    fn others_stay_as_they_are() {
        let mss = [2, 4, 0x22, 0xd8];
        let good = syn(true, &mss);
        let mut others = vec![syn(true, &[]), syn(true, &[END, 2, 4, 0x22]), syn(true, &[2, 3, 9])];
        others.push(syn(true, &[2, 4, 5, 0xb4]));
        // An acknowledgement, a datagram, a fragment, and a frame that is cut.
        for (at, byte) in [(47, 0x10), (23, 17), (21, 1), (46, 0x40), (13, 6)] {
            let mut other = good.clone();
            other[at] = byte;
            others.push(other);
        }
        others.extend((0..good.len()).map(|len| good[..len].to_vec()));
        for other in others {
            let mut frame = other.clone();
            assert!(!lower(&mut frame, 1500, true), "{other:02x?}");
            assert_eq!(frame, other);
        }
    }

    proptest! {
        #[test]
        fn no_frame_is_too_strange(
            mut frame in proptest::collection::vec(any::<u8>(), 0..200),
            is_ipv4: bool,
            options in proptest::collection::vec(any::<u8>(), 0..40),
            mtu: u16,
        ) {
            lower(&mut frame, mtu, true);
            let (mut frame, start) = (syn(is_ipv4, &options), if is_ipv4 { 34 } else { 54 });
            lower(&mut frame, mtu, true);
            // 0 and 0xffff are the same sum.
            prop_assert_eq!(sum_of(&frame, start), 0);
        }
    }
}

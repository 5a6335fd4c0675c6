//! Where the counters of a connection lie in its file, for those who only look.

use std::mem::offset_of;

use landfall_socket_status::CounterPlaces;

use crate::segment::{Direction, Header, MAGIC, PAGE, Receiving, Sending};

/// The places, as the file of each process says them.
pub(super) const fn counter_places() -> CounterPlaces {
    const DIRECTIONS: usize = 2 * PAGE + offset_of!(Header, directions);
    const SENDING: usize = DIRECTIONS + offset_of!(Direction, sending);
    const RECEIVING: usize = DIRECTIONS + offset_of!(Direction, receiving);
    CounterPlaces {
        magic: MAGIC,
        magic_at: (2 * PAGE + offset_of!(Header, magic)) as u32,
        sent_by_tcp: (SENDING + offset_of!(Sending, by_tcp)) as u32,
        put: (SENDING + offset_of!(Sending, head)) as u32,
        taken_by_tcp: (RECEIVING + offset_of!(Receiving, by_tcp)) as u32,
        taken: (RECEIVING + offset_of!(Receiving, tail)) as u32,
        stride: size_of::<Direction>() as u32,
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::FileExt;
    use std::sync::atomic::Ordering;

    use super::*;
    use crate::segment::tests::{name, scratch_file};
    use crate::segment::{CAPACITY, Role, Segment};

    #[test]
    fn counters_lie_in_the_file_where_it_is_said() {
        let file = scratch_file();
        let segment =
            Segment::create(file.as_raw_fd(), &name(1), Role::Connector, CAPACITY).unwrap();
        let places = counter_places();
        let read = |at: u32| {
            let mut word = [0; 8];
            file.read_exact_at(&mut word, at.into()).unwrap();
            u64::from_ne_bytes(word)
        };
        assert_eq!(read(places.magic_at), places.magic);
        for (role, from) in [(Role::Connector, 0), (Role::Acceptor, places.stride)] {
            let direction = segment.direction_from(role);
            for (counter, place) in [
                (&direction.sending.by_tcp, places.sent_by_tcp),
                (&direction.sending.head, places.put),
                (&direction.receiving.by_tcp, places.taken_by_tcp),
                (&direction.receiving.tail, places.taken),
            ] {
                let number = u64::from(place + from);
                counter.store(number, Ordering::Relaxed);
                assert_eq!(read(place + from), number);
            }
        }
    }
}

//! Delivery without a copy: by moving pages, and by loan. Where it is told which
//! physical page lies where, that needs root.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use landfall_placement::{Random, Span};
use landfall_testbed::{privileges, skip_unless};
use landfall_transport::memory::{AccessError, Pins, Regions, Rights};
use landfall_transport::remap::{
    DeliverError, Delivered, Delivery, FastBuffers, Landing, Pages, PagesError, Remapping,
};

/// Two pages of 4 KiB each, as of a lead and a page.
const BUFFER: u32 = 8192;
const PAGE: u32 = 4096;

fn pages(regions: &Regions, buffers: u32) -> Pages {
    Pages::new(regions, buffers, BUFFER).unwrap()
}

/// The second half of a buffer.
fn body(pages: &Pages, buffer: u32) -> Span {
    pages.area().span(u64::from(buffer * BUFFER + PAGE), PAGE)
}

/// What is written there, by buffer and round.
fn contents(buffer: u32, round: u32) -> Vec<u8> {
    (0..PAGE).map(|at| (at ^ (at >> 8) ^ (buffer * 7) ^ (round * 31)) as u8).collect()
}

fn fill(regions: &Regions, pages: &Pages, buffer: u32, round: u32) -> Span {
    let span = body(pages, buffer);
    regions.write(&span, &contents(buffer, round)).unwrap();
    span
}

fn both(pages: &Pages) -> [Box<dyn Delivery>; 2] {
    [Box::new(Remapping::new(pages, 4).unwrap()), Box::new(FastBuffers::new(pages))]
}

fn all_returned(delivery: &mut dyn Delivery) -> Vec<Span> {
    std::iter::from_fn(|| delivery.poll_returned()).collect()
}

/// Which physical page lies at an address (`Documentation/admin-guide/mm/pagemap.rst`).
fn frame_at(address: *const u8) -> Option<u64> {
    let mut entry = [0; 8];
    let map = File::open("/proc/self/pagemap").unwrap();
    map.read_exact_at(&mut entry, address as u64 / u64::from(PAGE) * 8).unwrap();
    let entry = u64::from_ne_bytes(entry);
    let (present, frame) = (entry >> 63 == 1, entry & ((1 << 55) - 1));
    (present && frame != 0).then_some(frame)
}

/// Which physical page a span of the region lies in.
fn frame_of(regions: &Regions, span: &Span) -> Option<u64> {
    let pinned = regions.pin(span.region).unwrap();
    frame_at(pinned.resolve(span, Rights::READ).unwrap().ptr.as_ptr())
}

fn why_no_frames() -> Option<String> {
    if privileges::is_root() { None } else { Some("needs root to see physical pages".into()) }
}

#[test]
fn the_page_itself_moves_and_comes_back_when_it_was_read() {
    skip_unless!(why_no_frames());
    let regions = Regions::new(2);
    let pages = pages(&regions, 4);
    let mut delivery = Remapping::new(&pages, 2).unwrap();
    let span = fill(&regions, &pages, 2, 0);
    let first = frame_of(&regions, &span).expect("written, so it is there");
    let delivered = delivery.deliver(span).unwrap();
    assert_eq!(frame_at(delivered.as_ptr()), Some(first));
    assert_eq!(frame_of(&regions, &span), None, "the buffer has no page");
    assert_eq!(&delivered[..], contents(2, 0));
    // The buffer gets a page of its own when it is written.
    fill(&regions, &pages, 2, 1);
    let second = frame_of(&regions, &span).unwrap();
    assert_ne!(first, second);
    drop(delivered);
    let delivered = delivery.deliver(span).unwrap();
    assert_eq!((frame_at(delivered.as_ptr()), &delivered[..]), (Some(second), &contents(2, 1)[..]));
    assert_eq!(frame_of(&regions, &span), Some(first), "it came back");
    let told = delivery.counters();
    assert_eq!((told.delivered, told.bytes_copied, told.move_calls), (2, 0, 3));
}

#[test]
fn a_landing_gets_the_page_itself_where_it_wants_it() {
    skip_unless!(why_no_frames());
    let regions = Regions::new(2);
    let pages = pages(&regions, 8);
    let mut landing = Landing::reserve(8 * PAGE as usize).unwrap();
    let mut frames = Vec::new();
    for (nth, buffer) in [5, 0, 3, 1].into_iter().enumerate() {
        let span = fill(&regions, &pages, buffer, 0);
        frames.push(frame_of(&regions, &span).unwrap());
        let at = landing.take_in(&pages, span, nth * PAGE as usize).unwrap();
        assert_eq!(at, nth * PAGE as usize..(nth + 1) * PAGE as usize);
    }
    let at = |nth: usize| frame_at(landing[nth * PAGE as usize..].as_ptr()).unwrap();
    assert_eq!((0..4).map(at).collect::<Vec<_>>(), frames);
    let expected: Vec<u8> = [5, 0, 3, 1].into_iter().flat_map(|b| contents(b, 0)).collect();
    assert_eq!(landing[..expected.len()], expected);
    assert_eq!(landing.counters().bytes_copied, 0);
}

#[test]
fn a_landing_is_the_applications_to_write_and_to_forget() {
    let regions = Regions::new(2);
    let pages = pages(&regions, 2);
    let mut landing = Landing::reserve(3 * PAGE as usize).unwrap();
    let span = fill(&regions, &pages, 0, 0);
    landing.take_in(&pages, span, PAGE as usize).unwrap();
    landing[PAGE as usize] ^= 0xff;
    assert_eq!(landing[PAGE as usize], !contents(0, 0)[0]);
    // What comes to the same place is there instead.
    let span = fill(&regions, &pages, 1, 3);
    assert_eq!(landing.take_in(&pages, span, PAGE as usize).unwrap().len(), PAGE as usize);
    assert_eq!(landing[PAGE as usize..2 * PAGE as usize], contents(1, 3));
    landing.forget(1..2 * PAGE as usize + 1);
    assert!(landing.iter().all(|byte| *byte == 0));
    landing.forget(usize::MAX..usize::MAX);
    let short = pages.area().span(u64::from(PAGE), 10);
    regions.write(&short, &[9; 10]).unwrap();
    assert_eq!(landing.take_in(&pages, short, 0).unwrap(), 0..10);
    assert_eq!(landing[..10], [9; 10]);
    let (span, unaligned) = (body(&pages, 0), pages.area().span(5, 5));
    for (body, at) in [(span, 5), (span, 3 * PAGE as usize), (span, usize::MAX), (unaligned, 0)] {
        let error = landing.take_in(&pages, body, at).unwrap_err();
        assert!(matches!(error, DeliverError::BadPlace { .. }), "{error}");
    }
    let pinned = regions.pin(span.region).unwrap();
    assert!(matches!(landing.take_in(&pages, span, 0), Err(DeliverError::InUse(_))));
    drop(pinned);
    landing.take_in(&pages, span, 0).unwrap();
}

#[test]
fn neighbours_move_with_one_call_and_come_back_with_another() {
    let regions = Regions::new(2);
    let pages = pages(&regions, 256);
    let mut delivery = Remapping::new(&pages, Remapping::BANKS).unwrap();
    let lines = || fs::read_to_string("/proc/self/maps").unwrap().lines().count();
    let mut at_first = 0;
    for round in 0..50 {
        // In any order: as an engine takes what was returned last first.
        let mut buffers: Vec<u32> = (0..256).collect();
        buffers.rotate_left(round as usize % 256);
        let spans: Vec<_> =
            buffers.iter().map(|buffer| fill(&regions, &pages, *buffer, round)).collect();
        let before = delivery.counters();
        let mut delivered = Vec::new();
        delivery.deliver_all(&spans, &mut delivered).unwrap();
        let calls = delivery.counters().move_calls - before.move_calls;
        assert_eq!(calls, if round == 0 { 1 } else { 2 }, "round {round}");
        for (bytes, buffer) in delivered.iter().zip(&buffers) {
            assert_eq!(&bytes[..], contents(*buffer, round), "{buffer} in round {round}");
        }
        assert_eq!(all_returned(&mut delivery), spans);
        at_first = if round < 4 { lines() } else { at_first };
    }
    assert_eq!(delivery.counters().bytes_copied, 0);
    // Other tests map memory meanwhile, but not by the hundred.
    assert!(
        lines() < at_first + 300,
        "the address space falls into pieces: {at_first}, {}",
        lines()
    );
}

#[test]
fn invariant_1_delivered_bytes_stay_as_they_are_whatever_comes() {
    let regions = Regions::new(2);
    for nth in 0..2 {
        let pages = pages(&regions, 16);
        let mut delivery = both(&pages).into_iter().nth(nth).unwrap();
        let mut random = Random::from_number(nth as u64);
        let mut below = |bound: usize| random.below(bound as u64) as u32;
        let mut kept: Vec<(Delivered, Vec<u8>)> = Vec::new();
        let mut free: Vec<u32> = (0..16).collect();
        let mut pins = Pins::new(&regions);
        for round in 0..2000 {
            free.extend(all_returned(&mut *delivery).iter().map(|s| s.offset as u32 / BUFFER));
            let count = below(free.len() + 1) as usize;
            let taken: Vec<u32> = free.split_off(free.len() - count);
            let mut spans = Vec::new();
            for buffer in &taken {
                let (from, len) = (below(PAGE as usize), below(PAGE as usize) + 1);
                let at = u64::from(buffer * BUFFER + from);
                let span = pages.area().span(at, len);
                let bytes = contents(*buffer, round)[..len as usize].to_vec();
                pins.copy_in(&span, &bytes).unwrap();
                spans.push((span, bytes));
            }
            pins.release();
            let mut delivered = Vec::new();
            let list: Vec<Span> = spans.iter().map(|(span, _)| *span).collect();
            match delivery.deliver_all(&list, &mut delivered) {
                Ok(()) => {
                    assert_eq!(delivered.len(), spans.len());
                    kept.extend(delivered.into_iter().zip(spans.into_iter().map(|(_, b)| b)));
                }
                Err(DeliverError::Full(_)) => free.extend(taken),
                Err(error) => panic!("{error}"),
            }
            while kept.len() > below(30) as usize {
                let (delivered, bytes) = kept.swap_remove(below(kept.len()) as usize);
                assert_eq!(&delivered[..], bytes, "round {round}");
            }
        }
        assert!(delivery.counters().delivered > 1000);
        assert_eq!(delivery.counters().bytes_copied, 0);
    }
}

#[test]
fn a_buffer_on_loan_is_not_written_until_it_was_read() {
    let regions = Regions::new(2);
    let pages = pages(&regions, 4);
    let mut delivery = FastBuffers::new(&pages);
    let span = fill(&regions, &pages, 1, 0);
    let delivered = delivery.deliver(span).unwrap();
    assert_eq!((delivery.poll_returned(), &delivered[..]), (None, &contents(1, 0)[..]));
    // Any byte of the buffer; the neighbours are nobody's.
    let lead = pages.area().span(u64::from(BUFFER), 1);
    assert_eq!(regions.write(&lead, &[1]), Err(AccessError::OnLoan(lead)));
    fill(&regions, &pages, 0, 1);
    fill(&regions, &pages, 2, 1);
    let mut bytes = vec![0; PAGE as usize];
    regions.read(&span, &mut bytes).unwrap();
    assert_eq!(&delivered[..], bytes);
    assert!(matches!(delivery.deliver(span), Err(DeliverError::Twice(_))));
    drop(delivered);
    assert_eq!((delivery.poll_returned(), delivery.poll_returned()), (Some(span), None));
    fill(&regions, &pages, 1, 2);
    let counted = delivery.counters();
    assert_eq!((counted.delivered, counted.move_calls, counted.bytes_copied), (1, 0, 0));
}

#[test]
fn pages_are_not_moved_away_under_who_reads_them() {
    let regions = Regions::new(2);
    let pages = pages(&regions, 2);
    let mut landing = Landing::reserve(PAGE as usize).unwrap();
    let [mut remapping, mut lending] = both(&pages);
    let (other, span) = (fill(&regions, &pages, 0, 0), fill(&regions, &pages, 1, 0));
    let delivered = lending.deliver(span).unwrap();
    let mut none = Vec::new();
    let refused = remapping.deliver_all(&[other, span], &mut none);
    assert!(matches!(refused, Err(DeliverError::Twice(at)) if at == span) && none.is_empty());
    assert!(matches!(landing.take_in(&pages, span, 0), Err(DeliverError::Twice(_))));
    assert_eq!(&delivered[..], contents(1, 0));
    drop(delivered);
    assert_eq!(&remapping.deliver(span).unwrap()[..], contents(1, 0));
}

#[test]
fn what_cannot_be_delivered_changes_nothing() {
    let regions = Regions::new(4);
    let (pages, other) = (pages(&regions, 4), pages(&regions, 4));
    for mut delivery in both(&pages) {
        let good = fill(&regions, &pages, 0, 0);
        let mut none = Vec::new();
        let mut refused = |spans: &[Span]| {
            let error = delivery.deliver_all(spans, &mut none).unwrap_err();
            assert!(none.is_empty() && delivery.poll_returned().is_none(), "{error}");
            assert_eq!(delivery.counters().delivered, 0);
            error
        };
        let access = |error| matches!(error, DeliverError::Access(_));
        assert!(access(refused(&[good, body(&other, 0)])), "of another region");
        assert!(access(refused(&[good, pages.area().span(u64::from(4 * BUFFER) - 1, 2)])));
        assert!(access(refused(&[pages.area().span(u64::MAX, 2)])));
        let two = pages.area().span(u64::from(BUFFER) - 1, 2);
        assert!(matches!(refused(&[good, two]), DeliverError::NotOneBuffer(_)));
        assert!(matches!(refused(&[good, good]), DeliverError::Twice(_)));
        let pinned = regions.pin(good.region).unwrap();
        assert!(matches!(refused(&[good]), DeliverError::InUse(_)));
        drop(pinned);
        delivery.deliver_all(&[], &mut none).unwrap();
        // And now it works.
        assert_eq!(&delivery.deliver(good).unwrap()[..], contents(0, 0));
    }
}

#[test]
fn who_keeps_packets_from_all_banks_is_told() {
    let regions = Regions::new(2);
    let pages = pages(&regions, 2);
    let mut delivery = Remapping::new(&pages, 2).unwrap();
    let mut keep: Vec<_> =
        (0..2).map(|round| delivery.deliver(fill(&regions, &pages, 0, round)).unwrap()).collect();
    let span = fill(&regions, &pages, 0, 2);
    let full = delivery.deliver(span).unwrap_err();
    assert!(matches!(full, DeliverError::Full(_)) && full.to_string().contains("drop"));
    assert_eq!(std::io::Error::from(full).kind(), ErrorKind::WouldBlock);
    assert_eq!((&keep[0][..], &keep[1][..]), (&contents(0, 0)[..], &contents(0, 1)[..]));
    keep.remove(0);
    assert_eq!(&delivery.deliver(span).unwrap()[..], contents(0, 2));
    assert_eq!(&keep[0][..], contents(0, 1));
    assert!(Remapping::new(&pages, 0).is_err() && Remapping::new(&pages, usize::MAX).is_err());
}

#[test]
fn guards_outlive_their_delivery_and_its_pages() {
    let regions = Regions::new(2);
    for nth in 0..2 {
        let pages = pages(&regions, 2);
        let region = pages.area().region;
        let mut delivery = both(&pages).into_iter().nth(nth).unwrap();
        let delivered = delivery.deliver(fill(&regions, &pages, 1, 7)).unwrap();
        drop((delivery, pages));
        assert!(regions.pin(region).is_err(), "the grant has ended");
        let reader = thread::spawn(move || assert_eq!(&delivered[..], contents(1, 7)));
        reader.join().unwrap();
    }
    assert_eq!(regions.held(), 0);
}

#[test]
fn drivers_that_write_meanwhile_never_write_what_was_delivered() {
    let regions = Regions::new(2);
    for nth in 0..2 {
        let pages = pages(&regions, 4);
        let mut delivery = both(&pages).into_iter().nth(nth).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let (flag, table, there) = (Arc::clone(&stop), regions.clone(), pages.clone());
        // It writes all buffers all the time, each with one byte everywhere.
        let writer = thread::spawn(move || {
            let mut pins = Pins::new(&table);
            let mut round = 0u8;
            while !flag.load(Ordering::Relaxed) {
                round = round.wrapping_add(1);
                for buffer in 0..4 {
                    // On loan it is refused.
                    let _ = pins.copy_in(&body(&there, buffer), &[round; PAGE as usize]);
                }
                pins.release();
                thread::yield_now();
            }
        });
        let mut delivered = 0;
        let mut tries = 0;
        while delivered < 200 && tries < 5_000_000 {
            tries += 1;
            match delivery.deliver(body(&pages, tries % 4)) {
                Ok(bytes) => {
                    let first = bytes[0];
                    for _ in 0..3 {
                        assert!(bytes.iter().all(|byte| *byte == first));
                        thread::yield_now();
                    }
                    delivered += 1;
                }
                Err(DeliverError::InUse(_)) => thread::yield_now(),
                Err(error) => panic!("{error}"),
            }
            while delivery.poll_returned().is_some() {}
        }
        stop.store(true, Ordering::Relaxed);
        writer.join().unwrap();
        assert!(delivered > 0, "it never found a moment");
    }
}

#[test]
fn pages_that_cannot_be_are_refused() {
    let regions = Regions::new(1);
    for (buffers, len) in [(0, BUFFER), (1, 0), (1, 100), (4, PAGE + 1), (u32::MAX, 1 << 30)] {
        let error = Pages::new(&regions, buffers, len).unwrap_err();
        assert!(matches!(error, PagesError::BadGeometry { .. }), "{error}");
    }
    let kept = pages(&regions, 1);
    assert!(matches!(Pages::new(&regions, 1, BUFFER), Err(PagesError::NotLent(_))));
    drop(kept);
    assert_eq!(pages(&regions, 3).buffers(), 3);
}

/// Where it is set a child of this program has little address space.
const SCARCE: &str = "LANDFALL_SCARCE_ADDRESSES";

/// The kernel takes away what is at a place before it finds out that it may not put other
/// pages there. What the application reads stays mapped all the while, and so do the
/// buffers; the packets come by a copy.
#[test]
fn where_the_kernel_moves_nothing_packets_are_copied_and_no_hole_is_left() {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "remap_rules::the_child_without_addresses", "--nocapture"]);
    child.env(SCARCE, "1").stdin(Stdio::null());
    let done = child.output().unwrap();
    let said = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success() && said.contains("1 passed"), "{}: {said}", done.status);
}

#[test]
fn the_child_without_addresses() {
    if std::env::var_os(SCARCE).is_none() {
        return;
    }
    const LEN: usize = 64 << 20;
    let regions = Regions::new(4);
    let pages = Pages::new(&regions, (LEN / BUFFER as usize) as u32, BUFFER).unwrap();
    let mut delivery = Remapping::new(&pages, 2).unwrap();
    let mut landing = Landing::reserve(LEN).unwrap();
    landing.fill(7);
    (0..8).for_each(|buffer| _ = fill(&regions, &pages, buffer, 1));
    leave_no_addresses(LEN);

    // More than an allocator keeps at hand, from the heap or anywhere.
    assert!(Landing::reserve(LEN).is_err(), "the limit is there");
    let whole = pages.area().span(0, 2 * BUFFER);
    assert!(landing.take_in(&pages, whole, 0).is_err(), "not of one buffer");
    let landed = landing.take_in(&pages, body(&pages, 0), 4 * BUFFER as usize).unwrap();
    assert_eq!(landing[landed.clone()], contents(0, 1));
    assert_eq!(landing.counters().bytes_copied, u64::from(PAGE));
    let around = landing[..landed.start].iter().chain(&landing[landed.end..]);
    assert!(around.into_iter().all(|byte| *byte == 7), "all else is as it was");

    let bodies: Vec<_> = (1..8).map(|buffer| body(&pages, buffer)).collect();
    let mut delivered = Vec::new();
    delivery.deliver_all(&bodies, &mut delivered).unwrap();
    for (buffer, packet) in (1..).zip(&delivered) {
        assert_eq!(packet[..], contents(buffer, 1), "buffer {buffer}");
    }
    // The buffers are there, and take the next packets.
    (0..8).for_each(|buffer| _ = fill(&regions, &pages, buffer, 2));
    let mut read = vec![0; PAGE as usize];
    regions.read(&body(&pages, 3), &mut read).unwrap();
    assert_eq!(read, contents(3, 2));
    assert_eq!(delivered[2][..], contents(3, 1), "and what was delivered stays");
}

/// From now on the process has a little less address space than it has mapped.
fn leave_no_addresses(less: usize) {
    let told = fs::read_to_string("/proc/self/statm").unwrap();
    let mapped: u64 = told.split(' ').next().unwrap().parse().unwrap();
    let most = mapped * u64::from(PAGE) - less as u64 / 2;
    let limit = libc::rlimit { rlim_cur: most, rlim_max: most };
    // SAFETY: the limit lives through the call.
    let done = unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const limit) };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
}

//! A driver that does everything at the worst moment.

use clan_dsm::{
    Access, Action, Config, Event, HostId, LinkId, Nic, Notice, PortAddress, Rights, Source,
    WindowId,
};
use landfall_placement::{
    Area, Ecn, Engine, Instant, Landing, PathId, PathLimits, PathState, Peer, Placement, Refusal,
    RegionId, Spans, Ticket, Unit, WordFunction, WordWidth,
};

const PATH: PathId = PathId(0);
const NOW: Instant = Instant::from_millis(1);

fn nic(number: u16) -> Nic {
    let mut nic =
        Nic::new(Config::default(), HostId::new(number).unwrap(), [number as u8; 32]).unwrap();
    nic.handle_path(NOW, PATH, PathState::Up(PathLimits::plain(1500)));
    nic
}

/// The next frame, whose payload must be in its head.
fn frame(nic: &mut Nic) -> Option<Vec<u8>> {
    let (mut head, mut from) = ([0; 256], Spans::new());
    let transmit = nic.poll_transmit(NOW, PATH, &mut head, &mut from)?;
    nic.handle_sent(NOW, transmit.ticket);
    assert_eq!(from.total_len(), 0);
    Some(head[..usize::from(transmit.head_len)].to_vec())
}

fn place(nic: &mut Nic, from: u32, bytes: &[u8]) -> Result<Placement, Refusal> {
    let (from, len) = (Peer::Node(from), bytes.len() as u32);
    let unit = Unit {
        path: PATH,
        from,
        head: bytes,
        len,
        segment: None,
        ecn: Ecn::NotCapable,
        verified: false,
    };
    nic.place(NOW, &unit, &mut Spans::new())
}

fn ticket(placed: Result<Placement, Refusal>) -> Ticket {
    match placed {
        Ok(Placement::Into { ticket, .. }) => ticket,
        other => panic!("{other:?}"),
    }
}

/// Lets both sides say all that they have to say.
fn talk(nics: &mut [Nic; 2]) {
    for _ in 0..10 {
        for side in 0..2 {
            while let Some(bytes) = frame(&mut nics[side]) {
                if let Ok(Placement::Into { ticket, .. }) =
                    place(&mut nics[1 - side], side as u32, &bytes)
                {
                    nics[1 - side].handle_placed(NOW, ticket, Landing::Verified);
                }
            }
        }
    }
}

fn open(nics: &mut [Nic; 2]) -> LinkId {
    nics[0].open_link(NOW, PATH, Peer::Node(1)).unwrap();
    talk(nics);
    nics[1].link_to(nics[0].host()).expect("the link is up")
}

/// Two frames of writes, the first and the second.
fn two_frames(nics: &mut [Nic; 2], window: WindowId) -> [Vec<u8>; 2] {
    [0, 64].map(|at| {
        nics[0].write_word(NOW, window, at, 7).unwrap();
        frame(&mut nics[0]).unwrap()
    })
}

fn pair() -> ([Nic; 2], WindowId, LinkId) {
    let mut nics = [nic(1), nic(2)];
    let link = open(&mut nics);
    let aperture = nics[1].expose(Area::new(RegionId::new(0, 0), 0, 4096)).unwrap();
    let cookie = nics[1].cookie(aperture, Rights::Write).unwrap();
    let window = nics[0].map(&cookie).unwrap();
    (nics, window, link)
}

/// The second frame waits at side 1 for the first, then is to be written.
fn deposit(nics: &mut [Nic; 2], window: WindowId) -> Option<Ticket> {
    let [first, second] = two_frames(nics, window);
    assert_eq!(place(&mut nics[1], 0, &second), Ok(Placement::Consumed), "it is kept");
    assert!(nics[1].poll_deposit(NOW, &mut Spans::new()).is_none(), "not its turn");
    let first = ticket(place(&mut nics[1], 0, &first));
    assert!(nics[1].poll_deposit(NOW, &mut Spans::new()).is_none(), "not yet");
    nics[1].handle_placed(NOW, first, Landing::Verified);
    let mut into = Spans::new();
    let deposit = nics[1].poll_deposit(NOW, &mut into)?;
    assert_eq!(deposit.bytes, 7_u64.to_le_bytes());
    assert_eq!(into.as_slice(), [RegionId::new(0, 0).span(64, 8)]);
    Some(deposit.ticket)
}

#[test]
fn invariant_7_a_deposit_whose_link_is_gone_holds_nobody_up() {
    let (mut nics, window, link) = pair();
    let written = deposit(&mut nics, window).unwrap();
    nics[1].close_link(NOW, link).unwrap();
    talk(&mut nics);
    nics[1].handle_placed(NOW, written, Landing::Verified);
    nics[1].handle_placed(NOW, written, Landing::Verified);
    assert!(nics[1].poll_deposit(NOW, &mut Spans::new()).is_none());
    open(&mut nics);
    assert!(deposit(&mut nics, window).is_some());
}

/// The owner of memory that is gone cannot send for a while. Of what it refuses meanwhile it
/// tells as much as may wait over a link; when that has been heard, it tells again.
#[test]
fn exceptions_are_not_told_more_often_than_anybody_listens() {
    const MAY_WAIT: usize = 16;
    let mut nics = [nic(1), nic(2)];
    open(&mut nics);
    let aperture = nics[1].expose(Area::new(RegionId::new(0, 0), 0, 4096)).unwrap();
    let cookie = nics[1].cookie(aperture, Rights::Write).unwrap();
    let window = nics[0].map(&cookie).unwrap();
    nics[1].revoke(aperture).unwrap();
    for (writes, told) in [(40, MAY_WAIT), (3, 3)] {
        let refused = nics[1].stats().refused;
        for n in 0..writes {
            // Not neighbours: each is a packet of its own.
            nics[0].write_word(NOW, window, 16 * n, 7).unwrap();
            let bytes = frame(&mut nics[0]).expect("a frame for each");
            assert_eq!(place(&mut nics[1], 0, &bytes), Ok(Placement::Consumed));
            assert!(nics[1].poll_deposit(NOW, &mut Spans::new()).is_none(), "it goes nowhere");
        }
        assert_eq!(nics[1].stats().refused - refused, writes);
        talk(&mut nics);
        let heard = std::iter::from_fn(|| nics[0].poll_event());
        let exceptions = heard.filter(|event| matches!(event, Event::Exception { .. })).count();
        assert_eq!(exceptions, told, "{writes} writes were refused");
    }
}

#[test]
fn a_frame_that_comes_while_the_one_before_it_is_deposited_waits() {
    let (mut nics, window, _) = pair();
    let written = deposit(&mut nics, window).unwrap();
    nics[0].write_word(NOW, window, 128, 7).unwrap();
    let third = frame(&mut nics[0]).unwrap();
    assert_eq!(place(&mut nics[1], 0, &third), Ok(Placement::Consumed));
    nics[1].handle_placed(NOW, written, Landing::Verified);
    let mut into = Spans::new();
    let next = nics[1].poll_deposit(NOW, &mut into).map(|deposit| deposit.ticket);
    assert_eq!(into.as_slice(), [RegionId::new(0, 0).span(128, 8)]);
    nics[1].handle_placed(NOW, next.unwrap(), Landing::Verified);
    assert!(nics[1].poll_deposit(NOW, &mut Spans::new()).is_none());
}

/// What a neighbour within the host had told of is gone before it was copied.
#[test]
fn a_payload_that_was_lost_on_its_way_comes_again() {
    let (mut nics, window, _) = pair();
    let [first, second] = two_frames(&mut nics, window);
    nics.iter_mut().for_each(|nic| drop(events(nic)));
    for lost in [false, true] {
        // Where a frame behind it was kept, and where none was.
        if lost {
            assert_eq!(place(&mut nics[1], 0, &second), Ok(Placement::Consumed), "it is kept");
        }
        let gone = ticket(place(&mut nics[1], 0, &first));
        nics[1].handle_placed(NOW, gone, Landing::Corrupt);
        nics[1].handle_placed(NOW, gone, Landing::Verified);
        assert!(nics[1].poll_deposit(NOW, &mut Spans::new()).is_none(), "its turn is not over");
        assert_eq!(events(&mut nics[1]), [], "nobody hears of it");
    }
    let again = ticket(place(&mut nics[1], 0, &first));
    nics[1].handle_placed(NOW, again, Landing::Verified);
    let deposit = nics[1].poll_deposit(NOW, &mut Spans::new()).map(|deposit| deposit.ticket);
    nics[1].handle_placed(NOW, deposit.expect("the second is next"), Landing::Verified);
    assert_eq!(place(&mut nics[1], 0, &first), Err(Refusal::Duplicate), "each once");
    assert_eq!(place(&mut nics[1], 0, &second), Err(Refusal::Duplicate));
    talk(&mut nics);
    let complaint = |event: &Event| matches!(event, Event::Exception { .. });
    assert!(!events(&mut nics[0]).iter().any(complaint));
}

#[test]
fn invariant_7_tickets_of_a_link_that_is_gone_do_nothing() {
    let (mut nics, window, link) = pair();
    let [first, _] = two_frames(&mut nics, window);
    let under_way = ticket(place(&mut nics[1], 0, &first));
    nics[1].close_link(NOW, link).unwrap();
    talk(&mut nics);
    open(&mut nics);
    nics[1].handle_placed(NOW, under_way, Landing::Verified);
    let [first, _] = two_frames(&mut nics, window);
    let under_way = ticket(place(&mut nics[1], 0, &first));
    nics[1].handle_placed(NOW, under_way, Landing::Verified);
    let downs = std::iter::from_fn(|| nics[1].poll_event());
    assert_eq!(downs.filter(|event| matches!(event, Event::LinkDown { .. })).count(), 1);
}

/// A driver takes a batch: a write, and behind it the word that the link is over.
#[test]
fn invariant_2_what_came_before_the_end_is_told_of_though_the_end_is_known_first() {
    let (mut nics, window, _) = pair();
    let aperture = nics[1].expose(Area::new(RegionId::new(0, 0), 4096, 64)).unwrap();
    let cookie = nics[1].cookie(aperture, Rights::Write).unwrap();
    let watched = nics[0].map(&cookie).unwrap();
    let tripwire = nics[1].watch(aperture, 0..8, Access::Write, Action::Event, false).unwrap();
    nics[1].register(Source::Tripwire(tripwire));
    let link = nics[0].link_of(window).unwrap();
    nics[0].write_word(NOW, watched, 0, 7).unwrap();
    let written = frame(&mut nics[0]).unwrap();
    nics[0].close_link(NOW, link).unwrap();
    let bye = frame(&mut nics[0]).unwrap();

    let under_way = ticket(place(&mut nics[1], 0, &written));
    assert_eq!(place(&mut nics[1], 0, &bye), Ok(Placement::Consumed));
    let answers: Vec<_> = std::iter::from_fn(|| frame(&mut nics[1])).collect();
    nics[1].handle_placed(NOW, under_way, Landing::Verified);
    for answer in answers {
        assert_eq!(place(&mut nics[0], 1, &answer), Ok(Placement::Consumed));
    }
    let events: Vec<_> = std::iter::from_fn(|| nics[1].poll_event()).collect();
    assert!(events.contains(&Event::Tripwire { tripwire }), "{events:?}");
    assert!(events.iter().any(|event| matches!(event, Event::LinkDown { .. })), "{events:?}");
    // The place of the link is free again.
    talk(&mut nics);
    open(&mut nics);
}

/// Side 1 has heard all that it takes for a link; side 0 has yet to hear that it did.
fn half_open() -> [Nic; 2] {
    let mut nics = [nic(1), nic(2)];
    nics[0].open_link(NOW, PATH, Peer::Node(1)).unwrap();
    for from in [0, 1, 0] {
        let hello = frame(&mut nics[from]).unwrap();
        assert_eq!(place(&mut nics[1 - from], from as u32, &hello), Ok(Placement::Consumed));
    }
    let hosts = nics.each_ref().map(Nic::host);
    assert!(nics[1].link_to(hosts[0]).is_some() && nics[0].link_to(hosts[1]).is_none());
    nics
}

/// A window of side 1 onto memory of side 0.
fn window_back(nics: &mut [Nic; 2]) -> WindowId {
    let aperture = nics[0].expose(Area::new(RegionId::new(0, 0), 0, 4096)).unwrap();
    let cookie = nics[0].cookie(aperture, Rights::ReadWrite).unwrap();
    nics[1].map(&cookie).unwrap()
}

/// All that side 1 has to say goes to side 0, with `word` for what a word held.
fn hear(nics: &mut [Nic; 2], word: u64) {
    while let Some(bytes) = frame(&mut nics[1]) {
        match place(&mut nics[0], 1, &bytes) {
            Ok(Placement::Word(_, ticket)) => {
                nics[0].handle_placed(NOW, ticket, Landing::Old(word));
            }
            placed => assert_eq!(placed, Ok(Placement::Consumed)),
        }
    }
}

fn events(nic: &mut Nic) -> Vec<Event> {
    std::iter::from_fn(|| nic.poll_event()).collect()
}

#[test]
fn a_read_in_the_first_frame_of_a_link_is_answered() {
    let mut nics = half_open();
    let window = window_back(&mut nics);
    nics[1].read(NOW, window, 64, Area::new(RegionId::new(7, 0), 0, 8)).unwrap();
    hear(&mut nics, 0);
    assert_eq!(nics[0].refusals().total(), 0, "{:?}", nics[0].refusals());
    let (mut head, mut served) = ([0; 256], Spans::new());
    while served.is_empty() {
        let transmit = nics[0].poll_transmit(NOW, PATH, &mut head, &mut served);
        assert!(transmit.is_some(), "the read is answered from memory");
    }
    assert_eq!(served.as_slice(), [RegionId::new(0, 0).span(64, 8)]);
}

#[test]
fn what_else_the_first_frames_of_a_link_ask_is_done() {
    let mut nics = half_open();
    let window = window_back(&mut nics);
    let (here, there) =
        (nics[1].open_endpoint(None).unwrap(), nics[0].open_endpoint(None).unwrap());
    let to = PortAddress { host: nics[0].host(), port: nics[0].port(there).unwrap() };
    nics[1].send_to(here, to, [9; 40]).unwrap();
    let add = WordFunction::Add(1);
    let operation = nics[1].change(NOW, window, 0, WordWidth::Eight, add).unwrap();
    hear(&mut nics, 41);
    talk(&mut nics);
    let said = nics[0].poll_notice(there);
    assert!(matches!(said, Some(Notice::Message { body, .. }) if body == [9; 40]), "{said:?}");
    let heard = events(&mut nics[0]);
    assert!(matches!(heard[0], Event::LinkUp { .. }), "the link comes first: {heard:?}");
    let answers = events(&mut nics[1]);
    assert!(answers.contains(&Event::Word { operation, result: Ok(41) }), "{answers:?}");
}

/// A read waits for its answer, and a write is on its way to its place, when the link
/// ends and the same host comes back.
#[test]
fn invariant_7_a_new_link_takes_nothing_from_an_old_one_that_is_still_in_use() {
    let (mut nics, window, link) = pair();
    let back = window_back(&mut nics);
    let read = nics[1].read(NOW, back, 0, Area::new(RegionId::new(7, 0), 0, 8)).unwrap();
    while frame(&mut nics[1]).is_some() {} // It is lost.
    nics[0].write_word(NOW, window, 0, 7).unwrap();
    let written = frame(&mut nics[0]).unwrap();
    let under_way = ticket(place(&mut nics[1], 0, &written));
    nics[1].close_link(NOW, link).unwrap();
    talk(&mut nics);
    let next = open(&mut nics);
    let is_over = |event: &Event| matches!(event, Event::Read { read: over, .. } if *over == read);
    assert!(!events(&mut nics[1]).iter().any(is_over), "a driver may still be writing");
    nics[1].handle_placed(NOW, under_way, Landing::Verified);
    let told = events(&mut nics[1]);
    assert_eq!(told.iter().filter(|event| is_over(event)).count(), 1, "{told:?}");
    assert_eq!(nics[1].links().map(|(link, _)| link).collect::<Vec<_>>(), [next]);
    nics[1].close_link(NOW, next).unwrap();
    talk(&mut nics);
    assert!(!events(&mut nics[1]).iter().any(is_over), "it ends once");
}

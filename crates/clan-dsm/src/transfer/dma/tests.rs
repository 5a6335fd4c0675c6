//! The queues beside a model that keeps each chain as a list of bytes to move.

use super::*;
use landfall_placement::RegionId;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::vec::Vec;

const LIMIT: usize = 6;
const TURN: u32 = 64;

fn endpoint(index: u32, generation: u32) -> EndpointId {
    EndpointId::new(index, generation)
}

fn window() -> WindowId {
    WindowId::new(1, 0)
}

fn write(offset: u64, len: u64) -> DmaRequest {
    DmaRequest::Write { from: Area::new(RegionId::default(), 1000, len), window: window(), offset }
}

fn read(offset: u64, len: u64) -> DmaRequest {
    DmaRequest::Read { window: window(), offset, into: Area::new(RegionId::default(), 1000, len) }
}

fn word(offset: u64) -> DmaRequest {
    DmaRequest::Word { window: window(), offset: offset / 8 * 8, value: offset }
}

/// A chain as it was given, and what became of it.
struct Chain {
    endpoint: u32,
    link: u32,
    /// What is to be handed out yet.
    left: VecDeque<DmaRequest>,
    out: u32,
    reads_out: bool,
    result: Result<(), Ended>,
}

impl Chain {
    /// Takes the piece off what is left; says whether it was what comes next.
    fn hand_out(&mut self, action: Action, max: u32) -> bool {
        let Some(first) = self.left.pop_front() else { return false };
        let (expected, len) = match (first, action) {
            (DmaRequest::Write { from, window, offset }, Action::Write { from: part, .. }) => {
                let len = part.len;
                let rest = DmaRequest::Write {
                    from: Area::new(
                        from.region,
                        from.offset + u64::from(len),
                        from.len - u64::from(len),
                    ),
                    window,
                    offset: offset + u64::from(len),
                };
                if from.len > u64::from(len) {
                    self.left.push_front(rest);
                }
                (Action::Write { from: from.span(0, len), window, offset }, len.min(max))
            }
            (DmaRequest::Read { window, offset, into }, Action::Read { into: part, .. }) => {
                let len = part.len;
                let rest = DmaRequest::Read {
                    window,
                    offset: offset + u64::from(len),
                    into: Area::new(
                        into.region,
                        into.offset + u64::from(len),
                        into.len - u64::from(len),
                    ),
                };
                if into.len > u64::from(len) {
                    self.left.push_front(rest);
                }
                (Action::Read { window, offset, into: into.span(0, len) }, len)
            }
            (DmaRequest::Word { window, offset, value }, _) => {
                (Action::Word { window, offset, value }, 8)
            }
            _ => return false,
        };
        let was_blocked = self.reads_out && !matches!(action, Action::Read { .. });
        self.out += 1;
        self.reads_out |= matches!(action, Action::Read { .. });
        expected == action && len > 0 && len == length(&action) && !was_blocked
    }
}

fn length(action: &Action) -> u32 {
    match action {
        Action::Write { from: span, .. } | Action::Read { into: span, .. } => span.len,
        Action::Word { .. } => 8,
    }
}

#[derive(Clone, Debug)]
enum Step {
    Submit { endpoint: u32, link: u32, chain: Vec<DmaRequest> },
    Next { link: u32, max: u32, may_read: bool },
    Done { which: prop::sample::Index, fails: bool },
    Cancel(u32),
    Gone(u32),
}

fn request() -> impl Strategy<Value = DmaRequest> {
    (0u8..4, 0u64..40, 1u64..200).prop_map(|(kind, offset, len)| match kind {
        0 | 1 => write(offset, len),
        2 => read(offset, len),
        _ => word(offset),
    })
}

fn step() -> impl Strategy<Value = Step> {
    let chain = prop::collection::vec(request(), 1..4);
    prop_oneof![
        3 => (0u32..3, 0u32..2, chain).prop_map(|(endpoint, link, chain)| Step::Submit { endpoint, link, chain }),
        8 => (0u32..2, 8u32..100, any::<bool>()).prop_map(|(link, max, may_read)| Step::Next { link, max, may_read }),
        6 => (any::<prop::sample::Index>(), prop::bool::weighted(0.05)).prop_map(|(which, fails)| Step::Done { which, fails }),
        1 => (0u32..3).prop_map(Step::Cancel),
        1 => (0u32..2).prop_map(Step::Gone),
    ]
}

/// All chains that are not done, in the order in which they were given.
#[derive(Default)]
struct Model {
    chains: BTreeMap<u64, Chain>,
    order: Vec<DmaId>,
    pieces: Vec<DmaId>,
}

impl Model {
    fn chain(&mut self, dma: DmaId) -> &mut Chain {
        self.chains.get_mut(&dma.raw()).expect("a chain that exists")
    }

    /// The chain of an endpoint that is handed out next.
    fn head(&self, endpoint: u32) -> Option<DmaId> {
        let is_head = |dma: &&DmaId| {
            self.chains
                .get(&dma.raw())
                .is_some_and(|c| c.endpoint == endpoint && !c.left.is_empty())
        };
        self.order.iter().find(is_head).copied()
    }

    /// Could anything be handed out on this link?
    fn has_work(&self, link: u32, may_read: bool) -> bool {
        (0..3).filter_map(|endpoint| self.head(endpoint)).any(|dma| {
            let chain = &self.chains[&dma.raw()];
            let is_read = matches!(chain.left[0], DmaRequest::Read { .. });
            chain.link == link && if is_read { may_read } else { !chain.reads_out }
        })
    }

    fn stop(&mut self, is_meant: impl Fn(&Chain) -> bool, why: Ended) {
        for chain in self.chains.values_mut().filter(|chain| is_meant(chain)) {
            chain.left.clear();
            chain.result = chain.result.and(Err(why));
        }
    }

    /// Chains that are done, with their results.
    fn take_done(&mut self) -> BTreeMap<u64, Result<(), Ended>> {
        let is_done = |chain: &Chain| chain.left.is_empty() && chain.out == 0;
        let done = self.chains.iter().filter(|(_, chain)| is_done(chain));
        let done: BTreeMap<_, _> = done.map(|(dma, chain)| (*dma, chain.result)).collect();
        self.chains.retain(|_, chain| !is_done(chain));
        self.order.retain(|dma| !done.contains_key(&dma.raw()));
        done
    }
}

proptest! {
    /// Pieces come in the order of their queue and cover each request exactly; a
    /// write behind a read waits; a chain is done once, when all its pieces are
    /// back; what is refused for want of room is refused at the bound.
    #[test]
    fn dma_chains_are_carried_out_as_given(steps in prop::collection::vec(step(), 0..250)) {
        let mut dma = Dma::new(3, LIMIT, TURN);
        let mut is_awake = [false; 2];
        let mut model = Model::default();
        let mut requests = [0usize; 3];
        let mut counts = BTreeMap::new();
        for step in steps {
            match step {
                Step::Submit { endpoint: index, link, chain } => {
                    let result = dma.submit(endpoint(index, 0), link, &chain);
                    let fits = requests[index as usize] + chain.len() <= LIMIT;
                    prop_assert_eq!(result.is_ok(), fits, "{:?}", result);
                    if let Ok(id) = result {
                        requests[index as usize] += chain.len();
                        counts.insert(id.raw(), (index, chain.len()));
                        let (left, result) = (chain.into(), Ok(()));
                        let chain = Chain { endpoint: index, link, left, out: 0, reads_out: false, result };
                        model.chains.insert(id.raw(), chain);
                        model.order.push(id);
                    }
                }
                Step::Next { link, max, may_read } => {
                    let has_work = model.has_work(link, may_read);
                    prop_assert_eq!(dma.has_work(link, may_read), has_work);
                    let piece = dma.next_piece(link, max, may_read);
                    prop_assert_eq!(piece.is_some(), has_work);
                    if let Some(Piece { dma, action }) = piece {
                        let owner = model.chain(dma).endpoint;
                        prop_assert_eq!(Some(dma), model.head(owner));
                        prop_assert!(model.chain(dma).hand_out(action, max), "{:?}", action);
                        prop_assert_eq!(model.chain(dma).link, link);
                        let is_read = matches!(action, Action::Read { .. });
                        prop_assert!(may_read || !is_read);
                        model.pieces.push(dma);
                    }
                }
                Step::Done { which, fails } => {
                    if !model.pieces.is_empty() {
                        let id = model.pieces.swap_remove(which.index(model.pieces.len()));
                        let result = if fails { Err(Ended::MemoryFailed) } else { Ok(()) };
                        dma.handle_done(id, result);
                        let chain = model.chain(id);
                        chain.out -= 1;
                        chain.reads_out &= chain.out > 0;
                        if fails {
                            model.stop_one(id);
                        }
                    }
                }
                Step::Cancel(index) => {
                    dma.cancel(endpoint(index, 0));
                    model.stop(|chain| chain.endpoint == index && !chain.left.is_empty(), Ended::Here);
                }
                Step::Gone(link) => {
                    dma.handle_link_gone(link, Ended::Silent);
                    model.stop(|chain| chain.link == link, Ended::Silent);
                }
            }
            let mut expected = model.take_done();
            while let Some(FinishedChain { endpoint, dma, result }) = dma.poll_done() {
                prop_assert_eq!(expected.remove(&dma.raw()), Some(result));
                let (index, count) = counts.remove(&dma.raw()).unwrap();
                prop_assert_eq!(endpoint.index, index);
                requests[index as usize] -= count;
            }
            prop_assert!(expected.is_empty(), "done and not told: {:?}", expected);
            // A link that has had no work, and has some now, was called.
            while let Some(link) = dma.poll_called() {
                is_awake[link as usize] = true;
            }
            for (link, is_awake) in (0..).zip(&mut is_awake) {
                let has_work = dma.has_work(link, true);
                prop_assert!(*is_awake || !has_work, "link {link} sleeps");
                *is_awake &= has_work;
            }
            for (index, waiting) in requests.iter().enumerate() {
                prop_assert_eq!(dma.waiting(endpoint(index as u32, 0)), *waiting);
            }
        }
    }

    /// Whatever sizes of frames: among those who always want to write, nobody is
    /// ahead of another by more than two turns; and none is left out.
    #[test]
    fn dma_queues_that_are_not_empty_get_equal_shares(
        sizes in prop::collection::vec(8u32..2000, 50..400),
        queues in 2u32..6,
    ) {
        let mut dma = Dma::new(8, 4, 1000);
        let mut sent = [0u64; 8];
        for index in 0..queues {
            dma.submit(endpoint(index, 0), 0, &[write(u64::from(index), 1 << 40)]).unwrap();
        }
        for max in sizes {
            let Some(Piece { dma, action }) = dma.next_piece(0, max, true) else { unreachable!() };
            sent[dma.index as usize] += u64::from(length(&action));
            let (least, most) = sent[..queues as usize].iter().fold((u64::MAX, 0), |(a, b), n| (a.min(*n), b.max(*n)));
            prop_assert!(most - least <= 2 * 1000, "{:?}", sent);
        }
    }
}

impl Model {
    fn stop_one(&mut self, dma: DmaId) {
        let chain = self.chain(dma);
        chain.left.clear();
        chain.result = chain.result.and(Err(Ended::MemoryFailed));
    }
}

#[test]
fn a_write_is_cut_where_words_of_the_window_end() {
    let mut dma = Dma::new(1, 4, 1 << 20);
    dma.submit(endpoint(0, 0), 0, &[write(5, 100)]).unwrap();
    let mut cuts = Vec::new();
    for max in [2, 20, 16, 1000] {
        let Some(Piece { action: Action::Write { from, offset, .. }, .. }) =
            dma.next_piece(0, max, true)
        else {
            unreachable!()
        };
        cuts.push((from.offset, offset, from.len));
    }
    // Two bytes of a word; its third and two whole ones; two words; the rest.
    assert_eq!(cuts, [(1000, 5, 2), (1002, 7, 17), (1019, 24, 16), (1035, 40, 65)]);
}

#[test]
fn queues_that_wait_for_a_link_hold_no_other_up() {
    let mut dma = Dma::new(4, 4, 64);
    dma.submit(endpoint(0, 0), 7, &[write(0, 1000)]).unwrap();
    dma.submit(endpoint(1, 0), 3, &[write(0, 1000)]).unwrap();
    dma.submit(endpoint(2, 0), 3, &[read(0, 1000)]).unwrap();
    // Link 7 takes nothing, and reads are at their bound.
    for _ in 0..5 {
        let piece = dma.next_piece(3, 100, false).unwrap();
        assert!(matches!(piece.action, Action::Write { .. }));
    }
    assert!(dma.has_work(7, false) && dma.has_work(3, true));
}

#[test]
fn a_queue_that_goes_on_at_another_link_calls_it() {
    let mut dma = Dma::new(1, 4, 64);
    dma.submit(endpoint(0, 0), 3, &[word(0)]).unwrap();
    dma.submit(endpoint(0, 0), 7, &[word(0)]).unwrap();
    assert_eq!((dma.poll_called(), dma.poll_called()), (Some(3), None));
    assert!(!dma.has_work(7, true), "its turn is to come");
    let piece = dma.next_piece(3, 100, true).unwrap();
    assert_eq!((dma.poll_called(), dma.poll_called()), (Some(7), None));
    assert!(dma.has_work(7, true));
    dma.handle_done(piece.dma, Ok(()));
    assert_eq!(dma.poll_called(), None);
}

#[test]
fn requests_that_cannot_be_are_refused() {
    let mut dma = Dma::new(2, 4, 64);
    let here = endpoint(0, 0);
    assert_eq!(dma.submit(here, 0, &[]), Err(Error::TooLong));
    assert_eq!(dma.submit(here, 0, &[word(0); 5]), Err(Error::TooLong));
    assert_eq!(dma.submit(here, 0, &[write(0, 0)]), Err(Error::BadMemory));
    assert_eq!(dma.submit(here, 0, &[write(u64::MAX, 1)]), Err(Error::OutOfBounds));
    let odd = DmaRequest::Word { window: window(), offset: 4, value: 0 };
    assert_eq!(dma.submit(here, 0, &[word(0), odd]), Err(Error::Unaligned));
    assert_eq!(dma.waiting(here), 0);
    assert_eq!(dma.next_piece(0, 100, true), None);
    assert_eq!(dma.next_piece(u32::MAX, 100, true), None);
}

/// What an endpoint left behind does not count against the next one, and comes
/// to its end without it.
#[test]
fn an_endpoint_that_is_opened_again_begins_with_an_empty_queue() {
    let mut dma = Dma::new(1, 2, 64);
    let old = dma.submit(endpoint(0, 0), 0, &[write(0, 8), write(0, 8)]).unwrap();
    let piece = dma.next_piece(0, 100, true).unwrap();
    assert_eq!(dma.submit(endpoint(0, 0), 0, &[word(0)]), Err(Error::Busy));
    dma.cancel(endpoint(0, 0));
    assert_eq!(dma.poll_done(), None, "its first piece is on the way");
    let new = dma.submit(endpoint(0, 1), 0, &[word(0)]).unwrap();
    assert_eq!(dma.waiting(endpoint(0, 1)), 1);
    dma.handle_done(piece.dma, Ok(()));
    let result = Err(Ended::Here);
    assert_eq!(dma.poll_done(), Some(FinishedChain { endpoint: endpoint(0, 0), dma: old, result }));
    dma.handle_done(piece.dma, Ok(()));
    dma.cancel(endpoint(0, 0));
    let piece = dma.next_piece(0, 100, true).unwrap();
    assert_eq!(piece.dma, new);
    dma.handle_done(piece.dma, Ok(()));
    let result = Ok(());
    assert_eq!(dma.poll_done(), Some(FinishedChain { endpoint: endpoint(0, 1), dma: new, result }));
    assert_eq!(dma.waiting(endpoint(0, 1)), 0);
}

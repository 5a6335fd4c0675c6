//! CLAN's tripwires over one large aperture, and bursts of writes to it.

use clan_dsm::tripwire::{Action, Place, Touched, Tripwires, Watch};
use clan_dsm::{Access, Config};
use landfall_placement::Random;

const APERTURE: u64 = 64 << 20;
const WORD: u64 = 8;
/// Packets of a full frame.
const FRAME: usize = clan_dsm::wire::frame::MAX_ENTRIES;
const PLACE: Place = Place::Local(0);

/// Where bursts go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bursts {
    /// Single words here and there, between tripwires but never on one.
    Beside,
    /// The same in ascending order.
    BesideInOrder,
    /// This many words each, here and there.
    Anywhere(u64),
    /// This many words each, one burst behind the other.
    InOrder(u64),
}

/// An aperture of 64 MiB with tripwires, and bursts that were drawn before.
#[derive(Debug)]
pub struct TripLine {
    tripwires: Tripwires,
    random: Random,
    bursts: Vec<Touched>,
}

impl TripLine {
    /// Arms this many tripwires, each at an even word and up to `longest` words long.
    #[must_use]
    pub fn new(tripwires: usize, longest: u64) -> Self {
        let mut random = Random::from_number(1);
        let config = Config { tripwires, ..Config::default() };
        let mut all = Tripwires::new(&config, &mut random);
        for _ in 0..tripwires {
            let words = 1 + random.below(longest);
            let from = random.below((APERTURE / WORD - words) / 2) * 2 * WORD;
            let (access, action) = (Access::Write, Action::State);
            let to = from + words * WORD;
            let watch = Watch { place: PLACE, from, to, access, action, once: false };
            all.watch(&watch).expect("as many are allowed");
        }
        Self { tripwires: all, random, bursts: Vec::new() }
    }

    /// Draws the next bursts.
    pub fn draw(&mut self, count: usize, bursts: Bursts) {
        let random = &mut self.random;
        let (words, is_random, unit, odd) = match bursts {
            Bursts::Beside => (1, true, 2, 1),
            Bursts::BesideInOrder => (1, false, 2, 1),
            Bursts::Anywhere(words) => (words, true, words, 0),
            Bursts::InOrder(words) => (words, false, words, 0),
        };
        let places = APERTURE / WORD / unit;
        let start = random.below(places);
        self.bursts.clear();
        self.bursts.extend((0..count as u64).filter_map(|n| {
            let place = if is_random { random.below(places) } else { (start + n) % places };
            let from = (place * unit + odd) * WORD;
            Touched::new(PLACE, from, from + words * WORD, Access::Write)
        }));
    }

    /// Matches all that were drawn, as many at a time as a frame has, and gives the number of firings.
    #[inline(never)]
    pub fn match_bursts(&mut self) -> u64 {
        let mut firings = 0;
        for frame in self.bursts.chunks(FRAME) {
            self.tripwires.touch_all(frame, &mut |_| firings += 1);
        }
        firings
    }
}

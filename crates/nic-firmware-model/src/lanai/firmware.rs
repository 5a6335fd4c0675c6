//! [`Lanai`]: the firmware of the card.

use core::net::IpAddr;

use landfall_placement::{Check, Duration, InternetSum, PathId, RegionId, Span, Spans};
use qpip::offload::{
    Command, Ends, Entry, Hit, Incoming, Miss, Missed, Places, Prediction, Report, Tables,
    UnitOwner,
};

use super::requests::{self, Untranslated};
use super::stages::{Account, Helps, Load, Paper, StageCosts};
use super::tables::{LanaiTables, Station};
use crate::firmware::{Arrival, Firmware, Landed, Meter, OutgoingFrame, Verdict};
use crate::machine::{Batch, Request, Route};

/// The firmware of a LANai 9 that places segments and datagrams for `qpip`.
#[derive(Debug)]
pub struct Lanai<'s> {
    tables: LanaiTables<'s>,
    helps: Helps,
    costs: StageCosts,
    /// This many units have passed entries by, and this many entries were disarmed.
    count: u64,
    /// The count when a unit passed that may have been for any entry.
    unclear: u64,
    /// Something was predicted since such a unit passed.
    may_be_armed: bool,
    /// The entry that something came for last: likely the next one, too.
    likely: Option<u32>,
    /// The host said what comes next on this entry, but something had come already: it
    /// says so once more when it has heard of that.
    late: Option<u32>,
    /// Why the work requests of the next command are not known.
    untold: Option<Untranslated>,
    account: Account,
}

/// What is remembered of a payload on its way to memory.
#[derive(Clone, Copy, Debug)]
pub struct Token {
    hit: Hit,
    mark: u16,
}

impl Token {
    /// What came.
    #[must_use]
    pub const fn hit(&self) -> &Hit {
        &self.hit
    }
}

impl<'s> Lanai<'s> {
    /// A card that knows nothing yet, whose stages cost this.
    #[must_use]
    pub fn new(tables: LanaiTables<'s>, costs: StageCosts, helps: Helps) -> Self {
        let account = Account::default();
        let (count, unclear, may_be_armed) = (0, 0, false);
        Self {
            tables,
            helps,
            costs,
            count,
            unclear,
            may_be_armed,
            likely: None,
            late: None,
            untold: None,
            account,
        }
    }

    /// What each stage has taken.
    #[must_use]
    pub const fn account(&self) -> &Account {
        &self.account
    }

    /// An entry, to be looked at.
    #[must_use]
    pub fn entry(&self, slot: u32) -> Option<&Entry> {
        self.tables.entry(slot)
    }

    /// Memory is not the card's to write any more: requests that lie in the ring are not
    /// translated. What is predicted the host takes back by itself.
    pub fn unmap(&mut self, region: RegionId) {
        requests::unmap(&mut self.tables.mappings, region);
        self.tables.mapped.forget(region);
    }

    /// Frames to this address go this way from now on. The table is written by the driver
    /// when it loads the firmware, and stays when that is loaded anew. False where it has
    /// no room.
    pub fn set_route(&mut self, to: IpAddr, route: Route) -> bool {
        self.tables.routes.set(to, route)
    }

    // ---- The transmit state machine ------------------------------------------

    fn spend_on_sending(&mut self, len: u32, meter: &mut impl Meter) {
        let Self { costs, helps, account, .. } = self;
        let load = match len.checked_sub(costs.bare) {
            None | Some(0) => Load::Bare,
            Some(payload) => Load::Segment { payload, is_news: false },
        };
        costs.send(helps, load, account, meter);
    }

    // ---- The management state machine ----------------------------------------

    fn enter(&mut self, slot: u32, mark: u16, is_entered: bool) -> Report {
        if is_entered { self.quieten(slot, mark) } else { Report::Refused { slot, mark } }
    }

    fn open(&mut self, slot: u32, ends: Ends, path: PathId) -> bool {
        // An entry without a count could be armed at any time.
        self.tables.watch(slot).is_some() && self.tables.seam().open(slot, ends, path)
    }

    fn bind(&mut self, slot: u32, ends: Ends) -> bool {
        self.tables.watch(slot).is_some() && self.tables.seam().bind(slot, ends)
    }

    /// From now on nothing is predicted; says so to the host.
    fn quieten(&mut self, slot: u32, mark: u16) -> Report {
        if self.tables.entry(slot).is_none() {
            return Report::Refused { slot, mark };
        }
        self.stir(slot);
        Report::Quiet { slot, mark, heard: self.count }
    }

    /// Something has passed this entry by.
    fn stir(&mut self, slot: u32) {
        self.count += 1;
        self.tables.seam().disarm(slot);
        if let Some(watch) = self.tables.watch(slot) {
            watch.stirred = self.count;
        }
    }

    fn arm(&mut self, (slot, mark, heard): (u32, u16, u64), next: &Prediction) -> Option<Report> {
        match self.untold.take() {
            None => {}
            Some(Untranslated::Missed) => {
                self.late = Some(slot);
                return Some(self.quieten(slot, mark));
            }
            Some(Untranslated::Nowhere) => {
                self.tables.seam().close(slot);
                return Some(Report::Refused { slot, mark });
            }
        }
        let is_quiet = self.tables.entry(slot).is_some_and(|entry| !entry.is_armed());
        let unclear = self.unclear;
        let watch = self.tables.watch(slot).filter(|watch| {
            // The host has heard of all that passed this entry by.
            is_quiet && watch.stirred <= heard && unclear <= heard
        });
        let Some(watch) = watch else {
            self.late = Some(slot);
            return Some(self.quieten(slot, mark));
        };
        watch.mark = mark;
        self.may_be_armed = true;
        let mut seam = self.tables.seam();
        seam.arm(slot, next);
        seam.arm_port(slot, &next.places, next.course);
        None
    }

    /// Is this the prediction in force?
    fn is_armed(&mut self, slot: u32, mark: u16) -> bool {
        let is_named = self.tables.watch(slot).is_some_and(|watch| watch.mark == mark);
        is_named && self.tables.entry(slot).is_some_and(Entry::is_armed)
    }

    fn extend(&mut self, slot: u32, mark: u16, more: &Places) {
        let is_told = self.untold.take().is_none();
        if self.is_armed(slot, mark) && !(is_told && self.tables.seam().extend(slot, more)) {
            // What comes behind would have another place than the host thinks.
            self.stir(slot);
        }
    }

    // ---- The receive state machine -------------------------------------------

    /// A unit goes to the host. Nothing is taken of those that it may be for, until
    /// the host has looked at it.
    fn pass_by(&mut self, whose: UnitOwner) {
        match whose {
            UnitOwner::Nobody => {}
            UnitOwner::Slot(slot) => self.stir(slot),
            UnitOwner::Anybody => {
                self.count += 1;
                self.unclear = self.count;
                if core::mem::take(&mut self.may_be_armed) {
                    self.tables.seam().disarm_all();
                }
            }
        }
    }

    fn take(&mut self, frame: &Arrival<'_>, into: &mut Spans) -> Result<Hit, Missed> {
        let LanaiTables { stations, entries, pointers, secret, .. } = &mut self.tables;
        let Some(station) = stations.on(frame.path) else {
            return Err(Missed { why: Miss::Station, whose: UnitOwner::Anybody });
        };
        let unit = Incoming {
            path: frame.path,
            station: station.mac,
            addresses: station.addresses.as_slice(),
            likely: self.likely,
            head: frame.bytes,
            len: u32::try_from(frame.bytes.len()).unwrap_or(u32::MAX),
        };
        let mut seam = Tables::new(entries, pointers, *secret);
        seam.receive_if(&unit, into, |check| is_intact(frame.bytes, check))
    }

    /// Does a segment with data acknowledge something, too? Then the estimators of
    /// round trips are moved on.
    fn is_news(&self, hit: &Hit) -> bool {
        let Hit::Segment(hit) = hit else { return false };
        let known = self.tables.entry(hit.slot).and_then(Entry::prediction);
        known.is_some_and(|next| next.acknowledged != hit.ack)
    }

    /// What a frame costs that was looked at, of which so much is placed.
    fn spend_on(&mut self, taken: Option<&Hit>, len: u32, meter: &mut impl Meter) {
        let load = match taken {
            Some(taken @ Hit::Segment(hit)) => {
                Load::Segment { payload: hit.len, is_news: self.is_news(taken) }
            }
            Some(Hit::Datagram(hit)) => Load::Datagram { payload: hit.len },
            None => Load::Bare,
        };
        let Self { costs, helps, account, .. } = self;
        costs.receive(helps, (load, len), account, meter);
    }
}

impl Firmware for Lanai<'_> {
    type Command = Command;
    type Report = Report;
    type Token = Token;

    fn post(&mut self, command: &mut Command, batch: &mut Batch) {
        let Some((slot, places)) = places_of(command) else { return };
        batch.pair = slot;
        self.tables.mapped.post(places, batch);
        if !batch.requests.is_empty() {
            *places = Places::new();
        }
    }

    fn fetched(&mut self, command: &mut Command, requests: Option<&[Request]>) {
        let known = match requests {
            Some(requests) => requests::read(&mut self.tables.mappings, requests),
            None => Err(Untranslated::Missed),
        };
        match (known, places_of(command)) {
            (Ok(known), Some((_, places))) => *places = known,
            (Ok(_), None) => {}
            (Err(why), _) => {
                self.untold = Some(why);
                // The driver sees it in the card's state: it maps anew what it posts.
                self.tables.mapped.clear();
            }
        }
    }

    fn post_send(&mut self, from: &[Span], batch: &mut Batch) {
        self.tables.mapped.post_send(from, batch);
    }

    fn fetched_send(&mut self, requests: Option<&[Request]>, from: &mut Spans) -> bool {
        let known = requests.map(|requests| requests::read(&mut self.tables.mappings, requests));
        let Some(Ok(places)) = known else {
            self.tables.mapped.clear();
            return false;
        };
        places.iter().all(|(span, _)| from.push(span).is_ok())
    }

    fn handle_command(&mut self, command: &Command, meter: &mut impl Meter) -> Option<Report> {
        if matches!(command, Command::Arm { .. } | Command::Extend { .. }) && !self.helps.doorbells
        {
            // A request was posted. The others are the host's share of what is the
            // card's in the paper, and are not paid twice.
            self.account.spend(meter, Paper::Doorbell, self.costs.doorbell);
        }
        if slot_of(command) == self.late {
            self.late = None;
        }
        match *command {
            Command::Station { path, station, addresses } => {
                self.tables.stations.set(Station { path, mac: station, addresses });
                // What passed by as another's may be for one of ours.
                self.pass_by(UnitOwner::Anybody);
                None
            }
            Command::Open { slot, mark, ends, path } => {
                let is_entered = self.open(slot, ends, path);
                Some(self.enter(slot, mark, is_entered))
            }
            Command::Bind { slot, mark, ends } => {
                let is_entered = self.bind(slot, ends);
                Some(self.enter(slot, mark, is_entered))
            }
            Command::Arm { slot, mark, heard, ref next } => self.arm((slot, mark, heard), next),
            Command::Extend { slot, mark, ref more } => {
                self.extend(slot, mark, more);
                None
            }
            Command::Refresh { slot, mark, sent, recent, edge } => {
                if self.is_armed(slot, mark) {
                    self.tables.seam().refresh(slot, sent, recent, edge);
                }
                None
            }
            Command::Disarm { slot, mark } => Some(self.quieten(slot, mark)),
            Command::Close { slot, mark } => {
                self.tables.seam().close(slot);
                Some(Report::Closed { slot, mark })
            }
        }
    }

    fn receive(
        &mut self,
        frame: &Arrival<'_>,
        into: &mut Spans,
        meter: &mut impl Meter,
    ) -> Verdict<Token> {
        let len = u32::try_from(frame.bytes.len()).unwrap_or(u32::MAX);
        let taken = self.take(frame, into);
        self.spend_on(taken.as_ref().ok(), len, meter);
        match taken {
            Ok(hit) => {
                let (slot, at) = match &hit {
                    Hit::Segment(hit) => (hit.slot, hit.at),
                    Hit::Datagram(hit) => (hit.slot, hit.at),
                };
                self.likely = Some(slot);
                let mark = self.tables.watch(slot).map_or(0, |watch| watch.mark);
                Verdict::Place { at, token: Token { hit, mark } }
            }
            Err(Missed { whose, .. }) => {
                self.pass_by(whose);
                Verdict::Host
            }
        }
    }

    fn landed(
        &mut self,
        Token { hit, mark }: Token,
        is_in_place: bool,
        meter: &mut impl Meter,
    ) -> Landed<Report> {
        self.account.spend(meter, Paper::UpdateReceived, self.costs.update_data);
        let (slot, report) = match hit {
            Hit::Segment(hit) => (hit.slot, Report::Segment { hit, mark, is_in_place }),
            Hit::Datagram(hit) => (hit.slot, Report::Datagram { hit, mark, is_in_place }),
        };
        if !is_in_place && self.is_armed(slot, mark) {
            // What came behind it may still be under way, and nothing more comes so.
            self.stir(slot);
        }
        Landed::EventQueue(report)
    }

    fn send(&mut self, frame: &OutgoingFrame<'_>, meter: &mut impl Meter) -> Option<Route> {
        self.spend_on_sending(frame.len, meter);
        self.tables.routes.of(frame.head)
    }

    fn patience(&self) -> Duration {
        if self.late.is_some() { self.costs.patience } else { Duration::ZERO }
    }

    fn restart(&mut self) {
        self.tables.clear();
        (self.count, self.unclear, self.likely, self.late) = (0, 0, None, None);
        (self.may_be_armed, self.untold) = (false, None);
    }
}

/// The queue pair and the places of a command that posts some.
const fn places_of(command: &mut Command) -> Option<(u32, &mut Places)> {
    match command {
        Command::Arm { slot, next, .. } => Some((*slot, &mut next.places)),
        Command::Extend { slot, more, .. } => Some((*slot, more)),
        _ => None,
    }
}

/// The entry that a command is about.
const fn slot_of(command: &Command) -> Option<u32> {
    match *command {
        Command::Station { .. } => None,
        Command::Open { slot, .. }
        | Command::Bind { slot, .. }
        | Command::Arm { slot, .. }
        | Command::Extend { slot, .. }
        | Command::Refresh { slot, .. }
        | Command::Disarm { slot, .. }
        | Command::Close { slot, .. } => Some(slot),
    }
}

/// The pass over a frame, all of which is at hand.
#[inline]
fn is_intact(bytes: &[u8], check: Check) -> bool {
    let Check::InternetSum { from, len, seed } = check else { return true };
    let from = usize::from(from);
    let Some(summed) = bytes.get(from..from.saturating_add(len as usize)) else { return false };
    let mut sum = InternetSum::new();
    sum.add(summed);
    sum.add_word(seed);
    sum.sum() == 0xffff
}

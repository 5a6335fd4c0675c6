//! [`Plan`]: everything that a run does, drawn from its seed before it begins. A plan is data:
//! what fails is tried again with less of it.

use std::time::Duration;

use landfall_placement::Random;
use landfall_simnet::{EngineConfig, LinkConfig, Loss, Probability, Receive};

use crate::planted::Fault;

/// What a run is made of.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The seed that it was drawn from; the network's luck and all bytes come from it, too.
    pub seed: u64,
    /// How many hosts there are. Those that no step names do nothing.
    pub hosts: u8,
    /// The networks beside each other: each host has a link to each.
    pub planes: Vec<Plane>,
    /// How engines are configured and run.
    pub how: EngineSetup,
    /// What happens, by time.
    pub steps: Vec<Step>,
    /// A fault in the engines, planted to be found.
    pub fault: Option<Fault>,
}

/// A network: a switch, and a link for each host.
#[derive(Clone, Copy, Debug)]
pub struct Plane {
    /// The link of each host, both ways.
    pub link: LinkConfig,
    /// This many frames of a million have a bit flipped.
    pub damage: u32,
}

impl Plane {
    /// May all repetitions of something be lost? In bursts, which end by the frames that are sent
    /// into them and not by time; and where so much is lost that of two round trips one is.
    #[must_use]
    pub const fn is_harsh(&self) -> bool {
        match self.link.loss {
            Loss::None => self.damage > WORST_MILD,
            Loss::Uniform(share) => {
                share.parts_per_million() > WORST_MILD || self.damage > WORST_MILD
            }
            Loss::Bursty { .. } => true,
        }
    }
}

/// Of a million frames this many are lost, and this many damaged, where connections must not end.
const WORST_MILD: u32 = 30_000;

/// How engines are configured and run.
#[derive(Clone, Copy, Debug)]
pub struct EngineSetup {
    /// How drivers receive and send.
    pub engine: EngineConfig,
    /// STP is sealed.
    pub is_sealed: bool,
    /// STP and CLAN yield to congestion.
    pub is_shared: bool,
    /// STP's tables are as small as they may be.
    pub is_tight: bool,
    /// STP's users are asked before a connection is let in.
    pub asks: bool,
    /// Frames that came long ago come again.
    pub replays: bool,
    /// STP's messages of up to this many bytes leave with their request.
    pub eager: u16,
    /// Every other host takes none so.
    pub is_eager_apart: bool,
    /// STP's window over all senders; none: the usual one.
    pub window: Option<u32>,
    /// STP grants to the Transfer first of which the least is left.
    pub is_shortest_first: bool,
    /// Ends of sealed STP prove themselves by key pairs, not by a key that all have.
    pub has_key_pairs: bool,
    /// So few sealed handshakes wait for their ends that callers have to prove their addresses.
    pub is_crowded: bool,
}

impl EngineSetup {
    /// Messages of up to this many bytes leave a host with their request, and are taken so.
    #[must_use]
    pub const fn eager_of(&self, host: u8) -> u16 {
        if self.is_eager_apart && host % 2 == 1 { 0 } else { self.eager }
    }
}

/// Something that happens at its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// When, from the beginning on.
    pub at: Duration,
    /// What.
    pub act: Act,
}

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "fields are named after what they hold")]
pub enum Act {
    /// Work for one of the protocols, from one host to another.
    Work { from: u8, to: u8, work: Work },
    /// A host is killed and starts again, knowing nothing.
    Restart { host: u8 },
    /// A host's users take no events for so long.
    Freeze { host: u8, time: Duration },
    /// Nothing crosses the link of a host for so long, and nobody is told.
    Unplug { host: u8, plane: u8, time: Duration },
    /// The link of a host is down for so long, and its engines are told.
    LinkDown { host: u8, plane: u8, time: Duration },
    /// The hosts below this one hear nothing of the others, nor they of them, for so long.
    Partition { below: u8, time: Duration },
    /// This many frames that left a host before are sent again.
    Replay { host: u8, count: u8 },
}

/// Work for one of the protocols.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "fields are named after what they hold")]
pub enum Work {
    /// STP: a Transfer.
    Send { len: u32 },
    /// STP: memory for a Transfer to come.
    Post,
    /// STP: a Transfer from the other side is asked for.
    Read { len: u32 },
    /// STP: bytes into the other side's region.
    Put { at: u16, len: u16, notice: bool },
    /// STP: bytes out of it.
    Get { at: u16, len: u16 },
    /// STP: a word of it is changed.
    Fetch { word: u8, kind: u8, value: u32 },
    /// STP: what is sent or received is ended.
    Cancel,
    /// STP: another link for the connection.
    AddLink { plane: u8 },
    /// STP: the connection is closed, at once or when all is done.
    Close { at_once: bool },
    /// STP: a Transfer that is ended where it is not over in time.
    SendWithin { len: u32, millis: u16 },
    /// STP: a Transfer from the other side, ended where it is not over in time.
    ReadWithin { len: u32, millis: u16 },
    /// STP: memory that was posted is taken back.
    Withdraw,
    /// STP: who goes first on the connection, and how much it has beside others.
    Prefer { priority: u8, weight: u16 },
    /// STP, sealed: this many handshakes are begun, and nothing follows.
    Knock { count: u8 },
    /// QPIP: a message, on a connection of this kind.
    Message { kind: u8, len: u32 },
    /// QPIP: this side sends no more, or the connection ends at once.
    Shutdown { kind: u8, at_once: bool },
    /// QPIP: a datagram, to a queue pair or to the speculative receiver.
    Datagram { speculates: bool, len: u16 },
    /// NBD over QPIP: a request to the disk that the other side offers.
    Disk { kind: u8, at: u8, count: u8, fua: bool },
    /// CLAN: bytes into the other side's aperture.
    Write { at: u16, len: u16 },
    /// CLAN: from memory, without a copy.
    WriteFrom { at: u16, len: u16 },
    /// CLAN: a chain of requests of the DMA engine.
    Dma { at: u16, len: u16 },
    /// CLAN: out of it.
    ReadOut { at: u16, len: u16 },
    /// CLAN: a word of it is changed.
    Change { word: u8, kind: u8, value: u32 },
    /// CLAN: all before is in place.
    Barrier,
}

impl Work {
    /// What it is called in a tally.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Send { .. } => "stp send",
            Self::Post => "stp post",
            Self::Read { .. } => "stp read",
            Self::Put { .. } => "stp put",
            Self::Get { .. } => "stp get",
            Self::Fetch { .. } => "stp word",
            Self::Cancel => "stp cancel",
            Self::AddLink { .. } => "stp link",
            Self::Close { .. } => "stp close",
            Self::SendWithin { .. } => "stp send in time",
            Self::ReadWithin { .. } => "stp read in time",
            Self::Withdraw => "stp withdraw",
            Self::Prefer { .. } => "stp preference",
            Self::Knock { .. } => "stp knock",
            Self::Message { kind, .. } => {
                ["qpip message", "qpip stream", "qpip segment"][kind as usize % 3]
            }
            Self::Shutdown { .. } => "qpip close",
            Self::Datagram { speculates: true, .. } => "defrag datagram",
            Self::Datagram { .. } => "qpip datagram",
            Self::Disk { .. } => "disk request",
            Self::Write { .. } => "clan write",
            Self::WriteFrom { .. } => "clan write from memory",
            Self::Dma { .. } => "clan dma",
            Self::ReadOut { .. } => "clan read",
            Self::Change { .. } => "clan word",
            Self::Barrier => "clan barrier",
        }
    }
}

impl Act {
    /// What it is called in a tally.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Work { work, .. } => work.name(),
            Self::Restart { .. } => "restart",
            Self::Freeze { .. } => "frozen users",
            Self::Unplug { .. } => "unplugged",
            Self::LinkDown { .. } => "link down",
            Self::Partition { .. } => "partition",
            Self::Replay { .. } => "replay",
        }
    }

    /// Is it work, and no fault?
    #[must_use]
    pub const fn is_work(self) -> bool {
        matches!(self, Self::Work { .. })
    }

    /// After it connections may end that nobody ended.
    #[must_use]
    pub const fn is_severe(self) -> bool {
        matches!(
            self,
            Self::Restart { .. }
                | Self::Unplug { .. }
                | Self::LinkDown { .. }
                | Self::Partition { .. }
        )
    }

    /// Does this host take part?
    #[must_use]
    pub fn names(self, n: u8) -> bool {
        match self {
            Self::Work { from, to, .. } => from == n || to == n,
            Self::Restart { host }
            | Self::Freeze { host, .. }
            | Self::Unplug { host, .. }
            | Self::LinkDown { host, .. }
            | Self::Replay { host, .. } => host == n,
            Self::Partition { .. } => false,
        }
    }
}

/// So often a run has handshakes by the dozen: more of them would drive out those that have not
/// shown the keys yet, as they may.
const MOST_KNOCKS: u64 = 1;

/// Draws numbers of the kinds that plans need.
struct Draw(Random);

impl Draw {
    fn below(&mut self, bound: u64) -> u64 {
        self.0.below(bound)
    }

    fn chance(&mut self, percent: u32) -> bool {
        self.0.chance(percent * 10_000)
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }

    /// Mostly short, sometimes long: as many digits as another.
    fn length(&mut self, most: u32) -> u32 {
        let bits = self.below(u64::from(most.ilog2()) + 1);
        (self.below(2 << bits) as u32).min(most)
    }

    fn millis(&mut self, most: u64) -> Duration {
        Duration::from_micros(self.below(most * 1000 + 1))
    }
}

impl Plan {
    /// Draws a plan.
    #[must_use]
    pub fn draw(seed: u64) -> Self {
        let mut draw = Draw(Random::from_number(seed ^ 0x50a_c000));
        let hosts = 2 + draw.below(4) as u8;
        // In a mild run no connection may end that nobody ended.
        let is_mild = draw.chance(60);
        let planes = (0..1 + draw.below(2)).map(|_| plane(&mut draw, is_mild)).collect::<Vec<_>>();
        let how = how(&mut draw);
        let length =
            draw.pick(&[Duration::from_millis(50), Duration::from_secs(1), Duration::from_secs(4)]);
        let most = draw.pick(&[20, 100, 400]);
        let count = 4 + draw.below(most);
        let parts = 1 + draw.below(15) as u8;
        let steps: Vec<_> = (0..count)
            .map(|_| {
                let at = Duration::from_nanos(draw.below(length.as_nanos() as u64));
                let is_fault = draw.chance(8);
                let act = match is_fault {
                    true => fault(&mut draw, hosts, planes.len() as u8, is_mild),
                    false => work(&mut draw, hosts, planes.len() as u8, parts),
                };
                Step { at, act }
            })
            .collect();
        let mut plan = Self { seed, hosts, planes, how, steps, fault: None };
        if parts & 1 == 1 {
            plan.add_stp(length);
        }
        if parts & 2 == 2 {
            plan.add_disks(length);
        }
        plan.steps.sort_by_key(|step| step.at);
        plan
    }

    /// What STP can do beside that: short messages with their requests, wishes, deadlines,
    /// handshakes by the dozen. It is drawn apart, so that what else a seed stands for stays.
    fn add_stp(&mut self, length: Duration) {
        let mut draw = Draw(Random::from_number(self.seed ^ 0xea6e_2000));
        let how = &mut self.how;
        how.eager = draw.pick(&[0, 64, 256, 256, 1_024]);
        how.is_eager_apart = draw.chance(20);
        how.window = draw.pick(&[None, None, Some(96 << 10), Some(24 << 10)]);
        how.is_shortest_first = draw.chance(25);
        how.has_key_pairs = draw.chance(40);
        how.is_crowded = draw.chance(50);
        let knocks = if how.is_sealed && how.is_crowded { draw.below(MOST_KNOCKS + 1) } else { 0 };
        let count = draw.below(2 + self.steps.len() as u64 / 3);
        for nth in 0..knocks + count {
            let at = Duration::from_nanos(draw.below(length.as_nanos() as u64));
            let (from, to) = two_of(&mut draw, self.hosts);
            let work = if nth < knocks {
                Work::Knock { count: 20 + draw.below(9) as u8 }
            } else {
                stp_wish(&mut draw)
            };
            self.steps.push(Step { at, act: Act::Work { from, to, work } });
        }
    }

    /// Requests to disks, drawn apart, too.
    fn add_disks(&mut self, length: Duration) {
        let mut draw = Draw(Random::from_number(self.seed ^ 0xd15c_0000));
        for _ in 0..draw.below(2 + self.steps.len() as u64 / 4) {
            let at = Duration::from_nanos(draw.below(length.as_nanos() as u64));
            // Few disks with much to do find more than many with little.
            let (from, to) = two_of(&mut draw, self.hosts.min(3));
            let (kind, first, count) = (draw.below(8) as u8, draw.below(64) as u8, draw.below(12));
            let work = Work::Disk { kind, at: first, count: count as u8, fua: draw.chance(20) };
            self.steps.push(Step { at, act: Act::Work { from, to, work } });
        }
    }

    /// How many hosts take part.
    #[must_use]
    pub fn busy_hosts(&self) -> usize {
        (0..self.hosts).filter(|host| self.uses(*host)).count()
    }

    /// Does this host take part?
    #[must_use]
    pub fn uses(&self, host: u8) -> bool {
        self.steps.iter().any(|step| step.act.names(host))
    }
}

fn plane(draw: &mut Draw, is_mild: bool) -> Plane {
    let rate = draw.pick(&[100_000_000, 1_000_000_000, 10_000_000_000]);
    let delay = draw.pick(&[
        Duration::from_micros(2),
        Duration::from_micros(200),
        Duration::from_millis(8),
    ]);
    let mtu = draw.pick(&[1_514, 1_514, 4_110, 9_014]);
    let mut link = LinkConfig::ethernet(rate).delay(delay).mtu(mtu).queue_bytes(2 << 20);
    let worst = if is_mild { 3 } else { 15 };
    if draw.chance(60) {
        let share = Probability::per_million(draw.below(worst * 10_000) as u32);
        // In a burst that idles on, all openings of a connection may be lost.
        let bursts = draw.chance(30) && !is_mild;
        link = link.loss(if bursts { Loss::bursts(share, 4) } else { Loss::Uniform(share) });
    }
    if draw.chance(40) {
        link = link.duplication(Probability::per_million(draw.below(worst * 10_000) as u32));
    }
    if draw.chance(40) {
        let share = Probability::per_million(draw.below(200_000) as u32);
        link = link.reordering(share, delay * 3 + Duration::from_micros(50));
    }
    let damage = if draw.chance(40) { draw.below(worst * 10_000) as u32 } else { 0 };
    Plane { link, damage }
}

fn how(draw: &mut Draw) -> EngineSetup {
    let batch = draw.pick(&[1, 1, 2, 8, 32]);
    let receive = draw.pick(&[Receive::Copied, Receive::Guessed]);
    let engine = EngineConfig {
        receive,
        batch,
        hold: draw.millis(1),
        send_delay: if draw.chance(30) { draw.millis(1) } else { Duration::ZERO },
        ..EngineConfig::default()
    };
    EngineSetup {
        engine,
        is_sealed: draw.chance(35),
        is_shared: draw.chance(50),
        is_tight: draw.chance(15),
        asks: draw.chance(30),
        replays: draw.chance(40),
        eager: 0,
        is_eager_apart: false,
        window: None,
        is_shortest_first: false,
        has_key_pairs: false,
        is_crowded: false,
    }
}

fn fault(draw: &mut Draw, hosts: u8, planes: u8, is_mild: bool) -> Act {
    let host = draw.below(hosts.into()) as u8;
    let plane = draw.below(planes.into()) as u8;
    let time = draw.millis(1_000);
    match draw.below(if is_mild { 2 } else { 6 }) {
        0 => Act::Freeze { host, time },
        1 => Act::Replay { host, count: 1 + draw.below(20) as u8 },
        2 => Act::Restart { host },
        3 => Act::Unplug { host, plane, time: time * 4 },
        4 => Act::LinkDown { host, plane, time },
        _ => Act::Partition { below: 1 + draw.below(u64::from(hosts) - 1) as u8, time: time * 4 },
    }
}

/// One host, and another one.
fn two_of(draw: &mut Draw, hosts: u8) -> (u8, u8) {
    let from = draw.below(hosts.into()) as u8;
    (from, (from + 1 + draw.below(u64::from(hosts) - 1) as u8) % hosts)
}

fn work(draw: &mut Draw, hosts: u8, planes: u8, parts: u8) -> Act {
    let (from, to) = two_of(draw, hosts);
    let allowed: Vec<u8> = (0..4).filter(|part| parts >> part & 1 == 1).collect();
    let work = match draw.pick(&allowed) {
        0 => stp_work(draw, planes),
        1 => qpip_work(draw),
        2 => Work::Datagram { speculates: draw.chance(60), len: 16 + draw.length(8_000) as u16 },
        _ => clan_work(draw),
    };
    Act::Work { from, to, work }
}

fn stp_work(draw: &mut Draw, planes: u8) -> Work {
    let (at, len) = (draw.below(8_000) as u16, 1 + draw.length(8_000) as u16);
    match draw.below(40) {
        0..12 => Work::Send { len: draw.length(250_000) },
        12..15 => Work::Post,
        15..18 => Work::Read { len: draw.length(100_000) },
        18..24 => Work::Put { at, len, notice: draw.chance(20) },
        24..29 => Work::Get { at, len },
        29..34 => fetch(draw),
        34 => Work::Cancel,
        35..38 => Work::AddLink { plane: draw.below(planes.into()) as u8 },
        _ => Work::Close { at_once: draw.chance(30) },
    }
}

fn stp_wish(draw: &mut Draw) -> Work {
    let millis = draw.length(500) as u16;
    match draw.below(20) {
        0..8 => Work::Send { len: draw.length(1_200) },
        8..12 => Work::SendWithin { len: draw.length(250_000), millis },
        12..14 => Work::ReadWithin { len: draw.length(100_000), millis },
        14 => Work::Post,
        15 => Work::Withdraw,
        _ => Work::Prefer { priority: draw.below(3) as u8, weight: 1 + draw.length(20) as u16 },
    }
}

fn fetch(draw: &mut Draw) -> Work {
    let (word, kind) = (draw.below(16) as u8, draw.below(4) as u8);
    Work::Fetch { word, kind, value: draw.0.next_u32() }
}

fn qpip_work(draw: &mut Draw) -> Work {
    let kind = draw.below(3) as u8;
    match draw.below(20) {
        0 => Work::Shutdown { kind, at_once: draw.chance(30) },
        _ => Work::Message { kind, len: 1 + draw.length(15_000) },
    }
}

fn clan_work(draw: &mut Draw) -> Work {
    let at = draw.below(8_000) as u16;
    match draw.below(20) {
        0..6 => Work::Write { at, len: 1 + draw.length(2_000) as u16 },
        6..9 => Work::WriteFrom { at, len: 1 + draw.length(8_000) as u16 },
        9..12 => Work::Dma { at, len: 1 + draw.length(8_000) as u16 },
        12..15 => Work::ReadOut { at, len: 1 + draw.length(8_000) as u16 },
        15..18 => {
            let (word, kind) = (draw.below(16) as u8, draw.below(4) as u8);
            Work::Change { word, kind, value: draw.0.next_u32() }
        }
        _ => Work::Barrier,
    }
}

//! What the processor of the card spends on each stage: the paper's Tables 2 and 3.

use landfall_placement::Duration;

use crate::firmware::{Meter, Stage};

/// The stages of the paper's tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Paper {
    /// "Doorbell Process".
    Doorbell,
    /// "Schedule".
    Schedule,
    /// "Get WR".
    GetRequest,
    /// "Get Data".
    GetData,
    /// "Build TCP Hdr", or that of UDP.
    BuildTransport,
    /// "Build IP Hdr".
    BuildIp,
    /// "Send".
    Send,
    /// "Update", of what was sent.
    UpdateSent,
    /// "Media Rcv".
    MediaReceive,
    /// "IP Parse".
    ParseIp,
    /// "TCP Parse", or that of UDP.
    ParseTransport,
    /// "Put Data".
    PutData,
    /// "Update", of what came.
    UpdateReceived,
    /// The sum over what came, where no hardware makes it.
    Checksum,
}

impl Paper {
    /// How many there are.
    pub const COUNT: usize = Self::Checksum as usize + 1;

    /// Where the machine's account has it.
    const fn stage(self) -> Stage {
        match self {
            Self::Doorbell => Stage::Doorbell,
            Self::Schedule | Self::BuildTransport | Self::BuildIp | Self::Send => Stage::Send,
            Self::GetRequest | Self::GetData | Self::PutData => Stage::Dma,
            Self::MediaReceive | Self::ParseIp => Stage::Header,
            Self::ParseTransport => Stage::Lookup,
            Self::UpdateSent | Self::UpdateReceived => Stage::Update,
            Self::Checksum => Stage::Checksum,
        }
    }
}

/// Which help of hardware the card has: the four that the paper asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Helps {
    /// Doorbells reach the state of their queue pair without the processor.
    pub doorbells: bool,
    /// The sum over what came is made while it comes.
    pub checksum: bool,
    /// The entry of a packet is found in content-addressable memory.
    pub lookup: bool,
    /// Multiplication in one cycle.
    pub arithmetic: bool,
}

/// What the stages cost, in cycles. Zero everywhere: nothing takes time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StageCosts {
    /// "Doorbell Process".
    pub doorbell: u32,
    /// "Schedule".
    pub schedule: u32,
    /// "Get WR", of either side.
    pub get_request: u32,
    /// "Get Data".
    pub get_data: u32,
    /// "Build TCP Hdr".
    pub build_tcp: u32,
    /// The header of UDP.
    pub build_udp: u32,
    /// "Build IP Hdr".
    pub build_ip: u32,
    /// "Send".
    pub send: u32,
    /// "Update", of what was sent.
    pub update_sent: u32,
    /// "Media Rcv".
    pub media_receive: u32,
    /// "IP Parse".
    pub parse_ip: u32,
    /// "TCP Parse" of data, the search for the connection among it.
    pub parse_data: u32,
    /// "TCP Parse" of an acknowledgement, without multiplications.
    pub parse_ack: u32,
    /// The multiplications of the estimators of round trips, in software.
    pub multiply: u32,
    /// The header of UDP.
    pub parse_udp: u32,
    /// The part of a parse that is the search for the entry.
    pub lookup: u32,
    /// "Put Data".
    pub put_data: u32,
    /// The processor waits while a payload moves: this many bytes in 1024 cycles; 0: it does not.
    pub bytes_in_1024_cycles: u32,
    /// "Update", of data.
    pub update_data: u32,
    /// "Update", of an acknowledgement: the request and the queue pair.
    pub update_ack: u32,
    /// The sum over 1024 bytes.
    pub sum_of_1024: u32,
    /// A frame that is sent and is not longer carries no data.
    pub bare: u32,
    /// For so long at most what came waits for a host that was overtaken by it.
    pub patience: Duration,
}

impl StageCosts {
    /// The processor of the card: cycles in a second.
    pub const CLOCK: u64 = 133_000_000;

    /// This many tenths of a microsecond, in cycles.
    const fn tenths(tenths: u32) -> u32 {
        (tenths as u64 * Self::CLOCK / 10_000_000) as u32
    }

    /// The headers of Ethernet, IPv6 and TCP with timestamps.
    pub const BARE: u32 = 14 + 40 + 32;

    /// The prototype of the paper: its Tables 2 and 3.
    ///
    /// Three numbers are fitted, and no table states them: how fast the processor
    /// moves a payload while it waits for the DMA engine (75.6 MB/s at 16 KiB), what
    /// the sum costs in firmware (26.4 MB/s), and the headers of UDP, which are
    /// taken to cost what those of IP do. The search for the connection is taken to
    /// be two of the seven microseconds of a parse.
    pub const PAPER: Self = Self {
        doorbell: Self::tenths(10),
        schedule: Self::tenths(20),
        get_request: Self::tenths(55),
        get_data: Self::tenths(45),
        build_tcp: Self::tenths(50),
        build_udp: Self::tenths(10),
        build_ip: Self::tenths(10),
        send: Self::tenths(10),
        update_sent: Self::tenths(15),
        media_receive: Self::tenths(10),
        parse_ip: Self::tenths(15),
        parse_data: Self::tenths(70),
        parse_ack: Self::tenths(70),
        multiply: Self::tenths(70),
        parse_udp: Self::tenths(15),
        lookup: Self::tenths(20),
        put_data: Self::tenths(45),
        bytes_in_1024_cycles: 670,
        update_data: Self::tenths(15),
        update_ack: Self::tenths(90),
        sum_of_1024: 3_360,
        bare: Self::BARE,
        patience: Duration::from_micros(20),
    };

    /// Cycles that this many bytes take to be summed.
    pub(super) const fn sum(&self, len: u32) -> u32 {
        (len as u64 * self.sum_of_1024 as u64 / 1024) as u32
    }

    /// Cycles that the processor waits while this many bytes move.
    pub(super) const fn wait(&self, len: u32) -> u32 {
        match (len as u64 * 1024).checked_div(self.bytes_in_1024_cycles as u64) {
            Some(cycles) => cycles as u32,
            None => 0,
        }
    }
}

/// What a frame is to the stages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Load {
    /// A segment with data; where it acknowledges something new, the estimators of round
    /// trips are moved on.
    Segment { payload: u32, is_news: bool },
    /// A datagram of UDP.
    Datagram { payload: u32 },
    /// An acknowledgement alone, and whatever else carries no data.
    Bare,
}

impl StageCosts {
    /// Table 2: what the transmit side spends on a frame.
    pub(super) fn send(
        &self,
        helps: &Helps,
        load: Load,
        account: &mut Account,
        meter: &mut impl Meter,
    ) {
        if !helps.doorbells {
            account.spend(meter, Paper::Doorbell, self.doorbell);
        }
        account.spend(meter, Paper::Schedule, self.schedule);
        if load != Load::Bare {
            account.spend(meter, Paper::GetRequest, self.get_request);
            account.spend(meter, Paper::GetData, self.get_data);
        }
        let build = match load {
            Load::Datagram { .. } => self.build_udp,
            Load::Segment { .. } | Load::Bare => self.build_tcp,
        };
        account.spend(meter, Paper::BuildTransport, build);
        account.spend(meter, Paper::BuildIp, self.build_ip);
        account.spend(meter, Paper::Send, self.send);
        account.spend(meter, Paper::UpdateSent, self.update_sent);
    }

    /// Table 3: what the receive side spends on a frame of this many bytes until its payload
    /// is in its place. The doorbell of its request, and the update behind a payload, are
    /// not among it.
    pub(super) fn receive(
        &self,
        helps: &Helps,
        (load, len): (Load, u32),
        account: &mut Account,
        meter: &mut impl Meter,
    ) {
        let lookup = if helps.lookup { self.lookup } else { 0 };
        let multiply = if helps.arithmetic { 0 } else { self.multiply };
        account.spend(meter, Paper::MediaReceive, self.media_receive);
        account.spend(meter, Paper::ParseIp, self.parse_ip);
        if !helps.checksum {
            account.spend(meter, Paper::Checksum, self.sum(len));
        }
        let (parse, payload) = match load {
            Load::Segment { payload, is_news: true } => (self.parse_data + multiply, Some(payload)),
            Load::Segment { payload, is_news: false } => (self.parse_data, Some(payload)),
            Load::Datagram { payload } => (self.parse_udp, Some(payload)),
            Load::Bare => (self.parse_ack + multiply, None),
        };
        account.spend(meter, Paper::ParseTransport, parse.saturating_sub(lookup));
        match payload {
            Some(payload) => {
                account.spend(meter, Paper::GetRequest, self.get_request);
                account.spend(meter, Paper::PutData, self.put_data + self.wait(payload));
            }
            None => account.spend(meter, Paper::UpdateReceived, self.update_ack),
        }
    }

    /// All of Table 3 for a frame, with the doorbell of its request and the update behind its
    /// payload.
    #[cfg(feature = "std")]
    pub(super) fn receive_all(
        &self,
        helps: &Helps,
        (load, len): (Load, u32),
        account: &mut Account,
        meter: &mut impl Meter,
    ) {
        if !helps.doorbells {
            account.spend(meter, Paper::Doorbell, self.doorbell);
        }
        self.receive(helps, (load, len), account, meter);
        if load != Load::Bare {
            account.spend(meter, Paper::UpdateReceived, self.update_data);
        }
    }
}

/// Cycles by the paper's stages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account([u64; Paper::COUNT]);

impl Account {
    /// What a stage has taken.
    #[must_use]
    pub fn cycles(&self, stage: Paper) -> u64 {
        self.0.get(stage as usize).copied().unwrap_or(0)
    }

    #[inline]
    pub(super) fn spend(&mut self, meter: &mut impl Meter, stage: Paper, cycles: u32) {
        if let Some(spent) = self.0.get_mut(stage as usize) {
            *spent += u64::from(cycles);
        }
        meter.spend(stage.stage(), cycles);
    }
}

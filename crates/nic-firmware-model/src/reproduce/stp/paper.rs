//! What the paper's Tables 1 and 2 state.

/// In this paper a megabyte is 2^20 bytes.
pub(super) const MEGABYTE: f64 = 1_048_576.0;
/// 100 % are both processors of a machine.
pub(super) const PROCESSORS: f64 = 2.0;
/// A segment of TCP with time stamps has so much less than its packet.
const TCP_HEADERS: f64 = 52.0;
const STP_HEADER: f64 = 40.0;
pub(super) const PAGE: f64 = 4096.0;

/// How the sender hands its data over, and the receiver takes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    TcpWrite,
    TcpSendfile,
    Stp,
}

/// A line of the paper's tables: megabytes per second, and the shares of the two
/// machines' processors.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    pub(super) label: &'static str,
    pub(super) way: Way,
    pub(super) packet: f64,
    /// The copy to the user is left out.
    pub(super) is_truncated: bool,
    pub(super) rate: f64,
    pub(super) receiver: f64,
    pub(super) sender: f64,
}

const fn line(
    label: &'static str,
    way: Way,
    packet: f64,
    is_truncated: bool,
    measured: (f64, f64, f64),
) -> Line {
    let (rate, receiver, sender) = measured;
    Line { label, way, packet, is_truncated, rate, receiver, sender }
}

/// The paper's Table 1.
pub(super) const TABLE_1: [Line; 10] = [
    line("TCP write()", Way::TcpWrite, 9000.0, false, (75.0, 55.0, 48.0)),
    line("MSG_TRUNC", Way::TcpWrite, 9000.0, true, (99.0, 35.0, 55.0)),
    line("TCP sendfile()", Way::TcpSendfile, 9000.0, false, (74.0, 55.0, 12.0)),
    line("MSG_TRUNC, sendfile()", Way::TcpSendfile, 9000.0, true, (99.0, 31.0, 19.0)),
    line("STP write()", Way::Stp, 4136.0, false, (98.0, 8.0, 17.0)),
    line("TCP write()", Way::TcpWrite, 1500.0, false, (52.0, 55.0, 50.0)),
    line("MSG_TRUNC", Way::TcpWrite, 1500.0, true, (70.0, 52.0, 70.0)),
    line("TCP sendfile()", Way::TcpSendfile, 1500.0, false, (45.0, 50.0, 12.0)),
    line("MSG_TRUNC, sendfile()", Way::TcpSendfile, 1500.0, true, (70.0, 52.0, 39.0)),
    line("STP write()", Way::Stp, 1064.0, false, (53.0, 8.0, 17.0)),
];

/// The paper's Table 2: the receiver touches the data.
pub(super) const TABLE_2: [Line; 4] = [
    line("TCP", Way::TcpWrite, 9000.0, false, (49.0, 62.0, 22.0)),
    line("STP", Way::Stp, 4136.0, false, (53.0, 23.0, 9.0)),
    line("TCP", Way::TcpWrite, 1500.0, false, (14.0, 53.0, 11.0)),
    line("STP", Way::Stp, 1064.0, false, (34.0, 16.0, 11.0)),
];

impl Line {
    pub(super) const fn payload(&self) -> f64 {
        self.packet - if matches!(self.way, Way::Stp) { STP_HEADER } else { TCP_HEADERS }
    }

    pub(super) fn packets_per_second(&self) -> f64 {
        self.rate * MEGABYTE / self.payload()
    }

    /// Of pages, and the header before them.
    pub(super) fn pieces(&self) -> f64 {
        (self.payload() / PAGE).ceil() + 1.0
    }

    /// The payload of a packet of STP, as a power of two.
    pub(super) const fn stu(&self) -> u8 {
        (self.payload() as u32).ilog2() as u8
    }
}

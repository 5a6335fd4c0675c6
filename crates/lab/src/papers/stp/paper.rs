//! The numbers of the paper: Tables 1 and 2. A megabyte is 2^20 bytes there, and 100 % are
//! both processors of a machine.

use landfall_testbed::rivals::Workload;
use serde::Serialize;

/// What a line of a table states.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Stated {
    pub(crate) megabytes_per_s: f64,
    pub(crate) cpu_percent_receive: f64,
    pub(crate) cpu_percent_send: f64,
}

/// A line, with what it takes to do the same.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line {
    pub(crate) test: &'static str,
    /// What the paper calls the size of a packet: of STP the STU with its header.
    pub(crate) packet_bytes: u32,
    pub(super) protocol: &'static str,
    /// Of the link.
    pub(super) mtu: u32,
    pub(super) workload: Workload,
    pub(crate) stated: Stated,
}

const fn tcp(test: &'static str, mtu: u32, workload: Workload, stated: [u8; 3]) -> Line {
    Line { test, packet_bytes: mtu, protocol: "tcp", mtu, workload, stated: of(stated) }
}

const fn stp(test: &'static str, mtu: u32, workload: Workload, stated: [u8; 3]) -> Line {
    let packet_bytes = stu(mtu) + 40;
    Line { test, packet_bytes, protocol: "stp", mtu, workload, stated: of(stated) }
}

const fn of([rate, receive, send]: [u8; 3]) -> Stated {
    Stated {
        megabytes_per_s: rate as f64,
        cpu_percent_receive: receive as f64,
        cpu_percent_send: send as f64,
    }
}

/// The payload of an STU over a link of this MTU: a page with jumbo frames, else a quarter.
pub(super) const fn stu(mtu: u32) -> u32 {
    if mtu < 4096 + 68 { 1024 } else { 4096 }
}

/// "TCP and STP performance". The paper prints the lines of `sendfile()` with `MSG_TRUNC`
/// as "MSG_TRUNC", too.
pub(crate) const TABLE_1: [Line; 10] = [
    tcp("TCP write()", 9000, Workload::Plain, [75, 55, 48]),
    tcp("MSG_TRUNC", 9000, Workload::Trunc, [99, 35, 55]),
    tcp("TCP sendfile()", 9000, Workload::Sendfile, [74, 55, 12]),
    tcp("MSG_TRUNC, sendfile()", 9000, Workload::SendfileTrunc, [99, 31, 19]),
    stp("STP write()", 9000, Workload::Plain, [98, 8, 17]),
    tcp("TCP write()", 1500, Workload::Plain, [52, 55, 50]),
    tcp("MSG_TRUNC", 1500, Workload::Trunc, [70, 52, 70]),
    tcp("TCP sendfile()", 1500, Workload::Sendfile, [45, 50, 12]),
    tcp("MSG_TRUNC, sendfile()", 1500, Workload::SendfileTrunc, [70, 52, 39]),
    stp("STP write()", 1500, Workload::Plain, [53, 8, 17]),
];

/// "Results when receiver touches the data".
pub(crate) const TABLE_2: [Line; 4] = [
    tcp("TCP", 9000, Workload::Touch, [49, 62, 22]),
    stp("STP", 9000, Workload::Touch, [53, 23, 9]),
    tcp("TCP", 1500, Workload::Touch, [14, 53, 11]),
    stp("STP", 1500, Workload::Touch, [34, 16, 11]),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_those_of_the_paper() {
        let packets = TABLE_1.iter().map(|line| line.packet_bytes);
        let expected = [9000, 9000, 9000, 9000, 4136, 1500, 1500, 1500, 1500, 1064];
        assert_eq!(packets.collect::<Vec<_>>(), expected);
    }
}

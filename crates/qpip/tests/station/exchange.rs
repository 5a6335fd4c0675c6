//! Bytes both ways between a queue pair and a socket of the kernel, with equal
//! hashes at both ends.

use std::net::{SocketAddr, TcpStream};

use landfall_transport::Driver;
use qpip::{CloseReason, QueuePairId};

use super::kernel::{self, Heard, Kernel};
use super::program::{Program, Saying, hash_of};
use super::{Report, Station};

/// Who asks for the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opener {
    Station,
    Kernel,
}

/// The ways in which two can begin to talk: is it IPv4, and who asks.
pub const OPENINGS: [(bool, Opener); 4] = [
    (true, Opener::Station),
    (true, Opener::Kernel),
    (false, Opener::Station),
    (false, Opener::Kernel),
];

/// Where the station listens.
pub const PORT: u16 = 7000;

/// How much both sides say to each other, and how they begin.
#[derive(Clone, Copy, Debug)]
pub struct Exchange {
    pub is_ipv4: bool,
    pub opener: Opener,
    pub to_kernel: u64,
    pub to_station: u64,
}

impl Exchange {
    pub fn new((is_ipv4, opener): (bool, Opener), bytes: u64) -> Self {
        Self { is_ipv4, opener, to_kernel: bytes, to_station: bytes }
    }

    /// Opens a connection, exchanges, and closes; nothing may be missing.
    #[track_caller]
    pub fn run<D: Driver>(self, station: &mut Station<D>, kernel: &Kernel) -> Report {
        let at = station.at(self.is_ipv4, PORT);
        self.run_at(station, kernel, at)
    }

    /// The same where the kernel finds the station somewhere else.
    #[track_caller]
    pub fn run_at<D: Driver>(
        self,
        station: &mut Station<D>,
        kernel: &Kernel,
        at: SocketAddr,
    ) -> Report {
        let (ours, theirs) = (u64::from(self.is_ipv4), 2 + u64::from(self.is_ipv4));
        let program = Saying::new(ours, self.to_kernel);
        let (pair, stream) = open_at(station, kernel, (self.is_ipv4, self.opener), program, at);
        let (mut saying, mut hearing) = (stream.try_clone().unwrap(), stream);
        let to_station = self.to_station;
        let said = kernel.task(move || kernel::say(&mut saying, theirs, to_station));
        let heard = kernel.task(move || kernel::hear(&mut hearing));
        said.join(station);
        let heard = heard.join(station);
        let report = station.finish(pair);
        assert_eq!(heard, Heard::of(ours, self.to_kernel), "{self:?}: at the kernel");
        assert_eq!(report.received, to_station, "{self:?}: at the station");
        assert_eq!(report.hash, hash_of(theirs, to_station), "{self:?}: at the station");
        assert_eq!((report.sent, report.failed_sends), (self.to_kernel, 0), "{self:?}");
        assert_eq!(report.closed, Some(CloseReason::Finished), "{self:?}");
        report
    }
}

/// Opens a connection between the station and the kernel.
#[track_caller]
pub fn open<D: Driver>(
    station: &mut Station<D>,
    kernel: &Kernel,
    opening: (bool, Opener),
    program: impl Program + 'static,
) -> (QueuePairId, TcpStream) {
    let at = station.at(opening.0, PORT);
    open_at(station, kernel, opening, program, at)
}

/// The same where the kernel finds the station somewhere else than at its own
/// address.
#[track_caller]
pub fn open_at<D: Driver>(
    station: &mut Station<D>,
    kernel: &Kernel,
    (is_ipv4, opener): (bool, Opener),
    program: impl Program + 'static,
    at: SocketAddr,
) -> (QueuePairId, TcpStream) {
    match opener {
        Opener::Station => {
            let (listener, at) = kernel.listen(is_ipv4);
            let pair = station.connect(at, program);
            let accepting = kernel.task(move || kernel::accept(&listener));
            (pair, accepting.join(station))
        }
        Opener::Kernel => {
            let listener = station.listen(station.at(is_ipv4, PORT));
            let pair = station.offer(listener, program);
            let stream = kernel.task(move || kernel::connect(at)).join(station);
            station
                .until("the connection is accepted", |station| station.report(pair).ends.is_some());
            station.adapter.stop_listening(listener).unwrap();
            (pair, stream)
        }
    }
}
